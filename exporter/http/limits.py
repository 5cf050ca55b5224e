"""Bounds on what HTTP clients may take: connections, bytes and time.

aiohttp parses requests and writes answers, but it has no limit on connections, no deadline for a head that arrives byte
by byte, none for an answer that nobody reads, and it takes in pipelined requests and bodies before anyone asked for
them. So a protocol of our own stands between the socket and aiohttp's. It gathers one head at a time within its bounds,
hands it on when it is complete, and hands on the next when the answer has left. aiohttp's protocol and its task come
into being with the first whole head: a slow or idle client costs a buffer and a timer.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import Counter
from collections.abc import Callable
from typing import Final, Literal, Protocol, get_args

from exporter.config import Http

Reason = Literal[
    "connections",
    "evicted",
    "header_timeout",
    "line_size",
    "header_size",
    "body",
    "malformed",
    "write_timeout",
    "handshake",
    "plaintext",
    "client_name",
    "unauthorized",
    "guessing",
    "busy",
    "rate_limit",
]
"""Why a request was refused or a connection cut off; from ``handshake`` on: where there is a web configuration file."""
REASONS: Final[tuple[Reason, ...]] = get_args(Reason)
State = Literal["receiving", "idle", "answering", "sending", "closing"]

LINGER: Final = 2.0
"""Seconds for which a refused client is still listened to: closing on unread bytes would take the answer from it."""
MAX_DISCARDED: Final = 1 << 20
"""Bytes of a refused client that are read and thrown away."""
STALLED: Final = 1.0
"""Seconds after which an answer that is not taken makes its connection one that may be given up for another."""

_HEAD_END: Final = re.compile(rb"\n\r?\n")
_METHOD_START: Final = re.compile(rb"[A-Za-z]")
_REQUEST_LINE: Final = re.compile(rb"[A-Za-z-]+ [!-~]+ HTTP/1\.[01]\r?\n")
"""Nothing else: some parsers wait for more after the first line of HTTP/2, and guess at that of HTTP/0.9."""
_BODY: Final = re.compile(rb"\n(?:transfer-encoding[ \t]*:|content-length[ \t]*:[ \t]*0*[1-9])", re.IGNORECASE)
_ANSWER: Final = (
    "HTTP/1.1 {status}\r\nServer: accel-exporter\r\nContent-Type: text/plain; charset=utf-8\r\n"
    "Content-Length: {length}\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n{text}"
)
_REFUSALS: Final[dict[Reason, tuple[str, str]]] = {
    "connections": ("503 Service Unavailable", "too many connections: try again, or raise http.max_connections\n"),
    "header_timeout": ("408 Request Timeout", "the request did not arrive in time\n"),
    "line_size": ("414 URI Too Long", "the request line is too long\n"),
    "header_size": ("431 Request Header Fields Too Large", "the headers are too large\n"),
    "body": ("413 Content Too Large", "no request here has a body\n"),
    "malformed": ("400 Bad Request", "this is not an HTTP request\n"),
    "plaintext": ("400 Bad Request", "this port speaks HTTPS: use https:// in the address\n"),
}

log = logging.getLogger(__name__)


class Inner(Protocol):
    """aiohttp's protocol, as far as it is used here."""

    def connection_made(self, transport: asyncio.BaseTransport, /) -> None: ...
    def data_received(self, data: bytes, /) -> None: ...
    def connection_lost(self, exc: BaseException | None, /) -> None: ...
    def pause_writing(self) -> None: ...
    def resume_writing(self) -> None: ...


