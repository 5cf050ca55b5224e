"""Alerts on devices: gone, failing, their memory, their heat, their links."""

from __future__ import annotations

from typing import Final

from alerts import conditions as c
from alerts.codes import FIRST, named
from alerts.model import COUNT, DEVICE, Alert, Group
from dashboards import promql as q

NEAR: Final = 5
"""Kelvin to the device's limit from which on it is near."""
HOT: Final = 90
HOT_MEMORY: Final = 95
"""Degrees Celsius, for devices that tell no limit."""
RECENT: Final = 600
"""Seconds for which a fault is news."""
CORRECTABLE: Final = 10
"""Correctable errors in an hour that are too many."""
_COUNTS: Final = ("cluster", "node", "instance", "vendor")
_UNCORRECTABLE: Final = q.total(q.DEVICE, 'increase(accel_memory_errors_total{correctable="false"}[1h])')
_REPAIRED: Final = q.total(q.DEVICE, 'delta(accel_memory_repairs{cause!="correctable"}[1h])')
_PENDING: Final = q.most(q.DEVICE, "accel_memory_repair_pending")
_SENSORS: Final = 'sensor=~"die|hotspot|edge|soc"'
_MEMORY: Final = 'sensor="memory"'
_ERRORS: Final = (*q.DEVICE, "fabric", "error")
_SERIOUS: Final = 'error=~"recovery|uncorrected|ecc"'

PRESENCE: Final = Group(
    name="accel-presence",
    rules=[
        Alert(
            name="AccelDeviceLost", severity="critical", action="drain", wait="1m",
            expr=f"{c.SAMPLE_AGE} > 60 and {q.on(q.DEVICE)} {c.FAILED}",
            when="A device is failed and has given no sample for more than a minute.",
            summary=f"{DEVICE} is lost",
            description="It is known, but does not answer: no sample for {{ $value | humanizeDuration }}. It may have "
            "fallen off its bus.",
        ),
        Alert(
            name="AccelDeviceFailed", severity="critical", action="drain", wait="1m",
            expr=f"{c.FAILED} unless {q.on(q.DEVICE)} ({c.SAMPLE_AGE} > 60)",
            when="A device answers, and its health is failed by the vendor's rules or by a fatal fault.",
            summary=f"{DEVICE} has failed",
            description="It still answers, but its vendor's health rules or a fatal fault of late say that it cannot "
            "be "
            "trusted.",
        ),
        Alert(
            name="AccelDeviceMissing", severity="critical", action="drain", wait="5m", subject="vendor",
            expr=f"{q.most(_COUNTS, '(accel_devices_expected - accel_devices_reporting) > 0')} or {q.on(_COUNTS)} "
            f"{q.most(_COUNTS, '(max_over_time(accel_devices_reporting[6h]) - accel_devices_reporting) > 0')}",
            when="Fewer devices report than are expected, or than did within six hours.",
            summary=f"{COUNT} {{{{ $labels.vendor }}}} devices are missing on "
            "{{ or $labels.node $labels.instance }}",
            description="Fewer devices of {{ $labels.vendor }} report on {{ or $labels.node $labels.instance }} than "
            f"are expected there or did so within six hours: {COUNT} fewer. Which workloads that hits shows "
            "accel_allocation_info of this node.",
        ),
    ],
)  # fmt: skip

FAULTS: Final = Group(
    name="accel-faults",
    rules=[
        Alert(
            name="AccelFaultFatal", severity="critical", action="",
            expr=f"{c.newest_faults('fatal')} < {RECENT}",
            when="A fault of severity fatal in the last ten minutes, by the time of its last event.",
            summary=f"Fatal fault {{{{ $labels.code }}}} on {DEVICE}",
            description=f"The vendor's code is {{{{ $labels.code }}}}{named('fatal')} (class {{{{ $labels.class }}}}), "
            f"last {{{{ $value | humanizeDuration }}}} ago. {FIRST['fatal']}",
        ),
        Alert(
            name="AccelFaultDegraded", severity="warning", action="",
            expr=f"{c.newest_faults('degraded')} < {RECENT}",
            when="A fault of severity degraded in the last ten minutes, by the time of its last event.",
            summary=f"Fault {{{{ $labels.code }}}} on {DEVICE}",
            description=f"The vendor's code is {{{{ $labels.code }}}}{named('degraded')} "
            "(class {{ $labels.class }}), "
            f"last {{{{ $value | humanizeDuration }}}} ago. {FIRST['degraded']}",
        ),
        Alert(
            name="AccelRecoveryActionNeeded", severity="warning", action="", wait="5m",
            expr=q.most((*q.DEVICE, "action"), 'accel_recovery_action{action!="none"}') + " == 1",
            when="The vendor, or the faults of late, say that a device needs something done.",
            summary=f"{DEVICE} needs: {{{{ $labels.action }}}}",
            description="The vendor, or the meaning of its faults of late, says that the device needs "
            "{{ $labels.action }}.",
        ),
    ],
)  # fmt: skip

