"""Who used how much: device-hours, energy, and what of it was idle."""

from __future__ import annotations

from typing import Final

from dashboards import promql as q
from dashboards.board import OF_DEVICES, RAW, Board, Row, raw_row
from dashboards.boards.shared import ALLOCATED, FREE, IDLE, SHARES_TEXT, WHOLE, S
from dashboards.panels import TO_FLEET, TO_NODE, TO_VENDORS, TO_WORKLOAD, Q, bars, graph, number, rows

TENANT: Final = ("tenant",)
_HELD: Final = q.total(TENANT, q.held(S))
_IDLE: Final = q.total(TENANT, q.held_idle(S))
_ENERGY: Final = q.total(TENANT, q.held_part_of(S, q.energy_rate(S)))
_CLASS: Final = q.most((*q.DEVICE, "device_class"), FREE.of("accel_info", WHOLE))
_BY_CLASS: Final = f"sum by (tenant, device_class) ({q.held(S)} * {q.on(q.DEVICE)} group_left (device_class) {_CLASS})"
_EVERY_MINUTE: Final = "Over the chosen time, a minute at a time."


def hours(expression: str) -> str:
    """Hours over the chosen time of something that is counted now."""
    return f"sum_over_time (({expression})[$__range:1m]) / 60"


NOW: Final = Row(
    "Now",
    (
        number("Tenants", "Tenants that hold a device.", "none", [Q(f"count ({_HELD})")], TO_FLEET, width=6),
        number(
            "Devices held", f"By all tenants. {SHARES_TEXT}", "none", [Q(f"sum ({_HELD})")], TO_FLEET, width=6,
        ),
        number(
            "Allocated share", "Share of all devices that a workload holds.", "percentunit",
            [Q(f"sum ({ALLOCATED}) / count ({FREE.get('accel_info', WHOLE)})")], TO_FLEET, width=6,
        ),
        number(
            "Idle share", f"Share of the allocated devices with a utilization below {q.IDLE:.0%}.", "percentunit",
            [Q(f"sum ({IDLE}) / sum ({ALLOCATED})")], TO_FLEET, width=6, warn=0.2, bad=0.5,
        ),
    ),
)  # fmt: skip

USE: Final = Row(
    "Use over time",
    (
        graph(
            "Devices held", SHARES_TEXT, "none", [Q(_HELD, "{{tenant}}")], TO_WORKLOAD, stacked=True, steps=True,
        ),
        graph(
            "Idle devices", f"Held, with a utilization below {q.IDLE:.0%}. {SHARES_TEXT}", "none",
            [Q(_IDLE, "{{tenant}}")], TO_WORKLOAD, stacked=True,
        ),
        graph(
            "Compute-active", "Average over the devices held, by share.", "percentunit",
            [Q(q.held_average(S, "accel_compute_active_ratio", TENANT), "{{tenant}}")], TO_WORKLOAD, top=1,
        ),
        graph(
            "Power", f"By the energy counters of the devices held. {SHARES_TEXT}", "watt", [Q(_ENERGY, "{{tenant}}")],
            TO_WORKLOAD, stacked=True,
        ),
    ),
)  # fmt: skip

BILL: Final = Row(
    "Over the chosen time",
    (
        rows(
            "By tenant",
            f"{_EVERY_MINUTE} {SHARES_TEXT} Vendors that tell no power add no energy. For months at a time use the "
            "recording rules tenant:…, which this table does not need.",
            "none",
            [
                Q(hours(_HELD), "device-hours"),
                Q(hours(_IDLE), "idle device-hours"),
                Q(f"sum_over_time (({_IDLE})[$__range:1m]) / sum_over_time (({_HELD})[$__range:1m])", "idle share"),
                Q(f"sum_over_time (({_ENERGY})[$__range:1m]) * 60", "energy"),
            ],
            TO_WORKLOAD, units=(("idle share", "percentunit"), ("energy", "joule")), sort="device-hours",
        ),
        bars(
            "Device-hours by tenant and class", f"{_EVERY_MINUTE} {SHARES_TEXT}", "none",
            [Q(hours(_BY_CLASS), "{{tenant}} {{device_class}}")], TO_VENDORS,
        ),
        rows(
            "By job", f"{_EVERY_MINUTE} The fifty largest. {SHARES_TEXT}", "none",
            [
                Q(
                    f"topk (50, {hours(q.total(('tenant', 'namespace', 'job_name'), q.held(S)))})",
                    "device-hours",
                )
            ],
            TO_WORKLOAD, width=12, sort="device-hours",
        ),
        graph(
            "Free devices", "Devices that nobody holds, by vendor: what could be given out.", "none",
            [
                Q(
                    f"count by (vendor) ({FREE.get('accel_info', WHOLE)}) - on (vendor) sum by (vendor) ({ALLOCATED})",
                    "{{vendor}}",
                )
            ],
            TO_NODE,
        ),
        bars(
            "Power of free devices", "Power now of devices and parts that nobody holds, by vendor.", "watt",
            [
                Q(
                    f"sum by (vendor) (({q.device_share(FREE)} * {q.on(q.PART)} "
                    f"(1 - {q.most(q.PART, FREE.of('accel_allocated'))})) "
                    f"* {q.on(q.DEVICE)} group_left () {q.energy_rate(FREE)})",
                    "{{vendor}}",
                )
            ],
            TO_FLEET,
        ),
    ),
)  # fmt: skip

BOARD: Final = Board(
    name="tenants",
    title="Accelerators: tenants and cost",
    description="Who held how much for how long, what it drew, and how much of it was idle. Shared devices count once.",
    variables=(*OF_DEVICES, RAW),
    rows=(
        NOW, USE, BILL,
        raw_row(("accel_utilization_ratio", "accel_energy_joules_total", "accel_power_watts", "accel_compute_units")),
    ),
)  # fmt: skip
