"""OTLP over HTTP against real servers: honest ones, and those that do what servers should not."""

from __future__ import annotations

import asyncio
import email.utils
import gzip
import time
import zlib
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from exporter.otlp.answer import MAX_ANSWER, Outcome
from exporter.otlp.http import HttpSender
from tests.otlp_answers import partial, status
from tests.otlp_client import BODY, sent, to
from tests.otlp_servers import PROTOBUF, raw, receiver, request_head, taken
from tests.serving import run


def answered(
    answer: Callable[[web.Request], Awaitable[web.StreamResponse]], **settings: Any
) -> Callable[[], Coroutine[Any, Any, Outcome]]:
    """The outcome where a server answers so."""

    async def test() -> Outcome:
        async with receiver(answer) as server:
            return await sent(to(server.url, **settings))

    return test


# What is sent


def test_a_request_has_the_path_the_headers_and_the_body_that_the_protocol_wants() -> None:
    async def test() -> None:
        async with receiver() as server:
            outcome = await sent(to(server.url, headers={"authorization": "Bearer x", "X-Team": "gpu"}))
            assert outcome == Outcome("success")
        (got,) = server.got
        assert (got.path, got.body) == ("/v1/metrics", BODY)
        assert got.headers["content-type"] == PROTOBUF
        assert got.headers["content-encoding"] == "gzip"
        assert int(got.headers["content-length"]) < len(BODY)
        assert got.headers["authorization"] == "Bearer x"
        assert got.headers["x-team"] == "gpu"
        assert got.headers["user-agent"].startswith("accel-exporter/")
        assert "OTel-OTLP-Exporter-Python/" in got.headers["user-agent"]

    run(test)


def test_without_compression_the_body_is_as_it_is() -> None:
    async def test() -> None:
        async with receiver() as server:
            await sent(to(server.url + "/otlp?x=1", compression="none"))
        assert server.got[0].path == "/otlp?x=1"
        assert "content-encoding" not in server.got[0].headers
        assert int(server.got[0].headers["content-length"]) == len(BODY)

    run(test)


def test_what_is_packed_is_gzip() -> None:
    assert gzip.decompress(HttpSender(to("http://c")).pack(BODY)) == BODY
    assert zlib.decompress(HttpSender(to("http://c")).pack(b""), 31) == b""


def test_headers_of_a_file_are_read_again_when_secrets_are_rotated(tmp_path: Path) -> None:
    file = tmp_path / "headers"

    async def test() -> None:
        async with receiver() as server:
            sender = HttpSender(to(server.url, headers={"a": "1"}, headers_file=str(file)))
            for secret in ("old", "new"):
                file.write_text(f"# from the vault\nAuthorization: Bearer {secret}\n\nx-y:z\n")
                assert (await sender.send(sender.pack(BODY))).result == "success"
            await sender.close()
        assert [got.headers["authorization"] for got in server.got] == ["Bearer old", "Bearer new"]
        assert {(got.headers["a"], got.headers["x-y"]) for got in server.got} == {("1", "z")}

    run(test)


@pytest.mark.parametrize("content", [None, "no-colon-hush", "a b: hush", "a: hush\x01", "ä: hush"])
def test_without_its_secrets_nothing_is_sent_and_no_secret_is_told(content: str | None, tmp_path: Path) -> None:
    file = tmp_path / "headers"
    if content is not None:
        file.write_text(content)

    async def test() -> None:
        async with receiver() as server:
            outcome = await sent(to(server.url, headers_file=str(file)))
        assert server.got == []
        assert outcome.result == "retry"
        assert str(file) in outcome.message
        assert "hush" not in outcome.message

    run(test)


# The table of retries, by a real server


@pytest.mark.parametrize(
    ("code", "headers", "result", "pause"),
    [
        (200, {}, "success", None),
        (400, {}, "refused", None),
        (401, {}, "refused", None),
        (404, {}, "refused", None),
        (413, {}, "refused", None),
        (429, {}, "retry", None),
        (429, {"Retry-After": "3"}, "retry", 3.0),
        (500, {}, "refused", None),
        (501, {}, "refused", None),
        (502, {}, "retry", None),
        (503, {"Retry-After": "120"}, "retry", 120.0),
        (503, {"Retry-After": "tomorrow"}, "retry", None),
        (504, {}, "retry", None),
    ],
)
def test_the_status_says_whether_it_is_sent_again(
    code: int, headers: dict[str, str], result: str, pause: float | None
) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(status=code, headers=headers)

    outcome = run(answered(answer))
    assert (outcome.result, outcome.pause) == (result, pause)


