"""Reads OTLP requests with the generated classes of opentelemetry-proto, and translates names as Prometheus does."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue

CUMULATIVE: Final = 2
NO_RECORDED_VALUE: Final = 1
Pairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Point:
    """One point with all that identifies it. Times in Unix nanoseconds; ``value`` None: no recorded value."""

    resource: Mapping[str, Any]
    name: str
    unit: str
    kind: str
    description: str
    attributes: Mapping[str, str]
    value: int | float | None
    start: int
    time: int

    @property
    def labels(self) -> Pairs:
        return tuple(sorted(self.attributes.items()))


def value_of(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [value_of(item) for item in value.array_value.values]
    return getattr(value, kind) if kind else None


def parse(body: bytes) -> ExportMetricsServiceRequest:
    request = ExportMetricsServiceRequest()
    request.ParseFromString(body)
    return request


def points(bodies: Iterable[bytes]) -> list[Point]:
    """The number points of requests, in their order. Sums are cumulative, or this fails."""
    found: list[Point] = []
    for body in bodies:
        for resource_metrics in parse(body).resource_metrics:
            resource = {pair.key: value_of(pair.value) for pair in resource_metrics.resource.attributes}
            for scope in resource_metrics.scope_metrics:
                assert scope.scope.name == "accel-exporter"
                assert scope.scope.version
                for metric in scope.metrics:
                    found += _of_metric(resource, metric)
    return found


def _of_metric(resource: Mapping[str, Any], metric: Any) -> Iterable[Point]:
    data = metric.WhichOneof("data")
    if data == "histogram":
        assert metric.histogram.aggregation_temporality == CUMULATIVE
        return
    kind = "gauge"
    if data == "sum":
        assert metric.sum.aggregation_temporality == CUMULATIVE
        kind = "counter" if metric.sum.is_monotonic else "sum"
    for point in getattr(metric, data).data_points:
        attributes = {pair.key: value_of(pair.value) for pair in point.attributes}
        assert len(attributes) == len(point.attributes), f"{metric.name}: an attribute stands there twice"
        number = point.WhichOneof("value")
        assert (number is None) == (point.flags == NO_RECORDED_VALUE)
        yield Point(
            resource,
            metric.name,
            metric.unit,
            kind,
            metric.description,
            attributes,
            getattr(point, number) if number else None,
            point.start_time_unix_nano,
            point.time_unix_nano,
        )


def one(found: Sequence[Point], name: str, **attributes: str) -> Point:
    """The only point of this name with these attributes; ``_`` stands for a dot in their names."""
    wanted = {key.replace("_", "."): value for key, value in attributes.items()}
    matching = [
        point
        for point in found
        if point.name == name
        and (wanted.items() <= point.attributes.items() or attributes.items() <= point.attributes.items())
    ]
    assert len(matching) == 1, f"{name} {attributes} is there {len(matching)} times"
    return matching[0]


_UNITS: Final = {
    "s": "seconds", "By": "bytes", "W": "watts", "J": "joules", "Cel": "celsius", "Hz": "hertz", "V": "volts",
    "A": "amperes", "m": "meters", "g": "grams", "%": "percent", "1": "",
}  # fmt: skip


def prometheus_name(name: str, unit: str, kind: str) -> str:
    """The name that Prometheus gives a metric of OTLP.

    What is no letter or digit parts words; the unit's word, and ``per_…`` behind it, are appended unless they are among
    the words; what stands in braces is no unit. Counters end in ``total``, gauges of unit 1 in ``ratio``.
    """
    words = [word for word in re.split(r"[^A-Za-z0-9:]+", name) if word]
    main, _, per = unit.partition("/")
    if main and not set(main) & set("{}"):
        word = _UNITS.get(main, main)
        words += [word] if word and word not in words else []
    if per and not set(per) & set("{}"):
        word = "per_" + {"s": "second"}.get(per, per)
        words += [word] if word not in words else []
    if kind == "counter":
        words = [*(word for word in words if word != "total"), "total"]
    if kind == "gauge" and unit == "1":
        words = [*(word for word in words if word != "ratio"), "ratio"]
    return "_".join(words)


def prometheus_label(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_]", "_", name)
