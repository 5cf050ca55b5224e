"""AMD's rule for a healthy GPU: what its exporter calls gpu_health, by which its device plugin goes."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

from collectors.amd.cards import Card
from collectors.amd.texts import Errors
from collectors.base import Reading


class HealthRule:
    """Unhealthy: more uncorrectable errors of a block than the threshold, or a fatal error record of late."""

    def __init__(self, threshold: int, max_age: float) -> None:
        """``threshold``: errors of a block that are borne; ``max_age``: seconds that a record counts, 0: for ever."""
        self._threshold, self._max_age = threshold, max_age
        self._fatal: dict[str, float] = {}

    def fatal(self, card: Card, timestamp: float) -> None:
        """A fatal error record, with its Unix time."""
        self._fatal[card.uuid] = max(timestamp, self._fatal.get(card.uuid, 0.0))

    def rows(self, card: Card, blocks: Mapping[str, Errors], total: Errors) -> Iterator[Reading]:
        """Nothing where the GPU counts no errors at all: then nobody knows."""
        counts = [errors.uncorrectable for errors in blocks.values() if errors.uncorrectable is not None]
        if not counts and total.uncorrectable is not None:
            counts = [total.uncorrectable]
        fatal = self._has_fatal(card)
        if counts or fatal:
            sound = not fatal and all(count <= self._threshold for count in counts)
            yield Reading("gpu_health", card.position, int(sound))

    def _has_fatal(self, card: Card) -> bool:
        at = self._fatal.get(card.uuid)
        return at is not None and (not self._max_age or time.time() - at <= self._max_age)
