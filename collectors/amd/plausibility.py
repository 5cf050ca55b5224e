"""Whether a card's energy counter can be right: some count in another unit, or not at all."""

from __future__ import annotations

from typing import Final

import msgspec

from collectors.amd.cards import Card

_WINDOW: Final = 30.0
"""Seconds of power that a verdict needs."""
_LEAST: Final = 300.0
"""Joules by power that a verdict needs."""
_FACTOR: Final = 2.0
"""By how much counter and power may differ: power is an average, and sampled."""
_MAX_GAP: Final = 20.0
"""Seconds between two samples over which power may be taken as known."""


class _Track(msgspec.Struct):
    joules: float
    watts: float
    at: float
    began: float
    began_joules: float
    by_power: float = 0.0


class EnergyCheck:
    """Compares energy counters with power over time. A card whose counter failed once is not believed again."""

    def __init__(self) -> None:
        self._tracks: dict[str, _Track] = {}
        self._doubted: set[str] = set()
        self.news: list[Card] = []
        """Cards that failed since this was last emptied."""

    def believes(self, card: Card) -> bool:
        return card.uuid not in self._doubted

    def add(self, card: Card, joules: float, watts: float, at: float) -> None:
        """Take a sample, ``at`` in monotonic seconds."""
        track = self._tracks.get(card.uuid)
        if track is None or joules < track.joules or at - track.at > _MAX_GAP:
            self._tracks[card.uuid] = _Track(joules, watts, at, at, joules)
            return
        track.by_power += (watts + track.watts) / 2 * (at - track.at)
        track.joules, track.watts, track.at = joules, watts, at
        if at - track.began < _WINDOW or track.by_power < _LEAST:
            return
        counted = joules - track.began_joules
        if not track.by_power / _FACTOR <= counted <= track.by_power * _FACTOR and self.believes(card):
            self._doubted.add(card.uuid)
            self.news.append(card)
        self._tracks[card.uuid] = _Track(joules, watts, at, at, joules)
