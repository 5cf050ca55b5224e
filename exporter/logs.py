"""The agent's log: one line an event on standard error, as JSON or as text, with the event's fields."""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Final, Literal

STANDARD: Final = frozenset(logging.LogRecord("", 0, "", 0, "", (), None).__dict__) | {"message", "asctime", "taskName"}


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
    """A line that a person reads. A newline in a message cannot forge another line."""

    def format(self, record: logging.LogRecord) -> str:
        found = " ".join(f"{name}={value}" for name, value in fields(record).items())
        line = f"{_time(record)} {record.levelname.lower():7} {record.getMessage()}{'  ' + found if found else ''}"
        line = line.replace("\n", "\\n")
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def configure(level: Literal["debug", "info", "warning", "error"], style: Literal["json", "text"]) -> None:
    """Send all logs of the process to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if style == "json" else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    logging.getLogger("asyncio").setLevel("WARNING")
