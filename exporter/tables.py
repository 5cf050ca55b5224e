"""Hands a vendor's tables to the collectors that serve every vendor: the bridge and the simulation."""

from __future__ import annotations

import tomllib
from pathlib import Path

import msgspec

from collectors.tables import Bridge, Fault, Feed, Series, Tables
from exporter.catalogue import Catalogue, CatalogueError
from exporter.catalogue import Series as CatalogueSeries
from exporter.units import UNITS

SIMULATION = "simulation.toml"


def tables(catalogue: Catalogue) -> dict[str, object]:
    """Plain data for ``Settings.options``; ``collectors.tables.Tables`` is its shape."""
    collector = catalogue.collector
    found: dict[str, object] = msgspec.to_builtins(
        Tables(
            vendor=collector.vendor,
            title=collector.title,
            kind=collector.kind,
            identity=catalogue.identity,
            series=tuple(_series(series) for series in catalogue.series.values()),
            faults=tuple(msgspec.convert(fault, Fault, from_attributes=True) for fault in catalogue.faults.values()),
            bridge=msgspec.convert(collector.bridge, Bridge | None, from_attributes=True),
        )
    )
    return found


def simulation(folder: Path) -> dict[str, object]:
    """What a vendor's folder says about its simulated devices; empty if it says nothing. Raises CatalogueError."""
    path = folder / SIMULATION
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except FileNotFoundError:
        return {}
    except tomllib.TOMLDecodeError as error:
        raise CatalogueError(f"{path}: {error}") from error


def _series(series: CatalogueSeries) -> Series:
    base, scale = UNITS[series.unit]
    return Series(
        name=series.name,
        type=series.type,
        unit=series.unit,
        base=base,
        scale=scale,
        group=series.group,
        level=series.level,
        labels=series.labels,
        aliases=series.aliases,
        absent=series.absent,
        feeds=tuple(msgspec.convert(feed, Feed, from_attributes=True) for feed in series.feeds),
        cumulative=series.cumulative,
    )
