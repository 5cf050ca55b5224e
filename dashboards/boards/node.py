"""One node, or a few: its devices side by side."""

from __future__ import annotations

from typing import Final

from dashboards import promql as q
from dashboards.board import COUNTS, OF_DEVICES, RAW, Board, Row, raw_row
from dashboards.boards.shared import (
    COMPUTE,
    DEVICE,
    FREE,
    MEMORY,
    NOT_HEALTHY,
    PART,
    POWER,
    TEMPERATURE,
    UTILIZATION,
    UTILIZATION_TEXT,
    WHOLE,
    S,
    faults_table,
    memory_share,
)  # fmt: skip
from dashboards.panels import (
    TO_DEVICE,
    TO_EXPORTER,
    TO_FLEET,
    TO_HEALTH,
    TO_WORKLOAD,
    Q,
    graph,
    number,
    rows,
    states,
)  # fmt: skip

_FACTS: Final = (
    "node", "vendor", "device", "uuid", "partition", "partition_profile", "model", "serial", "pci_bus_id",
    "driver_version", "firmware_version", "device_class", "kind",
)  # fmt: skip
_LINKS: Final = ("node", "vendor", "device")
_WORKLOADS: Final = (
    "node", "vendor", "device", "partition", "namespace", "pod", "container", "job_name", "tenant", "share",
)  # fmt: skip

NOW: Final = Row(
    "Now",
    (
        number(
            "Devices reporting", "Devices that gave a fresh sample, and those expected.", "none",
            [
                Q(f"sum ({COUNTS.of('accel_devices_reporting')})", "reporting"),
                Q(f"sum ({COUNTS.of('accel_devices_expected')})", "expected"),
            ],
            TO_HEALTH, width=6,
        ),
        number(
            "Not healthy", "Devices whose health is degraded, failed or unknown.", "none",
            [Q(f"sum ({FREE.get('accel_health_state', NOT_HEALTHY)})")], TO_HEALTH, width=4, bad=1,
        ),
        number(
            "Allocated", "Devices and parts that a workload holds.", "none",
            [Q(f"sum ({FREE.get('accel_allocated')})")], TO_WORKLOAD, width=4,
        ),
        number("Power", "Draw of the devices that tell it.", "watt", [Q(f"sum ({POWER})")], TO_FLEET, width=5),
        number(
            "Oldest sample", "Age of the newest sample of the device that is furthest behind.", "s",
            [Q(f"time() - min ({FREE.get('accel_sample_timestamp_seconds')})")], TO_EXPORTER, width=5, warn=60, bad=300,
        ),
    ),
)  # fmt: skip

BUSY: Final = Row(
    "Busy and working",
    (
        graph(
            "Utilization", "Share of time in which anything at all ran, by device.", "percentunit",
            [Q(UTILIZATION, DEVICE)], TO_DEVICE, top=1,
        ),
        graph("Compute-active", UTILIZATION_TEXT, "percentunit", [Q(COMPUTE, DEVICE)], TO_DEVICE, top=1),
        graph(
            "Memory in use", "Device memory in use as a share of the device's capacity.", "percentunit",
            [Q(memory_share(S, q.DEVICE), DEVICE)], TO_DEVICE, top=1,
        ),
        graph(
            "Memory in use by part", "Bytes of device memory in use, of parts where there are any.", "bytes",
            [Q(q.most(q.PART, S.get("accel_memory_used_bytes", MEMORY)), PART)], TO_DEVICE,
        ),
    ),
)  # fmt: skip

HEAT: Final = Row(
    "Power, heat, links",
    (
        graph("Power", "Draw by device.", "watt", [Q(q.total(q.DEVICE, POWER), DEVICE)], TO_DEVICE),
        graph(
            "Temperature", "Hottest sensor of each device.", "celsius", [Q(q.most(q.DEVICE, TEMPERATURE), DEVICE)],
            TO_DEVICE,
        ),
        graph(
            "Device-to-device links", "Bytes per second over all links of a device, both directions.", "Bps",
            [
                Q(q.bytes_rate(S, "accel_interconnect_received", _LINKS), f"{DEVICE} received"),
                Q(q.bytes_rate(S, "accel_interconnect_sent", _LINKS), f"{DEVICE} sent"),
            ],
            TO_DEVICE,
        ),
        graph(
            "PCIe", "Bytes per second between device and host, seen from the device.", "Bps",
            [
                Q(q.total(_LINKS, S.get("accel_pcie_received_bytes_per_second")), f"{DEVICE} received"),
                Q(q.total(_LINKS, S.get("accel_pcie_sent_bytes_per_second")), f"{DEVICE} sent"),
            ],
            TO_DEVICE,
        ),
    ),
)  # fmt: skip

WHO: Final = Row(
    "Health and owners",
    (
        states(
            "Not healthy", "When each device was degraded, failed or unknown.",
            [Q(q.most(_LINKS, FREE.get("accel_health_state", NOT_HEALTHY)), DEVICE)], TO_HEALTH,
        ),
        states(
            "Throttled", "When each device was slowed down, whatever the reason.",
            [Q(q.most(_LINKS, S.get("accel_throttle_active")), DEVICE)], TO_HEALTH,
        ),
        rows(
            "Who holds what", "Workloads by device and part.", "none",
            [Q(f"max by ({', '.join(_WORKLOADS)}) ({S.get('accel_allocation_info')})", "held")], TO_WORKLOAD,
            hide=("held",),
        ),
        rows(
            "Faults in the chosen time", "The last event of each code on each device.", "dateTimeAsLocal",
            [Q(faults_table(S), "last")], TO_HEALTH, sort="last",
        ),
        rows(
            "Devices", "Facts, of wholes and parts.", "none",
            [Q(f"max by ({', '.join(_FACTS)}) ({FREE.get('accel_info')})", "known")], TO_DEVICE, hide=("known",),
        ),
        number(
            "Parts", "Parts that devices are cut into: MIG instances, XCPs, cores.", "none",
            [Q(f"count by (vendor) ({FREE.get('accel_info', WHOLE.replace('=', '!='))})", "{{vendor}}")], TO_DEVICE,
            width=24,
        ),
    ),
)  # fmt: skip

BOARD: Final = Board(
    name="node",
    title="Accelerators: node",
    description="The devices of a node side by side: load, memory, power, heat, links, health, and who holds them.",
    variables=(*OF_DEVICES, RAW),
    rows=(
        NOW, BUSY, HEAT, WHO,
        raw_row((
            "accel_utilization_ratio", "accel_compute_active_ratio", "accel_memory_used_bytes", "accel_power_watts",
            "accel_temperature_celsius", "accel_throttle_active", "accel_interconnect_received_bytes_total",
            "accel_pcie_received_bytes_per_second",
        )),
    ),
)  # fmt: skip
