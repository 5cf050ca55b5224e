"""Expressions and texts that several boards use."""

from __future__ import annotations

from typing import Final

from dashboards import promql as q
from dashboards.board import DEVICES
from dashboards.panels import Link
from dashboards.promql import Scope

S: Final = DEVICES
FREE: Final = DEVICES.without_workload()
"""The same without the choice of a workload: for what is counted of devices and not of those who use them."""
DEVICE: Final = "{{node}} {{vendor}} {{device}}"
PART: Final = "{{node}} {{vendor}} {{device}} {{partition}}"
WHOLE: Final = 'partition=""'
MEMORY: Final = 'memory="device"'
NOT_HEALTHY: Final = 'state!="healthy"'
TO_VENDOR: Final = Link("Vendors compared", "vendors", (("vendor", "vendor"),))

UTILIZATION: Final = q.per_device(S, "accel_utilization_ratio")
COMPUTE: Final = q.per_device(S, "accel_compute_active_ratio")
MATRIX: Final = q.per_device(S, "accel_matrix_active_ratio")
BANDWIDTH: Final = q.per_device(S, "accel_memory_bandwidth_active_ratio")
GAP: Final = f"({UTILIZATION} - {q.on(q.DEVICE)} {COMPUTE})"
_HELD: Final = q.most(q.PART, FREE.of("accel_allocated"))
ALLOCATED: Final = f"({q.device_share(FREE)} * {q.on(q.PART)} {_HELD})"
IDLE: Final = f"({ALLOCATED} * {q.on(q.PART)} {q.idle(FREE)})"
TEMPERATURE: Final = S.get("accel_temperature_celsius")
POWER: Final = S.get("accel_power_watts")

UTILIZATION_TEXT: Final = (
    "Utilization is the share of time in which anything at all ran: one small kernel counts like a full device. "
    "Compute-active is the share of compute units at work. Parts are weighted by their compute units."
)
SHARES_TEXT: Final = "A part counts as its share of the device, and a shared device is split among its containers."


def memory_share(scope: Scope, labels: tuple[str, ...]) -> str:
    """Device memory in use as a share of the capacity of whole devices."""
    used = q.total(labels, scope.get("accel_memory_used_bytes", MEMORY))
    return f"({used} / {q.total(labels, scope.without_workload().get('accel_capacity_memory_bytes'))})"


def throttled(labels: tuple[str, ...]) -> str:
    """Devices that are slowed down, by labels, of which one should be the reason."""
    return q.total(labels, q.most((*q.DEVICE, "reason"), S.get("accel_throttle_active")))


def faults_table(scope: Scope) -> str:
    """Unix milliseconds of the last event of each code, within the chosen time."""
    labels = ("node", "vendor", "device", "partition", "code", "class", "severity", "action", "namespace", "pod")
    last = q.most(labels, scope.get("accel_fault_last_timestamp_seconds"))
    return f"({last} > time() - $__range_s) * 1000"
