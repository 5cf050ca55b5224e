"""Common series that the agent itself makes: facts, health, faults, repairs wanted, integrated energy, sample times.

Their state lives here and not in the workers, which die.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from collectors.base import Device, Fault, Group, Labels
from exporter.allocated import AllocatedTime, container_rows
from exporter.allocated import rows as allocation_rows
from exporter.catalogue import Catalogue
from exporter.config import DeviceClass
from exporter.config.regex import MAX_TEXT
from exporter.energy import EnergyMeter
from exporter.families import Block, prefix
from exporter.faults import FaultBook, Owner, worst
from exporter.model import Allocation, Attributed, GroupSample, Number, Snapshot
from exporter.normalize import Output, Plan, holds
from exporter.schema import METRICS
from exporter.view import Blocks, CommonTexts, View, ViewOptions, vendor_labels

HEALTH_STATES: Final = tuple(METRICS["accel_health_state"].labels["state"])
ACTIONS: Final = tuple(METRICS["accel_recovery_action"].labels["action"])
GROUPS: Final[tuple[Group, ...]] = ("fast", "normal", "slow")
ENERGY: Final = "accel_energy_joules_total"
POWER: Final = "accel_power_watts"
MAX_GONE: Final = 1024
"""Devices and parts that are remembered after they have gone: some come back, and a layout that flaps has no end."""


class Book:
    """What the agent remembers of devices, by vendor, uuid and partition; it survives a worker, not the agent."""

    def __init__(self, fault_hold: float, device_classes: Sequence[DeviceClass] = ()) -> None:
        self.faults = FaultBook(fault_hold)
        self.energy = EnergyMeter()
        self.allocated = AllocatedTime()
        self._last_sample: dict[Owner, dict[str, tuple[float, float]]] = {}
        """Owner → collector → when the newest sample was taken, in monotonic and in Unix seconds."""
        self._last_codes: dict[Owner, dict[str, Number]] = {}
        self._seen: dict[Owner, None] = {}
        """All of whom anything is known, those that were there last at the end."""
        self.configure(fault_hold, device_classes)

    def configure(self, fault_hold: float, device_classes: Sequence[DeviceClass]) -> None:
        """Take other settings; what is remembered stays."""
        self.faults.hold = fault_hold
        self._classes = [(rule, re.compile(rule.model)) for rule in device_classes]

    def record(
        self, catalogue: Catalogue, devices: Sequence[Device], faults: Iterable[Fault], *, now: float, monotonic: float
    ) -> None:
        """Count fault events that a sample brought."""
        for fault in faults:
            device = devices[fault.device]
            owner = (catalogue.collector.vendor, device.uuid, device.partition)
            self._seen.setdefault(owner)
            self.faults.record(owner, fault.code, fault.timestamp, catalogue.faults, now=now, monotonic=monotonic)

    def observe(self, catalogue: Catalogue, snapshot: Snapshot, *, now: float, monotonic: float) -> None:
        """Count faults of a vendor's exporter, which shows the last one's code and no events.

        What stood there when it was first seen may be old: it is no event.
        """
        for sample in snapshot.groups.values():
            for key, value in zip(sample.layout, sample.values, strict=True):
                series = catalogue.series.get(key.series)
                if series is None or not series.fault or key.device < 0:
                    continue
                device = snapshot.devices[key.device]
                owner = (snapshot.vendor, device.uuid, device.partition)
                codes = self._last_codes.setdefault(owner, {})
                before = codes.get(key.series)
                codes[key.series] = value
                if before is not None and value not in (before, 0):
                    code = series.fault.format(value=int(value))
                    self.faults.record(owner, code, now, catalogue.faults, now=now, monotonic=monotonic)

    def tells_faults(self, snapshot: Snapshot, owner: Owner) -> bool:
        """Whether faults of a device would be seen: a zero means nothing without that."""
        return not snapshot.bridged or owner in self._last_codes

    def sampled(self, collector: str, owner: Owner, sample: GroupSample) -> None:
        """Remember the newest sample of a device. The clock that is shown to people can be put back."""
        known = self._last_sample.setdefault(owner, {})
        taken = (sample.taken_monotonic, sample.taken_at)
        known[collector] = max(taken, known.get(collector, taken))

    def last_sample(self, collector: str, owner: Owner) -> float | None:
        """Unix seconds."""
        taken = self._last_sample.get(owner, {}).get(collector)
        return None if taken is None else taken[1]

    def keep(self, present: Collection[Owner]) -> None:
        """Forget the devices and parts that have been gone for longest, beyond MAX_GONE of them."""
        for owner in present:
            self._seen.pop(owner, None)
            self._seen[owner] = None
        surplus = len(self._seen) - len(present) - MAX_GONE
        for owner in list(itertools.islice(self._seen, max(0, surplus))):
            del self._seen[owner]
            self._last_sample.pop(owner, None)
            self._last_codes.pop(owner, None)
            self.faults.forget(owner)
            self.energy.forget(owner)
            self.allocated.forget(owner)

    def device_class(self, vendor: str, device: Device, memory: float | None) -> str:
        """The operator's name for this kind of device. ``memory`` in bytes; a rule on memory needs to know it."""
        for rule, model in self._classes:
            enough = rule.memory_min_gib == 0 or (memory is not None and memory >= rule.memory_min_gib * 2**30)
            if rule.vendor in ("", vendor) and enough and model.search(device.model[:MAX_TEXT]):
                return rule.device_class
        return ""


