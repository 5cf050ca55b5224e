"""What the driver's table (gpu_metrics) and the files of sysfs give, in the order of preference."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

from collectors.amd import derive, files, metrics_rows, texts
from collectors.amd.cards import Card
from collectors.amd.metrics_rows import MEMORY_CLOCK, SOC_CLOCK, Clocks, clock_labels
from collectors.amd.reader import Probe, Reader, hwmon, number, path
from collectors.amd.texts import Levels
from collectors.base import Reading

FABRIC_CLOCK: Final = 17
DISPLAY_CLOCK: Final = 18
PCIE_CLOCK: Final = 20
_SENSORS: Final = (
    ("junction", "hotspot", "gpu_junction_temperature"),
    ("edge", "edge", "gpu_edge_temperature"),
    ("mem", "memory", "gpu_memory_temperature"),
)
"""hwmon's label, the common schema's sensor, AMD's series."""
_LIMITS: Final = (
    ("enforced", "power1_cap"),
    ("default", "power1_cap_default"),
    ("min", "power1_cap_min"),
    ("max", "power1_cap_max"),
)
_LEVELS: Final = (
    (0, "system", "pp_dpm_sclk"),
    (MEMORY_CLOCK, "memory", "pp_dpm_mclk"),
    (FABRIC_CLOCK, "fabric", "pp_dpm_fclk"),
    (DISPLAY_CLOCK, "dce", "pp_dpm_dcefclk"),
    (SOC_CLOCK, "soc", "pp_dpm_socclk"),
    (PCIE_CLOCK, "pcie", "pp_dpm_pcie"),
)
_MIB: Final = 1 << 20


