"""Names and passwords on real sockets."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import bcrypt
import pytest

from exporter.web import credentials
from tests.hostile import only
from tests.secured import Site, basic, hashed
from tests.serving import Answer, Client, client, get, rejected, request, run, running, served

FAST_ENOUGH = 1.0
"""Seconds for a scrape beside an attack."""
GOOD = basic("prometheus", "right")


@pytest.fixture
def site(tmp_path: Path) -> Site:
    site = Site(tmp_path)
    site.configure(tls=False, basic_auth_users={"prometheus": hashed("right"), "grafana": hashed("other", 5)})
    return site


ROUTES = ("/", "/metrics", "/metrics?schema=raw", "/healthz", "/readyz", "/-/release", "/nothing", "/assets/app.js")


def test_no_page_is_shown_without_credentials(site: Site) -> None:
    async def test() -> None:
        content = served()
        async with running(content, keeper=site.keeper()) as server:
            for target in ROUTES:
                for method in ("GET", "HEAD", "POST", "OPTIONS"):
                    answer = await get(server.addresses[0], target, method=method)
                    assert answer.status == 401, target
                    assert answer.headers["www-authenticate"] == 'Basic realm="accel-exporter", charset="UTF-8"'
                    assert b"accel_" not in answer.body
            assert only(content, "unauthorized") == len(ROUTES) * 4

    run(test)


def test_with_credentials_every_page_answers_as_before(site: Site) -> None:
    async def test() -> None:
        async with running() as plain, running(keeper=site.keeper()) as server:
            for target in ROUTES:
                before = await get(plain.addresses[0], target)
                answer = await get(server.addresses[0], target, GOOD)
                assert answer.status == before.status
                if not target.startswith("/metrics"):
                    assert answer.body == before.body

    run(test)


@pytest.mark.parametrize(
    "headers",
    [
        [basic("prometheus", "wrong")],
        [basic("prometheus", "")],
        [basic("grafana", "right")],
        [basic("nobody", "right")],
        [basic("Prometheus", "right")],
        [basic("", "right")],
        [GOOD, GOOD],
        [GOOD.replace("Basic", "Bearer")],
        ["Authorization: Basic"],
        ["Authorization: Basic !!!"],
        ["Authorization: Basic cHJvbWV0aGV1cw=="],
        ["Authorization: Basic \xff\xfe"],
        [f"X-{GOOD}"],
        ["Authorization: "],
    ],
)
def test_only_the_right_pair_gets_in(site: Site, headers: Sequence[str]) -> None:
    async def test() -> None:
        async with running(keeper=site.keeper()) as server:
            assert (await get(server.addresses[0], "/healthz", *headers)).status == 401
            assert (await get(server.addresses[0], "/healthz", GOOD.replace("Basic", "bAsIc"))).status == 200

    run(test)


@pytest.mark.parametrize("name", ["ünï", "a b", "x" * 255])
@pytest.mark.parametrize("password", ["pässwörd", "with:colon", "p" * 100])
def test_names_and_passwords_are_any_text(tmp_path: Path, name: str, password: str) -> None:
    """bcrypt looks at 72 bytes: so does every other implementation."""

    async def test() -> None:
        site = Site(tmp_path)
        site.configure(tls=False, basic_auth_users={name: hashed(password[:72])})
        async with running(keeper=site.keeper()) as server:
            assert (await get(server.addresses[0], "/healthz", basic(name, password))).status == 200
            assert (await get(server.addresses[0], "/healthz", basic(name, password[:-1] + "?"))).status == (
                200 if len(password) > 72 else 401
            )

    run(test)


def test_a_password_is_computed_once(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A comparison costs a core a tenth of a second, and Prometheus sends the same password with each scrape."""
    computed: list[bytes] = []
    checkpw = bcrypt.checkpw

    def counted(password: bytes, kept: bytes) -> bool:
        computed.append(password)
        return checkpw(password, kept)

    async def test() -> None:
        async with running(keeper=site.keeper()) as server:
            for _ in range(20):
                assert (await get(server.addresses[0], "/healthz", GOOD)).status == 200

    monkeypatch.setattr(bcrypt, "checkpw", counted)
    run(test)
    assert computed == [b"right"]


def test_guesses_of_one_address_are_few_and_lock_nobody_else_out(site: Site) -> None:
    async def test() -> None:
        content = served()
        async with running(content, keeper=site.keeper()) as server:
            port = int(server.addresses[0].rpartition(":")[2])

            async def ask(source: str, header: str) -> Answer:
                reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0))
                opened = Client(reader, writer)
                try:
                    await opened.send(request("/healthz", header))
                    return await opened.answer()
                finally:
                    await opened.close()

            answers = [await ask("127.0.0.66", basic("prometheus", f"guess {number}")) for number in range(40)]
            tried = [answer for answer in answers if answer.status == 401]
            # Ten at once, and one more each ten seconds.
            assert credentials.GUESSES <= len(tried) <= credentials.GUESSES + 3
            refused = [answer for answer in answers if answer.status == 429]
            assert len(refused) == 40 - len(tried)
            assert 1 <= int(refused[-1].headers["retry-after"]) <= 11
            # Nor does the right password tell itself by another answer.
            assert (await ask("127.0.0.66", GOOD)).status == 429
            assert (await ask("127.0.0.67", GOOD)).status == 200
            assert rejected(content, "guessing") == len(refused) + 1

    run(test)