class _Rows:
    """Gathers the rows of derived families."""

    def __init__(self, vendor: str, options: ViewOptions, allocation: Allocation | None) -> None:
        self._texts = CommonTexts(vendor, options, allocation)
        self._found: dict[str, tuple[list[str], list[Number]]] = {}

    def add(self, metric: str, device: Device, value: Number, labels: Labels = ()) -> None:
        prefixes, values = self._found.setdefault(metric, ([], []))
        prefixes.append(self._texts.prefix(metric, device, labels))
        values.append(value)

    def blocks(self) -> Blocks:
        return {name: [Block(tuple(prefixes), tuple(values))] for name, (prefixes, values) in self._found.items()}


def derive(
    view: View,
    snapshot: Snapshot,
    plan: Plan,
    book: Book,
    attributed: Attributed | None,
    *,
    covered: frozenset[tuple[str, str]] = frozenset(),
    now: float,
    monotonic: float,
) -> Blocks:
    """The derived series of one collector's devices, but for those ``covered`` by another collector of the vendor."""
    rows = _Rows(snapshot.vendor, view.options, attributed.allocation if attributed is not None else None)
    answering = reporting(view, snapshot, monotonic)
    health = _health(view, snapshot, plan, book, answering, monotonic)
    memory = _memory(snapshot, plan)
    told_action = {output.id.uuid for output in plan.outputs if output.id.metric == "accel_recovery_action"}
    for position, device in enumerate(snapshot.devices):
        if (device.uuid, device.partition) in covered:
            continue
        owner = (snapshot.vendor, device.uuid, device.partition)
        rows.add("accel_info", device, 1, _facts(snapshot, device, book, memory.get(device.uuid)))
        if sample := answering.get(position):
            book.sampled(snapshot.collector, owner, sample)
        if (last := book.last_sample(snapshot.collector, owner)) is not None:
            rows.add("accel_sample_timestamp_seconds", device, last, (("collector", snapshot.collector),))
        tells_faults = bool(view.catalogue.faults) and book.tells_faults(snapshot, owner)
        if tells_faults:
            _fault_rows(rows, device, owner, book, now, monotonic)
        if not device.partition:
            for state in HEALTH_STATES:
                rows.add("accel_health_state", device, int(state == health[device.uuid]), (("state", state),))
            if tells_faults and device.uuid not in told_action:
                _action_rows(rows, snapshot.vendor, device, health[device.uuid], book, monotonic)
    if attributed is not None:
        _workload_rows(rows, view, snapshot, book, attributed, answering, covered, monotonic)
    devices = {(device.uuid, device.partition): device for device in snapshot.devices}
    for output in _without_energy(plan):
        _energy_row(rows, view, snapshot, output, devices[output.id.uuid, output.id.partition], book, monotonic)
    return rows.blocks()


def reporting(view: View, snapshot: Snapshot, monotonic: float) -> dict[int, GroupSample]:
    """Positions of devices that answer → the newest sample. A whole answers through its parts, too.

    The group that is read most often decides: that the slow facts of a hanging device are still shown says nothing.
    """
    found: dict[int, GroupSample] = {}
    decided: set[int] = set()
    wholes = {device.uuid: position for position, device in enumerate(snapshot.devices) if not device.partition}
    for group in GROUPS:
        sample = snapshot.groups.get(group)
        if sample is None:
            continue
        listed = {key.device for key in sample.layout if key.device >= 0} - snapshot.lost - decided
        listed |= {
            whole for position in listed if (whole := wholes.get(snapshot.devices[position].uuid)) is not None
        } - snapshot.lost
        decided |= listed
        if view.fresh(group, sample, monotonic):
            found.update(dict.fromkeys(listed - found.keys(), sample))
    return found


def _health(
    view: View, snapshot: Snapshot, plan: Plan, book: Book, answering: Mapping[int, GroupSample], monotonic: float
) -> dict[str, str]:
    """uuid → state: the worst of lost, the rules that hold and the faults of late; unknown without readings."""
    states: dict[str, str] = {}
    for position, device in enumerate(snapshot.devices):
        if device.partition:
            continue
        state = worst(book.faults.active(snapshot.vendor, device.uuid, monotonic))
        if position in snapshot.lost:
            state = "failed"
        elif state == "healthy" and position not in answering:
            states[device.uuid] = "unknown"
            continue
        states[device.uuid] = state
    for item in plan.health:
        sample = snapshot.groups[item.group]
        if view.fresh(item.group, sample, monotonic) and holds(item.rule, sample.values[item.index]):
            states[item.uuid] = max(states.get(item.uuid, "unknown"), item.rule.state, key=_badness)
    return states


