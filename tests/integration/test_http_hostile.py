"""Clients that want too much: each bound, over raw sockets."""

from __future__ import annotations

import asyncio
import os
import random
import socket
import time
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from exporter.config import Admin, Http
from exporter.families import Block, Family, Publication
from exporter.http import Server
from exporter.http.listen import listen
from tests.hostile import big, only, slow_reader
from tests.serving import PATIENCE, client, get, request, run, running, served, until

# Sizes


@pytest.mark.parametrize(
    ("raw", "status", "reason"),
    [
        (b"GET /" + b"a" * 2000 + b" HTTP/1.1\r\nHost: a\r\n\r\n", 414, "line_size"),
        (b"GET /" + b"a" * 2000, 414, "line_size"),
        (b"G" * 100_000, 414, "line_size"),
        (b"GET / HTTP/1.1\r\nA: " + b"a" * 2000 + b"\r\n\r\n", 431, "header_size"),
        (b"GET / HTTP/1.1\r\nA: " + b"a" * 2000, 431, "header_size"),
        (b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 400, 431, "header_size"),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n", 413, "body"),
        (b"GET /metrics HTTP/1.1\r\nHost: a\r\ncontent-length:\t007\r\n\r\nx", 413, "body"),
        (b"GET /metrics HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", 413, "body"),
        (b"GET / HTTP/1.1\r\nContent-Length: 9999999\r\n\r\n" + b"x" * 500_000, 413, "body"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400, "malformed"),
        (b"nonsense\r\n\r\n", 400, "malformed"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, "malformed"),
        (b"GET / HTTP/1.1\r\nContent-Length: many\r\n\r\n", 400, "malformed"),
        (b"GET /\r\n\r\n", 400, "malformed"),
        (b"GET / HTTP/3.0\r\n\r\n", 400, "malformed"),
        (b"GET /healthz HTTP/1.1\nHost: a\n\n", 400, "malformed"),
        (b"GET / HTTP/1.1\r\nNo colon\r\n\r\n", 400, "malformed"),
    ],
)
def test_too_much_is_refused_with_its_status_and_counted(raw: bytes, status: int, reason: str) -> None:
    async def test() -> None:
        content = served()
        async with running(content, http=Http(max_header_bytes=1024)) as server:
            async with client(server.addresses[0]) as one:
                # The whole answer arrives although the server has not read everything that was sent.
                await one.send(raw)
                answer = await one.answer()
                assert answer.status == status
                assert answer.headers["connection"] == "close"
                assert answer.headers["server"] == "accel-exporter"
                assert b"aiohttp" not in answer.body.lower()
                assert await one.end() == b""
            assert only(content, reason) == 1
            assert (await get(server.addresses[0])).status == 200

    run(test)


def test_a_request_of_exactly_the_largest_size_is_served() -> None:
    async def test() -> None:
        async with running(http=Http(max_header_bytes=1024)) as server, client(server.addresses[0]) as one:
            line = b"GET /healthz?" + b"a" * (1024 - len(b"GET /healthz? HTTP/1.1")) + b" HTTP/1.1\r\n"
            headers = b"Host: a\r\nA: " + b"a" * (1024 - len(b"Host: a\r\nA: \r\n\r\n")) + b"\r\n\r\n"
            await one.send(line + headers)
            assert (await one.answer()).status == 200

    run(test)


def test_who_is_refused_can_send_the_rest_of_its_body_without_losing_the_answer() -> None:
    async def test() -> None:
        async with running() as server, client(server.addresses[0]) as one:
            await one.send(b"POST /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: 500000\r\n\r\n")
            # Closing at once would reset the connection, and sending would fail before the answer is looked at.
            for _ in range(10):
                await one.send(b"x" * 50_000)
                await asyncio.sleep(0.01)
            assert (await one.answer()).status == 413
            assert await one.end() == b""

    run(test)


def test_no_more_than_a_bound_is_read_of_a_body_that_nobody_wants() -> None:
    async def test() -> None:
        async with running() as server, client(server.addresses[0]) as one:
            sent = 0
            try:
                await one.send(b"POST / HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n")
                while sent < 1 << 30:
                    await one.send(b"x" * (1 << 16))
                    sent += 1 << 16
            except ConnectionError:
                pass
            # What the server read, and what the kernels of both sides hold.
            assert sent < 1 << 25

    run(test)


# Time


@pytest.mark.parametrize("start", [b"", b"G", b"GET /metrics HTTP/1.1\r\nHost: a\r\n", b"\r\n"])
def test_a_request_that_does_not_come_to_its_end_is_given_up(start: bytes) -> None:
    async def test() -> None:
        content = served()
        async with running(content, http=Http(header_timeout=0.3)) as server, client(server.addresses[0]) as one:
            await one.send(start)
            rest = await one.end()
            assert rest.startswith(b"HTTP/1.1 408 ") or not start.strip()
            await until(lambda: only(content, "header_timeout") == 1)

    run(test)


