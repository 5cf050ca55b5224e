"""Everything at once: what is there, what works, what only looks busy, what it draws, what fails."""

from __future__ import annotations

from typing import Final

from dashboards import promql as q
from dashboards.board import COUNTS, OF_DEVICES, RAW, Board, Row, raw_row
from dashboards.boards.shared import (
    ALLOCATED,
    COMPUTE,
    DEVICE,
    FREE,
    GAP,
    IDLE,
    MATRIX,
    NOT_HEALTHY,
    POWER,
    SHARES_TEXT,
    TEMPERATURE,
    TO_VENDOR,
    UTILIZATION,
    UTILIZATION_TEXT,
    WHOLE,
    S,
    memory_share,
    throttled,
)  # fmt: skip
from dashboards.panels import (
    TO_DEVICE,
    TO_EXPORTER,
    TO_HEALTH,
    TO_NODE,
    TO_TENANTS,
    TO_VENDORS,
    TO_WORKLOAD,
    Q,
    bars,
    graph,
    number,
    rows,
)  # fmt: skip

_MISSING: Final = f"{COUNTS.of('accel_devices_expected')} - {COUNTS.of('accel_devices_reporting')}"
_STATES: Final = q.with_class(FREE, q.most((*q.DEVICE, "state"), FREE.of("accel_health_state") + " == 1"))

NOW: Final = Row(
    "Now",
    (
        number(
            "Devices",
            "Physical devices that the agents know, by vendor. A device that is cut into parts is one device.",
            "none", [Q(f"count by (vendor) ({FREE.get('accel_info', WHOLE)})", "{{vendor}}")], TO_NODE, width=6,
        ),
        number(
            "Missing",
            "Devices that should be there and give no fresh sample: expected less reporting. Expected is the "
            "configured number, else the most seen since the agent started.",
            "none", [Q(f"sum by (vendor) ({_MISSING})", "{{vendor}}")], TO_HEALTH, width=6, bad=1,
        ),
        number(
            "Not healthy", "Devices whose health is degraded, failed or unknown.", "none",
            [Q(f"sum by (state) ({FREE.get('accel_health_state', NOT_HEALTHY)})", "{{state}}")],
            TO_HEALTH, width=6, bad=1,
        ),
        number(
            "Power", "Draw of all devices that tell it, now.", "watt", [Q(f"sum ({POWER})")], TO_TENANTS, width=3,
        ),
        number(
            "Energy", "Energy used over the chosen time: the vendors' counters, or integrated from power.", "joule",
            [Q(f"sum ({S.increase('accel_energy_joules_total', window='$__range')})")], TO_TENANTS, width=3,
        ),
    ),
)  # fmt: skip

WORK: Final = Row(
    "Busy and working",
    (
        graph(
            "Utilization against compute-active", f"{UTILIZATION_TEXT} Averages over devices.", "percentunit",
            [
                Q(f"avg by (vendor) ({UTILIZATION})", "{{vendor}} utilization"),
                Q(f"avg by (vendor) ({COMPUTE})", "{{vendor}} compute-active"),
            ],
            TO_VENDOR, top=1, dashed=".*utilization",
        ),
        graph(
            "Busy but not working",
            "Utilization less compute-active, of the devices that tell both: time that most of the device spent "
            "waiting. Where a vendor gives one number for both it is 0.",
            "percentunit", [Q(f"avg by (vendor) ({GAP})", "{{vendor}}")], TO_VENDOR, top=1,
        ),
        graph(
            "Compute-active by class", "By the operator's own classes of devices (device_class of accel_info).",
            "percentunit", [Q(f"avg by (device_class) ({q.with_class(FREE, COMPUTE)})", "{{device_class}}")],
            TO_VENDORS, top=1,
        ),
        graph(
            "Matrix engines", "Share of cycles in which matrix (tensor) engines worked, where the vendor tells.",
            "percentunit", [Q(f"avg by (vendor) ({MATRIX})", "{{vendor}}")], TO_VENDOR, top=1,
        ),
    ),
)  # fmt: skip

