"""The renderer against the reference client's, on the same series with the same values."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client import exposition as text_format
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics import exposition as openmetrics_format
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families
from prometheus_client.parser import text_string_to_metric_families as text_families

from benchmarks.measure import median
from benchmarks.pipeline import Node, Writer, count, devices_for
from benchmarks.table import Row, Subject
from exporter.families import Publication
from exporter.negotiation import Format

TARGET: Final = 1.0
NAMES: Final = {Format.TEXT: "text", Format.OPENMETRICS: "OpenMetrics"}


class _Fixed:
    """Gives a registry families that are already made."""

    def __init__(self, families: Sequence[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def run(*, quick: bool) -> Subject:
    """Microseconds a series: the first time, and again with other values; every value is a number of its own."""
    rows: list[Row] = []
    repeats = 3 if quick else 7
    for wanted in (5_000,) if quick else (5_000, 50_000):
        node = Node(devices_for(wanted), distinct=True)
        publications = [node.publish()]
        for _ in range(repeats):
            node.take("normal", "slow")
            publications.append(node.publish())
        for format_ in Format:
            rows += _compare(publications, format_)
    return Subject(
        "Writing, beside prometheus_client.generate_latest",
        rows,
        ("Writing: 'again' has new values in all series; prometheus_client keeps nothing and is the same each time.",),
    )


def _compare(publications: Sequence[Publication], format_: Format) -> Iterable[Row]:
    series = count(publications[-1])
    # Both are given the same families, one after the other, so that a disturbance meets both.
    first: list[float] = []
    again: list[float] = []
    theirs: list[float] = []
    body = b""
    kept = Writer()
    kept.write(publications[0], format_)
    generate = _reference(Writer().write(publications[-1], format_)[0].decode(), format_)
    for publication in publications[1:]:
        first.append(Writer().write(publication, format_)[1])
        again.append(kept.write(publication, format_)[1])
        began = time.thread_time()
        body = generate()
        theirs.append(time.thread_time() - began)
    lines = sum(not line.startswith(b"#") for line in body.splitlines())
    if lines != series:
        raise RuntimeError(f"the two libraries were not given the same: {series} and {lines} series")
    scale = 1e6 / series
    other = median(theirs) * scale
    for name, seconds in (("first", first), ("again", again)):
        yield Row(
            what=f"{NAMES[format_]}, {series:,} series, {name}",
            value=median(seconds) * scale,
            unit="µs/series",
            below=TARGET if name == "first" else None,
            beside="generate_latest",
            other=other,
        )


def _reference(text: str, format_: Format) -> Callable[[], bytes]:
    """The reference client's renderer, given the series of a body."""
    registry = CollectorRegistry(auto_describe=False)
    openmetrics = format_ is Format.OPENMETRICS
    families = list(openmetrics_families(text) if openmetrics else text_families(text))  # type: ignore[no-untyped-call]
    registry.register(_Fixed(families))
    if openmetrics:
        return lambda: bytes(openmetrics_format.generate_latest(registry))  # type: ignore[no-untyped-call]
    return lambda: text_format.generate_latest(registry)
