"""What is broken, what is about to be, and what to do about it."""

from __future__ import annotations

from typing import Final

from dashboards import promql as q
from dashboards.board import COUNTS, OF_DEVICES, RAW, Board, Row, raw_row
from dashboards.boards.shared import DEVICE, FREE, NOT_HEALTHY, PART, POWER, S, faults_table, throttled
from dashboards.panels import TO_DEVICE, TO_EXPORTER, TO_FLEET, TO_NODE, TO_WORKLOAD, Q, bars, graph, number, rows

_ID: Final = ("node", "vendor", "device")
_MISSING: Final = f"{COUNTS.of('accel_devices_expected')} - {COUNTS.of('accel_devices_reporting')}"
_LIMIT: Final = q.most((*q.PART, "sensor"), FREE.of("accel_temperature_limit_celsius", 'limit="slowdown"'))
_HOT: Final = q.most((*q.PART, "sensor"), S.get("accel_temperature_celsius"))
_DISTANCE: Final = (
    f"bottomk (10, min by (node, vendor, device, sensor) ({_LIMIT} - {q.on((*q.PART, 'sensor'))} {_HOT}))"
)
_POWER_LIMIT: Final = q.total(q.DEVICE, FREE.of("accel_power_limit_watts", 'limit="enforced"'))
_ACTION: Final = 'action!="none"'
_BANKS: Final = 'availability=~"low|none"'

NOW: Final = Row(
    "Now",
    (
        number(
            "Missing", "Devices that should be there and give no fresh sample.", "none", [Q(f"sum ({_MISSING})")],
            TO_FLEET, bad=1,
        ),
        number(
            "Not healthy", "Devices by state.", "none",
            [Q(f"sum by (state) ({FREE.get('accel_health_state', NOT_HEALTHY)})", "{{state}}")], TO_FLEET, bad=1,
        ),
        number(
            "Wanted actions", "What devices need, by the vendor or by their faults of late.", "none",
            [Q(f"sum by (action) ({FREE.get('accel_recovery_action', _ACTION)})", "{{action}}")], TO_FLEET, bad=1,
        ),
        number(
            "Repairs pending", "Devices with memory that waits for a reset to be repaired.", "none",
            [Q(f"sum ({q.most(q.DEVICE, FREE.get('accel_memory_repair_pending'))})")], TO_FLEET, warn=1,
        ),
        number(
            "Repairs failed", "Devices whose memory can be repaired no more: replace them.", "none",
            [Q(f"sum ({q.most(q.DEVICE, FREE.get('accel_memory_repair_failed'))})")], TO_FLEET, bad=1,
        ),
        number(
            "Links down", "Device-to-device links that are not up, of devices that have any up.", "none",
            [
                Q(
                    f"sum ({FREE.get('accel_interconnect_links')} - ({FREE.get('accel_interconnect_links_up')} > 0))"
                )
            ],
            TO_FLEET, bad=1,
        ),
    ),
)  # fmt: skip

FAULTS: Final = Row(
    "Faults",
    (
        rows(
            "Faults in the chosen time",
            "The last event of each code on each device, with what the agent's table of the vendor's codes says of it.",
            "dateTimeAsLocal", [Q(faults_table(S), "last")], TO_DEVICE, sort="last",
        ),
        graph(
            "Fault events", "By severity and class. The first event of a code that a device never had before is in no "
            "rate; the table above has it.",
            "none", [Q(f"sum by (severity, class) ({S.increase('accel_fault_code_total')})", "{{severity}} {{class}}")],
            TO_FLEET,
        ),
        rows(
            "Devices that are not healthy", "Now, with their state.", "none",
            [Q(f"max by (node, vendor, device, uuid, state) ({FREE.get('accel_health_state', NOT_HEALTHY)} == 1)",
            "is")],
            TO_DEVICE, width=6, hide=("is",),
        ),
        rows(
            "Devices that need something", "Now, with the action.", "none",
            [Q(f"max by (node, vendor, device, uuid, action) ({FREE.get('accel_recovery_action', _ACTION)} == 1)",
            "is")],
            TO_DEVICE, width=6, hide=("is",),
        ),
    ),
)  # fmt: skip

