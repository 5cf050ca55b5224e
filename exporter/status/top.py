"""``accel-exporter top``: the status page in a terminal, of this node or of another agent."""

from __future__ import annotations

import asyncio
import base64
import io
import logging
import os
import shutil
import signal
import ssl
import sys
import termios
import time
import tty
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from http.client import HTTPException
from typing import Final, TypeVar
from urllib.parse import unquote, urlsplit, urlunsplit

import msgspec

from exporter.agent import Agent
from exporter.config.checks import is_url
from exporter.program import Program
from exporter.selfmetrics import SelfMetrics
from exporter.status.frame import Tone, View, clean, frame
from exporter.status.model import Devices, Status
from exporter.status.service import Monitor

T = TypeVar("T")
Fetch = Callable[[], Awaitable[tuple[Devices, Status]]]
"""The newest answers. Raises Unreachable."""

TIMEOUT: Final = 10.0
MOST_BYTES: Final = 32 * 1024 * 1024
"""An answer that is larger is none of an agent's."""
REPEATED: Final = 0.2
"""Seconds between two looks at the keyboard and at the size of the window."""
NARROWEST: Final = 20

_ENTER: Final = "\x1b[?1049h\x1b[?25l"
_LEAVE: Final = "\x1b[?25h\x1b[?1049l"
_TONES: Final[dict[Tone, str]] = {"head": "1", "good": "", "warn": "33", "bad": "31", "soft": "2", "plain": ""}


class Unreachable(Exception):
    """The other agent gives no answer; the message says why."""


def top(program: Program, url: str, interval: float, *, once: bool) -> int:
    """Show devices until q is pressed, or ``once``. Exit code 1 if there is none to show, or no answer."""
    if url and not is_url(url):
        print("accel-exporter: --url: expected a URL such as http://node-1:9859", file=sys.stderr)
        return 2
    if not once and not (sys.stdin.isatty() and sys.stdout.isatty()):
        print("accel-exporter: top needs a terminal; with --once it prints one frame and ends", file=sys.stderr)
        return 2
    try:
        return asyncio.run(_top(program, url, interval, once=once))
    except Unreachable as error:
        print(f"accel-exporter: {clean(str(error))}", file=sys.stderr)
        return 1


async def _top(program: Program, url: str, interval: float, *, once: bool) -> int:
    if isinstance(sys.stdout, io.TextIOWrapper):
        # In a terminal without UTF-8 a degree sign is no reason to fail.
        sys.stdout.reconfigure(errors="replace")
    async with _remote(url) if url else _local(program, interval, once=once) as fetch:
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
async def _remote(url: str) -> AsyncIterator[Fetch]:
    """Another agent, through its JSON API. A name and a password in the URL are sent as such, and never shown."""
    parts = urlsplit(url.rstrip("/"))
    user, at, host = parts.netloc.rpartition("@")
    base = urlunsplit((parts.scheme, host, parts.path, "", ""))
    headers = {"Accept": "application/json", "User-Agent": "accel-exporter-top"}
    if at:
        headers["Authorization"] = "Basic " + base64.b64encode(unquote(user).encode()).decode()

    def both() -> tuple[Devices, Status]:
        return _get(f"{base}/api/v1/devices", headers, Devices), _get(f"{base}/api/v1/status", headers, Status)

    async def fetch() -> tuple[Devices, Status]:
        return await asyncio.to_thread(both)

    yield fetch


def _get(url: str, headers: dict[str, str], kind: type[T]) -> T:
    request = urllib.request.Request(url, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
            content = answer.read(MOST_BYTES + 1)
    except urllib.error.HTTPError as error:
        with error:
            raise Unreachable(f"{url} answers {error.code}: is an accel-exporter of this version there?") from error
    except ssl.SSLError as error:
        raise Unreachable(f"{url}: {error}") from error
    except (OSError, HTTPException) as error:
        raise Unreachable(f"{url} does not answer: {getattr(error, 'reason', None) or error}") from error
    try:
        return msgspec.json.decode(content, type=kind)
    except (msgspec.DecodeError, ValueError) as error:
        raise Unreachable(f"{url} answers with something else than an accel-exporter's JSON: {error}") from error


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
    if not keys or keys.lower() in (b"q", b"\x03"):
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
