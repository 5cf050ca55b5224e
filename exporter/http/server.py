"""The HTTP server: /metrics and a few pages for people and for Kubernetes."""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from http import HTTPStatus
from typing import Final

import msgspec
from aiohttp import web

from exporter.config import Admin, Http
from exporter.exposition import BodyRequest, Exposition, encodings
from exporter.families import Publication, Schema
from exporter.http import release as http_release
from exporter.http.landing import public
from exporter.http.limits import REASONS, Connection, Gate
from exporter.http.listen import AT_A_TIME, BACKLOG, Place, listen, name, places, remove
from exporter.http.resources import Answerer, BadQuery, coded, etag, is_known
from exporter.http.secured import Layer
from exporter.negotiation import encoding, negotiate
from exporter.selfmetrics import SelfMetrics
from exporter.web.credentials import Refusal
from exporter.web.keeper import Keeper

__all__ = ["Served", "Server", "serve"]

CHUNK: Final = 256 * 1024
"""Bytes of an answer that wait for a client at a time: a slow reader holds no more than these."""
MAX_NAMES: Final = 200
"""The most name[] of one request."""
RETRY_AFTER: Final = 2
"""Seconds that a client is asked to wait where the agent is not ready."""
RELEASE_DEADLINE: Final = 60.0
"""Seconds after which a release that does not come to its end is reported as such."""
LOG_EVERY: Final = 600.0
"""Seconds between two log lines about the same error."""
MAX_TROUBLES: Final = 100

TEXT: Final = "text/plain; charset=utf-8"
COMMON_HEADERS: Final = {
    "Server": "accel-exporter",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
}
NAME: Final = re.compile("[a-zA-Z_:][a-zA-Z0-9_:]*")
SCHEMAS: Final[Mapping[str, Schema]] = {"common": "common", "raw": "raw"}

log = logging.getLogger(__name__)


