"""An encoder that a test feeds with publications made by hand, and whose requests it reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from exporter.families import Block, Family, Publication, prefix
from exporter.model import Allocation, Number, Workload
from exporter.otlp.batch import Request
from exporter.otlp.encode import Encoder, Selection, run
from exporter.otlp.resource import Resources
from exporter.otlp.streams import taken
from exporter.schema import METRICS, WORKLOAD
from tests.otlp import Point, points

SECOND = 1_000_000_000
START = 1000.0
"""Unix seconds at which the agent of these tests starts."""
NODE = {"service.name": "accel-exporter", "service.instance.id": "node-1", "host.name": "node-1"}
POD = Workload(namespace="ml", pod="train-0", container="main", job_name="train", pod_uid="uid-0", job_kind="Job")
OTHER = Workload(namespace="ml", pod="serve-0", container="main", pod_uid="uid-1")

Labels = Mapping[str, str]


def labels(uuid: str = "U0", workload: Workload | None = None, *, partition: str = "", **more: str) -> dict[str, str]:
    """Labels of a device's series, as the view writes them; ``workload``: of a metric that bears one."""
    found = {"vendor": "acme", "device": uuid[1:], "uuid": uuid}
    if partition:
        found["partition"] = partition
    found["node"] = "node-1"
    if workload is not None:
        found |= {name: getattr(workload, name) for name in WORKLOAD}
    return {**found, **more}


def common(metric: str, *rows: tuple[Labels, Number], taken_at: float = START) -> Family:
    """A family of the common schema of one block. ``taken_at`` 0: made by the agent itself."""
    known = METRICS[metric]
    prefixes = tuple(prefix(metric, tuple(row.items())) for row, _ in rows)
    return Family(
        metric, known.type, known.help, "common", (Block(prefixes, tuple(value for _, value in rows), taken_at),)
    )


def publication(*families: Family, at: float = START, allocation: Allocation | None = None) -> Publication:
    return Publication(1, families, at, allocation)


class Rig:
    """One receiver's encoder."""

    def __init__(self, selection: Selection | None = None, *, limit: int = 1 << 30, node: Any = None) -> None:
        self.resources = Resources(NODE if node is None else node)
        self.encoder = Encoder(self.resources, selection or Selection("both"), began=round(START * SECOND), limit=limit)
        self.requests: Sequence[Request] = ()

    def export(self, published: Publication, *, took: bool = True) -> list[Point]:
        """One export. ``took``: the receiver takes it."""
        self.requests = run(self.encoder.encode(published, published.made_at))
        if took:
            self.take()
        return points(request.body for request in self.requests)

    def take(self, requests: Sequence[Request] | None = None) -> None:
        """The receiver takes requests; those of the last export if no others are given."""
        for request in self.requests if requests is None else requests:
            taken(request.starts)


def seconds(nanoseconds: int) -> float:
    return nanoseconds / SECOND
