"""What the agent costs a node with eight GPUs: processor time and memory of all its processes."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final

from benchmarks import fake
from benchmarks.measure import Memory, Usage, memory
from benchmarks.processes import agent, cost, series
from benchmarks.table import Row, Subject

MIB: Final = 1 << 20
SETTLE: Final = 12.0
"""Seconds before the measurement: what a start costs is not what a day costs."""
SCRAPE_EVERY: Final = 5.0


def run(*, quick: bool, seconds: float) -> Subject:
    """Readings every 5 s and a scrape as often."""
    with tempfile.TemporaryDirectory() as folder, agent(*fake.FLAGS, environ=fake.environment(Path(folder))) as running:
        cost(running, 2 if quick else SETTLE, SCRAPE_EVERY)
        found = cost(running, seconds, SCRAPE_EVERY)
        served = series(running)
        worker = _worker(running.pid, found.usage)
    total = found.usage.memory
    return Subject(
        f"The agent on {fake.GPUS} GPUs, read and scraped every {SCRAPE_EVERY:g} s, {served:,} series",
        (
            Row(what=f"processor time, {seconds:g} s", value=found.cpu * 100, unit="% of a core", below=1.0),
            Row(what="memory of all processes, PSS", value=total.pss / MIB, unit="MiB", below=80.0),
            Row(what="memory of all processes, RSS", value=total.rss / MIB, unit="MiB"),
            Row(what="memory of the worker, PSS", value=worker.pss / MIB, unit="MiB", below=20.0),
            Row(what="memory of the worker, RSS", value=worker.rss / MIB, unit="MiB"),
            Row(what="processes", value=len(found.usage.cpu), unit=""),
            Row(what="open descriptors", value=found.usage.descriptors, unit=""),
        ),
        (
            "Memory: PSS shares a page out among all who map it. The benchmark runs on the same interpreter and is "
            "one of them; alone on a node the agent is between PSS and RSS, nearer to PSS.",
        ),
    )


def _worker(agent_pid: int, found: Usage) -> Memory:
    (worker,) = found.cpu.keys() - {agent_pid}
    return memory(worker)
