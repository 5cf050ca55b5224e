"""Receivers of OTLP on the loopback: honest ones, hostile ones, and certificates for them."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent import futures
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import trustme
from aiohttp import web

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]
PROTOBUF = "application/x-protobuf"


@dataclass(slots=True)
class Got:
    """One request that arrived."""

    path: str
    headers: dict[str, str]
    """Names in lower case."""
    body: bytes
    """Decompressed."""


@dataclass(slots=True)
class Server:
    url: str
    got: list[Got] = field(default_factory=list)


async def taken(request: web.Request) -> web.StreamResponse:
    """Everything is well: an empty ExportMetricsServiceResponse."""
    return web.Response(body=b"", content_type=PROTOBUF)


@asynccontextmanager
async def receiver(answer: Answer = taken, tls: ssl.SSLContext | None = None) -> AsyncIterator[Server]:
    """A server that answers every request in the same way, and keeps what it got."""
    server = Server("")

    async def handle(request: web.Request) -> web.StreamResponse:
        body = await request.read()
        # aiohttp has decompressed it already.
        server.got.append(Got(request.path_qs, {name.lower(): value for name, value in request.headers.items()}, body))
        return await answer(request)

    app = web.Application(client_max_size=1 << 30)
    app.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    server.url = f"http{'s' if tls else ''}://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield server
    finally:
        await runner.cleanup()


@asynccontextmanager
async def raw(serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]) -> AsyncIterator[str]:
    """A server below HTTP; gives its URL."""
    writers: list[asyncio.StreamWriter] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        try:
            await serve(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            return
        finally:
            writer.transport.abort()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for writer in writers:
            writer.transport.abort()
        await server.wait_closed()


@contextmanager
def background(answer: Answer = taken) -> Iterator[Server]:
    """A receiver in a thread of its own, for tests that have no event loop."""
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()
    ready: futures.Future[Server] = futures.Future()

    async def work() -> None:
        async with receiver(answer) as server:
            ready.set_result(server)
            await stop.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(work(),))
    thread.start()
    try:
        yield ready.result(20)
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()


async def request_head(reader: asyncio.StreamReader) -> bytes:
    return await reader.readuntil(b"\r\n\r\n")


class Certificates:
    """An authority, and files with what it signs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = trustme.CA()
        self.trusted = folder / "ca.pem"
        self.authority.cert_pem.write_to_path(str(self.trusted))

    def server(self, *names: str, clients: bool = False) -> ssl.SSLContext:
        """For a server of these names; ``clients``: it asks for their certificates."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.authority.issue_cert(*names).configure_cert(context)
        if clients:
            context.verify_mode = ssl.CERT_REQUIRED
            self.authority.configure_trust(context)
        return context

    def client(self, name: str = "client") -> tuple[Path, Path]:
        """(certificate, key) of a client."""
        issued = self.authority.issue_cert(f"{name}@example.org")
        certificate, key = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        issued.cert_chain_pems[0].write_to_path(str(certificate))
        issued.private_key_pem.write_to_path(str(key))
        return certificate, key
