"""The agent's own metrics, from the registry that /metrics renders, as OTLP points of the node's resource."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric
from prometheus_client.samples import Sample

from exporter.otlp import wire
from exporter.otlp.batch import Batch
from exporter.otlp.encode import Selection
from exporter.otlp.names import Instrument, Kind
from exporter.otlp.resource import Resource

_UNITS: Final = {"seconds": "s", "bytes": "By"}
_PROCESS: Final = {
    "process_cpu_seconds": "process.cpu.time",
    "process_resident_memory_bytes": "process.memory.usage",
    "process_virtual_memory_bytes": "process.memory.virtual",
}
"""Names by the conventions for processes."""
_START: Final = "process_start_time_seconds"
_KINDS: Final[Mapping[str, Kind]] = {"counter": "counter", "gauge": "gauge", "histogram": "histogram"}


def add(batch: Batch, registry: CollectorRegistry, node: Resource, selection: Selection, now: float) -> None:
    """Put all of them into the batch. Their counters stood at zero when the process started."""
    families = list(registry.collect())
    began = next((s.value for family in families for s in family.samples if s.name == _START), now)
    times = struct.pack("<BQBQ", 0x11, _nanoseconds(min(began, now)), 0x19, _nanoseconds(now))
    for family in families:
        counter = "_total" if family.type == "counter" else ""
        if family.type not in _KINDS or not family.samples or not selection.takes(family.name + counter):
            continue
        if family.type == "histogram":
            points = list(_histograms(family.samples, times))
        else:
            points = [_number(sample, times if counter else times[9:]) for sample in family.samples]
        described = instrument(family, conventions=selection.names == "conventions")
        batch.add(node, described, b"".join([wire.field(1, point) for point in points]), len(points))


def instrument(family: Metric, *, conventions: bool) -> Instrument:
    """By the same rule as the common schema: Prometheus makes the name of /metrics out of it."""
    words, _, last = family.name.rpartition("_")
    name, unit = (words, _UNITS[last]) if last in _UNITS else (family.name, "")
    if name.startswith("accel_"):
        name = "accel." + name.removeprefix("accel_")
    elif conventions:
        name = _PROCESS.get(family.name, name)
    return Instrument(name, unit, _KINDS[family.type], family.documentation)


def _number(sample: Sample, times: bytes) -> bytes:
    attributes = wire.attributes(7, sample.labels.items())
    return attributes + times + b"\x21" + wire.DOUBLE(sample.value)


def _histograms(samples: Iterable[Sample], times: bytes) -> Iterator[bytes]:
    """HistogramDataPoints: attributes = 9, count = 4, sum = 5, bucket_counts = 6, explicit_bounds = 7."""
    gathered: dict[tuple[tuple[str, str], ...], list[Sample]] = {}
    for sample in samples:
        labels = tuple(pair for pair in sample.labels.items() if pair[0] != "le")
        gathered.setdefault(labels, []).append(sample)
    for labels, group in gathered.items():
        yield wire.attributes(9, labels) + times + _buckets(group)


def _buckets(samples: Sequence[Sample]) -> bytes:
    """Prometheus' buckets hold all that is not above their bound; those of OTLP what is not in a lower one."""
    bounds = [float(sample.labels["le"]) for sample in samples if "le" in sample.labels]
    upto = [int(sample.value) for sample in samples if "le" in sample.labels]
    counts = [each - before for each, before in zip(upto, [0, *upto], strict=False)]
    total = next(sample.value for sample in samples if sample.name.endswith("_sum"))
    return (
        struct.pack("<BQBd", 0x21, upto[-1], 0x29, total)
        + wire.field(6, struct.pack(f"<{len(counts)}Q", *counts))
        + wire.field(7, struct.pack(f"<{len(bounds) - 1}d", *bounds[:-1]))
    )


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 1e6) * 1000
