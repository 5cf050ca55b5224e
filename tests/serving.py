"""Starts the real server on the loopback and speaks to it over sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, TypeVar

from exporter.config import Admin, Http
from exporter.exposition import Exposition
from exporter.http import Served, Server, serve
from exporter.http.resources import Answerer, Query, Resource
from exporter.negotiation import Format
from exporter.selfmetrics import SelfMetrics
from exporter.status.model import Status
from exporter.status.page import HEADERS, page
from exporter.web.keeper import Keeper
from tests.handmade import PUBLICATION

T = TypeVar("T")

PATIENCE = 20.0
"""Seconds after which a test that waits gives up: far more than anything here takes."""


def run(test: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run an asynchronous test to its end."""
    return asyncio.run(asyncio.wait_for(test(), 4 * PATIENCE))


STATUS = Status(agent_version="1.2.3", node="node-7", now=2.0, started_at=1.0, ready=True, healthy=True)


def front(status: Status) -> Answerer:
    """The status page of an agent in this state."""

    async def answer(_: Query) -> Resource:
        return Resource(content=page(status).encode(), content_type="text/html; charset=utf-8", headers=HEADERS)

    return answer


def served(**changes: Any) -> Served:
    """What a healthy agent would give the server, but for ``changes``."""
    metrics = SelfMetrics()
    given: dict[str, Any] = {
        "publication": lambda: PUBLICATION,
        "exposition": Exposition(lambda format_: metrics.text(openmetrics=format_ is Format.OPENMETRICS)),
        "metrics": metrics,
        "ready": lambda: (True, ""),
        "alive": lambda: (True, ""),
        "pages": {"/": front(STATUS)},
        **changes,
    }
    return Served(**given)


@asynccontextmanager
async def running(
    content: Served | None = None,
    *,
    http: Http | None = None,
    admin: Admin | None = None,
    listen_on: Sequence[str] = ("127.0.0.1:0",),
    keeper: Keeper | None = None,
) -> AsyncIterator[Server]:
    server = await serve(
        content or served(), listen_on=listen_on, http=http or Http(), admin=admin or Admin(), keeper=keeper
    )
    try:
        yield server
    finally:
        await server.close(1.0)
        if keeper is not None:
            await keeper.close()


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    """Names in lower case."""
    body: bytes


class Client:
    """One connection, without any help of an HTTP library."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self, *, body: bool = True) -> Answer:
        """The next answer. Without ``body``: that to a HEAD request."""
        async with asyncio.timeout(PATIENCE):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = {}
            for line in head[1:-2]:
                name, _, value = line.partition(":")
                assert name.lower() not in headers, f"{name} stands there twice"
                headers[name.lower()] = value.strip()
            length = int(headers["content-length"]) if body else 0
            return Answer(int(head[0].split()[1]), headers, await self.reader.readexactly(length))

    async def end(self) -> bytes:
        """What still comes until the server closes the connection, in whichever way."""
        rest = b""
        async with asyncio.timeout(PATIENCE):
            try:
                while piece := await self.reader.read(1 << 16):
                    rest += piece
            except ConnectionResetError:
                return rest
        return rest

    async def close(self) -> None:
        self.writer.transport.abort()
        try:
            await self.writer.wait_closed()
        except ConnectionError:
            return


@asynccontextmanager
async def client(address: str) -> AsyncIterator[Client]:
    host, _, port = address.rpartition(":")
    opened = Client(*await asyncio.open_connection(host.strip("[]"), int(port)))
    try:
        yield opened
    finally:
        await opened.close()


async def get(address: str, target: str = "/metrics", *headers: str, method: str = "GET") -> Answer:
    """One request over a connection of its own."""
    async with client(address) as opened:
        await opened.send(request(target, "Connection: close", *headers, method=method))
        answer = await opened.answer(body=method != "HEAD")
        assert await opened.end() == b""
        return answer


def request(target: str = "/metrics", *headers: str, method: str = "GET") -> bytes:
    host = [] if any(header.startswith("Host:") for header in headers) else ["Host: 127.0.0.1"]
    return "\r\n".join((f"{method} {target} HTTP/1.1", *host, *headers, "", "")).encode()


async def until(met: Callable[[], bool]) -> None:
    """Wait for a condition, no longer than PATIENCE."""
    async with asyncio.timeout(PATIENCE):
        while not met():
            await asyncio.sleep(0.01)


def rejected(content: Served, reason: str) -> float:
    """How many requests were refused for this reason."""
    value = content.metrics.registry.get_sample_value("accel_exporter_http_requests_rejected_total", {"reason": reason})
    assert value is not None, f"there is no series for {reason} from the start"
    return value
