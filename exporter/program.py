"""What every command begins with: the tables, the configuration and the collectors that follow from them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from exporter.assemble import Catalogues, Member, assemble
from exporter.config import Config, counters_csv, otel
from exporter.config.load import load
from exporter.detection import pci_devices, signs
from exporter.registry import survey
from exporter.tables import simulation


class Source(msgspec.Struct, frozen=True):
    """Where the configuration comes from: read again on reload."""

    path: Path | None
    flags: Mapping[str, object]
    demo: bool = False
    """Simulate a node where the host has no accelerator."""


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """A configuration and what follows from it."""

    config: Config
    catalogues: Catalogues
    members: tuple[Member, ...]
    simulated: bool
    warnings: tuple[str, ...] = ()
    """What of the configuration has no effect, ready to be logged."""


def read(source: Source, environ: Mapping[str, str] = os.environ) -> Program:
    """Raises ConfigError, and CatalogueError for a vendor's broken table."""
    found = survey()
    tables = found.collectors
    config = _load(source, environ, tables)
    if source.demo and not config.simulate.devices and not _any_signs(config, tables):
        config = _with_demo(config, tables)
    counters: tuple[counters_csv.Counter, ...] = ()
    warnings: tuple[str, ...] = ()
    if config.schema.raw_counters:
        read_counters = counters_csv.read(Path(config.schema.raw_counters))
        names = {name: name for _, catalogue in tables.values() for name in catalogue.series}
        names.update({alias: name for _, catalogue in tables.values() for alias, name in catalogue.aliases.items()})
        labels = {label for _, catalogue in tables.values() for label in catalogue.identity}
        warnings = counters_csv.choose(read_counters, names, labels).warnings
        counters = read_counters.entries
    return Program(
        config=config,
        catalogues=tables,
        members=tuple(assemble(config, tables, counters)),
        simulated=bool(config.simulate.devices),
        warnings=(*found.broken.values(), *warnings, *otel.warnings(environ, config.otlp)),
    )


def _load(source: Source, environ: Mapping[str, str], tables: Catalogues) -> Config:
    by_name = {name: catalogue for name, (_, catalogue) in tables.items()}
    return load(
        source.path,
        environ,
        source.flags,
        {name: catalogue.collector.options for name, catalogue in by_name.items()},
        sources={name: catalogue.collector.sources for name, catalogue in by_name.items()},
        profiles={name: tuple(catalogue.collector.profiles) for name, catalogue in by_name.items()},
        series={name: (*catalogue.series, *catalogue.aliases) for name, catalogue in by_name.items()},
    )


def _any_signs(config: Config, tables: Catalogues) -> bool:
    paths = config.paths.host
    bus = pci_devices(paths.sys)
    return any(next(signs(catalogue.collector.detect, paths, bus), None) for _, catalogue in tables.values())


def _with_demo(config: Config, tables: Catalogues) -> Config:
    """The node that the vendors' own tables propose for a demonstration."""
    counts = {name: simulation(item.folder).get("demo", 0) for name, (item, _) in tables.items()}
    devices = {name: count for name, count in counts.items() if isinstance(count, int) and count > 0}
    return msgspec.structs.replace(config, simulate=msgspec.structs.replace(config.simulate, devices=devices))
