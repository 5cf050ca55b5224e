"""Certificates, users and trust change under a running server."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import ssl
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from exporter.config import ConfigError
from exporter.selfmetrics import SelfMetrics
from exporter.web import keeper as keepers
from exporter.web.keeper import Keeper
from tests.secured import Authority, Site, basic, chain, get_tls, hashed, key, tls_client
from tests.serving import Client, client, get, request, run, running, until

SOON = 0.02
RELOADED = "accel_exporter_web_config_reload_success"
NOT_BEFORE = "accel_exporter_web_certificate_not_before_timestamp_seconds"
NOT_AFTER = "accel_exporter_web_certificate_not_after_timestamp_seconds"


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def shown(one: Client) -> str:
    """The certificate that the server has shown on this connection."""
    found = one.writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    return hashlib.sha256(found).hexdigest()


async def shown_now(address: str, context: ssl.SSLContext) -> str:
    async with tls_client(address, context) as one:
        return shown(one)


def renew(site: Site, **options: datetime) -> None:
    certificate = site.authority.issue("localhost", "127.0.0.1", **options)
    site.put("server.pem", chain(certificate))
    site.put("server.key", key(certificate))


def value(metrics: SelfMetrics, name: str) -> float | None:
    return metrics.registry.get_sample_value(name)


async def watched(stack: AsyncExitStack, keeper: Keeper) -> None:
    """Let the keeper look at its files until the stack ends."""
    task = asyncio.create_task(keeper.watch())

    async def end() -> None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    stack.push_async_callback(end)


async def comes(met: Callable[[], object]) -> None:
    await until(lambda: bool(met()))


def test_a_new_certificate_is_shown_to_new_clients_while_an_old_connection_lives_on(site: Site) -> None:
    async def test() -> None:
        site.configure()
        metrics = SelfMetrics()
        keeper = site.keeper(metrics, look_every=SOON)
        trust = site.authority.client()
        async with AsyncExitStack() as stack:
            server = await stack.enter_async_context(running(keeper=keeper))
            await watched(stack, keeper)
            where = server.addresses[0]
            old = await stack.enter_async_context(tls_client(where, trust))
            await old.send(request("/healthz"))
            assert (await old.answer()).status == 200
            before = value(metrics, NOT_AFTER)
            expires = datetime.now(UTC).replace(microsecond=0) + timedelta(days=7)
            renew(site, not_before=expires - timedelta(days=9), not_after=expires)
            await comes(lambda: value(metrics, NOT_AFTER) != before)
            assert value(metrics, NOT_AFTER) == expires.timestamp()
            assert value(metrics, NOT_BEFORE) == (expires - timedelta(days=9)).timestamp()
            assert await shown_now(where, trust) != shown(old)
            await old.send(request("/healthz"))
            assert (await old.answer()).status == 200
            assert value(metrics, RELOADED) == 1

    run(test)


def test_a_half_exchanged_pair_changes_nothing_until_it_is_whole(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        site.configure()
        metrics = SelfMetrics()
        keeper = site.keeper(metrics, look_every=SOON)
        trust = site.authority.client()
        async with AsyncExitStack() as stack:
            server = await stack.enter_async_context(running(keeper=keeper))
            await watched(stack, keeper)
            first = await shown_now(server.addresses[0], trust)
            certificate = site.authority.issue("localhost", "127.0.0.1")
            site.put("server.pem", chain(certificate))
            await comes(lambda: value(metrics, RELOADED) == 0)
            assert await shown_now(server.addresses[0], trust) == first
            await asyncio.sleep(5 * SOON)
            site.put("server.key", key(certificate))
            await comes(lambda: value(metrics, RELOADED) == 1)
            assert await shown_now(server.addresses[0], trust) != first

    with caplog.at_level(logging.INFO):
        run(test)
    errors = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    # However often it was looked at.
    assert len(errors) == 1
    assert "tls_server_config.key_file: the key does not belong to the certificate" in errors[0]


def test_a_change_in_place_and_one_by_symbolic_links_are_seen(site: Site) -> None:
    """The kubelet exchanges a directory of links at once; people edit files."""

    async def test() -> None:
        for version in ("1", "2"):
            (site.folder / version).mkdir()
        data = site.folder / "data"
        data.symlink_to("1")
        for name in ("server.pem", "server.key"):
            (site.folder / "1" / name).write_text((site.folder / name).read_text())
            (site.folder / name).unlink()
            (site.folder / name).symlink_to(Path("data") / name)
        site.configure()
        keeper = site.keeper()
        trust = site.authority.client()
        async with running(keeper=keeper) as server:
            first = await shown_now(server.addresses[0], trust)
            certificate = site.authority.issue("localhost", "127.0.0.1")
            (site.folder / "2/server.pem").write_text(chain(certificate))
            (site.folder / "2/server.key").write_text(key(certificate))
            (site.folder / "next").symlink_to("2")
            (site.folder / "next").replace(data)
            await keeper.refresh()
            second = await shown_now(server.addresses[0], trust)
            assert second != first
            third = site.authority.issue("localhost", "127.0.0.1")
            for name, text in (("server.pem", chain(third)), ("server.key", key(third))):
                with (site.folder / "2" / name).open("r+") as file:
                    file.write(text)
                    file.truncate()
            await keeper.refresh()
            assert await shown_now(server.addresses[0], trust) not in (first, second)

    run(test)


def test_users_come_and_go_at_once_also_on_connections_that_live(site: Site) -> None:
    async def test() -> None:
        site.configure(tls=False, basic_auth_users={"old": hashed("old"), "kept": hashed("kept")})
        keeper = site.keeper()
        async with running(keeper=keeper) as server, client(server.addresses[0]) as one:
            await one.send(request("/healthz", basic("old", "old")))
            assert (await one.answer()).status == 200
            site.configure(tls=False, basic_auth_users={"new": hashed("new"), "kept": hashed("changed")})
            await keeper.refresh()
            await one.send(request("/healthz", basic("old", "old")))
            assert (await one.answer()).status == 401
            for pair, status in ((("new", "new"), 200), (("kept", "kept"), 401), (("kept", "changed"), 200)):
                await one.send(request("/healthz", basic(*pair)))
                assert (await one.answer()).status == status

    run(test)


@pytest.mark.parametrize("kind", ["ca", "names"])
def test_who_is_no_longer_trusted_loses_its_connection(site: Site, kind: str) -> None:
    async def test() -> None:
        tls = {
            "client_auth_type": "RequireAndVerifyClientCert",
            "client_ca_file": "clients.pem",
            "client_allowed_sans": ["prometheus.example"],
        }
        site.configure(tls=tls)
        keeper = site.keeper()
        context = site.authority.client(site.authority.issue("prometheus.example"))
        async with running(keeper=keeper) as server, tls_client(server.addresses[0], context) as one:
            await one.send(request("/healthz"))
            assert (await one.answer()).status == 200
            # Renewing the server's own certificate takes nobody's trust away.
            renew(site)
            await keeper.refresh()
            await one.send(request("/healthz"))
            assert (await one.answer()).status == 200
            if kind == "ca":
                site.put("clients.pem", Authority().pem)
            else:
                site.configure(tls={**tls, "client_allowed_sans": ["other.example"]})
            await keeper.refresh()
            assert await one.end() == b""
            with pytest.raises((ConnectionError, ssl.SSLError, asyncio.IncompleteReadError)):
                await get_tls(server.addresses[0], context)

    run(test)


def test_tls_is_neither_switched_on_nor_off_by_a_change(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        site.configure()
        metrics = SelfMetrics()
        keeper = site.keeper(metrics)
        async with running(keeper=keeper) as server:
            site.configure(tls=False)
            await keeper.refresh()
            assert value(metrics, RELOADED) == 0
            assert (await get_tls(server.addresses[0], site.authority.client())).status == 200

    run(test)
    assert "TLS was switched off, expected as at the start" in caplog.text


@pytest.mark.parametrize("text", ["basic_auth_users: [", "basic_auth_users: {a: b}", "unknown: 1"])
def test_a_broken_file_leaves_the_old_users_in_force(site: Site, text: str) -> None:
    async def test() -> None:
        site.configure(tls=False, basic_auth_users={"a": hashed("a")})
        metrics = SelfMetrics()
        keeper = site.keeper(metrics)
        async with running(keeper=keeper) as server:
            site.put("web.yaml", text)
            await keeper.refresh()
            assert value(metrics, RELOADED) == 0
            assert (await get(server.addresses[0], "/healthz")).status == 401
            assert (await get(server.addresses[0], "/healthz", basic("a", "a"))).status == 200
            (site.folder / "web.yaml").unlink()
            await keeper.refresh()
            assert value(metrics, RELOADED) == 0
            assert (await get(server.addresses[0], "/healthz")).status == 401
            site.configure(tls=False, basic_auth_users={"a": hashed("b")})
            await keeper.refresh()
            assert value(metrics, RELOADED) == 1
            assert (await get(server.addresses[0], "/healthz", basic("a", "b"))).status == 200

    run(test)


def test_what_did_not_change_is_not_read_again(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.configure()
    keeper = site.keeper()
    read: list[Path] = []
    load = keepers.load

    def counted(path: Path) -> keepers.State:
        read.append(path)
        return load(path)

    monkeypatch.setattr(keepers, "load", counted)

    async def test() -> None:
        for _ in range(3):
            await keeper.refresh()
        assert read == []
        renew(site)
        for _ in range(3):
            await keeper.refresh()
        assert len(read) == 1

    run(test)


def test_an_expired_certificate_is_served_and_told(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    now = datetime.now(UTC)
    renew(site, not_before=now - timedelta(days=9), not_after=now - timedelta(days=1))
    site.configure()
    metrics = SelfMetrics()
    site.keeper(metrics)
    assert "certificate has expired" in caplog.text
    assert (value(metrics, NOT_AFTER) or 0) < time.time()


def test_without_tls_there_is_no_expiry(site: Site) -> None:
    site.configure(tls=False)
    metrics = SelfMetrics()
    site.keeper(metrics)
    assert (value(metrics, NOT_BEFORE), value(metrics, NOT_AFTER)) == (None, None)
    assert value(metrics, RELOADED) == 1
    assert value(SelfMetrics(), RELOADED) is None


def test_sessions_that_openssl_remembers_are_forgotten_in_time(site: Site) -> None:
    site.configure()
    keeper = site.keeper()
    contexts = [keeper.context() for _ in range(2 * keepers.RENEW_AFTER + 1)]
    assert len({id(context) for context in contexts}) == 3


def test_a_missing_file_is_an_error_at_the_start(site: Site) -> None:
    with pytest.raises(ConfigError):
        site.keeper()


def test_a_bundle_with_names_in_other_scripts_is_read_at_the_start_and_later(site: Site) -> None:
    async def test() -> None:
        site.put("clients.pem", f"# Autorité de certification\n{site.authority.pem}")
        site.configure(tls={"client_auth_type": "RequireAndVerifyClientCert", "client_ca_file": "clients.pem"})
        keeper = site.keeper(look_every=SOON)
        mine = site.authority.client(site.authority.issue("client"))
        other = Authority()
        theirs = other.client(other.issue("client"))
        site.authority.ca.configure_trust(theirs)
        async with AsyncExitStack() as stack:
            server = await stack.enter_async_context(running(keeper=keeper))
            await watched(stack, keeper)
            where = server.addresses[0]
            assert (await get_tls(where, mine)).status == 200
            before = keeper.context()
            site.put("clients.pem", f"# 证书颁发机构\n{other.pem}")
            await comes(lambda: keeper.context() is not before)
            assert (await get_tls(where, theirs)).status == 200

    run(test)


def test_a_chain_with_letters_inside_that_no_certificate_has_is_told(site: Site) -> None:
    site.configure()
    site.put("server.pem", chain(site.certificate) + "-----BEGIN CERTIFICATE-----\né\n-----END CERTIFICATE-----\n")
    with pytest.raises(ConfigError, match="OpenSSL does not take it"):
        site.keeper()


def test_what_nobody_thought_of_does_not_end_the_renewal_of_certificates(
    site: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        site.configure()
        metrics = SelfMetrics()
        keeper = site.keeper(metrics, look_every=SOON)
        before = keeper.context()
        looks: list[None] = []

        def broken(_: Path) -> keepers.State:
            looks.append(None)
            raise TypeError("what is that?")

        async with AsyncExitStack() as stack:
            with monkeypatch.context() as patched:
                patched.setattr(keepers, "load", broken)
                await watched(stack, keeper)
                renew(site)
                await comes(lambda: len(looks) >= 3)
                assert value(metrics, RELOADED) == 0
            await comes(lambda: value(metrics, RELOADED) == 1)
            assert keeper.context() is not before
        await keeper.close()

    run(test)
    assert "TypeError: what is that?" in caplog.text
    assert caplog.text.count("Traceback") == 1
