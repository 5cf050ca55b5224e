"""Loads the configuration. The later one counts: defaults, OpenTelemetry's variables, file, environment, flags."""

from __future__ import annotations

import socket
from collections.abc import Collection, Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

import msgspec

from exporter.catalogue import Option
from exporter.config import BRIDGED, SOURCES, CollectorConfig, Config, Intervals, Paths, counters_csv
from exporter.config import yaml as config_yaml
from exporter.config.attribution import Attribution
from exporter.config.build import Context, Options, build, model
from exporter.config.otel import contradictions, with_standard
from exporter.config.overlay import from_environment, from_flags
from exporter.config.problems import ConfigError, KeyPath, Problem, one_of, show_key, wrong
from exporter.config.yaml import Node, locate, source_of
from exporter.families import clean

MAX_NODE: Final = 253
"""Characters of a name in DNS."""
Names = Mapping[str, Collection[str]]
"""Collector → its names of something."""


def load(
    path: Path | None,
    environ: Mapping[str, str],
    flags: Mapping[str, object],
    options: Options,
    *,
    profiles: Names | None = None,
    series: Names | None = None,
    sources: Names | None = None,
) -> Config:
    """The configuration that is in force. Raises ConfigError with everything that is wrong.

    ``options`` lists the collectors that there are and their options. With ``profiles``, ``series`` (raw names and
    their other spellings) and ``sources`` (the vendor's own ways to read), also by collector, these names are checked.

    The result has no gaps: ``node`` is known, ``paths`` has no placeholders, and every collector has its entry with all
    of its options.
    """
    problems: list[Problem] = []
    tree = Node({}, "configuration")
    if path is not None:
        try:
            tree, found = config_yaml.read(path)
            problems += found
        except ConfigError as error:
            # The environment and the flags are still looked at: all problems are told in one run.
            problems += error.problems
    tree = with_standard(tree, environ)
    tree = from_environment(tree, environ, options, problems)
    tree = from_flags(tree, flags, options, problems)
    config = build(model(), tree, (), Context(options, problems))
    if isinstance(config, Config):
        wrong_keys = {problem.key for problem in problems}
        for keys, problem in _order(config, tree):
            # A wrong value was left at its default: what that contradicts is no news.
            if wrong_keys.isdisjoint(keys):
                problems.append(problem)
        problems += _contradictions(config, tree, profiles, series, sources)
    if problems or not isinstance(config, Config):
        raise ConfigError(problems)
    return _complete(config, tree, environ, options)


def _contradictions(
    config: Config, tree: Node, profiles: Names | None, series: Names | None, sources: Names | None
) -> Iterator[Problem]:
    """Values that are right alone and wrong together."""
    if len(set(config.listen)) < len(config.listen):
        yield _wrong(tree, ("listen",), ", ".join(config.listen), "each address once")
    for name, collector in config.collectors.items():
        yield from _collector(name, collector, tree, profiles, series)
        known = [*SOURCES, *(sources or {}).get(name, ())]
        if sources is not None and collector.source not in known:
            yield _wrong(tree, ("collectors", name, "source"), collector.source, one_of(collector.source, known))
    if series is not None and isinstance(config.schema.raw, tuple):
        every = {each for names in series.values() for each in names}
        yield from _series(config.schema.raw, every, ("schema", "raw"), tree)
    if config.schema.raw_counters:
        yield from _counters(Path(config.schema.raw_counters), tree)
    if config.web_config_file:
        yield from _web(Path(config.web_config_file), tree)
    yield from contradictions(config.otlp, tree)


def _order(config: Config, tree: Node) -> Iterator[tuple[tuple[str, str], Problem]]:
    """Of two settings one must not be larger; each with the keys of both. An interval that is not set adapts."""
    fast, normal, slow = ("intervals", "fast"), ("intervals", "normal"), ("intervals", "slow")
    least, most = ("collection", "backoff_min"), ("collection", "backoff_max")
    pairs = [(least, most, most if locate(tree, most) else least)]
    pairs += [(fast, normal, fast)] if locate(tree, fast) else []
    pairs += [(normal, slow, slow)] if locate(tree, slow) else []
    for low, high, blamed in pairs:
        lower, upper = _number_at(config, low), _number_at(config, high)
        if lower <= upper:
            continue
        if blamed == high:
            problem = _wrong(tree, high, upper, f"at least {show_key(low)}, which is {lower:g} (seconds)")
        else:
            problem = _wrong(tree, low, lower, f"at most {show_key(high)}, which is {upper:g} (seconds)")
        yield (show_key(low), show_key(high)), problem


def _number_at(config: Config, path: tuple[str, str]) -> float:
    return float(getattr(getattr(config, path[0]), path[1]))


