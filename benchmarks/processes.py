"""Starts what is measured, each in processes of its own, and ends it."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.client import Order, Report
from benchmarks.measure import Usage, cpu_between, usage

ROOT: Final = Path(__file__).resolve().parents[1]
START_LIMIT: Final = 60.0
STOP_LIMIT: Final = 10.0


class Running(msgspec.Struct, frozen=True):
    """A server that answers at /metrics."""

    pid: int
    port: int


class Cost(msgspec.Struct, frozen=True):
    """What a server used over a time, with all its processes."""

    cpu: float
    """Share of one core."""
    usage: Usage
    """At the end."""


@contextmanager
def agent(*flags: str, environ: Mapping[str, str] | None = None) -> Iterator[Running]:
    """``accel-exporter serve`` on a free port, its first readings taken. Raises RuntimeError if it does not start."""
    command = [sys.executable, "-m", "exporter", "serve", "--listen", "127.0.0.1:0", "--log-level", "warning", *flags]
    process = subprocess.Popen(command, env=_environment(environ), cwd=ROOT, stdout=subprocess.PIPE, text=True)
    with _ended(process):
        # A start that hangs must not hang the run.
        timer = threading.Timer(START_LIMIT, process.kill)
        timer.start()
        try:
            found = None
            while found is None and process.stdout is not None and (line := process.stdout.readline()):
                found = re.search(r"http://127\.0\.0\.1:(\d+)/metrics", line)
        finally:
            timer.cancel()
        if found is None:
            raise RuntimeError("the agent did not start: its messages stand above")
        running = Running(process.pid, int(found[1]))
        _wait(running, "/readyz")
        yield running


@contextmanager
def server(command: Sequence[str], port: int, environ: Mapping[str, str]) -> Iterator[Running]:
    """Another exporter, on the port that its command names. Raises RuntimeError if it does not come up."""
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(command, env=_environment(environ), stdin=quiet, stdout=quiet, stderr=quiet)
    with _ended(process):
        running = Running(process.pid, port)
        _wait(running, "/metrics")
        yield running


def free_port() -> int:
    """One that was free a moment ago."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def scrape(order: Order) -> Report:
    """Let a client in a process of its own carry out an order. Raises CalledProcessError."""
    command = [sys.executable, "-m", "benchmarks.client", msgspec.json.encode(order).decode()]
    done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE)
    return msgspec.json.decode(done.stdout, type=Report)


def get(running: Running, path: str = "/metrics") -> str:
    """One page. Raises URLError, OSError."""
    with urllib.request.urlopen(f"http://127.0.0.1:{running.port}{path}", timeout=START_LIMIT) as answer:
        body: bytes = answer.read()
        return body.decode()


def series(running: Running, *begins: str) -> int:
    """How many series a server has whose names begin so; without an argument, all."""
    lines = [line for line in get(running).splitlines() if line and not line.startswith("#")]
    return sum(line.startswith(begins) for line in lines) if begins else len(lines)


def cost(running: Running, seconds: float, scrape_every: float) -> Cost:
    """Watch a server for a time while it is scraped, gzip where it can."""
    before, began = usage(running.pid), time.monotonic()
    due = began
    while (left := began + seconds - time.monotonic()) > 0:
        due += scrape_every
        time.sleep(min(left, max(0.0, due - time.monotonic())))
        if time.monotonic() < began + seconds:
            _gzipped(running)
    after = usage(running.pid)
    return Cost(cpu_between(before, after) / (time.monotonic() - began), after)


def _gzipped(running: Running) -> None:
    headers = {"Accept-Encoding": "gzip"}
    request = urllib.request.Request(f"http://127.0.0.1:{running.port}/metrics", headers=headers)
    with urllib.request.urlopen(request, timeout=START_LIMIT) as answer:
        answer.read()


def _environment(changes: Mapping[str, str] | None) -> dict[str, str]:
    """Without settings of this shell that would change what is measured."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ACCEL_EXPORTER_")}
    return {**kept, **(changes or {})}


@contextmanager
def _ended(process: subprocess.Popen[str] | subprocess.Popen[bytes]) -> Iterator[None]:
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(STOP_LIMIT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()


def _wait(running: Running, path: str) -> None:
    deadline = time.monotonic() + START_LIMIT
    while True:
        try:
            get(running, path)
        except (OSError, urllib.error.URLError) as error:
            if time.monotonic() > deadline:
                raise RuntimeError(f"no answer from {path} within {START_LIMIT:g} s: {error}") from error
            time.sleep(0.05)
        else:
            return
