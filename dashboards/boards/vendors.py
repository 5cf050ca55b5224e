"""Vendors side by side, and how exact each number is: two equal figures need not mean the same."""

from __future__ import annotations

from typing import Final

from dashboards import promql as q
from dashboards.board import COUNTS, OF_DEVICES, RAW, Board, Row, raw_row
from dashboards.boards.shared import (
    BANDWIDTH,
    COMPUTE,
    FREE,
    GAP,
    MATRIX,
    POWER,
    TEMPERATURE,
    UTILIZATION,
    WHOLE,
    S,
    memory_share,
)  # fmt: skip
from dashboards.panels import TO_DEVICE, TO_FLEET, TO_HEALTH, TO_NODE, TO_TENANTS, Q, bars, graph, rows

_COMPARED: Final = (
    "accel_utilization_ratio", "accel_compute_active_ratio", "accel_matrix_active_ratio",
    "accel_memory_bandwidth_active_ratio", "accel_power_watts", "accel_energy_joules_total",
)  # fmt: skip
_ONE: Final = "{{vendor}}"
_PER_MODEL: Final = q.most((*q.DEVICE, "model"), FREE.get("accel_info", WHOLE))


def exactness() -> str:
    """Devices' vendors by metric, source and exactness."""
    names = "|".join(metric.removeprefix("accel_") for metric in _COMPARED)
    found = COUNTS.of("accel_metric_source_info", f'metric=~"accel_({names})"')
    return f"count by (metric, vendor, exactness, source) ({found})"


def by_model(expression: str) -> str:
    """Average of an expression by device over devices of one model."""
    return f"avg by (vendor, model) ({expression} * {q.on(q.DEVICE)} group_left (model) {_PER_MODEL})"


MEANING: Final = Row(
    "How far the numbers can be compared",
    (
        rows(
            "Exactness", "Exact: the vendor's number for just this. Approximate: close to it. Derived: computed from "
            "another. Estimated: a share of a number that covers more than the device. The pages of the vendors say "
            "why.",
            "none", [Q(exactness(), "agents")], TO_FLEET, width=16, sort="metric",
        ),
        bars(
            "Devices by model", "What is being compared.", "none",
            [Q(f"count by (vendor, model) ({FREE.get('accel_info', WHOLE)})", "{{vendor}} {{model}}")], TO_NODE,
            width=8,
        ),
    ),
)  # fmt: skip

WORK: Final = Row(
    "Work",
    (
        graph(
            "Utilization", "Share of time in which anything at all ran. Average over devices.", "percentunit",
            [Q(f"avg by (vendor) ({UTILIZATION})", _ONE)], TO_NODE, top=1,
        ),
        graph(
            "Compute-active", "Share of compute units at work. Average over devices.", "percentunit",
            [Q(f"avg by (vendor) ({COMPUTE})", _ONE)], TO_NODE, top=1,
        ),
        graph(
            "Matrix-active", "Share of cycles in which the matrix engines worked. Average over devices.", "percentunit",
            [Q(f"avg by (vendor) ({MATRIX})", _ONE)], TO_NODE, top=1,
        ),
        graph(
            "Memory bandwidth", "Share of cycles, or of time, in which memory moved data. Average over devices.",
            "percentunit", [Q(f"avg by (vendor) ({BANDWIDTH})", _ONE)], TO_NODE, top=1,
        ),
        bars(
            "Busy but not working", "Utilization less compute-active, now.", "percentunit",
            [Q(f"avg by (vendor) ({GAP})", _ONE)], TO_DEVICE, top=1,
        ),
        graph(
            "Memory in use", "As a share of capacity.", "percentunit", [Q(memory_share(S, ("vendor",)), _ONE)], TO_NODE,
            top=1,
        ),
    ),
)  # fmt: skip

COST: Final = Row(
    "Power and health",
    (
        graph(
            "Watts for each device", "Average draw of a device.", "watt",
            [Q(f"avg by (vendor) ({q.total(q.DEVICE, POWER)})", _ONE)], TO_NODE,
        ),
        graph(
            "Compute-active for each kilowatt",
            "Sum of compute-active over the sum of kilowatts, of the devices that tell both: for trends of one vendor. "
            "Between vendors it compares how full devices are, not what they compute.",
            "none",
            [
                Q(
                    f"sum by (vendor) ({COMPUTE} and {q.on(q.DEVICE)} {POWER}) / (sum by (vendor) "
                    f"({q.total(q.DEVICE, POWER)} and {q.on(q.DEVICE)} {COMPUTE}) / 1000)",
                    _ONE,
                )
            ],
            TO_TENANTS,
        ),
        rows(
            "By model", "Averages over devices, now.", "none",
            [
                Q(by_model(UTILIZATION), "utilization"),
                Q(by_model(COMPUTE), "compute-active"),
                Q(by_model(MATRIX), "matrix-active"),
                Q(by_model(BANDWIDTH), "bandwidth"),
                Q(by_model(q.total(q.DEVICE, POWER)), "watts"),
                Q(by_model(q.most(q.DEVICE, TEMPERATURE)), "hottest sensor"),
            ],
            TO_DEVICE,
            units=(
                ("utilization", "percentunit"), ("compute-active", "percentunit"), ("matrix-active", "percentunit"),
                ("bandwidth", "percentunit"), ("watts", "watt"), ("hottest sensor", "celsius"),
            ),
        ),
        graph(
            "Faults for each device", "Fault events, over the number of devices.", "none",
            [
                Q(
                    f"sum by (vendor) ({S.increase('accel_faults_total')}) / "
                    f"on (vendor) count by (vendor) ({FREE.get('accel_info', WHOLE)})",
                    _ONE,
                )
            ],
            TO_HEALTH,
        ),
        graph(
            "Health", "Share of the devices that are healthy.", "percentunit",
            [
                Q(
                    "avg by (vendor) (" + FREE.get("accel_health_state", 'state="healthy"') + ")",
                    _ONE,
                )
            ],
            TO_HEALTH, top=1,
        ),
    ),
)  # fmt: skip

BOARD: Final = Board(
    name="vendors",
    title="Accelerators: vendors compared",
    description="Utilization, compute-active, matrix-active, bandwidth and watts side by side, with the exactness of "
    "each.",
    variables=(*OF_DEVICES, RAW),
    rows=(MEANING, WORK, COST, raw_row(_COMPARED)),
)
