"""Whether the agent grows: a day of readings, as fast as they can be made, with all that troubles of devices change."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import time
from typing import Final

import msgspec

from benchmarks.measure import descriptors, memory, percentile, usage
from benchmarks.pipeline import VENDOR, Node, Writer, count
from benchmarks.processes import ROOT, agent, cost
from benchmarks.table import Row, Subject
from exporter.negotiation import Format

MIB: Final = 1 << 20
DEVICES: Final = 8
DAY: Final = 17_280
"""Readings of a day, one every 5 s."""
SLOW_EVERY: Final = 12
REDISCOVER_EVERY: Final = 500
ALLOWED: Final = 5.0
"""Per cent."""


class _Course(msgspec.Struct, frozen=True):
    """Resident bytes and open descriptors after the first tenth and at the end, and the series of the last reading."""

    early: int
    late: int
    early_descriptors: int
    late_descriptors: int
    series: int


def run(*, quick: bool, seconds: float) -> Subject:
    """Per cent of growth from the first tenth to the end."""
    ticks = 600 if quick else DAY
    command = [sys.executable, "-m", "benchmarks.growth", str(ticks)]
    done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE)
    course = msgspec.json.decode(done.stdout, type=_Course)
    return Subject(
        f"Memory over {ticks:,} readings ({ticks * 5 / 3600:.1f} h of 5 s), published, written and compressed",
        (
            Row(
                what=f"growth after the first tenth, {course.series:,} series",
                value=(course.late / course.early - 1) * 100,
                unit="%",
                below=ALLOWED,
                note=f"{course.early / MIB:.1f} to {course.late / MIB:.1f} MiB RSS",
            ),
            Row(
                what="more open descriptors",
                value=course.late_descriptors - course.early_descriptors,
                unit="",
                below=1,
            ),
            *_whole_agent(seconds, quick=quick),
        ),
        ("Growth: RSS, since PSS moves with what else runs on the same interpreter.",),
    )


def _whole_agent(seconds: float, *, quick: bool) -> tuple[Row, Row]:
    """The real agent, ten readings and two scrapes a second."""
    flags = ("--simulate", f"{VENDOR}={DEVICES}", "--interval", "0.1", "--set", "intervals.fast=0.1")
    with agent(*flags, "--set", "intervals.slow=0.5") as running:
        cost(running, seconds, 0.5)
        early = usage(running.pid)
        cost(running, seconds, 0.5)
        late = usage(running.pid)
    return (
        Row(
            what=f"growth of the whole agent, {seconds * 10:,.0f} readings, {seconds * 2:,.0f} scrapes",
            value=(late.memory.rss / early.memory.rss - 1) * 100,
            unit="%",
            # So soon after a start every program grows.
            below=None if quick else ALLOWED,
            note=f"{early.memory.rss / MIB:.1f} to {late.memory.rss / MIB:.1f} MiB RSS",
        ),
        Row(
            what="more open descriptors of the whole agent",
            value=late.descriptors - early.descriptors,
            unit="",
            below=1,
        ),
    )


def course(ticks: int) -> _Course:
    """Let a node live. Devices fail, are lost, come back and raise faults; now and then all plans are made anew."""
    node, writer = Node(DEVICES), Writer()
    samples: list[tuple[int, int]] = []
    series = 0
    every = max(1, ticks // 100)
    for tick in range(1, ticks + 1):
        node.take("normal", *(("slow",) if tick % SLOW_EVERY == 0 else ()))
        if tick % REDISCOVER_EVERY == 0:
            node.forget()
        publication = node.publish()
        series = count(publication)
        writer.write(publication, Format.OPENMETRICS if tick % 2 else Format.TEXT, "gzip")
        if tick % every == 0:
            gc.collect()
            samples.append((memory(os.getpid()).rss, descriptors(os.getpid())))
    tenth = max(1, len(samples) // 10)
    return _Course(
        early=int(percentile([rss for rss, _ in samples[tenth : 2 * tenth]], 0.5)),
        late=int(percentile([rss for rss, _ in samples[-tenth:]], 0.5)),
        early_descriptors=samples[tenth][1],
        late_descriptors=samples[-1][1],
        series=series,
    )


def main() -> int:
    """The argument is the number of readings; the result goes to the output, as JSON."""
    began = time.monotonic()
    found = course(int(sys.argv[1]))
    print(f"growth: {time.monotonic() - began:.0f} s", file=sys.stderr)
    json.dump(msgspec.to_builtins(found), sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
