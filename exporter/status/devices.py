"""Samples of the common schema → devices with their parts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, get_args

import msgspec

from exporter.model import Exactness, Number
from exporter.status.model import Count, Device, FaultCode, Health, MetricSource, Severity, Workload
from exporter.status.samples import Labels, Rows, Samples

Owner = tuple[str, str, str]
"""vendor, uuid, partition"""

SENSORS: Final = ("die", "hotspot", "edge", "soc", "board", "memory", "vr", "outlet", "inlet")
"""The first that a device has stands for its temperature."""


class Pick(msgspec.Struct, frozen=True):
    """Which series of a metric is a device's value: that whose label has the first of these values."""

    metric: str
    label: str = ""
    order: tuple[str, ...] = ()


PICKS: Final[Mapping[str, Pick]] = {
    "utilization_ratio": Pick("accel_utilization_ratio"),
    "compute_active_ratio": Pick("accel_compute_active_ratio"),
    "matrix_active_ratio": Pick("accel_matrix_active_ratio"),
    "memory_bandwidth_active_ratio": Pick("accel_memory_bandwidth_active_ratio"),
    "memory_used_bytes": Pick("accel_memory_used_bytes", "memory", ("device",)),
    "memory_total_bytes": Pick("accel_memory_total_bytes", "memory", ("device",)),
    "temperature_celsius": Pick("accel_temperature_celsius", "sensor", SENSORS),
    "power_watts": Pick("accel_power_watts"),
    "power_limit_watts": Pick("accel_power_limit_watts", "limit", ("enforced",)),
}
"""Field of a device → where it is from."""

WANTED: Final = frozenset(pick.metric for pick in PICKS.values()) | {
    "accel_info",
    "accel_health_state",
    "accel_devices_present",
    "accel_devices_reporting",
    "accel_devices_expected",
    "accel_capacity_memory_bytes",
    "accel_allocated",
    "accel_allocation_info",
    "accel_sample_timestamp_seconds",
    "accel_temperature_limit_celsius",
    "accel_throttle_active",
    "accel_fault_code_total",
    "accel_fault_last_timestamp_seconds",
    "accel_recovery_action",
    "accel_metric_source_info",
}

_FACTS: Final = (
    "kind",
    "model",
    "serial",
    "pci_bus_id",
    "driver_version",
    "firmware_version",
    "numa_node",
    "partition_uuid",
    "partition_profile",
    "device_class",
)
_WORKLOAD: Final = frozenset(Workload.__struct_fields__) - {"labels"}


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """What the collectors' snapshots tell of a device beyond its series."""

    stale: bool = False
    reasons: tuple[str, ...] = ()
    """Why its health is not what it should be."""


NOTHING: Final = Known()


def owner(labels: Labels) -> Owner:
    """Whose series it is."""
    return labels.get("vendor", ""), labels.get("uuid", ""), labels.get("partition", "")


def pick(rows: Rows, choice: Pick) -> tuple[Number, str] | None:
    """A device's value among the series that it has of one metric, and the value of the label by which it was chosen.

    None where it has none, or only such as are no numbers.
    """
    best: tuple[int, Number, str] | None = None
    for labels, value in rows:
        if not math.isfinite(value):
            continue
        name = labels.get(choice.label, "") if choice.label else ""
        if choice.label and name not in choice.order:
            continue
        rank = choice.order.index(name) if choice.label else 0
        if best is None or rank < best[0]:
            best = (rank, value, name)
    return best[1:] if best is not None else None


class Own(dict[str, list[tuple[Labels, Number]]]):
    """Metric → the series of one device or part."""

    def __missing__(self, metric: str) -> list[tuple[Labels, Number]]:
        return []

    def picked(self, choice: Pick) -> Number | None:
        found = pick(self[choice.metric], choice)
        return found[0] if found is not None else None

    def set(self, metric: str, label: str) -> tuple[str, ...]:
        """Values of a label whose series are 1."""
        return tuple(labels[label] for labels, value in self[metric] if value == 1 and label in labels)


def by_owner(samples: Samples, metrics: Iterable[str]) -> dict[Owner, Own]:
    """The series of each device and part."""
    found: dict[Owner, Own] = {}
    for metric in metrics:
        for labels, value in samples.get(metric, ()):
            found.setdefault(owner(labels), Own()).setdefault(metric, []).append((labels, value))
    return found


def tree(
    samples: Samples, known: Mapping[Owner, Known], names: Mapping[tuple[str, str], str], since: float
) -> tuple[Device, ...]:
    """All devices, each with its parts, in the order of the publication.

    ``names``: (vendor, fault code) → its name. ``since``: Unix time from which a fault says something about health.
    """
    series = by_owner(samples, WANTED)
    wholes: dict[tuple[str, str], Device] = {}
    parts: dict[tuple[str, str], list[Device]] = {}
    for labels, _ in samples.get("accel_info", ()):
        identity = owner(labels)
        device = _device(labels, series[identity], known.get(identity, NOTHING), names)
        if device.partition:
            parts.setdefault(identity[:2], []).append(device)
        else:
            wholes[identity[:2]] = device
    # A part whose whole is not told of is shown on its own.
    alone = [part for key, found in parts.items() if key not in wholes for part in found]
    joined = (_whole(whole, tuple(parts.get(key, ())), since) for key, whole in wholes.items())
    return (*joined, *alone)


