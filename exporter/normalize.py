"""Raw readings → common readings. What depends only on which series there are is worked out once, in a plan."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Literal

import msgspec

from collectors.base import NODE, Device, Group, Labels
from exporter.catalogue import Catalogue, Feed, HealthRule, Series
from exporter.model import Exactness, Key, Layout, Number, SeriesId
from exporter.schema import METRICS
from exporter.units import factor

Links = Literal["sum", "each"]
Evaluate = Callable[[Sequence[Number]], Number]
Source = tuple[str, int]
"""A series and the position of one of its feeds."""

COUNTED: Mapping[str, str] = {
    name: counter
    for name in METRICS
    if (counter := name.removesuffix("_per_second") + "_total") != name + "_total" and counter in METRICS
}
"""Rates → the counters that make them needless."""

MAX_SILENT: Final = 10_000
"""Common series of one collector that are remembered while their sources are silent."""

AGGREGATES: Mapping[str, Callable[[Iterable[Number]], Number]] = {"sum": sum, "max": max, "min": min}


class Output(msgspec.Struct, frozen=True, kw_only=True):
    """One common series: where it comes from in a group's values, and how."""

    id: SeriesId
    group: Group
    indices: tuple[int, ...]
    evaluate: Evaluate
    source: str
    exactness: Exactness


class HealthInput(msgspec.Struct, frozen=True):
    """One reading that a health rule looks at."""

    uuid: str
    group: Group
    index: int
    rule: HealthRule


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of a collector's readings, as long as its layouts, devices and lost devices are the same."""

    outputs: tuple[Output, ...]
    health: tuple[HealthInput, ...]
    sources: Mapping[SeriesId, Source]
    """The source that each common series has: handed to the next plan, so that it stays until the next discovery."""


def make_plan(
    catalogue: Catalogue,
    devices: Sequence[Device],
    layouts: Mapping[Group, Layout],
    *,
    lost: frozenset[int] = frozenset(),
    sources: Mapping[SeriesId, Source] | None = None,
    taken: frozenset[SeriesId] = frozenset(),
    links: Links = "sum",
) -> Plan:
    """Find the source of each common series.

    ``sources`` are those of the last plan of the same discovery: they stay, and where one is silent now there is a gap.
    ``taken`` are common series which another collector of the same vendor gives already.
    """
    chosen = dict(sources or {})
    readings = _by_series(catalogue, devices, layouts, lost)
    outputs: list[Output] = []
    for series in catalogue.series.values():
        rows = readings.get(series.name, [])
        for position, feed in enumerate(series.feeds):
            summed = _complete([rows, *(readings.get(name, []) for name in feed.plus)]) if feed.plus else rows
            for output in _outputs(series, feed, summed, devices, links):
                source = (series.name, position)
                if output.id not in taken and chosen.setdefault(output.id, source) == source:
                    outputs.append(output)
    if len(chosen) > MAX_SILENT + len(outputs):
        # Labels that are never the same again would be remembered for ever.
        chosen = {output.id: chosen[output.id] for output in outputs}
    health = tuple(
        HealthInput(devices[key.device].uuid, group, index, rule)
        for rule in catalogue.collector.health
        for group, index, key in readings.get(rule.series, [])
        if key.device != NODE and _matches(rule.labels, key.labels)
    )
    return Plan(outputs=tuple(_no_rate_beside_counter(_one_level(outputs))), health=health, sources=chosen)


Row = tuple[Group, int, Key]


def _by_series(
    catalogue: Catalogue, devices: Sequence[Device], layouts: Mapping[Group, Layout], lost: frozenset[int]
) -> dict[str, list[Row]]:
    """Rows by series, with a whole device's facts moved from its parts to itself, once."""
    wholes = {device.uuid: position for position, device in enumerate(devices) if not device.partition}
    lost_uuids = {devices[position].uuid for position in lost if not devices[position].partition}
    found: dict[str, list[Row]] = {}
    seen: set[Key] = set()
    for group, layout in layouts.items():
        for index, key in enumerate(layout):
            series = catalogue.series.get(key.series)
            if series is None or key.device in lost:
                continue
            target = key.device
            if target != NODE:
                uuid = devices[target].uuid
                if uuid in lost_uuids:
                    continue
                if series.level == "device":
                    target = wholes.get(uuid, target)
            moved = Key(key.series, target, key.labels)
            if moved not in seen:
                seen.add(moved)
                found.setdefault(key.series, []).append((group, index, moved))
    return found


def _complete(series: Sequence[Sequence[Row]]) -> list[Row]:
    """The rows of several series, of those devices that have all of them at the same time."""
    places = [{(group, key.device, key.labels) for group, _, key in rows} for rows in series]
    common = set.intersection(*places)
    return [row for rows in series for row in rows if (row[0], row[2].device, row[2].labels) in common]


