"""Publications → OTLP, as bytes.

What depends only on which series there are, is kept while they are: a series' text is parsed once, its attributes are
encoded once, and which points belong to which resource and metric is worked out once per set of series. An export then
packs times and values.
"""

from __future__ import annotations

import logging
import math
import operator
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Final, Literal

import msgspec

from collectors.base import Labels
from exporter.exposition_text import number
from exporter.families import Block, Family, Publication, parse_labels
from exporter.model import Allocation, MetricType, Number
from exporter.otlp import wire
from exporter.otlp.adapt import Adapter
from exporter.otlp.batch import Batch, Request
from exporter.otlp.names import MEMORY_UTILIZATION, Instrument, conventional, plain, raw
from exporter.otlp.resource import Resource, Resources
from exporter.otlp.streams import Owner, Stream, Streams
from exporter.schema import METRICS, WORKLOAD

log = logging.getLogger(__name__)

SLICE: Final = 500
"""Points after which others have their turn: about half a millisecond."""

# NumberDataPoint: start_time = 2, time = 3, as_double = 4, as_int = 6, attributes = 7, flags = 8.
_START, _TIME, _AS_DOUBLE, _AS_INT = b"\x11", b"\x19", b"\x21", b"\x31"
_NO_RECORDED_VALUE: Final = b"\x40\x01"
_FIXED: Final = 18
"""Bytes of time and value."""
_LARGE: Final = 2**63 - 1
"""The largest whole number of a point; beyond it there is the double."""
_METRICS: Final = {**METRICS, MEMORY_UTILIZATION.name: MEMORY_UTILIZATION}


class Selection(msgspec.Struct, frozen=True):
    """What of a publication a receiver is sent."""

    schema: Literal["common", "raw", "both"] = "common"
    names: Literal["conventions", "prometheus"] = "conventions"
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    def takes(self, name: str) -> bool:
        """Whether the metric of this name on /metrics is wanted."""
        included = not self.include or any(fnmatchcase(name, pattern) for pattern in self.include)
        return included and not any(fnmatchcase(name, pattern) for pattern in self.exclude)


class _Row(msgspec.Struct, frozen=True, eq=False):
    """What one series' text means."""

    instrument: Instrument
    attributes: bytes
    workload: Labels
    """The labels that name its workload; empty where it has none."""
    device: Owner
    """uuid and partition; empty where the series is of no device."""
    charged: bool
    """Bears the labels of the workload that has the device, whoever that is."""
    key: object
    """The series, whatever the workload."""


class _Segment(msgspec.Struct, frozen=True, eq=False):
    """Points of one block that go to the same metric of the same resource."""

    resource: Resource
    instrument: Instrument
    pick: Callable[[Sequence[Number]], tuple[Number, ...]] | None
    heads: tuple[bytes, ...]
    """Key, length and attributes of each point."""
    streams: tuple[Stream, ...] | None


_Layout = tuple[tuple[tuple[str, ...], bool], ...]
_Alive = Mapping[str, tuple[Resource, _Row]]


class _Kept(msgspec.Struct, frozen=True, eq=False):
    """What follows from the series of a family."""

    layout: _Layout
    allocation: Allocation | None
    blocks: tuple[tuple[_Segment, ...], ...]
    alive: _Alive