def _whole(device: Device, parts: tuple[Device, ...], since: float) -> Device:
    """With its parts, and with the faults among its reasons: a part's fault is its device's."""
    if device.health in ("healthy", None):
        return msgspec.structs.replace(device, reasons=(), parts=parts)
    faults = [fault for each in (device, *parts) for fault in each.faults if fault.severity != "info"]
    recent = [fault for fault in faults if fault.last >= since]
    if not recent and not device.reasons and device.health != "unknown":
        # A fault counts from when it was told; what the device says of its time can be long before.
        recent = faults[:1]
    told = (f"{fault.name or 'fault'} ({fault.code}, {fault.severity})" for fault in recent)
    reasons = dict.fromkeys((*device.reasons, *told))
    return msgspec.structs.replace(device, reasons=tuple(reasons), parts=parts)


def _device(info: Labels, own: Own, known: Known, names: Mapping[tuple[str, str], str]) -> Device:
    health = own.set("accel_health_state", "state")
    temperature = pick(own["accel_temperature_celsius"], PICKS["temperature_celsius"])
    sensor = temperature[1] if temperature is not None else ""
    newest = max(own["accel_sample_timestamp_seconds"], key=lambda row: row[1], default=None)
    values = {field: own.picked(choice) for field, choice in PICKS.items()}
    if values["memory_total_bytes"] is None and not info.get("partition"):
        values["memory_total_bytes"] = own.picked(Pick("accel_capacity_memory_bytes"))
    allocated = own.picked(Pick("accel_allocated"))
    device = Device(
        vendor=info.get("vendor", ""),
        device=info.get("device", ""),
        uuid=info.get("uuid", ""),
        partition=info.get("partition", ""),
        simulated=info.get("simulated") == "true",
        collector=newest[0].get("collector", "") if newest is not None else "",
        sampled_at=float(newest[1]) if newest is not None else None,
        stale=known.stale,
        health=_health(health),
        reasons=known.reasons,
        recovery_actions=tuple(action for action in own.set("accel_recovery_action", "action") if action != "none"),
        throttling=own.set("accel_throttle_active", "reason"),
        faults=_faults(own, info.get("vendor", ""), names),
        temperature_sensor=sensor,
        temperature_limit_celsius=_slowdown(own, sensor),
        allocated=None if allocated is None else allocated == 1,
        workloads=tuple(_workload(labels) for labels, _ in own["accel_allocation_info"]),
    )
    return msgspec.structs.replace(device, **{fact: info.get(fact, "") for fact in _FACTS}, **values)


def _health(states: tuple[str, ...]) -> Health | None:
    known: tuple[Health, ...] = get_args(Health)
    return next((state for state in known if state in states), None)


def _slowdown(own: Own, sensor: str) -> Number | None:
    rows = [(labels, value) for labels, value in own["accel_temperature_limit_celsius"] if labels["sensor"] == sensor]
    found = pick(rows, Pick("accel_temperature_limit_celsius", "limit", ("slowdown", "max_operating", "shutdown")))
    return found[0] if found is not None else None


def _faults(own: Own, vendor: str, names: Mapping[tuple[str, str], str]) -> tuple[FaultCode, ...]:
    last = {labels["code"]: float(value) for labels, value in own["accel_fault_last_timestamp_seconds"]}
    found = [
        FaultCode(
            code=labels["code"],
            name=names.get((vendor, labels["code"]), ""),
            fault_class=labels["class"],
            severity=_severity(labels["severity"]),
            action=labels["action"],
            count=int(value),
            last=last.get(labels["code"], 0.0),
        )
        for labels, value in own["accel_fault_code_total"]
    ]
    return tuple(sorted(found, key=lambda fault: -fault.last))


def _severity(text: str) -> Severity:
    known: tuple[Severity, ...] = get_args(Severity)
    return next((severity for severity in known if severity == text), "info")


def _workload(labels: Labels) -> Workload:
    chosen = {name: value for name, value in labels.items() if name.startswith("label_")}
    return Workload(**{name: labels[name] for name in _WORKLOAD & labels.keys()}, labels=chosen)


def counts(samples: Samples) -> tuple[Count, ...]:
    """Devices present, reporting and expected, by vendor."""
    found: dict[str, dict[str, int]] = {}
    for name in ("present", "reporting", "expected"):
        for labels, value in samples.get(f"accel_devices_{name}", ()):
            found.setdefault(labels["vendor"], {})[name] = int(value)
    return tuple(Count(vendor=vendor, **numbers) for vendor, numbers in found.items())


def sources(samples: Samples) -> tuple[MetricSource, ...]:
    """Where each common metric is from."""
    return tuple(
        MetricSource(
            vendor=labels["vendor"],
            metric=labels["metric"],
            source=labels["source"],
            exactness=_exactness(labels["exactness"]),
        )
        for labels, _ in samples.get("accel_metric_source_info", ())
    )


def _exactness(text: str) -> Exactness:
    known: tuple[Exactness, ...] = get_args(Exactness)
    return next((exactness for exactness in known if exactness == text), "estimated")


def lines(devices: Sequence[Device]) -> Iterable[Device]:
    """Each whole, and behind it its parts."""
    for device in devices:
        yield device
        yield from device.parts