class Gate:
    """The connections of one server."""

    def __init__(self, limits: Http, rejected: Callable[[Reason], None], inner: Callable[[], Inner]) -> None:
        """``rejected`` is told each refusal; ``inner`` makes the protocol that answers a connection's requests."""
        self.limits, self.rejected, self.inner = limits, rejected, inner
        self.closing = False
        self._open: set[Connection] = set()
        self._empty = asyncio.Event()
        self._empty.set()

    def __call__(self) -> Connection:
        """A protocol for a new connection."""
        return Connection(self)

    def admit(self, newcomer: Connection) -> bool:
        """Take a connection in. At the limit another one that nobody is waiting for makes room, if there is one.

        Refusing the newcomer alone would let a few silent clients lock out every scraper. The one to go belongs to the
        address with the most connections; of those it is the one that has waited longest.
        """
        if self.closing:
            return False
        if len(self._open) >= self.limits.max_connections:
            victims = [connection for connection in self._open if connection.expendable()]
            if not victims:
                self.rejected("connections")
                return False
            share = Counter(connection.peer for connection in self._open)
            share[newcomer.peer] += 1
            victim = min(victims, key=lambda connection: (-share[connection.peer], connection.since))
            self.rejected("evicted")
            victim.abort()
            self.forget(victim)
        self._open.add(newcomer)
        self._empty.clear()
        return True

    def forget(self, connection: Connection) -> None:
        self._open.discard(connection)
        if not self._open:
            self._empty.set()

    def retire(self) -> None:
        """Let every connection end with its present answer, or at once: whom it belongs to may not come in any more."""
        for connection in list(self._open):
            connection.retire()

    async def close(self, grace: float) -> None:
        """Let answers that are under way end within ``grace`` seconds, and close everything."""
        self.closing = True
        for connection in list(self._open):
            connection.finish()
        try:
            async with asyncio.timeout(grace):
                await self._empty.wait()
        except TimeoutError:
            log.info("connections cut off at shutdown", extra={"connections": len(self._open)})
            for connection in list(self._open):
                connection.abort()
            await self._empty.wait()


