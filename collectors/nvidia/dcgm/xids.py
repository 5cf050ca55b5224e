"""Xids: the history of a field of DCGM, which learns of them from NVML's events and (since 3.3.7) the kernel's log."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from collectors.base import Fault
from collectors.nvidia.dcgm import abi, codes
from collectors.nvidia.dcgm.engine import Engine
from collectors.nvidia.xidbook import XidBook

_MOST: Final = 4096
"""Events in one drain. A storm beyond that is cut: its Xids are known by then."""


class Event(msgspec.Struct, frozen=True, order=True):
    """One Xid."""

    at: int
    """Microseconds since 1970, by the engine's clock."""
    entity: abi.Entity
    xid: int


class History:
    """Where the last look ended. Lives as long as the collector: what came while the engine was away is not lost."""

    __slots__ = ("_since", "book")

    def __init__(self, window: float) -> None:
        self.book = XidBook(window)
        self._since = 0

    @property
    def new(self) -> bool:
        """Whether nobody has looked yet."""
        return self._since == 0

    def drain(
        self, engine: Engine, watches: Sequence[tuple[int, int]], places: Mapping[abi.Entity, int]
    ) -> list[Fault]:
        """New Xids. Those of before the first look are no events: only the book has them. Raises DcgmFailure."""
        first, since = self.new, self._since
        events: set[Event] = set()
        nexts = []
        for group, fields in watches:
            found, following = _since(engine, group, fields, since)
            events |= found
            nexts.append(following)
        self._since = max(nexts, default=since) or 1
        faults = []
        for event in sorted(events):
            position = places.get(event.entity)
            if position is None:
                continue
            if first:
                self.book.remember(position, event.xid)
            else:
                self.book.note(position, event.xid)
                faults.append(Fault(position, f"xid:{event.xid}", event.at / 1e6))
        return faults


def _since(engine: Engine, group: int, fields: int, since: int) -> tuple[set[Event], int]:
    events: set[Event] = set()

    def take(kind: int, entity: int, records: Any, count: int, _: Any) -> int:
        # Runs inside the library's call: nothing here may raise.
        size, version = abi.PAST_VALUE
        for place in range(min(count, _MOST - len(events)) if records else 0):
            head = ctypes.string_at(records + place * size, abi.PAST_UNION + 8)
            told, _, _, status, at = abi.PAST_HEAD.unpack_from(head)
            xid = abi.union(head, abi.PAST_UNION, abi.INTEGER)
            if told == version and status == codes.OK and isinstance(xid, int) and xid > 0 and not abi.blank(xid):
                events.add(Event(at, (kind, entity), xid))
        return 0

    following = ctypes.c_longlong(since)
    engine.call("dcgmGetValuesSince_v2", group, fields, since, ctypes.byref(following), abi.Past(take), None)
    return events, following.value
