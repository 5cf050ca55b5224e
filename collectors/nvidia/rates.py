"""Counters into rates."""

from __future__ import annotations

from typing import Final

_SHORTEST: Final = 0.05
"""Seconds. A rate over less is mostly noise of the clock."""


class Rates:
    """Remembers each counter's last value."""

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last: dict[object, tuple[int, float]] = {}

    def per_second(self, key: object, value: int, at: float) -> float | None:
        """The increase a second since the last call for this key; None at first, and after a reset or wrap.

        ``at`` is in seconds of a clock that only goes forward.
        """
        last = self._last.get(key)
        if last is not None and 0 <= at - last[1] < _SHORTEST:
            return None
        self._last[key] = (value, at)
        if last is None or value < last[0] or at <= last[1]:
            return None
        return (value - last[0]) / (at - last[1])


def dcgm_megabytes(kib_per_second: float) -> int:
    """DCGM's NVLink bandwidth fields: KiB/s divided by 1000, truncated; called MB/s."""
    return int(kib_per_second / 1000)
