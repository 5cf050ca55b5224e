"""How the cost of a reading grows with the number of series, from the worker's answer to the compressed body."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

from benchmarks.measure import median
from benchmarks.pipeline import Node, Writer, count, devices_for
from benchmarks.table import Row, Subject
from exporter.exposition import compress
from exporter.negotiation import Format

T = TypeVar("T")
SIZES: Final = (1_000, 5_000, 20_000, 50_000)
BASE: Final = 5_000
STEEPEST: Final = 1.5
"""As much more may a series cost among ten times as many: caches hold less of them, but nothing is quadratic."""


def run(*, quick: bool) -> Subject:
    """Microseconds of processor time a series."""
    rows: list[Row] = []
    totals: dict[int, float] = {}
    for wanted in SIZES[:2] if quick else SIZES:
        found = _steps(Node(devices_for(wanted), distinct=True), 3 if quick else 9)
        series = found.pop("series")
        totals[wanted] = found["publish"] + found["write"] + found["gzip"]
        named = {f"{series:,.0f} series, {step}": value for step, value in found.items()}
        rows += [Row(what=what, value=value, unit="µs/series") for what, value in named.items()]
    most = max(totals)
    if most > BASE:
        rows.append(
            Row(
                what=f"publish, write and gzip: a series of {most:,} over one of {BASE:,}",
                value=totals[most] / totals[BASE],
                unit="",
                below=STEEPEST,
            )
        )
    return Subject("Cost by number of series", rows)


def _steps(node: Node, repeats: int) -> dict[str, float]:
    """Step → microseconds a series, beside the number of series."""
    writer = Writer()
    seconds: dict[str, list[float]] = {}
    series = 0

    def timed(step: str, work: Callable[[], T]) -> T:
        began = time.thread_time()
        result = work()
        seconds.setdefault(step, []).append(time.thread_time() - began)
        return result

    first = _first(node, repeats)
    node.publish()
    for _ in range(repeats):
        timed("sample (simulated)", partial(node.take, "normal", "slow"))
        publication = timed("publish", node.publish)
        body, took = writer.write(publication, Format.TEXT)
        seconds.setdefault("write", []).append(took)
        timed("gzip", partial(compress, [body], "gzip"))
        series = count(publication)
    found = {step: median(values) / series * 1e6 for step, values in seconds.items()}
    return {"series": series, "publish after a change of devices": first / series * 1e6, **found}


def _first(node: Node, repeats: int) -> float:
    """Seconds of a publication for which plans and label strings are made anew."""
    found = []
    for _ in range(min(repeats, 3)):
        node.forget()
        began = time.thread_time()
        node.publish()
        found.append(time.thread_time() - began)
    return median(found)
