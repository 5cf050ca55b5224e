"""Runs a source of attribution against a fake, and waits for what it must come to."""

from __future__ import annotations

import asyncio
import functools
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Final, ParamSpec

P = ParamSpec("P")

PATIENCE: Final = 15.0
"""Seconds after which something is certainly wrong."""


class Heard:
    """What a source tells: changes and troubles."""

    def __init__(self) -> None:
        self.changes = 0
        self.troubles: Counter[str] = Counter()

    def changed(self) -> None:
        self.changes += 1

    def failed(self, kind: str) -> None:
        self.troubles[kind] += 1


@asynccontextmanager
async def running(work: Coroutine[Any, Any, None]) -> AsyncIterator[asyncio.Task[None]]:
    """The work goes on meanwhile; that it broke is raised at the end."""
    task = asyncio.create_task(work)
    try:
        yield task
    finally:
        task.cancel()
        (outcome,) = await asyncio.gather(task, return_exceptions=True)
        if isinstance(outcome, Exception):
            raise outcome


async def until(holds: Callable[[], object], why: str = "") -> None:
    """Wait until it holds. Raises AssertionError when it takes too long."""
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, why or "it did not come to that in time"
        await asyncio.sleep(0.01)


async def turns_during(work: Coroutine[Any, Any, object]) -> int:
    """How often the event loop could do something else while the work went on: hardly at all if that stands in its way.

    Their number tells more than the longest pause, which on a busy machine is the machine's.
    """
    turns = 0
    task = asyncio.ensure_future(work)
    while not task.done():
        await asyncio.sleep(0.001)
        turns += 1
    await task
    return turns


def in_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run a test that is a coroutine function."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(test(*args, **kwargs))

    return run
