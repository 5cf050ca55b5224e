"""OTLP over HTTP through proxies and over TLS."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from exporter.otlp.http import HttpSender
from tests.otlp_client import BODY, sent, to
from tests.otlp_servers import Certificates, raw, receiver, request_head
from tests.serving import run

# Proxies


@pytest.mark.parametrize("way", ["configured", "environment"])
def test_a_proxy_is_asked_with_its_password(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with receiver() as proxy:
            url = proxy.url.replace("://", "://user:pass@")
            if way == "environment":
                monkeypatch.setenv("http_proxy", url)
                monkeypatch.delenv("no_proxy", raising=False)
                monkeypatch.delenv("NO_PROXY", raising=False)
            outcome = await sent(to("http://collector.invalid:4318", proxy=url if way == "configured" else ""))
        assert outcome.result == "success"
        (got,) = proxy.got
        assert got.headers["host"] == "collector.invalid:4318"
        assert got.headers["proxy-authorization"] == "Basic dXNlcjpwYXNz"

    run(test)


def test_a_tunnel_through_a_proxy_is_asked_for_with_its_password_and_without_our_headers() -> None:
    heads: list[bytes] = []

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await request_head(reader))
        writer.write(b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()

    async def test() -> None:
        async with raw(refuse) as url:
            proxy = url.replace("://", "://user:pass@")
            outcome = await sent(to("https://collector.invalid:4318", proxy=proxy, headers={"authorization": "hush"}))
            assert (outcome.result, "the proxy" in outcome.message) == ("retry", True)

    run(test)
    (head,) = heads
    assert head.startswith(b"CONNECT collector.invalid:4318 HTTP/1.1\r\n")
    assert b"Proxy-Authorization: Basic dXNlcjpwYXNz" in head
    assert b"hush" not in head


def test_hosts_that_need_no_proxy_are_asked_directly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://proxy.invalid:3128")
    monkeypatch.setenv("no_proxy", "127.0.0.1")

    async def test() -> None:
        async with receiver() as server:
            assert (await sent(to(server.url))).result == "success"

    run(test)


# TLS


def test_a_certificate_of_the_configured_authority_is_trusted(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)

    async def test() -> None:
        async with receiver(tls=certificates.server("127.0.0.1")) as server:
            assert (await sent(to(server.url, certificate=str(certificates.trusted)))).result == "success"

    run(test)


@pytest.mark.parametrize("fault", ["wrong name", "unknown authority"])
def test_to_a_receiver_whose_certificate_does_not_fit_nothing_is_sent(fault: str, tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    tls = certificates.server("other.example" if fault == "wrong name" else "127.0.0.1")
    trusted = str(certificates.trusted) if fault == "wrong name" else ""

    async def test() -> None:
        async with receiver(tls=tls) as server:
            outcome = await sent(to(server.url, certificate=trusted))
            assert outcome.result == "retry"
            assert "TLS" in outcome.message
        assert server.got == []

    run(test)


def test_the_agent_shows_its_own_certificate_and_takes_a_renewed_one(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    certificate, key = certificates.client()
    tls = certificates.server("127.0.0.1", clients=True)

    async def test() -> None:
        async with receiver(tls=tls) as server:
            known = {"certificate": str(certificates.trusted), "timeout": 10.0}
            without = await sent(to(server.url, **known))
            assert without.result != "success"
            sender = HttpSender(to(server.url, client_certificate=str(certificate), client_key=str(key), **known))
            assert (await sender.send(sender.pack(BODY))).result == "success"
            # A key that does not belong to the certificate: half of a renewal.
            other, other_key = certificates.client("other")
            other.replace(certificate)
            broken = await sender.send(sender.pack(BODY))
            assert broken.result == "retry"
            assert str(certificate) in broken.message
            other_key.replace(key)
            assert (await sender.send(sender.pack(BODY))).result == "success"
            await sender.close()
        assert len(server.got) == 2

    run(test)


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_a_file_that_holds_no_certificate_is_named(content: str | None, tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    if content is not None:
        file.write_text(content)
    outcome = run(lambda: sent(to("https://127.0.0.1:1", certificate=str(file))))
    assert outcome.result == "retry"
    assert str(file) in outcome.message
