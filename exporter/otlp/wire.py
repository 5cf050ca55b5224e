"""Protocol Buffers written by hand, as far as OTLP's metrics need it (opentelemetry/proto/metrics/v1/metrics.proto).

A field's key is its number and wire type in one byte: all numbers here are below 16.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

Value = str | bool | int | float | tuple[str | bool | int | float, ...]

FIXED64: Final = struct.Struct("<Q").pack
SFIXED64: Final = struct.Struct("<q").pack
DOUBLE: Final = struct.Struct("<d").pack


def varint(value: int) -> bytes:
    """A whole number that is not negative."""
    if value < 0x80:
        return bytes((value,))
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def field(number: int, data: bytes) -> bytes:
    """A message, a text or packed numbers behind their length."""
    return bytes((number << 3 | 2,)) + varint(len(data)) + data


def text(number: int, value: str) -> bytes:
    """A text; empty ones are left out, as the default. What UTF-8 cannot carry is replaced."""
    return field(number, value.encode("utf-8", "replace")) if value else b""


def attributes(number: int, pairs: Iterable[tuple[str, Value]]) -> bytes:
    """KeyValues (key = 1, value = 2). Empty texts stay."""
    return b"".join([field(number, text(1, name) + field(2, any_value(value))) for name, value in pairs])


def any_value(value: Value) -> bytes:
    """AnyValue: string_value = 1, bool_value = 2, int_value = 3, double_value = 4, array_value = 5."""
    match value:
        case str():
            return field(1, value.encode("utf-8", "replace"))
        case bool():
            return bytes((2 << 3, value))
        case int():
            return bytes((3 << 3,)) + varint(value & 0xFFFF_FFFF_FFFF_FFFF)
        case float():
            return bytes((4 << 3 | 1,)) + DOUBLE(value)
        case _:
            return field(5, b"".join([field(1, any_value(item)) for item in value]))
