"""Scrapes an address one request after the other, and prints how long each took. Runs as a process of its own."""

from __future__ import annotations

import argparse
import gc
import json
import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import msgspec

from benchmarks.measure import waiting

MAX_HEAD: Final = 64 * 1024
TIMEOUT: Final = 60.0


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What to do."""

    port: int
    requests: int
    gzip: bool = False
    fresh: bool = False
    """A connection for each request, which some servers insist on; connecting counts."""
    openmetrics: bool = False
    pause: float = 0.0
    """Seconds between an answer and the next request."""
    server: int = 0
    """The server's process: how long it and the client wait for a core is noted for each request. 0: not noted."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it."""

    seconds: list[float]
    """From the first byte sent, or the connection's beginning, to the last byte of the answer."""
    size: int
    """Bytes of the last body, as sent."""
    waited: list[float] = []
    """Seconds of each request for which the server's threads and the client were ready to run and had no core."""


class BadAnswer(Exception):
    """The server did not give what was asked for."""


def scrape(order: Order) -> Report:
    """Carry out an order. Raises BadAnswer, OSError."""
    seconds: list[float] = []
    waited: list[float] = []
    watched = (order.server, os.getpid()) if order.server else ()
    buffer = bytearray(1 << 16)
    size = 0
    connection: socket.socket | None = None
    request = _request(order)
    try:
        with _without_collections():
            for _ in range(order.requests):
                if order.pause:
                    time.sleep(order.pause)
                before = sum(map(waiting, watched))
                began = time.perf_counter()
                if connection is None:
                    connection = socket.create_connection(("127.0.0.1", order.port), TIMEOUT)
                    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connection.sendall(request)
                size, buffer = _receive(connection, buffer, order)
                seconds.append(time.perf_counter() - began)
                if watched:
                    waited.append(sum(map(waiting, watched)) - before)
                if order.fresh:
                    connection.close()
                    connection = None
    finally:
        if connection is not None:
            connection.close()
    return Report(seconds=seconds, size=size, waited=waited)


@contextmanager
def _without_collections() -> Iterator[None]:
    """The client's own pauses are not the server's."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _request(order: Order) -> bytes:
    accept = "application/openmetrics-text; version=1.0.0" if order.openmetrics else "text/plain; version=0.0.4"
    lines = ["GET /metrics HTTP/1.1", f"Host: 127.0.0.1:{order.port}", f"Accept: {accept}"]
    lines.append(f"Accept-Encoding: {'gzip' if order.gzip else 'identity'}")
    lines.append(f"Connection: {'close' if order.fresh else 'keep-alive'}")
    return "\r\n".join((*lines, "", "")).encode()


def _receive(connection: socket.socket, buffer: bytearray, order: Order) -> tuple[int, bytearray]:
    """Read one answer. Returns the size of its body and the buffer, which grows with the largest answer."""
    filled = 0
    end = -1
    while end < 0:
        got = connection.recv_into(memoryview(buffer)[filled:])
        if not got or filled > MAX_HEAD:
            raise BadAnswer("the connection ended in the head of an answer")
        filled += got
        end = buffer.find(b"\r\n\r\n", 0, filled)
    head = bytes(buffer[:end]).decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
    if " 200 " not in head[0] + " ":
        raise BadAnswer(head[0])
    if order.gzip != (headers.get("content-encoding") == "gzip"):
        raise BadAnswer(f"another coding than asked for: {headers.get('content-encoding', 'identity')}")
    body = end + 4
    if "content-length" not in headers and not order.fresh:
        raise BadAnswer("an answer without length over a connection that stays open")
    # An answer without length goes on to the end of the connection.
    total = body + int(headers["content-length"]) if "content-length" in headers else sys.maxsize
    while filled < total:
        if filled == len(buffer):
            buffer.extend(bytes(len(buffer)))
        got = connection.recv_into(memoryview(buffer)[filled:])
        if not got:
            if total == sys.maxsize:
                break
            raise BadAnswer("the connection ended in the body of an answer")
        filled += got
    return filled - body, buffer


def main() -> int:
    """The order is the argument, as JSON; the report goes to the output, as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("order")
    order = msgspec.json.decode(parser.parse_args().order, type=Order)
    json.dump(msgspec.to_builtins(scrape(order)), sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
