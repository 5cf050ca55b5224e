"""libtpu's metric service: a real gRPC server that speaks runtime_metrics.proto through the protobuf runtime."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import grpc

import collectors
from tests import protos
from tests.grpc_servers import grpc_server

PROTO: Final = Path(collectors.__path__[0]) / "tpu/runtime_metrics.proto"
PACKAGE: Final = "tpu.monitoring.runtime"
GET: Final = f"/{PACKAGE}.RuntimeMetricService/GetRuntimeMetric"
LIST: Final = f"/{PACKAGE}.RuntimeMetricService/ListSupportedMetrics"

DUTY: Final = "tpu.runtime.tensorcore.dutycycle.percent"
TOTAL: Final = "tpu.runtime.hbm.memory.total.bytes"
USED: Final = "tpu.runtime.hbm.memory.usage.bytes"


def message(name: str) -> Any:
    """The class of a message, by its name in the package."""
    return protos.message(PROTO, f"{PACKAGE}.{name}")


@dataclass(frozen=True, slots=True)
class Buckets:
    """A distribution. ``options``: fields of BucketOptions."""

    mean: float
    counts: Sequence[int]
    options: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Value:
    """One value of a metric. ``attributes``: one of them stands alone, several come as a list."""

    value: int | float | str | Buckets
    attributes: Mapping[str, int | str] = field(default_factory=dict)
    counter: bool = False


Metrics = Mapping[str, Sequence[Value]]


def by_device(values: Mapping[int, int | float], key: str = "device-id") -> list[Value]:
    """A metric with one value for each device."""
    return [Value(value, {key: device}) for device, value in values.items()]


class Runtime:
    """One process with libtpu. Its state may be changed while it serves."""

    def __init__(self, metrics: Metrics) -> None:
        self.metrics = dict(metrics)
        self.listed: list[str] | None = None
        """What it says to have; None: what it has."""
        self.can_list = True
        self.failures: dict[str, grpc.StatusCode] = {}
        """Metric → how asking for it fails."""
        self.hold = threading.Event()
        """Calls wait until it is set."""
        self.hold.set()
        self.raw: dict[str, bytes] = {}
        """Metric → the bytes of its answer, whatever they are."""
        self.asked: list[str] = []
        """The metrics that were asked for."""
        self.lists = 0

    def get(self, data: bytes, context: grpc.ServicerContext) -> bytes:
        self.hold.wait(30)
        name = message("MetricRequest").FromString(data).metric_name
        self.asked.append(name)
        if name in self.failures:
            context.abort(self.failures[name], f"{name} fails")
        if name in self.raw:
            return self.raw[name]
        if name not in self.metrics:
            context.abort(grpc.StatusCode.NOT_FOUND, f"{name} is unknown")
        answer = message("MetricResponse")()
        answer.metric.name = name
        for value in self.metrics[name]:
            _fill(answer.metric.metrics.add(), value)
        return bytes(answer.SerializeToString())

    def list(self, _: bytes, context: grpc.ServicerContext) -> bytes:
        self.hold.wait(30)
        self.lists += 1
        if not self.can_list:
            context.abort(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")
        answer = message("ListSupportedMetricsResponse")()
        for name in self.metrics if self.listed is None else self.listed:
            answer.supported_metric.add().metric_name = name
        return bytes(answer.SerializeToString())


def _fill(metric: Any, value: Value) -> None:
    metric.timestamp.seconds = 1_700_000_000
    if len(value.attributes) == 1:
        [(key, attribute)] = value.attributes.items()
        metric.attribute.key = key
        _set(metric.attribute.value, attribute)
    for key, attribute in value.attributes.items() if len(value.attributes) > 1 else ():
        metric.attribute.key = "labels"
        inner = metric.attribute.value.kvlist_attr.attributes.add()
        inner.key = key
        _set(inner.value, attribute)
    if isinstance(value.value, Buckets):
        _distribute(metric.distribution, value.value)
        return
    number = metric.counter if value.counter else metric.gauge
    if isinstance(value.value, str):
        number.as_string = value.value
    elif isinstance(value.value, int):
        number.as_int = value.value
    else:
        number.as_double = value.value


def _set(target: Any, value: int | str) -> None:
    if isinstance(value, str):
        target.string_attr = value
    else:
        target.int_attr = value


def _distribute(target: Any, found: Buckets) -> None:
    target.count = sum(found.counts)
    target.mean = found.mean
    for name, fields in found.options.items():
        options = getattr(target.bucket_options, name)
        for key, value in fields.items():
            if isinstance(value, list):
                getattr(options, key).extend(value)
            else:
                setattr(options, key, value)
    target.bucket_counts.extend(found.counts)


@contextmanager
def serve(runtime: Runtime, address: str = "127.0.0.1:0") -> Iterator[str]:
    """The runtime's service; gives its address."""
    with grpc_server({GET: runtime.get, LIST: runtime.list}, address) as where:
        try:
            yield where
        finally:
            runtime.hold.set()


def usual(devices: Mapping[int, tuple[float, int, int]]) -> dict[str, Sequence[Value]]:
    """Duty cycle (percent), used and total memory (bytes) of each device, as every version tells them."""
    return {
        DUTY: by_device({device: float(duty) for device, (duty, _, _) in devices.items()}),
        USED: by_device({device: used for device, (_, used, _) in devices.items()}),
        TOTAL: by_device({device: total for device, (_, _, total) in devices.items()}),
    }
