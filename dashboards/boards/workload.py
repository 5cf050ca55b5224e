"""A namespace, a job, a pod: what it holds, what it makes of it, what happened to it.

All goes by accel_allocation_info, so that shared devices are here, too, and agents that put no workload on series.
"""

from __future__ import annotations

from typing import Final

from dashboards import promql as q
from dashboards.board import OF_DEVICES, RAW, Board, Row, raw_row
from dashboards.boards.shared import MEMORY, SHARES_TEXT, S
from dashboards.panels import TO_DEVICE, TO_HEALTH, TO_NODE, TO_TENANTS, TO_WORKLOAD, Q, graph, number, rows

JOB: Final = ("namespace", "job_name")
A_JOB: Final = "{{namespace}}/{{job_name}}"
_ON_DEVICE: Final = "namespace, pod, node, vendor, device, partition"
_POD_ON_DEVICE: Final = "{{namespace}}/{{pod}} {{node}} {{vendor}} {{device}} {{partition}}"
_ALLOCATION: Final = S.of("accel_allocation_info")
_ALL: Final = S.without_workload()
_ENERGY: Final = q.total(JOB, q.held_part_of(S, q.energy_rate(S)))
_THROTTLED: Final = q.most(q.DEVICE, _ALL.of("accel_throttle_active"))
_FAULTS: Final = q.total(q.DEVICE, f"increase({_ALL.of('accel_faults_total')}[{q.RATE}])")
_EXECUTION: Final = q.total(q.DEVICE, f"increase({_ALL.of('accel_execution_errors_total')}[{q.RATE}])")
_CODES: Final = q.most(
    ("cluster", "node", "vendor", "device", "uuid", "code", "class", "severity", "action"),
    _ALL.of("accel_fault_last_timestamp_seconds"),
)
_WHO: Final = (
    "namespace", "job_name", "pod", "container", "tenant", "queue", "served_model", "job_kind", "node", "vendor",
    "device", "partition", "resource", "share", "replicas",
)  # fmt: skip


def on_device(metric: str, more: str = "") -> str:
    """A gauge of each device and part that a workload holds, with the workload's labels."""
    return f"max by ({_ON_DEVICE}) ({q.of_bearers(S, metric, more)} * {q.on(q.PART)} group_right () {_ALLOCATION})"


NOW: Final = Row(
    "Now",
    (
        number("Devices", f"Devices held. {SHARES_TEXT}", "none", [Q(f"sum ({q.held(S)})")], TO_TENANTS),
        number(
            "Pods", "Pods that hold a device.", "none", [Q(f"count (count by (namespace, pod) ({_ALLOCATION}))")],
            TO_NODE,
        ),
        number(
            "Utilization", "Average over the devices held, by share.", "percentunit",
            [Q(q.held_average(S, "accel_utilization_ratio", ()))], TO_NODE,
        ),
        number(
            "Compute-active", "Average over the devices held, by share.", "percentunit",
            [Q(q.held_average(S, "accel_compute_active_ratio", ()))], TO_NODE,
        ),
        number(
            "Power", f"Of the devices held, by their energy counters. {SHARES_TEXT}", "watt",
            [Q(f"sum ({q.held_part_of(S, q.energy_rate(S))})")], TO_TENANTS,
        ),
        number(
            "Idle devices", f"Held, with a utilization below {q.IDLE:.0%}.", "none", [Q(f"sum ({q.held_idle(S)})")],
            TO_TENANTS, warn=0.5,
        ),
    ),
)  # fmt: skip

