"""Certificates, users and clients for tests of a server with a web configuration file."""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import bcrypt
import trustme
import yaml

from exporter.selfmetrics import SelfMetrics
from exporter.web.keeper import Keeper
from tests.serving import Answer, Client, request

CHEAP = 4
"""The least cost that bcrypt has: a millisecond."""


class Authority:
    """A CA that signs for servers on the loopback and for clients."""

    def __init__(self) -> None:
        self.ca = trustme.CA(key_type=trustme.KeyType.ECDSA)

    @property
    def pem(self) -> str:
        return self.ca.cert_pem.bytes().decode()

    def issue(self, *names: str, **options: Any) -> trustme.LeafCert:
        return self.ca.issue_cert(*names, key_type=trustme.KeyType.ECDSA, **options)

    def client(self, certificate: trustme.LeafCert | None = None) -> ssl.SSLContext:
        """What a client uses that trusts this CA."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self.ca.configure_trust(context)
        if certificate is not None:
            certificate.configure_cert(context)
        return context


class Site:
    """A folder with a web configuration file, a certificate and a CA for clients."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = Authority()
        self.certificate = self.authority.issue("localhost", "127.0.0.1")
        self.put("server.pem", chain(self.certificate))
        self.put("server.key", key(self.certificate))
        self.put("clients.pem", self.authority.pem)

    def put(self, name: str, text: str) -> Path:
        """Write a file as a Secret's are: whole, in place of the old one."""
        path, new = self.folder / name, self.folder / f".{name}.new"
        new.write_text(text)
        return new.replace(path)

    def configure(self, *, tls: Mapping[str, Any] | bool = True, **rest: Any) -> Path:
        """Write the file. ``tls``: what stands there beside certificate and key; False: no TLS."""
        text: dict[str, Any] = dict(rest)
        if tls is not False:
            more = {} if tls is True else tls
            text["tls_server_config"] = {"cert_file": "server.pem", "key_file": "server.key", **more}
        return self.put("web.yaml", yaml.safe_dump(text))

    def keeper(self, metrics: SelfMetrics | None = None, **options: Any) -> Keeper:
        return Keeper(self.folder / "web.yaml", (metrics or SelfMetrics()).web(), **options)


def chain(certificate: trustme.LeafCert) -> str:
    return "".join(blob.bytes().decode() for blob in certificate.cert_chain_pems)


def key(certificate: trustme.LeafCert) -> str:
    return certificate.private_key_pem.bytes().decode()


def hashed(password: str, cost: int = CHEAP) -> str:
    return bcrypt.hashpw(password.encode(), bcrypt.gensalt(cost)).decode()


def basic(user: str, password: str) -> str:
    """The header that shows these credentials."""
    return f"Authorization: Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"


@asynccontextmanager
async def tls_client(address: str, context: ssl.SSLContext) -> AsyncIterator[Client]:
    host, _, port = address.rpartition(":")
    opened = Client(*await asyncio.open_connection(host, int(port), ssl=context, server_hostname="localhost"))
    try:
        yield opened
    finally:
        # The connection may have ended with an alert.
        with suppress(ssl.SSLError):
            await opened.close()


async def get_tls(address: str, context: ssl.SSLContext, target: str = "/healthz", *headers: str) -> Answer:
    """One request over a connection of its own."""
    async with tls_client(address, context) as opened:
        await opened.send(request(target, "Connection: close", *headers))
        return await opened.answer()
