"""How often an engine should sample: as often as we are asked, which nobody tells us."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from collectors.base import Group

USUAL: Final[Mapping[Group, float]] = {"fast": 1.0, "normal": 5.0, "slow": 60.0}
"""Seconds between two samples, to begin with."""
_SHORTEST: Final = 0.1
"""Seconds; DCGM's own for profiling ratios."""
_LONGEST: Final = 3600.0
_TOLERANCE: Final = 0.2


class Pace:
    """Follows the time between two samples of a group. Two that agree count: one late sample changes nothing."""

    __slots__ = ("_last", "_period", "seconds")

    def __init__(self, group: Group) -> None:
        self.seconds = USUAL[group]
        self._last: float | None = None
        self._period: float | None = None

    def note(self, now: float) -> bool:
        """A sample is taken. True when the engine has to be told another interval, which is then in ``seconds``.

        ``now`` is in seconds of a clock that only goes forward.
        """
        last, self._last = self._last, now
        if last is None:
            return False
        before, self._period = self._period, min(max(now - last, _SHORTEST), _LONGEST)
        if before is None or not _alike(before, self._period) or _alike(self._period, self.seconds):
            return False
        self.seconds = self._period
        return True


def _alike(one: float, other: float) -> bool:
    return abs(one - other) <= _TOLERANCE * max(one, other)
