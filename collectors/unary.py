"""Unary gRPC calls over plaintext HTTP/2, from blocking code, with a limit on everything.

The gRPC runtime costs a worker 13 MiB and brings threads; this costs 2.5 MiB and no thread. The protocol is that of
gRPC's doc/PROTOCOL-HTTP2.md and RFC 9113. Of it there is what reading needs: one request and one answer a call, several
calls at a time on one connection, no compression, no metadata, no TLS.

``begin`` sends a request and ``finish`` waits for its answer, so that many servers can work at the same time while one
thread asks them. ``call`` is both. What has arrived in time is taken even if the deadline has passed meanwhile.
"""

from __future__ import annotations

import errno
import socket
import threading
import time
from collections.abc import Container
from contextlib import suppress
from typing import Final

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.exceptions
import h2.settings

from collectors.dial import Address, dial
from collectors.rpc import PREFIX, Answer, Code, RpcError

__all__ = ["Channel", "Code", "RpcError"]

_PIECE: Final = 64 * 1024
_WINDOW: Final = 1024 * 1024
"""Bytes of one stream that a server may send ahead of what we have taken."""
_CALLS_PER_CONNECTION: Final = 1000
"""h2 keeps something of each stream that ever was: connections are renewed before that amounts to anything."""
_LATE: Final = 0.2
"""Seconds after the deadline in which what has arrived is taken: a server that never stops is not heard for ever."""
_FRAME_HEAD: Final = 9
_MAX_DETAIL: Final = 300

_NOBODY: Final = frozenset((errno.ECONNREFUSED, errno.ENOENT))


