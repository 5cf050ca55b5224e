"""A simulation whose clock a test turns, and a vendor's table made by hand for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from collectors.base import Device, Group, Labels, Sample
from collectors.simulated.collector import SimulatedCollector
from collectors.simulated.options import SimulatedOptions
from collectors.tables import Fault, Feed, Series, Tables
from exporter.schema import METRICS

GROUPS: tuple[Group, ...] = ("fast", "normal", "slow")
Key = tuple[str, int, Labels]
WALL = 1_700_000_000.0

_FEEDS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "utilization": ("accel_utilization_ratio", {}),
    "compute": ("accel_compute_active_ratio", {}),
    "matrix": ("accel_matrix_active_ratio", {}),
    "power": ("accel_power_watts", {}),
    "power_limit": ("accel_power_limit_watts", {"limit": "enforced"}),
    "energy": ("accel_energy_joules_total", {}),
    "die": ("accel_temperature_celsius", {"sensor": "die"}),
    "slowdown": ("accel_temperature_limit_celsius", {"sensor": "die", "limit": "slowdown"}),
    "shutdown": ("accel_temperature_limit_celsius", {"sensor": "die", "limit": "shutdown"}),
    "clock": ("accel_clock_hertz", {"domain": "core"}),
    "clock_limit": ("accel_clock_limit_hertz", {"domain": "core", "limit": "max"}),
    "total": ("accel_memory_total_bytes", {"memory": "device"}),
    "used": ("accel_memory_used_bytes", {"memory": "device"}),
    "free": ("accel_memory_free_bytes", {"memory": "device"}),
    "reserved": ("accel_memory_reserved_bytes", {"memory": "device"}),
    "ecc": ("accel_memory_errors_total", {"correctable": "true", "location": "hbm"}),
    "throttled_seconds": ("accel_throttle_seconds_total", {"reason": "thermal"}),
}
HANDMADE = Tables(
    vendor="acme",
    title="Acme accelerators",
    identity=("card", "uuid", "model_name", "hostname"),
    series=(
        *(
            Series(name=name, type="gauge", unit=unit, base=unit, feeds=(Feed(metric, labels),))
            for name, (metric, labels) in _FEEDS.items()
            for unit in (METRICS[metric].unit,)
        ),
        Series(
            name="energy_mj", type="counter", unit="millijoules", base="joules", scale=1e-3,
            feeds=(Feed("accel_energy_joules_total"),),
        ),
        Series(
            name="reasons", type="gauge",
            feeds=(
                Feed("accel_throttle_active", {"reason": "power_cap"}, bits=0x4),
                Feed("accel_throttle_active", {"reason": "thermal"}, bits=0x60),
            ),
        ),
        Series(
            name="action", type="gauge",
            feeds=(
                Feed("accel_recovery_action", {"action": "none"}, equals=(0,)),
                Feed("accel_recovery_action", {"action": "reset_device"}, equals=(7, 8)),
            ),
        ),
        Series(
            name="link_bytes", type="counter", unit="bytes", base="bytes", labels=("link",),
            feeds=(Feed("accel_interconnect_sent_bytes_total", {"fabric": "acmelink", "link": "$link"}),),
        ),
        Series(
            name="sent", type="counter", unit="bytes", base="bytes",
            feeds=(Feed("accel_interconnect_sent_bytes_total", {"fabric": "acmelink"}),),
        ),
        Series(
            name="link_up", type="gauge", labels=("link",),
            feeds=(Feed("accel_interconnect_link_up", {"fabric": "acmelink", "link": "$link"}),),
        ),
        Series(name="last_fault", type="gauge", labels=("code", "text")),
        Series(name="chassis", type="gauge", unit="celsius", base="celsius", level="node"),
        Series(
            name="memory_now", type="gauge", unit="bytes", base="bytes", level="part",
            feeds=(Feed("accel_memory_used_bytes", {"memory": "device"}),),
        ),
    ),
    faults=(
        Fault(code="af:3", name="A bit flipped", fault_class="memory", severity="degraded"),
        Fault(code="af:99", name="Off the bus", fault_class="interconnect", severity="fatal"),
    ),
)  # fmt: skip
LAST_FAULT = {"value": 0, "quantity": "fault_code", "labels": {"code": "{fault_code}", "text": "{fault_name}"}}


class Rig:
    """A simulation whose clock a test turns."""

    def __init__(self, data: Mapping[str, Any], **options: Any) -> None:
        self.now = 0.0
        self.tables = msgspec.convert(data, Tables)
        self.series = {series.name: series for series in self.tables.series}
        wanted: dict[Group, frozenset[str]] = {
            group: frozenset(series.name for series in self.tables.series if series.group == group) for group in GROUPS
        }
        self.collector = SimulatedCollector(
            self.tables,
            msgspec.convert({**data, **options}, SimulatedOptions),
            wanted,
            options.get("node", "node-a"),
            options.get("links", "sum"),
            clock=lambda: 5000.0 + self.now,
            wall=lambda: WALL + self.now,
        )
        self.devices: tuple[Device, ...] = self.collector.discover()

    def at(self, now: float) -> tuple[dict[Key, float], list[Sample]]:
        self.now = now
        samples = [self.collector.sample(group) for group in GROUPS]
        found: dict[Key, float] = {}
        for sample in samples:
            for reading in sample.readings:
                key = (reading.series, reading.device, reading.labels)
                assert key not in found
                found[key] = reading.value
        return found, samples

    def values(self, now: float, device: int = 0) -> dict[str, float]:
        """Readings of one device, of series without labels of their own."""
        return {series: value for (series, position, labels), value in self.at(now)[0].items() if position == device}


def handmade(what: str = "training", **options: Any) -> Rig:
    data = {**msgspec.to_builtins(HANDMADE), "simulation": {"values": {"last_fault": LAST_FAULT}}}
    return Rig(data, **{"devices": 1, "scenarios": [what], **options})
