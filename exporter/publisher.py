"""Snapshots of all collectors → what a scrape sees."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from exporter.derived import Book, derive, reporting, source_blocks
from exporter.families import Block, Family, Publication, prefix
from exporter.faults import Owner
from exporter.model import Attributed, SeriesId, Snapshot
from exporter.normalize import Plan
from exporter.schema import METRICS
from exporter.view import Blocks, Header, View, vendor_labels

log = logging.getLogger(__name__)


class CollectorStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What the supervisor knows of one collector."""

    name: str
    view: View
    snapshot: Snapshot | None
    present: int | None = None
    """Devices on the bus; None where the bus does not tell."""
    expected: int | None = None
    """Devices that the configuration expects."""


class _Given(msgspec.Struct, frozen=True):
    """What the collectors of one vendor have given so far: a common series has one source."""

    series: frozenset[SeriesId] = frozenset()
    devices: frozenset[tuple[str, str]] = frozenset()


NOTHING = _Given()


class _Made(msgspec.Struct, frozen=True):
    """The series of one collector."""

    blocks: tuple[Blocks, ...]
    plan: Plan
    repeated: int


class Publisher:
    """Makes publications, one after the other."""

    def __init__(self, book: Book, dropped: Callable[[str, int], None]) -> None:
        """``dropped(reason, count)`` is told how many series are left out of each publication."""
        self._book = book
        self._dropped = dropped
        self.broken: dict[str, str] = {}
        """Collectors of which nothing is in the last publication, since it could not be made → why."""
        self._version = 0
        self._seen: dict[str, int] = {}

    def publish(
        self,
        collectors: Sequence[CollectorStatus],
        attributed: Attributed | None,
        *,
        now: float,
        monotonic: float,
    ) -> Publication:
        """``now`` in Unix seconds, ``monotonic`` on the clock of ``GroupSample.taken_monotonic``."""
        self._version += 1
        allocation = attributed.allocation if attributed is not None else None
        merged: Blocks = {}
        headers: dict[str, Header] = {}
        given: dict[str, _Given] = {}
        broken: dict[str, str] = {}
        duplicates = 0
        for status in collectors:
            snapshot = status.snapshot
            if snapshot is None:
                continue
            before = given.get(snapshot.vendor, NOTHING)
            try:
                made = self._made(status.view, snapshot, attributed, before, now=now, monotonic=monotonic)
            except Exception as error:
                # What is wrong with one vendor's numbers or tables takes no other's along.
                if status.name not in self.broken:
                    log.exception("no series of this collector can be made", extra={"collector": status.name})
                broken[status.name] = repr(error)
                continue
            for header in status.view.headers.values():
                headers.setdefault(header.name, header)
            duplicates += made.repeated + sum(_merge(merged, blocks) for blocks in made.blocks)
            if sum(other.view.catalogue.collector.vendor == snapshot.vendor for other in collectors) > 1:
                given[snapshot.vendor] = _Given(
                    before.series | frozenset(made.plan.sources),
                    before.devices | {(device.uuid, device.partition) for device in snapshot.devices},
                )
        self.broken = broken
        self._book.keep(_owners(collectors))
        for name, block in self._counts(collectors, monotonic):
            duplicates += _merge(merged, {name: [block]})
        self._dropped("duplicate", duplicates)
        return Publication(self._version, tuple(_families(merged, headers)), now, allocation)

    def _made(
        self,
        view: View,
        snapshot: Snapshot,
        attributed: Attributed | None,
        before: _Given,
        *,
        now: float,
        monotonic: float,
    ) -> _Made:
        """All series of one collector, but for those that another of the same vendor has given ``before``."""
        allocation = attributed.allocation if attributed is not None else None
        blocks, plan, repeated = view.update(snapshot, allocation, before.series, monotonic)
        if not view.options.common:
            return _Made((blocks,), plan, repeated)
        if snapshot.bridged:
            self._book.observe(view.catalogue, snapshot, now=now, monotonic=monotonic)
        derived = derive(
            view, snapshot, plan, self._book, attributed, covered=before.devices, now=now, monotonic=monotonic
        )
        sources = source_blocks(snapshot.vendor, view.options.node, plan, snapshot.source)
        return _Made((blocks, derived, sources), plan, repeated)

    def _counts(self, collectors: Sequence[CollectorStatus], monotonic: float) -> Iterable[tuple[str, Block]]:
        """Devices present, reporting and expected, by vendor."""
        counts: dict[str, dict[str, int]] = {}
        nodes: dict[str, str] = {}
        for status in collectors:
            vendor = status.view.catalogue.collector.vendor
            nodes[vendor] = status.view.options.node
            snapshot = status.snapshot
            if snapshot is None and not status.present:
                continue
            entry = counts.setdefault(vendor, {"reporting": 0, "expected": 0})
            if status.present is not None:
                entry["present"] = max(entry.get("present", 0), status.present)
            reporting = reporting_devices(status.view, snapshot, monotonic) if snapshot else 0
            entry["reporting"] = max(entry["reporting"], reporting)
            seen = max(self._seen.get(vendor, 0), status.present or 0, entry["reporting"])
            self._seen[vendor] = seen
            entry["expected"] = max(entry["expected"], seen if status.expected is None else status.expected)
        for name in ("present", "reporting", "expected"):
            rows = [(vendor, entry[name]) for vendor, entry in counts.items() if name in entry]
            metric = f"accel_devices_{name}"
            if rows:
                yield (
                    metric,
                    Block(
                        tuple(prefix(metric, vendor_labels(vendor, nodes[vendor])) for vendor, _ in rows),
                        tuple(count for _, count in rows),
                    ),
                )


def _owners(collectors: Sequence[CollectorStatus]) -> set[Owner]:
    """All devices and parts that any collector found last."""
    return {
        (snapshot.vendor, device.uuid, device.partition)
        for status in collectors
        if (snapshot := status.snapshot) is not None
        for device in snapshot.devices
    }


def reporting_devices(view: View, snapshot: Snapshot, monotonic: float) -> int:
    """Whole devices that gave a sample which is not stale, themselves or through their parts."""
    lost = {snapshot.devices[position].uuid for position in snapshot.lost if not snapshot.devices[position].partition}
    return len({snapshot.devices[position].uuid for position in reporting(view, snapshot, monotonic)} - lost)


def _merge(merged: Blocks, blocks: Mapping[str, list[Block]]) -> int:
    """Add blocks to their families. A series that another collector gave already is left out; returns how many were."""
    repeated = 0
    for name, added in blocks.items():
        present = merged.setdefault(name, [])
        if present:
            seen = {text for block in present for text in block.prefixes}
            if any(text in seen for block in added for text in block.prefixes):
                for block in added:
                    kept = [row for row in zip(block.prefixes, block.values, strict=True) if row[0] not in seen]
                    repeated += len(block.prefixes) - len(kept)
                    texts, values = tuple(text for text, _ in kept), tuple(value for _, value in kept)
                    present.append(Block(texts, values, block.taken_at))
                continue
        present.extend(added)
    return repeated


def _families(merged: Blocks, headers: Mapping[str, Header]) -> Iterable[Family]:
    """The common families in the schema's order, then the raw ones in that of the catalogues."""
    for name, metric in METRICS.items():
        if merged.get(name):
            yield Family(name, metric.type, metric.help, "common", tuple(merged[name]))
    for name, header in headers.items():
        if merged.get(name) and name not in METRICS:
            yield Family(name, header.type, header.help, "raw", tuple(merged[name]))
