"""Builds a ``libamd_smi.so`` that plays a scenario, and writes scenarios."""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.fakes.amd.wheels import CACHE, Layout, Wheel

SOURCE: Final = Path(__file__).parent / "src/player.c"
LIBRARY: Final = "libamd_smi.so"
_FLAGS: Final = ("-std=gnu11", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-shared")

Key = int | str
Value = int | str | float | Sequence[Any] | Mapping[str, Any]


def build(wheel: Wheel, without: Sequence[str] = ()) -> Path:
    """The folder of a library with every function that the package binds, but for some. Built once."""
    symbols = [name for name in wheel.layout.symbols if name not in without]
    code = SOURCE.read_text() + "".join(
        f"\nuint64_t {name}(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f, uint64_t g,"
        f' uint64_t h)\n{{\n    uint64_t all[] = {{a, b, c, d, e, f, g, h}};\n    return play("{name}", all);\n}}\n'
        for name in symbols
    )
    folder = CACHE / "libraries" / hashlib.sha256(code.encode()).hexdigest()[:16]
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            draft = Path(tempfile.mkdtemp(dir=folder.parent))
            (draft / "library.c").write_text(code)
            subprocess.run(["gcc", *_FLAGS, "-o", draft / LIBRARY, draft / "library.c"], check=True)
            draft.rename(folder)
    return folder


@dataclass(slots=True)
class Scenario:
    """What each call does. Later rules for the same call win."""

    layout: Layout
    rules: dict[str, str] = field(default_factory=dict)

    def answer(self, function: str, *keys: Key, result: int = 0, actions: Sequence[str] = ()) -> None:
        """A call with these first arguments gives this result, after these actions."""
        head = f"{function} {','.join(map(str, keys)) or '*'}"
        self.rules[head] = " ".join((head, str(result), *actions))

    def gives(self, function: str, *keys: Key, argument: int, structure: str, values: Mapping[str, Value]) -> None:
        """A call that fills a structure: what is not given is all ones in numbers, and empty in texts."""
        self.answer(function, *keys, actions=[write(argument, self.structure(structure, values))])

    def structure(self, name: str, values: Mapping[str, Value]) -> bytes:
        """A structure of the library. Raises ValueError for a field that it has not."""
        found = self.layout.structures[name]
        data = bytearray(found["size"])
        left = dict(values)
        for part in found["fields"]:
            if part["name"].startswith("PADDING"):
                continue
            value = left.pop(part["name"], None)
            offset, size = part["offset"], part["one"] * part["count"]
            data[offset : offset + size] = self._field(part, value)
        if left:
            raise ValueError(f"{name} has no {', '.join(left)}")
        return bytes(data)

    def _field(self, part: Mapping[str, Any], value: Any) -> bytes:
        one, count = part["one"], part["count"]
        if part["inner"]:
            rows = [value] if isinstance(value, Mapping) or value is None else value
            rows = [*rows, *[{}] * (count - len(rows))]
            return b"".join(self.structure(part["inner"], row or {}) for row in rows)
        if part["name"].startswith("reserved"):
            return bytes(one * count)
        if isinstance(value, str) or (value is None and one == 1 and count > 1):
            return (value or "").encode().ljust(count, b"\0")
        numbers = [value] if isinstance(value, int) or value is None else list(value)
        numbers = [*numbers, *[None] * (count - len(numbers))]
        ones = (1 << 8 * one) - 1
        return b"".join((ones if number is None else number).to_bytes(one, "little") for number in numbers)

    def text(self) -> str:
        # Special keys before those for any.
        lines = sorted(self.rules.values(), key=lambda line: line.split()[1].count("*"))
        return "\n".join(lines) + "\n"


def write(argument: int, data: bytes, offset: int = 0) -> str:
    """The action that writes bytes."""
    return f"{argument}@{offset}={data.hex()}"


def number(argument: int, value: int, size: int) -> str:
    """The action that writes one number."""
    return write(argument, value.to_bytes(size, "little", signed=value < 0))


@dataclass(frozen=True, slots=True)
class Installation:
    """A library with a scenario, ready for a process that is started with ``environ``."""

    library: Path
    wheel: Wheel
    scenario_file: Path
    log_file: Path

    @property
    def environ(self) -> dict[str, str]:
        path = os.pathsep.join(filter(None, (str(self.wheel.folder), os.environ.get("PYTHONPATH", ""))))
        kept = {name: value for name, value in os.environ.items() if name not in ("ROCM_PATH", "ROCM_HOME")}
        return {
            **kept,
            "LD_LIBRARY_PATH": str(self.library),
            "PYTHONPATH": path,
            "FAKE_AMDSMI_SCENARIO": str(self.scenario_file),
            "FAKE_AMDSMI_LOG": str(self.log_file),
        }

    def apply(self, scenario: Scenario) -> None:
        """Change the world under a running process."""
        draft = self.scenario_file.with_suffix(".new")
        draft.write_text(scenario.text())
        draft.rename(self.scenario_file)

    def calls(self) -> list[str]:
        """The functions called so far, in order, by all processes."""
        if not self.log_file.exists():
            return []
        return [line.split()[0] for line in self.log_file.read_text().splitlines()]


def install(folder: Path, wheel: Wheel, scenario: Scenario, without: Sequence[str] = ()) -> Installation:
    """Build the library and write the scenario into the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    installation = Installation(build(wheel, without), wheel, folder / "scenario.txt", folder / "calls.log")
    installation.apply(scenario)
    return installation
