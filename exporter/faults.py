"""Fault events, counted by the agent: a worker that dies does not take them along."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, Literal

import msgspec

from exporter.catalogue import FaultClass

MAX_CODES: Final = 64
"""Codes kept apart for one device; those beyond are counted as ``other``."""

MAX_IN_ALL: Final = 8192
"""Codes kept apart for all devices together."""
MAX_LENGTH: Final = 128
"""Characters of a code; what is longer is no code and counts as ``other``."""

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
        self._devices: dict[tuple[str, str], dict[str, dict[str, CodeCount]]] = {}
        """(vendor, uuid) → partition → code."""
        self._known = 0
        """Codes of all devices."""

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
        """Count one event. A timestamp from the future, or none, is taken as now, so that an alert on it ends."""
        vendor, uuid, partition = owner
        codes = self._devices.setdefault((vendor, uuid), {}).setdefault(partition, {})
        meaning = classify(code, table)
        full = len(codes) >= MAX_CODES or self._known >= MAX_IN_ALL
        if len(code) > MAX_LENGTH or (full and code not in codes):
            code, meaning = OTHER, classify(OTHER, {})
        self._known += code not in codes
        entry = codes.setdefault(code, CodeCount(meaning))
        entry.count += 1
        entry.last = min(now, max(entry.last, timestamp if 0 < timestamp <= now else now))
        entry.last_monotonic = monotonic

    def forget(self, owner: Owner) -> None:
        """Drop what is known of a device or part that has gone."""
        vendor, uuid, partition = owner
        parts = self._devices.get((vendor, uuid), {})
        self._known -= len(parts.pop(partition, {}))
        if not parts:
            self._devices.pop((vendor, uuid), None)

    def total(self, owner: Owner) -> int:
        return sum(entry.count for entry in self._of(owner).values())

    def codes(self, owner: Owner, *, now: float, monotonic: float) -> Iterator[tuple[str, CodeCount]]:
        """The codes of a device or part. An event that a clock which was put back left in the future moves with it."""
        for code, entry in self._of(owner).items():
            if entry.last > now:
                entry.last = now - (monotonic - entry.last_monotonic)
            yield code, entry

    def _of(self, owner: Owner) -> Mapping[str, CodeCount]:
        vendor, uuid, partition = owner
        return self._devices.get((vendor, uuid), {}).get(partition, {})

    def active(self, vendor: str, uuid: str, monotonic: float) -> list[FaultClass]:
        """What faults of the device and its parts, not older than ``hold``, mean."""
        return [
            entry.meaning
            for codes in self._devices.get((vendor, uuid), {}).values()
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
