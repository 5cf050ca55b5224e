"""``accel-exporter top`` in a terminal of its own, of this node and of another agent."""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from exporter.config.attribution import StaticOwner
from tests.status_stage import scene, world

PATIENCE = 30.0
TOP = [sys.executable, "-m", "exporter", "top"]
ENTER, LEAVE = "\x1b[?1049h", "\x1b[?1049l"


def once(*flags: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*TOP, "--once", *flags], capture_output=True, text=True, check=False, timeout=60, stdin=subprocess.DEVNULL
    )


async def once_beside(*flags: str) -> subprocess.CompletedProcess[str]:
    """The same while an agent of this process goes on."""
    return await asyncio.to_thread(once, *flags)


@dataclass(slots=True)
class Window:
    """A terminal in which a program runs."""

    process: subprocess.Popen[bytes]
    descriptor: int
    child: int
    seen: str = field(default="")

    def read(self, seconds: float = 0.05) -> None:
        while select.select([self.descriptor], [], [], seconds)[0]:
            try:
                self.seen += os.read(self.descriptor, 1 << 16).decode(errors="replace")
            except OSError:
                return

    def until(self, text: str) -> None:
        end = time.monotonic() + PATIENCE
        while text not in self.seen:
            assert time.monotonic() < end, f"{text!r} never came: {self.seen[-2000:]!r}"
            self.read()

    def resize(self, width: int, height: int) -> None:
        fcntl.ioctl(self.descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))

    def press(self, keys: bytes) -> None:
        os.write(self.descriptor, keys)

    def end(self) -> int:
        end = time.monotonic() + PATIENCE
        while self.process.poll() is None and time.monotonic() < end:
            self.read()
        self.read()
        return self.process.wait(1)


@contextmanager
def window(*flags: str, environ: Mapping[str, str] = {}) -> Iterator[Window]:
    descriptor, child = pty.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 120, 0, 0))
    clean: Mapping[str, str] = {
        name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS", "LINES")
    }
    process = subprocess.Popen(
        [*TOP, *flags], stdin=child, stdout=child, stderr=child, env={**clean, "TERM": "xterm", **environ}
    )
    opened = Window(process, descriptor, child)
    try:
        yield opened
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        os.close(descriptor)
        os.close(child)


def test_one_frame_for_scripts_has_no_control_characters() -> None:
    done = once("--simulate", "nvidia=2")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert all(line.isprintable() for line in lines)
    assert "SIMULATED: no device of this list exists." in lines
    [first] = [line for line in lines if line.startswith("nvidia 0")]
    assert re.search(r"healthy +\d+% .*GiB +\d+ °C +\d+ W", first)


def test_without_devices_it_says_so_and_fails() -> None:
    done = once("--set", "collectors.nvidia.enabled=false", *no_vendor())
    assert done.returncode == 1
    assert "No device was found" in done.stdout


def no_vendor() -> list[str]:
    """Flags with which nothing of this host is looked at."""
    return [flag for name in ("sys", "proc", "dev") for flag in ("--set", f"paths.{name}=/nonexistent-{name}")]


@pytest.mark.parametrize(
    ("flags", "code", "words"),
    [
        ((), 2, "top needs a terminal; with --once it prints one frame"),
        (("--once", "--url", "node-1:9859"), 2, "expected a URL such as http://node-1:9859"),
        (("--once", "--url", "file:///etc/passwd"), 2, "expected a URL such as"),
        (("--once", "--url", "http://127.0.0.1:1"), 1, "http://127.0.0.1:1/api/v1/devices does not answer"),
        (("--every", "0"), 2, "expected 0.1 to 3600 seconds"),
        (("--once", "--ca-file", "a.crt"), 2, "--ca-file: only with --url"),
    ],
)
def test_what_cannot_be_done_is_told(flags: tuple[str, ...], code: int, words: str) -> None:
    done = subprocess.run(
        [*TOP, *flags], capture_output=True, text=True, check=False, timeout=60, stdin=subprocess.DEVNULL
    )
    assert (done.returncode, done.stdout) == (code, "")
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_another_agent_is_read_through_its_api(tmp_path: Path) -> None:
    owner = StaticOwner(devices=("0",), namespace="ns", pod="p\x1b[2Jq")

    async def story() -> None:
        async with scene(tmp_path, world(), owners=[owner]) as here:
            done = await once_beside("--url", here.url)
            assert done.returncode == 0, done.stderr
            [first] = [line for line in done.stdout.splitlines() if line.startswith("acme 0")]
            for expected in ("A1", "healthy", "40%", "1.0/64 GiB", "50 °C", "250 W", "ns/p[2Jq"):
                assert expected in first, expected
            # No route of the agent, and the password of the URL stays out of the message.
            wrong = await once_beside("--url", here.url.replace("//", "//me:s3cr3t@") + "/x")
            assert wrong.returncode == 1
            assert "answers 404: is an accel-exporter of this version there?" in wrong.stderr
            assert "s3cr3t" not in wrong.stderr

    asyncio.run(asyncio.wait_for(story(), 100))


