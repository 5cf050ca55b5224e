"""Clients that take more than their share, and what it takes to notice."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from exporter.families import Block, Family, Publication
from exporter.http import Served
from exporter.http.limits import REASONS
from tests.serving import Client, rejected, request


def big() -> Publication:
    """Two dozen megabytes: more than the kernel takes from us for a client that does not read."""
    prefixes = tuple(f'vendor_big{{number="{number}",pad="{"x" * 2000}"}} ' for number in range(12_000))
    return Publication(1, (Family("vendor_big", "gauge", "Big.", "raw", (Block(prefixes, (0,) * len(prefixes)),)),))


@asynccontextmanager
async def slow_reader(address: str, target: str = "/metrics") -> AsyncIterator[Client]:
    """A client with a small window, which has asked and does not read."""
    host, _, port = address.rpartition(":")
    opened = socket.socket()
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    opened.setblocking(False)
    await asyncio.get_running_loop().sock_connect(opened, (host, int(port)))
    reader, writer = await asyncio.open_connection(sock=opened, limit=1024)
    found = Client(reader, writer)
    try:
        await found.send(request(target))
        yield found
    finally:
        await found.close()


def only(content: Served, reason: str) -> float:
    """How often this reason was counted; no other may have been."""
    assert {each for each in REASONS if rejected(content, each)} <= {reason}
    return rejected(content, reason)
