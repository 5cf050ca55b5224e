"""What a hostile receiver answers neither breaks the push nor carries secrets into the log."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import grpc
import pytest
from aiohttp import web

from exporter.config.otlp import OtlpEndpoint
from exporter.otlp.answer import Outcome
from exporter.otlp.grpc import GrpcSender
from exporter.otlp.http import HttpSender
from tests.otlp_answers import partial, status
from tests.otlp_client import sent, to
from tests.otlp_servers import PROTOBUF, raw, receiver, request_head
from tests.serving import run

SECRET = "s3cr3t-of-ours"
Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


def echo(code: int, content_type: str, body: Callable[[str], bytes]) -> Answer:
    """Repeats what the request showed."""

    async def answer(request: web.Request) -> web.StreamResponse:
        shown = request.headers["Authorization"]
        headers = {"Location": f"https://elsewhere.example/{shown}", "Content-Type": content_type}
        return web.Response(status=code, body=body(shown), headers=headers)

    return answer


@pytest.mark.parametrize(
    ("code", "content_type", "body", "words"),
    [
        (401, "text/plain", lambda shown: f"no such token: {shown}".encode(), "no such token: ***"),
        (400, PROTOBUF, lambda shown: status(f"no such token: {shown}"), "no such token: ***"),
        (307, "text/plain", lambda _: b"", "redirected to https://elsewhere.example/***"),
        (200, PROTOBUF, lambda shown: partial(1, f"no such token: {shown}"), "1 points were rejected: no such token"),
        (503, "text/plain", lambda shown: shown.removeprefix("Bearer ").encode(), "status 503: ***"),
    ],
)
@pytest.mark.parametrize("place", ["headers", "headers_file"])
def test_secrets_that_a_receiver_repeats_are_masked(
    place: str, code: int, content_type: str, body: Callable[[str], bytes], words: str, tmp_path: Path
) -> None:
    value = f"Bearer {SECRET}"
    file = tmp_path / "headers"
    file.write_text(f"Authorization: {value}\n")
    given = {"headers": {"Authorization": value}} if place == "headers" else {"headers_file": str(file)}

    async def test() -> Outcome:
        async with receiver(echo(code, content_type, body)) as server:
            return await sent(to(server.url, **given))

    outcome = run(test)
    assert words in outcome.message
    assert SECRET not in outcome.message


@pytest.mark.parametrize(
    "answer",
    [b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n", b"hello\r\n\r\n", b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 10_000],
)
def test_an_answer_that_is_none_is_told_without_our_path_and_query(answer: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_head(reader)
        writer.write(answer)
        await writer.drain()

    async def test() -> Outcome:
        async with raw(serve) as url:
            return await sent(to(f"{url}/{SECRET}/v1/metrics?key={SECRET}"))

    outcome = run(test)
    assert outcome.message.startswith("no HTTP answer that can be read: ")
    assert SECRET not in outcome.message


def test_json_that_is_nested_without_end_is_no_answer_and_no_fault_of_the_agent() -> None:
    async def deep(_: web.Request) -> web.StreamResponse:
        return web.Response(body=b'{"x":' * 200_000, content_type="application/json")

    async def test() -> Outcome:
        async with receiver(deep) as server:
            return await sent(to(server.url))

    outcome = run(test)
    assert outcome.result == "success"
    assert "cannot be read" in outcome.message


def test_an_answer_that_breaks_off_is_not_called_a_large_one() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_head(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\nContent-Length: 50\r\n\r\nabc")
        await writer.drain()

    async def test() -> Outcome:
        async with raw(serve) as url:
            return await sent(to(url))

    outcome = run(test)
    assert outcome.result == "success"
    assert "broke off" in outcome.message


def test_configured_headers_do_not_say_how_the_request_is_to_be_read() -> None:
    given = {"content-type": "text/x", "CONTENT-ENCODING": "br", "content-length": "1", "Transfer-Encoding": "chunked"}

    async def test() -> None:
        async with receiver() as server:
            assert (await sent(to(server.url, headers=given))).result == "success"
        (got,) = server.got
        assert got.headers["content-type"] == PROTOBUF
        assert got.headers["content-encoding"] == "gzip"
        assert "transfer-encoding" not in got.headers
        assert got.body

    run(test)


# gRPC


async def sent_grpc(endpoint: OtlpEndpoint) -> Outcome:
    sender = GrpcSender(endpoint)
    try:
        return await sender.send(b"")
    finally:
        await sender.close()


@pytest.mark.parametrize("name", ["what!", "trace-bin", "TRACE-BIN"])
def test_a_header_that_grpc_has_not_is_named_and_is_no_fault_of_the_agent(name: str, tmp_path: Path) -> None:
    file = tmp_path / "headers"
    file.write_text(f"{name}: {SECRET}\n")
    endpoint = OtlpEndpoint(endpoint="http://127.0.0.1:1", protocol="grpc", headers_file=str(file))
    outcome = run(lambda: sent_grpc(endpoint))
    assert outcome.result == "retry"
    assert f"header {name}: gRPC takes names of letters" in outcome.message
    assert SECRET not in outcome.message


def test_details_of_grpc_that_repeat_a_secret_are_masked() -> None:
    async def test() -> Outcome:
        async def refuse(_: object, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
            shown = dict(context.invocation_metadata() or ())["authorization"]
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, f"no such token: {shown!r}")
            return b""

        server = grpc.aio.server()
        handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.unary_unary_rpc_method_handler(refuse)
        service = "opentelemetry.proto.collector.metrics.v1.MetricsService"
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {"Export": handler}),))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        try:
            headers = {"Authorization": f"Bearer {SECRET}"}
            return await sent_grpc(OtlpEndpoint(endpoint=f"http://127.0.0.1:{port}", protocol="grpc", headers=headers))
        finally:
            await server.stop(0)

    outcome = run(test)
    assert outcome.result == "refused"
    assert "no such token" in outcome.message
    assert SECRET not in outcome.message


def test_over_http_a_sender_keeps_working_after_an_answer_without_sense() -> None:
    answers = [b"\x00\x01\x02", b""]

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_head(reader)
        writer.write(answers.pop(0) or b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()

    async def test() -> list[str]:
        async with raw(serve) as url:
            sender = HttpSender(to(url))
            try:
                return [(await sender.send(sender.pack(b"x"))).result for _ in range(2)]
            finally:
                await sender.close()

    assert run(test) == ["refused", "success"]


@pytest.mark.parametrize("proxy", [f"http://me:{SECRET}@[bad", f"http://me:{SECRET}@host:99999", "http://", ":"])
def test_a_proxy_of_the_environment_that_is_no_url_is_named_and_not_shown(
    proxy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", proxy)
    for name in ("no_proxy", "NO_PROXY", "REQUEST_METHOD"):
        monkeypatch.delenv(name, raising=False)
    outcome = run(lambda: sent(to("http://collector.invalid:4318")))
    assert outcome.result == "retry"
    assert "the environment's http_proxy is no URL" in outcome.message
    assert SECRET not in outcome.message