class Encoder:
    """Encodes for one receiver, whose streams it knows. Not to be used by two tasks at once."""

    def __init__(self, resources: Resources, selection: Selection, *, began: int, limit: int) -> None:
        """``began``: when the agent's own counters stood at zero (Unix nanoseconds). ``limit``: bytes of a request."""
        self._resources, self._selection, self._limit = resources, selection, limit
        self._streams = Streams(began)
        self._adapter = Adapter()
        self._kept: dict[str, _Kept] = {}
        self._wanted: dict[str, bool] = {}

    def observe(self, publication: Publication) -> None:
        """To be called with every publication: a workload gets its device between two exports."""
        time = _nanoseconds(publication.made_at)
        if not self._streams.allocated(publication.allocation, time):
            return
        for family in publication.families:
            if family.type != "counter" or family.schema != "common" or not self._takes(family):
                continue
            for block in family.blocks:
                if block.taken_at == 0:
                    for text, value in zip(block.prefixes, block.values, strict=True):
                        row = self._row(family, text)
                        if row is not None and row.charged:
                            resource = self._resource(row, publication.allocation)
                            self._streams.observe(row.key, resource, owner=row.device, value=value, time=time)

    def encode(self, publication: Publication, now: float) -> Generator[None, None, Batch]:
        """The batch of all points; the caller may add its own, and closes it. ``now`` in Unix seconds."""
        self.observe(publication)
        batch = Batch(self._limit)
        families: Iterable[Family] = publication.families
        if self._selection.names == "conventions":
            families = self._adapter.adapt(publication.families)
        made_at = publication.made_at or now
        before, now_kept = self._kept, dict[str, _Kept]()
        pending = 0
        for family in families:
            if not self._takes(family):
                continue
            kept = self._compiled(family, before.get(family.name), publication.allocation)
            now_kept[family.name] = kept
            if (old := before.get(family.name)) is not None and old is not kept:
                self._ended(batch, old.alive, kept.alive, made_at)
            for block, segments in zip(family.blocks, kept.blocks, strict=True):
                time = _nanoseconds(block.taken_at or made_at)
                for segment in segments:
                    pending += _add(batch, segment, block.values, time)
                    if pending >= SLICE:
                        pending = 0
                        yield
        for name in before.keys() - now_kept.keys():
            self._ended(batch, before[name].alive, {}, made_at)
        self._kept = now_kept
        self._resources.forget({resource for kept in self._kept.values() for resource, _ in kept.alive.values()})
        return batch

    def _takes(self, family: Family) -> bool:
        wanted = self._wanted.get(family.name)
        if wanted is None:
            schema = self._selection.schema in ("both", family.schema)
            wanted = self._wanted[family.name] = schema and self._selection.takes(family.name)
        return wanted

    def _compiled(self, family: Family, kept: _Kept | None, allocation: Allocation | None) -> _Kept:
        layout = tuple([(block.prefixes, block.taken_at == 0) for block in family.blocks])
        # Tuples that are the same objects compare without a look at what is in them.
        if kept is not None and kept.allocation is allocation and kept.layout == layout:
            return kept
        known = kept.alive if kept is not None else {}
        alive: dict[str, tuple[Resource, _Row]] = {}
        blocks = []
        for block in family.blocks:
            gathered: dict[tuple[Resource, Instrument], list[tuple[int, _Row]]] = {}
            for index, text in enumerate(block.prefixes):
                if text in alive:
                    continue
                row = known[text][1] if text in known else self._row(family, text)
                if row is not None:
                    resource = self._resource(row, allocation)
                    alive[text] = resource, row
                    gathered.setdefault((resource, row.instrument), []).append((index, row))
            blocks.append(tuple(self._segment(*key, rows, block) for key, rows in gathered.items()))
        return _Kept(layout, allocation, tuple(blocks), alive)

    def _row(self, family: Family, text: str) -> _Row | None:
        """None: the conventions say it otherwise."""
        labels = parse_labels(text)
        if family.schema == "raw":
            return _Row(raw(family), wire.attributes(7, labels.items()), (), ("", ""), False, text)
        metric = _METRICS[family.name]
        point = conventional(metric, labels) if self._selection.names == "conventions" else plain(metric, labels)
        if point is None:
            return None
        workload = tuple((name, value) for name, value in labels.items() if name in WORKLOAD)
        own = "namespace" in metric.labels
        rest = tuple(pair for pair in labels.items() if own or pair not in workload)
        named = workload if any(value for _, value in workload) else ()
        device = (labels.get("uuid", ""), labels.get("partition", ""))
        charged = bool(workload) and not own
        attributes = wire.attributes(7, point.attributes)
        return _Row(point.instrument, attributes, named, device, charged, (family.name, rest))

    def _resource(self, row: _Row, allocation: Allocation | None) -> Resource:
        if not row.workload:
            return self._resources.node
        found = allocation.get(row.device, ()) if allocation is not None else ()
        return self._resources.workload(row.workload, found)

    def _segment(
        self, resource: Resource, instrument: Instrument, rows: Sequence[tuple[int, _Row]], block: Block
    ) -> _Segment:
        counter = instrument.kind == "counter"
        fixed = _FIXED + 9 * counter
        streams = None
        if counter:
            own = block.taken_at == 0
            streams = tuple(
                self._streams.get(row.key, resource, owner=row.device if row.charged else None, own=own)
                for _, row in rows
            )
        return _Segment(
            resource,
            instrument,
            None if len(rows) == len(block.prefixes) else _picker([index for index, _ in rows]),
            tuple(b"\x0a" + wire.varint(len(row.attributes) + fixed) + row.attributes for _, row in rows),
            streams,
        )

    def _ended(self, batch: Batch, before: _Alive, now: _Alive, made_at: float) -> None:
        """One last point without a value for each series that is gone: a receiver need not wait until it is stale."""
        ending = _TIME + wire.FIXED64(_nanoseconds(made_at)) + _NO_RECORDED_VALUE
        for text, (resource, row) in before.items():
            there = now.get(text)
            if there is None:
                self._streams.drop(row.key)
            if there is None or there[0] is not resource:
                batch.add(resource, row.instrument, wire.field(1, row.attributes + ending), 1)


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 1e6) * 1000


