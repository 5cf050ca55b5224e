"""An event loop whose clock jumps to the next timer: a day of waiting takes as long as the work in it.

clock = Clock()
virtual(clock, main())

What blocks runs at once, in the loop's own thread. Modules that read a clock are given ``clock`` in place of ``time``.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

T = TypeVar("T")

UNIX: Final = 1_700_000_000.0


class Clock:
    """Stands where a module has ``time``."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return UNIX + self.now


class _Jumping(selectors.DefaultSelector):
    """Where nothing is ready, the time until the next timer has passed."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready:
            assert timeout is not None, "nothing will ever happen again"
            self._clock.now += max(0.0, timeout)
        return ready


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self, clock: Clock) -> None:
        super().__init__(_Jumping(clock))
        self._virtual = clock

    def time(self) -> float:
        return self._virtual.now

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> Any:  # type: ignore[override]
        done = super().create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the caller's
            done.set_exception(error)
        return done


def virtual(clock: Clock, main: Coroutine[Any, Any, T]) -> T:
    """Run until it ends, by this clock."""
    with asyncio.Runner(loop_factory=lambda: _Loop(clock)) as runner:
        return runner.run(main)
