"""Other exporters on the same eight GPUs, in the same run, read as often and scraped as often."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

from benchmarks import fake, install
from benchmarks.client import BadAnswer, Order
from benchmarks.footprint import MIB, SCRAPE_EVERY, SETTLE
from benchmarks.install import NotInstalled
from benchmarks.measure import median, percentile
from benchmarks.processes import Cost, Running, agent, cost, free_port, get, scrape, series, server
from benchmarks.table import Row, Subject

INTERVAL: Final = 5


class _Found(msgspec.Struct, frozen=True):
    """What one exporter came to."""

    series: int
    p50: float
    p99: float
    """Milliseconds of a scrape."""
    size: int
    cost: Cost


def run(*, quick: bool, seconds: float, all_smi: bool) -> Subject:
    """The agent first, then each peer that can be installed."""
    remarks = [
        "Peers: a scrape over a connection of its own, uncompressed, the same for all. Each reads the same eight GPUs "
        "of the fake NVML, whose own cost is in every figure. The peers read less: see the numbers of series."
    ]
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        world = fake.environment(Path(folder))
        with agent(*fake.FLAGS, "--interval", str(INTERVAL), environ=world) as running:
            ours = _look(running, quick, seconds)
        for name, make in (("nvitop-exporter", install.nvitop), *((("all-smi", install.all_smi),) if all_smi else ())):
            try:
                command = make()
                port = free_port()
                with server(command(port, INTERVAL), port, world) as running:
                    rows += _rows(name, ours, _look(running, quick, seconds))
            except (NotInstalled, RuntimeError, BadAnswer) as error:
                remarks.append(f"{name} is missing here: {error}")
    if not all_smi:
        remarks.append("all-smi was not asked for: --all-smi builds it with cargo, which takes many minutes.")
    return Subject(f"Peers on {fake.GPUS} GPUs, read and scraped every {INTERVAL} s", rows, remarks)


def _look(running: Running, quick: bool, seconds: float) -> _Found:
    cost(running, 2 if quick else SETTLE, SCRAPE_EVERY)
    if fake.MODEL not in get(running):
        raise RuntimeError(f"it shows no {fake.MODEL}, so there is nothing to compare")
    found = cost(running, seconds, SCRAPE_EVERY)
    requests, rounds = (30, 1) if quick else (200, 5)
    reports = [scrape(Order(port=running.port, requests=requests, fresh=True, pause=0.002)) for _ in range(rounds)]
    p50, p99 = (median(percentile(report.seconds, share) for report in reports) * 1000 for share in (0.5, 0.99))
    return _Found(series(running), p50, p99, reports[-1].size, found)


def _rows(name: str, ours: _Found, theirs: _Found) -> Iterator[Row]:
    figures: Mapping[str, tuple[float, float, str]] = {
        "series served": (ours.series, theirs.series, ""),
        "scrape p50": (ours.p50, theirs.p50, "ms"),
        "scrape p99": (ours.p99, theirs.p99, "ms"),
        "size of a scrape": (ours.size / 1e6, theirs.size / 1e6, "MB"),
        "processor time": (ours.cost.cpu * 100, theirs.cost.cpu * 100, "% of a core"),
        "memory, PSS": (ours.cost.usage.memory.pss / MIB, theirs.cost.usage.memory.pss / MIB, "MiB"),
    }
    for what, (value, other, unit) in figures.items():
        yield Row(what=what, value=value, unit=unit, beside=name, other=other)
