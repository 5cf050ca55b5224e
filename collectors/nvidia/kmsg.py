"""Xids from the kernel's log: NVML's events miss some."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import time
from typing import Final

import msgspec

_LARGEST_RECORD: Final = 8192
"""The kernel gives one record a read, none longer, and refuses a shorter buffer."""
_MOST_RECORDS: Final = 2000
"""In one drain. What is left is read next time, so a flood costs bounded time."""
_RECORD: Final = re.compile(r"(\d+),(\d+),(\d+),[^;]*;(.*)", re.DOTALL)
"""Priority, sequence number, microseconds since boot; then the text (Documentation/ABI/testing/dev-kmsg)."""
_XID: Final = re.compile(r"NVRM: Xid \(PCI:([0-9a-fA-F]{1,8}):([0-9a-fA-F]{2}):([0-9a-fA-F]{2})([^)]*)\): (\d+)")
_GPU_INSTANCE: Final = re.compile(r"GPU-I:(\d+)")
_COMPUTE_INSTANCE: Final = re.compile(r"GPU-CI:(\d+)")


class KernelXid(msgspec.Struct, frozen=True, kw_only=True):
    """An Xid that the driver logged. ``gi`` and ``ci`` tell the MIG instance where it did."""

    pci: tuple[int, int, int]
    xid: int
    gi: int | None = None
    ci: int | None = None
    uptime: float | None = None
    """Seconds since boot of the record; None where the line tells none."""


def parse(line: str) -> KernelXid | None:
    """A record of /dev/kmsg, or a line as dmesg prints it; None if it is no Xid."""
    record = _RECORD.match(line)
    text = record[4] if record else line
    match = _XID.search(text)
    if match is None:
        return None
    gpu, compute = _GPU_INSTANCE.search(match[4]), _COMPUTE_INSTANCE.search(match[4])
    return KernelXid(
        pci=(int(match[1], 16), int(match[2], 16), int(match[3], 16)),
        xid=int(match[5]),
        gi=int(gpu[1]) if gpu else None,
        ci=int(compute[1]) if compute else None,
        uptime=int(record[3]) / 1e6 if record else None,
    )


def unix_time(found: KernelXid, now: float, uptime: float) -> float:
    """When it happened, in Unix seconds; now, where the record's time makes no sense."""
    if found.uptime is None or found.uptime > uptime:
        return now
    return now - (uptime - found.uptime)


class KernelLog:
    """Reads what the kernel logs from now on. Never blocks."""

    __slots__ = ("_fd", "_rest", "_stream")

    def __init__(self, path: str) -> None:
        """Raises OSError: no such file, or no permission."""
        self._fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self._rest = b""
        # A regular file (a test, or a copy that another process writes) is read as lines; the device as records.
        self._stream = stat.S_ISREG(os.fstat(self._fd).st_mode)
        os.lseek(self._fd, 0, os.SEEK_END)

    def drain(self) -> list[KernelXid]:
        """The Xids since the last call."""
        found = []
        for _ in range(_MOST_RECORDS):
            try:
                data = os.read(self._fd, _LARGEST_RECORD)
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno in (errno.EPIPE, errno.EINTR):
                    # The ring was overrun: the next read continues with the oldest record that is left.
                    continue
                raise
            if not data:
                break
            found += [xid for line in self._lines(data) if (xid := parse(line)) is not None]
        return found

    def _lines(self, data: bytes) -> list[str]:
        if not self._stream:
            return [data.decode("utf-8", "replace")]
        *lines, self._rest = (self._rest + data).split(b"\n")
        self._rest = self._rest[-_LARGEST_RECORD:]
        return [line.decode("utf-8", "replace") for line in lines]

    def close(self) -> None:
        """Close the file."""
        with contextlib.suppress(OSError):
            os.close(self._fd)


def uptime() -> float:
    """Seconds since boot, of the clock that the kernel stamps its records with."""
    return time.clock_gettime(time.CLOCK_MONOTONIC)
