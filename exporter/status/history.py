"""A short memory of the main quantities of each device, for curves that a person looks at. It is no database.

Bound: POINTS times of 8 bytes, and for each of at most MOST_TRACKED devices and parts at most five quantities of POINTS
numbers of 4 bytes. That is 2,400 bytes a device, and 1.2 MB at the very most.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from math import isfinite, nan
from typing import Final

import msgspec

from exporter.families import Publication
from exporter.status.devices import PICKS, Own, Owner, by_owner
from exporter.status.model import QUANTITIES, DeviceHistory
from exporter.status.samples import Reader

POINTS: Final = 120
"""Ten minutes, where a point is taken every five seconds."""
MOST_TRACKED: Final = 512
"""Devices and parts; those beyond have no history."""


class _Curves(msgspec.Struct):
    """One device's numbers, each quantity in a ring that is as long as that of the times."""

    seen: int
    """Number of the last point that had any."""
    rings: dict[str, array[float]]


class History:
    """Points are taken by ``record``, one after the other."""

    def __init__(self) -> None:
        self._reader = Reader(PICKS[field].metric for field in QUANTITIES)
        self._times = array("d", [0.0] * POINTS)
        self._taken = 0
        self._version = 0
        self._devices: dict[Owner, _Curves] = {}

    def record(self, publication: Publication, now: float) -> None:
        """Take a point. ``now``: Unix seconds. The same publication again is no new point."""
        if publication.version == self._version:
            return
        self._version = publication.version
        slot = self._taken % POINTS
        self._times[slot] = round(now, 3)
        for curves in self._devices.values():
            for ring in curves.rings.values():
                ring[slot] = nan
        metrics = [PICKS[field].metric for field in QUANTITIES]
        for owner, own in by_owner(self._reader.read_now(publication), metrics).items():
            self._put(owner, own, slot)
        self._taken += 1
        gone = [owner for owner, curves in self._devices.items() if self._taken - curves.seen > POINTS]
        for owner in gone:
            del self._devices[owner]

    def _put(self, owner: Owner, own: Own, slot: int) -> None:
        curves = self._devices.get(owner)
        if curves is None:
            if len(self._devices) >= MOST_TRACKED:
                return
            curves = self._devices[owner] = _Curves(self._taken, {})
        curves.seen = self._taken
        for field in QUANTITIES:
            value = own.picked(PICKS[field])
            if value is not None:
                if field not in curves.rings:
                    curves.rings[field] = array("f", [nan] * POINTS)
                curves.rings[field][slot] = value

    def times(self, since: float = 0.0) -> tuple[float, ...]:
        """When the points later than ``since`` were taken, in the order in which they were."""
        return tuple(self._times[slot] for slot in self._slots(since))

    def devices(self, since: float = 0.0) -> Iterator[DeviceHistory]:
        """The numbers of each device at these times."""
        slots = self._slots(since)
        for (vendor, uuid, partition), curves in list(self._devices.items()):
            numbers = {field: _numbers(ring, slots) for field, ring in curves.rings.items()}
            told = {field: found for field, found in numbers.items() if any(value is not None for value in found)}
            yield DeviceHistory(vendor=vendor, uuid=uuid, partition=partition, **told)

    @property
    def bytes(self) -> int:
        """What the rings take: known beforehand, whatever the devices do."""
        rings = [ring for curves in self._devices.values() for ring in curves.rings.values()]
        return sum(ring.itemsize * len(ring) for ring in (self._times, *rings))

    def _slots(self, since: float) -> Sequence[int]:
        kept = range(max(0, self._taken - POINTS), self._taken)
        # A clock that was set back must not hide what was taken since.
        first = next((number for number in reversed(kept) if self._times[number % POINTS] <= since), kept.start - 1)
        return [number % POINTS for number in range(first + 1, self._taken)]


def _numbers(ring: array[float], slots: Sequence[int]) -> tuple[float | None, ...]:
    """Four digits: a curve shows no more, and single precision has little more."""
    return tuple(None if not isfinite(value := ring[slot]) else float(f"{value:.4g}") for slot in slots)
