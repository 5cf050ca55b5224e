"""Reads expositions back with the parsers of prometheus_client, which are the oracles for what we write."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from exporter.families import Block, Family, Schema, prefix
from exporter.model import MetricType, Number
from exporter.negotiation import Format

Labels = tuple[tuple[str, str], ...]


class Read(NamedTuple):
    """One sample as a parser sees it."""

    type: str
    name: str
    labels: Labels
    value: str
    """repr of the float, so that -0.0 and 0.0 differ."""


def read(body: bytes, format_: Format) -> list[Read]:
    """All samples, in order. Raises ValueError for what the parser refuses, and for a series that stands there twice.

    The parser of text 0.0.4 appends ``_total`` to the samples of every counter that lacks it.
    """
    parse = parse_text if format_ is Format.TEXT else parse_openmetrics
    found = [
        Read(metric.type, sample.name, tuple(sample.labels.items()), repr(float(sample.value)))
        for metric in parse(body.decode())
        for sample in metric.samples
    ]
    series = [(sample.name, frozenset(sample.labels)) for sample in found]
    if len(set(series)) != len(series):
        raise ValueError("a series stands there twice")
    return found


def documentation(body: bytes, format_: Format) -> dict[str, str]:
    """The help of each family, by the name that the parser gives it."""
    parse = parse_text if format_ is Format.TEXT else parse_openmetrics
    return {metric.name: metric.documentation for metric in parse(body.decode())}


def family(
    name: str,
    kind: MetricType,
    samples: Sequence[tuple[Labels, Number]],
    *,
    help_: str = "Some help.",
    schema: Schema = "raw",
) -> Family:
    """A family of one block."""
    prefixes = tuple(prefix(name, labels) for labels, _ in samples)
    return Family(name, kind, help_, schema, (Block(prefixes, tuple(value for _, value in samples)),))


def carried(value: Number, kind: MetricType) -> bool:
    """Whether a sample can have the value: a number that a float can hold, and of a counter at least 0."""
    try:
        real = float(value)
    except OverflowError:
        return False
    return not math.isnan(real) and (kind == "gauge" or real >= 0)
