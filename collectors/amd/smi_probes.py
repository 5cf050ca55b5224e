"""What amdsmi gives, in the order of preference. What it does not give, sysfs may."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from collectors.amd import derive, host_probes, metrics_rows, sysfs_probes
from collectors.amd.cards import Card
from collectors.amd.gpu_metrics import GpuMetrics, from_amdsmi
from collectors.amd.metrics_rows import FIRST_DATA_CLOCK, FIRST_VIDEO_CLOCK, MEMORY_CLOCK, SOC_CLOCK, clock_labels
from collectors.amd.reader import Probe, Reader, from_file
from collectors.amd.smi import UNKNOWN, Smi, SmiFailure
from collectors.amd.sysfs_probes import DISPLAY_CLOCK, FABRIC_CLOCK, PCIE_CLOCK, memory_rows
from collectors.amd.texts import Errors, Pages
from collectors.base import Reading

_CLOCKS: Final = (
    (0, "system", "GFX"),
    (MEMORY_CLOCK, "memory", "MEM"),
    (FIRST_VIDEO_CLOCK, "video", "VCLK0"),
    (FIRST_VIDEO_CLOCK + 1, "video", "VCLK1"),
    (FIRST_DATA_CLOCK, "data", "DCLK0"),
    (FIRST_DATA_CLOCK + 1, "data", "DCLK1"),
    (FABRIC_CLOCK, "fabric", "DF"),
    (DISPLAY_CLOCK, "dce", "DCEF"),
    (SOC_CLOCK, "soc", "SOC"),
    (PCIE_CLOCK, "pcie", "PCIE"),
)
_SENSORS: Final = (
    ("hotspot", "HOTSPOT", "gpu_junction_temperature"),
    ("edge", "EDGE", "gpu_edge_temperature"),
    ("memory", "VRAM", "gpu_memory_temperature"),
)
_ALL_ONES: Final = frozenset((0xFFFF, 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF))
"""Of power and voltages, which come in 16 bits and are widened unseen. 255 can be true."""
_ALL_ONES_64: Final = frozenset((0xFFFFFFFFFFFFFFFF,))
_TYPES: Final = (("vram", "VRAM"), ("visible_vram", "VIS_VRAM"), ("gtt", "GTT"))


class DriverGoneError(Exception):
    """The library or the driver is closed."""


class SmiProbes:
    """The probes over one open library. What a GPU does not support is asked once."""

    def __init__(self, smi: Smi) -> None:
        self._smi = smi
        self._skipped: set[tuple[int, object]] = set()
        ways: tuple[tuple[frozenset[str], Callable[[Reader, Card], Iterator[Reading]]], ...] = (
            (sysfs_probes.POWER, self._power),
            (sysfs_probes.LIMITS, self._limits),
            (sysfs_probes.ENERGY, self._energy),
            (sysfs_probes.TEMPERATURES, self._temperatures),
            (sysfs_probes.THRESHOLDS, self._thresholds),
            (sysfs_probes.VOLTAGES, self._voltages),
            (sysfs_probes.ACTIVITY, self._activity),
            (sysfs_probes.MEMORY, self._memory),
            (frozenset(("gpu_vram_max_bandwidth",)), self._bandwidth),
            (frozenset(("gpu_clock",)), self._clocks),
            (sysfs_probes.RANGES, self._ranges),
            (sysfs_probes.THROTTLING, self._throttling),
            (sysfs_probes.XGMI, self._links),
            (host_probes.ERRORS, self._errors),
            (host_probes.PAGES, self._pages),
        )
        own = tuple(Probe(series, read) for series, read in ways)
        self.probes = (*own, *host_probes.PROBES, *sysfs_probes.PROBES, Probe(host_probes.SLOT, self._slot))

    def ask(self, reader: Reader, position: int, handle: Any, name: str, *arguments: Any) -> Any:
        """The result of a call; None if there is none. Raises DriverGoneError."""
        quantity = (name, arguments)
        if (position, quantity) in self._skipped:
            return None
        try:
            return self._smi.call(name, handle, *arguments)
        except SmiFailure as failure:
            verdict = failure.verdict
            if verdict == "gone":
                raise DriverGoneError(str(failure)) from None
            if verdict in ("unsupported", "permission") or failure.code == UNKNOWN:
                self._skipped.add((position, quantity))
            if verdict not in ("unsupported", "nothing"):
                reader.report(position, verdict, str(failure))
            return None

    def metrics(self, reader: Reader, card: Card) -> GpuMetrics:
        """The table by the library, or the driver's own where the library is too old for it. Raises FileError."""
        answer = self.ask(reader, card.position, card.handle, "amdsmi_get_gpu_metrics_info")
        found = from_amdsmi(answer) if isinstance(answer, Mapping) else None
        return found if found is not None and found.known else from_file(reader, card)

    def _member(self, enumeration: str, name: str) -> Any:
        try:
            return self._smi.value(enumeration, name)
        except SmiFailure:
            return None

    def _power(self, reader: Reader, card: Card) -> Iterator[Reading]:
        found = list(metrics_rows.power(card, reader.metrics(card)))
        if found:
            yield from found
            return
        told = self.ask(reader, card.position, card.handle, "amdsmi_get_power_info")
        now, average = _number(told, "current_socket_power"), _number(told, "average_socket_power")
        if now:
            yield Reading("gpu_package_power", card.position, now)
        if average:
            yield Reading("gpu_average_package_power", card.position, average)
        if now or average:
            yield Reading("gpu_power_usage", card.position, now or average or 0)

    def _limits(self, reader: Reader, card: Card) -> Iterator[Reading]:
        told = self.ask(reader, card.position, card.handle, "amdsmi_get_power_cap_info")
        second = reader.pairs.get(card.position)
        for limit, key in (
            ("enforced", "power_cap"),
            ("default", "default_power_cap"),
            ("min", "min_power_cap"),
            ("max", "max_power_cap"),
        ):
            microwatts = _number(told, key)
            if microwatts is None or (not microwatts and limit != "min"):
                continue
            labels = (("limit", limit),)
            yield Reading("amdsmi_power_limit_watts", card.position, microwatts / 1e6, labels)
            for die in (card, second) if second is not None else ():
                yield Reading("amdsmi_power_limit_share_watts", die.position, microwatts / 2e6, labels)

    def _energy(self, reader: Reader, card: Card) -> Iterator[Reading]:
        if reader.metrics(card).number("energy_accumulator") is not None or not card.counts_energy:
            return
        told = self.ask(reader, card.position, card.handle, "amdsmi_get_energy_count")
        steps = _number(told, "energy_accumulator") or _number(told, "power")
        resolution = told.get("counter_resolution") if isinstance(told, Mapping) else None
        if steps and isinstance(resolution, float) and resolution > 0 and reader.energy.believes(card):
            yield Reading("gpu_energy_consumed", card.position, int(steps * resolution))
            yield Reading("amdsmi_energy_joules_total", card.position, steps * metrics_rows.JOULES)

    def _temperature(self, reader: Reader, card: Card, sensor: str, metric: str) -> int | None:
        kind, what = self._member("AmdSmiTemperatureType", sensor), self._member("AmdSmiTemperatureMetric", metric)
        if kind is None or what is None:
            return None
        value = self.ask(reader, card.position, card.handle, "amdsmi_get_temp_metric", kind, what)
        return value if isinstance(value, int) and 0 < value < 1000 else None

    def _temperatures(self, reader: Reader, card: Card) -> Iterator[Reading]:
        for _, sensor, series in _SENSORS:
            if series in reader.wanted and (value := self._temperature(reader, card, sensor, "CURRENT")) is not None:
                yield Reading(series, card.position, value)
        others = {series for _, _, series in _SENSORS}
        for reading in metrics_rows.temperatures(card, reader.metrics(card)):
            if reading.series not in others:
                yield reading

    def _thresholds(self, reader: Reader, card: Card) -> Iterator[Reading]:
        for name, sensor, _ in _SENSORS:
            for series, metric in (
                ("amdsmi_temperature_critical_celsius", "CRITICAL"),
                ("amdsmi_temperature_emergency_celsius", "EMERGENCY"),
            ):
                if (value := self._temperature(reader, card, sensor, metric)) is not None:
                    yield Reading(series, card.position, value, (("sensor", name),))

    def _voltages(self, reader: Reader, card: Card) -> Iterator[Reading]:
        found = list(metrics_rows.voltages(card, reader.metrics(card)))
        if found:
            yield from found
            return
        told = self.ask(reader, card.position, card.handle, "amdsmi_get_power_info")
        for series, key in (
            ("gpu_voltage", "soc_voltage"),
            ("gpu_gfx_voltage", "gfx_voltage"),
            ("gpu_memory_voltage", "mem_voltage"),
        ):
            if value := _number(told, key):
                yield Reading(series, card.position, value)

    def _activity(self, reader: Reader, card: Card) -> Iterator[Reading]:
        metrics = reader.metrics(card)
        found = [*metrics_rows.activity(card, metrics), *metrics_rows.part_activity(card, metrics)]
        yield from found
        if found:
            return
        told = self.ask(reader, card.position, card.handle, "amdsmi_get_gpu_activity")
        for series, key in (
            ("gpu_gfx_activity", "gfx_activity"),
            ("gpu_umc_activity", "umc_activity"),
            ("gpu_mma_activity", "mm_activity"),
        ):
            value = _number(told, key)
            if value is not None and value <= 100:
                yield Reading(series, card.position, value)

    def _memory(self, reader: Reader, card: Card) -> Iterator[Reading]:
        capacities: list[int | None] = []
        for kind, member in _TYPES:
            type_ = self._member("AmdSmiMemoryType", member)
            for part in card.parts if kind == "vram" and card.memory_in_parts else card.parts[:1]:
                position = part.position if kind == "vram" and card.memory_in_parts else card.position
                total, used = (
                    self.ask(reader, part.position, part.handle, f"amdsmi_get_gpu_memory_{what}", type_)
                    for what in ("total", "usage")
                )
                if isinstance(total, int):
                    yield from memory_rows(position, kind, total, used if isinstance(used, int) else None)
                if kind == "vram":
                    capacities.append(total if isinstance(total, int) else None)
        known = [capacity for capacity in capacities if capacity]
        if known and len(known) == len(capacities):
            yield Reading("amdsmi_memory_capacity_bytes", card.position, sum(known))

    def _bandwidth(self, reader: Reader, card: Card) -> Iterator[Reading]:
        told = self.ask(reader, card.position, card.handle, "amdsmi_get_gpu_vram_info")
        if value := _number(told, "vram_max_bandwidth"):
            yield Reading("gpu_vram_max_bandwidth", card.position, value)

    def _clock(self, reader: Reader, card: Card, name: str) -> Any:
        kind = self._member("AmdSmiClkType", name)
        return self.ask(reader, card.position, card.handle, "amdsmi_get_clock_info", kind) if kind is not None else None

    def _clocks(self, reader: Reader, card: Card) -> Iterator[Reading]:
        found = metrics_rows.clocks(reader.metrics(card))
        kinds = {kind for _, kind in found}
        for index, kind, name in _CLOCKS:
            if kind not in kinds:
                told = self._clock(reader, card, name)
                value = _number(told, "clk") if _number(told, "clk") is not None else _number(told, "cur_clk")
                if value is not None:
                    found[index, kind] = value
        for (index, kind), mhz in sorted(found.items()):
            yield Reading("gpu_clock", card.position, mhz, clock_labels(index, kind))

    def _ranges(self, reader: Reader, card: Card) -> Iterator[Reading]:
        for index, kind, name in _CLOCKS:
            told = self._clock(reader, card, name)
            for series, key in (("gpu_min_clock", "min_clk"), ("gpu_max_clock", "max_clk")):
                value = _number(told, key)
                # A clock that has no range is told as 0 to 0.
                if value is not None and _number(told, "max_clk"):
                    yield Reading(series, card.position, value, clock_labels(index, kind))

    def _throttling(self, reader: Reader, card: Card) -> Iterator[Reading]:
        if derive.throttling(card, reader.metrics(card)) is None:
            # The library gives the bits as yes or no.
            yield from derive.told_by_bits(card, from_file(reader, card))
        else:
            yield from sysfs_probes.throttling(reader, card)

    def _links(self, reader: Reader, card: Card) -> Iterator[Reading]:
        yield from metrics_rows.xgmi(card, reader.metrics(card))
        told = self.ask(reader, card.position, card.handle, "amdsmi_get_gpu_xgmi_link_status")
        states = told.get("status") if isinstance(told, Mapping) else None
        up = {index: state == "U" for index, state in enumerate(states or ()) if state in ("U", "D")}
        yield from metrics_rows.link_states(card, up)

    def _errors(self, reader: Reader, card: Card) -> Iterator[Reading]:
        found: dict[str, Errors] = {}
        for block in host_probes.BLOCKS:
            member = self._member("AmdSmiGpuBlock", block.upper())
            if member is None:
                continue
            told = self.ask(reader, card.position, card.handle, "amdsmi_get_gpu_ecc_count", member)
            if isinstance(told, Mapping):
                found[block] = _errors(told)
        told = self.ask(reader, card.position, card.handle, "amdsmi_get_gpu_total_ecc_count")
        total = _errors(told) if isinstance(told, Mapping) else Errors()
        yield from host_probes.error_rows(card, found, total)
        yield from reader.health.rows(card, found, total)

    def _pages(self, reader: Reader, card: Card) -> Iterator[Reading]:
        told = self.ask(reader, card.position, card.handle, "amdsmi_get_gpu_bad_page_info")
        if not isinstance(told, list):
            return
        states = [page.get("status") for page in told if isinstance(page, Mapping)]
        counts = [
            states.count(self._member("AmdSmiMemoryPageStatus", name))
            for name in ("RESERVED", "PENDING", "UNRESERVABLE")
        ]
        yield from host_probes.page_rows(card, Pages(*counts))

    def _slot(self, reader: Reader, card: Card) -> Iterator[Reading]:
        """Only where sysfs does not tell: on MI200 the library measures the traffic, too, for a second."""
        if card.has("pcie_bw"):
            return
        told = self.ask(reader, card.position, card.handle, "amdsmi_get_pcie_info")
        static = told.get("pcie_static") if isinstance(told, Mapping) else None
        speed = _number(static, "max_pcie_speed")
        yield from host_probes.slot_rows(card, speed / 1000 if speed else None, _number(static, "max_pcie_width"))


def _number(told: object, key: str, absent: frozenset[int] = _ALL_ONES) -> int | None:
    """A whole number of an answer; None for N/A, and for all ones."""
    value = told.get(key) if isinstance(told, Mapping) else None
    if not isinstance(value, int) or isinstance(value, bool) or value < 0 or value in absent:
        return None
    return value


def _errors(told: Mapping[str, object]) -> Errors:
    names = ("correctable_count", "uncorrectable_count", "deferred_count")
    return Errors(*(_number(told, name, _ALL_ONES_64) for name in names))