MEMORY: Final = Group(
    name="accel-memory",
    rules=[
        Alert(
            name="AccelMemoryUncorrectableErrors", severity="critical", action="reset_device", wait="1m",
            expr=f"{_UNCORRECTABLE} > 0 unless {q.on(q.DEVICE)} "
            f"({_REPAIRED} > 0 unless {q.on(q.DEVICE)} {_PENDING} == 1)",
            when="New uncorrectable memory errors within an hour that no repair, finished without a reset, has "
            "answered.",
            summary=f"Uncorrectable memory errors on {DEVICE}",
            description=f"New in the last hour: {COUNT}, not repaired. Results of what ran there may be wrong.",
        ),
        Alert(
            name="AccelMemoryRepairPending", severity="warning", action="reset_device", wait="5m",
            expr=q.most((*q.DEVICE, "kind"), "accel_memory_repair_pending") + " == 1",
            when="A memory repair waits for a reset.",
            summary=f"A memory repair waits for a reset of {DEVICE}",
            description="A {{ $labels.kind }} is pending: the repair becomes effective when the device is reset.",
        ),
        Alert(
            name="AccelMemoryRepairFailed", severity="critical", action="replace", wait="1m",
            expr=q.most((*q.DEVICE, "kind"), "accel_memory_repair_failed") + " == 1",
            when="A memory repair failed.",
            summary=f"The memory of {DEVICE} cannot be repaired",
            description="A {{ $labels.kind }} failed: there are no spares left, or the repair itself broke.",
        ),
        Alert(
            name="AccelMemoryCorrectableErrors", severity="warning", action="investigate", wait="15m",
            expr=q.total(q.DEVICE, 'increase(accel_memory_errors_total{correctable="true"}[1h])') + f" > {CORRECTABLE}",
            when=f"More than {CORRECTABLE} correctable memory errors in an hour.",
            summary=f"Many correctable memory errors on {DEVICE}",
            description=f"About {COUNT} in the last hour. Data is right, but such errors often come "
            "before uncorrectable ones.",
        ),
    ],
)  # fmt: skip

HEAT: Final = Group(
    name="accel-thermal",
    rules=[
        Alert(
            name="AccelTemperatureAtLimit", severity="critical", action="drain", wait="2m",
            expr=f"{c.DISTANCE} <= 0",
            when="A sensor is at or above the device's own limit: slowdown, else operating maximum, else shutdown.",
            summary=f"{DEVICE} is at its temperature limit",
            description="The sensor {{ $labels.sensor }} is {{ $value | humanize }} K from the device's own limit.",
        ),
        Alert(
            name="AccelTemperatureNearLimit", severity="warning", action="investigate", wait="10m",
            expr=f"{c.DISTANCE} > 0 < {NEAR}",
            when=f"A sensor is less than {NEAR} K below the device's own limit.",
            summary=f"{DEVICE} is close to its temperature limit",
            description="The sensor {{ $labels.sensor }} has {{ $value | humanize }} K left to the device's own limit.",
        ),
        Alert(
            name="AccelTemperatureHigh", severity="warning", action="investigate", wait="5m",
            expr=f"({q.most(c.SENSOR, f'accel_temperature_celsius{{{_SENSORS}}}')} > {HOT} or "
            f"{q.most(c.SENSOR, f'accel_temperature_celsius{{{_MEMORY}}}')} > {HOT_MEMORY}) "
            f"unless {q.on(c.SENSOR)} {c.LIMIT}",
            when=f"A sensor of the chip is above {HOT} °C, or one of the memory above {HOT_MEMORY} °C, where the "
            f"device "
            "tells no limit of it.",
            summary=f"{DEVICE} is hot",
            description="The sensor {{ $labels.sensor }} is at {{ $value | humanize }} °C; the device tells no limit "
            "of "
            "its own.",
        ),
        Alert(
            name="AccelThrottledThermal", severity="warning", action="investigate", wait="5m",
            expr=f"{c.throttled('thermal', '15m')} > 0.1",
            when="For more than a tenth of the last 15 minutes heat slowed the device down.",
            summary=f"Heat slows {DEVICE} down",
            description="For {{ $value | humanizePercentage }} of the last 15 minutes.",
        ),
        Alert(
            name="AccelThrottledPowerBrake", severity="critical", action="investigate", wait="5m",
            expr=f"{c.throttled('power_brake', '15m')} > 0.01",
            when="An external power brake slowed the device down for more than 1 % of the last 15 minutes.",
            summary=f"The power brake slows {DEVICE} down",
            description="For {{ $value | humanizePercentage }} of the last 15 minutes. The signal comes from the "
            "server's power supply or baseboard, not from the device.",
        ),
        Alert(
            name="AccelThrottledOther", severity="info", action="investigate", wait="15m",
            expr=f"{c.throttled('reliability|sync_boost|software|other', '15m')} > 0.5",
            when="For more than half of the last 15 minutes another reason than heat or power slowed the device down.",
            summary=f"{{{{ $labels.reason }}}} slows {DEVICE} down",
            description="For {{ $value | humanizePercentage }} of the last 15 minutes.",
        ),
        Alert(
            name="AccelPowerAtLimit", severity="info", action="none", wait="30m",
            expr=f"{q.most(q.PART, 'avg_over_time(accel_power_watts[5m])')} / {q.on(q.PART)} "
            + q.most(q.PART, 'accel_power_limit_watts{limit="enforced"}') + " > 0.98",
            when="For half an hour the draw has been within 2 % of the enforced limit.",
            summary=f"{DEVICE} works at its power limit",
            description="It draws {{ $value | humanizePercentage }} of the enforced limit: with a higher one it "
            "would be "
            "faster.",
        ),
    ],
)  # fmt: skip

