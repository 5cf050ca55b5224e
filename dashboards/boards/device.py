"""One device: every quantity that it has, with its limits."""

from __future__ import annotations

from typing import Final

from dashboards import promql as q
from dashboards.board import OF_DEVICES, ONE, ONE_DEVICE, RAW, Board, Row, raw_row
from dashboards.boards.device_links import ERRORS, LINKS
from dashboards.boards.shared import MEMORY, UTILIZATION_TEXT, WHOLE
from dashboards.panels import (
    TO_FLEET,
    TO_HEALTH,
    TO_NODE,
    TO_VENDORS,
    TO_WORKLOAD,
    Q,
    graph,
    number,
    rows,
    states,
)  # fmt: skip

S: Final = ONE_DEVICE
FREE: Final = ONE_DEVICE.without_workload()
DEVICE: Final = "{{vendor}} {{device}}"
PART: Final = "{{device}} {{partition}}"
_HELD: Final = FREE.increase("accel_allocated_seconds_total", window="$__range")
_CAPACITY: Final = FREE.get("accel_capacity_compute_units")
_UNITS: Final = FREE.get("accel_compute_units")


def by(metric: str, *labels: str, more: str = "") -> str:
    """A gauge by part and by its own labels, whoever has the device."""
    return q.most((*q.PART, *labels), S.get(metric, more))


IDENTITY: Final = Row(
    "What it is",
    (
        rows(
            "Facts", "Of the device and of its parts.", "none",
            [Q(FREE.get("accel_info"), "known")], TO_NODE, hide=("known", "__name__", "job", "instance", "cluster"),
        ),
        rows(
            "Held by", "The workloads that the device or its parts are assigned to.", "none",
            [Q(S.get("accel_allocation_info"), "held")], TO_WORKLOAD,
            hide=("held", "__name__", "job", "instance", "cluster"),
        ),
        number(
            "Health", "The state that the device is in.", "none",
            [Q(f"max by (vendor, device, state) ({FREE.get('accel_health_state')} == 1)", DEVICE + " {{state}}")],
            TO_HEALTH,
        ),
        number(
            "Wanted", "What the device needs, by the vendor or by its faults.", "none",
            [Q(f"max by (vendor, device, action) ({FREE.get('accel_recovery_action')} == 1)", DEVICE + " {{action}}")],
            TO_HEALTH,
        ),
        number(
            "Sample age", "Time since the newest sample.", "s",
            [Q(f"time() - max by (vendor, device) ({FREE.get('accel_sample_timestamp_seconds', WHOLE)})", DEVICE)],
            TO_NODE, warn=60, bad=300,
        ),
        number(
            "Allocated", "Time for which a workload has held the device or part, over the chosen time.", "s",
            [Q(f"sum by (vendor, device) ({_HELD})", DEVICE)],
            TO_WORKLOAD,
        ),
        number(
            "Compute units", "SMs, CUs or cores: of the whole device where that is told, else of its parts together.",
            "none", [Q(f"{q.most(q.DEVICE, _CAPACITY)} or {q.total(q.DEVICE, _UNITS)}", DEVICE)], TO_VENDORS,
        ),
        number(
            "Error correction", "Whether the memory's error correction is on.", "bool_on_off",
            [Q(q.most(("vendor", "device"), FREE.get("accel_ecc_enabled")), DEVICE)], TO_HEALTH,
        ),
    ),
)  # fmt: skip

WORK: Final = Row(
    "Work",
    (
        graph(
            "Utilization and compute-active", UTILIZATION_TEXT, "percentunit",
            [
                Q(by("accel_utilization_ratio"), f"{PART} utilization"),
                Q(by("accel_compute_active_ratio"), f"{PART} compute-active"),
            ],
            TO_NODE, top=1, dashed=".*utilization",
        ),
        graph(
            "Engines",
            "Matrix engines, the arithmetic pipes and occupancy: resident work over the most that could be resident.",
            "percentunit",
            [
                Q(by("accel_matrix_active_ratio"), f"{PART} matrix"),
                Q(by("accel_pipe_active_ratio", "pipe"), f"{PART} {{{{pipe}}}}"),
                Q(by("accel_compute_occupancy_ratio"), f"{PART} occupancy"),
            ],
            TO_VENDORS, top=1,
        ),
        graph(
            "Media engines", "Utilization of encoders, decoders and the like.", "percentunit",
            [Q(by("accel_media_utilization_ratio", "engine"), f"{PART} {{{{engine}}}}")], TO_NODE, top=1,
        ),
        graph(
            "Floating point", "Achieved operations per second, where the vendor tells.", "flops",
            [Q(by("accel_flops_per_second"), PART)], TO_VENDORS,
        ),
        graph(
            "Executions", "Latency of executions on the device, where a runtime tells it.", "s",
            [Q(by("accel_execution_latency_seconds", "percentile"), f"{PART} {{{{percentile}}}}")], TO_WORKLOAD,
        ),
        graph(
            "Processes", "Processes that use the device or part.", "none",
            [Q(q.most(q.PART, FREE.get("accel_processes")), PART)], TO_WORKLOAD, steps=True,
        ),
    ),
)  # fmt: skip

