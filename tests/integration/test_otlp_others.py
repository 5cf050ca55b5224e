"""Pushed to receivers that others wrote: what they hand on is what was sent."""

from __future__ import annotations

import asyncio
import urllib.request
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families as parse_text

from benchmarks.pipeline import Node
from exporter.config.otlp import OtlpEndpoint
from exporter.exposition_text import render
from exporter.families import Publication
from exporter.model import Allocation
from exporter.negotiation import Format
from exporter.otlp.encode import Selection
from exporter.otlp.service import sender
from tests.exposition_readers import read
from tests.otlp import Point, points
from tests.otlp_programs import Program, collector, collector_components, rotel, rotel_agent
from tests.otlp_rig import POD, Rig, common, labels, publication
from tests.otlp_servers import receiver
from tests.serving import run, until

ROTEL = pytest.param(
    rotel,
    id="rotel",
    marks=pytest.mark.skipif(rotel_agent() is None, reason="the package rotel has no program for this platform"),
)
COLLECTOR = pytest.param(
    collector,
    id="collector",
    marks=pytest.mark.skipif(not collector_components(), reason="no OpenTelemetry Collector (otelcol) is on PATH"),
)
Start = Callable[[Path, str], AbstractContextManager[Program]]


def everything() -> list[Publication]:
    """Simulated devices, then one with a workload, and then that one is gone."""
    allocation: Allocation = {("U0", ""): (POD,)}
    shown = [
        common("accel_power_watts", (labels(workload=POD), 5.5)),
        common("accel_energy_joules_total", (labels(workload=POD), 2**40)),
    ]
    return [
        Node(2, distinct=True).publish(),
        publication(*shown, at=2000.0, allocation=allocation),
        publication(at=2060.0, allocation=allocation),
    ]


def identity(point: Point) -> tuple[object, ...]:
    return (
        tuple(sorted((name, str(value)) for name, value in point.resource.items())),
        point.name,
        point.unit,
        point.kind,
        point.labels,
        point.value,
        point.start,
        point.time,
    )


@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
@pytest.mark.parametrize("start", [ROTEL, COLLECTOR])
def test_what_they_hand_on_is_what_was_sent(start: Start, protocol: str, tmp_path: Path) -> None:
    rig = Rig()
    expected: list[Point] = []
    bodies: list[bytes] = []
    for published in everything():
        expected += rig.export(published)
        bodies += [request.body for request in rig.requests]
    assert any(point.value is None for point in expected)

    async def test() -> list[Point]:
        async with receiver() as last:
            program = start(tmp_path, last.url)
            with program as running:
                grpc = protocol == "grpc"
                endpoint = OtlpEndpoint(
                    endpoint=running.grpc if grpc else running.http,
                    protocol="grpc" if grpc else "http/protobuf",
                    insecure=True,
                )
                sending = sender(endpoint)
                for body in bodies:
                    outcome = await sending.send(await asyncio.to_thread(sending.pack, body))
                    assert (outcome.result, outcome.message) == ("success", "")
                await sending.close()
                await until(lambda: len(points(got.body for got in last.got)) >= len(expected))
            return points(got.body for got in last.got)

    assert sorted(map(identity, run(test)), key=str) == sorted(map(identity, expected), key=str)


@pytest.mark.skipif("prometheus" not in collector_components(), reason="no Collector with a Prometheus exporter here")
def test_what_a_collector_serves_to_prometheus_is_what_metrics_serves(tmp_path: Path) -> None:
    published = Node(2, distinct=True).publish()
    rig = Rig(Selection("common", "prometheus"))
    rig.export(published)

    async def test() -> str:
        async with receiver() as last:
            with collector(tmp_path, last.url) as running:
                sending = sender(OtlpEndpoint(endpoint=running.http))
                outcome = await sending.send(sending.pack(rig.requests[0].body))
                assert outcome.result == "success"
                await sending.close()
                await until(lambda: bool(last.got))
                page: bytes = await asyncio.to_thread(lambda: urllib.request.urlopen(running.prometheus).read())
                return page.decode()

    added = {"job", "instance", "otel_scope_name", "otel_scope_version", "otel_scope_schema_url"}
    found = {
        (sample.name, frozenset(pair for pair in sample.labels.items() if pair[0] not in added)): sample.value
        for family in parse_text(run(test))
        for sample in family.samples
        if sample.name.startswith("accel_")
    }
    families = [one for one in published.families if one.schema == "common"]
    expected = {
        (sample.name, frozenset((name, value) for name, value in sample.labels if value)): float(sample.value)
        for sample in read(render(families, Format.TEXT, b""), Format.TEXT)
    }
    assert {(name, frozenset(p for p in pairs if p[1])): value for (name, pairs), value in found.items()} == expected
