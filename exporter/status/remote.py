"""Another agent, asked through its JSON API: over http or https, with a certificate or a password if it wants one."""

from __future__ import annotations

import argparse
import asyncio
import base64
import http.client
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Final, TypeVar, cast
from urllib.parse import unquote, urlsplit, urlunsplit

import msgspec

from exporter.config.checks import is_url
from exporter.config.problems import ConfigError
from exporter.config.text import read_text
from exporter.status.model import Devices, Status

T = TypeVar("T")
TIMEOUT: Final = 10.0
"""Seconds without any byte of an answer."""
PATIENCE: Final = 2 * TIMEOUT
"""And for two whole answers: one that comes byte by byte would never end."""
MOST_BYTES: Final = 32 * 1024 * 1024
"""An answer that is larger is none of an agent's."""
_MISMATCHES: Final = (62, 64)
"""OpenSSL's codes of a certificate that is for another name, and for another address."""
_EXPIRED: Final = 10
_WANTS_CERTIFICATE: Final = ("CERTIFICATE_REQUIRED", "ALERT_HANDSHAKE_FAILURE")
_WRONG_CERTIFICATE: Final = ("UNKNOWN_CA", "BAD_CERTIFICATE", "CERTIFICATE_EXPIRED", "CERTIFICATE_UNKNOWN")
_OFFER: Final = "show one that it trusts with --cert-file and --key-file"


class Unreachable(Exception):
    """The other agent gives no answer; the message says why."""


class WrongFlags(Exception):
    """The flags cannot be used; the message says what to do."""


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """How to come to an agent: the flags of the command line."""

    url: str = ""
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    insecure: bool = False
    user: str = ""
    password_file: Path | None = None


class Door(msgspec.Struct, frozen=True, kw_only=True):
    """What each request to an agent needs."""

    base: str
    headers: Mapping[str, str]
    context: ssl.SSLContext | None
    warning: str = ""


def access(args: argparse.Namespace) -> Access:
    return Access(**{name: getattr(args, name) for name in Access.__struct_fields__})


