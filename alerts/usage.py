"""Alerts on how devices are used: for information, in a group of their own that can be left out."""

from __future__ import annotations

from typing import Final

from alerts import conditions as c
from alerts.model import DEVICE, Alert, Group
from dashboards import promql as q

FULL: Final = 0.95
BUSY: Final = 0.9
WORKING: Final = 0.2
_UTILIZATION: Final = q.most(q.PART, "avg_over_time(accel_utilization_ratio[30m])")
_COMPUTE: Final = q.most(q.PART, "avg_over_time(accel_compute_active_ratio[30m])")

USAGE: Final = Group(
    name="accel-usage",
    rules=[
        Alert(
            name="AccelMemoryNearlyFull", severity="info", action="tell_owner", wait="10m",
            expr=f"{c.memory_fullness()} > {FULL}",
            when=f"More than {FULL:.0%} of the device memory that workloads can have is in use.",
            summary=f"The memory of {DEVICE} is nearly full",
            description="{{ $value | humanizePercentage }} of what workloads can have is in use.",
        ),
        Alert(
            name="AccelAllocatedIdle", severity="info", action="tell_owner", wait="15m",
            expr=f"{q.of_bearers(q.EVERYTHING, 'accel_utilization_ratio', window='30m')} < {q.IDLE} "
            f"and {q.on(q.PART)} {c.held_for('30m')}",
            when=f"A device or part is allocated, and its average utilization over half an hour is below {q.IDLE:.0%}.",
            summary=f"{DEVICE} is allocated and idle",
            description="Its utilization over the last half hour was {{ $value | humanizePercentage }}: the workload "
            "holds it without using it, or hangs.",
        ),
        Alert(
            name="AccelBusyNotWorking", severity="info", action="tell_owner", wait="15m",
            expr=f"{_UTILIZATION} > {BUSY} and {q.on(q.PART)} {_COMPUTE} < {WORKING}",
            when=f"Over half an hour the utilization is above {BUSY:.0%} and compute-active below {WORKING:.0%}.",
            summary=f"{DEVICE} is busy but does little work",
            description="Its utilization over the last half hour was {{ $value | humanizePercentage }}, and yet "
            "fewer than "
            "a fifth of its compute units worked: small kernels, waiting for data, or for other devices.",
            differ=("accel_utilization_ratio", "accel_compute_active_ratio"),
        ),
    ],
)  # fmt: skip
