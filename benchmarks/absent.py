"""What vendors cost that this node does not have."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Final

from benchmarks import fake
from benchmarks.footprint import MIB, SCRAPE_EVERY, SETTLE
from benchmarks.processes import Cost, agent, cost
from benchmarks.table import Row, Subject
from exporter.registry import catalogues

VENDORS: Final = 20
PRESENT: Final = "nvidia"
COLLECTOR: Final = """\
vendor = "{name}"
title = "A vendor that this node does not have"
kind = "npu"

[detect]
pci = [{{ vendor = "0x{number:04x}", classes = ["0x1200"] }}]
files = ["{{dev}}/{name}[0-9]*"]
"""
SERIES: Final = """\
[[series]]
name = "{name}_series_{number}"
type = "gauge"
unit = "percent"
default = true
help = "A reading that never comes."
native = "load()"
feeds = [{{ metric = "accel_utilization_ratio" }}]

"""
SERIES_EACH: Final = 60


def run(*, quick: bool, seconds: float) -> Subject:
    """The agent on eight GPUs alone, with the other vendors of this version, and with many more."""
    with tempfile.TemporaryDirectory() as folder:
        world = fake.environment(Path(folder) / "world")
        package = Path(folder) / "packages"
        install(package, VENDORS)
        others = [name for name in catalogues() if name != PRESENT]
        off = [f"--set=collectors.{name}.enabled=false" for name in others]
        none = _measured([*fake.FLAGS, *off], dict(world), quick, seconds)
        built_in = _measured([*fake.FLAGS], dict(world), quick, seconds) if others else none
        path = os.pathsep.join(filter(None, (str(package), os.environ.get("PYTHONPATH"))))
        many = _measured([*fake.FLAGS], {**world, "PYTHONPATH": path}, quick, seconds)
    rows = []
    measured = [(f"{len(others)} of this version", built_in)] if others else []
    for name, found in (*measured, (f"{VENDORS} more", many)):
        rows.append(
            Row(
                what=f"processor time, {name}",
                value=found.cpu * 100,
                unit="% of a core",
                beside="none",
                other=none.cpu * 100,
            )
        )
        rows.append(
            Row(
                what=f"memory of all processes, RSS, {name}",
                value=found.usage.memory.rss / MIB,
                unit="MiB",
                beside="none",
                other=none.usage.memory.rss / MIB,
            )
        )
    return Subject(
        f"Vendors that are absent, {SERIES_EACH} series each",
        rows,
        (
            "Absent vendors: their tables are read at the start and their signs looked for once a minute. RSS, "
            "since PSS moves with what else runs on the same interpreter.",
        ),
    )


def _measured(flags: list[str], environ: dict[str, str], quick: bool, seconds: float) -> Cost:
    with agent(*flags, environ=environ) as running:
        cost(running, 2 if quick else SETTLE, SCRAPE_EVERY)
        return cost(running, seconds, SCRAPE_EVERY)


def install(folder: Path, vendors: int) -> None:
    """Collectors of vendors that do not exist, as packages that another distribution brought."""
    information = folder / "absent_vendors-1.0.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: absent-vendors\nVersion: 1.0\n")
    names = [f"absent{number:02d}" for number in range(vendors)]
    entries = "\n".join(f"{name} = {name}" for name in names)
    (information / "entry_points.txt").write_text(f"[accel_exporter.collectors]\n{entries}\n")
    for number, name in enumerate(names):
        package = folder / name
        package.mkdir()
        (package / "__init__.py").write_text("")
        (package / "collector.toml").write_text(COLLECTOR.format(name=name, number=0xF000 + number))
        (package / "series.toml").write_text(
            f'identity = ["{name}"]\n\n' + "".join(SERIES.format(name=name, number=each) for each in range(SERIES_EACH))
        )
