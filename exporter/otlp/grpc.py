"""OTLP over gRPC, on grpcio (the extra ``grpc``)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

import grpc
import grpc.aio

from collectors.protobuf import Malformed
from exporter.config.otlp import OtlpEndpoint
from exporter.otlp import connection
from exporter.otlp.answer import MAX_ANSWER, Outcome, clean, of_response, retry_info
from exporter.otlp.connection import Unusable

EXPORT: Final = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"
TEMPORARY: Final = frozenset(
    {
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.ABORTED,
        grpc.StatusCode.OUT_OF_RANGE,
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DATA_LOSS,
    }
)
DETAILS: Final = "grpc-status-details-bin"
_KEY: Final = re.compile(r"(?!.*-bin$)[a-z0-9_.-]+", re.IGNORECASE)
RECONNECT: Final = (("grpc.initial_reconnect_backoff_ms", 1000), ("grpc.max_reconnect_backoff_ms", 5000))
"""The library connects again by itself; how long to wait is the queue's to say."""


class GrpcSender:
    """Sends requests to one receiver over one channel."""

    def __init__(self, endpoint: OtlpEndpoint) -> None:
        self._endpoint = endpoint
        self._channel: grpc.aio.Channel | None = None
        self._stamps: tuple[object, ...] = ()

    def pack(self, body: bytes) -> bytes:
        """The library compresses."""
        return body

    async def send(self, data: bytes) -> Outcome:
        try:
            channel, metadata = await self._ready()
        except Unusable as error:
            return Outcome("retry", str(error))
        hidden = connection.secrets(dict(metadata))
        export: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(EXPORT)
        try:
            answer = await export(data, timeout=self._endpoint.timeout, metadata=metadata)
        except grpc.aio.AioRpcError as error:
            return _failed(error, hidden)
        try:
            return of_response(connection.masked(answer, hidden))
        except Malformed as error:
            return Outcome("success", f"the answer cannot be read: {clean(str(error))}")

    async def close(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()

    async def _ready(self) -> tuple[grpc.aio.Channel, Sequence[tuple[str, str]]]:
        """The channel and the metadata of the next request. Files are read anew; raises Unusable."""
        given = await asyncio.to_thread(connection.headers, self._endpoint)
        stamps = await asyncio.to_thread(connection.stamps, self._endpoint)
        if self._channel is not None and stamps != self._stamps:
            await self.close()
        if self._channel is None:
            files = await asyncio.to_thread(_files, self._endpoint)
            self._channel, self._stamps = _channel(self._endpoint, *files), stamps
        return self._channel, _metadata(given)


def _metadata(headers: Mapping[str, str]) -> list[tuple[str, str]]:
    """Raises Unusable for a name that HTTP has and gRPC has not."""
    for name in headers:
        if not _KEY.fullmatch(name):
            raise Unusable(f"header {name}: gRPC takes names of letters, digits, -, _ and . that do not end in -bin")
    return [(name.lower(), value) for name, value in headers.items()]


_Pem = bytes | None


def _files(endpoint: OtlpEndpoint) -> tuple[_Pem, _Pem, _Pem]:
    """Certificates to trust, key and certificate of the agent. Raises Unusable."""

    def one(path: str) -> _Pem:
        return connection.read(path) if path else None

    return one(endpoint.certificate), one(endpoint.client_key), one(endpoint.client_certificate)


def _channel(endpoint: OtlpEndpoint, trusted: _Pem, key: _Pem, certificate: _Pem) -> grpc.aio.Channel:
    target, secure = address(endpoint)
    options: list[tuple[str, Any]] = [
        ("grpc.primary_user_agent", connection.USER_AGENT),
        ("grpc.max_receive_message_length", MAX_ANSWER),
        ("grpc.max_send_message_length", -1),
        *RECONNECT,
        ("grpc.enable_retries", 0),
    ]
    if endpoint.proxy:
        options.append(("grpc.http_proxy", endpoint.proxy))
    compression = grpc.Compression.Gzip if endpoint.compression == "gzip" else grpc.Compression.NoCompression
    if not secure:
        return grpc.aio.insecure_channel(target, options, compression)
    credentials = grpc.ssl_channel_credentials(trusted, key, certificate)
    return grpc.aio.secure_channel(target, credentials, options, compression)


def address(endpoint: OtlpEndpoint) -> tuple[str, bool]:
    """What grpcio connects to, and whether with TLS. The scheme of a URL says so, else ``insecure``."""
    scheme, found, _ = endpoint.endpoint.partition("://")
    if found and scheme in ("http", "https"):
        parts = urlsplit(endpoint.endpoint)
        port = parts.port or (443 if scheme == "https" else 80)
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
        return f"{host}:{port}", scheme == "https"
    return endpoint.endpoint, not endpoint.insecure and not endpoint.endpoint.startswith("unix:")


def _failed(error: grpc.aio.AioRpcError, hidden: Sequence[str]) -> Outcome:
    code = error.code()
    told = connection.masked((error.details() or "").encode("utf-8", "replace"), hidden).decode()
    words = f"gRPC status {code.name}: {clean(told)}"
    details = next((value for name, value in error.trailing_metadata() or () if name == DETAILS), b"")
    pause = retry_info(details if isinstance(details, bytes) else b"")
    if code in TEMPORARY or (code is grpc.StatusCode.RESOURCE_EXHAUSTED and pause is not None):
        return Outcome("retry", words, pause=pause)
    return Outcome("refused", words)