def _outputs(
    series: Series, feed: Feed, rows: Sequence[Row], devices: Sequence[Device], links: Links
) -> Iterable[Output]:
    each = links == "each" and bool(feed.each)
    names = {**feed.labels, **(feed.each if each else {})}
    merged: dict[SeriesId, list[Row]] = {}
    known: dict[Labels, Labels] = {}
    for row in rows:
        key = row[2]
        if key.device == NODE:
            continue
        if feed.where and not _where(feed.where, key.labels):
            continue
        device = devices[key.device]
        labels = known.get(key.labels)
        if labels is None:
            labels = known[key.labels] = _labels(feed.metric, names, key.labels)
        merged.setdefault(SeriesId(feed.metric, device.uuid, device.partition, labels), []).append(row)
    convert = _converter(series, feed)
    for identity, group_rows in merged.items():
        aggregate = None if each else feed.aggregate
        # Without an aggregate the first row stands for the common series; a second one would be another source for it.
        group = group_rows[0][0]
        indices = tuple([index for found, index, _ in group_rows if found == group])
        yield Output(
            id=identity,
            group=group,
            indices=indices if aggregate else indices[:1],
            evaluate=_evaluator(indices, aggregate, convert),
            source=series.name,
            exactness=feed.exactness,
        )


def _labels(metric: str, names: Mapping[str, str], raw: Labels) -> Labels:
    """The common labels, in the schema's order; without those that this raw series does not tell."""
    found = dict(raw)
    values = {name: found.get(value[1:], "") if value.startswith("$") else value for name, value in names.items()}
    return tuple((name, values[name]) for name in METRICS[metric].labels if values.get(name))


def _converter(series: Series, feed: Feed) -> Callable[[Number], Number] | None:
    if feed.bits is not None:
        bits = feed.bits
        return lambda value: 1 if int(value) & bits else 0
    if feed.equals is not None:
        equal = frozenset(feed.equals)
        return lambda value: 1 if value in equal else 0
    convert, most = scale(factor(series.unit, METRICS[feed.metric].unit)), feed.at_most
    if most is None:
        return convert
    limit = most
    return lambda value: min(limit, convert(value) if convert else value)


def scale(by: float) -> Callable[[Number], Number] | None:
    """Multiply with ``by``; None for 1. Small factors divide instead, for 57 / 100 is 0.57 and 57 * 0.01 is not."""
    if by == 1:
        return None
    divisor = round(1 / by)
    if by < 1 and divisor * by == 1:
        return lambda value: value / divisor
    whole = int(by) if by.is_integer() else by
    return lambda value: value * whole


def _evaluator(indices: tuple[int, ...], aggregate: str | None, convert: Callable[[Number], Number] | None) -> Evaluate:
    if aggregate is None or len(indices) == 1:
        get: Evaluate = operator.itemgetter(indices[0])
        if convert is None:
            return get
        first = indices[0]
        return lambda values: convert(values[first])
    pick = operator.itemgetter(*indices)
    if aggregate == "mean":
        count = len(indices)
        return lambda values: sum(map(convert, pick(values)) if convert else pick(values)) / count
    combine = AGGREGATES[aggregate]
    return lambda values: combine(map(convert, pick(values)) if convert else pick(values))


def _matches(wanted: Mapping[str, str], labels: Labels) -> bool:
    found = dict(labels)
    return all(found.get(name) == value for name, value in wanted.items())


def _where(wanted: Mapping[str, tuple[str, ...]], labels: Labels) -> bool:
    found = dict(labels)
    return all(found.get(name) in values for name, values in wanted.items())


def _one_level(outputs: Sequence[Output]) -> Iterable[Output]:
    """Where a device's parts give a metric, the whole device does not: a sum over both would count twice."""
    in_parts = {(output.id.metric, output.id.uuid) for output in outputs if output.id.partition}
    for output in outputs:
        if output.id.partition or (output.id.metric, output.id.uuid) not in in_parts:
            yield output


def _no_rate_beside_counter(outputs: Iterable[Output]) -> Iterable[Output]:
    """Where a vendor counts bytes, its rate of them is not given: rate() tells it, over any time."""
    found = list(outputs)
    counted = {(output.id.metric, output.id.uuid, output.id.partition) for output in found}
    for output in found:
        counter = COUNTED.get(output.id.metric)
        if counter is None or (counter, output.id.uuid, output.id.partition) not in counted:
            yield output


def holds(rule: HealthRule, value: Number) -> bool:
    """Whether a health rule is met."""
    if rule.equals is not None:
        return value in rule.equals
    if rule.bits is not None:
        return bool(int(value) & rule.bits)
    return rule.above is not None and value > rule.above