def _collector(
    name: str, collector: CollectorConfig, tree: Node, profiles: Names | None, series: Names | None
) -> Iterator[Problem]:
    path: KeyPath = ("collectors", name)
    if collector.source not in BRIDGED and collector.passthrough:
        yield _wrong(tree, (*path, "passthrough"), True, f"false, since source is {collector.source}")
    if profiles is not None and collector.profile not in (known := list(profiles.get(name, ("default",)))):
        yield _wrong(tree, (*path, "profile"), collector.profile, one_of(collector.profile, known))
    if series is not None:
        names = series.get(name, ())
        yield from _series(collector.fast, names, (*path, "fast"), tree)
        if isinstance(collector.raw, tuple):
            yield from _series(collector.raw, names, (*path, "raw"), tree)


def _series(patterns: tuple[str, ...], names: Collection[str], path: KeyPath, tree: Node) -> Iterator[Problem]:
    for index, pattern in enumerate(patterns):
        if pattern in names:
            continue
        if not any(sign in pattern for sign in "*?["):
            yield _wrong(tree, (*path, index), pattern, one_of(pattern, sorted(names)))
        elif not any(fnmatchcase(name, pattern) for name in names):
            yield _wrong(tree, (*path, index), pattern, "a pattern that fits at least one raw series")


def _counters(path: Path, tree: Node) -> Iterator[Problem]:
    try:
        counters_csv.read(path)
    except ConfigError as error:
        key: KeyPath = ("schema", "raw_counters")
        for problem in error.problems:
            found = f"{problem.key}: {problem.found} (the file is named in {source_of(tree, key)})"
            yield Problem(problem.source, show_key(key), found, problem.expected)


def _web(path: Path, tree: Node) -> Iterator[Problem]:
    # Only who serves needs it, and TLS with it.
    from exporter.web import settings, tls

    try:
        tls.load(settings.read(path))
    except ConfigError as error:
        for problem in error.problems:
            found = f"{problem.found} (the file is named in {source_of(tree, ('web_config_file',))})"
            yield Problem(problem.source, problem.key, found, problem.expected)


def _wrong(tree: Node, path: KeyPath, value: object, expected: str) -> Problem:
    return wrong(source_of(tree, path), path, value, expected)


def host_name(environ: Mapping[str, str]) -> str:
    """What the environment, else the kernel, calls this host. Either may hold what no label or message can carry."""
    return clean(environ.get("NODE_NAME", "") or socket.gethostname())[:MAX_NODE]


def _complete(config: Config, tree: Node, environ: Mapping[str, str], options: Options) -> Config:
    """Fill in what follows from other settings and from the host."""
    node = config.node or host_name(environ)
    collectors = {
        name: _with_options(config.collectors.get(name, CollectorConfig()), options[name]) for name in options
    }
    return msgspec.structs.replace(
        config,
        node=node,
        intervals=_intervals(config.intervals, tree),
        collectors=collectors,
        paths=_paths(config.paths),
        attribution=_attribution(config.attribution, config.paths, node),
    )


def _intervals(intervals: Intervals, tree: Node) -> Intervals:
    fast, slow = intervals.fast, intervals.slow
    if locate(tree, ("intervals", "fast")) is None:
        fast = min(fast, intervals.normal)
    if locate(tree, ("intervals", "slow")) is None:
        slow = max(slow, intervals.normal)
    return Intervals(fast=fast, normal=intervals.normal, slow=slow)


def _with_options(collector: CollectorConfig, table: Mapping[str, Option]) -> CollectorConfig:
    defaults = {name: _value(option.default) for name, option in table.items()}
    return msgspec.structs.replace(collector, options={**defaults, **collector.options})


def _value(default: bool | int | float | str | list[str]) -> bool | int | float | str | tuple[str, ...]:
    return tuple(default) if isinstance(default, list) else default


def _attribution(attribution: Attribution, paths: Paths, node: str) -> Attribution:
    kubernetes, slurm = attribution.kubernetes, attribution.slurm
    return msgspec.structs.replace(
        attribution,
        kubernetes=msgspec.structs.replace(
            kubernetes,
            pod_resources_socket=paths.resolve(kubernetes.pod_resources_socket),
            node_name=kubernetes.node_name or node,
        ),
        slurm=msgspec.structs.replace(
            slurm,
            job_directories=tuple(map(paths.resolve, slurm.job_directories)),
            json_directories=tuple(map(paths.resolve, slurm.json_directories)),
        ),
    )


def _paths(paths: Paths) -> Paths:
    host = paths.host
    return Paths(
        root=paths.root,
        **msgspec.structs.asdict(host),
        libraries={name: paths.resolve(path) for name, path in paths.libraries.items()},
    )
