"""Requests that wait for one receiver, and how they are sent: in order, again where that can help, and no longer.

Its memory is bounded: ``queue_bytes`` of requests as they are sent. If more come, the oldest give way, for the newest
sums hold all that the older ones said.
"""

from __future__ import annotations

import asyncio
import logging
import random
import re
import time
from collections import deque
from collections.abc import Sequence
from typing import Final

import msgspec

from exporter.otlp.answer import Outcome, clean
from exporter.otlp.batch import Request, Starts
from exporter.otlp.connection import Sender
from exporter.otlp.streams import taken
from exporter.selfmetrics import OtlpMetrics

log = logging.getLogger(__name__)

FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 60.0
QUIET: Final = 60.0
"""Seconds between two troubles of one receiver in the log, whatever it does; each may get a line when it is over."""
REMINDER: Final = 3600.0
"""Seconds after which the same trouble is told again."""


class _Waiting(msgspec.Struct, frozen=True, eq=False):
    data: bytes
    points: int
    starts: Starts
    since: float
    """On the monotonic clock."""


class Report(msgspec.Struct, frozen=True):
    """How one receiver is."""

    up: bool | None
    """Whether it took the last request; None before the first."""
    last_success: float | None
    """Unix seconds."""
    hint: str
    queued: int
    """Requests that wait."""
    dropped: int
    """Points given up since the start."""


class Delivery:
    """Sends what is put into its queue."""

    def __init__(
        self,
        sender: Sender,
        name: str,
        metrics: OtlpMetrics,
        *,
        queue_bytes: int,
        give_up_after: float,
        first_pause: float = FIRST_PAUSE,
    ) -> None:
        """``name``: the receiver in the log. ``give_up_after``: seconds for which a request is tried again."""
        self._sender, self._name, self._metrics = sender, name, metrics
        self._queue_bytes, self._give_up_after, self._first_pause = queue_bytes, give_up_after, first_pause
        self._queue: deque[_Waiting] = deque()
        self._size = 0
        self._sending: _Waiting | None = None
        self._filled, self._emptied, self._hurry = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._emptied.set()
        self._failures = 0
        self._told: Outcome | None = None
        """The trouble that the log knows of; None: it knows of none."""
        self._logged: dict[str, float] = {}
        """When a kind of line was last written, on the monotonic clock."""
        self._last: Outcome | None = None
        self._last_success: float | None = None
        self._dropped = 0

    def report(self) -> Report:
        """How the receiver is, for the status page."""
        last = self._last
        up = None if last is None else last.result in ("success", "partial")
        return Report(up, self._last_success, last.message if last else "", len(self._queue), self._dropped)

    async def put(self, request: Request) -> None:
        """Let a request wait for its turn. Compressing it has a thread."""
        data = await asyncio.to_thread(self._sender.pack, request.body)
        waiting = _Waiting(data, request.points, request.starts, time.monotonic())
        self._make_room(len(data))
        if self._size + len(data) > self._queue_bytes:
            self._drop([waiting])
            return
        self._queue.append(waiting)
        self._size += len(data)
        self._metrics.queue_length.inc()
        self._emptied.clear()
        self._filled.set()

    async def run(self) -> None:
        """Send until cancelled."""
        while True:
            await self._filled.wait()
            await self._send(self._queue[0])

    async def flush(self, seconds: float) -> None:
        """Wait until all is sent, but no longer than so; the pause that is under way is cut short."""
        self._hurry.set()
        try:
            await asyncio.wait_for(self._emptied.wait(), seconds)
        except TimeoutError:
            log.warning("OTLP: the last requests could not be sent in time", extra={"endpoint": self._name})

    async def close(self) -> None:
        """Drop what still waits, and close the connection."""
        self._drop(list(self._queue))
        self._metrics.queue_length.dec(len(self._queue))
        self._queue.clear()
        await self._sender.close()

    async def _send(self, waiting: _Waiting) -> None:
        self._sending = waiting
        try:
            outcome = await self._sender.send(waiting.data)
        except Exception as error:
            if self._is_due("broken", REMINDER):
                log.exception("OTLP: sending broke: this is a fault of the agent, please report it")
            outcome = Outcome("refused", f"sending broke: {clean(repr(error))}")
        finally:
            self._sending = None
        self._metrics.exports.labels(outcome.result).inc()
        self._last = outcome
        if outcome.result in ("success", "partial"):
            self._last_success = time.time()
        self._tell(outcome)
        if outcome.result == "retry":
            self._failures += 1
            asked = outcome.pause
            # Who wants to be asked again at once is down all the same: without a pause this would be a busy loop.
            pause = asked if asked is not None and asked >= self._first_pause else self._pause()
            if time.monotonic() + pause - waiting.since > self._give_up_after:
                self._remove(waiting)
                self._drop([waiting])
            await self._wait(pause)
            return
        self._failures = 0
        self._remove(waiting)
        if outcome.result == "refused":
            self._drop([waiting])
            return
        # A receiver can say any number.
        self._metrics.rejected.inc(min(outcome.rejected, waiting.points))
        taken(waiting.starts)

    def _pause(self) -> float:
        """Twice as long each time, and never quite the same: a receiver's clients must not come back all at once."""
        longest: float = min(LONGEST_PAUSE, self._first_pause * 2 ** min(self._failures - 1, 16))
        return longest * random.uniform(0.5, 1.0)

    async def _wait(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._hurry.wait(), seconds)
            self._hurry.clear()
        except TimeoutError:
            return

    def _make_room(self, size: int) -> None:
        """Let the oldest go, but for the one that is being sent."""
        gone = []
        while self._queue and self._size + size > self._queue_bytes:
            oldest = next((waiting for waiting in self._queue if waiting is not self._sending), None)
            if oldest is None:
                break
            self._remove(oldest)
            gone.append(oldest)
        if gone:
            if self._is_due("full", REMINDER):
                log.warning("OTLP: the queue is full, the oldest requests are dropped", extra={"endpoint": self._name})
            self._drop(gone)

    def _remove(self, waiting: _Waiting) -> None:
        self._queue.remove(waiting)
        self._size -= len(waiting.data)
        self._metrics.queue_length.dec()
        if not self._queue:
            self._filled.clear()
            self._emptied.set()

    def _drop(self, gone: Sequence[_Waiting]) -> None:
        points = sum(waiting.points for waiting in gone)
        self._dropped += points
        self._metrics.dropped.inc(points)

    def _tell(self, outcome: Outcome) -> None:
        """What is new goes into the log once, not with each request."""
        before = self._told
        if not outcome.message:
            if before is not None and outcome.result == "success":
                log.info("OTLP: requests are taken again", extra={"endpoint": self._name})
                self._told = None
            return
        same = before is not None and _kind(before) == _kind(outcome)
        if not self._is_due("trouble", REMINDER if same else QUIET):
            return
        self._told = outcome
        words = {"retry": "to be sent again", "refused": "dropped", "partial": "taken in part", "success": "taken"}
        text = "OTLP: a request is %s: %s"
        log.warning(text, words[outcome.result], outcome.message, extra={"endpoint": self._name})

    def _is_due(self, kind: str, seconds: float) -> bool:
        """Whether a line of this kind may be written again, which is then taken note of."""
        now = time.monotonic()
        if now - self._logged.get(kind, float("-inf")) < seconds:
            return False
        self._logged[kind] = now
        return True


def _kind(outcome: Outcome) -> tuple[str, str]:
    """What stays the same of a trouble: numbers of points, or times, make no new one."""
    return outcome.result, re.sub("[0-9]+", "#", outcome.message)
