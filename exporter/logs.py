"""The agent's log: one line an event on standard error, as JSON or as text, with the event's fields."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable
from typing import Final, Literal

STANDARD: Final = frozenset(logging.LogRecord("", 0, "", 0, "", (), None).__dict__) | {"message", "asctime", "taskName"}


OWN_LINES: Final = 600
"""A minute, from one of our modules: each of these bounds its own lines already."""
FOREIGN_LINES: Final = 30
"""A minute, from one library: the event loop tells of each connection for which there is no descriptor left."""
_CONTROL: Final = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160))} | {ord("\n"): "\\n"}


def fields(record: logging.LogRecord) -> dict[str, object]:
    """What the event was given beyond its text."""
    return {name: value for name, value in record.__dict__.items() if name not in STANDARD and value != ""}


def _time(record: logging.LogRecord) -> str:
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{whole}.{int(record.msecs):03d}Z"


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        event: dict[str, object] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
        }
        for name, value in fields(record).items():
            event[name] = value if isinstance(value, int | float) else str(value)
        if record.exc_info:
            event["exception"] = self.formatException(record.exc_info)
        return json.dumps(event)


class TextFormatter(logging.Formatter):
    """A line that a person reads. What a message holds cannot forge another line, nor steer the terminal."""

    def format(self, record: logging.LogRecord) -> str:
        found = " ".join(f"{name}={value}" for name, value in fields(record).items())
        line = f"{_time(record)} {record.levelname.lower():7} {record.getMessage()}{'  ' + found if found else ''}"
        line = line.translate(_CONTROL)
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class Flood(logging.Filter):
    """Keeps one module's lines from filling the disk. The first line of the next minute tells how many were left out.

    ``clock`` gives seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._counts: dict[str, tuple[float, int]] = {}
        """Logger → when its minute began, and its lines since."""

    def filter(self, record: logging.LogRecord) -> bool:
        now = self._clock()
        most = OWN_LINES if record.name.startswith(("exporter", "collectors")) else FOREIGN_LINES
        began, count = self._counts.get(record.name, (now, 0))
        if now - began >= 60:
            if count > most:
                record.left_out = count - most
            began, count = now, 0
        self._counts[record.name] = (began, count + 1)
        return count < most or record.levelno >= logging.CRITICAL


def configure(level: Literal["debug", "info", "warning", "error"], style: Literal["json", "text"]) -> None:
    """Send all logs of the process to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if style == "json" else TextFormatter())
    handler.addFilter(Flood())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    logging.getLogger("asyncio").setLevel("WARNING")
