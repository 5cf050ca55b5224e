"""A program hl-smi that prints what a file tells it to, in the ways that releases and broken firmware have."""

from __future__ import annotations

import json
import stat
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.fakes.gaudi.cards import DOWN, DRIVER, EXTERNAL, PORTS, bdf, module_id, serial, uuid

PROGRAM: Final = Path(__file__).parent / "hl_smi.py"
UNITS: Final[Mapping[str, str]] = {
    "temperature.aip": "C",
    "utilization.aip": "%",
    "utilization.memory": "%",
    "memory.total": "MiB",
    "memory.free": "MiB",
    "memory.used": "MiB",
    "power.draw": "W",
    "power.max": "W",
    "clocks.current.soc": "MHz",
    "clocks.max.soc": "MHz",
}
"""Field → the unit that hl-smi prints."""


def fields(i: int) -> dict[str, str]:
    """What hl-smi says of card i; the same card as the library's."""
    return {
        "index": str(i),
        "bus_id": bdf(i),
        "name": "HL-225",
        "serial": serial(i),
        "uuid": uuid(i),
        "driver_version": DRIVER,
        "module_id": str(module_id(i)),
        "temperature.aip": str(45 + i),
        "utilization.aip": str(40 + i),
        "memory.total": "98304",
        "memory.free": str(98304 - 768 - 1024 * i),
        "memory.used": str(768 + 1024 * i),
        "power.draw": str(96 + i),
        "clocks.current.soc": str(1650 - 5 * i),
        "clocks.max.soc": "1800",
        "ecc.mode.current": "Enabled",
        "ecc.errors.uncorrected.volatile.total": str(201 + i),
        "ecc.errors.uncorrected.aggregate.total": str(221 + i),
        "ecc.errors.corrected.volatile.total": str(1 + i),
        "ecc.errors.corrected.aggregate.total": str(21 + i),
        "ecc.errors.dram.volatile.total": str(101 + i),
        "ecc.errors.dram.aggregate.total": str(111 + i),
        "ecc.errors.dram-corrected.volatile.total": str(11 + i),
        "ecc.errors.dram-corrected.aggregate.total": str(12 + i),
        "pcie.link.gen.current": "3",
        "pcie.link.gen.max": "5",
        "pcie.link.width.current": "8",
        "pcie.link.width.max": "16",
    }


@dataclass(frozen=True, slots=True)
class Smi:
    """An installed program."""

    program: Path
    scenario_file: Path
    log_file: Path

    def apply(self, **scenario: Any) -> None:
        """Change what it does from its next run on; keys as in hl_smi.py."""
        draft = self.scenario_file.with_suffix(".draft")
        draft.write_text(json.dumps({"units": dict(UNITS), "log": str(self.log_file), **scenario}))
        draft.replace(self.scenario_file)

    def runs(self) -> Sequence[list[str]]:
        """The arguments of each run so far."""
        if not self.log_file.exists():
            return []
        return [json.loads(line)["arguments"] for line in self.log_file.read_text().splitlines()]

    def pids(self) -> Sequence[int]:
        """The process of each run so far."""
        return [int(json.loads(line)["pid"]) for line in self.log_file.read_text().splitlines()]

    def environments(self) -> Sequence[Mapping[str, str]]:
        """Locale variables of each run so far."""
        return [json.loads(line)["locale"] for line in self.log_file.read_text().splitlines()]


def install_smi(directory: Path, cards: int = 8, **scenario: Any) -> Smi:
    """A program named hl-smi in a directory of its own."""
    directory.mkdir(parents=True, exist_ok=True)
    smi = Smi(directory / "hl-smi", directory / "hl-smi.json", directory / "hl-smi.log")
    script = f"#!{sys.executable}\n{PROGRAM.read_text()}\nmain({str(smi.scenario_file)!r})\n"
    smi.program.write_text(script)
    smi.program.chmod(smi.program.stat().st_mode | stat.S_IXUSR)
    smi.apply(**{"devices": [fields(i) for i in range(cards)], "ports": ports(), **scenario})
    return smi


def ports() -> dict[str, Any]:
    """What -n link and -n ports say of each card: port 5 of the card at 4e is down."""
    return {
        "up": {f"{bdf(i)}": [port for port in range(PORTS) if (i, port) != DOWN] for i in range(8)},
        "external": list(EXTERNAL),
        "count": PORTS,
    }
