"""The driver's files → readings."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import msgspec

from collectors.base import Group, Labels, ReadError, Reading
from collectors.neuron import formats, sysfs
from collectors.neuron.formats import Cycles
from collectors.neuron.inventory import Chip, Inventory
from collectors.neuron.sysfs import Slot

_MOST_ERRORS: Final = 20
_SLOW_DRIVER: Final = (2, 28)
"""Drivers before this one had races in their sysfs code that could crash the kernel: they are read more seldom."""
_SLOW_EVERY: Final = 15.0
_BELIEVED: Final = 3
"""How often in a row a register must have gone back to be believed: one that cannot be read for a moment says 0."""

HW_ERRORS: Final = frozenset(
    (
        "hw_hbm_ue_error",
        "hw_nc_ue_error",
        "hw_dma_abort_error",
        "hw_collectives_error",
        "hw_repairable_hbm_ue_error",
    )
)

_NUMBERS: Final[Mapping[str, str]] = {
    "health_count": "neuron_sysfs_health_status",
    "host": "neuron_sysfs_host_memory_category_bytes",
    "peak": "neuron_sysfs_core_device_memory_peak_bytes",
    "status": "neuron_sysfs_core_status_total",
}
"""Kind of a file with one number → its series; the rest stands in ``series_of``."""
_LABEL: Final[Mapping[str, str]] = {
    "neuron_sysfs_ecc_events_total": "event_type",
    "neuron_sysfs_health_status": "counter",
    "neuron_sysfs_host_memory_category_bytes": "category",
    "neuron_sysfs_core_device_memory_category_bytes": "category",
    "neuron_sysfs_core_status_total": "status",
}
"""Series → the label that holds what the file is called."""
COMPONENT: Final = "neuron_sysfs_health_component_unhealthy"
POWER: Final = "neuron_sysfs_power_utilization_percent"
CYCLES: Final = "neuron_sysfs_core_tensor_engine_cycles_total"
MATRIX: Final = "neuron_core_matrix_active_ratio"
ECC: Final = "neuron_sysfs_ecc_events_total"


class Item(msgspec.Struct, frozen=True):
    """One file and what it gives."""

    slot: Slot
    path: str
    chip: Chip
    series: frozenset[str]
    position: int
    labels: Labels


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """One group's readings."""

    readings: tuple[Reading, ...] = ()
    errors: tuple[ReadError, ...] = ()
    lost: frozenset[int] = frozenset()
    hardware_errors: Mapping[tuple[int, str], int] = {}
    """(position of the device, status) → events since its reset, over its cores."""


class Memory:
    """What outlives an inventory: numbers before, by file."""

    def __init__(self) -> None:
        self.cycles: dict[str, Mapping[int, Cycles]] = {}
        self.ecc: dict[tuple[str, str], tuple[int, int]] = {}
        """(folder, unit) → the number that was believed, and how often in a row a lower one came."""