def _picker(indices: Sequence[int]) -> Callable[[Sequence[Number]], tuple[Number, ...]]:
    if len(indices) == 1:
        only = indices[0]
        return lambda values: (values[only],)
    return operator.itemgetter(*indices)


def _add(batch: Batch, segment: _Segment, values: Sequence[Number], time: int) -> int:
    """Put a segment's points into the batch. Returns how many there are."""
    heads, streams = segment.heads, segment.streams
    chosen = values if segment.pick is None else segment.pick(values)
    keep = _fitting(chosen, "counter" if streams is not None else "gauge")
    if keep is not None:
        heads = tuple([heads[index] for index in keep])
        streams = tuple([streams[index] for index in keep]) if streams is not None else None
        chosen = tuple([chosen[index] for index in keep])
    count = len(heads)
    if not count:
        return 0
    # Parts of all points are set side by side, for that is the fastest way to join them.
    size = 3 if streams is None else 4
    parts = [b""] * (size * count)
    parts[0::size] = heads
    starts: list[tuple[Stream, int]] = []
    if streams is not None:
        begun = [stream.point(value, time) for stream, value in zip(streams, chosen, strict=True)]
        starts = [(stream, time) for stream in streams if stream.start is None]
        parts[1::size] = [_START + wire.FIXED64(start) for start in begun]
    clock = _TIME + wire.FIXED64(time)
    if (
        segment.instrument.integer
        and set(map(type, chosen)) == {int}
        and -_LARGE <= min(chosen) <= max(chosen) <= _LARGE
    ):
        parts[size - 2 :: size] = [clock + _AS_INT] * count
        parts[size - 1 :: size] = map(wire.SFIXED64, chosen)
    else:
        parts[size - 2 :: size] = [clock + _AS_DOUBLE] * count
        parts[size - 1 :: size] = map(wire.DOUBLE, chosen)
    batch.add(segment.resource, segment.instrument, b"".join(parts), count, starts)
    return count


def _fitting(values: Sequence[Number], kind: MetricType) -> list[int] | None:
    """Positions of the values that /metrics shows, too; None: all of them. NaN, for one, does not say 'missing'."""
    try:
        if all(map(math.isfinite, values)) and (kind != "counter" or min(values, default=0) >= 0):
            return None
    except OverflowError:
        log.debug("a value is larger than any float")
    return [index for index, value in enumerate(values) if number(value, kind) is not None]


def run(steps: Generator[None, None, Batch]) -> list[Request]:
    """Encode without giving way."""
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            batch: Batch = stop.value
            batch.close()
            return batch.requests
