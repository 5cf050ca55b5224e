"""Series about who holds a device: whether, for how long, who, and what each container of a shared one uses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from collectors.base import Device, Labels
from exporter.faults import Owner
from exporter.model import Allocation, ContainerKey, Usage, Workload

MAX_STEP: Final = 60.0
"""Seconds between two publications for which an allocation may be taken as unbroken.

Where samples are rare, two of the times for which one is fresh.
"""

Row = tuple[str, Device, float, Labels]
"""metric, device, value, labels"""


class _Span(msgspec.Struct):
    seconds: float
    at: float
    held: bool


class AllocatedTime:
    """For how long devices have been held since the agent started."""

    def __init__(self) -> None:
        self._spans: dict[Owner, _Span] = {}

    def add(self, owner: Owner, *, held: bool, monotonic: float, max_age: float = 0.0) -> float:
        """Take note of whether it is held now. Returns the seconds so far; time counts if it was held at both ends.

        ``max_age``: seconds for which a sample counts as fresh.
        """
        span = self._spans.setdefault(owner, _Span(0.0, monotonic, held))
        elapsed = monotonic - span.at
        if held and span.held and 0 < elapsed <= max(MAX_STEP, 2 * max_age):
            span.seconds += elapsed
        span.at, span.held = monotonic, held
        return span.seconds

    def forget(self, owner: Owner) -> None:
        """Drop the time of a device or part that has gone."""
        self._spans.pop(owner, None)


def bearers(devices: Sequence[Device]) -> list[Device]:
    """What can be held: parts where a device has any, else the whole."""
    cut = {device.uuid for device in devices if device.partition}
    return [device for device in devices if device.partition or device.uuid not in cut]


def rows(
    vendor: str,
    devices: Sequence[Device],
    allocation: Allocation,
    time: AllocatedTime,
    *,
    monotonic: float,
    max_age: float = 0.0,
    unsure: bool = False,
) -> Iterator[Row]:
    """The allocation of each device or part. ``max_age``: seconds for which a sample counts as fresh.

    ``unsure``: one without a workload may have one all the same; nothing is said of it then.
    """
    for device in bearers(devices):
        workloads = allocation.get((device.uuid, device.partition), ())
        owner = (vendor, device.uuid, device.partition)
        seconds = time.add(owner, held=bool(workloads), monotonic=monotonic, max_age=max_age)
        if workloads or not unsure:
            yield "accel_allocated", device, int(bool(workloads)), ()
        yield "accel_allocated_seconds_total", device, round(seconds, 3), ()
        for workload in workloads:
            yield "accel_allocation_info", device, 1, _labels(workload, shared=len(workloads) > 1)


def _labels(workload: Workload, *, shared: bool) -> Labels:
    """In the schema's order; what is not known is left out, but for the five that identify a workload."""
    facts = (
        ("namespace", workload.namespace),
        ("pod", workload.pod),
        ("pod_uid", workload.pod_uid or None),
        ("container", workload.container),
        ("job_name", workload.job_name),
        ("job_kind", workload.job_kind or None),
        ("tenant", workload.tenant),
        ("queue", workload.queue or None),
        ("served_model", workload.served_model or None),
        ("resource", workload.resource or None),
        ("share", "shared" if shared or workload.share else "exclusive"),
        ("replicas", str(workload.replicas) if workload.share and workload.replicas else None),
    )
    return tuple((name, value) for name, value in facts if value is not None) + workload.labels


def container_rows(
    devices: Sequence[Device], allocation: Allocation, usage: Mapping[ContainerKey, Usage]
) -> Iterator[Row]:
    """Memory and share of time by container, of devices that several containers share."""
    known = {(device.uuid, device.partition): device for device in devices}
    for (uuid, partition, namespace, pod, container), used in usage.items():
        device = known.get((uuid, partition))
        if device is None or len(allocation.get((uuid, partition), ())) < 2:
            continue
        labels = (("namespace", namespace), ("pod", pod), ("container", container))
        if used.memory is not None:
            yield "accel_container_memory_used_bytes", device, used.memory, labels
        if used.utilization is not None:
            yield "accel_container_utilization_ratio", device, used.utilization, labels
