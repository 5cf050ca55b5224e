"""Requests to a Kubernetes API server or a kubelet: address, token, certificates, and what codes ask for."""

from __future__ import annotations

import asyncio
import email.utils
import os
import random
import ssl
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import aiohttp

MAX_ANSWER: Final = 64 * 1024 * 1024
MAX_LINE: Final = 4 * 1024 * 1024
"""An object in etcd has at most 1.5 MiB; this leaves room for its JSON."""
BACKOFF_FIRST: Final = 0.8
BACKOFF_MOST: Final = 30.0
HEALTHY_AFTER: Final = 120.0
"""Seconds without trouble after which the pauses begin small again."""


class ApiError(Exception):
    """An answer that is none. ``kind`` is a word of a fixed set, for a counter."""

    def __init__(self, kind: str, hint: str, *, pause: float | None = None) -> None:
        super().__init__(hint)
        self.kind, self.hint = kind, hint
        self.pause = pause
        """Seconds that the server asks to wait; None: as the caller sees fit."""


class Expired(Exception):
    """The version from which to go on is too old: the list must be read anew."""


def service_address(environ: Mapping[str, str] = os.environ) -> str:
    """Where a pod finds its API server; empty outside a cluster."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST", ""), environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        return ""
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"


class Api:
    """One server. Certificates are read once, the token at each request, for it is rotated."""

    def __init__(self, url: str, token_file: str, ca_file: str, *, verify: bool = True) -> None:
        self.url = url.rstrip("/")
        self._token_file, self._ca_file, self._verify = token_file, ca_file, verify
        self._session: aiohttp.ClientSession | None = None

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
        self, path: str, query: Mapping[str, str], *, idle: float, accept: str = ""
    ) -> AsyncIterator[bytes]:
        """The lines of a stream, until it ends or nothing comes for ``idle`` seconds. Raises ApiError and Expired."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10.0, sock_read=idle)
        async with self._open(path, query, timeout, accept) as response:
            rest = b""
            async for part in response.content.iter_any():
                pieces = (rest + part).split(b"\n")
                rest = pieces.pop()
                if len(rest) > MAX_LINE:
                    raise ApiError("too_large", f"{path}: a line has more than {MAX_LINE} bytes")
                for piece in pieces:
                    if piece.strip():
                        yield piece

    @asynccontextmanager
    async def _open(
        self, path: str, query: Mapping[str, str], limits: aiohttp.ClientTimeout, accept: str
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        headers = {"Accept": accept or "application/json"}
        token = await asyncio.to_thread(self._token)
        if token:
            headers["Authorization"] = f"Bearer {token}"
        if self._session is None:
            connector = aiohttp.TCPConnector(ssl=await asyncio.to_thread(self._tls), limit=4)
            self._session = aiohttp.ClientSession(connector=connector, trust_env=False)
        try:
            async with self._session.get(
                self.url + path, params=query, headers=headers, timeout=limits, allow_redirects=False
            ) as response:
                await _check(response, path)
                yield response
        except TimeoutError as error:
            raise ApiError("timeout", f"{self.url}{path}: no answer in time") from error
        except (aiohttp.ClientError, ssl.SSLError, OSError) as error:
            raise ApiError("connection", f"{self.url}{path}: {error}") from error

    def _token(self) -> str:
        try:
            return Path(self._token_file).read_text().strip() if self._token_file else ""
        except (OSError, UnicodeDecodeError):
            return ""

    def _tls(self) -> ssl.SSLContext | bool:
        if not self.url.startswith("https://"):
            return True
        if not self._verify:
            context = ssl.create_default_context()
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
            return context
        return ssl.create_default_context(
            cafile=self._ca_file if self._ca_file and Path(self._ca_file).exists() else None
        )


async def _check(response: aiohttp.ClientResponse, path: str) -> None:
    status = response.status
    if status == 200:
        return
    reason = (await response.content.read(2048)).decode("utf-8", "replace")
    if status == 410:
        raise Expired
    pause = _retry_after(response.headers.get("Retry-After", ""))
    match status:
        case 401:
            raise ApiError("unauthorized", f"{path}: the token is refused; is the service account's token mounted?")
        case 403:
            hint = f"{path}: forbidden; grant the service account what the chart's ClusterRole grants"
            raise ApiError("forbidden", hint, pause=60.0)
        case 429 | 500 | 502 | 503 | 504:
            kind = "too_many_requests" if status == 429 else "server"
            raise ApiError(kind, f"{path}: HTTP {status}: {reason[:200]}", pause=pause)
    raise ApiError("answer", f"{path}: HTTP {status}: {reason[:200]}", pause=pause)


def _retry_after(value: str) -> float | None:
    """Seconds that a Retry-After header asks for, at most five minutes."""
    try:
        return min(300.0, max(0.0, float(value)))
    except ValueError:
        moment = email.utils.parsedate_tz(value)
        return None if moment is None else min(300.0, max(0.0, email.utils.mktime_tz(moment) - time.time()))


class Backoff:
    """Pauses that double from trouble to trouble, with jitter so that a thousand nodes do not ask together."""

    def __init__(self) -> None:
        self._next = BACKOFF_FIRST
        self._last = float("-inf")

    def pause(self, asked: float | None) -> float:
        """Seconds to wait after one more trouble; not less than the server asked for."""
        now = time.monotonic()
        if now - self._last > HEALTHY_AFTER:
            self._next = BACKOFF_FIRST
        self._last = now
        drawn = random.uniform(0, self._next)
        self._next = min(BACKOFF_MOST, self._next * 2)
        return max(drawn, asked or 0.0)
