"""Configuration + vendors' tables → the collectors to run and what of them is shown."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal

import msgspec

from collectors.base import Group
from exporter.catalogue import Catalogue
from exporter.config import SOURCES, CollectorConfig, Config, RawChoice
from exporter.config.counters_csv import Counter
from exporter.config.load import host_name
from exporter.model import MetricType
from exporter.registry import Found
from exporter.spec import CollectorSpec, Timing
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
    return config.node or host_name(environ)


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
        memory=collection.worker_memory_mib << 20,
    )


def assemble(config: Config, catalogues: Catalogues, counters: Sequence[Counter] = ()) -> list[Member]:
    """All collectors that the configuration wants, in the order of their names; a native one before its bridge.

    ``counters``: entries of a counters file; they replace the choice of raw series of each collector that has any.
    """
    if config.simulate.devices:
        return [
            _simulated(_Choice(config, *catalogues[name], counters), count)
            for name, count in sorted(config.simulate.devices.items())
        ]
    choices = [_Choice(config, *catalogues[name], counters) for name in sorted(catalogues)]
    return [member for choice in choices for member in _real(choice)]


class _Choice(msgspec.Struct, frozen=True):
    """What is configured for one collector."""

    config: Config
    item: Found
    catalogue: Catalogue
    counters: Sequence[Counter]

    @property
    def settings(self) -> CollectorConfig:
        return self.config.collectors.get(self.item.name, CollectorConfig())

    @property
    def raw(self) -> frozenset[str]:
        """The raw series that are to be exposed; those behind an option only where it is set."""
        choice = self.config.schema.raw if self.settings.raw is None else self.settings.raw
        chosen = raw_series(self.catalogue, choice, self.counters)
        series = self.catalogue.series
        return frozenset(n for n in chosen if n not in series or not series[n].option or self._set(series[n].option))

    @property
    def options(self) -> Mapping[str, object]:
        """As configured, and with the fields that the counters file makes labels."""
        name = self.catalogue.collector.label_option
        listed = {counter.name for counter in self.counters if counter.type == "label"}
        fields = [field for field in self.catalogue.collector.options[name].choices if field in listed] if name else []
        return {**self.settings.options, name: fields} if fields else self.settings.options

    @property
    def foreign(self) -> frozenset[str]:
        """What the bridge gives beside the native collector: all that not each of its ways to read gives, and no other.

        Two ways that gave the same series at once would tell it twice.
        """
        sources = len(self.catalogue.collector.sources)
        return frozenset(
            series.name
            for series in self.catalogue.series.values()
            if not series.native or (not series.own and 0 < len(series.sources) < sources)
        )

    def _set(self, option: str) -> bool:
        return bool(self.settings.options.get(option, self.catalogue.collector.options[option].default))


def _real(choice: _Choice) -> Iterable[Member]:
    """The native collector, the bridge, or both of them."""
    settings = choice.settings
    if settings.enabled is False:
        return
    bridged = settings.source == "bridge" or (settings.source == "auto" and bool(settings.url))
    if not bridged:
        yield _member(
            choice,
            module=choice.item.module,
            raw=choice.raw - choice.foreign if settings.source == "both" else choice.raw,
            only=frozenset(choice.catalogue.series) - choice.foreign if settings.source == "both" else None,
            source="auto" if settings.source in SOURCES else settings.source,
            options=choice.options,
            detect=settings.enabled == "auto",
        )
    if bridged or settings.source == "both":
        yield _bridge(choice, only_foreign=not bridged)


def _bridge(choice: _Choice, *, only_foreign: bool) -> Member:
    """The vendor's own exporter. ``only_foreign``: what the native collector, which runs beside it, cannot read."""
    usual = choice.catalogue.collector.bridge
    foreign = choice.foreign
    raw = choice.raw & foreign if only_foreign else choice.raw if choice.settings.passthrough else frozenset[str]()
    return _member(
        choice,
        name=f"{choice.item.name}-bridge" if only_foreign else choice.item.name,
        module=(usual.module if usual else "") or BRIDGE,
        raw=raw,
        only=foreign if only_foreign else None,
        options={
            **tables(choice.catalogue),
            **msgspec.structs.asdict(choice.settings.bridge),
            "url": choice.settings.url or (usual.url if usual else ""),
            # One page serves all groups that are due about now.
            "share_seconds": min(choice.config.intervals.period(group) for group in GROUPS) / 2,
        },
    )


def _simulated(choice: _Choice, devices: int) -> Member:
    simulate = choice.config.simulate
    return _member(
        choice,
        module=SIMULATED,
        raw=choice.raw,
        options={
            **tables(choice.catalogue),
            "simulation": simulation(choice.item.folder),
            "devices": devices,
            "seed": simulate.seed,
            "scenario": simulate.scenario,
            "parts": simulate.parts.get(choice.item.name, 0),
            "distinct": simulate.distinct,
        },
        simulated=True,
    )


def _member(
    choice: _Choice,
    *,
    module: str,
    raw: frozenset[str],
    options: Mapping[str, object],
    name: str = "",
    only: frozenset[str] | None = None,
    source: str = "auto",
    detect: bool = False,
    simulated: bool = False,
) -> Member:
    """``only``: read no other series than these."""
    config, item, catalogue, settings = choice.config, choice.item, choice.catalogue, choice.settings
    wanted = catalogue.wanted(raw, common=config.schema.common)
    if only is not None:
        wanted = {group: names & only for group, names in wanted.items()}
    libraries = config.paths.libraries.get(item.name, "")
    search = ":".join(filter(None, (libraries, os.environ.get("LD_LIBRARY_PATH", ""))))
    node = node_name(config)
    return Member(
        spec=CollectorSpec(
            name=name or item.name,
            catalogue=catalogue,
            module=module,
            tables=str(item.folder),
            wanted=_grouped(wanted, settings.fast),
            paths=config.paths.host,
            node=node,
            links=config.links,
            processes=_wants_processes(config),
            source=source,
            profile=settings.profile,
            options=options,
            environ={"LD_LIBRARY_PATH": search} if libraries else {},
            detect=detect,
            simulated=simulated,
            bridged=module == BRIDGE,
            expected=settings.expected_devices,
        ),
        view=ViewOptions(
            raw=raw,
            headers={**renamed(catalogue, settings.profile), **raw_headers(catalogue, choice.counters)},
            common=config.schema.common,
            node=node if config.labels.node else "",
            workload="none" if config.attribution.mode == "join" else config.attribution.labels_on,
            raw_workload=_raw_workload(config),
            links=config.links,
            max_age={group: config.intervals.period(group) * config.collection.max_age_periods for group in GROUPS},
        ),
    )


def _wants_processes(config: Config) -> bool:
    """Whether attribution can make use of the processes on devices."""
    return config.attribution.processes.enabled is not False and not config.simulate.devices


def _raw_workload(config: Config) -> Literal["none", "exclusive", "copies"]:
    if not config.attribution.raw_labels:
        return "none"
    return "copies" if config.attribution.raw_copies else "exclusive"


def raw_series(
    catalogue: Catalogue, choice: RawChoice | Sequence[str], counters: Sequence[Counter] = ()
) -> frozenset[str]:
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
