"""Compiles the fake libraries and puts them, a scenario and a call log where a process under test finds them."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.fakes.dcgm.world import World

SOURCES: Final = Path(__file__).parent / "src"
DEFAULT_CACHE: Final = Path(__file__).parents[3] / ".make" / "fake-dcgm"
_FLAGS: Final = ("-std=gnu11", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-fvisibility=hidden")


def build(directory: Path, major: int) -> Path:
    """The library of a major version, compiled once per content of its sources.

    Raises RuntimeError when there is no C compiler, CalledProcessError when the sources do not compile.
    """
    if shutil.which("gcc") is None:
        raise RuntimeError("the fake DCGM needs gcc: install a C compiler (Debian: apt-get install gcc)")
    place = directory / _digest()
    name = f"libdcgm.so.{major}"
    with _locked(place):
        if not (place / name).exists():
            draft = Path(tempfile.mkdtemp(dir=place)) / name
            command = ["gcc", *_FLAGS, f"-DDCGM_MAJOR={major}", "-shared", f"-Wl,-soname,{name}", "-o", str(draft)]
            subprocess.run([*command, *map(str, sorted(SOURCES.glob("*.c"))), "-lm", "-lpthread"], check=True)
            draft.rename(place / name)
    return place / name


def _digest() -> str:
    digest = hashlib.sha256(" ".join(_FLAGS).encode())
    for source in sorted(SOURCES.iterdir()):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    return digest.hexdigest()[:16]


@contextmanager
def _locked(place: Path) -> Iterator[None]:
    place.mkdir(parents=True, exist_ok=True)
    with (place / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@dataclass(frozen=True, slots=True)
class Call:
    """One call that the library got."""

    function: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Installation:
    """The fake libraries with their world, ready for a process that is started with ``environment()``."""

    folder: Path
    """Where the libraries are."""
    scenario_file: Path
    log_file: Path

    def environment(self, base: Mapping[str, str] = os.environ) -> dict[str, str]:
        """An environment with which a child finds the fakes, beside what ``base`` has in its search path."""
        search = ":".join(filter(None, (str(self.folder), base.get("LD_LIBRARY_PATH", ""))))
        return {
            **base,
            "LD_LIBRARY_PATH": search,
            "FAKE_DCGM_SCENARIO": str(self.scenario_file),
            "FAKE_DCGM_LOG": str(self.log_file),
        }

    def apply(self, world: World) -> None:
        """Change the world under a running process."""
        world.write(self.scenario_file)

    def calls(self) -> list[Call]:
        """Every call since the installation, by all processes, in order."""
        if not self.log_file.exists():
            return []
        lines = self.log_file.read_text(encoding="utf-8").splitlines()
        return [Call(name, detail) for name, _, detail in (line.partition(" ") for line in lines)]


def install(directory: Path, world: World, majors: Collection[int] = (4,), cache: Path = DEFAULT_CACHE) -> Installation:
    """Put the libraries of these major versions and the world into the directory."""
    folder = directory / "lib"
    folder.mkdir(parents=True, exist_ok=True)
    for major in majors:
        library = build(cache, major)
        (folder / library.name).symlink_to(library)
    installation = Installation(folder, directory / "world.txt", directory / "calls.log")
    installation.apply(world)
    return installation