def test_something_else_than_an_agent_is_told() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = (await reader.readuntil(b"\r\n\r\n")).decode()
        asked.append(request)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 16\r\nConnection: close\r\n\r\n<html>\x1b[2J</html")
        writer.close()

    asked: list[str] = []

    async def story() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            done = await once_beside("--url", f"http://me:pw%21@127.0.0.1:{port}")
        assert done.returncode == 1
        assert "answers with something else than an accel-exporter's JSON" in done.stderr
        assert "\x1b" not in done.stderr
        # me:pw!
        assert "Authorization: Basic bWU6cHch" in asked[0]

    asyncio.run(asyncio.wait_for(story(), 60))


def test_it_draws_follows_the_window_and_quits_with_q() -> None:
    with window("--simulate", "nvidia=2", "--every", "0.3") as opened:
        before = termios.tcgetattr(opened.child)
        opened.until("nvidia 1")
        assert ENTER in opened.seen
        opened.until("q quits")
        frames = opened.seen.count("q quits")
        while opened.seen.count("q quits") < frames + 2:
            opened.read()
        assert LEAVE not in opened.seen
        opened.seen = ""
        opened.resize(40, 10)
        opened.until("…")
        last = opened.seen[opened.seen.rindex("\x1b[H") :]
        shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "", last).split("\n")
        assert len(shown) <= 10
        assert [line for line in shown if len(line) > 40] == []
        opened.press(b"x")
        opened.read(0.3)
        assert opened.process.poll() is None
        opened.press(b"q")
        assert opened.end() == 0
        assert opened.seen.endswith(LEAVE)
        assert termios.tcgetattr(opened.child) == before


@pytest.mark.parametrize("environ", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_without_colours_nothing_is_lost(environ: dict[str, str]) -> None:
    with window("--simulate", "nvidia=1", "--every", "0.3", environ=environ) as opened:
        opened.until("healthy")
        opened.until("SIMULATED")
        assert re.findall(r"\x1b\[[0-9;]*m", opened.seen) == []
        opened.press(b"q")
        assert opened.end() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_leaves_the_terminal_as_it_was(number: signal.Signals) -> None:
    with window("--simulate", "nvidia=1", "--every", "0.3") as opened:
        before = termios.tcgetattr(opened.child)
        opened.until("nvidia 0")
        opened.process.send_signal(number)
        assert opened.end() == (0 if number is signal.SIGTERM else 130)
        assert opened.seen.rstrip("^C").endswith(LEAVE)
        assert termios.tcgetattr(opened.child) == before
        assert "Traceback" not in opened.seen


def test_an_agent_that_goes_away_is_told_with_the_last_numbers(tmp_path: Path) -> None:
    async def story() -> None:
        async with scene(tmp_path, world()) as here:
            opening = window("--url", here.url, "--every", "0.3")
            opened = opening.__enter__()
            await asyncio.to_thread(opened.until, "acme 1")
        try:
            await asyncio.to_thread(opened.until, "NO ANSWER for")
            last = opened.seen[opened.seen.rindex("\x1b[H") :]
            assert "does not answer" in last
            assert "acme 0" in last
            opened.press(b"q")
            assert await asyncio.to_thread(opened.end) == 0
        finally:
            opening.__exit__(None, None, None)

    asyncio.run(asyncio.wait_for(story(), 100))
