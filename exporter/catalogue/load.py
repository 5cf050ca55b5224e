"""Loads and checks a vendor's tables."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from exporter.catalogue.model import Catalogue, Collector, FaultClass, Feed, Series
from exporter.digest import digest
from exporter.schema import METRICS, Metric
from exporter.units import UNITS, UnitMismatch, factor

T = TypeVar("T")
NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")


class CatalogueError(ValueError):
    """A vendor's table is wrong; the message names the file, the entry and what was expected."""


class _SeriesFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    identity: tuple[str, ...]
    series: tuple[Series, ...]


class _FaultFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    fault: tuple[FaultClass, ...] = ()


def load(folder: Path, module: str) -> Catalogue:
    """Read a collector's tables. Raises CatalogueError."""
    collector = _decode(folder / "collector.toml", Collector)
    table = _decode(folder / "series.toml", _SeriesFile)
    faults_file = folder / "faults.toml"
    faults = _decode(faults_file, _FaultFile).fault if faults_file.exists() else ()
    _check_series(folder / "series.toml", table)
    _check_health(folder / "collector.toml", collector, table.series)
    _check_options(folder / "series.toml", collector, table.series)
    _check_collisions(folder / "series.toml", collector, table)
    codes = _unique(faults_file, "fault", [fault.code for fault in faults])
    return Catalogue(
        name=folder.name,
        module=module,
        collector=collector,
        identity=table.identity,
        series={series.name: series for series in table.series},
        aliases={alias: series.name for series in table.series for alias in series.aliases},
        faults=dict(zip(codes, faults, strict=True)),
        digest=digest(folder),
    )


def _decode(path: Path, kind: type[T]) -> T:
    try:
        with path.open("rb") as file:
            return msgspec.convert(tomllib.load(file), kind)
    except FileNotFoundError as error:
        raise CatalogueError(f"{path}: the file is missing; every collector has one (CONTRIBUTING.md)") from error
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise CatalogueError(f"{path}: {error}") from error


def _check_series(path: Path, table: _SeriesFile) -> None:
    _unique(path, "series", [s.name for s in table.series] + [a for s in table.series for a in s.aliases])
    for series in table.series:
        place = f"{path}: series {series.name}"
        if not NAME.fullmatch(series.name):
            raise CatalogueError(f"{place}: not a metric name")
        if not series.help.strip():
            raise CatalogueError(f"{place}: help is empty")
        if series.unit not in UNITS:
            raise CatalogueError(
                f"{place}: unit {series.unit!r} is unknown; expected one of {', '.join(sorted(UNITS))}"
            )
        for label in (*series.labels, *table.identity):
            if not LABEL.fullmatch(label) or label.startswith("__"):
                raise CatalogueError(f"{place}: {label!r} is not a label name")
        for feed in series.feeds:
            _check_feed(place, series, feed)
            _check_sum(place, series, feed, {other.name: other for other in table.series})


def _check_feed(place: str, series: Series, feed: Feed) -> None:
    metric = METRICS.get(feed.metric)
    if metric is None:
        raise CatalogueError(f"{place}: feeds {feed.metric!r}, which is not in the common schema")
    switched = feed.bits is not None or feed.equals is not None
    if feed.bits is not None and feed.equals is not None:
        raise CatalogueError(f"{place}: feeds {feed.metric} by bits and by equals; one of them")
    if switched and metric.unit:
        raise CatalogueError(f"{place}: feeds {feed.metric}, which is in {metric.unit}, with 0 or 1")
    if not switched:
        try:
            factor(series.unit, metric.unit)
        except UnitMismatch as error:
            raise CatalogueError(f"{place}: feeds {feed.metric}: {error}") from error
        if metric.type == "counter" and series.type == "gauge" and not series.cumulative:
            raise CatalogueError(
                f"{place}: a gauge cannot feed the counter {feed.metric} unless it is marked cumulative"
            )
    _check_labels(place, series, feed, metric)


def _check_sum(place: str, series: Series, feed: Feed, known: Mapping[str, Series]) -> None:
    if feed.plus and (feed.aggregate != "sum" or feed.each):
        raise CatalogueError(f'{place}: feeds {feed.metric} with others: that is aggregate = "sum", and has no each')
    for name in feed.plus:
        other = known.get(name)
        if other is None:
            raise CatalogueError(f"{place}: feeds {feed.metric} with {name!r}, which is not in this table")
        alike = [(s.unit, s.group, s.level, s.labels, s.cumulative, s.type) for s in (series, other)]
        if alike[0] != alike[1]:
            raise CatalogueError(f"{place}: feeds {feed.metric} with {name}, which is of another unit, group or shape")


def _check_labels(place: str, series: Series, feed: Feed, metric: Metric) -> None:
    for name in feed.where:
        if name not in series.labels:
            raise CatalogueError(f"{place}: feeds {feed.metric} where {name!r} is something, which the series has not")
    for name, value in {**feed.labels, **feed.each}.items():
        if name not in metric.labels:
            raise CatalogueError(
                f"{place}: {feed.metric} has no label {name!r}; it has {', '.join(metric.labels) or 'none'}"
            )
        allowed: Sequence[str] = metric.labels[name]
        if value.startswith("$"):
            if value[1:] not in series.labels:
                raise CatalogueError(f"{place}: copies the label {value[1:]!r}, which the series has not")
        elif allowed and value not in allowed:
            raise CatalogueError(f"{place}: {name}={value!r} of {feed.metric} is not one of {', '.join(allowed)}")


def _check_health(path: Path, collector: Collector, series: Sequence[Series]) -> None:
    known = {s.name for s in series}
    for rule in collector.health:
        if rule.series not in known:
            raise CatalogueError(f"{path}: the health rule on {rule.series!r} names a series that series.toml has not")
        if sum(x is not None for x in (rule.equals, rule.above, rule.bits)) != 1:
            raise CatalogueError(f"{path}: the health rule on {rule.series} needs one of equals, above, bits")


def _check_options(path: Path, collector: Collector, series: Sequence[Series]) -> None:
    if collector.label_option and collector.label_option not in collector.options:
        raise CatalogueError(f"{path}: label_option {collector.label_option!r} is not one of collector.toml's options")
    for each in series:
        for source in each.sources:
            if source not in collector.sources:
                raise CatalogueError(f"{path}: series {each.name}: {source!r} is not one of collector.toml's sources")
        if each.option and each.option not in collector.options:
            raise CatalogueError(
                f"{path}: series {each.name}: option {each.option!r} is not one of collector.toml's options"
            )


def _check_collisions(path: Path, collector: Collector, table: _SeriesFile) -> None:
    """A label that stood on a series twice would make a whole scrape unreadable."""
    beside = {*table.identity, *collector.attribution.raw_labels.values()}
    for each in table.series:
        twice = beside & set(each.labels) if each.level != "node" else set()
        if twice or len(set(each.labels)) < len(each.labels):
            raise CatalogueError(f"{path}: series {each.name}: a label would stand there twice: {each.labels}")


def _unique(path: Path, what: str, names: list[str]) -> list[str]:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise CatalogueError(f"{path}: {what} {name} stands there twice")
        seen.add(name)
    return names
