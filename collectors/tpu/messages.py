"""The messages of libtpu's metric service (runtime_metrics.proto), decoded.

Nothing is trusted but the form: order and numbers of entries may be anything, and newer fields come along. A message
that is there but empty is 0, since proto3 leaves zeros out.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Final

import msgspec

from collectors import protobuf
from collectors.protobuf import BYTES, Malformed, Value, double, doubles, fields, signed, text, varints

SERVICE: Final = "/tpu.monitoring.runtime.RuntimeMetricService/"
GET: Final = SERVICE + "GetRuntimeMetric"
LIST: Final = SERVICE + "ListSupportedMetrics"

Attribute = str | int | float
MAX_ENTRIES: Final = 10_000
MAX_BUCKETS: Final = 200
"""The device plugin drops a distribution with so many, too."""
_MAX_TEXT: Final = 200


class Distribution(msgspec.Struct, frozen=True, kw_only=True):
    """``bounds`` are the upper ones of all buckets but the last, which has none; ``counts`` has one number more."""

    count: int
    mean: float
    bounds: tuple[float, ...] = ()
    counts: tuple[int, ...] = ()


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One value of a metric."""

    attributes: Mapping[str, Attribute]
    """Hyphens in keys are written as underscores: versions of libtpu differ in that alone."""
    value: int | float | None = None
    """Of a gauge or a counter."""
    distribution: Distribution | None = None

    @property
    def device(self) -> int | None:
        """The device that the value is of: versions differ in the attribute's key, and in writing it as text."""
        for value in self.attributes.values():
            if isinstance(value, int):
                return value
            if isinstance(value, str) and value.isascii() and value.isdecimal():
                return int(value[:18])
        return None


def request(metric: str) -> bytes:
    """A MetricRequest."""
    return protobuf.string_field(1, metric)


def supported(data: bytes) -> frozenset[str]:
    """The names in a ListSupportedMetricsResponse. Raises Malformed."""
    names = (
        text(inner)
        for number, _, value in fields(data)
        if number == 1 and isinstance(value, bytes)
        for field, wire, inner in fields(value)
        if field == 1 and wire == BYTES and isinstance(inner, bytes)
    )
    return frozenset(names)


def entries(data: bytes) -> list[Entry]:
    """The values in a MetricResponse. Raises Malformed."""
    found: list[Entry] = []
    for number, _, value in fields(data):
        if number == 1 and isinstance(value, bytes):
            for field, _, inner in fields(value):
                if field == 3 and isinstance(inner, bytes):
                    if len(found) >= MAX_ENTRIES:
                        raise Malformed(f"there are more than {MAX_ENTRIES} values")
                    found.append(_entry(inner))
    return found


def _entry(data: bytes) -> Entry:
    attributes: dict[str, Attribute] = {}
    value: int | float | None = None
    distribution: Distribution | None = None
    for number, _, inner in fields(data):
        if not isinstance(inner, bytes):
            continue
        if number == 1:
            attributes |= _attribute(inner)
        elif number == 3:
            value = _gauge(inner)
        elif number == 4:
            value = _counter(inner)
        elif number == 5:
            distribution = _distribution(inner)
    return Entry(attributes=attributes, value=value, distribution=distribution)


def _attribute(data: bytes, *, nested: bool = True) -> dict[str, Attribute]:
    """One attribute, or those of the list that it is."""
    key = ""
    found: bytes | None = None
    for number, _, value in fields(data):
        if number == 1 and isinstance(value, bytes):
            key = text(value)[:_MAX_TEXT].replace("-", "_")
        elif number == 2 and isinstance(value, bytes):
            found = value
    if found is None:
        return {}
    plain: Attribute = 0
    for number, _, value in fields(found):
        if number == 6 and isinstance(value, bytes) and nested:
            inner = (part for field, _, part in fields(value) if field == 1 and isinstance(part, bytes))
            return {name: held for part in inner for name, held in _attribute(part, nested=False).items()}
        plain = _plain(number, value, plain)
    return {key: plain}


