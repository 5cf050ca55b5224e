"""Drives the AMD collector in a process of its own: AMD's package keeps one library for the life of a process."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from collectors.base import Device, HostPaths, Settings, Unavailable
from tests.fakes.amd import Tree
from tests.fakes.amd.library import Installation
from tests.integration.nvml_child import Answer, Refused, RefusedError, Sampled


class Found(msgspec.Struct, tag=True, frozen=True):
    devices: tuple[Device, ...]
    source: str


class Closed(msgspec.Struct, tag=True, frozen=True):
    modules: tuple[str, ...]


class Child:
    """A running process with an open collector."""

    def __init__(self, settings: Settings, installation: Installation | None = None, **environ: str) -> None:
        text = base64.b64encode(msgspec.msgpack.encode(settings)).decode()
        base = installation.environ if installation is not None else _without_library()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.integration.amd_child", text],
            cwd=Path(__file__).parents[2],
            env={**base, **environ},
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
        """Close the collector; the names of all modules that the process has loaded."""
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


def _without_library() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("ROCM", "LD_LIBRARY"))}


def every_series() -> frozenset[str]:
    """All raw series of AMD's table that are read natively."""
    import tomllib

    import collectors.amd

    text = (Path(collectors.amd.__file__).parent / "series.toml").read_text()
    return frozenset(series["name"] for series in tomllib.loads(text)["series"] if series.get("native"))


def settings(tree: Tree, wanted: Mapping[str, Sequence[str]] | None = None, **more: Any) -> Settings:
    """Settings that ask for these series; by default for all, in one group."""
    groups: dict[Any, frozenset[str]] = {group: frozenset(names) for group, names in (wanted or {}).items()}
    paths = HostPaths(sys=str(tree.sys), opt=str(tree.root / "opt"))
    return Settings(wanted=groups or {"normal": every_series()}, node=more.pop("node", "node-a"), paths=paths, **more)


def main() -> None:
    from collectors.amd import open_collector

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
                devices = tuple(collector.discover())
                answer = Found(devices, str(getattr(collector, "source", "")))
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


if __name__ == "__main__":
    main()
