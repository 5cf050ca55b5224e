"""What a route outside this package answers, and what the server does with it: coding, validators, refusals."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

import msgspec

from exporter.exposition import compress
from exporter.negotiation import Encoding

JSON: Final = "application/json"
SMALL: Final = 1024
"""Bytes below which compressing gains nothing."""

Query = Mapping[str, Sequence[str]]
"""Parameter → its values, in the order in which they stand there."""


class BadQuery(ValueError):
    """A parameter is not what it should be; the message says what was expected and repeats nothing of it."""


class Resource(msgspec.Struct, frozen=True, kw_only=True):
    """The content of an answer."""

    content: bytes
    content_type: str = JSON
    headers: Mapping[str, str] = {}
    constant: bool = False
    """It stays the same while the agent runs: a browser may keep it, and asks whether it is still right."""


Answerer = Callable[[Query], Awaitable[Resource]]
"""Raises BadQuery."""


def etag(resource: Resource) -> str:
    """A weak validator: the same content in another coding has the same."""
    return f'W/"{hashlib.sha256(resource.content).hexdigest()[:32]}"'


def is_known(tag: str, if_none_match: Sequence[str]) -> bool:
    """Whether a client that sends these If-None-Match headers has the content already."""
    opaque = tag.removeprefix("W/")
    named = {part.strip().removeprefix("W/") for line in if_none_match for part in line.split(",")}
    return opaque in named or "*" in named


async def coded(content: bytes, encoding: Encoding) -> tuple[bytes, Encoding]:
    """The content in a coding, where that is worth it. Compressing lets go of the interpreter's lock."""
    if encoding == "identity" or len(content) < SMALL:
        return content, "identity"
    return await asyncio.to_thread(compress, [content], encoding), encoding


def only(query: Query, *known: str) -> None:
    """Raises BadQuery for a parameter that is not among the known ones, or that stands there twice."""
    if set(query) - set(known):
        raise BadQuery("expected no parameters" if not known else f"expected no parameters but {', '.join(known)}")
    for name, values in query.items():
        if len(values) > 1:
            raise BadQuery(f"{name}: expected once")