def _plain(number: int, value: Value, otherwise: Attribute) -> Attribute:
    if number == 1 and isinstance(value, bytes):
        return text(value)[:_MAX_TEXT]
    if number in (2, 3) and isinstance(value, int):
        return signed(value)
    if number == 4 and isinstance(value, bytes):
        return double(value)
    return otherwise


def _gauge(data: bytes) -> int | float | None:
    """A gauge's value. None: it is no number."""
    found: int | float | None = 0
    for number, _, value in fields(data):
        if number == 1 and isinstance(value, bytes):
            found = double(value)
        elif number in (2, 4) and isinstance(value, int):
            found = signed(value)
        elif number == 3:
            found = None
    return found if found is None or math.isfinite(found) else None


def _counter(data: bytes) -> int | float | None:
    """A counter's value. Its whole numbers have no sign, and an example of what was counted can stand beside them."""
    found: int | float = 0
    for number, _, value in fields(data):
        if number == 1 and isinstance(value, bytes):
            found = double(value)
        elif number == 2 and isinstance(value, int):
            found = value
    return found if math.isfinite(found) else None


def _distribution(data: bytes) -> Distribution:
    count = 0
    mean = 0.0
    bounds: list[float] | None = None
    counts: list[int] = []
    for number, wire, value in fields(data):
        if number == 1 and isinstance(value, int):
            count = signed(value)
        elif number == 2 and isinstance(value, bytes):
            mean = double(value)
        elif number == 6 and isinstance(value, bytes):
            bounds = _bounds(value)
        elif number == 7:
            counts += [signed(one) for one in varints(wire, value)]
    if not math.isfinite(mean) or count < 0 or any(one < 0 for one in counts):
        raise Malformed("a distribution has no numbers that could be counts")
    if bounds is None or not counts:
        return Distribution(count=count, mean=mean)
    if len(counts) > len(bounds) + 1:
        raise Malformed(f"a distribution has {len(counts)} counts for {len(bounds) + 1} buckets")
    # Empty buckets at the end are left out.
    counts += [0] * (len(bounds) + 1 - len(counts))
    return Distribution(count=count, mean=mean, bounds=tuple(bounds), counts=tuple(counts))


def _bounds(data: bytes) -> list[float] | None:
    """The upper bounds of all buckets but the last. None: of a form that is not known."""
    for number, _, value in fields(data):
        if not isinstance(value, bytes):
            continue
        if number == 3:
            return _checked(
                [bound for field, wire, inner in fields(value) if field == 1 for bound in doubles(wire, inner)]
            )
        if number in (2, 4):
            return _checked(_computed(value, exponential=number == 2))
    return None


def _computed(data: bytes, *, exponential: bool) -> list[float]:
    """Bounds that follow from a number of buckets, a growth or width, and a scale or offset."""
    count, factors = 0, {2: 0.0, 3: 0.0}
    for number, _, value in fields(data):
        if number == 1 and isinstance(value, int):
            count = signed(value)
        elif number in factors and isinstance(value, bytes):
            factors[number] = double(value)
    if count >= MAX_BUCKETS:
        raise Malformed(f"a distribution has {count} buckets, more than {MAX_BUCKETS}")
    try:
        if exponential:
            return [factors[3] * factors[2] ** power for power in range(count + 1)]
        return [factors[3] + factors[2] * step for step in range(count + 1)]
    except (OverflowError, ZeroDivisionError) as error:
        raise Malformed(f"the bounds of a distribution cannot be computed ({error})") from error


def _checked(bounds: list[float]) -> list[float]:
    if len(bounds) >= MAX_BUCKETS:
        raise Malformed(f"a distribution has {len(bounds)} buckets, more than {MAX_BUCKETS}")
    if not all(map(math.isfinite, bounds)) or any(b <= a for a, b in itertools.pairwise(bounds)):
        raise Malformed("the bounds of a distribution do not rise")
    return bounds
