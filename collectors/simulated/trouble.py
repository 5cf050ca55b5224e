"""The course of a failing device: sound, then memory errors, then heat, a fatal fault, lost, and sound again."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import msgspec

from collectors.tables import Fault

_ERRORS_FROM: Final = 0.15
_HOT_FROM: Final = 0.2
_FATAL_FROM: Final = 0.5
_LOST_FROM: Final = 0.6
"""Shares of the cycle. Lost lasts so long that the alert on it fires, also where rules are evaluated once a minute."""
_CORRECTABLE_PER_SECOND: Final = 1.5
_MOST_EVENTS: Final = 32


class Trouble(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """How a device fares at a moment."""

    hot: bool = False
    """Its cooling has given way."""
    hung: bool = False
    """No work runs any more."""
    lost: bool = False
    correctable: float = 0.0
    """Memory errors since the start."""
    uncorrectable: int = 0
    repaired: int = 0
    """Rows that were replaced, one each time the device came back."""


SOUND: Final = Trouble()


class Event(msgspec.Struct, frozen=True):
    at: float
    """Seconds since the start."""
    fault: Fault


class Course:
    """What happens when, by formula."""

    def __init__(self, cycle_seconds: float, faults: Sequence[Fault]) -> None:
        self._cycle = cycle_seconds
        self._warnings = _of(faults, "degraded", "memory") or _of(faults, "degraded") or _of(faults, "info")
        self._fatal = _of(faults, "fatal")

    def at(self, t: float) -> Trouble:
        cycles, into = divmod(t / self._cycle, 1.0)
        errors_until = min(into, _FATAL_FROM) - _ERRORS_FROM
        return Trouble(
            hot=_HOT_FROM <= into < _FATAL_FROM,
            hung=into >= _FATAL_FROM,
            lost=into >= _LOST_FROM,
            correctable=_CORRECTABLE_PER_SECOND
            * self._cycle
            * (cycles * (_FATAL_FROM - _ERRORS_FROM) + max(0.0, errors_until)),
            uncorrectable=int(cycles) + (into >= _FATAL_FROM),
            repaired=int(cycles),
        )

    def between(self, start: float, end: float) -> list[Event]:
        """The events after ``start`` up to ``end``, the newest if they are very many."""
        found: list[Event] = []
        last = int(end / self._cycle)
        for cycle in range(max(int(start / self._cycle), last - _MOST_EVENTS), last + 1):
            for share, faults in ((_ERRORS_FROM, self._warnings), (_FATAL_FROM, self._fatal)):
                at = (cycle + share) * self._cycle
                if start < at <= end and faults:
                    found.append(Event(at, faults[cycle % len(faults)]))
        return found[-_MOST_EVENTS:]


def _of(faults: Sequence[Fault], severity: str, fault_class: str = "") -> list[Fault]:
    return [fault for fault in faults if fault.severity == severity and fault_class in ("", fault.fault_class)]


def number_of(code: str) -> int:
    """The number in a code such as ``xid:79``; 0 if it has none. Hexadecimal codes are no numbers here."""
    found = re.search(r"(?:^|\D)([0-9]{1,9})$", code)
    return int(found.group(1)) if found else 0