EFFICIENCY: Final = Row(
    "Efficiency",
    (
        graph(
            "Devices by job", f"Devices held. {SHARES_TEXT}", "none", [Q(q.total(JOB, q.held(S)), A_JOB)], TO_WORKLOAD,
            stacked=True, steps=True,
        ),
        graph(
            "Utilization against compute-active", "Averages over the devices held, by share.", "percentunit",
            [
                Q(q.held_average(S, "accel_utilization_ratio", JOB), f"{A_JOB} utilization"),
                Q(q.held_average(S, "accel_compute_active_ratio", JOB), f"{A_JOB} compute-active"),
            ],
            TO_WORKLOAD, top=1, dashed=".*utilization",
        ),
        graph(
            "Compute-active by device",
            "Of each device and part held; of a shared one all its workloads together. One line below the others is a "
            "straggler that all wait for.",
            "percentunit", [Q(on_device("accel_compute_active_ratio"), _POD_ON_DEVICE)], TO_DEVICE, top=1,
        ),
        graph(
            "Matrix engines", "Average over the devices held, by share, where the vendor tells.", "percentunit",
            [Q(q.held_average(S, "accel_matrix_active_ratio", JOB), A_JOB)], TO_WORKLOAD, top=1,
        ),
    ),
)  # fmt: skip

RESOURCES: Final = Row(
    "Memory and energy",
    (
        graph(
            "Device memory", "In use on each device and part held; of a shared one all its workloads together.",
            "bytes",
            [Q(on_device("accel_memory_used_bytes", MEMORY), _POD_ON_DEVICE)], TO_DEVICE,
        ),
        graph(
            "Power", f"By the energy counters of the devices held. {SHARES_TEXT}", "watt", [Q(_ENERGY, A_JOB)],
            TO_WORKLOAD, stacked=True,
        ),
        number(
            "Energy", f"Over the chosen time, a minute at a time. {SHARES_TEXT}", "joule",
            [Q(f"sum_over_time (({_ENERGY})[$__range:1m]) * 60", A_JOB)], TO_TENANTS, width=12,
        ),
        number(
            "Device-hours", f"Over the chosen time, a minute at a time. {SHARES_TEXT}", "none",
            [Q(f"sum_over_time (({q.total(JOB, q.held(S))})[$__range:1m]) / 60", A_JOB)], TO_TENANTS, width=12,
        ),
    ),
)  # fmt: skip

EVENTS: Final = Row(
    "What happened to it",
    (
        graph(
            "Throttled devices", "Devices held that are slowed down, for whatever reason.", "none",
            [Q(q.felt(S, _THROTTLED, JOB), A_JOB)], TO_HEALTH, width=8,
        ),
        graph(
            "Faults", "Fault events of devices held. On a shared device they are everybody's.", "none",
            [Q(q.felt(S, _FAULTS, JOB), A_JOB)], TO_HEALTH, width=8,
        ),
        graph(
            "Execution errors", "Errors that the runtime reports on devices held, where it tells.", "none",
            [Q(q.felt(S, _EXECUTION, JOB), A_JOB)], TO_HEALTH, width=8,
        ),
        rows(
            "Faults during the run", "The last event of each code, in the chosen time, on devices that are held now.",
            "dateTimeAsLocal",
            [Q(f"(({_CODES} > time() - $__range_s) and {q.on(q.DEVICE)} {_ALLOCATION}) * 1000", "last")], TO_HEALTH,
            sort="last",
        ),
        rows(
            "Devices held", "Each container with each device or part of it.", "none",
            [Q(f"max by ({', '.join(_WHO)}) ({_ALLOCATION})", "held")], TO_DEVICE, hide=("held",),
        ),
    ),
)  # fmt: skip

BOARD: Final = Board(
    name="workload",
    title="Accelerators: workload",
    description="A namespace, a job or a pod: the devices that it holds, how well it uses them, energy, and faults.",
    variables=(*OF_DEVICES, RAW),
    rows=(
        NOW, EFFICIENCY, RESOURCES, EVENTS,
        raw_row((
            "accel_utilization_ratio", "accel_compute_active_ratio", "accel_matrix_active_ratio",
            "accel_memory_used_bytes", "accel_energy_joules_total", "accel_throttle_active",
        )),
    ),
)  # fmt: skip
