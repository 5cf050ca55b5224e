"""Gets a page over HTTP with a limit on everything: time in all, bytes before and after decompression, redirects.

The standard library's timeouts hold for one receive, so that a server which sends a byte a second is never late. Here
every receive gets what is left of one deadline.
"""

from __future__ import annotations

import http.client
import io
import socket
import ssl
import time
import zlib
from collections.abc import Generator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Final, Literal, cast
from urllib.parse import SplitResult, parse_qs, urlsplit

import msgspec

from collectors.base import UnavailableState

_PIECE: Final = 64 * 1024
_MAX_TOKEN: Final = 64 * 1024
_ACCEPT: Final = "text/plain;version=0.0.4,application/openmetrics-text;version=1.0.0;q=0.5,*/*;q=0.1"
_USER_AGENT: Final = "accel-exporter-bridge"

Kind = Literal["timeout", "transient", "parse", "permission"]


class FetchError(Exception):
    """The page could not be had. The text tells the user what to do; ``kind`` and ``state`` are the agent's words."""

    def __init__(self, hint: str, kind: Kind = "transient", state: UnavailableState = "no_driver") -> None:
        super().__init__(hint)
        self.hint = hint
        self.kind: Kind = kind
        self.state: UnavailableState = state


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """A checked address."""

    scheme: str
    host: str
    port: int
    path: str
    socket_path: str = ""
    text: str
    """The address as people know it."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    target: Target
    timeout: float
    max_bytes: int
    headers: Mapping[str, str] = {}
    bearer_token_file: str = ""
    ca_file: str = ""


class Page(msgspec.Struct, frozen=True):
    """An answer whose body is still to be read, and to be closed.

    ``body`` raises FetchError when the deadline or a limit is passed.
    """

    body: Generator[bytes]
    openmetrics: bool


def target(url: str) -> Target:
    """Check an address. Raises ValueError that says what was expected."""
    expected = "expected http://host:port/metrics, https://… or unix:///path/to.sock?path=/metrics"
    if any(character.isspace() or not character.isprintable() for character in url):
        raise ValueError(f"the address {url!r} holds a blank or a control character; {expected}")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ValueError(f"the address {url!r} cannot be read ({error}); {expected}") from error
    if parts.username is not None or parts.password is not None:
        # The address itself is not repeated: it holds a password.
        raise ValueError("the address holds a user or a password; put credentials into headers or bearer_token_file")
    if parts.scheme == "unix" and parts.path.startswith("/") and not parts.netloc:
        path = parse_qs(parts.query).get("path", ["/metrics"])[0]
        return Target(scheme="unix", host="localhost", port=80, path=path, socket_path=parts.path, text=url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"the address {url!r} is not understood; {expected}")
    return Target(
        scheme=parts.scheme,
        host=parts.hostname,
        port=port or (443 if parts.scheme == "https" else 80),
        path=_path(parts),
        text=url,
    )


def _path(parts: SplitResult) -> str:
    return (parts.path or "/") + (f"?{parts.query}" if parts.query else "")


class _Connection:
    """What http.client takes for a socket. It has one deadline for all that it does."""

    def __init__(self, sock: socket.socket, deadline: float) -> None:
        self._sock = sock
        self._deadline = deadline

    def sendall(self, data: bytes) -> None:
        self._sock.settimeout(left(self._deadline))
        self._sock.sendall(data)

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(_Incoming(self._sock, self._deadline), _PIECE)

    def close(self) -> None:
        """http.client closes before it has read the body; the socket is closed with the body."""


class _Incoming(io.RawIOBase):
    def __init__(self, sock: socket.socket, deadline: float) -> None:
        self._sock = sock
        self._deadline = deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        self._sock.settimeout(left(self._deadline))
        return self._sock.recv_into(cast(memoryview, buffer))


def left(deadline: float) -> float:
    """Seconds until the deadline. Raises TimeoutError when there are none."""
    seconds = deadline - time.monotonic()
    if seconds <= 0:
        raise TimeoutError("the time for the whole scrape is over")
    return seconds


def fetch(request: Request) -> Page:
    """Send a GET and read the head of its answer. Raises FetchError."""
    text = request.target.text
    try:
        return _fetch(request)
    except FetchError:
        raise
    except TimeoutError as error:
        raise FetchError(
            f"{text} gave no answer within {request.timeout:g} s; see whether the exporter hangs, or raise timeout",
            "timeout",
        ) from error
    except OSError as error:
        raise FetchError(
            f"{text} cannot be reached ({_brief(error)}); start the exporter there or correct url",
            state="no_permission" if isinstance(error, PermissionError) else "no_driver",
        ) from error
    except http.client.HTTPException as error:
        raise FetchError(
            f"{text} does not speak HTTP as it should ({_brief(error)}); see what listens there"
        ) from error
    except ValueError as error:
        raise FetchError(f"the request to {text} cannot be sent ({_brief(error)}); correct url and headers") from error


def _brief(error: Exception) -> str:
    return (str(error) or type(error).__name__)[:200]


def _fetch(request: Request) -> Page:
    deadline = time.monotonic() + request.timeout
    target_ = request.target
    headers = {**_headers(request), **request.headers}
    sock = _connect(request, deadline)
    try:
        client = http.client.HTTPConnection(target_.host, target_.port)
        client.sock = _Connection(sock, deadline)
        client.request("GET", target_.path, headers=headers)
        answer = client.getresponse()
        _check_status(target_, answer)
        encoding = (answer.getheader("Content-Encoding") or "identity").strip().lower()
        if encoding not in ("gzip", "x-gzip", "identity"):
            raise FetchError(f"{target_.text} answers in the encoding {encoding!r}, which was not asked for", "parse")
    except BaseException:
        sock.close()
        raise
    pieces = _pieces(answer, request, sock)
    if encoding != "identity":
        pieces = _gunzip(pieces, request)
    openmetrics = (answer.getheader("Content-Type") or "").lower().startswith("application/openmetrics-text")
    return Page(_sniffed(pieces, request.target), openmetrics)


def _headers(request: Request) -> dict[str, str]:
    found = {"Accept": _ACCEPT, "Accept-Encoding": "gzip", "User-Agent": _USER_AGENT, "Connection": "close"}
    if request.bearer_token_file:
        try:
            with Path(request.bearer_token_file).open("rb") as file:
                token = file.read(_MAX_TOKEN).decode("ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise FetchError(
                f"bearer_token_file {request.bearer_token_file} cannot be read ({_brief(error)})",
                "permission",
                "no_permission",
            ) from error
        found["Authorization"] = f"Bearer {token}"
    return found


def _connect(request: Request, deadline: float) -> socket.socket:
    where = request.target
    if where.scheme == "unix":
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.settimeout(left(deadline))
            sock.connect(where.socket_path)
        except BaseException:
            sock.close()
            raise
        return sock
    sock = _connect_tcp(where, deadline)
    return _secure(sock, request, deadline) if where.scheme == "https" else sock


def _connect_tcp(where: Target, deadline: float) -> socket.socket:
    """Try the host's addresses in turn within one deadline (socket.create_connection gives each its own)."""
    trouble: OSError = OSError("the name has no address")
    for family, kind, protocol, _, address in socket.getaddrinfo(where.host, where.port, type=socket.SOCK_STREAM):
        sock = socket.socket(family, kind, protocol)
        try:
            sock.settimeout(left(deadline))
            sock.connect(address)
        except OSError as error:
            sock.close()
            trouble = error
        else:
            return sock
    raise trouble


