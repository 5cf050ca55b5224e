"""``accel-exporter top --url`` of an agent with TLS, client certificates and users."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization

from tests.integration.test_top import once, once_beside
from tests.secured import Authority, Site, chain, hashed, key
from tests.status_stage import scene, world

NAME, PASSWORD = "me", "c0rrect hörse"
Done = subprocess.CompletedProcess[str]


@pytest.fixture
def site(tmp_path: Path) -> Site:
    (tmp_path / "web").mkdir()
    return Site(tmp_path / "web")


@asynccontextmanager
async def agent(site: Site, **settings: Any) -> AsyncIterator[str]:
    """HOST:PORT of one with this web configuration."""
    site.configure(**settings)
    site.put("password", f"{PASSWORD}\n")
    site.put("ca.crt", site.authority.pem)
    async with scene(site.folder.parent, world(), keeper=site.keeper()) as here:
        yield here.server.addresses[0]


def locked(pem: str) -> str:
    """The same key behind a passphrase."""
    return (
        serialization.load_pem_private_key(pem.encode(), None)
        .private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"passphrase"),
        )
        .decode()
    )


def with_user(site: Site, name: str = NAME, file: str = "password") -> tuple[str, ...]:
    return ("--user", name, "--password-file", str(site.folder / file))


def trusting(site: Site) -> tuple[str, ...]:
    return ("--ca-file", str(site.folder / "ca.crt"))


def asked(site: Site, flags: Callable[[str], tuple[str, ...]], **settings: Any) -> Done:
    """What top says of an agent with this web configuration, asked with flags that its address gives."""

    async def story() -> Done:
        async with agent(site, **settings) as address:
            return await once_beside(*flags(address))

    return asyncio.run(asyncio.wait_for(story(), 100))


def shows_devices(done: Done) -> bool:
    return done.returncode == 0 and "acme 0" in done.stdout and "40%" in done.stdout


def told(done: Done) -> str:
    """The error of one that showed nothing."""
    assert (done.returncode, done.stdout) == (1, ""), done.stderr
    assert "Traceback" not in done.stderr
    assert PASSWORD not in done.stderr
    return done.stderr


def test_https_with_a_user_and_the_authoritys_certificate(site: Site) -> None:
    users = {NAME: hashed(PASSWORD)}
    done = asked(
        site,
        lambda address: ("--url", f"https://{address}/", *trusting(site), *with_user(site)),
        basic_auth_users=users,
    )
    assert shows_devices(done), done.stderr
    assert done.stderr == ""


def test_a_client_certificate_opens_a_port_that_wants_one(site: Site) -> None:
    mine = site.authority.issue("me.example")
    site.put("mine.crt", chain(mine))
    site.put("mine.key", key(mine))
    site.put("both.pem", key(mine) + chain(mine))
    wanted = {"client_auth_type": "RequireAndVerifyClientCert", "client_ca_file": "clients.pem"}

    async def story() -> None:
        async with agent(site, tls=wanted) as address:
            common = ("--url", f"https://{address}", *trusting(site))
            file = str(site.folder / "mine.crt")
            assert shows_devices(
                await once_beside(*common, "--cert-file", file, "--key-file", str(site.folder / "mine.key"))
            )
            assert shows_devices(await once_beside(*common, "--cert-file", str(site.folder / "both.pem")))
            assert "wants a client's certificate: show one that it trusts with --cert-file" in told(
                await once_beside(*common)
            )
            other = Authority().issue("me.example")
            site.put("other.pem", key(other) + chain(other))
            refused = told(await once_beside(*common, "--cert-file", str(site.folder / "other.pem")))
            assert "does not take this certificate" in refused

    asyncio.run(asyncio.wait_for(story(), 200))


def test_a_certificate_that_is_not_trusted_is_refused_unless_asked_for(site: Site) -> None:
    async def story() -> None:
        async with agent(site) as address:
            url = ("--url", f"https://{address}")
            assert (
                "is not trusted (unable to get local issuer certificate): name its authority's with --ca-file"
                in told(await once_beside(*url))
            )
            done = await once_beside(*url, "--insecure")
            assert shows_devices(done)
            assert "--insecure: whose certificate it is, is not checked" in done.stderr

    asyncio.run(asyncio.wait_for(story(), 100))


def test_a_certificate_for_another_name_is_told(site: Site) -> None:
    other = site.authority.issue("elsewhere.example")
    site.put("server.pem", chain(other))
    site.put("server.key", key(other))
    done = asked(site, lambda address: ("--url", f"https://{address}", *trusting(site)))
    assert "shows a certificate for another name" in told(done)
    assert "use a name in --url that the certificate has" in done.stderr


def test_an_expired_certificate_is_told(site: Site) -> None:
    now = datetime.now(UTC)
    old = site.authority.issue("127.0.0.1", not_before=now - timedelta(days=9), not_after=now - timedelta(days=1))
    site.put("server.pem", chain(old))
    site.put("server.key", key(old))
    done = asked(site, lambda address: ("--url", f"https://{address}", *trusting(site)))
    assert "it has to be renewed there" in told(done)


def test_the_wrong_one_of_http_and_https_is_told(site: Site) -> None:
    assert "begin the address with https://" in told(asked(site, lambda address: ("--url", f"http://{address}")))
    done = asked(site, lambda address: ("--url", f"https://{address}", "--insecure"), tls=False)
    assert "does not speak https: begin the address with http://" in told(done)


def test_credentials_that_are_missing_or_wrong_are_told(site: Site) -> None:
    async def story() -> None:
        async with agent(site, tls=False, basic_auth_users={NAME: hashed(PASSWORD)}) as address:
            site.put("wrong", "hunter2\n")
            url = ("--url", f"http://{address}")
            assert "name them with --user and --password-file" in told(await once_beside(*url))
            refused = told(await once_beside(*url, *with_user(site, file="wrong")))
            assert "does not take this user and password (401)" in refused
            assert "hunter2" not in refused
            assert shows_devices(await once_beside(*url, *with_user(site)))

    asyncio.run(asyncio.wait_for(story(), 100))


def test_a_redirect_takes_no_password_elsewhere(site: Site) -> None:
    heard: list[str] = []

    def redirecting(target: str) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Any]:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            heard.append((await reader.readuntil(b"\r\n\r\n")).decode())
            head = f"HTTP/1.1 302 Found\r\nLocation: {target}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            writer.write(head.encode())
            writer.close()

        return answer

    async def story() -> Done:
        site.put("password", PASSWORD)
        other = await asyncio.start_server(redirecting("/"), "127.0.0.1", 0)
        port = other.sockets[0].getsockname()[1]
        first = await asyncio.start_server(redirecting(f"http://127.0.0.1:{port}/stolen"), "127.0.0.1", 0)
        async with other, first:
            mine = first.sockets[0].getsockname()[1]
            return await once_beside("--url", f"http://127.0.0.1:{mine}", *with_user(site))

    assert "answers 302" in told(asyncio.run(asyncio.wait_for(story(), 60)))
    assert [request.split()[1] for request in heard] == ["/api/v1/devices"]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (
            ("--url", "http://n:1", "--ca-file", "{here}/good.pem"),
            "--ca-file: only with an address that begins with https://",
        ),
        (("--url", "http://n:1", "--insecure"), "--insecure: only with an address that begins with https://"),
        (
            ("--url", "https://n:1", "--ca-file", "{here}/none"),
            "No such file or directory, expected certificates as PEM",
        ),
        (("--url", "https://n:1", "--ca-file", "{here}/empty"), "expected certificates as PEM"),
        (("--url", "https://n:1", "--ca-file", "{here}/good.pem", "--insecure"), "leave it away, or --ca-file"),
        (("--url", "https://n:1", "--key-file", "{here}/good.pem"), "--key-file: only with --cert-file"),
        (("--url", "https://n:1", "--cert-file", "{here}/empty"), "expected a certificate and its own key as PEM"),
        (("--url", "https://n:1", "--cert-file", "{here}/locked.pem"), "the key is encrypted"),
        (("--url", "https://n:1", "--user", "me"), "give both, or none"),
        (("--url", "https://n:1", "--user", "a:b", "--password-file", "{here}/good.pem"), "a name without a colon"),
        (("--url", "https://a:b@n:1", "--user", "me", "--password-file", "{here}/good.pem"), "the URL names one, too"),
        (("--url", "https://n:1", "--user", "me", "--password-file", "{here}/none"), "there is no such file"),
        (
            ("--url", "https://n:1", "--user", "me", "--password-file", "{here}/empty"),
            "is empty, expected the password",
        ),
    ],
)
def test_flags_that_cannot_be_used_are_told_before_anybody_is_asked(
    flags: tuple[str, ...], words: str, tmp_path: Path
) -> None:
    issued = Authority().issue("me.example")
    (tmp_path / "good.pem").write_text(key(issued) + chain(issued))
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "locked.pem").write_text(chain(issued) + locked(key(issued)))
    done = once(*(flag.replace("{here}", str(tmp_path)) for flag in flags))
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr
    assert "Traceback" not in done.stderr
