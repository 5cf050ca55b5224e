"""``accel-exporter top``: the status page in a terminal, of this node or of another agent."""

from __future__ import annotations

import asyncio
import io
import logging
import os
import shutil
import signal
import sys
import termios
import time
import tty
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final

import msgspec

from exporter.agent import Agent
from exporter.program import Program
from exporter.selfmetrics import SelfMetrics
from exporter.status.frame import Tone, View, clean, frame
from exporter.status.model import Devices, Status
from exporter.status.remote import Access, Door, Unreachable, WrongFlags, ask, door
from exporter.status.service import Monitor

Fetch = Callable[[], Awaitable[tuple[Devices, Status]]]
"""The newest answers. Raises Unreachable."""

REPEATED: Final = 0.2
"""Seconds between two looks at the keyboard and at the size of the window."""
NARROWEST: Final = 20

_ENTER: Final = "\x1b[?1049h\x1b[?25l"
_LEAVE: Final = "\x1b[?25h\x1b[?1049l"
_TONES: Final[dict[Tone, str]] = {"head": "1", "good": "", "warn": "33", "bad": "31", "soft": "2", "plain": ""}


def top(program: Program, access: Access, interval: float, *, once: bool) -> int:
    """Show devices until q is pressed, or ``once``. Exit code 1 if there is none to show, or no answer."""
    try:
        where = door(access)
    except WrongFlags as error:
        print(f"accel-exporter: {clean(str(error))}", file=sys.stderr)
        return 2
    if where.warning:
        print(f"accel-exporter: {where.warning}", file=sys.stderr)
    if not once and not (sys.stdin.isatty() and sys.stdout.isatty()):
        print("accel-exporter: top needs a terminal; with --once it prints one frame and ends", file=sys.stderr)
        return 2
    try:
        return asyncio.run(_top(program, where, interval, once=once))
    except Unreachable as error:
        print(f"accel-exporter: {clean(str(error))}", file=sys.stderr)
        return 1


async def _top(program: Program, where: Door, interval: float, *, once: bool) -> int:
    if isinstance(sys.stdout, io.TextIOWrapper):
        # In a terminal without UTF-8 a degree sign is no reason to fail.
        sys.stdout.reconfigure(errors="replace")
    async with _remote(where) if where.base else _local(program, interval, once=once) as fetch:
        if not once:
            return await _screen(fetch, interval)
        devices, status = await fetch()
        width = shutil.get_terminal_size((200, 24)).columns if sys.stdout.isatty() else 500
        print("\n".join(line.text for line in frame(View(devices=devices, status=status), width)))
        return 0 if devices.devices else 1


# Where the answers come from


@asynccontextmanager
async def _local(program: Program, interval: float, *, once: bool) -> AsyncIterator[Fetch]:
    """This node, read by collectors of our own."""
    wait = min(interval, 1.0) if once else interval
    intervals = msgspec.structs.replace(program.config.intervals, fast=wait, normal=wait)
    if not once:
        # A log line would tear the picture; states and hints stand in it.
        logging.disable(logging.CRITICAL)
    agent = Agent(msgspec.structs.replace(program.config, intervals=intervals), program.members, SelfMetrics())
    monitor = Monitor(agent, lambda: program)
    agent.start()
    try:
        if once:
            await agent.settled()
            # Ratios over an interval need a second sample.
            await asyncio.sleep(1.2 * wait)

        async def fetch() -> tuple[Devices, Status]:
            return await monitor.devices(), monitor.status()

        yield fetch
    finally:
        await agent.stop()
        logging.disable(logging.NOTSET)


@asynccontextmanager
async def _remote(where: Door) -> AsyncIterator[Fetch]:
    """Another agent, through its JSON API."""

    async def fetch() -> tuple[Devices, Status]:
        return await ask(where)

    yield fetch


# The screen


async def _screen(fetch: Fetch, interval: float) -> int:
    """Draw anew at each answer, at each change of the window's size and each second, until q is pressed."""
    picture = _Picture(fetch, interval)
    asking = asyncio.create_task(picture.ask())
    quit_ = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, quit_.set)
    with _terminal() as write:
        loop.add_reader(sys.stdin.fileno(), lambda: _pressed(quit_))
        try:
            drawn: tuple[object, ...] = ()
            while not quit_.is_set() and not asking.done():
                size = shutil.get_terminal_size()
                now: tuple[object, ...] = (size, picture.count, int(picture.age))
                if now != drawn:
                    drawn = now
                    write(_painted(picture, size))
                await _either(quit_, REPEATED)
            if asking.done():
                await asking
        finally:
            loop.remove_reader(sys.stdin.fileno())
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
    return 0


class _Picture:
    """The newest answers, and why there are no newer ones."""

    def __init__(self, fetch: Fetch, interval: float) -> None:
        self._fetch, self._interval = fetch, interval
        self.answers: tuple[Devices, Status] | None = None
        self.trouble = ""
        self.count = 0
        self._at = time.monotonic()

    @property
    def age(self) -> float:
        return time.monotonic() - self._at

    async def ask(self) -> None:
        while True:
            try:
                self.answers = await self._fetch()
                self.trouble, self._at = "", time.monotonic()
            except Unreachable as error:
                self.trouble = str(error)
            self.count += 1
            await asyncio.sleep(self._interval)


def _pressed(quit_: asyncio.Event) -> None:
    keys = os.read(sys.stdin.fileno(), 64)
    # The end of the input, q, Q, and Control-C where the terminal makes no signal of it.
    if not keys or any(key in b"qQ\x03" for key in keys):
        quit_.set()


async def _either(event: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return


def _painted(picture: _Picture, size: os.terminal_size) -> str:
    width, height = max(NARROWEST, size.columns), max(1, size.lines - 1)
    coloured = "NO_COLOR" not in os.environ and os.environ.get("TERM", "") not in ("", "dumb")
    if picture.answers is None:
        rows = [clean(picture.trouble or "Waiting for the first answer …")[:width]]
    else:
        devices, status = picture.answers
        view = View(devices=devices, status=status, trouble=picture.trouble, age=picture.age)
        rows = [
            f"\x1b[{tone}m{line.text}\x1b[0m" if coloured and (tone := _TONES[line.tone]) else line.text
            for line in frame(view, width, height)
        ]
    end = "q quits"
    # Each line is cleared behind its end, and what stood below is cleared, too: nothing flickers.
    return "\x1b[H" + "".join(f"{row}\x1b[K\r\n" for row in rows) + end + "\x1b[J"


@contextmanager
def _terminal() -> Iterator[Callable[[str], None]]:
    """A screen of its own and keys without Enter; as it was before, at whichever end."""
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)

    def write(text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()

    try:
        tty.setcbreak(descriptor)
        write(_ENTER)
        yield write
    finally:
        write(_LEAVE)
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
