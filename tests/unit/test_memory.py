"""What stays of large blocks that several threads had in turn."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

BLOCK = 17 * 2**20
THREADS = 8
SCRIPT = f"""
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from exporter.memory import give_back_large_blocks

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

def answer(together):
    together.wait(20)
    body = bytearray()
    while len(body) < {BLOCK}:
        body += bytes(65536)
    return len(bytes(body))

if sys.argv[1] == "yes":
    give_back_large_blocks()
together = Barrier({THREADS})
with ThreadPoolExecutor({THREADS}) as threads:
    before = resident()
    for _ in range(4):
        list(threads.map(answer, [together] * {THREADS}))
    print(resident() - before)
"""


def left(switched: str) -> int:
    """Bytes beyond those at the start."""
    done = subprocess.run([sys.executable, "-c", SCRIPT, switched], capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="a setting of glibc")
def test_answers_that_threads_have_read_in_turn_leave_nothing_behind() -> None:
    assert left("no") > BLOCK, "then the setting is needed no more"
    assert left("yes") < BLOCK / 2
