"""TLS on real sockets: who gets in, and what becomes of those who do not."""

from __future__ import annotations

import asyncio
import socket
import ssl
import subprocess
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from exporter.config import Http
from tests.hostile import big, only
from tests.secured import Authority, Site, chain, get_tls, key, tls_client
from tests.serving import PATIENCE, Client, client, rejected, request, run, running, served, until

FAST_ENOUGH = 1.0
"""Seconds for a scrape beside an attack. It takes milliseconds; the rest is for busy machines."""


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_every_page_comes_encrypted_and_whole(site: Site) -> None:
    async def test() -> None:
        site.configure()
        publication = big()
        content = served(publication=lambda: publication)
        async with (
            running(content, keeper=site.keeper()) as server,
            tls_client(server.addresses[0], site.authority.client()) as one,
        ):
            # Larger than any buffer on the way, several times over one connection.
            for _ in range(2):
                await one.send(request("/metrics?name[]=vendor_big"))
                answer = await one.answer()
                assert answer.status == 200
                assert answer.body.count(b"\nvendor_big{") == 12_000
            await one.send(request("/healthz") * 20)
            assert [(await one.answer()).body for _ in range(20)] == [b"ok\n"] * 20
            tls: ssl.SSLObject = one.writer.get_extra_info("ssl_object")
            assert tls.version() == "TLSv1.3"

    run(test)


def test_a_client_that_trusts_another_ca_does_not_connect(site: Site) -> None:
    async def test() -> None:
        site.configure()
        content = served()
        async with running(content, keeper=site.keeper()) as server:
            with pytest.raises(ssl.SSLCertVerificationError):
                await get_tls(server.addresses[0], Authority().client())
            await until(lambda: only(content, "handshake") == 1)

    run(test)


