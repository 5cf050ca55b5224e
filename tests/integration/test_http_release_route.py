"""POST /-/release over real sockets, and what else takes its time: shutdown."""

from __future__ import annotations

import asyncio
import socket

import pytest

from exporter.config import Admin
from tests.serving import client, get, request, run, running, served, until


class Released:
    """Stands for the supervisors."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.closed = asyncio.Event()

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)
        await self.closed.wait()


def test_release_answers_when_the_handles_are_closed() -> None:
    async def test() -> None:
        release = Released()
        async with running(served(release=release)) as server, client(server.addresses[0]) as first:
            await first.send(request("/-/release?seconds=90", method="POST"))
            await until(lambda: release.seconds == [90.0])
            second = await get(server.addresses[0], "/-/release", method="POST")
            assert second.status == 409
            assert first.reader.at_eof() is False
            release.closed.set()
            assert (await first.answer()).status == 200
        assert release.seconds == [90.0]

    run(test)


def test_release_takes_the_configured_time_unless_told_another() -> None:
    async def test() -> None:
        release = Released()
        release.closed.set()
        async with running(served(release=release), admin=Admin(release=True, release_seconds=333)) as server:
            where = server.addresses[0]
            assert (await get(where, "/-/release", "Content-Length: 0", method="POST")).status == 200
            refused = await get(where, "/-/release?seconds=99999", method="POST")
            assert (refused.status, b"1 to 3600" in refused.body) == (400, True)
        assert release.seconds == [333.0]

    run(test)


def test_release_is_off_by_default_and_says_how_to_switch_it_on() -> None:
    async def test() -> None:
        async with running() as server:
            answer = await get(server.addresses[0], "/-/release", method="POST")
            assert (answer.status, b"admin.release" in answer.body) == (403, True)

    run(test)


@pytest.mark.parametrize(
    "header",
    ["Origin: http://evil.example", "X-Forwarded-For: 127.0.0.1", "Sec-Fetch-Site: cross-site", "Host: a.example"],
)
def test_release_refuses_web_pages_and_proxies(header: str) -> None:
    async def test() -> None:
        release = Released()
        release.closed.set()
        async with running(served(release=release)) as server:
            assert (await get(server.addresses[0], "/-/release", header, method="POST")).status == 403
        assert release.seconds == []

    run(test)


def own_address() -> str | None:
    """An address of this host that is not the loopback's. Nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return None
        found = str(probe.getsockname()[0])
        return None if found.startswith("127.") else found


@pytest.mark.skipif(own_address() is None, reason="this host has no address but the loopback's")
def test_release_refuses_who_comes_over_the_network() -> None:
    async def test() -> None:
        release = Released()
        release.closed.set()
        async with running(served(release=release), listen_on=(f"{own_address()}:0",)) as server:
            answer = await get(server.addresses[0], "/-/release", method="POST")
            assert (answer.status, b"only programs on this node" in answer.body) == (403, True)
            assert (await get(server.addresses[0], "/metrics")).status == 200
        assert release.seconds == []

    run(test)


# Shutdown


def test_shutdown_waits_for_an_answer_under_way_and_closes_the_rest() -> None:
    async def test() -> None:
        release = Released()
        async with running(served(release=release)) as server:
            where = server.addresses[0]
            async with client(where) as busy, client(where) as idle, client(where) as silent:
                await idle.send(request("/healthz"))
                await idle.answer()
                await busy.send(request("/-/release", method="POST"))
                await until(lambda: bool(release.seconds))
                closing = asyncio.create_task(server.close(20.0))
                assert await idle.end() == b""
                assert await silent.end() == b""
                with pytest.raises(ConnectionRefusedError):
                    await get(where)
                assert not closing.done()
                release.closed.set()
                assert (await busy.answer()).status == 200
                assert await busy.end() == b""
                await closing

    run(test)


def test_shutdown_ends_in_time_whatever_is_under_way() -> None:
    async def test() -> None:
        release = Released()
        async with running(served(release=release)) as server, client(server.addresses[0]) as busy:
            await busy.send(request("/-/release", method="POST"))
            await until(lambda: bool(release.seconds))
            async with asyncio.timeout(10):
                await server.close(0.1)
            assert await busy.end() == b""

    run(test)
