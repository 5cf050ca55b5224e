"""Packs the values of a block into data points.

NumberDataPoint: start_time = 2, time = 3, as_double = 4, as_int = 6, attributes = 7, flags = 8.
"""

from __future__ import annotations

import logging
import math
import operator
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from exporter.exposition_text import number
from exporter.model import MetricType, Number
from exporter.otlp import wire
from exporter.otlp.batch import Batch, Starts
from exporter.otlp.names import Instrument
from exporter.otlp.resource import Resource
from exporter.otlp.streams import Stream

log = logging.getLogger(__name__)

_START, _TIME, _AS_DOUBLE, _AS_INT = b"\x11", b"\x19", b"\x21", b"\x31"
_NO_RECORDED_VALUE: Final = b"\x40\x01"
_FIXED: Final = 18
"""Bytes of time and value."""
_LARGE: Final = 2**63 - 1
"""The largest whole number of a point; beyond it there is the double."""


class Share(msgspec.Struct, frozen=True, eq=False):
    """The points of a block that go to the same metric of the same resource: those up to ``stop``."""

    resource: Resource
    instrument: Instrument
    stop: int


class Points(msgspec.Struct, frozen=True, eq=False):
    """What is known of a block's points before their values. All are of one kind."""

    pick: Callable[[Sequence[Number]], Sequence[Number]]
    """Puts a block's values into the order of the points."""
    heads: tuple[bytes, ...]
    """Key, length and attributes of each point."""
    shares: tuple[Share, ...]
    integer: bool
    streams: tuple[Stream, ...] | None
    """Of counters."""


def head(attributes: bytes, *, counter: bool) -> bytes:
    """What stands before time and value of a point."""
    return b"\x0a" + wire.varint(len(attributes) + _FIXED + 9 * counter) + attributes


def ended(attributes: bytes, time: int) -> bytes:
    """The last point of a series that is gone: it has no value. ``time`` in Unix nanoseconds."""
    return wire.field(1, attributes + _TIME + wire.FIXED64(time) + _NO_RECORDED_VALUE)


def picker(indices: Sequence[int], whole: int) -> Callable[[Sequence[Number]], Sequence[Number]]:
    """Takes these of ``whole`` values, in this order."""
    if indices == list(range(whole)):
        return lambda values: values
    if not indices:
        return lambda values: ()
    if len(indices) == 1:
        only = indices[0]
        return lambda values: (values[only],)
    return operator.itemgetter(*indices)


def add(batch: Batch, known: Points, values: Sequence[Number], time: int) -> int:
    """Put the points into the batch. Returns how many there are. ``time`` in Unix nanoseconds."""
    heads, streams, shares = known.heads, known.streams, known.shares
    chosen = known.pick(values)
    keep = _fitting(chosen, "counter" if streams is not None else "gauge")
    if keep is not None:
        heads = tuple([heads[index] for index in keep])
        streams = tuple([streams[index] for index in keep]) if streams is not None else None
        chosen = tuple([chosen[index] for index in keep])
        shares = tuple([Share(s.resource, s.instrument, bisect_left(keep, s.stop)) for s in shares])
    count = len(heads)
    if not count:
        return 0
    # Parts of all points are set side by side, for that is the fastest way to join them.
    size = 3 if streams is None else 4
    parts = [b""] * (size * count)
    parts[0::size] = heads
    if streams is not None:
        begun = [stream.point(value, time) for stream, value in zip(streams, chosen, strict=True)]
        parts[1::size] = [_START + wire.FIXED64(start) for start in begun]
    clock = _TIME + wire.FIXED64(time)
    if known.integer and set(map(type, chosen)) == {int} and -_LARGE <= min(chosen) <= max(chosen) <= _LARGE:
        parts[size - 2 :: size] = [clock + _AS_INT] * count
        parts[size - 1 :: size] = map(wire.SFIXED64, chosen)
    else:
        parts[size - 2 :: size] = [clock + _AS_DOUBLE] * count
        parts[size - 1 :: size] = map(wire.DOUBLE, chosen)
    begin = 0
    for share in shares:
        stop = share.stop
        if stop > begin:
            starts = _unsettled(streams[begin:stop], time) if streams is not None else ()
            data = b"".join(parts[begin * size : stop * size])
            batch.add(share.resource, share.instrument, data, stop - begin, starts)
            begin = stop
    return count


def _unsettled(streams: Sequence[Stream], time: int) -> Starts:
    return [(stream, time) for stream in streams if stream.start is None]


def _fitting(values: Sequence[Number], kind: MetricType) -> list[int] | None:
    """Positions of the values that /metrics shows, too; None: all of them. NaN, for one, does not say 'missing'."""
    try:
        if all(map(math.isfinite, values)) and (kind != "counter" or min(values, default=0) >= 0):
            return None
    except OverflowError:
        log.debug("a value is larger than any float")
    return [index for index, value in enumerate(values) if number(value, kind) is not None]
