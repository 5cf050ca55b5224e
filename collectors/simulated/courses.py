"""What one raw series of one device says at a moment: a function made once, called at each sample."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Mapping
from typing import Final

from collectors.simulated.board import Unit
from collectors.simulated.load import Wander
from collectors.simulated.options import Fixed
from collectors.simulated.quantities import DIVIDED, Quantity, quantity
from collectors.simulated.trouble import number_of
from collectors.tables import Feed, Series

Number = int | float
Course = Callable[[Unit, float], Number | None]
"""Device or part, seconds since the start → value in the series' own unit. None: no reading."""

_ERROR_WORDS: Final = re.compile(
    r"(?i)err|ecc|fail|violation|crc|replay|discard|overrun|malformed|retire|remap|fault|lost|drop"
)
_SPANS: Final[Mapping[str, tuple[float, float]]] = {
    "celsius": (28.0, 74.0),
    "watts": (4.0, 60.0),
    "joules": (0.0, 1e6),
    "bytes": (16 * 2.0**20, 24 * 2.0**30),
    "bytes_per_second": (1e3, 6e9),
    "hertz": (3e8, 1.9e9),
    "seconds": (1e-4, 0.5),
    "ratio": (0.0, 0.9),
    "volts": (0.7, 1.1),
    "amperes": (1.0, 80.0),
    "rpm": (1200.0, 5200.0),
    "flops_per_second": (1e9, 6e14),
}
"""Where a quantity lies that the model does not know, by base unit: the least when idle, the most under load."""
_RATES: Final[Mapping[str, float]] = {"": 1e4, "bytes": 4e8, "joules": 50.0, "seconds": 1e-3}
"""How fast a counter goes that the model does not know, by base unit and second."""
_WHOLE_BASES: Final = frozenset(("", "bytes", "bytes_per_second", "hertz", "rpm", "flops_per_second"))


def course(
    series: Series, labels: Mapping[str, str], fixed: Fixed | None, share: float, chance: Callable[[], random.Random]
) -> Course:
    """``labels`` are the series' own; ``share`` is the part of a divided quantity that falls to them.

    ``chance`` is asked only where the model does not know the quantity: seeding a generator is what costs most here.
    """
    modelled = _modelled(series, labels, share)
    if fixed is not None and fixed.quantity == "fault_code":
        found = _fault_code(fixed.value or 0)
    elif fixed is not None and fixed.value is not None:
        found = _fixed(fixed.value, modelled)
    elif modelled is not None:
        found = modelled
    else:
        found = _unknown(series, chance())
    if not series.absent:
        return found
    absent = frozenset(series.absent)
    return lambda unit, t: None if (value := found(unit, t)) in absent else value


def apart(found: Course, series: Series, number: int) -> Course:
    """The same course, moved by a little that belongs to this number. States and codes stay as they are."""
    if any(feed.bits is not None or feed.equals is not None for feed in series.feeds):
        return found
    digits = _digits(series)
    offset = number if digits is None else (number % 1000) * 10.0**-digits

    def value(unit: Unit, t: float) -> Number | None:
        plain = found(unit, t)
        if plain is None:
            return None
        return plain + offset if digits is None else round(plain + offset, digits)

    return value


def _fault_code(healthy: Number) -> Course:
    def value(unit: Unit, _: float) -> Number:
        event = unit.board.last_event
        return healthy if event is None else number_of(event.fault.code)

    return value


def _fixed(number: Number, modelled: Course | None) -> Course:
    """The number that the vendor's file gives; of a failing device the model's, so that its failure is seen."""
    if modelled is None:
        return lambda _unit, _t: number
    return lambda unit, t: number if unit.board.course is None else modelled(unit, t)


