"""What is remembered of Xids: the last of each device, the count in a window, and which were told twice."""

from __future__ import annotations

import tomllib
from collections import deque
from collections.abc import Container, Mapping
from pathlib import Path
from typing import Final, Literal

SAME_EVENT: Final = 5.0
"""Seconds within which the same Xid of the same GPU from NVML and from the kernel's log is one event."""
_UNKNOWN: Final = "Unknown Error"
_MOST_REMEMBERED: Final = 4096

Origin = Literal["nvml", "kmsg"]


class Twins:
    """Recognises an event that both sources tell. Two events of one source are two."""

    __slots__ = ("_drain", "_single")

    def __init__(self) -> None:
        self._drain = 0
        self._single: dict[tuple[str, int, Origin], deque[tuple[float, int]]] = {}
        """Events that one source alone has told, by GPU, Xid and source: when, and in which drain; oldest first."""

    def next_drain(self) -> None:
        """Both sources are about to be read. An event that falls between is told one drain apart."""
        self._drain += 1

    def is_new(self, uuid: str, xid: int, origin: Origin, at: float) -> bool:
        """False if the other source told this event before. ``at`` is in seconds of one clock for both.

        A driver in trouble logs thousands a second: none looks at all the others.
        """
        if self._waiting((uuid, xid, "kmsg" if origin == "nvml" else "nvml"), at):
            return False
        key = (uuid, xid, origin)
        self._drop_old(key, at)
        self._single.setdefault(key, deque(maxlen=_MOST_REMEMBERED)).append((at, self._drain))
        if len(self._single) > _MOST_REMEMBERED:
            del self._single[next(iter(self._single))]
        return True

    def _waiting(self, key: tuple[str, int, Origin], at: float) -> bool:
        """Whether such an event waits for its twin, which is this one: it does not wait any more."""
        self._drop_old(key, at)
        events = self._single.get(key)
        if events is None:
            return False
        events.popleft()
        if not events:
            del self._single[key]
        return True

    def _drop_old(self, key: tuple[str, int, Origin], at: float) -> None:
        events = self._single.get(key)
        while events and abs(at - events[0][0]) > SAME_EVENT and self._drain - events[0][1] > 1:
            events.popleft()
        if events is not None and not events:
            del self._single[key]


class Window:
    """Counts events by device and code over a sliding time."""

    __slots__ = ("_events", "seconds")

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._events: dict[object, deque[tuple[float, int]]] = {}

    def add(self, device: object, code: int, at: float) -> None:
        """Note an event at ``at``, in seconds of a clock that only goes forward."""
        self._events.setdefault(device, deque(maxlen=_MOST_REMEMBERED)).append((at, code))

    def keep(self, devices: Container[object]) -> None:
        """Forget all other devices."""
        self._events = {device: events for device, events in self._events.items() if device in devices}

    def counts(self, device: object, now: float) -> dict[int, int]:
        """Code → how often in the window that ends now, by code."""
        events = self._events.get(device)
        found: dict[int, int] = {}
        if events is not None:
            while events and events[0][0] <= now - self.seconds:
                events.popleft()
            for _, code in events:
                found[code] = found.get(code, 0) + 1
        return dict(sorted(found.items()))


def messages(path: Path) -> Mapping[int, str]:
    """Xid → its text, from faults.toml beside the collector. Empty if the file is missing."""
    try:
        with path.open("rb") as file:
            faults = tomllib.load(file).get("fault", [])
    except (OSError, tomllib.TOMLDecodeError):
        return {}
    return {
        int(code.removeprefix("xid:")): str(fault.get("name", _UNKNOWN))
        for fault in faults
        if (code := str(fault.get("code", ""))).startswith("xid:") and code[4:].isdigit()
    }


def message(texts: Mapping[int, str], xid: int) -> str:
    """The text of an Xid, as dcgm-exporter says it; 0 is the healthy state."""
    return "No Error" if xid == 0 else texts.get(xid, _UNKNOWN)