def _badness(state: str) -> int:
    return ("unknown", "healthy", "degraded", "failed").index(state)


def _memory(snapshot: Snapshot, plan: Plan) -> dict[str, float]:
    """uuid → bytes of device memory, where it is told."""
    return {
        output.id.uuid: float(output.evaluate(snapshot.groups[output.group].values))
        for output in plan.outputs
        if output.id.metric == "accel_capacity_memory_bytes"
    }


def _facts(snapshot: Snapshot, device: Device, book: Book, memory: float | None) -> Labels:
    facts = (
        ("kind", device.kind),
        ("model", device.model),
        ("serial", device.serial),
        ("pci_bus_id", device.pci_bus_id),
        ("driver_version", device.driver_version),
        ("firmware_version", device.firmware_version),
        ("numa_node", device.numa_node),
        ("partition_uuid", device.partition_uuid),
        ("partition_profile", device.partition_profile),
        ("device_class", book.device_class(snapshot.vendor, device, memory)),
        ("simulated", "true" if snapshot.simulated else ""),
    )
    return tuple((name, value) for name, value in facts if value)


def _fault_rows(rows: _Rows, device: Device, owner: Owner, book: Book, now: float, monotonic: float) -> None:
    rows.add("accel_faults_total", device, book.faults.total(owner))
    for code, entry in book.faults.codes(owner, now=now, monotonic=monotonic):
        labels = (
            ("code", code),
            ("class", entry.meaning.fault_class),
            ("severity", entry.meaning.severity),
            ("action", entry.meaning.action),
        )
        rows.add("accel_fault_code_total", device, entry.count, labels)
        rows.add("accel_fault_last_timestamp_seconds", device, entry.last, labels)


def _action_rows(rows: _Rows, vendor: str, device: Device, health: str, book: Book, monotonic: float) -> None:
    """What the faults of late ask for."""
    wanted = {meaning.action for meaning in book.faults.active(vendor, device.uuid, monotonic)} - {"none"}
    if not wanted and health != "healthy":
        # Of a device that is lost, silent or ailing nobody knows that it needs nothing.
        return
    for action in ACTIONS:
        rows.add("accel_recovery_action", device, int(action in (wanted or {"none"})), (("action", action),))


def _workload_rows(
    rows: _Rows,
    view: View,
    snapshot: Snapshot,
    book: Book,
    attributed: Attributed,
    answering: Collection[int],
    covered: frozenset[tuple[str, str]],
    monotonic: float,
) -> None:
    """For how long devices are allocated, and what each container uses of them."""
    own = [device for device in snapshot.devices if (device.uuid, device.partition) not in covered]
    # What its processes used is no longer known when a device's other values vanish.
    heard = [snapshot.devices[position] for position in answering]
    fresh = [device for device in heard if (device.uuid, device.partition) not in covered]
    held = allocation_rows(
        snapshot.vendor,
        own,
        attributed.allocation,
        book.allocated,
        monotonic=monotonic,
        max_age=view.options.max_age["normal"],
        unsure=snapshot.vendor in attributed.unsure,
    )
    used = container_rows(fresh, attributed.allocation, attributed.usage)
    for metric, device, value, labels in (*held, *used):
        rows.add(metric, device, value, labels)


def _without_energy(plan: Plan) -> list[Output]:
    """Outputs of power on devices and parts for which the vendor counts no energy."""
    counted = {(output.id.uuid, output.id.partition) for output in plan.outputs if output.id.metric == ENERGY}
    counted |= {(identity.uuid, identity.partition) for identity in plan.sources if identity.metric == ENERGY}
    return [
        output
        for output in plan.outputs
        if output.id.metric == POWER and (output.id.uuid, output.id.partition) not in counted
    ]


def _energy_row(
    rows: _Rows, view: View, snapshot: Snapshot, output: Output, device: Device, book: Book, monotonic: float
) -> None:
    group: Group = output.group
    sample = snapshot.groups[group]
    if not view.fresh(group, sample, monotonic):
        return
    owner = (snapshot.vendor, output.id.uuid, output.id.partition)
    watts = float(output.evaluate(sample.values))
    joules = book.energy.add(owner, watts, sample.taken_monotonic, view.options.max_age[group])
    rows.add(ENERGY, device, joules)


def source_blocks(vendor: str, node: str, plan: Plan, way: str) -> Blocks:
    """Which raw series feeds each common metric, read in which ``way`` where there are several, and how exactly."""
    before = f"{way}/" if way else ""
    found = {(output.id.metric, before + output.source, output.exactness) for output in plan.outputs}
    if _without_energy(plan):
        found.add((ENERGY, POWER, "derived"))
    name, own = "accel_metric_source_info", vendor_labels(vendor, node)
    prefixes = [
        prefix(name, (*own, ("metric", metric), ("source", source), ("exactness", exactness)))
        for metric, source, exactness in sorted(found)
    ]
    return {name: [Block(tuple(prefixes), (1,) * len(prefixes))]} if prefixes else {}
