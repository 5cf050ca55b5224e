"""docs/vendors/<collector>.md: what a vendor's tables say, for people."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Final

from exporter.catalogue import Bridge, Catalogue, HealthRule, Option, PciRule, Series
from exporter.docs.metrics import conversion
from exporter.docs.text import GENERATED, code, codes, link, page, prose, table
from exporter.mapping import labels_text
from exporter.schema import METRICS

RAW_ONLY: Final = "Raw only"


def vendor_page(catalogue: Catalogue, folder: str) -> str:
    """The page of one collector. ``folder`` is where its tables are, from the repository's root."""
    return page(
        GENERATED.format(source=f"the tables in {folder}") + f"# {prose(catalogue.collector.title)}",
        _introduction(catalogue, folder),
        *_detection(catalogue),
        *_health(catalogue),
        *_faults(catalogue),
        *_sources(catalogue),
        *_options(catalogue),
        *_profiles(catalogue),
        *_doctor(catalogue),
        *_bridge(catalogue),
        *_series(catalogue),
        *_aliases(catalogue),
    )


def _introduction(catalogue: Catalogue, folder: str) -> str:
    series, vendor = catalogue.series.values(), catalogue.collector.vendor
    default = sum(each.default and not each.option for each in series)
    native = sum(bool(each.native) for each in series)
    kind = catalogue.collector.kind
    sources = "all are read natively"
    if native < len(series):
        sources = f"{native} are read natively, the others come through the bridge alone"
    return f"""\
Collector {code(catalogue.name)}; the label `vendor` is {code(vendor)}, the kind of its devices {code(kind)} unless
one says otherwise.
The collector's [README](../../{folder}/README.md) has what it needs and what is approximate and why;
[Metrics](../metrics.md) what the common metrics mean.

{len(series)} raw series: {sources}; {default} are served by default.
`schema.raw` chooses others ([Configuration](../configuration.md)).
"""


def _detection(catalogue: Catalogue) -> Iterable[str]:
    detect = catalogue.collector.detect
    yield "## Detection"
    yield (
        "A worker is started where there is any of these signs, looked for without loading anything of the vendor's. "
        "What stands in braces, here and below, is a directory of the host: `paths` in the configuration."
    )
    yield (
        "".join(
            [
                *(f"- {_pci(rule)}\n" for rule in detect.pci),
                *(f"- the file {code(pattern)}\n" for pattern in detect.files),
                *(f"- the environment variable {code(name)}\n" for name in detect.env),
            ]
        )
        or "None is known: set `enabled` to true."
    )


def _pci(rule: PciRule) -> str:
    found = [f"a PCI device of the vendor {code(rule.vendor)}"]
    for values, words in (
        (rule.classes, "whose class begins with"),
        (rule.devices, "with the device id"),
        (rule.drivers, "bound to the kernel driver"),
    ):
        if values:
            found.append(f"{words} {' or '.join(code(value) for value in values)}")
    return ", ".join(found)


def _health(catalogue: Catalogue) -> Iterable[str]:
    yield "## Health"
    yield (
        "[`accel_health_state`](../metrics.md#accel_health_state) is failed while a device does not answer, follows "
        "the severity of recent faults, and is at least this bad while a raw value meets a rule:"
    )
    rules = catalogue.collector.health
    yield (
        table(
            ("state", "while", "because"),
            [(rule.state, f"{_series_of(rule)} {_condition(rule)}", prose(rule.reason)) for rule in rules],
        )
        or "There are no rules."
    )


def _series_of(rule: HealthRule) -> str:
    return code(rule.series + labels_text(rule.labels))


def _condition(rule: HealthRule) -> str:
    if rule.equals is not None:
        return "is " + " or ".join(f"{value:g}" for value in rule.equals)
    if rule.bits is not None:
        return f"has any bit of {rule.bits:#x}"
    return f"is above {rule.above:g}"


def _faults(catalogue: Catalogue) -> Iterable[str]:
    yield "## Faults"
    if not catalogue.faults:
        yield "There is no fault table: the vendor's library and exporter give no fault codes that are read."
        return
    yield (
        "Labels of `accel_fault_code_total` and `accel_fault_last_timestamp_seconds`. A code that is not here is "
        "counted, too, with class unknown and severity info."
    )
    yield table(
        ("code", "name", "class", "severity", "action"),
        [
            (code(fault.code), prose(fault.name), fault.fault_class, fault.severity, fault.action)
            for fault in catalogue.faults.values()
        ],
    )


def _sources(catalogue: Catalogue) -> Iterable[str]:
    sources = catalogue.collector.sources
    if sources:
        yield "## Sources"
        yield (
            f"The vendor has several ways to read: {codes(sources)}. The best that works is used, unless "
            f"{code(f'collectors.{catalogue.name}.source')} names one; `accel_metric_source_info` names it before the "
            "series."
        )


def _options(catalogue: Catalogue) -> Iterable[str]:
    options = catalogue.collector.options
    if options:
        yield "## Options"
        yield f"Keys of {code(f'collectors.{catalogue.name}.options')} in the configuration."
        yield table(
            ("option", "meaning", "expected", "default"),
            [
                (code(name), prose(option.help), _expected(option), code(_value(option.default)) or "empty")
                for name, option in options.items()
            ],
        )


