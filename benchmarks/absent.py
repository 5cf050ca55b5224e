"""What vendors cost that this node does not have."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import msgspec

from benchmarks import fake
from benchmarks.footprint import MIB, SCRAPE_EVERY, SETTLE
from benchmarks.measure import median
from benchmarks.processes import Cost, Running, agent, cost
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
ROUNDS: Final = 3


class _Kind(msgspec.Struct, frozen=True):
    """One way to start the agent."""

    name: str
    flags: Sequence[str]
    environ: Mapping[str, str]


def run(*, quick: bool, seconds: float) -> Subject:
    """The agent on eight GPUs alone, with the other vendors of this version, and with many more."""
    with tempfile.TemporaryDirectory() as folder:
        world = fake.environment(Path(folder) / "world")
        package = Path(folder) / "packages"
        install(package, VENDORS)
        others = [name for name in catalogues() if name != PRESENT]
        off = [f"--set=collectors.{name}.enabled=false" for name in others]
        path = os.pathsep.join(filter(None, (str(package), os.environ.get("PYTHONPATH"))))
        kinds = [_Kind("none", off, world), _Kind(f"{len(others)} of this version", (), world)]
        kinds.append(_Kind(f"{len(others)} and {VENDORS} more", (), {**world, "PYTHONPATH": path}))
        rounds = [_together(kinds, quick, seconds) for _ in range(1 if quick else ROUNDS)]
    cpu = [median(found[position].cpu * 100 for found in rounds) for position in range(len(kinds))]
    rss = [median(found[position].usage.memory.rss / MIB for found in rounds) for position in range(len(kinds))]
    rows = []
    for kind, share, memory in zip(kinds[1:], cpu[1:], rss[1:], strict=True):
        what = f"processor time, {kind.name}"
        rows.append(Row(what=what, value=share, unit="% of a core", beside="none", other=cpu[0]))
        what = f"memory of all processes, RSS, {kind.name}"
        rows.append(Row(what=what, value=memory, unit="MiB", beside="none", other=rss[0]))
    return Subject(
        f"Vendors that are absent; those made up have {SERIES_EACH} series each",
        rows,
        ("Absent vendors: the agents run at the same time and share pages, so PSS would be lower than on a node.",),
    )


def _together(kinds: Sequence[_Kind], quick: bool, seconds: float) -> list[Cost]:
    """Watch all at once, so that what else the machine does meets each alike."""

    def watched(running: Running) -> Cost:
        cost(running, 2 if quick else SETTLE, SCRAPE_EVERY)
        return cost(running, seconds, SCRAPE_EVERY)

    with ExitStack() as stack:
        agents = [stack.enter_context(agent(*fake.FLAGS, *kind.flags, environ=kind.environ)) for kind in kinds]
        pool = stack.enter_context(ThreadPoolExecutor(len(agents)))
        return list(pool.map(watched, agents))


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
