"""Newest values out of an engine's cache, many entities and fields in one call."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from collectors.nvidia.dcgm import abi
from collectors.nvidia.dcgm.engine import Engine
from collectors.nvidia.dcgm.library import entities, shorts

_MOST_RECORDS: Final = 512
"""In one call: each record has room for 4 KiB of binary data."""


class Value(msgspec.Struct, frozen=True, gc=False):
    """One record. ``value`` is None where the type carries neither a number nor a text."""

    entity: abi.Entity
    field: int
    status: int
    at: int
    """Microseconds since 1970, by the engine's clock."""
    value: int | float | str | None


class Reader:
    """Keeps the buffer from one read to the next."""

    __slots__ = ("_buffer", "_engine")

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._buffer: ctypes.Array[ctypes.c_char] | None = None

    def read(self, pairs: Sequence[abi.Entity], fields: Sequence[int], *, live: bool = False) -> Iterator[Value]:
        """Every record that the engine fills. ``live`` asks the driver, which is slow. Raises DcgmFailure."""
        for first in range(0, len(fields), abi.MAX_FIELDS):
            ids = fields[first : first + abi.MAX_FIELDS]
            step = min(abi.MAX_PAIRS, _MOST_RECORDS // len(ids))
            for start in range(0, len(pairs), step):
                yield from self._read(pairs[start : start + step], ids, abi.LIVE if live else 0)

    def _read(self, pairs: Sequence[abi.Entity], ids: Sequence[int], flags: int) -> Iterator[Value]:
        size, version = abi.VALUE
        count = len(pairs) * len(ids)
        if self._buffer is None or len(self._buffer) < count * size:
            self._buffer = ctypes.create_string_buffer(count * size)
        buffer = self._buffer
        # A record that the engine does not fill keeps version 0.
        ctypes.memset(buffer, 0, count * size)
        self._engine.call(
            "dcgmEntitiesGetLatestValues", entities(pairs), len(pairs), shorts(ids), len(ids), flags, buffer
        )
        for offset in range(0, count * size, size):
            head = abi.VALUE_HEAD.unpack_from(buffer, offset)
            if head[0] == version:
                _, group, entity, field, kind, status, at = head
                value = abi.union(buffer, offset + abi.VALUE_UNION, kind)
                yield Value((group, entity), field, status, at, value)
