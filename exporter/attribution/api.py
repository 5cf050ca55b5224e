"""Requests to a Kubernetes API server or a kubelet: address, token, certificates, and what codes ask for."""

from __future__ import annotations

import asyncio
import email.utils
import os
import random
import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final, TypeVar

import aiohttp
import msgspec

from exporter.attribution.text import MAX_HINT, clean
from exporter.files import small_text

MAX_ANSWER: Final = 64 * 1024 * 1024
MAX_LINE: Final = 4 * 1024 * 1024
"""An object in etcd has at most 1.5 MiB; this leaves room for its JSON."""
OPENING: Final = 30.0
"""Seconds in which a server must agree to a stream; then it may be silent for much longer."""
BACKOFF_FIRST: Final = 0.8
BACKOFF_MOST: Final = 30.0
HEALTHY_AFTER: Final = 120.0
"""Seconds without trouble after which the pauses begin small again."""
REFUSAL: Final = 10.0
"""Seconds in which the text of a refusal must have come; a watch may be silent for much longer."""
CONNECTIONS: Final = 8
"""At one server: three watches, and what is asked beside them."""


class ApiError(Exception):
    """An answer that is none. ``kind`` is a word of a fixed set, for a counter."""

    def __init__(self, kind: str, hint: str, *, pause: float | None = None) -> None:
        hint = clean(hint, MAX_HINT)
        super().__init__(hint)
        self.kind, self.hint = kind, hint
        self.pause = pause
        """Seconds that the server asks to wait; None: as the caller sees fit."""


class Expired(Exception):
    """The version from which to go on is too old: the list must be read anew."""


T = TypeVar("T")


def decoded(decoder: msgspec.json.Decoder[T], data: bytes | msgspec.Raw, path: str) -> T:
    """What an answer says. Raises ApiError."""
    try:
        return decoder.decode(data)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ApiError("answer", f"{path}: the answer is not understood: {error}") from error


def service_address(environ: Mapping[str, str] = os.environ) -> str:
    """Where a pod finds its API server; empty outside a cluster."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST", ""), environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        return ""
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"


class Api:
    """One server. The token is read at each request, for it is rotated; certificates when they do not fit any more."""

    def __init__(self, url: str, token_file: str, ca_file: str, *, verify: bool = True) -> None:
        self.url = url.rstrip("/")
        self._token_file, self._ca_file, self._verify = token_file, ca_file, verify
        self._session: aiohttp.ClientSession | None = None
        self._tls: ssl.SSLContext | None = None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def get(self, path: str, query: Mapping[str, str], *, limit: float = 30.0, accept: str = "") -> bytes:
        """The body of an answer, read within ``limit`` seconds. Raises ApiError and Expired."""
        async with self._open(path, query, aiohttp.ClientTimeout(total=limit), accept) as response:
            parts: list[bytes] = []
            size = 0
            async for part in response.content.iter_chunked(256 * 1024):
                size += len(part)
                if size > MAX_ANSWER:
                    raise ApiError("too_large", f"{path}: the answer has more than {MAX_ANSWER} bytes")
                parts.append(part)
            return b"".join(parts)

    async def lines(
        self, path: str, query: Mapping[str, str], *, idle: float, opened: Callable[[], None], accept: str = ""
    ) -> AsyncGenerator[bytes, None]:
        """The lines of a stream, until it ends or nothing comes for ``idle`` seconds. Raises ApiError and Expired.

        ``opened`` is called when the server has agreed: the first line may be minutes away. What follows the last end
        of a line is half an object, and dropped.
        """
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10.0, sock_read=idle)
        async with self._open(path, query, timeout, accept) as response:
            opened()
            rest = bytearray()
            async for part in response.content.iter_any():
                first, *pieces = part.split(b"\n")
                rest += first
                if pieces:
                    pieces = [bytes(rest), *pieces]
                    rest = bytearray(pieces.pop())
                if len(rest) > MAX_LINE:
                    raise ApiError("too_large", f"{path}: a line has more than {MAX_LINE} bytes")
                for piece in pieces:
                    if piece.strip():
                        yield piece
                # The next may be hours away.
                del part, pieces, first
                # Of compressed bytes that become thousandfold many parts are there at once.
                await asyncio.sleep(0)

    @asynccontextmanager
    async def _open(
        self, path: str, query: Mapping[str, str], limits: aiohttp.ClientTimeout, accept: str
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        headers = {"Accept": accept or "application/json"}
        token = await asyncio.to_thread(self._token)
        if token:
            headers["Authorization"] = f"Bearer {token}"
        try:
            session = self._session or await self._begin()
            async with asyncio.timeout(OPENING):
                response = await session.get(
                    self.url + path, params=query, headers=headers, timeout=limits, allow_redirects=False
                )
            async with response:
                await _check(response, path)
                yield response
        except TimeoutError as error:
            raise ApiError("timeout", f"{self.url}{path}: no answer in time") from error
        except aiohttp.ClientConnectorCertificateError as error:
            await asyncio.to_thread(self._trust_anew)
            hint = f"{self.url}{path}: {error}; is its certificate from the authority of the configured file?"
            raise ApiError("certificate", hint) from error
        except (aiohttp.ClientError, ssl.SSLError, OSError) as error:
            raise ApiError("connection", f"{self.url}{path}: {error}") from error

    def _token(self) -> str:
        """Empty without a file. Raises ApiError for a file that holds no token."""
        token = small_text(self._token_file)
        if not all("!" <= character <= "~" for character in token):
            raise ApiError("unauthorized", f"{self._token_file}: what stands there is no token")
        return token

    async def _begin(self) -> aiohttp.ClientSession:
        """The session; several requests may be the first at once."""
        tls = await asyncio.to_thread(self._context)
        if self._session is None:
            self._tls = tls
            connector = aiohttp.TCPConnector(ssl=tls if tls is not None else True, limit=CONNECTIONS)
            # What a server asks to keep would add up.
            cookies = aiohttp.DummyCookieJar()
            self._session = aiohttp.ClientSession(connector=connector, cookie_jar=cookies, trust_env=False)
        return self._session

    def _context(self) -> ssl.SSLContext | None:
        if not self.url.startswith("https://"):
            return None
        if not self._verify:
            context = ssl.create_default_context()
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
            return context
        return ssl.create_default_context(
            cafile=self._ca_file if self._ca_file and Path(self._ca_file).exists() else None
        )

    def _trust_anew(self) -> None:
        """The cluster's authority may have been renewed. What was trusted stays so."""
        if self._tls is not None and self._ca_file:
            with suppress(OSError):
                self._tls.load_verify_locations(cafile=self._ca_file)