def door(given: Access) -> Door:
    """Read the files, once. A name and a password can stand in the URL, too. Raises WrongFlags."""
    if not given.url:
        used = [name for name in Access.__struct_fields__ if getattr(given, name)]
        if used:
            raise WrongFlags(f"--{used[0].replace('_', '-')}: only with --url, which names the other agent")
        return Door(base="", headers={}, context=None)
    if not is_url(given.url):
        raise WrongFlags("--url: expected a URL such as http://node-1:9859 or https://node-1:9859")
    parts = urlsplit(given.url.rstrip("/"))
    inside, at, host = parts.netloc.rpartition("@")
    headers = {"Accept": "application/json", "User-Agent": "accel-exporter-top"}
    if at and given.user:
        raise WrongFlags("--user: the URL names one, too: leave one of the two away")
    pair = unquote(inside) if at else _pair(given)
    if pair:
        headers["Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
    return Door(
        base=urlunsplit((parts.scheme, host, parts.path, "", "")),
        headers=headers,
        context=_context(given, parts.scheme),
        warning="--insecure: whose certificate it is, is not checked. Whoever answers there could read the password "
        "and send made-up numbers; --ca-file checks it"
        if given.insecure
        else "",
    )


def _pair(given: Access) -> str:
    if bool(given.user) != (given.password_file is not None):
        raise WrongFlags("--user and --password-file: give both, or none")
    if given.password_file is None:
        return ""
    if ":" in given.user:
        raise WrongFlags("--user: expected a name without a colon")
    try:
        lines = read_text(given.password_file, "--password-file").splitlines()
    except ConfigError as error:
        (problem,) = error.problems
        raise WrongFlags(f"--password-file: {problem.source}: {problem.found}, expected {problem.expected}") from error
    if not lines or not lines[0]:
        raise WrongFlags(f"--password-file: the first line of {given.password_file} is empty, expected the password")
    return f"{given.user}:{lines[0]}"


def _context(given: Access, scheme: str) -> ssl.SSLContext | None:
    if scheme != "https":
        for name in ("ca_file", "cert_file", "key_file", "insecure"):
            if getattr(given, name):
                raise WrongFlags(f"--{name.replace('_', '-')}: only with an address that begins with https://")
        return None
    if given.insecure and given.ca_file:
        raise WrongFlags("--insecure: nothing is checked with it; leave it away, or --ca-file")
    if given.key_file and not given.cert_file:
        raise WrongFlags("--key-file: only with --cert-file, whose key it is")
    try:
        # Those of the system are looked for once a file is not named.
        context = ssl.create_default_context(cafile=given.ca_file)
    except (OSError, ValueError) as error:
        raise WrongFlags(f"--ca-file: {given.ca_file}: {_brief(error)}, expected certificates as PEM") from error
    if given.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if given.cert_file:
        try:
            # A key with a passphrase would ask for it on the terminal.
            context.load_cert_chain(given.cert_file, given.key_file, password=_no_passphrase)
        except (OSError, ValueError) as error:
            files = " and ".join(str(path) for path in (given.cert_file, given.key_file) if path)
            expected = "a certificate and its own key as PEM, without a passphrase"
            raise WrongFlags(f"--cert-file: {files}: {_brief(error)}, expected {expected}") from error
    return context


def _no_passphrase() -> str:
    raise ValueError("the key is encrypted")


def _brief(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return f"OpenSSL does not take it ({(error.reason or 'no PEM').lower().replace('_', ' ')})"
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """No agent redirects, and a password is for the address that it was given for."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> None:
        return None


async def ask(where: Door) -> tuple[Devices, Status]:
    """The newest answers. Raises Unreachable."""
    handlers = [] if where.context is None else [urllib.request.HTTPSHandler(context=where.context)]
    opener = urllib.request.build_opener(_NoRedirects(), *handlers)

    def both() -> tuple[Devices, Status]:
        return _get(opener, where, "devices", Devices), _get(opener, where, "status", Status)

    try:
        return await asyncio.wait_for(_in_thread(both), PATIENCE)
    except TimeoutError as error:
        raise Unreachable(f"{where.base} does not come to the end of an answer within {PATIENCE:g} s") from error


def _in_thread(work: Callable[[], T]) -> asyncio.Future[T]:
    """What work returns, or the Unreachable that it raises. Nobody waits for this thread at the end of the loop."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: Unreachable | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(cast(T, result))

    def run() -> None:
        result, trouble = None, None
        try:
            result = work()
        except Unreachable as error:
            trouble = error
        # The loop may be closed: nobody waits for an answer any more.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(settle, result, trouble)

    threading.Thread(target=run, daemon=True).start()
    return future


def _get(opener: urllib.request.OpenerDirector, where: Door, route: str, kind: type[T]) -> T:
    url = f"{where.base}/api/v1/{route}"
    request = urllib.request.Request(url, headers=dict(where.headers))
    try:
        with opener.open(request, timeout=TIMEOUT) as answer:
            content = answer.read(MOST_BYTES + 1)
    except urllib.error.HTTPError as error:
        with error:
            raise Unreachable(f"{url} {_refusal(error, 'Authorization' in where.headers)}") from error
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None)
        raise Unreachable(f"{url} {_trouble(reason if isinstance(reason, Exception) else error)}") from error
    try:
        return msgspec.json.decode(content, type=kind)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise Unreachable(f"{url} answers with something else than an accel-exporter's JSON: {error}") from error


def _refusal(error: urllib.error.HTTPError, shown: bool) -> str:
    """What an answer means that is no success."""
    match error.code:
        case 401 if shown:
            return "does not take this user and password (401): see basic_auth_users in its web configuration"
        case 401:
            return "wants a user and a password (401): name them with --user and --password-file"
        case 429:
            wait = error.headers.get("Retry-After", "some")
            return f"takes no more requests or passwords for now (429): wait {wait} seconds"
        case 400 if b"HTTPS" in error.read(256):
            return "speaks https: begin the address with https://"
    return f"answers {error.code}: is an accel-exporter of this version there?"


def _trouble(error: Exception) -> str:
    """What it means that there is no answer, and what to do."""
    if isinstance(error, ssl.SSLCertVerificationError):
        why = error.verify_message
        if error.verify_code in _MISMATCHES:
            return f"shows a certificate for another name ({why}): use a name in --url that the certificate has"
        if error.verify_code == _EXPIRED:
            return f"shows a certificate that is not to be trusted ({why}): it has to be renewed there"
        return f"shows a certificate that is not trusted ({why}): name its authority's with --ca-file"
    if isinstance(error, ssl.SSLError):
        reason = error.reason or ""
        if reason == "WRONG_VERSION_NUMBER":
            return "does not speak https: begin the address with http://"
        if any(word in reason for word in _WANTS_CERTIFICATE):
            return f"wants a client's certificate: {_OFFER}"
        if any(word in reason for word in _WRONG_CERTIFICATE):
            return f"does not take this certificate ({reason.lower().replace('_', ' ')}): {_OFFER}"
        return f"does not come to an agreement on TLS: {error}"
    return f"does not answer: {error}"
