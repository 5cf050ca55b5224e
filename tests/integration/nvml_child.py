"""Drives the NVIDIA collector in a process of its own: the binding keeps one library for the life of a process.

``Child`` starts this file as a program over a fake library, and asks it to discover, to sample or to close.
"""

from __future__ import annotations

import base64
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from collectors.base import Device, Reading, Sample, Settings, Unavailable
from tests.fakes.nvml import Installation


class Refused(msgspec.Struct, tag=True, frozen=True):
    """The collector raised Unavailable."""

    state: str
    hint: str
    restart: bool


class Found(msgspec.Struct, tag=True, frozen=True):
    devices: tuple[Device, ...]


class Sampled(msgspec.Struct, tag=True, frozen=True):
    sample: Sample


class Done(msgspec.Struct, tag=True, frozen=True):
    pass


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

    def __init__(
        self,
        installation: Installation,
        settings: Settings,
        environment: Mapping[str, str] | None = None,
        lost_every: float | None = None,
    ) -> None:
        """``lost_every``: seconds between two looks for a lost GPU, instead of the collector's two minutes."""
        text = base64.b64encode(msgspec.msgpack.encode(settings)).decode()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.integration.nvml_child", text, *([str(lost_every)] if lost_every else [])],
            cwd=Path(__file__).parents[2],
            env=environment or installation.environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Child:
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
        answer = self._ask("discover", Found)
        assert isinstance(answer, Found)
        return answer.devices

    def sample(self, group: str = "normal") -> Answer:
        """Raises RefusedError."""
        answer = self._ask(f"sample {group}", Sampled)
        assert isinstance(answer, Sampled)
        return Answer(answer.sample)

    def close(self) -> None:
        """Close the collector, as the agent does before it ends the process."""
        self._ask("close", Done)

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


def settings(wanted: Mapping[str, Sequence[str]] | None = None, kmsg: Path | None = None, **more: Any) -> Settings:
    """Settings that ask for these series; by default for all, in one group; without the machine's own kernel log."""
    from collectors.base import HostPaths
    from collectors.nvidia.table import TABLE

    groups: dict[Any, frozenset[str]] = {group: frozenset(names) for group, names in (wanted or {}).items()}
    return Settings(
        wanted=groups or {"normal": frozenset(TABLE)},
        node=more.pop("node", "node-a"),
        paths=HostPaths(kmsg=str(kmsg or "/nonexistent/kmsg"), sys=str(more.pop("sys", "/nonexistent/sys"))),
        **more,
    )


def main() -> None:
    from collectors.nvidia import nvml, open_collector

    if len(sys.argv) > 2:
        vars(nvml)["_LOST_EVERY"] = float(sys.argv[2])
    collector = open_collector(msgspec.msgpack.decode(base64.b64decode(sys.argv[1]), type=Settings))
    closed = False
    for line in sys.stdin:
        command, _, argument = line.strip().partition(" ")
        answer: Found | Sampled | Done | Refused
        try:
            if command == "discover":
                answer = Found(tuple(collector.discover()))
            elif command == "sample":
                group: Any = argument
                answer = Sampled(collector.sample(group))
            else:
                collector.close()
                closed = True
                answer = Done()
        except Unavailable as error:
            answer = Refused(error.state, error.hint, error.restart)
        sys.stdout.write(msgspec.json.encode(answer).decode() + "\n")
        sys.stdout.flush()
    if not closed:
        collector.close()


if __name__ == "__main__":
    main()