def _power(reader: Reader, card: Card) -> Iterator[Reading]:
    metrics = reader.metrics(card)
    yield from metrics_rows.power(card, metrics)
    if metrics.known:
        return
    now, average = hwmon(card, "power1_input"), hwmon(card, "power1_average")
    if now:
        yield Reading("gpu_package_power", card.position, now // 1_000_000)
    if average:
        yield Reading("gpu_average_package_power", card.position, average // 1_000_000)
    if now or average:
        yield Reading("gpu_power_usage", card.position, (now or average or 0) // 1_000_000)


def _energy(reader: Reader, card: Card) -> Iterator[Reading]:
    metrics = reader.metrics(card)
    found = list(metrics_rows.energy(card, metrics))
    watts = metrics.number("current_socket_power") or metrics.number("average_socket_power")
    if found and watts:
        reader.energy.add(card, found[0].value, watts, time.monotonic())
    if reader.energy.believes(card):
        yield from found


def _shares(reader: Reader, card: Card) -> Iterator[Reading]:
    """Of a board with two dies, whose first tells of both."""
    second = reader.pairs.get(card.position)
    if second is None:
        return
    metrics = reader.metrics(card)
    watts = metrics.number("average_socket_power") or metrics.number("current_socket_power")
    steps = metrics.number("energy_accumulator")
    for die in (card, second):
        if watts:
            yield Reading("amdsmi_power_share_watts", die.position, watts / 2)
        if steps:
            yield Reading("amdsmi_energy_share_joules_total", die.position, steps * metrics_rows.JOULES / 2)


def _limits(reader: Reader, card: Card) -> Iterator[Reading]:
    second = reader.pairs.get(card.position)
    for limit, file in _LIMITS:
        microwatts = hwmon(card, file)
        if microwatts is None or (not microwatts and limit != "min"):
            continue
        labels = (("limit", limit),)
        yield Reading("amdsmi_power_limit_watts", card.position, microwatts / 1e6, labels)
        for die in (card, second) if second is not None else ():
            yield Reading("amdsmi_power_limit_share_watts", die.position, microwatts / 2e6, labels)


def _temperatures(reader: Reader, card: Card) -> Iterator[Reading]:
    yield from metrics_rows.temperatures(card, reader.metrics(card))


def _hwmon_temperatures(_: Reader, card: Card) -> Iterator[Reading]:
    for label, _sensor, series in _SENSORS:
        sensor = card.sensors.get(label)
        if sensor is not None and (value := hwmon(card, f"{sensor}_input")):
            yield Reading(series, card.position, value // 1000)


def _thresholds(_: Reader, card: Card) -> Iterator[Reading]:
    for label, name, _series in _SENSORS:
        sensor = card.sensors.get(label)
        for series, kind in (
            ("amdsmi_temperature_critical_celsius", "crit"),
            ("amdsmi_temperature_emergency_celsius", "emergency"),
        ):
            if sensor is not None and (value := hwmon(card, f"{sensor}_{kind}")):
                yield Reading(series, card.position, value / 1000, (("sensor", name),))


def _voltages(reader: Reader, card: Card) -> Iterator[Reading]:
    yield from metrics_rows.voltages(card, reader.metrics(card))


def _hwmon_voltages(_: Reader, card: Card) -> Iterator[Reading]:
    if value := hwmon(card, "in0_input"):
        yield Reading("gpu_gfx_voltage", card.position, value)


def _activity(reader: Reader, card: Card) -> Iterator[Reading]:
    metrics = reader.metrics(card)
    yield from metrics_rows.activity(card, metrics)
    yield from metrics_rows.part_activity(card, metrics)


def _busy(_: Reader, card: Card) -> Iterator[Reading]:
    for series, file in (("gpu_gfx_activity", "gpu_busy_percent"), ("gpu_umc_activity", "mem_busy_percent")):
        if (value := number(card, file)) is not None:
            yield Reading(series, card.position, value)
    if (value := number(card, "vcn_busy_percent")) is not None:
        yield Reading("gpu_vcn_activity", card.position, value, (("vcn_index", "0"),))


def levels(card: Card, file: str) -> Levels:
    """The levels of a clock. Raises FileError."""
    return texts.levels(files.text(path(card, file))) if card.has(file) else Levels()


def _clocks(reader: Reader, card: Card) -> Iterator[Reading]:
    found: Clocks = metrics_rows.clocks(reader.metrics(card))
    for index, kind, file in ((0, "system", "freq1_input"), (MEMORY_CLOCK, "memory", "freq2_input")):
        if (index, kind) not in found and (hertz := hwmon(card, file)):
            found[index, kind] = hertz // 1_000_000
    for index, kind, file in _LEVELS:
        if (index, kind) not in found and (mhz := levels(card, file).current) is not None:
            found[index, kind] = mhz
    for (index, kind), mhz in sorted(found.items()):
        yield Reading("gpu_clock", card.position, mhz, clock_labels(index, kind))


def _clock_ranges(_: Reader, card: Card) -> Iterator[Reading]:
    for index, kind, file in _LEVELS:
        found = levels(card, file)
        if found.lowest is not None:
            yield Reading("gpu_min_clock", card.position, found.lowest, clock_labels(index, kind))
        if found.highest is not None:
            yield Reading("gpu_max_clock", card.position, found.highest, clock_labels(index, kind))


def throttling(reader: Reader, card: Card) -> Iterator[Reading]:
    """From the residencies of the table and of the one before it, else from the driver's bits."""
    metrics = reader.metrics(card)
    now = derive.throttling(card, metrics)
    if now is None:
        yield from derive.told_by_bits(card, metrics)
        return
    yield from derive.accumulated(card, now)
    key = (reader.group, card.position)
    before = reader.throttling.get(key)
    reader.throttling[key] = now
    if before is not None:
        yield from derive.since(card, before, now)


def _pcie(reader: Reader, card: Card) -> Iterator[Reading]:
    yield from metrics_rows.pcie(card, reader.metrics(card))


def _pcie_files(_: Reader, card: Card) -> Iterator[Reading]:
    speed = texts.speed(files.text(path(card, "current_link_speed"))) if card.has("current_link_speed") else None
    if speed is not None:
        yield from metrics_rows.link_speed(card, speed)
    if width := number(card, "current_link_width"):
        yield Reading("amdsmi_pcie_link_width", card.position, width)
    if (replays := number(card, "pcie_replay_count")) is not None:
        yield Reading("pcie_replay_count", card.position, replays)


def _xgmi(reader: Reader, card: Card) -> Iterator[Reading]:
    metrics = reader.metrics(card)
    yield from metrics_rows.xgmi(card, metrics)
    yield from metrics_rows.links(card, metrics)


def _bandwidth(reader: Reader, card: Card) -> Iterator[Reading]:
    yield from metrics_rows.bandwidth(card, reader.metrics(card))


def _memory(_: Reader, card: Card) -> Iterator[Reading]:
    """Of the whole card. Its parts' own memory is KFD's to tell."""
    for kind, file in (("vram", "vram"), ("visible_vram", "vis_vram"), ("gtt", "gtt")):
        if kind == "vram" and card.memory_in_parts:
            continue
        total, used = number(card, f"mem_info_{file}_total"), number(card, f"mem_info_{file}_used")
        yield from memory_rows(card.position, kind, total, used)
    if (total := number(card, "mem_info_vram_total")) is not None:
        yield Reading("amdsmi_memory_capacity_bytes", card.position, total)


def memory_rows(position: int, kind: str, total: int | None, used: int | None) -> Iterator[Reading]:
    """In MiB, rounded down, as AMD's exporter has them; ``total`` and ``used`` in bytes."""
    if not total:
        return
    yield Reading(f"gpu_total_{kind}", position, total // _MIB)
    if used is not None:
        yield Reading(f"gpu_used_{kind}", position, used // _MIB)
        yield Reading(f"gpu_free_{kind}", position, total // _MIB - used // _MIB)


def _names(*patterns: str) -> frozenset[str]:
    return frozenset(" ".join(patterns).split())


MEMORY: Final = frozenset(
    f"gpu_{what}_{kind}" for what in ("total", "used", "free") for kind in ("vram", "visible_vram", "gtt")
) | {"amdsmi_memory_capacity_bytes"}
POWER: Final = _names("gpu_power_usage gpu_package_power gpu_average_package_power")
ENERGY: Final = _names("amdsmi_energy_joules_total gpu_energy_consumed")
TEMPERATURES: Final = _names(
    "gpu_junction_temperature gpu_edge_temperature gpu_memory_temperature gpu_hbm_temperature",
    "amdsmi_vr_temperature_celsius",
)
VOLTAGES: Final = _names("gpu_voltage gpu_gfx_voltage gpu_memory_voltage")
ACTIVITY: Final = _names(
    "gpu_gfx_activity gpu_umc_activity gpu_mma_activity gpu_vcn_activity gpu_jpeg_activity",
    "gpu_gfx_busy_instantaneous gpu_vcn_busy_instantaneous gpu_jpeg_busy_instantaneous",
)
THROTTLING: Final = frozenset(
    (
        derive.THROTTLE,
        "gpu_violation_current_accumulated_counter",
        "amdsmi_thermal_residency_milliseconds",
        *(
            f"gpu_violation_{name}_residency_{kind}"
            for name in derive.RESIDENCIES.values()
            for kind in ("accumulated", "percentage")
        ),
        *(
            f"gpu_violation_{name}_{kind}"
            for name in derive.PART_RESIDENCIES.values()
            for kind in ("accumulated", "percentage")
        ),
    )
)
PCIE: Final = _names(
    "pcie_speed pcie_bandwidth pcie_bidirectional_bandwidth pcie_replay_count pcie_recovery_count",
    "pcie_replay_rollover_count pcie_nack_sent_count pcie_nack_received_count",
    "amdsmi_pcie_link_generation amdsmi_pcie_link_width",
)
XGMI: Final = _names("gpu_xgmi_link_rx gpu_xgmi_link_tx amdsmi_xgmi_links amdsmi_xgmi_links_up amdsmi_xgmi_link_up")
LIMITS: Final = _names("amdsmi_power_limit_watts amdsmi_power_limit_share_watts")
SHARES: Final = _names("amdsmi_power_share_watts amdsmi_energy_share_joules_total")
RANGES: Final = _names("gpu_min_clock gpu_max_clock")
THRESHOLDS: Final = _names("amdsmi_temperature_critical_celsius amdsmi_temperature_emergency_celsius")

PROBES: Final = (
    Probe(SHARES, _shares),
    Probe(POWER, _power),
    Probe(ENERGY, _energy),
    Probe(LIMITS, _limits),
    Probe(TEMPERATURES, _temperatures),
    Probe(TEMPERATURES, _hwmon_temperatures),
    Probe(THRESHOLDS, _thresholds),
    Probe(VOLTAGES, _voltages),
    Probe(frozenset(("gpu_gfx_voltage",)), _hwmon_voltages),
    Probe(ACTIVITY, _activity),
    Probe(_names("gpu_gfx_activity gpu_umc_activity gpu_vcn_activity"), _busy),
    Probe(MEMORY, _memory),
    Probe(frozenset(("gpu_vram_max_bandwidth",)), _bandwidth),
    Probe(frozenset(("gpu_clock",)), _clocks),
    Probe(RANGES, _clock_ranges),
    Probe(THROTTLING, throttling),
    Probe(PCIE, _pcie),
    Probe(_names("pcie_speed amdsmi_pcie_link_generation amdsmi_pcie_link_width pcie_replay_count"), _pcie_files),
    Probe(XGMI, _xgmi),
)
"""Of one series the first probe that gives it counts."""
