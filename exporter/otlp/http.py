"""OTLP over HTTP with protobuf, on aiohttp's client."""

from __future__ import annotations

import asyncio
import base64
import ssl
import zlib
from typing import Final
from urllib.parse import urlsplit, urlunsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
from yarl import URL

from exporter.config.otlp import OtlpEndpoint
from exporter.otlp import connection
from exporter.otlp.answer import MAX_ANSWER, Outcome, clean, of_http
from exporter.otlp.connection import Unusable

LEVEL: Final = 1
"""Of gzip. Level 6 makes requests a sixth smaller in more than twice the time."""
PATH: Final = "/v1/metrics"
_FRAMING: Final = frozenset({"content-type", "content-encoding", "content-length", "transfer-encoding"})
"""Headers that say how the request is to be read: they are set here, whatever is configured."""
_PUBLIC: Final = frozenset({"User-Agent", "Accept-Encoding", "Content-Type", "Content-Encoding"})


class HttpSender:
    """Sends requests to one receiver over one connection."""

    def __init__(self, endpoint: OtlpEndpoint) -> None:
        self._endpoint = endpoint
        self._url = url(endpoint)
        self._session: aiohttp.ClientSession | None = None
        self._stamps: tuple[object, ...] = ()

    def pack(self, body: bytes) -> bytes:
        if self._endpoint.compression == "none":
            return body
        compressor = zlib.compressobj(LEVEL, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
        return compressor.compress(body) + compressor.flush()

    async def send(self, data: bytes) -> Outcome:
        try:
            session, headers = await self._ready()
            return await self._post(session, headers, data)
        except Unusable as error:
            return Outcome("retry", str(error))
        except TimeoutError:
            return Outcome("retry", f"no answer within {self._endpoint.timeout:g} s")
        except (aiohttp.ClientConnectorCertificateError, aiohttp.ClientConnectorSSLError, ssl.SSLError) as error:
            # Nothing was sent, and certificates are renewed: on one side often a little later than on the other.
            return Outcome("retry", f"TLS: {clean(str(error))}")
        except aiohttp.ClientHttpProxyError as error:
            answer = of_http(error.status, dict(error.headers or {}), b"")
            return Outcome(answer.result, f"the proxy: {answer.message}", pause=answer.pause)
        except (aiohttp.ClientConnectionError, ConnectionError) as error:
            # Not connected, or closed before it answered.
            return Outcome("retry", clean(str(error)) or type(error).__name__)
        except aiohttp.ClientResponseError as error:
            # Its text has the URL, whose path and query may be secrets.
            return Outcome("refused", f"no HTTP answer that can be read: {clean(error.message)}")
        except (aiohttp.ClientError, ValueError, OSError) as error:
            return Outcome("refused", f"no HTTP answer that can be read: {clean(str(error)) or type(error).__name__}")

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _post(self, session: aiohttp.ClientSession, headers: dict[str, str], data: bytes) -> Outcome:
        proxy = proxy_for(self._url, self._endpoint.proxy)
        credentials = _credentials(proxy)
        tunnel = self._url.startswith("https://")
        async with session.post(
            self._url,
            data=data,
            # Through a tunnel these go to the receiver, which must not see the proxy's password.
            headers=headers if tunnel else {**headers, **credentials},
            # A redirect would take the headers, and with them the secrets, elsewhere.
            allow_redirects=False,
            timeout=aiohttp.ClientTimeout(total=self._endpoint.timeout),
            proxy=proxy.with_user(None) if proxy is not None else None,
            proxy_headers=credentials if tunnel else None,
        ) as response:
            body, whole = await _body(response)
            hidden = connection.secrets({name: value for name, value in headers.items() if name not in _PUBLIC})
            told = response.headers.copy()
            location = told.get("Location", "").encode("utf-8", "replace")
            told["Location"] = connection.masked(location, hidden).decode()
            return of_http(response.status, told, connection.masked(body, hidden), whole=whole)

    async def _ready(self) -> tuple[aiohttp.ClientSession, dict[str, str]]:
        """The session and the headers of the next request. Files are read anew; raises Unusable."""
        given = await asyncio.to_thread(connection.headers, self._endpoint)
        headers = {
            "User-Agent": connection.USER_AGENT,
            "Accept-Encoding": "identity",
            **{name: value for name, value in given.items() if name.lower() not in _FRAMING},
            "Content-Type": "application/x-protobuf",
            **({"Content-Encoding": "gzip"} if self._endpoint.compression == "gzip" else {}),
        }
        stamps = await asyncio.to_thread(connection.stamps, self._endpoint)
        if self._session is not None and stamps != self._stamps:
            await self.close()
        if self._session is None:
            tls = await asyncio.to_thread(context, self._endpoint)
            self._stamps = stamps
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(ssl=tls if tls is not None else True, limit=1),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                trust_env=False,
            )
        return self._session, headers


def url(endpoint: OtlpEndpoint) -> str:
    """Where to post to: a URL without a path names the receiver alone."""
    parts = urlsplit(endpoint.endpoint)
    return urlunsplit(parts._replace(path=parts.path or PATH))


def context(endpoint: OtlpEndpoint) -> ssl.SSLContext | None:
    """Raises Unusable."""
    if not endpoint.endpoint.startswith("https://"):
        return None
    try:
        found = ssl.create_default_context(cafile=endpoint.certificate or None)
    except (OSError, ssl.SSLError) as error:
        raise Unusable(f"{endpoint.certificate}: no certificates to trust: {error}") from error
    if endpoint.client_certificate:
        try:
            found.load_cert_chain(endpoint.client_certificate, endpoint.client_key, password=_refused_password)
        except (OSError, ssl.SSLError, ValueError) as error:
            raise Unusable(f"{endpoint.client_certificate}: no certificate with its key: {error}") from error
    return found


def _refused_password() -> str:
    """Without it OpenSSL would ask on the terminal."""
    raise ValueError("the key has a password; expected one without")


def proxy_for(target: str, configured: str) -> URL | None:
    """The configured proxy, else the environment's. Raises Unusable."""
    if configured:
        return URL(configured)
    parts = urlsplit(target)
    found = getproxies().get(parts.scheme)
    host = parts.hostname or ""
    if not found or proxy_bypass(f"{host}:{parts.port}" if parts.port else host):
        return None
    try:
        proxy = URL(found if "://" in found else f"http://{found}")
    except ValueError:
        proxy = URL()
    if not proxy.host:
        # It is not shown: a password may be in it.
        raise Unusable(f"the environment's {parts.scheme}_proxy is no URL: correct it, or set otlp.proxy")
    return proxy


def _credentials(proxy: URL | None) -> dict[str, str]:
    """The header with the user and password of the proxy's URL; none without."""
    if proxy is None or not proxy.user:
        return {}
    pair = base64.b64encode(f"{proxy.user}:{proxy.password or ''}".encode()).decode()
    return {"Proxy-Authorization": f"Basic {pair}"}


async def _body(response: aiohttp.ClientResponse) -> tuple[bytes, bool]:
    """What of the answer is read, and whether that is all. One that breaks off still has its status."""
    parts: list[bytes] = []
    size = 0
    try:
        async for part in response.content.iter_chunked(64 * 1024):
            parts.append(part)
            size += len(part)
            if size > MAX_ANSWER:
                response.close()
                return b"".join(parts)[:MAX_ANSWER], False
    except (aiohttp.ClientError, ConnectionError):
        return b"".join(parts), False
    return b"".join(parts), True
