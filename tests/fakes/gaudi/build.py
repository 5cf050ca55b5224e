"""Compiles the fake library, leaves symbols out, and puts it and a scenario where a process finds them."""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import tempfile
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.fakes.gaudi.cards import Scenario

SOURCES: Final = Path(__file__).parent / "src"
LIBRARY: Final = "libhlml.so"
CACHE: Final = Path(__file__).parents[3] / ".make" / "fake-hlml"
FLAGS: Final = ("-std=gnu11", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-fvisibility=hidden", "-shared")


@dataclass(frozen=True, slots=True)
class Library:
    """A fake library with its world."""

    path: Path
    scenario_file: Path
    log_file: Path
    missing: frozenset[str]

    @property
    def environ(self) -> dict[str, str]:
        """Variables by which the library finds its world and its log."""
        return {"FAKE_HLML_SCENARIO": str(self.scenario_file), "FAKE_HLML_LOG": str(self.log_file)}

    def child_environ(self) -> dict[str, str]:
        """This process's environment, with which a child's loader finds the fake."""
        return {**os.environ, **self.environ, "LD_LIBRARY_PATH": str(self.path.parent)}

    def apply(self, scenario: Scenario) -> None:
        """Change the world under a running process. A loaded library keeps its symbols."""
        assert scenario.missing == self.missing, "another set of symbols needs another library"
        scenario.write(self.scenario_file)

    def calls(self) -> list[tuple[str, str]]:
        """Function and device (``-`` for none) of each call so far."""
        if not self.log_file.exists():
            return []
        lines = self.log_file.read_text().splitlines()
        return [(line.split(" ")[0], line.split(" ")[1]) for line in lines]

    def forget_calls(self) -> None:
        self.log_file.unlink(missing_ok=True)


def install(directory: Path, scenario: Scenario) -> Library:
    """Build the library that the scenario needs, and write the scenario into the directory."""
    directory.mkdir(parents=True, exist_ok=True)
    library = Library(
        _built(scenario.missing), directory / "scenario.ini", directory / "calls.log", frozenset(scenario.missing)
    )
    library.apply(scenario)
    return library


def _built(missing: Collection[str]) -> Path:
    """One library per content of the sources and set of missing symbols: ``dlsym`` does not find those."""
    digest = hashlib.sha256(repr((FLAGS, sorted(missing))).encode())
    for source in sorted(SOURCES.iterdir()):
        digest.update(source.name.encode() + source.read_bytes())
    place = CACHE / digest.hexdigest()[:16]
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.exists():
            draft = Path(tempfile.mkdtemp(dir=CACHE))
            hidden = "".join(f" {name};" for name in sorted(missing))
            (draft / "symbols.map").write_text(f"{{ global: hlml*; local:{hidden} *; }};\n")
            script = f"-Wl,-soname,{LIBRARY},--version-script,{draft / 'symbols.map'}"
            sources = [str(path) for path in sorted(SOURCES.glob("*.c"))]
            subprocess.run(["gcc", *FLAGS, "-o", str(draft / LIBRARY), script, *sources], check=True)
            draft.rename(place)
    return place / LIBRARY