def _expected(option: Option) -> str:
    if option.choices:
        return "one of " + codes(option.choices)
    words = {"bool": "true or false", "int": "a whole number", "float": "a number", "str": "a text", "list": "a list"}
    bounds = [f"at least {option.minimum:.15g}"] if option.minimum is not None else []
    bounds += [f"at most {option.maximum:.15g}"] if option.maximum is not None else []
    return ", ".join([words[option.type], *bounds])


def _value(default: bool | int | float | str | list[str]) -> str:
    if isinstance(default, bool):
        return str(default).lower()
    return "[" + ", ".join(default) + "]" if isinstance(default, list) else str(default)


def _profiles(catalogue: Catalogue) -> Iterable[str]:
    yield "## Profiles"
    yield f"Spellings of raw names and labels, chosen by {code(f'collectors.{catalogue.name}.profile')}."
    yield table(
        ("profile", "what it is", "names"),
        [
            (code(name), prose(text), f"the other spelling that begins with {code(begin)}" if begin is not None else "")
            for name, text in catalogue.collector.profiles.items()
            for begin in (catalogue.collector.renames.get(name),)
        ],
    )


def _doctor(catalogue: Catalogue) -> Iterable[str]:
    if catalogue.collector.doctor:
        yield "## Checks"
        yield "What `accel-exporter doctor` looks at where there are signs of the vendor."
        yield table(
            ("path", "must", "needed", "because", "if not"),
            [
                (
                    code(check.path),
                    {"exists": "exist", "read": "be readable", "write": "be writable"}[check.access],
                    "yes" if check.required else "optional",
                    prose(check.why),
                    prose(check.fix),
                )
                for check in catalogue.collector.doctor
            ],
        )


def _bridge(catalogue: Catalogue) -> Iterable[str]:
    bridge = catalogue.collector.bridge
    if bridge is not None:
        yield "## Bridge"
        exporter = prose(bridge.exporter)
        yield (
            f"With `source: bridge`, or with a `url`, the series come from the vendor's own exporter, {exporter}, "
            f"usually at {code(bridge.url)}; with `source: both` only those that have no source of their own below. "
            "These labels tell the device; of several spellings the first present counts."
        )
        yield table(("fact", "labels"), _bridge_labels(bridge))
        if bridge.sentinels:
            yield f"Values that say 'no reading' are dropped: {codes(map(_number, bridge.sentinels))}."


def _number(value: int | float) -> str:
    return f"{value:.0f}" if value == int(value) else str(value)


def _bridge_labels(bridge: Bridge) -> Iterable[Sequence[str]]:
    labels = bridge.labels
    for name in labels.__struct_fields__:
        if name != "workload" and (spellings := getattr(labels, name)):
            yield name, codes(spellings)


def _series(catalogue: Catalogue) -> Iterable[str]:
    yield "## Raw series"
    yield f"Identity labels of all: {codes(catalogue.identity)}."
    yield (
        "*Group*: the interval at which it is read. *Level*: whether a part of a device has a number of its own, or "
        "the whole's is meant even where parts repeat it. *Source*: the call or field of the vendor's library; where "
        "there is none the series comes through the bridge alone. The order is that of the vendor's table: of several "
        "series that feed one common series, the first that a device has is its source."
    )
    for title, found in _by_section(catalogue):
        yield f"### {title}"
        yield table(
            ("series", "type", "unit", "group", "level", "default", "source"),
            [_series_row(series) for series in found],
        )
        yield table(
            ("raw series", "feeds", "exactness", "conversion"),
            [row for series in found for row in _feed_rows(series)],
        )


def _by_section(catalogue: Catalogue) -> Iterable[tuple[str, list[Series]]]:
    """Series by the section of the common schema that they feed first, then those that feed nothing."""
    order = [*dict.fromkeys(metric.section for metric in METRICS.values()), RAW_ONLY]

    def section(series: Series) -> str:
        return METRICS[series.feeds[0].metric].section if series.feeds else RAW_ONLY

    found = sorted(catalogue.series.values(), key=lambda series: order.index(section(series)))
    for title, group in groupby(found, key=section):
        yield title, list(group)


def _series_row(series: Series) -> tuple[str, ...]:
    notes = [prose(series.help)]
    if series.labels:
        notes.append(f"Labels: {codes(series.labels)}.")
    if series.absent:
        notes.append(f"No reading: {codes(map(_number, series.absent))}.")
    if series.own:
        notes.append("The vendor's exporter has no such series.")
    return (
        f"{code(series.name)}<br>{' '.join(notes)}",
        f"{series.type}, counts up" if series.cumulative and series.type == "gauge" else series.type,
        series.unit,
        series.group,
        series.level,
        f"with {code(series.option)}" if series.option else "on" if series.default else "",
        code(series.native),
    )


def _feed_rows(series: Series) -> Iterable[tuple[str, ...]]:
    for feed in series.feeds:
        yield (
            code(series.name),
            link(code(feed.metric + labels_text(feed.labels)), f"../metrics.md#{feed.metric}"),
            feed.exactness,
            prose(conversion(series, feed)),
        )


def _aliases(catalogue: Catalogue) -> Iterable[str]:
    rows = [(code(alias), code(name)) for alias, name in catalogue.aliases.items()]
    if rows:
        yield "## Other spellings"
        yield "The same series in other versions of the vendor's exporter; the bridge and the configuration know both."
        yield table(("spelling", "series"), rows)
