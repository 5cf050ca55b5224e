"""Energy of devices whose vendor counts none: power over time, added up by the agent."""

from __future__ import annotations

from typing import Final

import msgspec

from exporter.faults import Owner

MAX_GAP: Final = 60.0
"""Seconds between two samples over which power may be taken as known. Nothing is added for a longer gap."""


class _Meter(msgspec.Struct):
    joules: float
    watts: float
    at: float


class EnergyMeter:
    """Integrates power by the trapezoid rule, in monotonic time. The sums start at 0 with the agent."""

    def __init__(self) -> None:
        self._meters: dict[Owner, _Meter] = {}

    def add(self, owner: Owner, watts: float, at: float) -> float:
        """Take a power sample; the same sample given again adds nothing. Returns the joules so far."""
        meter = self._meters.get(owner)
        if meter is None:
            self._meters[owner] = _Meter(0.0, watts, at)
            return 0.0
        elapsed = at - meter.at
        if elapsed <= 0:
            return meter.joules
        if elapsed <= MAX_GAP:
            meter.joules += (watts + meter.watts) / 2 * elapsed
        meter.watts, meter.at = watts, at
        return meter.joules
