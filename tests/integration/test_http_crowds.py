"""Many clients at once, some of them hostile: who asks is answered."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack

from exporter.config import Http
from tests.hostile import big, only, slow_reader
from tests.serving import PATIENCE, Client, client, get, request, run, running, served, until

FAST_ENOUGH = 1.0
"""Seconds for a scrape beside an attack. It takes milliseconds; the rest is for busy machines."""


def test_silent_clients_make_room_for_who_asks() -> None:
    async def test() -> None:
        content = served()
        async with running(content, http=Http(max_connections=4)) as server, AsyncExitStack() as stack:
            where = server.addresses[0]
            silent = [await stack.enter_async_context(client(where)) for _ in range(4)]
            for expected in (1, 2):
                assert (await get(where)).status == 200
                assert only(content, "evicted") == expected
                # The one that has waited longest.
                assert await silent[expected - 1].end() == b""
                silent.append(await stack.enter_async_context(client(where)))

    run(test)


def test_who_holds_the_most_connections_is_the_one_to_lose_one() -> None:
    async def test() -> None:
        content = served()
        async with (
            running(content, http=Http(max_connections=4), listen_on=("127.0.0.1:0",)) as server,
            AsyncExitStack() as stack,
        ):
            port = int(server.addresses[0].rpartition(":")[2])

            async def connect(source: str) -> Client:
                opened = Client(*await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0)))
                stack.push_async_callback(opened.close)
                await opened.send(request("/healthz"))
                assert (await opened.answer()).status == 200
                return opened

            scraper = await connect("127.0.0.2")
            greedy = [await connect("127.0.0.3") for _ in range(3)]
            assert only(content, "evicted") == 0
            for gone in (*greedy, greedy[0]):
                await connect("127.0.0.3")
                assert await gone.end() == b""
            await connect("127.0.0.4")
            assert only(content, "evicted") == 5
            await scraper.send(request())
            assert (await scraper.answer()).status == 200

    run(test)


def test_beyond_the_limit_a_client_is_told_so_while_all_others_are_being_answered() -> None:
    async def test() -> None:
        released = asyncio.Event()

        async def release(_: float) -> None:
            await released.wait()

        content = served(release=release)
        async with running(content, http=Http(max_connections=1)) as server:
            where = server.addresses[0]
            async with client(where) as busy:
                await busy.send(request("/-/release", method="POST"))
                async with client(where) as refused:
                    await until(lambda: only(content, "connections") == 1)
                    answer = await refused.answer()
                    assert (answer.status, answer.headers["connection"]) == (503, "close")
                    assert await refused.end() == b""
                released.set()
                assert (await busy.answer()).status == 200
            assert (await get(where, "/healthz")).status == 200

    run(test)


def test_requests_sent_ahead_are_not_taken_in_before_their_turn() -> None:
    async def test() -> None:
        publication = big()
        content = served(publication=lambda: publication)
        limits = Http(write_timeout=PATIENCE)
        async with running(content, http=limits) as server, slow_reader(server.addresses[0]) as one:
            sent = 0
            ahead = request("/healthz") * 1000
            try:
                async with asyncio.timeout(1.0):
                    while sent < 1 << 28:
                        await one.send(ahead)
                        sent += len(ahead)
            except TimeoutError:
                pass
            # The server has stopped reading: the rest stands in the kernels' buffers.
            assert sent < 1 << 25

    run(test)


# Attacks


async def scrape_times(where: str, count: int = 20) -> list[float]:
    times = []
    for _ in range(count):
        began = time.monotonic()
        assert (await get(where, "/metrics", "Accept-Encoding: gzip")).status == 200
        times.append(time.monotonic() - began)
    return sorted(times)


def test_two_hundred_clients_that_never_finish_their_request_slow_no_scrape() -> None:
    async def test() -> None:
        async with running(http=Http(header_timeout=60)) as server, AsyncExitStack() as stack:
            where = server.addresses[0]

            async def trickle(one: Client) -> None:
                await one.send(b"GET /metrics HTTP/1.1\r\n")
                while True:
                    await asyncio.sleep(0.05)
                    one.writer.write(b"A")

            tasks = []
            for _ in range(200):
                one = await stack.enter_async_context(client(where))
                tasks.append(asyncio.create_task(trickle(one)))
            times = await scrape_times(where)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            assert times[len(times) // 2] < FAST_ENOUGH

    run(test)


def test_two_hundred_clients_that_never_read_their_answer_lock_nobody_out() -> None:
    async def test() -> None:
        publication = big()
        content = served(publication=lambda: publication)
        async with (
            running(content, http=Http(write_timeout=60, max_connections=16)) as server,
            AsyncExitStack() as stack,
        ):
            where = server.addresses[0]
            for _ in range(200):
                try:
                    await stack.enter_async_context(slow_reader(where))
                except ConnectionError:
                    continue
            # Those that were let in have not read for a while: they may go.
            await asyncio.sleep(1.2)
            times = []
            for _ in range(10):
                began = time.monotonic()
                assert (await get(where, "/healthz")).status == 200
                times.append(time.monotonic() - began)
            assert sorted(times)[5] < FAST_ENOUGH

    run(test)
