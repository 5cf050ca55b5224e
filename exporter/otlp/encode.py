"""Publications → OTLP, as bytes.

What depends only on which series there are, is kept while they are: a series' text is parsed once, its attributes are
encoded once, and which points belong to which resource and metric is worked out once per set of series. An export then
packs times and values.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Final, Literal

import msgspec

from collectors.base import Labels
from exporter.families import Block, Family, Publication, parse_labels
from exporter.model import Allocation
from exporter.otlp import wire
from exporter.otlp.adapt import Adapter
from exporter.otlp.batch import Batch, Request
from exporter.otlp.names import MEMORY_UTILIZATION, Instrument, conventional, plain, raw
from exporter.otlp.points import Points, Share, add, ended, head, picker
from exporter.otlp.resource import Resource, Resources
from exporter.otlp.streams import Owner, Stream, Streams
from exporter.schema import METRICS, WORKLOAD

SLICE: Final = 500
"""Points after which others have their turn: about half a millisecond."""
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


_Placed = tuple[int, _Row]
"""A row and its position in the block."""
_Layout = tuple[tuple[tuple[str, ...], bool], ...]
_Alive = Mapping[str, tuple[Resource, _Row]]


class _Kept(msgspec.Struct, frozen=True, eq=False):
    """What follows from the series of a family."""

    layout: _Layout
    allocation: Allocation | None
    blocks: tuple[Points, ...]
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
        self._raw: dict[str, Instrument] = {}

    def observe(self, publication: Publication) -> None:
        """To be called with every publication: a workload gets its device between two exports."""
        if not publication.made_at:
            # Not made of anything: nobody was asked who works on the devices.
            return
        time = _nanoseconds(publication.made_at)
        changed = self._streams.allocated(publication.allocation, time)
        if not changed:
            return
        for family in publication.families:
            if family.type != "counter" or not self._takes(family):
                continue
            for block in family.blocks:
                if _own(family, block):
                    for text, value in zip(block.prefixes, block.values, strict=True):
                        row = self._row(family, text)
                        if row is not None and row.charged and row.device in changed:
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
            for block, known in zip(family.blocks, kept.blocks, strict=True):
                pending += add(batch, known, block.values, _nanoseconds(block.taken_at or made_at))
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
        layout = tuple([(block.prefixes, _own(family, block)) for block in family.blocks])
        # Tuples that are the same objects compare without a look at what is in them.
        if kept is not None and kept.allocation is allocation and kept.layout == layout:
            return kept
        known = kept.alive if kept is not None else {}
        alive: dict[str, tuple[Resource, _Row]] = {}
        blocks = []
        for block in family.blocks:
            gathered: dict[tuple[Resource, Instrument], list[_Placed]] = {}
            for index, text in enumerate(block.prefixes):
                if text in alive:
                    continue
                row = known[text][1] if text in known else self._row(family, text)
                if row is not None:
                    resource = self._resource(row, allocation)
                    alive[text] = resource, row
                    gathered.setdefault((resource, row.instrument), []).append((index, row))
            blocks.append(self._points(gathered, len(block.prefixes), own=_own(family, block)))
        return _Kept(layout, allocation, tuple(blocks), alive)

    def _row(self, family: Family, text: str) -> _Row | None:
        """None: the conventions say it otherwise."""
        labels = parse_labels(text)
        if family.schema == "raw":
            instrument = self._raw.get(family.name) or self._raw.setdefault(family.name, raw(family))
            return _Row(instrument, wire.attributes(7, labels.items()), (), ("", ""), False, text)
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

    def _points(
        self, rows: Mapping[tuple[Resource, Instrument], Sequence[_Placed]], whole: int, *, own: bool
    ) -> Points:
        """``whole``: how many series the block has."""
        shares: list[Share] = []
        indices: list[int] = []
        heads: list[bytes] = []
        streams: list[Stream] = []
        counter = integer = False
        for (resource, instrument), placed in rows.items():
            counter, integer = instrument.kind == "counter", instrument.integer
            for index, row in placed:
                indices.append(index)
                heads.append(head(row.attributes, counter=counter))
                if counter:
                    owner = row.device if row.charged else None
                    streams.append(self._streams.get(row.key, resource, owner=owner, own=own))
            shares.append(Share(resource, instrument, len(indices)))
        pick = picker(indices, whole)
        return Points(pick, tuple(heads), tuple(shares), integer, tuple(streams) if counter else None)

    def _ended(self, batch: Batch, before: _Alive, now: _Alive, made_at: float) -> None:
        """One last point without a value for each series that is gone: a receiver need not wait until it is stale."""
        time = _nanoseconds(made_at)
        for text, (resource, row) in before.items():
            there = now.get(text)
            if there is None or there[0] is not resource:
                self._streams.drop(row.key, resource)
                batch.add(resource, row.instrument, ended(row.attributes, time), 1)


def _own(family: Family, block: Block) -> bool:
    """Whether the agent itself counts, so that it knows when there was nothing."""
    return block.taken_at == 0 and family.schema == "common"


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 1e6) * 1000


def run(steps: Generator[None, None, Batch]) -> list[Request]:
    """Encode without giving way."""
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            batch: Batch = stop.value
            batch.close()
            return batch.requests
