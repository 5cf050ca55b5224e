"""Good clients keep their connections as HTTP lets them."""

from __future__ import annotations

import pytest

from exporter.config import Http
from exporter.http.limits import REASONS
from tests.serving import client, rejected, request, run, running, served


def test_a_connection_is_kept_for_the_next_request() -> None:
    async def test() -> None:
        async with running() as server, client(server.addresses[0]) as one:
            for _ in range(5):
                await one.send(request())
                assert (await one.answer()).status == 200

    run(test)


@pytest.mark.parametrize(
    "raw",
    [
        b"GET /healthz HTTP/1.0\r\n\r\n",
        b"\r\n\r\nGET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        b"GET http://127.0.0.1/healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
    ],
)
def test_a_request_of_an_unusual_form_is_answered_and_its_connection_closed(raw: bytes) -> None:
    async def test() -> None:
        async with running() as server, client(server.addresses[0]) as one:
            await one.send(raw)
            answer = await one.answer()
            assert (answer.status, answer.body) == (200, b"ok\n")
            assert await one.end() == b""

    run(test)


def test_requests_sent_ahead_are_answered_in_order() -> None:
    async def test() -> None:
        async with running() as server, client(server.addresses[0]) as one:
            await one.send(b"".join(request(path) for path in ("/healthz", "/nothing", "/readyz") * 20))
            for body in (b"ok\n", None, b"ready\n") * 20:
                answer = await one.answer()
                assert body is None or answer.body == body
                assert answer.status == (404 if body is None else 200)

    run(test)


def test_a_client_that_has_sent_all_it_will_send_still_gets_its_answer() -> None:
    async def test() -> None:
        async with running() as server, client(server.addresses[0]) as one:
            one.writer.write(request())
            one.writer.write_eof()
            answer = await one.answer()
            assert b"accel_temperature_celsius" in answer.body
            assert await one.end() == b""

    run(test)


def test_an_idle_connection_is_closed_after_its_time_and_is_no_refusal() -> None:
    async def test() -> None:
        content = served()
        async with running(content, http=Http(idle_timeout=0.2)) as server, client(server.addresses[0]) as one:
            await one.send(request("/healthz"))
            await one.answer()
            assert await one.end() == b""
        assert [rejected(content, reason) for reason in REASONS] == [0] * len(REASONS)

    run(test)


def test_without_idle_time_each_connection_has_one_request() -> None:
    async def test() -> None:
        async with running(http=Http(idle_timeout=0)) as server, client(server.addresses[0]) as one:
            await one.send(request("/healthz"))
            assert (await one.answer()).headers["connection"] == "close"
            assert await one.end() == b""

    run(test)
