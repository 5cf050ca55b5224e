"""Energy of devices whose vendor counts none: power over time, added up by the agent."""

from __future__ import annotations

from typing import Final

import msgspec

from exporter.faults import Owner

MAX_GAP: Final = 60.0
"""Seconds between two samples over which power may be taken as known. Nothing is added for a longer gap.

Where samples are rare, two of the times for which one is fresh.
"""
MAX_WATTS: Final = 1e6
"""No device takes more, nor less than nothing: such a sample is a gap, or the sum would fall, or stay infinite."""


class _Meter(msgspec.Struct):
    joules: float
    watts: float | None
    """None: not known."""
    at: float


class EnergyMeter:
    """Integrates power by the trapezoid rule, in monotonic time. The sums start at 0 with the agent."""

    def __init__(self) -> None:
        self._meters: dict[Owner, _Meter] = {}

    def add(self, owner: Owner, watts: float, at: float, max_age: float = 0.0) -> float:
        """Take a power sample; the same sample given again adds nothing. Returns the joules so far.

        ``max_age``: seconds for which a sample counts as fresh.
        """
        known = watts if 0 <= watts <= MAX_WATTS else None
        meter = self._meters.get(owner)
        if meter is None:
            self._meters[owner] = _Meter(0.0, known, at)
            return 0.0
        elapsed = at - meter.at
        if elapsed <= 0:
            return meter.joules
        if elapsed <= max(MAX_GAP, 2 * max_age) and known is not None and meter.watts is not None:
            meter.joules += (known + meter.watts) / 2 * elapsed
        meter.watts, meter.at = known, at
        return meter.joules

    def forget(self, owner: Owner) -> None:
        """Drop the sum of a device or part that has gone."""
        self._meters.pop(owner, None)