def test_a_byte_now_and_then_does_not_prolong_the_time_for_a_request() -> None:
    async def test() -> None:
        content = served()
        async with running(content, http=Http(header_timeout=0.5)) as server, client(server.addresses[0]) as one:
            began = time.monotonic()
            trickle = asyncio.create_task(one.end())
            while not trickle.done():
                one.writer.write(b"G" if time.monotonic() - began < 0.1 else b"E")
                await asyncio.sleep(0.02)
                assert time.monotonic() - began < PATIENCE
            assert (await trickle).startswith(b"HTTP/1.1 408 ")
            assert only(content, "header_timeout") == 1

    run(test)


def test_the_second_request_of_a_connection_has_the_same_time() -> None:
    async def test() -> None:
        content = served()
        async with running(content, http=Http(header_timeout=0.3)) as server, client(server.addresses[0]) as one:
            await one.send(request("/healthz") + b"GET /he")
            assert (await one.answer()).status == 200
            assert (await one.end()).startswith(b"HTTP/1.1 408 ")
            assert only(content, "header_timeout") == 1

    run(test)


def resident() -> int:
    """Bytes of memory that this process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_an_answer_that_nobody_takes_is_given_up_and_holds_little_memory() -> None:
    async def test() -> None:
        publication = big()
        content = served(publication=lambda: publication)
        async with running(content, http=Http(write_timeout=0.5)) as server:
            where = server.addresses[0]
            await get(where, method="HEAD")
            before = resident()
            async with AsyncExitStack() as stack:
                for _ in range(8):
                    await stack.enter_async_context(slow_reader(where))
                await asyncio.sleep(0.2)
                # Eight copies of the body would be 190 MB.
                assert resident() - before < 60_000_000
                await until(lambda: only(content, "write_timeout") == 8)

    run(test)


def test_a_small_rest_of_an_answer_that_nobody_takes_is_given_up_too() -> None:
    async def test() -> None:
        lines = tuple(f'vendor_big{{number="{number}",pad="{"x" * 1000}"}} ' for number in range(40))
        publication = Publication(1, (Family("vendor_big", "gauge", "Big.", "raw", (Block(lines, (0,) * 40),)),))
        content = served(publication=lambda: publication)
        sockets = listen(["127.0.0.1:0"])
        # Accepted connections inherit it: the kernel takes little, and the rest waits with us.
        sockets[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        server = Server(content, Http(write_timeout=0.5), Admin())
        await server.open(sockets)
        async with slow_reader(server.addresses[0], "/metrics?schema=raw"):
            await until(lambda: only(content, "write_timeout") == 1)
        await server.close(1.0)

    run(test)


def test_a_reader_that_is_slow_but_reads_gets_everything() -> None:
    async def test() -> None:
        publication = big()
        content = served(publication=lambda: publication)
        async with running(content) as server, slow_reader(server.addresses[0]) as one:
            await asyncio.sleep(0.3)
            one.reader._limit = 1 << 20  # type: ignore[attr-defined]
            answer = await one.answer()
            assert answer.body.count(b"vendor_big{") == 12_000
            assert only(content, "write_timeout") == 0

    run(test)


# Nonsense

PIECES = st.sampled_from(
    [
        *(
            b"GET ",
            b"POST ",
            b"HEAD ",
            b"CONNECT ",
            b"/metrics",
            b"/",
            b"*",
            b"//",
            b"?schema=",
            b"name[]=",
            b"%",
            b"%zz",
        ),
        *(
            b" HTTP/1.1",
            b" HTTP/1.0",
            b" HTTP/9.9",
            b"\r\n",
            b"\n",
            b"\r",
            b"\r\n\r\n",
            b"\0",
            b" ",
            b":",
            b"[::1",
            b"@",
        ),
        *(b"Host: a", b"Content-Length: ", b"Transfer-Encoding: chunked", b"Upgrade: websocket", b"Connection: close"),
        *(b"Connection: Upgrade", b"Expect: 100-continue", b"Accept: ", b"\xff\xfe", b"http://", b"0", b"5", b"-1"),
    ]
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.lists(PIECES, max_size=12).map(b"".join), min_size=1, max_size=25), st.integers(0, 2**32))
def test_no_sequence_of_bytes_breaks_the_server(heads: list[bytes], seed: int) -> None:
    dice = random.Random(seed)

    async def test() -> None:
        content = served()
        async with running(content, http=Http(header_timeout=0.1, idle_timeout=0.1)) as server:
            where = server.addresses[0]
            for head in heads:
                async with client(where) as one:
                    cut = dice.randint(0, len(head))
                    try:
                        await one.send(head[:cut])
                        await asyncio.sleep(0)
                        await one.send(head[cut:] + dice.choice([b"", b"\r\n\r\n", b" HTTP/1.1\r\n\r\n"]))
                        one.writer.write_eof()
                    except ConnectionError:
                        continue
                    for line in (await one.end()).splitlines():
                        assert not line.startswith(b"HTTP/1.1 5"), (head, line)
            assert (await get(where)).status == 200

    run(test)