def test_who_has_proved_itself_goes_on_while_others_guess_from_its_address(site: Site) -> None:
    async def test() -> None:
        async with running(keeper=site.keeper()) as server, client(server.addresses[0]) as scraper:
            await scraper.send(request("/healthz", GOOD))
            assert (await scraper.answer()).status == 200
            for number in range(20):
                last = await get(server.addresses[0], "/healthz", basic("prometheus", f"guess {number}"))
            assert last.status == 429
            await scraper.send(request("/healthz", GOOD))
            assert (await scraper.answer()).status == 200
            # It is the proof that counts, and not the connection.
            await scraper.send(request("/healthz", basic("prometheus", "wrong")))
            assert (await scraper.answer()).status == 429

    run(test)


def test_two_hundred_wrong_passwords_do_not_slow_another_clients_scrape(tmp_path: Path) -> None:
    async def test() -> None:
        site = Site(tmp_path)
        # A usual cost: a tenth of a second of a core for each.
        site.configure(tls=False, basic_auth_users={"prometheus": hashed("right", 10)})
        async with running(keeper=site.keeper()) as server, AsyncExitStack() as stack:
            where = server.addresses[0]
            port = int(where.rpartition(":")[2])
            scraper = await stack.enter_async_context(client(where))
            await scraper.send(request("/metrics", GOOD))
            assert (await scraper.answer()).status == 200

            async def guess(number: int) -> int:
                address = f"127.0.1.{number % 20 + 1}"
                reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))
                opened = Client(reader, writer)
                try:
                    await opened.send(request("/metrics", basic("prometheus", f"guess {number}")))
                    return (await opened.answer()).status
                finally:
                    await opened.close()

            async def guess_on(first: int) -> list[int]:
                return [await guess(first + 10 * step) for step in range(20)]

            attack = asyncio.gather(*(guess_on(first) for first in range(10)))
            times: list[float] = []
            while not attack.done() and len(times) < 200:
                began = time.monotonic()
                await scraper.send(request("/metrics", GOOD))
                assert (await scraper.answer()).status == 200
                times.append(time.monotonic() - began)
                await asyncio.sleep(0.01)
            statuses = [status for some in await attack for status in some]
            assert len(statuses) == 200
            assert 200 not in statuses
            assert sorted(times)[len(times) // 2] < FAST_ENOUGH / 4
            assert max(times) < FAST_ENOUGH

    run(test)


def test_nothing_of_credentials_is_logged(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with running(keeper=site.keeper()) as server:
            for number in range(5):
                await get(server.addresses[0], "/healthz", basic("secret-user", f"hunter{number}"))
            await get(server.addresses[0], "/healthz", GOOD)

    with caplog.at_level(logging.DEBUG):
        run(test)
    told = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert [record.message for record in told] == ["requests with wrong credentials"]
    assert vars(told[0])["newest_from"] == "127.0.0.1"
    for record in caplog.records:
        text = f"{record.getMessage()} {vars(record)}"
        assert not any(secret in text for secret in ("secret-user", "hunter", "right", "$2b$", "c2VjcmV0"))


def test_the_configured_headers_stand_on_every_answer(site: Site) -> None:
    async def test() -> None:
        site.configure(
            tls=False,
            basic_auth_users={"prometheus": hashed("right")},
            http_server_config={
                "headers": {
                    "X-Frame-Options": "sameorigin",
                    "Strict-Transport-Security": "max-age=31536000",
                    "Content-Security-Policy": "frame-ancestors 'self'",
                    "X-XSS-Protection": "",
                }
            },
        )
        async with running(keeper=site.keeper()) as server:
            for target, header, status in (("/", GOOD, 200), ("/nothing", GOOD, 404), ("/metrics", "A: b", 401)):
                answer = await get(server.addresses[0], target, header)
                assert answer.status == status
                assert answer.headers["x-frame-options"] == "sameorigin"
                assert answer.headers["strict-transport-security"] == "max-age=31536000"
                # In place of the page's own: who embeds the page says where.
                assert answer.headers["content-security-policy"] == "frame-ancestors 'self'"
                assert "x-xss-protection" not in answer.headers

    run(test)


def test_all_requests_together_keep_to_the_limit(site: Site) -> None:
    async def test() -> None:
        site.configure(tls=False, rate_limit={"interval": "1h", "burst": 3})
        content = served()
        async with running(content, keeper=site.keeper()) as server:
            statuses = [(await get(server.addresses[0], "/healthz")).status for _ in range(5)]
            assert statuses == [200, 200, 200, 429, 429]
            assert only(content, "rate_limit") == 2

    run(test)
