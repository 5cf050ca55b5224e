"""What a collector could not read: counted, kept for the doctor, and said in the log no more than a reader needs."""

from __future__ import annotations

import logging
import time
from typing import Final

from exporter.model import ReadDone
from exporter.selfmetrics import ERROR_KINDS, SelfMetrics

log = logging.getLogger(__name__)

LOG_EVERY: Final = 600.0
"""Seconds between two log lines about the same trouble of a collector."""
MAX_TROUBLES: Final = 200


class Troubles:
    """One collector's."""

    def __init__(self, collector: str, metrics: SelfMetrics) -> None:
        self._collector, self._metrics = collector, metrics
        self._recent: dict[str, None] = {}
        self._logged: dict[str, float] = {}
        """Trouble → when it was last said, monotonic."""

    @property
    def recent(self) -> tuple[str, ...]:
        """What could not be read since the last discovery."""
        return tuple(self._recent)

    def clear(self) -> None:
        """Devices are looked for anew: what was true of the old ones need not be of these."""
        self._recent.clear()

    def count(self, group: str, reply: ReadDone) -> None:
        """Those that a sample tells."""
        for error in reply.errors:
            kind = error.kind if error.kind in ERROR_KINDS else "library"
            self._metrics.errors.labels(self._collector, kind).inc()
            trouble = f"{kind}: {error.detail}"[:200]
            if len(self._recent) < MAX_TROUBLES:
                self._recent[trouble] = None
            self.say(trouble, group)
        for series in reply.unknown:
            self._metrics.errors.labels(self._collector, "unknown_series").inc()
            self.say(f"unknown_series: {series[:200]} is in no table of this vendor", group)

    def say_death(self, trouble: str) -> None:
        """Log a worker's bad end. A flood of unreadable quantities must not hide it: it has room of its own."""
        self.say(trouble, most=2 * MAX_TROUBLES)

    def say(self, trouble: str, group: str = "", most: int = MAX_TROUBLES) -> None:
        """Log the same trouble at most once in LOG_EVERY seconds, and in these no more than so many."""
        now = time.monotonic()
        if now - self._logged.get(trouble, float("-inf")) < LOG_EVERY:
            return
        self._logged = {known: at for known, at in self._logged.items() if now - at < LOG_EVERY}
        if len(self._logged) >= most:
            return
        self._logged[trouble] = now
        log.warning(trouble, extra={"collector": self._collector, "group": group})