def _secure(sock: socket.socket, request: Request, deadline: float) -> socket.socket:
    try:
        context = ssl.create_default_context(cafile=request.ca_file or None)
    except OSError as error:
        sock.close()
        raise FetchError(
            f"ca_file {request.ca_file} cannot be read as a certificate ({_brief(error)})", "permission"
        ) from error
    try:
        sock.settimeout(left(deadline))
        return context.wrap_socket(sock, server_hostname=request.target.host)
    except ssl.SSLError as error:
        sock.close()
        raise FetchError(
            f"no TLS with {request.target.text} ({_brief(error)}); name the certificate of its authority in ca_file",
            "permission",
        ) from error
    except BaseException:
        sock.close()
        raise


def _check_status(where: Target, answer: http.client.HTTPResponse) -> None:
    if answer.status == 200:
        return
    if answer.status in (401, 403):
        raise FetchError(
            f"{where.text} answers {answer.status}: it wants credentials; set bearer_token_file or headers",
            "permission",
            "no_permission",
        )
    if 300 <= answer.status < 400:
        place = (answer.getheader("Location") or "")[:200]
        raise FetchError(f"{where.text} redirects to {place!r}, and redirects are not followed; correct url")
    raise FetchError(
        f"{where.text} answers {answer.status} {answer.reason[:80]}; see the exporter's log, or correct url"
    )


def _pieces(answer: http.client.HTTPResponse, request: Request, sock: socket.socket) -> Generator[bytes]:
    """The body as it was sent, in pieces."""
    text = request.target.text
    expected = answer.length
    received = 0
    try:
        while piece := answer.read1(_PIECE):
            received += len(piece)
            if received > request.max_bytes:
                raise _too_big(request)
            yield piece
        if expected is not None and received < expected:
            raise FetchError(f"{text} broke off after {received} of {expected} bytes")
    except TimeoutError as error:
        raise FetchError(
            f"{text} did not finish within {request.timeout:g} s; see whether the exporter hangs, or raise timeout",
            "timeout",
        ) from error
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise FetchError(f"{text} broke off its answer ({_brief(error)})") from error
    finally:
        answer.close()
        sock.close()


def _gunzip(pieces: Generator[bytes], request: Request) -> Generator[bytes]:
    """Decompress piece by piece, so that a small body cannot become a big one in memory."""
    unzip = zlib.decompressobj(wbits=31)
    produced = 0
    with closing(pieces):
        try:
            for piece in pieces:
                rest = piece
                while rest:
                    if unzip.eof:
                        # A further member; the format allows any number of them.
                        unzip = zlib.decompressobj(wbits=31)
                    out = unzip.decompress(rest, _PIECE)
                    rest = unzip.unused_data if unzip.eof else unzip.unconsumed_tail
                    produced += len(out)
                    if produced > request.max_bytes:
                        raise _too_big(request)
                    yield out
        except zlib.error as error:
            raise FetchError(
                f"{request.target.text} sends gzip that cannot be unpacked ({_brief(error)})", "parse"
            ) from error
    while out := unzip.decompress(b"", _PIECE):
        yield out
    if not unzip.eof:
        raise FetchError(f"{request.target.text} broke off within its gzip")


def _too_big(request: Request) -> FetchError:
    return FetchError(
        f"{request.target.text} sends more than {request.max_bytes} bytes; see what it serves, or raise max_bytes",
        "parse",
    )


def _sniffed(pieces: Generator[bytes], where: Target) -> Generator[bytes]:
    """Refuse a page for people or programs of another kind, whatever its Content-Type claims.

    Some exporters send metrics as text/html or without any type, so the type alone decides nothing.
    """
    first = True
    with closing(pieces):
        for piece in pieces:
            if first and piece.strip():
                first = False
                if piece.lstrip()[:1] in (b"<", b"{", b"["):
                    raise FetchError(
                        f"{where.text} sends a web page or JSON, no metrics; correct the path in url (often /metrics)",
                        "parse",
                    )
            yield piece