class Files:
    """Reads the files of an inventory's devices."""

    def __init__(
        self,
        inventory: Inventory,
        wanted: Mapping[Group, frozenset[str]],
        driver: str,
        memory: Memory,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._inventory = inventory
        self._memory = memory
        self._wall = wall
        self._every = _SLOW_EVERY if formats.version(driver) < _SLOW_DRIVER else 0.0
        self._plans = {group: tuple(_items(inventory, names)) for group, names in wanted.items()}
        self._wanted = wanted
        self._denied: set[str] = set()
        self._odd: set[str] = set()
        """Files that were not understood: told once, until they are again."""
        self._kept: dict[Group, tuple[float, Taken]] = {}
        self._errors: list[ReadError] = []

    def read(self, group: Group) -> Taken:
        """Every wanted series of the group."""
        now = time.monotonic()
        kept = self._kept.get(group)
        if kept is not None and now - kept[0] < self._every:
            return msgspec.structs.replace(kept[1], errors=(), hardware_errors={})
        self._errors = []
        lost = self._lost()
        readings: list[Reading] = []
        hardware: dict[tuple[int, str], int] = {}
        ecc: dict[int, dict[str, tuple[int, Item]]] = {}
        engines: list[tuple[Item, Mapping[int, Cycles]]] = []
        for item in self._plans.get(group, ()):
            if item.chip.position in lost:
                continue
            if item.slot.kind == "pe":
                engines.append((item, self._engine(item)))
            elif (text := self._text(item)) is not None:
                self._one(item, text, readings, hardware, ecc)
        for events in ecc.values():
            readings += self._ecc(events)
        readings += self._engines(engines, self._wanted.get(group, frozenset()))
        taken = Taken(
            readings=tuple(readings),
            errors=tuple(self._errors),
            lost=frozenset(lost),
            hardware_errors=hardware,
        )
        self._kept[group] = (now, taken)
        return taken

    def _lost(self) -> set[int]:
        """Positions of devices whose folder is gone, and of their cores."""
        found: set[int] = set()
        for chip in self._inventory.chips:
            if chip.tree is not None and not chip.tree.folder.exists():
                found.add(chip.position)
                found.update(core.position for core in chip.cores)
        return found

    def _text(self, item: Item) -> str | None:
        if item.path in self._denied:
            return None
        try:
            return sysfs.read(item.path)
        except FileNotFoundError:
            # A core's files go for a moment while the device is reset.
            return None
        except PermissionError:
            self._denied.add(item.path)
            self._tell(item, "permission", f"no permission to read {item.path}")
        except OSError as error:
            self._tell(item, "transient", f"{item.path} cannot be read: {error.strerror}")
        return None

    def _tell(self, item: Item, kind: str, text: str) -> None:
        if len(self._errors) < _MOST_ERRORS:
            self._errors.append(ReadError(item.chip.position, kind, text))

    def _one(
        self,
        item: Item,
        text: str,
        readings: list[Reading],
        hardware: dict[tuple[int, str], int],
        ecc: dict[int, dict[str, tuple[int, Item]]],
    ) -> None:
        if item.slot.kind == "power":
            power = formats.power(text, self._wall())
            if power is not None:
                for name in ("min", "max", "avg"):
                    labels = (*item.labels, ("statistic", name))
                    readings.append(Reading(POWER, item.position, getattr(power, name), labels))
            return
        if item.slot.name == "unhealthy_components":
            found = formats.components(text)
            for name in (*sysfs.COMPONENTS, *sorted(found.difference(sysfs.COMPONENTS))):
                labels = (*item.labels, ("component", name))
                readings.append(Reading(COMPONENT, item.position, int(name in found), labels))
            return
        number = formats.count(text)
        if number is None:
            self._not_understood(item, text)
            return
        self._odd.discard(item.path)
        if item.slot.kind == "ecc":
            ecc.setdefault(item.chip.position, {})[item.slot.name] = (number, item)
            return
        if item.slot.name in HW_ERRORS:
            key = (item.chip.position, item.slot.name)
            hardware[key] = hardware.get(key, 0) + number
        readings += [Reading(series, item.position, number, item.labels) for series in item.series]

    def _not_understood(self, item: Item, text: str) -> None:
        """Other files of health_status need not hold numbers; the rest must."""
        if item.slot.kind not in ("health", "health_count") and item.path not in self._odd:
            self._odd.add(item.path)
            self._tell(item, "parse", f"{item.path} holds {text[:60]!r}, expected a number")

    def _ecc(self, events: Mapping[str, tuple[int, Item]]) -> Iterator[Reading]:
        """The registers of a device, but for those that have gone back and are not yet believed.

        The two files of uncorrected HBM events are one unit: what leaves one of them appears in the other.
        """
        units: dict[str, list[str]] = {}
        for event in events:
            hbm = event in ("mem_ecc_uncorrected", "mem_ecc_repairable_uncorrected")
            units.setdefault("hbm_uncorrected" if hbm else event, []).append(event)
        for unit, members in units.items():
            number = sum(events[event][0] for event in members)
            folder = str(events[members[0]][1].chip.index)
            before, lower = self._memory.ecc.get((folder, unit), (0, 0))
            lower = lower + 1 if number < before else 0
            if 0 < lower < _BELIEVED:
                self._memory.ecc[folder, unit] = (before, lower)
                continue
            self._memory.ecc[folder, unit] = (number, 0)
            for event in members:
                value, item = events[event]
                yield Reading(ECC, item.position, value, item.labels)

    def _engine(self, item: Item) -> Mapping[int, Cycles]:
        first, second = self._text(item), self._text(item)
        return formats.untorn(formats.cycles(first or ""), formats.cycles(second or ""))

    def _engines(self, engines: list[tuple[Item, Mapping[int, Cycles]]], wanted: frozenset[str]) -> Iterator[Reading]:
        """Cycles of each tensor engine, and the share of matrix cycles over the physical cores behind a NeuronCore."""
        shares: dict[int, tuple[int, int]] = {}
        for item, now in engines:
            if CYCLES in wanted:
                yield from _cycle_readings(item, now)
            if MATRIX in wanted and now:
                before = self._memory.cycles.get(item.path, {})
                self._memory.cycles[item.path] = now
                matmul, everything = formats.matrix_share(before, now)
                old = shares.get(item.position, (0, 0))
                shares[item.position] = (old[0] + matmul, old[1] + everything)
        indexes = {core.position: core.index for _, core in self._inventory.cores.values()}
        for position, (matmul, everything) in shares.items():
            if everything and position in indexes:
                yield Reading(MATRIX, position, matmul / everything, (("neuroncore", str(indexes[position])),))


def _cycle_readings(item: Item, now: Mapping[int, Cycles]) -> Iterator[Reading]:
    for row, cycles in sorted(now.items()):
        for activity, number in (("mm", cycles.matmul), ("wl", cycles.weights), ("idle", cycles.idle)):
            labels = (*item.labels, ("xrow_grp", str(row)), ("activity", activity))
            yield Reading(CYCLES, item.position, number, labels)


def _items(inventory: Inventory, wanted: frozenset[str]) -> Iterator[Item]:
    """The files that these series need."""
    for chip in inventory.chips:
        positions = {physical: core.position for core in chip.cores for physical in core.physical}
        for slot, path in chip.tree.files.items() if chip.tree is not None else ():
            series = series_of(slot) & wanted
            if not series:
                continue
            labels: Labels = (("neuron_device_index", str(chip.index)),)
            if slot.core >= 0:
                labels = (*labels, ("neuron_core", str(slot.core)))
            names = {_LABEL[name] for name in series if name in _LABEL}
            labels = (*labels, *((name, slot.name) for name in names))
            yield Item(slot, path, chip, series, positions.get(slot.core, chip.position), labels)


def series_of(slot: Slot) -> frozenset[str]:
    """The series that a file gives."""
    match slot.kind, slot.name:
        case ("ecc", _):
            found = {ECC}
        case ("power", _):
            found = {POWER}
        case ("health", "unhealthy_components"):
            found = {COMPONENT}
        case ("health", _):
            found = {"neuron_sysfs_healthcheck_heartbeat"}
        case ("memory", ""):
            found = {"neuron_sysfs_core_device_memory_used_bytes"}
        case ("memory", _):
            found = {"neuron_sysfs_core_device_memory_category_bytes"}
        case ("core_host", ""):
            found = {"neuron_sysfs_core_host_memory_used_bytes"}
        case ("count", name):
            found = {f"neuron_sysfs_core_{sysfs.COUNTS[name]}_total"}
        case ("pe", _):
            found = {CYCLES, MATRIX}
        case (kind, _):
            found = {_NUMBERS[kind]} if kind in _NUMBERS else set()
    return frozenset(found)