class Served(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What the server shows. All functions but ``release`` answer at once, from what is known."""

    publication: Callable[[], Publication]
    """The newest; before the first sample one without families."""
    exposition: Exposition
    metrics: SelfMetrics
    ready: Callable[[], tuple[bool, str]]
    """Whether the first cycle of readings is done, and if not, what is waited for."""
    alive: Callable[[], tuple[bool, str]]
    """Whether the agent works, and if not, what does not. Kubernetes restarts an agent that does not."""
    pages: Mapping[str, Answerer] = {}
    """Path → what else is served there."""
    release: Callable[[float], Awaitable[None]] | None = None
    """Let go of the devices for so many seconds; returns when their handles are closed. None: switched off."""


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """An answer, whole."""

    status: int = 200
    content: bytes
    content_type: str = TEXT
    headers: Mapping[str, str] = {}


def text(status: int, words: str, headers: Mapping[str, str] | None = None) -> Reply:
    return Reply(status=status, content=f"{words}\n".encode(), headers=headers or {})


class Route(msgspec.Struct, frozen=True):
    methods: tuple[str, ...]
    answer: Callable[[web.BaseRequest], Awaitable[Reply]]


class Site:
    """The pages."""

    def __init__(self, served: Served, admin: Admin) -> None:
        self._served, self._admin = served, admin
        self._encodings = encodings()
        self._releasing = asyncio.Lock()
        self._logged: dict[str, float] = {}
        reading = ("GET", "HEAD")
        self._routes: Mapping[str, Route] = {
            **{path: Route(reading, partial(self._page, answerer)) for path, answerer in served.pages.items()},
            "/metrics": Route(reading, self._metrics),
            "/healthz": Route(reading, self._healthz),
            "/readyz": Route(reading, self._readyz),
            "/-/release": Route(("POST",), self._release),
        }

    def name(self, path: str) -> str:
        """The name under which the time of an answer is counted: one of a fixed set."""
        return path if path in self._routes else "other"

    async def answer(self, request: web.BaseRequest) -> Reply:
        route = self._routes.get(request.path)
        if route is None:
            return text(404, "there is no such page: / lists those that there are")
        if request.method not in route.methods:
            allowed = ", ".join(route.methods)
            return text(405, f"this page answers to {allowed}", {"Allow": allowed})
        try:
            return await route.answer(request)
        except Exception as error:
            if self._is_due(f"{request.path} {type(error).__name__}"):
                log.exception("a request could not be answered", extra={"route": request.path})
            return text(500, "internal error: the agent's log tells more")

    def _is_due(self, trouble: str) -> bool:
        now = time.monotonic()
        if now - self._logged.get(trouble, float("-inf")) < LOG_EVERY:
            return False
        if len(self._logged) >= MAX_TROUBLES:
            self._logged.clear()
        self._logged[trouble] = now
        return True

    async def _page(self, answerer: Answerer, request: web.BaseRequest) -> Reply:
        try:
            resource = await answerer({name: request.query.getall(name) for name in request.query})
        except BadQuery as error:
            return text(400, str(error))
        headers = {"Vary": "Accept-Encoding", **resource.headers}
        if resource.constant:
            headers |= {"ETag": etag(resource), "Cache-Control": "no-cache"}
            if is_known(headers["ETag"], request.headers.getall("If-None-Match", [])):
                return Reply(status=304, content=b"", content_type=resource.content_type, headers=headers)
        asked = encoding(",".join(request.headers.getall("Accept-Encoding", [])), self._encodings)
        content, coding = await coded(resource.content, asked)
        if coding != "identity":
            headers["Content-Encoding"] = coding
        return Reply(content=content, content_type=resource.content_type, headers=headers)

    async def _metrics(self, request: web.BaseRequest) -> Reply:
        try:
            schema = _schema(request.query.getall("schema", []))
            names = _names(request.query.getall("name[]", []))
        except ValueError as error:
            return text(400, str(error))
        # A header that stands there several times is one list.
        accept = ",".join(request.headers.getall("Accept", []))
        negotiated = negotiate(accept)
        coding = encoding(",".join(request.headers.getall("Accept-Encoding", [])), self._encodings)
        body = await self._served.exposition.body(
            self._served.publication(),
            BodyRequest(
                format=negotiated.format,
                escaping=negotiated.escaping,
                encoding=coding,
                schema=schema,
                names=names,
            ),
        )
        headers = {"Vary": "Accept, Accept-Encoding"}
        if body.encoding != "identity":
            headers["Content-Encoding"] = body.encoding
        return Reply(content=body.content, content_type=body.content_type, headers=headers)

    async def _healthz(self, _: web.BaseRequest) -> Reply:
        alive, reason = self._served.alive()
        return text(200, "ok") if alive else text(503, public(reason))

    async def _readyz(self, _: web.BaseRequest) -> Reply:
        ready, reason = self._served.ready()
        return text(200, "ready") if ready else text(503, public(reason), {"Retry-After": str(RETRY_AFTER)})

    async def _release(self, request: web.BaseRequest) -> Reply:
        release = self._served.release
        if release is None:
            return text(403, "releasing devices is switched off: set admin.release to true in the configuration")
        peer = request.transport.get_extra_info("peername") if request.transport is not None else None
        refusal = http_release.refusal(peer, request.headers, request.headers.getall("Host", []))
        if refusal is not None:
            return text(403, refusal)
        try:
            seconds = http_release.seconds(request.query.getall("seconds", []), self._admin.release_seconds)
        except ValueError as error:
            return text(400, str(error))
        if self._releasing.locked():
            return text(409, "the devices are being released: wait for the answer to the other request")
        async with self._releasing:
            try:
                async with asyncio.timeout(RELEASE_DEADLINE):
                    await release(seconds)
            except TimeoutError:
                return text(504, "not all devices are released: a worker hangs, / and the kernel's log tell more")
        return text(200, f"released: nothing is read for {seconds:g} seconds")


def _schema(values: Sequence[str]) -> Schema | None:
    if not values:
        return None
    chosen = set(values)
    if len(chosen) != 1 or not chosen <= SCHEMAS.keys():
        raise ValueError("schema: expected common or raw, once; without it both are served")
    return SCHEMAS[chosen.pop()]


def _names(values: Sequence[str]) -> frozenset[str]:
    if len(values) > MAX_NAMES:
        raise ValueError(f"name[]: expected at most {MAX_NAMES}, got {len(values)}")
    for position, value in enumerate(values, 1):
        if NAME.fullmatch(value) is None:
            raise ValueError(f"name[]: expected names of metrics; number {position} is none")
    return frozenset(values)


# Sending


def _response(reply: Reply, more: Mapping[str, str], *, last: bool) -> web.StreamResponse:
    headers = {**COMMON_HEADERS, "Content-Type": reply.content_type, **reply.headers, **more}
    response: web.StreamResponse
    if len(reply.content) > CHUNK:
        response = web.StreamResponse(status=reply.status, headers=headers)
        response.content_length = len(reply.content)
    else:
        # Head and content leave in one packet.
        response = web.Response(status=reply.status, headers=headers, body=reply.content)
    if last:
        response.force_close()
    return response


async def _send(request: web.BaseRequest, response: web.StreamResponse, content: bytes) -> None:
    """Send all of it. Raises ConnectionError when the client has gone or was given up."""
    await response.prepare(request)
    if isinstance(response, web.Response) or request.method == "HEAD":
        await response.write_eof()
        return
    pieces = memoryview(content)
    end = max(0, len(content) - CHUNK)
    for start in range(0, end, CHUNK):
        await response.write(pieces[start : min(start + CHUNK, end)])
    # Only with data does the end wait until the data is gone.
    await response.write_eof(bytes(pieces[end:]))


class _Parser(web.RequestHandler):
    """aiohttp's protocol. What it says of malformed requests names libraries and versions: this says less."""

    __slots__ = ()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            log.error("an answer could not be sent", exc_info=exc)
        connection = _connection(request)
        if connection is not None:
            connection.malformed()
        words = "malformed request" if status < HTTPStatus.INTERNAL_SERVER_ERROR else "internal error"
        return _response(text(status, words, {"Connection": "close"}), {}, last=True)


def _connection(request: web.BaseRequest) -> Connection | None:
    """The connection that a request came over; None when it has gone."""
    protocol = request.transport.get_protocol() if request.transport is not None else None
    return protocol if isinstance(protocol, Connection) else None


class Server:
    """A running server."""

    def __init__(self, served: Served, http: Http, admin: Admin, keeper: Keeper | None = None) -> None:
        self.addresses: tuple[str, ...] = ()
        """HOST:PORT of each listening socket, with its real port, or unix:PATH."""
        self._keeper = keeper
        self._places: Mapping[str, Place] = {}
        self._site = Site(served, admin)
        self._metrics = served.metrics
        self._manager = web.Server(self._answer)
        self._gate = Gate(http, self._rejected, self._parser)
        self._listeners: list[asyncio.Server] = []
        for reason in REASONS:
            self._metrics.http_rejected.labels(reason)

    async def open(self, sockets: Sequence[socket.socket]) -> None:
        """Serve on listening sockets."""
        self.addresses = tuple(name(each) for each in sockets)
        self._places = places(sockets)
        factory: Callable[[], asyncio.Protocol] = self._gate
        keeper = self._keeper
        if keeper is not None:
            keeper.distrusted = self._gate.retire
            if keeper.secure:
                factory = partial(Layer, self._gate, keeper.context, keeper.admits)
        loop = asyncio.get_running_loop()
        self._listeners = [await loop.create_server(factory, sock=each, backlog=AT_A_TIME) for each in sockets]
        for each in sockets:
            # What the loop takes in at a time it has also told the kernel, whose queue may be longer.
            each.listen(BACKLOG)

    async def close(self, grace: float) -> None:
        """Take no more connections, let answers that are under way end within ``grace`` seconds, and stop."""
        await asyncio.to_thread(remove, self._places)
        for listener in self._listeners:
            listener.close()
        await self._gate.close(grace)
        # What is still at work now has lost its client.
        await self._manager.shutdown(timeout=0.1)
        for listener in self._listeners:
            await listener.wait_closed()

    def _rejected(self, reason: str) -> None:
        self._metrics.http_rejected.labels(reason).inc()

    def _parser(self) -> _Parser:
        # The gate bounds sizes and idle time more tightly; bodies it never lets through.
        size = 2 * self._gate.limits.max_header_bytes + 1024
        return _Parser(
            self._manager,
            loop=asyncio.get_running_loop(),
            keepalive_timeout=2 * self._gate.limits.idle_timeout + 60,
            access_log=None,  # type: ignore[arg-type]
            logger=log,
            max_line_size=size,
            max_field_size=size,
            lingering_time=0,
            auto_decompress=False,
        )

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        connection = _connection(request)
        if connection is None:
            # The client has gone: aiohttp cannot send this, and ends quietly.
            return web.Response()
        connection.begin()
        began = time.perf_counter()
        reply = await self._refusal(request, connection) or await self._site.answer(request)
        upgrade = "Upgrade" in request.headers or request.method == "CONNECT"
        more = {} if self._keeper is None else self._keeper.headers
        response = _response(reply, more, last=connection.last or upgrade)
        connection.sending()
        try:
            await _send(request, response, reply.content)
        except ConnectionError:
            # aiohttp sends what it is given, meets the same error, and ends quietly.
            return response
        route = self._site.name(request.path)
        self._metrics.http_duration.labels(route, str(reply.status)).observe(time.perf_counter() - began)
        connection.sent(keep=bool(response.keep_alive))
        return response

    async def _refusal(self, request: web.BaseRequest, connection: Connection) -> Reply | None:
        """Why this client gets no answer; None: it may come in."""
        if self._keeper is None:
            return None
        headers = request.headers.getall("Authorization", [])
        found = await self._keeper.judge(headers, connection.peer, connection.proof)
        if isinstance(found, Refusal):
            self._rejected(found.why)
            return text(found.status, found.words, found.headers)
        connection.proof = found
        return None


async def serve(
    served: Served, *, listen_on: Sequence[str], http: Http, admin: Admin, keeper: Keeper | None = None
) -> Server:
    """Listen on all addresses (HOST:PORT, unix:PATH) and serve. Raises OSError, whose ``strerror`` says what to do."""
    # A name is looked up, which can take its time.
    sockets = await asyncio.to_thread(listen, listen_on, int(http.socket_mode, 8))
    server = Server(served, http, admin, keeper)
    await server.open(sockets)
    return server
