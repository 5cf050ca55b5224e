"""The seven names that consoles on OpenShift ask for, in the units that their names say. Not needed elsewhere."""

from __future__ import annotations

from typing import Final

from alerts.model import Group, Record
from dashboards import promql as q

_WORKLOAD: Final = (*q.PART, *q.WORKLOAD)


def _named(expression: str) -> str:
    """With the label by which those consoles tell devices."""
    return f'label_replace ({expression}, "accelerator_id", "$1", "uuid", "(.*)")'


GROUPS: Final = (
    Group(
        name="accel-openshift",
        interval="30s",
        rules=[
            Record(
                name="accelerator_gpu_utilization",
                expr=_named(f"100 * {q.most(_WORKLOAD, 'accel_utilization_ratio')}"),
                meaning="Percent: the name has no unit, and those who ask for it show percent.",
            ),
            Record(
                name="accelerator_memory_used_bytes",
                expr=_named(q.most(_WORKLOAD, 'accel_memory_used_bytes{memory="device"}')),
                meaning="Bytes of device memory in use.",
            ),
            Record(
                name="accelerator_memory_total_bytes",
                expr=_named(q.most(q.PART, 'accel_memory_total_bytes{memory="device"}')),
                meaning="Bytes of device memory.",
            ),
            Record(
                name="accelerator_power_usage_watts",
                expr=_named(q.most(_WORKLOAD, "accel_power_watts")),
                meaning="Watts.",
            ),
            Record(
                name="accelerator_temperature_celsius",
                expr=_named(q.most(_WORKLOAD, 'accel_temperature_celsius{sensor=~"die|hotspot|edge|soc"}')),
                meaning="Degrees Celsius of the hottest sensor of the chip.",
            ),
            Record(
                name="accelerator_sm_clock_hertz",
                expr=_named(q.most(q.PART, 'accel_clock_hertz{domain="core"}')),
                meaning="Hertz of the cores.",
            ),
            Record(
                name="accelerator_memory_clock_hertz",
                expr=_named(q.most(q.PART, 'accel_clock_hertz{domain="memory"}')),
                meaning="Hertz of the device memory.",
            ),
        ],
    ),
)