class Connection(asyncio.Protocol):
    """One client. ``begin``, ``sending`` and ``sent`` are called by whoever answers its requests."""

    def __init__(self, gate: Gate) -> None:
        self.peer = ""
        """The address, without its port."""
        self.since = 0.0
        """When the present state began, on the loop's clock."""
        self.proof = b""
        """What showed that this client may come in."""
        self._retired = False
        self._gate, self._limits = gate, gate.limits
        self._loop = asyncio.get_running_loop()
        self._state: State = "receiving"
        self._buffer = bytearray()
        self._scanned = 0
        self._discarded = 0
        self._ended = False
        self._inner: Inner | None = None
        self._timer: asyncio.TimerHandle | None = None

    # What the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        # aiohttp waits while more than this is unsent; at 0 its answer has left when it goes on.
        transport.set_write_buffer_limits(high=0)
        peer = transport.get_extra_info("peername")
        self.peer = peer[0] if isinstance(peer, tuple) else ""
        if self._gate.admit(self):
            self._enter("receiving", self._limits.header_timeout)
        else:
            self._refuse("connections", at_once=True)

    def data_received(self, data: bytes) -> None:
        if self._state == "closing":
            self._discarded += len(data)
            if self._discarded > MAX_DISCARDED:
                self.abort()
            return
        if self._state == "idle":
            self._enter("receiving", self._limits.header_timeout)
        self._buffer += data
        if self._state == "receiving":
            self._take()
        elif len(self._buffer) > self._limits.max_header_bytes:
            self._transport.pause_reading()

    def eof_received(self) -> bool:
        self._ended = True
        # Who has sent all that it will send may still wait for its answer.
        return self._state in ("answering", "sending")

    def connection_lost(self, exc: BaseException | None) -> None:
        self._stop_timer()
        self._state = "closing"
        self._gate.forget(self)
        if self._inner is not None:
            self._inner.connection_lost(exc)

    def pause_writing(self) -> None:
        if self._inner is not None:
            self._inner.pause_writing()

    def resume_writing(self) -> None:
        if self._inner is not None:
            self._inner.resume_writing()

    # What the gate calls

    def expendable(self) -> bool:
        """Whether no work is lost when this connection goes."""
        if self._state == "sending":
            return self._loop.time() - self.since > STALLED
        return self._state != "answering"

    def finish(self) -> None:
        """Close as soon as no answer is under way."""
        if self._state in ("receiving", "idle"):
            self._transport.close()

    def retire(self) -> None:
        self._retired = True
        self.finish()

    def abort(self) -> None:
        self._state = "closing"
        self._transport.abort()

    # What the layer of TLS calls

    def refuse(self, reason: Reason) -> None:
        """Answer that this is no way to ask, and close."""
        self._refuse(reason)

    def cut_off(self, reason: Reason) -> None:
        """End without an answer, and listen a little so that what was sent last arrives."""
        self._gate.rejected(reason)
        self._enter("closing", LINGER)
        self._transport.write_eof()

    # What the answering side calls

    @property
    def last(self) -> bool:
        """Whether the connection ends with the present answer."""
        return self._gate.closing or self._retired or not self._limits.idle_timeout

    def begin(self) -> None:
        """The request is being answered: it was complete and well-formed."""
        self._stop_timer()

    def sending(self) -> None:
        """The answer is ready; from now on it is the client that is waited for."""
        if self._state == "answering":
            self._enter("sending", self._limits.write_timeout)

    def sent(self, *, keep: bool) -> None:
        """The answer has left. Without ``keep`` the caller closes the transport."""
        if self._state != "sending":
            return
        if not keep:
            self._enter("closing", LINGER)
            return
        if self._gate.closing or self._retired:
            self._transport.close()
            return
        self._enter("idle", self._limits.idle_timeout)
        if self._buffer:
            self._enter("receiving", self._limits.header_timeout)
            self._take()
        if self._ended and self._state in ("idle", "receiving"):
            self._transport.close()
        elif len(self._buffer) <= self._limits.max_header_bytes:
            self._transport.resume_reading()

    def malformed(self) -> None:
        """The parser refused the head, and its answer is on the way."""
        self._gate.rejected("malformed")
        self._enter("closing", LINGER)

    # Steps

    def _take(self) -> None:
        """Hand on the next head if it has arrived."""
        buffer = self._buffer
        if not self._scanned:
            # Empty lines before a request are to be passed over.
            del buffer[: len(buffer) - len(buffer.lstrip(b"\r\n"))]
            if buffer and not _METHOD_START.match(buffer):
                self._refuse("malformed")
                return
        found = _HEAD_END.search(buffer, max(0, self._scanned - 2))
        end = found.end() if found else len(buffer)
        reason = oversized(buffer[:end], self._limits.max_header_bytes)
        if reason is None and found is not None:
            reason = _unacceptable(buffer[:end])
        if reason is not None:
            self._refuse(reason)
        elif found is None:
            self._scanned = end
        else:
            self._hand_on(end)

    def _hand_on(self, end: int) -> None:
        head = bytes(self._buffer[:end])
        del self._buffer[:end]
        self._scanned = 0
        # The timer goes on until the parser, too, finds the head complete.
        self._state = "answering"
        if self._inner is None:
            self._inner = self._gate.inner()
            self._inner.connection_made(self._transport)
        self._inner.data_received(head)

    def _refuse(self, reason: Reason, *, at_once: bool = False) -> None:
        """Answer without looking at the request any further, and close."""
        if not at_once:
            self._gate.rejected(reason)
        status, text = _REFUSALS[reason]
        self._buffer.clear()
        self._enter("closing", LINGER)
        self._transport.write(_ANSWER.format(status=status, length=len(text), text=text).encode())
        if at_once:
            self._transport.close()
        else:
            self._transport.write_eof()

    def _enter(self, state: State, seconds: float) -> None:
        self._stop_timer()
        self._state, self.since = state, self._loop.time()
        self._timer = self._loop.call_at(self.since + seconds, self._late)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _late(self) -> None:
        self._timer = None
        if self._state == "idle":
            self._transport.close()
        elif self._state == "receiving" and self._buffer:
            self._refuse("header_timeout")
        else:
            if self._state in ("receiving", "answering"):
                self._gate.rejected("header_timeout")
            elif self._state == "sending":
                self._gate.rejected("write_timeout")
            self.abort()


def _unacceptable(head: bytes | bytearray) -> Reason | None:
    if not _REQUEST_LINE.match(head):
        return "malformed"
    return "body" if _BODY.search(head) else None


def oversized(head: bytes | bytearray, limit: int) -> Reason | None:
    """Whether the request line, or all header lines together, have more than ``limit`` bytes."""
    end = head.find(b"\n")
    line = head if end < 0 else head[:end]
    if len(line.removesuffix(b"\r")) > limit:
        return "line_size"
    return "header_size" if len(head) - len(line) - 1 > limit else None
