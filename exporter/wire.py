"""Length-prefixed MessagePack between the agent and its workers."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

import msgspec

HEADER: Final = struct.Struct("!I")
MAX_MESSAGE: Final = 64 * 1024 * 1024
"""A length above this is no message but garbage on the channel."""

_ENCODER: Final = msgspec.msgpack.Encoder()


class BrokenChannel(Exception):
    """The other side closed the channel in the middle of a message, or sent something that is no message."""


def pack(message: object) -> bytes:
    body = _ENCODER.encode(message)
    if len(body) > MAX_MESSAGE:
        raise BrokenChannel(f"a message of {len(body)} bytes is over the limit of {MAX_MESSAGE}")
    return HEADER.pack(len(body)) + body


def length(header: bytes) -> int:
    """The length of the message behind this header. Raises BrokenChannel."""
    (size,) = HEADER.unpack(header)
    if size > MAX_MESSAGE:
        raise BrokenChannel(f"a message of {size} bytes is over the limit of {MAX_MESSAGE}")
    return int(size)


def receive(read: Callable[[int], bytes]) -> bytes | None:
    """The body of the next message from a blocking ``read``; None when the other side is gone. Raises BrokenChannel."""
    header = _exactly(read, HEADER.size)
    if header is None:
        return None
    body = _exactly(read, length(header))
    if body is None:
        raise BrokenChannel("the channel ended behind a header")
    return body


def _exactly(read: Callable[[int], bytes], size: int) -> bytes | None:
    parts: list[bytes] = []
    missing = size
    while missing:
        part = read(missing)
        if not part:
            if parts:
                raise BrokenChannel("the channel ended inside a message")
            return None
        parts.append(part)
        missing -= len(part)
    return b"".join(parts)
