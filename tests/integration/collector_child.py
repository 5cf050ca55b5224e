"""A collector in a process of its own, for bindings that keep one library for the life of a process.

``Child`` starts a module that calls ``serve``, and asks it to discover, to sample or to close.
"""

from __future__ import annotations

import base64
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from collectors.base import Collector, Device, Reading, Sample, Settings, Unavailable


class Refused(msgspec.Struct, tag=True, frozen=True):
    """The collector raised Unavailable."""

    state: str
    hint: str
    restart: bool


class Found(msgspec.Struct, tag=True, frozen=True):
    """``source``: the way to read that was chosen."""

    devices: tuple[Device, ...]
    source: str


class Sampled(msgspec.Struct, tag=True, frozen=True):
    sample: Sample


class Closed(msgspec.Struct, tag=True, frozen=True):
    """``modules``: the names of all that the process has loaded."""

    modules: tuple[str, ...]


class Answer(msgspec.Struct, tag=True, frozen=True):
    """What a sample gave, ready to be asked for."""

    sample: Sample

    def value(self, series: str, device: int = 0, **labels: str) -> int | float:
        """The only value of a series on a device, among those with these labels."""
        found = self.values(series, device, **labels)
        assert len(found) == 1, f"{series} on device {device}: {found}"
        return found[0]

    def values(self, series: str, device: int = 0, **labels: str) -> list[int | float]:
        """All values of a series on a device, among those with these labels."""
        return [
            reading.value
            for reading in self.sample.readings
            if (reading.series, reading.device) == (series, device) and labels.items() <= dict(reading.labels).items()
        ]

    def readings(self, series: str, device: int = 0) -> list[Reading]:
        return [one for one in self.sample.readings if (one.series, one.device) == (series, device)]


class RefusedError(Exception):
    """The collector said that it cannot be used."""

    def __init__(self, refused: Refused) -> None:
        super().__init__(refused)
        self.refused = refused


class Child:
    """A running process with an open collector."""

    def __init__(self, module: str, settings: Settings, environment: Mapping[str, str], *arguments: str) -> None:
        text = base64.b64encode(msgspec.msgpack.encode(settings)).decode()
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, text, *arguments],
            cwd=Path(__file__).parents[2],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        code = self._process.wait(timeout=30)
        self._process.stdout.close()
        assert code == 0, f"the collector's process ended with {code}"

    def discover(self) -> Sequence[Device]:
        """Raises RefusedError."""
        return self.found().devices

    def found(self) -> Found:
        """The same, with the way that was chosen. Raises RefusedError."""
        answer = self._ask("discover", Found)
        assert isinstance(answer, Found)
        return answer

    def sample(self, group: str = "normal") -> Answer:
        """Raises RefusedError."""
        answer = self._ask(f"sample {group}", Sampled)
        assert isinstance(answer, Sampled)
        return Answer(answer.sample)

    def close(self) -> tuple[str, ...]:
        """Close the collector, as the agent does before it ends the process; the names of all modules it has loaded."""
        answer = self._ask("close", Closed)
        assert isinstance(answer, Closed)
        return answer.modules

    def _ask(self, request: str, kind: type[Any]) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(request + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"the collector's process ended at {request!r}"
        answer = msgspec.json.decode(line, type=kind | Refused)
        if isinstance(answer, Refused):
            raise RefusedError(answer)
        return answer


def serve(open_collector: Callable[[Settings], Collector]) -> None:
    """The child's side: answer until the parent closes the pipe."""
    collector = open_collector(msgspec.msgpack.decode(base64.b64decode(sys.argv[1]), type=Settings))
    # What a library prints must not get into the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    closed = False
    for line in sys.stdin:
        command, _, argument = line.strip().partition(" ")
        answer: Found | Sampled | Closed | Refused
        try:
            if command == "discover":
                answer = Found(tuple(collector.discover()), str(getattr(collector, "source", "")))
            elif command == "sample":
                group: Any = argument
                answer = Sampled(collector.sample(group))
            else:
                collector.close()
                closed = True
                answer = Closed(tuple(sorted(sys.modules)))
        except Unavailable as error:
            answer = Refused(error.state, error.hint, error.restart)
        answers.write(msgspec.json.encode(answer).decode() + "\n")
        answers.flush()
    if not closed:
        collector.close()