async def _check(response: aiohttp.ClientResponse, path: str) -> None:
    status = response.status
    if status == 200:
        return
    if status == 410:
        raise Expired
    async with asyncio.timeout(REFUSAL):
        reason = (await response.content.read(2048)).decode("utf-8", "replace")
    pause = _retry_after(response.headers.get("Retry-After", ""))
    match status:
        case 401:
            raise ApiError("unauthorized", f"{path}: the token is refused; is the service account's token mounted?")
        case 403:
            hint = f"{path}: forbidden; grant the service account what the chart's ClusterRole grants"
            raise ApiError("forbidden", hint, pause=60.0)
        case 404:
            raise ApiError("not_found", f"{path}: HTTP 404: {reason[:200]}", pause=pause)
        case 429 | 500 | 502 | 503 | 504:
            kind = "too_many_requests" if status == 429 else "server"
            raise ApiError(kind, f"{path}: HTTP {status}: {reason[:200]}", pause=pause)
    raise ApiError("answer", f"{path}: HTTP {status}: {reason[:200]}", pause=pause)


def _retry_after(value: str) -> float | None:
    """Seconds that a Retry-After header asks for, at most five minutes."""
    try:
        if value.isdecimal():
            seconds = float(value)
        else:
            seconds = email.utils.parsedate_to_datetime(value).timestamp() - time.time()
    except (ValueError, OverflowError):
        return None
    return min(300.0, max(0.0, seconds))


class Backoff:
    """Pauses that double from trouble to trouble, with jitter so that a thousand nodes do not ask together."""

    def __init__(self) -> None:
        self._next = BACKOFF_FIRST
        self._last = float("-inf")

    def pause(self, asked: float | None) -> float:
        """Seconds to wait after one more trouble: what the server asked for, if it did, and some more."""
        now = time.monotonic()
        if now - self._last > HEALTHY_AFTER:
            self._next = BACKOFF_FIRST
        self._last = now
        drawn = random.uniform(0, self._next)
        self._next = min(BACKOFF_MOST, self._next * 2)
        return drawn + (asked or 0.0)
