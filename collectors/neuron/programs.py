"""Vendor's programs: finding them, running one to its end, starting one that stays.

Each runs in a process group of its own with locale C and none of our descriptors, and dies with us.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Final

import msgspec

_LAUNCH: Final = (
    "import ctypes, os, sys\n"
    "ctypes.CDLL(None).prctl(1, 9)\n"
    "if os.getppid() == int(sys.argv[1]):\n"
    "    os.execv(sys.argv[2], sys.argv[2:])\n"
)
"""Asks the kernel for SIGKILL when the parent dies (PR_SET_PDEATHSIG), then becomes the program. A parent that was
killed cannot end its children itself, and the driver cannot be unloaded while one of them runs."""
_CHUNK: Final = 65536
_KEPT_STDERR: Final = 4096


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How a program ended."""

    code: int = 0
    stdout: bytes = b""
    stderr: str = ""
    """Its last words."""
    trouble: str = ""
    """timeout, too much output, not started; empty if it ended by itself."""


def find(configured: str, name: str, opt: str) -> str:
    """Path of a program: as configured, or else below the host's /opt or on the search path. Empty if there is none."""
    candidate = configured or str(Path(opt) / "aws/neuron/bin" / name)
    if os.access(candidate, os.X_OK) and Path(candidate).is_file():
        return candidate
    return "" if configured else shutil.which(name) or ""


def start(command: Sequence[str], environ: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
    """Start a program that writes to pipes. Call it from a thread that lives as long. Raises OSError."""
    return subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _LAUNCH, str(os.getpid()), *command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "LC_ALL": "C", **(environ or {})},
        start_new_session=True,
    )


def end(process: subprocess.Popen[bytes], grace: float = 0.0) -> None:
    """End a program and all that it started, and wait for it. ``grace``: seconds between SIGTERM and SIGKILL."""
    if grace and process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(grace)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        # In an uninterruptible call of the driver not even SIGKILL ends it.
        process.wait(5.0)


def run(command: Sequence[str], deadline: float, max_bytes: int) -> Outcome:
    """Run a program for at most ``deadline`` seconds and take at most ``max_bytes`` of what it says."""
    try:
        process = start(command)
    except OSError as error:
        return Outcome(trouble=f"not started: {error}")
    stdout, stderr = bytearray(), bytearray()
    trouble = ""
    try:
        trouble = _drain(process, stdout, stderr, time.monotonic() + deadline, max_bytes)
    finally:
        end(process)
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
    return Outcome(
        code=process.returncode if process.returncode is not None else -1,
        stdout=bytes(stdout),
        stderr=last_words(stderr),
        trouble=trouble,
    )


def last_words(stderr: bytes | bytearray) -> str:
    """The end of an error output, as one line."""
    return " | ".join(bytes(stderr).decode("utf-8", "replace").split("\n")[-6:]).strip(" |")[-400:]


def keep_end(kept: bytearray, chunk: bytes) -> None:
    """Add to an error output of which the end is kept."""
    kept += chunk
    del kept[:-_KEPT_STDERR]


def _drain(process: subprocess.Popen[bytes], stdout: bytearray, stderr: bytearray, until: float, max_bytes: int) -> str:
    with selectors.DefaultSelector() as selector:
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                selector.register(pipe, selectors.EVENT_READ)
        while selector.get_map():
            left = until - time.monotonic()
            if left <= 0:
                return "it did not end in time"
            for key, _ in selector.select(left):
                chunk = os.read(key.fd, _CHUNK)
                if not chunk:
                    selector.unregister(key.fileobj)
                elif _is(key.fileobj, process.stderr):
                    keep_end(stderr, chunk)
                else:
                    stdout += chunk
                    if len(stdout) > max_bytes:
                        return f"it wrote more than {max_bytes} bytes"
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(max(0.0, until - time.monotonic()))
    return "" if process.poll() is not None else "it did not end in time"


def _is(found: object, pipe: IO[bytes] | None) -> bool:
    return found is pipe
