"""Of the board of one device: its links and its errors."""

from __future__ import annotations

from typing import Final

from dashboards import promql as q
from dashboards.board import ONE_DEVICE, Row
from dashboards.boards.shared import faults_table
from dashboards.panels import TO_HEALTH, TO_NODE, TO_VENDORS, TO_WORKLOAD, Q, graph, rows, states

S: Final = ONE_DEVICE
FREE: Final = ONE_DEVICE.without_workload()
PART: Final = "{{device}} {{partition}}"
_FABRIC: Final = (*q.PART, "fabric", "link")
_ANY_FABRIC: Final = f"{PART} {{{{fabric}}}} {{{{link}}}}"

LINKS: Final = Row(
    "Links",
    (
        graph(
            "Device-to-device links", "Bytes per second by fabric, and by link with `links: each`.", "Bps",
            [
                Q(q.bytes_rate(FREE, "accel_interconnect_received", _FABRIC), f"{_ANY_FABRIC} received"),
                Q(q.bytes_rate(FREE, "accel_interconnect_sent", _FABRIC), f"{_ANY_FABRIC} sent"),
            ],
            TO_VENDORS,
        ),
        graph(
            "Links up", "Device-to-device links that are up, and those that the device has.", "none",
            [
                Q(q.most((*q.PART, "fabric"), FREE.get("accel_interconnect_links_up")), f"{PART} {{{{fabric}}}} up"),
                Q(q.most((*q.PART, "fabric"), FREE.get("accel_interconnect_links")), f"{PART} {{{{fabric}}}} there"),
            ],
            TO_HEALTH, dashed=".*there", steps=True,
        ),
        graph(
            "Errors of links", "New errors by fabric and kind.", "none",
            [
                Q(
                    q.total((*_FABRIC, "error"), FREE.increase("accel_interconnect_errors_total")),
                    f"{_ANY_FABRIC} {{{{error}}}}",
                )
            ],
            TO_HEALTH,
        ),
        states(
            "Fabric", "When the device's fabric was in which state.",
            [Q(q.most((*q.PART, "state"), FREE.get("accel_fabric_state")), f"{PART} {{{{state}}}}")], TO_HEALTH,
        ),
        graph(
            "PCIe", "Bytes per second between device and host, seen from the device.", "Bps",
            [
                Q(q.total(q.PART, FREE.get("accel_pcie_received_bytes_per_second")), f"{PART} received"),
                Q(q.total(q.PART, FREE.get("accel_pcie_sent_bytes_per_second")), f"{PART} sent"),
            ],
            TO_NODE,
        ),
        graph(
            "PCIe link", "Lanes and generation in use, and those that the link could have. The generation drops "
            "while idle.",
            "none",
            [
                Q(q.most(q.PART, FREE.get("accel_pcie_link_width")), f"{PART} lanes"),
                Q(q.most(q.PART, FREE.get("accel_pcie_link_max_width")), f"{PART} lanes at most"),
                Q(q.most(q.PART, FREE.get("accel_pcie_link_generation")), f"{PART} generation"),
                Q(q.most(q.PART, FREE.get("accel_pcie_link_max_generation")), f"{PART} generation at most"),
            ],
            TO_HEALTH, dashed=".*at most", steps=True,
        ),
        graph(
            "PCIe errors", "New errors by severity, and packets sent again.", "none",
            [
                Q(q.total((*q.PART, "severity"), FREE.increase("accel_pcie_errors_total")), f"{PART} {{{{severity}}}}"),
                Q(q.total(q.PART, FREE.increase("accel_pcie_replays_total")), f"{PART} replays"),
            ],
            TO_HEALTH, width=24,
        ),
    ),
)  # fmt: skip

_WHERE: Final = (*q.PART, "correctable", "location")
_ANY_WHERE: Final = f"{PART} {{{{location}}}} correctable: {{{{correctable}}}}"

ERRORS: Final = Row(
    "Errors",
    (
        graph(
            "Memory errors", "New errors by place, correctable or not.", "none",
            [Q(q.total(_WHERE, S.increase("accel_memory_errors_total")), _ANY_WHERE)], TO_HEALTH,
        ),
        graph(
            "Memory errors over the device's life", "New errors by the counters that outlive driver and resets.",
            "none",
            [Q(q.total(_WHERE, FREE.increase("accel_memory_errors_lifetime_total")), _ANY_WHERE)], TO_HEALTH,
        ),
        graph(
            "Repairs", "Pages retired and rows remapped so far; what waits for a reset and what failed.", "none",
            [
                Q(
                    q.most((*q.PART, "kind", "cause"), FREE.get("accel_memory_repairs")),
                    f"{PART} {{{{kind}}}} {{{{cause}}}}",
                ),
                Q(q.most((*q.PART, "kind"), FREE.get("accel_memory_repair_pending")), f"{PART} {{{{kind}}}} pending"),
                Q(q.most((*q.PART, "kind"), FREE.get("accel_memory_repair_failed")), f"{PART} {{{{kind}}}} failed"),
            ],
            TO_HEALTH, steps=True,
        ),
        graph(
            "Spare rows", "Memory banks by how many spare rows they have left.", "none",
            [
                Q(
                    q.most((*q.PART, "availability"), FREE.get("accel_memory_repair_banks")),
                    f"{PART} {{{{availability}}}}",
                )
            ],
            TO_HEALTH, steps=True,
        ),
        graph(
            "Faults", "Fault events, all codes together.", "none",
            [Q(q.total(q.PART, S.increase("accel_faults_total")), PART)], TO_HEALTH,
        ),
        graph(
            "Execution errors", "New errors of the runtime that executes work on the device, by kind.", "none",
            [Q(q.total((*q.PART, "error"), S.increase("accel_execution_errors_total")), f"{PART} {{{{error}}}}")],
            TO_WORKLOAD,
        ),
        rows(
            "Faults in the chosen time", "The last event of each code.", "dateTimeAsLocal",
            [Q(faults_table(S), "last")], TO_HEALTH, sort="last",
        ),
    ),
)  # fmt: skip
