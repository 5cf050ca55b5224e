"""Peers that the benchmarks compare with, each in a place of its own below .make/, installed when first asked for."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
import venv
from collections.abc import Callable, Sequence
from typing import Final

from benchmarks.processes import ROOT

MADE: Final = ROOT / ".make"
ALL_SMI: Final = "0.22.0"
"""A release that the compilers of today's distributions can still build."""
PATIENCE: Final = 3600.0

Command = Callable[[int, int], Sequence[str]]
"""Port and seconds between readings → the command."""


class NotInstalled(Exception):
    """A peer cannot be had on this machine; says why."""


def nvitop() -> Command:
    """nvitop-exporter, apart: it wants other versions of the NVML binding. Raises NotInstalled."""
    place = MADE / "bench-venv"
    program = place / "bin" / "nvitop-exporter"
    if not program.exists():
        venv.EnvBuilder(with_pip=True, clear=True).create(place)
        _run([str(place / "bin" / "python"), "-m", "pip", "install", "--quiet", *_extra("bench")], "pip")
    return lambda port, interval: (str(program), "--port", str(port), "--interval", str(interval))


def all_smi() -> Command:
    """all-smi, compiled by cargo. Raises NotInstalled."""
    place = MADE / "cargo"
    program = place / "bin" / "all-smi"
    if not program.exists():
        cargo = shutil.which("cargo")
        if cargo is None:
            raise NotInstalled("there is no cargo on PATH")
        try:
            _run([cargo, "install", "all-smi", "--version", ALL_SMI, "--locked", "--root", str(place)], "cargo")
        except NotInstalled as error:
            needs = "protoc and libdrm's headers (Debian: apt-get install protobuf-compiler libdrm-dev)"
            raise NotInstalled(f"{error}; its build needs {needs}") from error
    return lambda port, interval: (str(program), "api", "--port", str(port), "--interval", str(interval))


def _extra(name: str) -> list[str]:
    """What an extra of this project asks for."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found: list[str] = project["optional-dependencies"][name]
    return found


def _run(command: Sequence[str], tool: str) -> None:
    print(f"installing: {' '.join(command[1:])}", file=sys.stderr)
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=PATIENCE)
    except subprocess.TimeoutExpired as error:
        raise NotInstalled(f"{tool} did not come to its end within {PATIENCE:g} s") from error
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.strip()]
        raise NotInstalled(f"{tool} failed: {said[-1] if said else done.returncode}")