STORE: Final = Row(
    "Memory",
    (
        graph(
            "Memory", "In use, reserved by driver or firmware, and the size.", "bytes",
            [
                Q(by("accel_memory_used_bytes", more=MEMORY), f"{PART} used"),
                Q(q.most(q.PART, FREE.get("accel_memory_reserved_bytes", MEMORY)), f"{PART} reserved"),
                Q(q.most(q.PART, FREE.get("accel_memory_total_bytes", MEMORY)), f"{PART} size"),
            ],
            TO_WORKLOAD, dashed=".*size",
        ),
        graph(
            "Memory bandwidth", "Share of cycles, or of time, in which device memory moved data.", "percentunit",
            [Q(by("accel_memory_bandwidth_active_ratio"), PART)], TO_VENDORS, top=1,
        ),
        graph(
            "Memory by use", "What memory is used for, where the vendor tells.", "bytes",
            [Q(by("accel_memory_category_bytes", "category"), f"{PART} {{{{category}}}}")], TO_WORKLOAD, stacked=True,
        ),
        graph(
            "Host and on-chip memory", "Memory of the device that is not its own device memory, in use.", "bytes",
            [Q(by("accel_memory_used_bytes", "memory", more='memory!="device"'), f"{PART} {{{{memory}}}}")], TO_NODE,
        ),
    ),
)  # fmt: skip

ELECTRIC: Final = Row(
    "Power, heat, clocks",
    (
        graph(
            "Power and its limits", "Draw, and the limits that the device has.", "watt",
            [
                Q(by("accel_power_watts"), f"{PART} draw"),
                Q(
                    q.most((*q.PART, "limit"), FREE.get("accel_power_limit_watts")),
                    f"{PART} limit {{{{limit}}}}",
                ),
            ],
            TO_NODE, dashed=".*limit.*",
        ),
        graph(
            "Energy", "Energy counter, per second: what the power readings miss between two samples is in it.", "watt",
            [Q(q.total(q.PART, S.rate("accel_energy_joules_total")), PART)], TO_FLEET,
        ),
        graph(
            "Temperature and its limits", "By sensor, with the device's own limits.", "celsius",
            [
                Q(by("accel_temperature_celsius", "sensor"), f"{PART} {{{{sensor}}}}"),
                Q(
                    q.most((*q.PART, "sensor", "limit"), FREE.get("accel_temperature_limit_celsius")),
                    f"{PART} {{{{sensor}}}} limit {{{{limit}}}}",
                ),
            ],
            TO_HEALTH, dashed=".*limit.*",
        ),
        graph(
            "Clocks and their limits", "By domain.", "hertz",
            [
                Q(q.most((*q.PART, "domain"), FREE.get("accel_clock_hertz")), f"{PART} {{{{domain}}}}"),
                Q(
                    q.most((*q.PART, "domain", "limit"), FREE.get("accel_clock_limit_hertz")),
                    f"{PART} {{{{domain}}}} limit {{{{limit}}}}",
                ),
            ],
            TO_NODE, dashed=".*limit.*",
        ),
        states(
            "Throttling by reason", "When which reason slowed the device down. Reasons overlap.",
            [Q(by("accel_throttle_active", "reason"), f"{PART} {{{{reason}}}}")], TO_HEALTH,
        ),
        graph(
            "Throttled share of time", "By reason, where the vendor counts the time. Reasons overlap: never add "
            "these up.",
            "percentunit",
            [Q(q.most((*q.PART, "reason"), FREE.rate("accel_throttle_seconds_total")), f"{PART} {{{{reason}}}}")],
            TO_HEALTH, top=1,
        ),
        graph(
            "Fans", "Fan speed as a share of its maximum.", "percentunit",
            [Q(q.most((*q.PART, "fan"), FREE.get("accel_fan_speed_ratio")), f"{PART} fan {{{{fan}}}}")], TO_NODE, top=1,
        ),
        graph(
            "Fan revolutions", "Fan speed, where the vendor gives revolutions.", "rotrpm",
            [Q(q.most((*q.PART, "fan"), FREE.get("accel_fan_speed_rpm")), f"{PART} fan {{{{fan}}}}")], TO_NODE,
        ),
        graph(
            "Voltage", "By rail.", "volt",
            [Q(q.most((*q.PART, "rail"), FREE.get("accel_voltage_volts")), f"{PART} {{{{rail}}}}")], TO_NODE,
        ),
    ),
)  # fmt: skip

BOARD: Final = Board(
    name="device",
    title="Accelerators: device",
    description="One device: every quantity that it has, with its limits, and where each number comes from. Choose a "
    "node and a device first: all devices at once are hard to read.",
    variables=(*OF_DEVICES, ONE, RAW),
    rows=(IDENTITY, WORK, STORE, ELECTRIC, LINKS, ERRORS, raw_row(("[a-z_]+",))),
)
