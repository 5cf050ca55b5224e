"""Encoding for OTLP, beside the generated classes of opentelemetry-proto filled with the same points."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any, Final

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from benchmarks.measure import median
from benchmarks.pipeline import Node, devices_for
from benchmarks.table import Row, Subject
from exporter.otlp.encode import Encoder, Selection
from exporter.otlp.encode import run as encode
from exporter.otlp.resource import Resources

TARGET: Final = 3.0
LIMIT: Final = 3 * 1024 * 1024


def run(*, quick: bool) -> Subject:
    """Microseconds a point: the first time, and again with other values."""
    rows: list[Row] = []
    for wanted in (5_000,) if quick else (5_000, 50_000):
        rows += _measure(wanted, repeats=3 if quick else 7)
    return Subject(
        "Encoding for OTLP, beside the classes of opentelemetry-proto",
        rows,
        ("OTLP: both write the same points; the classes have to be filled anew each time.",),
    )


def _measure(wanted: int, repeats: int) -> Iterable[Row]:
    node = Node(devices_for(wanted), distinct=True)
    encoder = _encoder()
    first: list[float] = []
    again: list[float] = []
    theirs: list[float] = []
    points = 0
    encode(encoder.encode(node.publish(), time.time()))
    for _ in range(repeats):
        node.take("normal", "slow")
        publication = node.publish()
        began = time.thread_time()
        encode(_encoder().encode(publication, time.time()))
        first.append(time.thread_time() - began)
        began = time.thread_time()
        requests = encode(encoder.encode(publication, time.time()))
        again.append(time.thread_time() - began)
        bodies = [request.body for request in requests]
        points = sum(request.points for request in requests)
        theirs.append(_reference(bodies))
    scale = 1e6 / points
    for name, seconds in (("first", first), ("again", again)):
        yield Row(
            what=f"OTLP, {points:,} points, {name}",
            value=median(seconds) * scale,
            unit="µs/point",
            below=TARGET if name == "again" else None,
            beside="opentelemetry-proto",
            other=median(theirs) * scale,
        )


def _encoder() -> Encoder:
    return Encoder(Resources({"service.name": "benchmark"}), Selection("both"), began=0, limit=LIMIT)


def _reference(bodies: Sequence[bytes]) -> float:
    """Seconds that filling and writing the generated classes takes. Raises RuntimeError if they say something else."""
    read = [ExportMetricsServiceRequest.FromString(body) for body in bodies]
    plain = [[_plain(metrics) for metrics in request.resource_metrics] for request in read]
    began = time.thread_time()
    written = [_written(resources) for resources in plain]
    seconds = time.thread_time() - began
    if [ExportMetricsServiceRequest.FromString(data) for data in written] != read:
        raise RuntimeError("the two encoders were not given the same")
    return seconds


def _plain(metrics: Any) -> tuple[list[Any], Any, list[Any]]:
    """What a program has that fills the classes: attributes, scope, and its points as plain values."""
    (scope,) = metrics.scope_metrics
    found = []
    for metric in scope.metrics:
        data = metric.WhichOneof("data")
        points = [
            (
                [(pair.key, pair.value.string_value) for pair in point.attributes],
                point.start_time_unix_nano,
                point.time_unix_nano,
                getattr(point, point.WhichOneof("value")),
            )
            for point in getattr(metric, data).data_points
        ]
        monotonic = data == "sum" and metric.sum.is_monotonic
        found.append((metric.name, metric.description, metric.unit, data, monotonic, points))
    attributes = [(pair.key, pair.value.string_value) for pair in metrics.resource.attributes]
    return attributes, (scope.scope.name, scope.scope.version), found


def _written(resources: Sequence[tuple[list[Any], Any, list[Any]]]) -> bytes:
    request = ExportMetricsServiceRequest()
    for attributes, (name, version), metrics in resources:
        target = request.resource_metrics.add()
        for key, value in attributes:
            target.resource.attributes.add(key=key).value.string_value = value
        scope = target.scope_metrics.add()
        scope.scope.name, scope.scope.version = name, version
        for metric in metrics:
            _fill(scope.metrics.add(), *metric)
    return request.SerializeToString()


def _fill(target: Any, name: str, text: str, unit: str, data: str, monotonic: bool, points: Sequence[Any]) -> None:
    target.name, target.description, target.unit = name, text, unit
    body = getattr(target, data)
    if data == "sum":
        body.aggregation_temporality = 2
        body.is_monotonic = monotonic
    for attributes, start, moment, value in points:
        point = body.data_points.add(start_time_unix_nano=start, time_unix_nano=moment)
        for key, text_value in attributes:
            point.attributes.add(key=key).value.string_value = text_value
        if isinstance(value, int):
            point.as_int = value
        else:
            point.as_double = value
