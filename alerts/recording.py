"""Recording rules: shares of devices, and sums and averages by device, node, class and tenant."""

from __future__ import annotations

from typing import Final

from alerts.model import Group, Record
from dashboards import promql as q

WINDOW: Final = "5m"
INTERVAL: Final = "1m"
"""Of all groups: documentation counts on it, to make hours and joules of what stands here."""
ALL: Final = q.EVERYTHING
NODE: Final = ("cluster", "node", "vendor")
CLASS: Final = ("cluster", "vendor", "device_class")
TENANT: Final = ("cluster", "tenant")
JOB: Final = ("cluster", "tenant", "namespace", "job_name")
RATIOS: Final = (
    "accel_utilization_ratio", "accel_compute_active_ratio", "accel_matrix_active_ratio",
    "accel_memory_bandwidth_active_ratio",
)  # fmt: skip
PART_SHARE: Final = "part:accel_allocated:device_share"
PART_IDLE: Final = "part:accel_utilization_ratio:idle"
SHARE: Final = "allocation:accel_allocation_info:share"
IDLE_SHARE: Final = "allocation:accel_allocation_info:idle_share"
ENERGY: Final = "device:accel_energy_joules:rate5m"
ALLOCATED: Final = "device:accel_allocated:share"
IDLE: Final = "device:accel_allocated:idle_share"
_HELD: Final = q.most(q.PART, "accel_allocated")
_MEMORY_USED: Final = q.total(q.DEVICE, 'accel_memory_used_bytes{memory="device"}')
_CAPACITY: Final = q.total(q.DEVICE, "accel_capacity_memory_bytes")
_GAP: Final = f"(device:accel_utilization_ratio:avg - {q.on(q.DEVICE)} device:accel_compute_active_ratio:avg)"
_CLASSES: Final = q.most((*q.DEVICE, "device_class"), 'accel_info{partition=""}')


def _of_class(recorded: str) -> str:
    """A recorded series of devices, with their class."""
    return f"{recorded} * {q.on(q.DEVICE)} group_left (device_class) {_CLASSES}"


SHARES: Final = Group(
    name="accel-shares",
    interval=INTERVAL,
    rules=[
        Record(
            name=PART_SHARE, expr=q.device_share(ALL),
            meaning="Which share of its device each thing is that a workload can hold: 1 for a whole one, for a part "
            "its "
            "compute units over those of all parts, or one of so many where no units are told.",
        ),
        Record(name=PART_IDLE, expr=q.idle(ALL), meaning=f"1 while its utilization is below {q.IDLE:.0%}, else 0."),
        Record(
            name=SHARE, expr=q.held(ALL, PART_SHARE),
            meaning="Which share of a device each container holds. Containers that share have equal shares.",
        ),
        Record(
            name=IDLE_SHARE, expr=f"{SHARE} * {q.on(q.PART)} group_left () {PART_IDLE}",
            meaning="The same while it is idle, else 0.",
        ),
        Record(
            name=ALLOCATED, expr=q.total(q.DEVICE, f"{PART_SHARE} * {q.on(q.PART)} {_HELD}"),
            meaning="Which share of a device is held by anybody.",
        ),
        Record(
            name=IDLE,
            expr=q.total(q.DEVICE, f"{PART_SHARE} * {q.on(q.PART)} {_HELD} * {q.on(q.PART)} {PART_IDLE}"),
            meaning="Which share of a device is held and idle.",
        ),
    ],
)  # fmt: skip

DEVICES: Final = Group(
    name="accel-devices",
    interval=INTERVAL,
    rules=[
        *(
            Record(
                name=f"device:{metric}:avg", expr=q.per_device(ALL, metric),
                meaning=f"`{metric}` of whole devices, parts weighted by their compute units.",
            )
            for metric in RATIOS
        ),
        Record(
            name="device:accel_memory_used_bytes:ratio",
            expr=f"{_MEMORY_USED} / {_CAPACITY}",
            meaning="Device memory in use as a share of the capacity.",
        ),
        Record(
            name=ENERGY, expr=q.energy_rate(ALL, WINDOW),
            meaning="Watts by the energy counter, which misses nothing between two samples.",
        ),
    ],
)  # fmt: skip


def _summed(level: str, labels: tuple[str, ...], *, by_class: bool) -> list[Record]:
    """The same sums and averages for nodes and for classes."""

    def of(recorded: str) -> str:
        return _of_class(recorded) if by_class else recorded

    power = q.total(q.DEVICE, "accel_power_watts")
    return [
        Record(
            name=f"{level}:accel_info:count", expr=f"count {q.by(labels)} ({_CLASSES})", meaning="Physical devices.",
        ),
        *(
            Record(
                name=f"{level}:{metric}:avg", expr=q.average(labels, of(f"device:{metric}:avg")),
                meaning=f"`{metric}`, average over devices.",
            )
            for metric in RATIOS
        ),
        Record(name=f"{level}:accel_power_watts:sum", expr=q.total(labels, of(power)), meaning="Draw."),
        Record(
            name=f"{level}:accel_energy_joules:rate5m", expr=q.total(labels, of(ENERGY)),
            meaning="Watts by the energy counters.",
        ),
        Record(
            name=f"{level}:accel_memory_used_bytes:sum",
            expr=q.total(labels, of(_MEMORY_USED)),
            meaning="Device memory in use.",
        ),
        Record(
            name=f"{level}:accel_capacity_memory_bytes:sum",
            expr=q.total(labels, of(_CAPACITY)),
            meaning="Device memory of the whole devices.",
        ),
        Record(name=f"{level}:accel_allocated:sum", expr=q.total(labels, of(ALLOCATED)), meaning="Devices held."),
        Record(
            name=f"{level}:accel_allocated:idle_sum", expr=q.total(labels, of(IDLE)), meaning="Devices held and idle.",
        ),
        Record(
            name=f"{level}:accel_utilization_ratio:gap_avg",
            expr=q.average(labels, of(_GAP)),
            meaning="Utilization less compute-active: busy but not working.",
        ),
    ]  # fmt: skip


def _held(level: str, labels: tuple[str, ...]) -> list[Record]:
    """What tenants and jobs hold and use."""
    compute = q.of_bearers(ALL, "accel_compute_active_ratio")
    weighted = q.total(labels, f"{SHARE} * {q.on(q.PART)} group_left () {compute}")
    return [
        Record(name=f"{level}:accel_allocation_info:share_sum", expr=q.total(labels, SHARE), meaning="Devices held."),
        Record(
            name=f"{level}:accel_allocation_info:idle_share_sum", expr=q.total(labels, IDLE_SHARE),
            meaning="Devices held and idle.",
        ),
        Record(
            name=f"{level}:accel_energy_joules:rate5m",
            expr=q.total(labels, f"{SHARE} * {q.on(q.DEVICE)} group_left () {ENERGY}"),
            meaning="Watts of what is held, by share.",
        ),
        Record(
            name=f"{level}:accel_compute_active_ratio:avg",
            expr=f"{weighted} / {q.total(labels, f'{SHARE} and {q.on(q.PART)} {compute}')}",
            meaning="Compute-active of what is held, by share.",
        ),
    ]  # fmt: skip


GROUPS: Final = (
    SHARES,
    DEVICES,
    Group(name="accel-nodes", interval=INTERVAL, rules=_summed("node", NODE, by_class=False)),
    Group(name="accel-classes", interval=INTERVAL, rules=_summed("class", CLASS, by_class=True)),
    Group(name="accel-tenants", interval=INTERVAL, rules=[*_held("tenant", TENANT), *_held("job", JOB)]),
)
