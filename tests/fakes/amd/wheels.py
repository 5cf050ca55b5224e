"""AMD's Python package amdsmi in several versions, as PyPI has it, and what its structures look like."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

CACHE: Final = Path(__file__).parents[3] / ".make" / "amdsmi"
VERSIONS: Final = ("6.4.4", "7.0.2")
"""One of ROCm 6.4's structures, one of 7.0's."""


@dataclass(frozen=True, slots=True)
class Wheel:
    """An unpacked package."""

    version: str
    folder: Path

    @property
    def layout(self) -> Layout:
        return _layout(self.folder)


@dataclass(frozen=True, slots=True)
class Layout:
    """What the package takes the library's header for."""

    structures: dict[str, Any]
    """Name → size and fields; a field has name, offset, size of one, count, and of what structure it is."""
    constants: dict[str, int]
    symbols: tuple[str, ...]
    """The functions that it binds."""


@cache
def wheel(version: str) -> Wheel:
    """Unpack the package, once. Where the registry cannot be reached the test is skipped, with the reason."""
    folder = CACHE / version
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "amdsmi/__init__.py").is_file():
            _install(version, folder)
    return Wheel(version, folder)


def _install(version: str, folder: Path) -> None:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile", f"amdsmi=={version}"]
    draft = Path(tempfile.mkdtemp(dir=folder.parent))
    done = subprocess.run([*command, "--target", draft], capture_output=True, text=True, check=False)
    if done.returncode == 0:
        draft.rename(folder)
        return
    reason = f"the package amdsmi {version} cannot be had: {(done.stderr.strip().splitlines() or ['?'])[-1]}"
    offered = subprocess.run(
        [sys.executable, "-m", "pip", "index", "versions", "amdsmi"], capture_output=True, text=True, check=False
    )
    if os.environ.get("REQUIRE_TEST_PROGRAMS") == "1" and version in offered.stdout:
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


@cache
def _layout(folder: Path) -> Layout:
    """Import the package in another process, over a library that has every function, and look at its structures."""
    done = subprocess.run(
        [sys.executable, "-c", _DUMP],
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout.splitlines()[-1])
    return Layout(found["structures"], found["constants"], tuple(found["symbols"]))


_DUMP: Final = """
import ctypes, json

class Function:
    pass

class Library:
    def __init__(self, *_, **__):
        self.__dict__["functions"] = {}
    def __getattr__(self, name):
        return self.functions.setdefault(name, Function())
    __getitem__ = __getattr__

libraries = []
def load(*arguments, **more):
    libraries.append(Library())
    return libraries[-1]

ctypes.CDLL = load
from amdsmi import amdsmi_wrapper as wrapper

def fields(kind):
    for name, type_, *bits in kind._fields_:
        place = getattr(kind, name)
        count = 1
        while isinstance(type_, type(ctypes.c_int * 2)):
            count *= type_._length_
            type_ = type_._type_
        inner = type_.__name__ if issubclass(type_, ctypes.Structure) else ""
        yield {"name": name, "offset": place.offset, "one": ctypes.sizeof(type_), "count": count, "inner": inner}

structures = {}
for name, kind in vars(wrapper).items():
    if isinstance(kind, type) and issubclass(kind, ctypes.Structure) and hasattr(kind, "_fields_"):
        structures[name] = structures[kind.__name__] = {"size": ctypes.sizeof(kind), "fields": list(fields(kind))}
names = (name for name, value in vars(wrapper).items() if isinstance(value, int))
constants = {name: getattr(wrapper, name) for name in names if name.startswith("AMDSMI_")}
symbols = sorted({name for library in libraries for name in library.functions})
print(json.dumps({"structures": structures, "constants": constants, "symbols": symbols}))
"""