MEMORY: Final = Row(
    "Memory",
    (
        graph(
            "Uncorrectable errors", "New ones, by device.", "none",
            [Q(q.total(_ID, S.increase("accel_memory_errors_total", 'correctable="false"')), DEVICE)], TO_DEVICE,
        ),
        graph(
            "Correctable errors", "New ones, by device. Many of them announce an uncorrectable one.", "none",
            [Q(q.total(_ID, S.increase("accel_memory_errors_total", 'correctable="true"')), DEVICE)], TO_DEVICE,
        ),
        graph(
            "Repairs done", "Pages retired and rows remapped so far, by cause.", "none",
            [Q(f"sum by (kind, cause) ({FREE.get('accel_memory_repairs')})", "{{kind}} {{cause}}")], TO_FLEET,
            steps=True,
        ),
        graph(
            "Banks without spare rows", "Memory banks that have few or no spare rows left, by device.", "none",
            [Q(q.total(_ID, FREE.get("accel_memory_repair_banks", _BANKS)), DEVICE)], TO_DEVICE, steps=True,
        ),
    ),
)  # fmt: skip

LINKS: Final = Row(
    "Links",
    (
        graph(
            "Errors of device-to-device links", "New ones, by fabric and kind.", "none",
            [
                Q(
                    f"sum by (fabric, error) ({FREE.increase('accel_interconnect_errors_total')})",
                    "{{fabric}} {{error}}",
                )
            ],
            TO_NODE,
        ),
        graph(
            "PCIe errors and replays", "New ones, by severity; and packets sent again.", "none",
            [
                Q(f"sum by (severity) ({FREE.increase('accel_pcie_errors_total')})", "{{severity}}"),
                Q(f"sum ({FREE.increase('accel_pcie_replays_total')})", "replays"),
            ],
            TO_NODE,
        ),
        bars(
            "Lanes short", "PCIe lanes that the link could have and does not use, now.", "none",
            [
                Q(
                    f"sum by (vendor) ({FREE.get('accel_pcie_link_max_width')} - {FREE.get('accel_pcie_link_width')})",
                    "{{vendor}}",
                )
            ],
            TO_NODE,
        ),
        graph(
            "Fabric states", "Devices by the state of their fabric.", "none",
            [Q(f"sum by (state) ({FREE.get('accel_fabric_state')})", "{{state}}")], TO_NODE, steps=True,
        ),
    ),
)  # fmt: skip

HEAT: Final = Row(
    "Heat and power",
    (
        bars(
            "Nearest to the slowdown limit", "Kelvin up to the temperature at which the device slows itself down.",
            "celsius", [Q(_DISTANCE, f"{DEVICE} {{{{sensor}}}}")], TO_DEVICE,
        ),
        graph(
            "Throttled devices", "By reason. Reasons overlap: never add these up.", "none",
            [Q(throttled(("reason",)), "{{reason}}")], TO_NODE,
        ),
        graph(
            "Throttled share of time", "By reason, the worst device of each vendor, where the vendor counts the time.",
            "percentunit",
            [
                Q(
                    f"max by (vendor, reason) ({FREE.rate('accel_throttle_seconds_total')})",
                    "{{vendor}} {{reason}}",
                )
            ],
            TO_NODE, top=1,
        ),
        graph(
            "Power against the limit", "Draw as a share of the enforced limit, by device.", "percentunit",
            [Q(f"{q.total(q.DEVICE, POWER)} / {q.on(q.DEVICE)} {_POWER_LIMIT}", DEVICE)], TO_DEVICE,
        ),
        graph(
            "Execution errors", "New errors of runtimes, by kind.", "none",
            [Q(f"sum by (vendor, error) ({S.increase('accel_execution_errors_total')})", "{{vendor}} {{error}}")],
            TO_WORKLOAD,
        ),
        bars(
            "Oldest samples", "Age of the newest sample, of the devices that are furthest behind.", "s",
            [
                Q(
                    f"topk (10, time() - max by (node, vendor, device, partition) "
                    f"({FREE.get('accel_sample_timestamp_seconds')}))",
                    PART,
                )
            ],
            TO_EXPORTER,
        ),
    ),
)  # fmt: skip

BOARD: Final = Board(
    name="health",
    title="Accelerators: errors and health",
    description="Faults, memory errors and repairs, links, heat, and what the devices need. The runbooks of the alerts "
    "say what to do.",
    variables=(*OF_DEVICES, RAW),
    rows=(
        NOW, FAULTS, MEMORY, LINKS, HEAT,
        raw_row((
            "accel_memory_[a-z_]+", "accel_interconnect_[a-z_]+", "accel_pcie_[a-z_]+", "accel_throttle_[a-z_]+",
            "accel_temperature_[a-z_]+", "accel_recovery_action", "accel_fabric_state",
        )),
    ),
)  # fmt: skip