HELD: Final = Row(
    "Allocation",
    (
        graph(
            "Allocated devices", "Devices that a workload holds. A part counts as its share of the device.", "none",
            [Q(f"sum by (vendor) ({ALLOCATED})", "{{vendor}}")], TO_TENANTS,
        ),
        graph(
            "Allocated but idle", f"Devices that a workload holds while their utilization is below {q.IDLE:.0%}.",
            "none", [Q(f"sum by (vendor) ({IDLE})", "{{vendor}}")], TO_TENANTS,
        ),
        bars(
            "Top tenants", f"Devices that each tenant holds now. {SHARES_TEXT}", "none",
            [Q(f"topk (10, sum by (tenant) ({q.held(S)}))", "{{tenant}}")], TO_TENANTS,
        ),
        rows(
            "Idle holders", f"Workloads with devices that do nothing now, the largest first. {SHARES_TEXT}", "none",
            [Q(f"topk (20, sum by (namespace, job_name, tenant) ({q.held_idle(S)}) > 0)", "idle devices")],
            TO_WORKLOAD, width=12, sort="idle devices",
        ),
    ),
)  # fmt: skip

RESOURCES: Final = Row(
    "Memory, power, heat",
    (
        graph(
            "Memory in use", "Device memory in use as a share of the devices' capacity.", "percentunit",
            [Q(memory_share(S, ("vendor",)), "{{vendor}}")], TO_VENDOR, top=1,
        ),
        graph(
            "Power", "Draw by vendor. Vendors that tell no power are missing here.", "watt",
            [Q(f"sum by (vendor) ({POWER})", "{{vendor}}")], TO_VENDOR, stacked=True,
        ),
        bars(
            "Hottest devices", "Hottest sensor of each device, now.", "celsius",
            [Q(f"topk (10, max by (node, vendor, device) ({TEMPERATURE}))", DEVICE)], TO_DEVICE,
        ),
        graph(
            "Throttled devices",
            "Devices that are slowed down, by reason. A device can have several reasons: never add these up.",
            "none", [Q(throttled(("reason",)), "{{reason}}")], TO_HEALTH,
        ),
    ),
)  # fmt: skip

TROUBLE: Final = Row(
    "Health",
    (
        rows(
            "Devices by vendor, class and state", "How many devices are in which state.", "none",
            [Q(f"count by (vendor, device_class, state) ({_STATES})", "devices")], TO_HEALTH, width=8, sort="devices",
        ),
        graph(
            "Faults",
            "Fault events by the severity and class of the agent's tables. The first event of a code that a device "
            "never had before is in no rate: the table in Errors and health shows it.",
            "none", [Q(f"sum by (class, severity) ({S.increase('accel_fault_code_total')})", "{{severity}} {{class}}")],
            TO_HEALTH, width=8,
        ),
        graph(
            "Collectors", "How many collectors give fresh samples, by vendor's collector.", "none",
            [Q('sum by (collector) (accel_exporter_collector_up{cluster=~"$cluster"})', "{{collector}}")],
            TO_EXPORTER, width=8,
        ),
    ),
)  # fmt: skip

BOARD: Final = Board(
    name="fleet",
    title="Accelerators: fleet",
    description="All devices of all vendors: how many, how busy, how much of that is work, what they draw, what fails.",
    variables=(*OF_DEVICES, RAW),
    rows=(
        NOW, WORK, HELD, RESOURCES, TROUBLE,
        raw_row((
            "accel_utilization_ratio", "accel_compute_active_ratio", "accel_matrix_active_ratio",
            "accel_memory_used_bytes", "accel_power_watts", "accel_energy_joules_total", "accel_temperature_celsius",
        )),
    ),
)  # fmt: skip
