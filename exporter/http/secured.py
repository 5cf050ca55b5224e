"""TLS between a socket and the limits.

asyncio's own layer tells nobody of a connection before its handshake is done, so that a client could hold as many
unfinished ones as the system has descriptors. Here the limits know a connection from its first moment: it counts as
one, it has as much time for handshake and request together as others have for the request alone, and it can be given up
for another.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

from exporter.http.limits import Connection, Gate, Reason

HANDSHAKE: Final = 0x16
"""The first byte that a client of TLS sends (RFC 8446, 5.1)."""
PIECE: Final = 1 << 16

State = Literal["greeting", "handshake", "open", "plain", "ended"]
"""``plain``: the client does not speak TLS and is told so. ``ended``: nothing more is sent."""


class Layer(asyncio.Protocol):
    """One connection, as its socket sees it."""

    def __init__(
        self,
        gate: Gate,
        context: Callable[[], ssl.SSLContext],
        admits: Callable[[Mapping[str, Any] | None], bool],
    ) -> None:
        """``admits``: whether a client with this certificate, or with none, may come in."""
        self._gate, self._context, self._admits = gate, context, admits
        self._app: Connection = gate()
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls: ssl.SSLObject | None = None
        self._state: State = "greeting"
        self._paused = False

    # What the socket's transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._socket = transport
        self._app.connection_made(_Transport(self, transport, self._app))

    def data_received(self, data: bytes) -> None:
        if self._state == "greeting":
            self._greet(data[0])
        if self._state in ("plain", "ended"):
            self._app.data_received(data)
            return
        self._incoming.write(data)
        if self._state == "handshake":
            self._shake_hands()
        self._decrypt()

    def eof_received(self) -> bool:
        if self._state == "handshake":
            self._gate.rejected("handshake")
            return False
        return self._app.eof_received()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._state = "ended"
        self._app.connection_lost(exc)
        # OpenSSL's buffers are large, and the objects here refer to each other.
        self._tls = None

    def pause_writing(self) -> None:
        self._app.pause_writing()

    def resume_writing(self) -> None:
        self._app.resume_writing()

    # What the encrypted side's transport calls

    @property
    def tls(self) -> ssl.SSLObject | None:
        return self._tls

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._state == "plain":
            self._socket.write(data)
        elif self._state == "open" and self._tls is not None:
            left = memoryview(data)
            try:
                # One record at a time.
                while left:
                    left = left[self._tls.write(left) :]
            except ssl.SSLError:
                self._break("malformed")
                return
            self._flush()

    def end(self) -> None:
        """Say that nothing more comes."""
        if self._state == "open" and self._tls is not None:
            try:
                self._tls.unwrap()
            except ssl.SSLError:
                # Most often: the client has not said so itself yet, which nobody waits for.
                self._flush()
            else:
                self._flush()
        self._state = "ended"

    def pause(self) -> None:
        self._paused = True
        self._socket.pause_reading()

    def resume(self) -> None:
        if self._paused:
            self._paused = False
            self._socket.resume_reading()
            # What was decrypted no further still lies here.
            asyncio.get_running_loop().call_soon(self._decrypt)

    @property
    def reading(self) -> bool:
        return not self._paused and self._socket.is_reading()

    # Steps

    def _greet(self, first: int) -> None:
        if first == HANDSHAKE:
            self._tls = self._context().wrap_bio(self._incoming, self._outgoing, server_side=True)
            self._state = "handshake"
        elif chr(first).isalpha():
            self._state = "plain"
            self._app.refuse("plaintext")
        else:
            self._break("handshake")

    def _shake_hands(self) -> None:
        assert self._tls is not None
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return
        except ssl.SSLError:
            # What it did not like, OpenSSL tells the client in an alert.
            self._flush()
            self._app.cut_off("handshake")
            return
        self._flush()
        self._state = "open"
        if not self._admits(self._tls.getpeercert()):
            self._app.cut_off("client_name")

    def _decrypt(self) -> None:
        while self._state == "open" and not self._paused and self._tls is not None:
            try:
                data = self._tls.read(PIECE)
            except ssl.SSLWantReadError:
                self._flush()
                return
            except ssl.SSLZeroReturnError:
                data = b""
            except ssl.SSLError:
                self._flush()
                self._break("malformed")
                return
            if data:
                self._app.data_received(data)
                continue
            # The client has said that it sends nothing more.
            if not self._app.eof_received():
                self.end()
                self._socket.close()
            return

    def _flush(self) -> None:
        if self._outgoing.pending:
            self._socket.write(self._outgoing.read())

    def _break(self, reason: Reason) -> None:
        self._gate.rejected(reason)
        self._state = "ended"
        self._app.abort()


class _Transport(asyncio.Transport):
    """The encrypted side, as the limits and aiohttp see it."""

    def __init__(self, layer: Layer, under: asyncio.Transport, protocol: Connection) -> None:
        super().__init__()
        self._layer, self._under, self._protocol = layer, under, protocol

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        tls = self._layer.tls
        if name in ("ssl_object", "sslcontext"):
            if tls is None:
                return default
            return tls if name == "ssl_object" else tls.context
        return self._under.get_extra_info(name, default)

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._layer.write(data)

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self._layer.end()
        self._under.write_eof()

    def close(self) -> None:
        self._layer.end()
        self._under.close()

    def abort(self) -> None:
        self._under.abort()

    def is_closing(self) -> bool:
        return self._under.is_closing()

    def is_reading(self) -> bool:
        return self._layer.reading

    def pause_reading(self) -> None:
        self._layer.pause()

    def resume_reading(self) -> None:
        self._layer.resume()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._under.set_write_buffer_limits(high, low)

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._under.get_write_buffer_limits()

    def get_write_buffer_size(self) -> int:
        return self._under.get_write_buffer_size()
