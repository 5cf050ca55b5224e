"""Hardware errors from the kernel's log.

The Neuron runtime writes them there, one line each (``NEURON_HW_ERR=KIND key=value …``, driver 2.15 and later): without
a runtime there is no line. AWS documents them in the runtime's troubleshooting guide.
"""

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
_ERROR: Final = re.compile(r"\bNEURON_HW_ERR=([A-Z][A-Z0-9_]{0,63})\b(.*)", re.DOTALL)
_FIELD: Final = re.compile(r"\b(nd-id|serial-num)=([0-9a-zA-Z]{1,32})\b")


class HardwareError(msgspec.Struct, frozen=True, kw_only=True):
    """One line. What it does not tell is empty or None."""

    kind: str
    device: int | None = None
    serial: str = ""
    uptime: float | None = None
    """Seconds since boot of the record."""


def parse(line: str) -> HardwareError | None:
    """A record of /dev/kmsg, or a line as dmesg prints it; None if it tells of no hardware error."""
    record = _RECORD.match(line)
    found = _ERROR.search(record[4] if record else line)
    if found is None:
        return None
    # The line's own values only: a record can carry a dictionary after a newline.
    fields = dict(_FIELD.findall(found[2].partition("\n")[0]))
    device = fields.get("nd-id", "")
    return HardwareError(
        kind=found[1],
        device=int(device) if device.isdecimal() else None,
        serial=fields.get("serial-num", "").lower(),
        uptime=int(record[3]) / 1e6 if record else None,
    )


def unix_time(error: HardwareError, now: float, uptime: float) -> float:
    """When it happened, in Unix seconds; now, where the record's time makes no sense."""
    if error.uptime is None or error.uptime > uptime:
        return now
    return now - (uptime - error.uptime)


def uptime() -> float:
    """Seconds since boot, of the clock that the kernel stamps its records with."""
    return time.clock_gettime(time.CLOCK_MONOTONIC)


class KernelLog:
    """Reads what is logged from now on. Never blocks."""

    __slots__ = ("_fd", "_rest", "_stream")

    def __init__(self, path: str) -> None:
        """Raises OSError: no such file, or no permission."""
        self._fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self._rest = b""
        # A regular file (a copy that another process writes) is read as lines; the device as records.
        self._stream = stat.S_ISREG(os.fstat(self._fd).st_mode)
        with contextlib.suppress(OSError):
            os.lseek(self._fd, 0, os.SEEK_END)

    def drain(self) -> list[HardwareError]:
        """The errors since the last call. Raises OSError."""
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
            found += [entry for line in self._lines(data) if (entry := parse(line)) is not None]
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
