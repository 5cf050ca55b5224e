"""Fault events, counted by the agent: a worker that dies does not take them along."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, Literal

import msgspec

from exporter.catalogue import FaultClass

MAX_CODES: Final = 64
"""Codes kept apart for one device; those beyond are counted as ``other``."""

OTHER: Final = "other"
Owner = tuple[str, str, str]
"""vendor, uuid, partition"""


class CodeCount(msgspec.Struct):
    """Events of one code on one device."""

    meaning: FaultClass
    count: int = 0
    last: float = 0.0
    """Unix seconds, to be shown."""
    last_monotonic: float = 0.0


class FaultBook:
    """Fault events by device and code since the agent started. An event counts once, on a part or on the whole."""

    def __init__(self, hold: float) -> None:
        """``hold``: seconds for which an event says something about the device's health."""
        self.hold = hold
        self._codes: dict[Owner, dict[str, CodeCount]] = {}

    def record(
        self,
        owner: Owner,
        code: str,
        timestamp: float,
        table: Mapping[str, FaultClass],
        *,
        now: float,
        monotonic: float,
    ) -> None:
        """Count one event. A timestamp from the future is taken as now, so that an alert on it ends."""
        codes = self._codes.setdefault(owner, {})
        meaning = classify(code, table)
        if code not in codes and len(codes) >= MAX_CODES:
            code, meaning = OTHER, classify(OTHER, {})
        entry = codes.setdefault(code, CodeCount(meaning))
        entry.count += 1
        entry.last = max(entry.last, min(timestamp, now))
        entry.last_monotonic = monotonic

    def total(self, owner: Owner) -> int:
        return sum(entry.count for entry in self._codes.get(owner, {}).values())

    def codes(self, owner: Owner) -> Iterator[tuple[str, CodeCount]]:
        return iter(self._codes.get(owner, {}).items())

    def active(self, vendor: str, uuid: str, monotonic: float) -> list[FaultClass]:
        """What faults of the device and its parts, not older than ``hold``, mean."""
        return [
            entry.meaning
            for owner, codes in self._codes.items()
            if owner[:2] == (vendor, uuid)
            for entry in codes.values()
            if monotonic - entry.last_monotonic <= self.hold
        ]


def classify(code: str, table: Mapping[str, FaultClass]) -> FaultClass:
    """The table's word on a code. A code that it has not is of unknown class and wakes nobody."""
    return table.get(code) or FaultClass(code=code, name="", fault_class="unknown", severity="info", action="none")


def worst(meanings: list[FaultClass]) -> Literal["healthy", "degraded", "failed"]:
    severities = {meaning.severity for meaning in meanings}
    if "fatal" in severities:
        return "failed"
    return "degraded" if "degraded" in severities else "healthy"