@pytest.mark.parametrize("first", [b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n", b"POST / HTTP/1.1\r\nX: y", b"hello"])
def test_who_speaks_no_tls_is_told_so(site: Site, first: bytes) -> None:
    async def test() -> None:
        site.configure()
        content = served()
        async with running(content, keeper=site.keeper()) as server, client(server.addresses[0]) as one:
            await one.send(first)
            answer = await one.answer()
            assert (answer.status, answer.headers["content-type"]) == (400, "text/plain; charset=utf-8")
            assert b"https://" in answer.body
            assert await one.end() == b""
            assert only(content, "plaintext") == 1

    run(test)


@pytest.mark.parametrize("first", [b"\x00\x01\x02", b"\x80\x2e\x01\x00\x02", b"\x16\x03\x01\x00\x05hello"])
def test_garbage_is_no_handshake(site: Site, first: bytes) -> None:
    async def test() -> None:
        site.configure()
        content = served()
        async with running(content, keeper=site.keeper()) as server:
            async with client(server.addresses[0]) as one:
                await one.send(first)
                rest = await one.end()
                assert b"HTTP" not in rest
            await until(lambda: only(content, "handshake") == 1)
            assert (await get_tls(server.addresses[0], site.authority.client())).status == 200

    run(test)


def test_garbage_inside_a_session_ends_it(site: Site) -> None:
    async def test() -> None:
        site.configure()
        content = served()
        async with running(content, keeper=site.keeper()) as server:
            async with tls_client(server.addresses[0], site.authority.client()) as one:
                await one.send(request("/healthz"))
                assert (await one.answer()).status == 200
                raw = socket.socket(fileno=one.writer.get_extra_info("socket").fileno())
                try:
                    raw.send(b"\x17\x03\x03\x00\x20" + bytes(32))
                finally:
                    raw.detach()
                with pytest.raises((ConnectionError, ssl.SSLError, asyncio.IncompleteReadError)):
                    await one.answer()
            await until(lambda: only(content, "malformed") == 1)

    run(test)


# Versions and suites


def offering(site: Site, least: ssl.TLSVersion, most: ssl.TLSVersion, suites: str = "") -> ssl.SSLContext:
    context = site.authority.client()
    context.minimum_version, context.maximum_version = least, most
    if suites:
        context.set_ciphers(suites)
    return context


@pytest.mark.parametrize(
    ("tls", "version", "agreed"),
    [
        ({}, ssl.TLSVersion.TLSv1_2, True),
        ({}, ssl.TLSVersion.TLSv1_3, True),
        ({"min_version": "TLS13"}, ssl.TLSVersion.TLSv1_2, False),
        ({"min_version": "TLS13"}, ssl.TLSVersion.TLSv1_3, True),
        ({"max_version": "TLS12"}, ssl.TLSVersion.TLSv1_3, False),
        ({"max_version": "TLS12"}, ssl.TLSVersion.TLSv1_2, True),
        # Without a suite for TLS 1.2 there is no TLS 1.2, as in Go.
        ({"cipher_suites": ["TLS_AES_128_GCM_SHA256"]}, ssl.TLSVersion.TLSv1_2, False),
        ({"cipher_suites": ["TLS_AES_128_GCM_SHA256"]}, ssl.TLSVersion.TLSv1_3, True),
    ],
)
def test_the_versions_are_those_of_the_file(
    site: Site, tls: Mapping[str, Any], version: ssl.TLSVersion, agreed: bool
) -> None:
    async def test() -> None:
        site.configure(tls=tls)
        async with running(keeper=site.keeper()) as server:
            context = offering(site, version, version)
            if agreed:
                assert (await get_tls(server.addresses[0], context)).status == 200
            else:
                with pytest.raises(ssl.SSLError):
                    await get_tls(server.addresses[0], context)

    run(test)


def test_versions_before_1_2_are_never_agreed_on(site: Site) -> None:
    async def test() -> None:
        site.configure()
        async with running(keeper=site.keeper()) as server:
            for flag in ("-tls1", "-tls1_1", "-tls1_2"):
                command = ["openssl", "s_client", "-connect", server.addresses[0], flag, "-cipher", "ALL:@SECLEVEL=0"]
                done = await asyncio.to_thread(
                    subprocess.run, command, input=b"", capture_output=True, timeout=PATIENCE, check=False
                )
                assert (b"Cipher is ECDHE" in done.stdout) is (flag == "-tls1_2"), done.stdout

    run(test)


@pytest.mark.parametrize(
    ("prefer", "suite"), [(True, "ECDHE-ECDSA-CHACHA20-POLY1305"), (False, "ECDHE-ECDSA-AES256-GCM-SHA384")]
)
def test_the_suites_are_those_of_the_file_in_whose_order(site: Site, prefer: bool, suite: str) -> None:
    async def test() -> None:
        names = ["TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"]
        site.configure(tls={"cipher_suites": names, "prefer_server_cipher_suites": prefer})
        old = ssl.TLSVersion.TLSv1_2
        async with running(keeper=site.keeper()) as server:
            both = offering(site, old, old, "ECDHE-ECDSA-AES256-GCM-SHA384:ECDHE-ECDSA-CHACHA20-POLY1305")
            async with tls_client(server.addresses[0], both) as one:
                assert one.writer.get_extra_info("ssl_object").cipher()[0] == suite
            with pytest.raises(ssl.SSLError):
                await get_tls(server.addresses[0], offering(site, old, old, "ECDHE-ECDSA-AES128-GCM-SHA256"))

    run(test)


def test_the_curve_is_that_of_the_file(site: Site) -> None:
    async def test() -> None:
        site.configure(tls={"curve_preferences": ["CurveP384"]})
        async with running(keeper=site.keeper()) as server:
            for curve, agreed in (("secp384r1", True), ("X25519", False)):
                context = site.authority.client()
                context.set_ecdh_curve(curve)
                if agreed:
                    assert (await get_tls(server.addresses[0], context)).status == 200
                else:
                    with pytest.raises(ssl.SSLError):
                        await get_tls(server.addresses[0], context)

    run(test)


# Certificates from elsewhere than files


def test_certificates_can_stand_in_the_file_itself(site: Site) -> None:
    def block(name: str, text: str) -> str:
        return f"  {name}: |\n" + "".join(f"    {line}\n" for line in text.splitlines())

    async def test() -> None:
        texts = {"cert": chain(site.certificate), "key": key(site.certificate)}
        site.put("web.yaml", "tls_server_config:\n" + "".join(block(name, text) for name, text in texts.items()))
        async with running(keeper=site.keeper()) as server:
            assert (await get_tls(server.addresses[0], site.authority.client())).status == 200

    run(test)


# Limits


def test_a_client_that_never_ends_its_handshake_is_cut_off_in_time(site: Site) -> None:
    async def test() -> None:
        site.configure()
        content = served()
        async with (
            running(content, http=Http(header_timeout=0.4), keeper=site.keeper()) as server,
            client(server.addresses[0]) as silent,
            client(server.addresses[0]) as slow,
        ):
            began = time.monotonic()
            # The beginning of a ClientHello that announces 512 bytes, and then one byte at a time.
            await slow.send(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
            async with asyncio.timeout(PATIENCE):
                while not slow.reader.at_eof() and time.monotonic() - began < 5:
                    slow.writer.write(b"a")
                    await asyncio.sleep(0.02)
            assert 0.3 < time.monotonic() - began < 5
            assert await silent.end() == b""
            await until(lambda: only(content, "header_timeout") == 2)

    run(test)


def test_two_hundred_unfinished_handshakes_lock_nobody_out(site: Site) -> None:
    async def test() -> None:
        site.configure()
        content = served()
        async with (
            running(content, http=Http(header_timeout=60, max_connections=16), keeper=site.keeper()) as server,
            AsyncExitStack() as stack,
        ):
            where, context = server.addresses[0], site.authority.client()
            for _ in range(200):
                one: Client = await stack.enter_async_context(client(where))
                one.writer.write(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
            times = []
            for _ in range(10):
                began = time.monotonic()
                assert (await get_tls(where, context, "/metrics")).status == 200
                times.append(time.monotonic() - began)
            assert sorted(times)[5] < FAST_ENOUGH
            # Each that was let in made room for another one.
            assert rejected(content, "evicted") >= 200 - 16

    run(test)


def test_a_client_that_reads_nothing_is_cut_off_inside_tls_too(site: Site) -> None:
    async def test() -> None:
        site.configure()
        publication = big()
        content = served(publication=lambda: publication)
        async with running(content, http=Http(write_timeout=0.5), keeper=site.keeper()) as server:
            raw = socket.socket()
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            host, _, port = server.addresses[0].rpartition(":")
            await asyncio.to_thread(raw.connect, (host, int(port)))
            tls = await asyncio.to_thread(site.authority.client().wrap_socket, raw, server_hostname="localhost")
            with tls:
                await asyncio.to_thread(tls.send, request("/metrics"))
                await until(lambda: only(content, "write_timeout") == 1)

    run(test)


def test_a_client_that_has_sent_all_it_will_send_still_gets_its_answer(site: Site) -> None:
    """It closes its side of the session as soon as it has asked."""

    async def test() -> None:
        site.configure()
        async with running(keeper=site.keeper()) as server:
            host, _, port = server.addresses[0].rpartition(":")

            def ask() -> bytes:
                context = site.authority.client()
                with socket.create_connection((host, int(port)), PATIENCE) as raw:
                    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
                    tls = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
                    while True:
                        try:
                            tls.do_handshake()
                            break
                        except ssl.SSLWantReadError:
                            raw.sendall(outgoing.read())
                            incoming.write(raw.recv(1 << 16))
                    tls.write(request("/healthz"))
                    with pytest.raises(ssl.SSLWantReadError):
                        tls.unwrap()
                    raw.sendall(outgoing.read())
                    got = b""
                    while piece := raw.recv(1 << 16):
                        got += piece
                    incoming.write(got)
                    return tls.read(1 << 16)

            assert b"\r\n\r\nok\n" in await asyncio.to_thread(ask)

    run(test)


def test_the_agent_stops_while_a_handshake_hangs(site: Site) -> None:
    async def test() -> None:
        site.configure()
        async with (
            running(http=Http(header_timeout=60), keeper=site.keeper()) as server,
            client(server.addresses[0]) as one,
        ):
            await one.send(b"\x16\x03\x01\x02\x00")
            began = time.monotonic()
            await server.close(5.0)
            assert time.monotonic() - began < 2
            assert await one.end() == b""

    run(test)
