"""Compiles the fake library and puts it, a scenario and a call log where a process under test finds them."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.fakes.nvml.model import Scenario

SOURCES = Path(__file__).parent / "src"
LIBRARY = "libnvidia-ml.so.1"
DEFAULT_CACHE = Path(__file__).parents[3] / ".make" / "fake-nvml"
_COMPILER_FLAGS = ("-std=gnu11", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-fvisibility=hidden")


def build(directory: Path, missing: Collection[str] = ()) -> Path:
    """The library, compiled once per content of its sources and linked once per set of missing symbols.

    A missing symbol is really missing: ``dlsym`` does not find it. Raises RuntimeError when there is no C compiler or
    when a name to leave out is not one of the library's, CalledProcessError when the sources do not compile.
    """
    if shutil.which("gcc") is None:
        raise RuntimeError("the fake NVML needs gcc: install a C compiler (Debian: apt-get install gcc)")
    place = directory / _digest()
    with _locked(place):
        objects = _objects(place)
        full = _link(place, objects, ())
        if unknown := set(missing) - exported(full):
            raise RuntimeError(f"the fake NVML does not export {', '.join(sorted(unknown))}")
        return _link(place, objects, missing) if missing else full


def exported(library: Path) -> set[str]:
    """The names of the dynamic symbols that a library defines."""
    listing = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True).stdout
    return {line.split()[2] for line in listing.splitlines() if line.split()[1] == "T"}


def _digest() -> str:
    digest = hashlib.sha256(" ".join(_COMPILER_FLAGS).encode())
    for source in sorted(SOURCES.iterdir()):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    return digest.hexdigest()[:16]


@contextmanager
def _locked(place: Path) -> Iterator[None]:
    place.mkdir(parents=True, exist_ok=True)
    with (place / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _objects(place: Path) -> list[Path]:
    sources = sorted(SOURCES.glob("*.c"))
    target = place / "objects"
    if not target.exists():
        draft = Path(tempfile.mkdtemp(dir=place))
        subprocess.run(["gcc", *_COMPILER_FLAGS, "-c", *sources], cwd=draft, check=True)
        draft.rename(target)
    return [target / f"{source.stem}.o" for source in sources]


def _link(place: Path, objects: list[Path], missing: Collection[str]) -> Path:
    variant = hashlib.sha256(" ".join(sorted(missing)).encode()).hexdigest()[:16]
    target = place / variant
    if not target.exists():
        draft = Path(tempfile.mkdtemp(dir=place))
        script = draft / "symbols.map"
        hidden = "".join(f" {name};" for name in sorted(missing))
        script.write_text(f"{{ global: nvml*; local:{hidden} *; }};\n")
        name = f"-Wl,-soname,{LIBRARY},--version-script,{script}"
        subprocess.run(["gcc", "-shared", "-o", draft / LIBRARY, name, *objects], check=True)
        draft.rename(target)
    return target / LIBRARY


@dataclass(frozen=True, slots=True)
class Call:
    """One call that the library got. ``device`` is ``-`` for a call on no device, ``0``, ``0.3`` for a MIG device."""

    function: str
    device: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Installation:
    """A fake library with its world, ready for a process that is started with ``environment()``."""

    library: Path
    scenario_file: Path
    log_file: Path
    missing: frozenset[str]

    def environment(self) -> dict[str, str]:
        """This process's environment, with which a child loads the fake instead of a driver's library."""
        return {
            **os.environ,
            "LD_LIBRARY_PATH": str(self.library.parent),
            "FAKE_NVML_SCENARIO": str(self.scenario_file),
            "FAKE_NVML_LOG": str(self.log_file),
        }

    def apply(self, scenario: Scenario) -> None:
        """Changes the world under a running process. Raises ValueError when it would need another library."""
        if scenario.missing != self.missing:
            raise ValueError("a loaded library keeps its symbols: install the scenario in a directory of its own")
        scenario.write(self.scenario_file)

    def calls(self) -> list[Call]:
        """Every call since the installation, by all processes, in order."""
        if not self.log_file.exists():
            return []
        return [Call(*line.split(" ", 2)) for line in self.log_file.read_text(encoding="utf-8").splitlines()]


def install(directory: Path, scenario: Scenario, cache: Path = DEFAULT_CACHE) -> Installation:
    """Builds the library that the scenario needs and writes the scenario into the directory."""
    directory.mkdir(parents=True, exist_ok=True)
    library = build(cache, scenario.missing)
    installation = Installation(library, directory / "scenario.ini", directory / "calls.log", scenario.missing)
    installation.apply(scenario)
    return installation
