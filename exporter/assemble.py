"""Configuration + vendors' tables → the collectors to run and what of them is shown."""

from __future__ import annotations

import fnmatch
import os
import socket
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from collectors.base import Group
from exporter.catalogue import Catalogue
from exporter.config import CollectorConfig, Config, RawChoice
from exporter.counters_csv import Counter
from exporter.model import MetricType
from exporter.registry import Found
from exporter.supervisor import CollectorSpec, Timing
from exporter.tables import simulation, tables
from exporter.view import Header, ViewOptions

GROUPS: Final[tuple[Group, ...]] = ("fast", "normal", "slow")
BRIDGE: Final = "collectors.bridge"
SIMULATED: Final = "collectors.simulated"
Catalogues = Mapping[str, tuple[Found, Catalogue]]


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """One collector that runs: how it is read, and how it is shown."""

    spec: CollectorSpec
    view: ViewOptions


def node_name(config: Config, environ: Mapping[str, str] = os.environ) -> str:
    return config.node or environ.get("NODE_NAME", "") or socket.gethostname()


def timing(config: Config) -> Timing:
    collection = config.collection
    return Timing(
        periods={group: config.intervals.period(group) for group in GROUPS},
        deadline=collection.deadline,
        startup_deadline=max(60.0, collection.deadline),
        backoff_min=collection.backoff_min,
        backoff_max=collection.backoff_max,
        retry_unavailable=collection.retry_unavailable,
        stop_grace=collection.stop_grace,
    )


def assemble(config: Config, catalogues: Catalogues, counters: Sequence[Counter] = ()) -> list[Member]:
    """All collectors that the configuration wants, in the order of their names.

    ``counters``: entries of a counters file; they replace the choice of raw series of each collector that has any.
    """
    if config.simulate.devices:
        return [
            _member(config, catalogues[name], counters, simulated=count)
            for name, count in sorted(config.simulate.devices.items())
        ]
    return [
        _member(config, catalogues[name], counters)
        for name in sorted(catalogues)
        if config.collectors.get(name, CollectorConfig()).enabled is not False
    ]


def _member(
    config: Config, found: tuple[Found, Catalogue], counters: Sequence[Counter], simulated: int | None = None
) -> Member:
    item, catalogue = found
    settings = config.collectors.get(item.name, CollectorConfig())
    raw = raw_series(catalogue, config.schema.raw if settings.raw is None else settings.raw, counters)
    bridged = simulated is None and (settings.source == "bridge" or (settings.source == "auto" and bool(settings.url)))
    shown = raw if not bridged or settings.passthrough else frozenset[str]()
    module, options = item.module, dict[str, object](settings.options)
    if simulated is not None:
        module = SIMULATED
        options = {
            **tables(catalogue),
            "simulation": simulation(item.folder),
            "devices": simulated,
            "seed": config.simulate.seed,
            "scenario": config.simulate.scenario,
        }
    elif bridged:
        module = BRIDGE
        options = {**tables(catalogue), "url": settings.url or (catalogue.collector.bridge or _NO_BRIDGE).url}
    libraries = config.paths.libraries.get(item.name, "")
    search = [libraries, os.environ.get("LD_LIBRARY_PATH", "")]
    node = node_name(config)
    return Member(
        spec=CollectorSpec(
            name=item.name,
            catalogue=catalogue,
            module=module,
            tables=str(item.folder),
            wanted=_grouped(catalogue.wanted(shown, common=config.schema.common), settings.fast),
            paths=config.paths.host,
            node=node,
            profile=settings.profile,
            options=options,
            environ={"LD_LIBRARY_PATH": ":".join(filter(None, search))} if libraries else {},
            detect=settings.enabled == "auto" and simulated is None and not bridged,
            simulated=simulated is not None,
            expected=settings.expected_devices,
        ),
        view=ViewOptions(
            raw=shown,
            headers={**renamed(catalogue, settings.profile), **raw_headers(catalogue, counters)},
            common=config.schema.common,
            node=node if config.labels.node else "",
            links=config.links,
            max_age={group: config.intervals.period(group) * config.collection.max_age_periods for group in GROUPS},
        ),
    )


def raw_series(catalogue: Catalogue, choice: RawChoice | Sequence[str], counters: Sequence[Counter] = ()) -> frozenset[str]:
    """The raw series to expose, by their canonical names."""
    listed = frozenset(raw_headers(catalogue, counters))
    if listed:
        return listed
    if choice == "none":
        return frozenset()
    if choice == "all":
        return frozenset(catalogue.series)
    if choice == "default":
        return frozenset(series.name for series in catalogue.series.values() if series.default)
    return frozenset(
        catalogue.aliases.get(name, name)
        for pattern in choice
        for name in (*catalogue.series, *catalogue.aliases)
        if fnmatch.fnmatchcase(name, pattern)
    )


def renamed(catalogue: Catalogue, profile: str) -> dict[str, Header]:
    """Canonical name → how the profile spells it, where it has other names."""
    begins = catalogue.collector.renames.get(profile)
    if begins is None:
        return {}
    return {
        series.name: Header(alias, series.type, series.help)
        for series in catalogue.series.values()
        if (alias := next((alias for alias in series.aliases if alias.startswith(begins)), None)) is not None
    }


def raw_headers(catalogue: Catalogue, counters: Sequence[Counter]) -> dict[str, Header]:
    """Canonical name → how a counters file spells, types and explains it. The first entry of a series counts."""
    found: dict[str, Header] = {}
    for counter in counters:
        name = catalogue.aliases.get(counter.name, counter.name)
        if name in catalogue.series and counter.type != "label":
            kind: MetricType = "counter" if counter.type == "counter" else "gauge"
            found.setdefault(name, Header(counter.name, kind, counter.help or catalogue.series[name].help))
    return found


def _grouped(wanted: Mapping[Group, frozenset[str]], fast: Sequence[str]) -> dict[Group, frozenset[str]]:
    """Move the series that match ``fast`` to the fast group."""
    every = frozenset[str]().union(*wanted.values())
    moved = frozenset(name for name in every if any(fnmatch.fnmatchcase(name, pattern) for pattern in fast))
    found = {group: names - moved for group, names in wanted.items()}
    found["fast"] = found.get("fast", frozenset()) | moved
    return found


class _Url(msgspec.Struct, frozen=True):
    url: str = ""


_NO_BRIDGE: Final = _Url()
