"""Runs the vendor's command: bounded in time and output, with all that it starts ended afterwards."""

from __future__ import annotations

import contextlib
import ctypes
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Sequence
from typing import IO, Final, Literal

import msgspec

_MAX_OUTPUT: Final = 1 << 20
_MAX_ERRORS: Final = 16 << 10
_PIECE: Final = 64 << 10
_LINGER: Final = 0.25
"""Seconds for output that comes after the command itself has ended."""
_REAP: Final = 2.0
_PR_SET_PDEATHSIG: Final = 1

Kind = Literal["library", "permission", "timeout", "parse"]


class ProgramError(Exception):
    """The command could not be run to its end. ``kind`` is that of a ReadError."""

    def __init__(self, kind: Kind, detail: str) -> None:
        super().__init__(detail)
        self.kind: Kind = kind
        self.detail = detail


class Finished(msgspec.Struct, frozen=True):
    """What a command left."""

    code: int
    """Exit code; negative: the signal that ended it."""
    output: str
    errors: str
    """What it wrote to its standard error, at most a little."""

    @property
    def words(self) -> str:
        """The last line that it complained with."""
        lines = [line.strip() for line in (self.errors or self.output).splitlines() if line.strip()]
        return lines[-1][:200] if lines else "no message"


class Runner:
    """Starts commands, one at a time. One that cannot be killed is waited for before the next is started."""

    def __init__(self) -> None:
        self._stuck: subprocess.Popen[bytes] | None = None
        self._libc = ctypes.CDLL(None)

    def run(self, command: Sequence[str], seconds: float, max_output: int = _MAX_OUTPUT) -> Finished:
        """Raises ProgramError: it cannot be started, is not done in time, or writes too much."""
        self._wait_for_stuck(command[0])
        deadline = time.monotonic() + seconds
        process = self._start(command)
        try:
            output, errors = _read(process, deadline, max_output)
        finally:
            self._end(process)
        if output is None:
            raise ProgramError("timeout", f"{command[0]} was not done within {seconds:.3g} s: the firmware may hang")
        if len(output) > max_output:
            raise ProgramError(
                "parse", f"{command[0]} wrote more than {max_output} bytes, which is no table of devices"
            )
        return Finished(process.returncode, output.decode("utf-8", "replace"), errors.decode("utf-8", "replace"))

    def _start(self, command: Sequence[str]) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**os.environ, "LC_ALL": "C", "LANGUAGE": "C"},
                process_group=0,
                # A worker that is killed in the midst of a sample must not leave a command behind.
                preexec_fn=self._die_with_us,
            )
        except PermissionError as error:
            raise ProgramError("permission", f"{command[0]} may not be run: {error.strerror}") from error
        except OSError as error:
            raise ProgramError("library", f"{command[0]} cannot be started: {error.strerror or error}") from error

    def _die_with_us(self) -> None:
        self._libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        """Kill what is left of the command's group, and take its exit code."""
        if process.poll() is None or _group_exists(process.pid):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
        try:
            process.wait(_REAP)
        except subprocess.TimeoutExpired:
            self._stuck = process

    def _wait_for_stuck(self, name: str) -> None:
        if self._stuck is not None and self._stuck.poll() is None:
            raise ProgramError(
                "timeout",
                f"an earlier {name} (pid {self._stuck.pid}) hangs in the driver and cannot be killed: the node may "
                "need a reboot",
            )
        self._stuck = None


def _group_exists(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except OSError:
        return False
    return True


def _read(process: subprocess.Popen[bytes], deadline: float, max_output: int) -> tuple[bytes | None, bytes]:
    """Output and complaints. No output at all: not done in time. Stops early at more than ``max_output`` bytes."""
    output, errors = bytearray(), bytearray()
    ended_at: float | None = None
    with selectors.DefaultSelector() as selector:
        for pipe, into in ((process.stdout, output), (process.stderr, errors)):
            if pipe is not None:
                os.set_blocking(pipe.fileno(), False)
                selector.register(pipe, selectors.EVENT_READ, into)
        while selector.get_map():
            now = time.monotonic()
            if ended_at is None and process.poll() is not None:
                ended_at = now
            # Something that it started may hold the pipes open for ever.
            until = deadline if ended_at is None else min(deadline, ended_at + _LINGER)
            if now >= until:
                break
            for key, _ in selector.select(min(until - now, 0.05)):
                pipe_: IO[bytes] = key.fileobj  # type: ignore[assignment]
                if not _take(pipe_, key.data):
                    selector.unregister(pipe_)
                    ended_at = _ended(process, deadline) if not selector.get_map() else ended_at
            del errors[_MAX_ERRORS:]
            if len(output) > max_output:
                break
    done = ended_at is not None or len(output) > max_output
    return (bytes(output) if done else None), bytes(errors)


def _ended(process: subprocess.Popen[bytes], deadline: float) -> float | None:
    """Both pipes are closed: the command ends now, or hangs without them."""
    try:
        process.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        return None
    return time.monotonic()


def _take(pipe: IO[bytes], into: bytearray) -> bool:
    """Move what there is. False at the end."""
    try:
        data = os.read(pipe.fileno(), _PIECE)
    except BlockingIOError:
        return True
    into += data
    return bool(data)
