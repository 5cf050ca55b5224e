"""kill -9 of the agent: its worker lets the driver go, and ends whatever its library does."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from tests.integration.test_supervisor import GOOD

ROOT: Final = Path(__file__).parents[2]
PATIENCE: Final = 30.0
AGENT: Final = """
import asyncio, json, sys
from pathlib import Path
from tests.integration.test_supervisor import World
world = World(Path(sys.argv[1]), deadline=3.0, startup_deadline=3.0)
world.set(json.loads(sys.argv[2]))
async def told():
    while world.runner.state != "running":
        await asyncio.sleep(0.01)
    print("running", flush=True)
async def main():
    telling = asyncio.create_task(told())
    await world.runner.run()
asyncio.run(main())
"""


def test_a_worker_that_loses_its_agent_lets_the_driver_go(tmp_path: Path) -> None:
    with agent(tmp_path, GOOD) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "running\n"
        worker = worker_of(process)
        process.kill()
        process.wait()
        await_that(lambda: not alive(worker))
    assert (tmp_path / "world.json.closed").read_text().split() == [str(worker)]


@pytest.mark.parametrize("call", ["open", "sample", "close"])
def test_nor_does_it_outlive_it_in_a_call_that_hangs_and_hears_no_signal(tmp_path: Path, call: str) -> None:
    """Nobody is left who would end it, and the library has blocked every signal in the thread that called it."""
    with agent(tmp_path, {**GOOD, f"do_{call}": "deaf"}) as process:
        if call == "close":
            assert process.stdout is not None
            assert process.stdout.readline() == "running\n"
        worker = worker_of(process)
        if call != "close":
            await_that(lambda: deaf(worker))
        process.kill()
        process.wait()
        await_that(lambda: deaf(worker))
        await_that(lambda: not alive(worker))


@contextmanager
def agent(folder: Path, world: dict[str, Any]) -> Iterator[subprocess.Popen[str]]:
    """An agent that says when its worker is running; it and the worker are gone at the end."""
    process = subprocess.Popen(
        [sys.executable, "-c", AGENT, str(folder), json.dumps(world)], stdout=subprocess.PIPE, cwd=ROOT, text=True
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def worker_of(process: subprocess.Popen[str]) -> int:
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    await_that(lambda: children.read_text() != "")
    return int(children.read_text().split()[0])


def deaf(pid: int) -> bool:
    """Whether the worker's main thread hears no alarm. A child that is not a worker yet hears nothing either."""
    if b"exporter.worker" not in Path(f"/proc/{pid}/cmdline").read_bytes():
        return False
    status = Path(f"/proc/{pid}/task/{pid}/status").read_text()
    blocked = next(line.split()[1] for line in status.splitlines() if line.startswith("SigBlk:"))
    return bool(int(blocked, 16) >> (signal.SIGALRM - 1) & 1)


def alive(pid: int) -> bool:
    """A zombie, which waits for a parent that may not care, is not."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return "State:\tZ" not in status


def await_that(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.01)