class Channel:
    """One connection to one server, made at the first call and anew after it was lost.

    ``max_message``: bytes of one answer. ``avoid_ports``: local ports that the connection must not hold, because some
    server on this host wants to listen there.
    """

    def __init__(
        self, address: Address, *, max_message: int = 4 * 1024 * 1024, avoid_ports: Container[int] = ()
    ) -> None:
        self.address = address
        self.connections = 0
        """How many have been made: what was learned of a server holds for one connection."""
        self._max_message = max_message
        self._avoid = avoid_ports
        self._socket: socket.socket | None = None
        self._ends = threading.Lock()
        """Held where the socket is made known or closed: its number may be another's a moment later."""
        self._interrupted = False
        self._http = _client()
        self._answers: dict[int, Answer] = {}
        self._calls = 0
        self._heard = False
        self._greeting = b""

    def call(self, method: str, message: bytes, timeout: float) -> bytes:
        """``method`` is ``/package.Service/Method``. Raises RpcError, after ``timeout`` seconds at most."""
        deadline = time.monotonic() + timeout
        return self.finish(self.begin(method, message, deadline), deadline)

    def connect(self, deadline: float) -> None:
        """Make sure of a living connection. Raises RpcError."""
        if self._socket is not None and self._calls >= _CALLS_PER_CONNECTION and not self._answers:
            self.close()
        if self._socket is not None and not self._answers:
            self._catch_up()
        if self._socket is not None:
            return
        try:
            sock = dial(self.address, deadline, self._avoid)
        except TimeoutError:
            raise RpcError("DEADLINE_EXCEEDED", f"{self.address} does not accept connections") from None
        except OSError as error:
            absent = error.errno in _NOBODY
            code: Code = "PERMISSION_DENIED" if isinstance(error, PermissionError) else "UNAVAILABLE"
            raise RpcError(code, f"{self.address}: {error.strerror or error}", absent=absent) from None
        with self._ends:
            if self._interrupted:
                sock.close()
                raise RpcError("CANCELLED", "the call was interrupted")
            self._socket = sock
        self._http = _client()
        self._calls = 0
        self._heard = False
        self._greeting = b""
        self.connections += 1
        self._http.initiate_connection()
        self._http.increment_flow_control_window(_WINDOW)

    def _catch_up(self) -> None:
        """Take what the server said since the last call: that it leaves, perhaps."""
        until = time.monotonic() + _LATE
        while self._receive(0.0) and time.monotonic() < until:
            pass

    def begin(self, method: str, message: bytes, deadline: float) -> int:
        """Send a request; the number is for ``finish``, which must follow. Raises RpcError."""
        self.connect(deadline)
        stream = self._http.get_next_available_stream_id()
        answer = self._answers[stream] = Answer(str(self.address), self._max_message)
        self._calls += 1
        data = PREFIX.pack(0, len(message)) + message
        try:
            while answer.error is None and self._is_full():
                self._wait(deadline)
            if answer.error is None:
                self._http.send_headers(stream, self._request(method, deadline))
            while data and not answer.over:
                size = min(len(data), self._http.local_flow_control_window(stream), self._http.max_outbound_frame_size)
                if size <= 0:
                    self._wait(deadline)
                    continue
                self._http.send_data(stream, data[:size], end_stream=size == len(data))
                data = data[size:]
            self._flush(deadline)
        except h2.exceptions.ProtocolError as error:
            self._drop(RpcError("INTERNAL", f"{self.address} does not speak gRPC ({_brief(error)})"))
        except TimeoutError:
            self._drop(RpcError("DEADLINE_EXCEEDED", f"{self.address} takes no request"))
        if answer.error is not None:
            self._answers.pop(stream, None)
            raise answer.error
        return stream

    def finish(self, stream: int, deadline: float) -> bytes:
        """The answer of a request. Raises RpcError."""
        answer = self._answers.get(stream)
        if answer is None:
            raise RpcError("INTERNAL", "there is no such call")
        while not answer.over:
            left = deadline - time.monotonic()
            came = self._receive(max(0.0, left))
            if left <= (-_LATE if came else 0):
                self._expire(stream, answer)
        self._answers.pop(stream, None)
        return answer.message()

    def interrupt(self) -> None:
        """For another thread: what waits for the server fails now, and whatever is asked later."""
        with self._ends:
            self._interrupted = True
            if self._socket is not None:
                # It may have ended by itself.
                with suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Leave the server. Calls under way fail."""
        if self._socket is not None:
            self._drop(RpcError("CANCELLED", "the connection was closed"))

    def _is_full(self) -> bool:
        return self._http.open_outbound_streams >= self._http.remote_settings.max_concurrent_streams

    def _request(self, method: str, deadline: float) -> list[tuple[str, str]]:
        milliseconds = max(1, int(1000 * (deadline - time.monotonic())))
        return [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", method),
            (":authority", "localhost" if self.address.path else str(self.address)),
            ("te", "trailers"),
            ("content-type", "application/grpc"),
            ("user-agent", "accel-exporter"),
            ("grpc-timeout", f"{min(milliseconds, 99_999_999)}m"),
        ]

    def _wait(self, deadline: float) -> None:
        """Until the server says something. Raises TimeoutError."""
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._flush(deadline)
        self._receive(left)

    def _flush(self, deadline: float) -> None:
        data = self._http.data_to_send()
        if data and self._socket is not None:
            # The server can be slower than a request is long only if it is stuck.
            self._socket.settimeout(max(0.01, deadline - time.monotonic()))
            try:
                self._socket.sendall(data)
            except TimeoutError:
                raise
            except OSError as error:
                self._drop(RpcError("UNAVAILABLE", f"{self.address} broke off ({error.strerror or error})"))

    def _receive(self, seconds: float) -> bool:
        """Take what comes within the time. False: nothing did."""
        if self._socket is None:
            return False
        try:
            self._flush(time.monotonic() + max(seconds, 0.05))
            if self._socket is None:
                return True
            self._socket.settimeout(seconds)
            data = self._socket.recv(_PIECE)
        except (TimeoutError, BlockingIOError):
            return False
        except OSError as error:
            self._drop(RpcError("UNAVAILABLE", f"{self.address} broke off ({error.strerror or error})"))
            return True
        if not data:
            self._drop(RpcError("UNAVAILABLE", f"{self.address} closed the connection"))
            return True
        self._heard = True
        if len(self._greeting) < _FRAME_HEAD:
            self._greeting += data[: _FRAME_HEAD - len(self._greeting)]
            if not _greets(self._greeting):
                self._drop(RpcError("INTERNAL", f"{self.address} does not speak HTTP/2, and so no gRPC"))
                return True
        try:
            for event in self._http.receive_data(data):
                self._take(event)
        except h2.exceptions.ProtocolError as error:
            self._drop(RpcError("INTERNAL", f"{self.address} does not speak gRPC ({_brief(error)})"))
        return True

    def _take(self, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.ConnectionTerminated):
            self._drop(RpcError("UNAVAILABLE", f"{self.address} ends the connection"))
            return
        stream: int = getattr(event, "stream_id", None) or 0
        answer = self._answers.get(stream)
        if isinstance(event, h2.events.DataReceived):
            # Of a call that nobody waits for, too: the window is the connection's.
            self._http.acknowledge_received_data(event.flow_controlled_length or 0, stream)
        if answer is None:
            return
        match event:
            case h2.events.DataReceived():
                if not answer.take_data(event.data or b""):
                    self._cancel(stream)
            case h2.events.ResponseReceived() | h2.events.TrailersReceived():
                answer.take_headers(event.headers or ())
            case h2.events.StreamEnded():
                answer.ended = True
            case h2.events.StreamReset():
                answer.take_reset(int(event.error_code or 0))

    def _expire(self, stream: int, answer: Answer) -> None:
        if answer.over:
            return
        answer.error = RpcError("DEADLINE_EXCEEDED", f"{self.address} did not answer in time")
        if self._heard:
            self._cancel(stream)
            self._heard = False
        else:
            # Not a word on the whole connection since the last call: there may be nobody at its other end any more.
            self._drop(answer.error)

    def _cancel(self, stream: int) -> None:
        try:
            self._http.reset_stream(stream, h2.errors.ErrorCodes.CANCEL)
            self._flush(time.monotonic())
        except h2.exceptions.NoSuchStreamError:
            # All of it had come already.
            return
        except (h2.exceptions.ProtocolError, TimeoutError):
            self._drop(RpcError("UNAVAILABLE", f"{self.address} is given up"))

    def _drop(self, error: RpcError) -> None:
        """Close the connection; calls under way have failed."""
        with self._ends:
            if self._socket is not None:
                self._socket.close()
                self._socket = None
        for answer in self._answers.values():
            if not answer.over:
                answer.error = error


def _client() -> h2.connection.H2Connection:
    connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True, header_encoding=None))
    codes = h2.settings.SettingCodes
    connection.local_settings = h2.settings.Settings(
        client=True,
        initial_values={
            codes.ENABLE_PUSH: 0,
            codes.INITIAL_WINDOW_SIZE: _WINDOW,
            codes.MAX_FRAME_SIZE: _PIECE,
            codes.MAX_HEADER_LIST_SIZE: _PIECE,
        },
    )
    # h2 takes this one over only when the server has confirmed it, and the server may use it with its first frame.
    connection.max_inbound_frame_size = _PIECE
    return connection


def _greets(head: bytes) -> bool:
    """Whether a connection can begin so: with a frame of settings. h2 would wait for megabytes of any other first."""
    settings = b"\0\0", b"\x04", b"\0\0\0\0"
    return all(part.startswith(head[at : at + len(part)]) for at, part in zip((0, 3, 5), settings, strict=True))


def _brief(error: Exception) -> str:
    return (str(error) or type(error).__name__)[:_MAX_DETAIL]
