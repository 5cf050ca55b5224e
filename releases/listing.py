"""A list of metrics: as they are now, and as a release's file has them."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping
from typing import Final, Literal

import msgspec
from prometheus_client.metrics_core import Metric as Family

from alerts import openshift, recording
from alerts.model import Record
from exporter.docs.metrics import own_metrics
from exporter.otlp import own
from exporter.otlp.names import CONVENTIONAL, PLAIN
from exporter.schema import IDENTITY, METRICS, WORKLOAD, Metric, Stability

Group = Literal["common", "agent", "recorded", "otlp"]
GROUPS: Final[Mapping[Group, str]] = {
    "common": "The common schema.",
    "agent": "The agent's own.",
    "recorded": "Recording rules.",
    "otlp": "Instruments of OTLP for the common schema, under both sets of names.",
}
_UNITS: Final = ("seconds", "bytes")
_SCOPES: Final[Mapping[str, tuple[str, ...]]] = {"device": IDENTITY, "vendor": IDENTITY[:1], "agent": ()}


class Entry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What others build on of a metric. What does not apply to a group is empty."""

    type: str
    unit: str = ""
    labels: Mapping[str, tuple[str, ...]] = {}
    """With their values, where these are a fixed set. The node's label is a matter of the configuration."""
    otlp: tuple[str, ...] = ()
    """Its names over OTLP, the conventions' first."""
    stability: Stability = "experimental"


class Listing(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    common: Mapping[str, Entry]
    agent: Mapping[str, Entry]
    recorded: Mapping[str, Entry]
    otlp: Mapping[str, Entry]

    def entries(self) -> dict[str, Entry]:
        """All of them by name. A name of one group is none of another."""
        return {name: entry for group in GROUPS for name, entry in getattr(self, group).items()}


def present() -> Listing:
    """As the code has them."""
    return Listing(
        common={metric.name: _common(metric) for metric in METRICS.values()},
        agent=dict(_agent()),
        recorded={
            rule.name: Entry(type="gauge", labels={name: (value,) for name, value in rule.labels.items()})
            for group in (*recording.GROUPS, *openshift.GROUPS)
            for rule in group.rules
            if isinstance(rule, Record)
        },
        otlp={
            found.name: Entry(type=found.kind, unit=found.unit) for found in (*CONVENTIONAL.values(), *PLAIN.values())
        },
    )


def _common(metric: Metric) -> Entry:
    workload = WORKLOAD if metric.workload else ()
    return Entry(
        type=metric.type,
        unit=metric.unit,
        labels={**dict.fromkeys((*_SCOPES[metric.scope], *workload), ()), **metric.labels},
        otlp=tuple(name for name in (metric.otlp, PLAIN[metric.name].name) if name),
        stability=metric.stability,
    )


def _agent() -> Iterator[tuple[str, Entry]]:
    for name, kind, labels, meaning in own_metrics():
        base = name.removesuffix("_total")
        yield (
            name,
            Entry(
                type=kind,
                unit=next((unit for unit in _UNITS if base.endswith(f"_{unit}")), ""),
                labels=dict.fromkeys(labels, ()),
                otlp=(own.instrument(Family(base, meaning, kind), conventions=True).name,),
            ),
        )


def text(listing: Listing, version: str) -> str:
    """A release's file: one line a metric, sorted, so that a difference shows what has changed."""
    lines = [f"# The metrics of {version}, made by `python -m releases` (`make docs`). Do not edit."]
    for group, title in GROUPS.items():
        lines += ["", f"# {title}", f"[{group}]"]
        for name, entry in sorted(getattr(listing, group).items()):
            lines.append(f"{_quoted(name)} = {_inline(msgspec.to_builtins(entry))}")
    return "\n".join(lines) + "\n"


def read(content: str) -> Listing:
    return msgspec.convert(tomllib.loads(content), Listing, strict=False)


def _inline(value: object) -> str:
    match value:
        case dict():
            pairs = ", ".join(f"{_quoted(name)} = {_inline(inner)}" for name, inner in value.items())
            return f"{{ {pairs} }}" if pairs else "{}"
        case list() | tuple():
            return f"[{', '.join(map(_inline, value))}]"
        case _:
            # A text in JSON is one in TOML, too.
            return json.dumps(value, ensure_ascii=False)


def _quoted(name: str) -> str:
    return name if name.replace("_", "").replace("-", "").isalnum() and name.isascii() else json.dumps(name)
