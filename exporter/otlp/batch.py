"""Encoded points → requests of a bounded size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from exporter import __version__
from exporter.otlp import wire
from exporter.otlp.names import Instrument
from exporter.otlp.resource import SERVICE, Resource
from exporter.otlp.streams import Stream

Starts = Sequence[tuple[Stream, int]]
"""Counters whose start time holds once a receiver has taken their points, with the times of these."""

_SCOPE: Final = wire.field(1, wire.text(1, SERVICE) + wire.text(2, __version__))
_DATA: Final = {"gauge": 5, "sum": 7, "counter": 7, "histogram": 9}
"""Field of a Metric by kind."""
_CUMULATIVE: Final = b"\x10\x02"
_MORE: Final = {
    "gauge": b"",
    "sum": _CUMULATIVE,
    "counter": _CUMULATIVE + b"\x18\x01",
    "histogram": _CUMULATIVE,
}
"""What follows the points: aggregation_temporality = 2, is_monotonic = 3."""
_OVERHEAD: Final = 16
"""Bytes of keys and lengths around a metric, at most."""


class Request(msgspec.Struct, frozen=True, eq=False):
    """An ExportMetricsServiceRequest."""

    body: bytes
    points: int
    starts: Starts = ()


class Batch:
    """Gathers points and makes requests of them. ``limit``: bytes of a request."""

    def __init__(self, limit: int) -> None:
        self.requests: list[Request] = []
        self._limit = limit
        self._begin()

    def _begin(self) -> None:
        self._found: dict[Resource, dict[Instrument, list[bytes]]] = {}
        self._size = self._points = 0
        self._starts: list[tuple[Stream, int]] = []

    def add(self, resource: Resource, instrument: Instrument, data: bytes, points: int, starts: Starts = ()) -> None:
        """``data``: the points, each behind its key and length."""
        metrics = self._found.get(resource)
        parts = metrics.get(instrument) if metrics is not None else None
        size = len(data) if parts is not None else len(data) + self._around(resource, instrument)
        if self._size and self._size + size > self._limit:
            self.close()
            parts, size = None, len(data) + self._around(resource, instrument)
        if parts is None:
            parts = self._found.setdefault(resource, {}).setdefault(instrument, [])
        parts.append(data)
        self._size += size
        self._points += points
        self._starts += starts

    def close(self) -> None:
        """Make a request of what is left."""
        if self._points:
            body = b"".join([wire.field(1, _resource(*item)) for item in self._found.items()])
            self.requests.append(Request(body, self._points, self._starts))
        self._begin()

    def _around(self, resource: Resource, instrument: Instrument) -> int:
        """Bytes of a metric without points, and of its resource if that is new, at most."""
        # Characters of a description can take four bytes.
        size = len(instrument.name) + 4 * len(instrument.description) + len(instrument.unit) + _OVERHEAD
        return size if resource in self._found else size + len(resource.encoded) + len(_SCOPE) + _OVERHEAD


def _resource(resource: Resource, metrics: dict[Instrument, list[bytes]]) -> bytes:
    """A ResourceMetrics: resource = 1, scope_metrics = 2 (scope = 1, metrics = 2)."""
    encoded = [wire.field(2, _metric(instrument, parts)) for instrument, parts in metrics.items()]
    return resource.encoded + wire.field(2, _SCOPE + b"".join(encoded))


def _metric(instrument: Instrument, parts: list[bytes]) -> bytes:
    """A Metric: name = 1, description = 2, unit = 3."""
    kind = instrument.kind
    head = wire.text(1, instrument.name) + wire.text(2, instrument.description) + wire.text(3, instrument.unit)
    return head + wire.field(_DATA[kind], b"".join(parts) + _MORE[kind])