def test_a_date_says_how_long_to_wait() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(status=503, headers={"Retry-After": email.utils.formatdate(time.time() + 60, usegmt=True)})

    outcome = run(answered(answer))
    assert outcome.pause is not None
    assert 50 < outcome.pause <= 60


def test_points_that_were_rejected_are_counted_and_not_sent_again() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(body=partial(4, "out of order"), content_type=PROTOBUF)

    outcome = run(answered(answer))
    assert (outcome.result, outcome.rejected) == ("partial", 4)


def test_what_a_refusal_says_reaches_the_log() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(status=400, body=status("metric name too long"), content_type=PROTOBUF)

    assert "metric name too long" in run(answered(answer)).message


def test_nobody_listens() -> None:
    async def test() -> Outcome:
        async with receiver() as server:
            url = server.url
        return await sent(to(url))

    assert run(test).result == "retry"


def test_a_name_that_does_not_exist() -> None:
    async def test() -> Outcome:
        return await sent(to("http://receiver.invalid:4318"))

    assert run(test).result == "retry"


async def close_at_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await request_head(reader)


async def reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    # Closing with unread data in the buffer resets the connection.
    await asyncio.sleep(0.05)


async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(3600)


async def half_a_status(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await request_head(reader)
    writer.write(b"HTTP/1.1 2")
    await writer.drain()


async def no_http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await request_head(reader)
    writer.write(b"SSH-2.0-OpenSSH_9.2\r\n\r\n")
    await writer.drain()
    await asyncio.sleep(0.2)


async def endless_headers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await request_head(reader)
    writer.write(b"HTTP/1.1 200 OK\r\n")
    for number in range(100_000):
        writer.write(b"X-%d: %s\r\n" % (number, b"x" * 1000))
        await writer.drain()


async def broken_body(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await request_head(reader)
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\nContent-Length: 100\r\n\r\nabc")
    await writer.drain()


@pytest.mark.parametrize(
    ("serve", "result"),
    [
        (close_at_once, "retry"),
        (reset, "retry"),
        (say_nothing, "retry"),
        (half_a_status, "retry"),
        (no_http, "refused"),
        (endless_headers, "refused"),
        (broken_body, "success"),
    ],
)
def test_servers_that_break_the_rules(
    serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]], result: str
) -> None:
    async def test() -> Outcome:
        async with raw(serve) as url:
            began = time.monotonic()
            outcome = await sent(to(url, timeout=1.0))
            assert time.monotonic() - began < 10
            return outcome

    outcome = run(test)
    assert outcome.result == result
    assert outcome.message


def test_a_slow_answer_ends_with_the_timeout() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(1000):
            await response.write(b"x")
            await asyncio.sleep(0.05)
        return response

    began = time.monotonic()
    outcome = run(answered(answer, timeout=0.5))
    assert outcome.result == "retry"
    assert time.monotonic() - began < 10


def test_of_a_huge_answer_no_more_than_a_bound_is_read() -> None:
    written = 0

    async def answer(request: web.Request) -> web.StreamResponse:
        nonlocal written
        response = web.StreamResponse(headers={"Content-Type": PROTOBUF})
        await response.prepare(request)
        while written < 200 * MAX_ANSWER:
            await response.write(b"\x00" * (1 << 20))
            written += 1 << 20
        return response

    outcome = run(answered(answer))
    assert outcome.result == "success"
    assert "not read" in outcome.message
    assert written < 20 * MAX_ANSWER


def test_a_compressed_bomb_is_not_unpacked() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        bomb = gzip.compress(bytes(64 << 20))
        return web.Response(body=bomb, headers={"Content-Encoding": "gzip", "Content-Type": PROTOBUF})

    outcome = run(answered(answer))
    assert outcome.result == "success"
    assert outcome.message


def test_a_web_page_is_no_receiver() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(text="<html>Sign in</html>", content_type="text/html")

    assert run(answered(answer)).result == "refused"


def test_a_redirect_is_not_followed_with_our_secrets() -> None:
    async def test() -> None:
        async with receiver() as other:

            async def answer(request: web.Request) -> web.StreamResponse:
                raise web.HTTPTemporaryRedirect(other.url)

            async with receiver(answer) as server:
                outcome = await sent(to(server.url, headers={"authorization": "secret"}))
        assert outcome.result == "refused"
        assert other.got == []

    run(test)


def test_cookies_are_not_kept() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = await taken(request)
        response.set_cookie("session", "1")
        return response

    async def test() -> None:
        async with receiver(answer) as server:
            await sent(to(server.url), times=2)
        assert all("cookie" not in got.headers for got in server.got)

    run(test)
