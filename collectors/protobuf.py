"""Protocol Buffers on the wire, as far as a reader needs it: no generated code, no runtime library.

The format: https://protobuf.dev/programming-guides/encoding/. Unknown fields are for the caller to ignore, so that a
newer server does no harm.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

VARINT: Final = 0
FIXED64: Final = 1
BYTES: Final = 2
FIXED32: Final = 5

_SIZES: Final = {FIXED64: 8, FIXED32: 4}
_DOUBLE: Final = struct.Struct("<d")
_MOST_VARINT_BYTES: Final = 10

Value = int | bytes
"""A varint as it stands on the wire (unsigned), else the field's bytes."""


class Malformed(ValueError):
    """The bytes are no message."""


def fields(data: bytes) -> Iterator[tuple[int, int, Value]]:
    """Number, wire type and value of each field of a message, in its order. Raises Malformed."""
    position = 0
    while position < len(data):
        key, position = _varint(data, position)
        number, wire = key >> 3, key & 7
        if not number:
            raise Malformed("a field has the number 0")
        if wire == VARINT:
            value, position = _varint(data, position)
            yield number, wire, value
            continue
        if wire == BYTES:
            size, position = _varint(data, position)
        elif wire in _SIZES:
            size = _SIZES[wire]
        else:
            raise Malformed(f"field {number} has the wire type {wire}")
        if size > len(data) - position:
            raise Malformed(f"field {number} ends after the message")
        yield number, wire, data[position : position + size]
        position += size


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = 0
    for count in range(_MOST_VARINT_BYTES):
        if position >= len(data):
            raise Malformed("the message ends within a number")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, position
    raise Malformed("a number is longer than 64 bits")


def signed(value: int) -> int:
    """A varint of the types int32 and int64."""
    return value - (1 << 64) if value >= 1 << 63 else value


def double(value: bytes) -> float:
    """A fixed64 of the type double. Raises Malformed for another size."""
    if len(value) != _DOUBLE.size:
        raise Malformed(f"a double has {len(value)} bytes")
    return float(_DOUBLE.unpack(value)[0])


def text(value: bytes) -> str:
    """A string. What is no UTF-8 in it is replaced."""
    return value.decode("utf-8", "replace")


def varints(wire: int, value: Value) -> Iterator[int]:
    """One occurrence of a repeated integer field, which may be packed. Raises Malformed."""
    if isinstance(value, int):
        yield value
    elif wire == BYTES:
        position = 0
        while position < len(value):
            number, position = _varint(value, position)
            yield number


def doubles(wire: int, value: Value) -> Iterator[float]:
    """One occurrence of a repeated double field, which may be packed. Raises Malformed."""
    if isinstance(value, int):
        return
    if wire == FIXED64:
        yield double(value)
    elif wire == BYTES:
        if len(value) % _DOUBLE.size:
            raise Malformed(f"packed doubles have {len(value)} bytes")
        for (number,) in _DOUBLE.iter_unpack(value):
            yield float(number)


def string_field(number: int, value: str) -> bytes:
    """A string field, encoded."""
    return bytes_field(number, value.encode())


def bytes_field(number: int, value: bytes) -> bytes:
    """A field of bytes, or of a message that is encoded already."""
    return _encode_varint(number << 3 | BYTES) + _encode_varint(len(value)) + value


def _encode_varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)
