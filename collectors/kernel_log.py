"""The kernel's log: /dev/kmsg, or a file that another process copies it to."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import time
from collections.abc import Callable
from typing import Final, Generic, TypeVar

T = TypeVar("T")

_LARGEST_RECORD: Final = 8192
"""The kernel gives one record a read, none longer, and refuses a shorter buffer."""
_MOST_RECORDS: Final = 2000
"""In one drain. What is left is read next time, so a flood costs bounded time."""
_RECORD: Final = re.compile(r"(\d+),(\d+),(\d+),[^;]*;(.*)", re.DOTALL)
"""Priority, sequence number, microseconds since boot; then the text (Documentation/ABI/testing/dev-kmsg)."""


def text_and_uptime(line: str) -> tuple[str, float | None]:
    """Of a record of /dev/kmsg, with the seconds since boot; of a line as dmesg prints it, which has no time to use."""
    record = _RECORD.match(line)
    return (record[4], int(record[3]) / 1e6) if record else (line, None)


def unix_time(logged: float | None, now: float, uptime: float) -> float:
    """When something was logged, in Unix seconds; now, where the record's time makes no sense."""
    if logged is None or logged > uptime:
        return now
    return now - (uptime - logged)


def uptime() -> float:
    """Seconds since boot, of the clock that the kernel stamps its records with."""
    return time.clock_gettime(time.CLOCK_MONOTONIC)


class KernelLog(Generic[T]):
    """Reads what is logged from now on. Never blocks. ``parse`` gives None for a line that is of no interest."""

    __slots__ = ("_fd", "_parse", "_rest", "_stream")

    def __init__(self, path: str, parse: Callable[[str], T | None]) -> None:
        """Raises OSError: no such file, or no permission."""
        self._parse = parse
        self._fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self._rest = b""
        # A regular file is read as lines; the device as records.
        self._stream = stat.S_ISREG(os.fstat(self._fd).st_mode)
        with contextlib.suppress(OSError):
            os.lseek(self._fd, 0, os.SEEK_END)

    def drain(self) -> list[T]:
        """What has been logged since the last call. Raises OSError."""
        found: list[T] = []
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
            found += [entry for line in self._lines(data) if (entry := self._parse(line)) is not None]
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