LINKS: Final = Group(
    name="accel-links",
    rules=[
        Alert(
            name="AccelLinkDown", severity="critical", action="drain", wait="5m",
            expr=c.fallen("accel_interconnect_links_up", ("fabric",)),
            when="A device has fewer device-to-device links up than within a day before, or than its peers on the node "
            f"(of at least {c.PEERS}).",
            summary=f"{{{{ $labels.fabric }}}} links of {DEVICE} are down",
            description=f"{COUNT} fewer {{{{ $labels.fabric }}}} links are up than before, or than on the other "
            "devices of the node. Jobs over several devices become slow or hang.",
        ),
        Alert(
            name="AccelFabricFailed", severity="critical", action="recover_fabric", wait="5m",
            expr=q.most(q.DEVICE, 'accel_fabric_state{state="failed"}') + " == 1",
            when="The device's fabric could not be set up.",
            summary=f"The fabric of {DEVICE} failed",
            description="The device could not join its fabric: jobs over several devices fail or fall back to PCIe.",
        ),
        Alert(
            name="AccelLinkErrors", severity="warning", action="investigate", wait="5m",
            expr=f"{q.total(_ERRORS, 'increase(accel_interconnect_errors_total[15m])')} > 10 or {q.on(_ERRORS)} "
            f"{q.total(_ERRORS, f'increase(accel_interconnect_errors_total{{{_SERIOUS}}}[15m])')} > 0",
            when="More than ten errors of device-to-device links in 15 minutes; of recoveries and uncorrectable errors "
            "any.",
            summary=f"Errors on {{{{ $labels.fabric }}}} links of {DEVICE}",
            description=f"About {COUNT} of kind {{{{ $labels.error }}}} in the last 15 minutes.",
        ),
        Alert(
            name="AccelPcieErrors", severity="warning", action="investigate", wait="5m",
            expr=f"{q.total(q.DEVICE, 'increase(accel_pcie_replays_total[15m])')} > 10 or {q.on(q.DEVICE)} "
            + q.total(q.DEVICE, 'increase(accel_pcie_errors_total{severity=~"nonfatal|fatal"}[15m])') + " > 0",
            when="More than ten PCIe replays in 15 minutes, or any error that is not correctable.",
            summary=f"PCIe errors on {DEVICE}",
            description=f"About {COUNT} replays or uncorrectable errors in the last 15 minutes.",
        ),
        Alert(
            name="AccelPcieLinkNarrow", severity="warning", action="investigate", wait="15m",
            expr=c.fallen("accel_pcie_link_width", ()),
            when="A device uses fewer PCIe lanes than within a day before, or than its peers on the node (of at least "
            f"{c.PEERS}).",
            summary=f"{DEVICE} has lost PCIe lanes",
            description=f"{COUNT} lanes fewer than before, or than the other devices of the node have.",
        ),
    ],
)  # fmt: skip
