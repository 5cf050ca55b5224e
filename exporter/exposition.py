"""The bodies of scrapes: each is written once and compressed once, and sent while its publication is the newest."""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import time
import zlib
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from concurrent.futures import Executor
from typing import Final, Generic, Protocol, TypeVar

import msgspec

from exporter.exposition_text import Rendered, Texts, own_families, plan, render
from exporter.families import Block, Publication, Schema
from exporter.negotiation import Encoding, Format, Negotiated

__all__ = ["Body", "BodyRequest", "Exposition", "compress", "encodings", "render"]

T = TypeVar("T")

CHUNK: Final = 256 * 1024
"""Bytes that are compressed in one call."""
LEVEL: Final = 1
"""Of gzip and zstd: gzip 6 makes a body 17 % smaller than gzip 1 in 2.3 times the time, zstd gains nothing above 1."""
FILTERED_AT_ONCE: Final = 2
"""Bodies for name[] that may be in the making together: they are not kept, and each can be as big as the whole."""

log = logging.getLogger(__name__)


class BodyRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a scrape asks for."""

    format: Format
    escaping: bool = False
    encoding: Encoding = "identity"
    schema: Schema | None = None
    """common: the common schema and the agent's own metrics. raw: the vendors' series alone. None: everything."""
    names: frozenset[str] = frozenset()
    """Only these families, by the name of their samples or of the family in OpenMetrics. Empty: all."""


class Body(msgspec.Struct, frozen=True):
    """The body of an answer, and the headers that tell how to read it."""

    content: bytes
    content_type: str
    encoding: Encoding


def encodings() -> tuple[Encoding, ...]:
    """The content codings that this installation can make."""
    return ("gzip", "zstd") if importlib.util.find_spec("zstandard") else ("gzip",)


def compress(pieces: Iterable[bytes], encoding: Encoding) -> bytes:
    """Compress a body. Raises ModuleNotFoundError for zstd where ``encodings`` does not list it."""
    if encoding == "identity":
        return b"".join(pieces)
    compressor: _Compressor
    if encoding == "zstd":
        # Imported here, since it is an extra that few installations use.
        import zstandard

        compressor = zstandard.ZstdCompressor(level=LEVEL).compressobj()
    else:
        compressor = zlib.compressobj(LEVEL, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
    found = [compressor.compress(chunk) for chunk in _chunks(pieces)]
    found.append(compressor.flush())
    return b"".join(found)


class _Compressor(Protocol):
    def compress(self, data: bytes, /) -> bytes: ...
    def flush(self) -> bytes: ...


def _chunks(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The pieces in bigger ones: each call of a compressor gives the interpreter's lock away and takes it again."""
    gathered: list[bytes] = []
    size = 0
    for piece in pieces:
        gathered.append(piece)
        size += len(piece)
        if size >= CHUNK:
            yield b"".join(gathered)
            gathered, size = [], 0
    yield b"".join(gathered)


class _Once(Generic[T]):
    """Makes each thing once, however many wait for it, and keeps it. What failed is made again when next asked for."""

    def __init__(self) -> None:
        self._tasks: dict[object, asyncio.Task[T]] = {}

    async def get(self, key: object, make: Callable[[], Coroutine[object, object, T]]) -> T:
        task = self._tasks.get(key)
        if task is not None and task.done():
            if not task.cancelled() and task.exception() is None:
                return task.result()
            task = None
        if task is None:
            task = self._tasks[key] = asyncio.create_task(make())
        # Shielded: a scraper that hangs up must not take the body from the others.
        return await asyncio.shield(task)


class _Kept:
    """What was made for one publication."""

    def __init__(self, publication: Publication) -> None:
        self.publication = publication
        self.texts: _Once[Mapping[Block, bytes]] = _Once()
        self.rendered: _Once[Rendered] = _Once()
        self.bodies: _Once[bytes] = _Once()


class Exposition:
    """Bodies of publications. Each is written once and compressed once, and goes with its publication.

    Blocks are written on the event loop, in slices: in a thread they would hold the interpreter's lock for five
    milliseconds at a time, and every other task would wait as long. Compressing leaves the lock alone and has a thread.

    ``agent_text`` writes the agent's own metrics; it is called on the event loop, once a publication and format.
    ``observe`` is told the seconds of work that writing a publication took. ``executor``: None for the loop's own.
    """

    def __init__(
        self,
        agent_text: Callable[[Format], bytes],
        *,
        executor: Executor | None = None,
        observe: Callable[[float], None] = lambda _: None,
    ) -> None:
        self._agent_text = agent_text
        self._executor = executor
        self._observe = observe
        self._texts = Texts()
        self._writing = asyncio.Lock()
        self._filtering = asyncio.Semaphore(FILTERED_AT_ONCE)
        self._kept: _Kept | None = None
        self._refused: dict[Format, frozenset[str]] = {}

    async def body(self, publication: Publication, request: BodyRequest) -> Body:
        """The body that answers a request. Raises ModuleNotFoundError for a coding that is not installed."""
        kept = self._kept
        if kept is None or kept.publication is not publication:
            kept = self._kept = _Kept(publication)
        if request.names:
            async with self._filtering:
                content = await self._make(kept, request)
        else:
            key = (request.format, request.schema, request.encoding)
            content = await kept.bodies.get(key, lambda: self._make(kept, request))
        return Body(content, Negotiated(request.format, request.escaping).content_type, request.encoding)

    async def _make(self, kept: _Kept, request: BodyRequest) -> bytes:
        rendered = await kept.rendered.get(request.format, lambda: self._render(kept, request.format))
        pieces = rendered.pieces(request.format, request.schema, request.names)
        if request.encoding == "identity":
            return b"".join(pieces)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, compress, pieces, request.encoding)

    async def _render(self, kept: _Kept, format_: Format) -> Rendered:
        texts = await kept.texts.get("texts", lambda: self._write(kept.publication))
        own = own_families(self._agent_text(format_))
        sections, refused = plan(kept.publication.families, format_, own)
        if refused - self._refused.get(format_, frozenset()):
            log.warning(
                "families left out of the exposition, since another has their name: %s", ", ".join(sorted(refused))
            )
        self._refused[format_] = refused
        return Rendered(sections, texts, own)

    async def _write(self, publication: Publication) -> Mapping[Block, bytes]:
        # One at a time, so that a newer publication finds what an older one wrote.
        async with self._writing:
            busy = 0.0
            steps = self._texts.update(publication.families)
            while True:
                began = time.perf_counter()
                try:
                    next(steps)
                except StopIteration as stop:
                    self._observe(busy + time.perf_counter() - began)
                    texts: Mapping[Block, bytes] = stop.value
                    return texts
                busy += time.perf_counter() - began
                await asyncio.sleep(0)
