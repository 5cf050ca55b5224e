"""How long a scrape of the real server takes, seen by a client in another process."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Final

from benchmarks.client import Order, Report
from benchmarks.measure import median, percentile
from benchmarks.pipeline import VENDOR, devices_for
from benchmarks.processes import Running, agent, free_port, scrape, series, server
from benchmarks.table import Row, Subject

TARGETS: Final = {5_000: 2.0, 50_000: 10.0}
"""Series → milliseconds at the 99th percentile."""
NEVER: Final = 3000
"""Seconds between readings, so that none falls into a measurement."""


def run(*, quick: bool) -> Subject:
    """Milliseconds from the request to the last byte of the answer."""
    rows: list[Row] = []
    for wanted in (5_000,) if quick else TARGETS:
        devices = devices_for(wanted)
        with _simulated(devices, NEVER) as running:
            found = series(running)
            for gzip in (True, False):
                rows += _ready(running, wanted, found, gzip=gzip, quick=quick)
        with _simulated(devices, 1) as running:
            rows.append(_new(running, series(running), quick=quick))
    return Subject(
        "Scrapes of the real server",
        rows,
        (
            "Scrapes: one client in a process of its own, on the same host; the time ends with the last byte. "
            "Beside it, in turns, a server that does nothing but send as many bytes: what this machine allows now.",
        ),
    )


def _simulated(devices: int, interval: float) -> AbstractContextManager[Running]:
    flags = ("--simulate", f"{VENDOR}={devices}", "--interval", str(interval), "--set", f"intervals.fast={interval}")
    return agent(*flags)


def _ready(running: Running, wanted: int, found: int, *, gzip: bool, quick: bool) -> Iterable[Row]:
    requests, rounds = (200, 1) if quick else (1000, 5)
    # The first makes the body.
    size = scrape(Order(port=running.port, requests=3, gzip=gzip)).size
    port = free_port()
    with server((sys.executable, "-m", "benchmarks.bare", str(port), str(size)), port, {}) as sender:
        ours: list[Report] = []
        bare: list[Report] = []
        for _ in range(rounds):
            for target, reports in ((running, ours), (sender, bare)):
                order = Order(port=target.port, server=target.pid, requests=requests, gzip=gzip, pause=0.001)
                reports.append(scrape(order))
    what = f"{found:,} series, {'gzip' if gzip else 'identity'}, ready"
    for share in (0.5, 0.99):
        yield Row(
            what=f"{what}, p{share * 100:g}",
            value=_milliseconds(ours, share),
            unit="ms",
            below=TARGETS[wanted] if share > 0.5 else None,
            beside="bytes alone",
            other=_milliseconds(bare, share),
            note=f"{size / 1e6:.2f} MB",
        )
    yield Row(
        what=f"{what}, p99 without waiting for a core",
        value=_milliseconds(map(_undisturbed, ours), 0.99),
        unit="ms",
        beside="bytes alone",
        other=_milliseconds(map(_undisturbed, bare), 0.99),
    )


def _undisturbed(report: Report) -> Report:
    """Without the time in which other processes had the cores. Two threads may wait at once: never below 0."""
    seconds = [max(0.0, all_ - waited) for all_, waited in zip(report.seconds, report.waited, strict=True)]
    return Report(seconds=seconds, size=report.size)


def _milliseconds(reports: Iterable[Report], share: float) -> float:
    return median(percentile(report.seconds, share) for report in reports) * 1000


def _new(running: Running, found: int, *, quick: bool) -> Row:
    """Prometheus always comes to a publication that nobody has asked for yet: it is written and compressed for it."""
    report = scrape(Order(port=running.port, requests=5 if quick else 20, gzip=True, pause=1.07))
    return Row(
        what=f"{found:,} series, gzip, first of a new publication, p50",
        value=_milliseconds([report], 0.5),
        unit="ms",
    )