def _modelled(series: Series, labels: Mapping[str, str], share: float) -> Course | None:
    known = [
        (feed, found)
        for feed in series.feeds
        if all(labels.get(name) in values for name, values in feed.where.items())
        and (found := _quantity(feed, labels)) is not None
    ]
    if not known:
        return None
    feed, found = known[0]
    if feed.bits is not None:
        return _mask([(other.bits, asked) for other, asked in known if other.bits is not None])
    if feed.equals is not None:
        return _choice([(other.equals, asked) for other, asked in known if other.equals is not None], series.absent)
    return _scaled(found, series, share if feed.metric in DIVIDED else 1.0)


def _quantity(feed: Feed, labels: Mapping[str, str]) -> Quantity | None:
    resolved = {
        name: labels.get(value[1:], "") if value.startswith("$") else value for name, value in feed.labels.items()
    }
    return quantity(feed.metric, resolved)


def _mask(bits: list[tuple[int, Quantity]]) -> Course:
    """Of several bits that mean one thing the lowest is set."""
    lowest = [(mask & -mask, asked) for mask, asked in bits]
    return lambda unit, _: sum(bit for bit, asked in lowest if asked(unit))


def _choice(choices: list[tuple[tuple[Number, ...], Quantity]], absent: tuple[Number, ...]) -> Course:
    """A raw state by which of the common ones is 1. None of them: a number that means none of them."""
    firsts = [(values[0], asked) for values, asked in choices if values]
    taken = {number for values, _ in choices for number in values} | set(absent)
    other = next(number for number in range(len(taken) + 1) if number not in taken)

    def value(unit: Unit, _: float) -> Number:
        return next((number for number, asked in firsts if asked(unit)), other)

    return value


def _scaled(asked: Quantity, series: Series, share: float) -> Course:
    factor = share / series.scale
    digits = _digits(series)
    if digits is None:
        return lambda unit, _: math.floor(asked(unit) * factor + 1e-9)
    return lambda unit, _: round(asked(unit) * factor, digits)


def _digits(series: Series) -> int | None:
    """Decimals that a device would give in this unit; None: whole numbers. Counters in small units have none either."""
    if series.base in _WHOLE_BASES or series.scale <= 1e-3:
        return None
    return 6 if series.base in ("ratio", "seconds") and series.scale == 1.0 else 3


def _unknown(series: Series, rng: random.Random) -> Course:
    counting = (series.type == "counter" or series.cumulative) and not series.base.endswith("_per_second")
    if counting:
        return _counter(series, rng)
    if series.base not in _SPANS:
        # A code, a state, a position: nothing is known but that zero is rarely alarming.
        number = next(number for number in range(len(series.absent) + 1) if number not in series.absent)
        return lambda _unit, _t: number
    low, high = _SPANS[series.base]
    high = low + (high - low) * rng.uniform(0.3, 1.0)
    wander = Wander(rng, rng.uniform(8.0, 60.0))
    digits = _digits(series)

    def value(unit: Unit, t: float) -> Number:
        level = 0.1 + 0.7 * unit.load.utilization + 0.1 * wander.at(t)
        raw = (low + (high - low) * level) / series.scale
        return math.floor(raw) if digits is None else round(raw, digits)

    return value


def _counter(series: Series, rng: random.Random) -> Course:
    """Goes up at all times, now faster and now slower. Errors are counted on failing devices alone."""
    digits = _digits(series)
    if _ERROR_WORDS.search(series.name):
        return lambda unit, _: unit.board.trouble.uncorrectable if series.base == "" else 0
    rate = _RATES.get(series.base, 1.0) * rng.uniform(0.4, 1.6)
    period, phase = rng.uniform(30.0, 120.0), rng.uniform(0.0, math.tau)
    start = rate * rng.uniform(1e3, 1e5)

    def value(_unit: Unit, t: float) -> Number:
        # The swing's slope is below 1, so that the sum never falls.
        swung = t + 0.7 * period / math.tau * (math.sin(math.tau * t / period + phase) - math.sin(phase))
        raw = (start + rate * swung) / series.scale
        return math.floor(raw) if digits is None else round(raw, digits)

    return value
