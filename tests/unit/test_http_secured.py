"""The layer of TLS by itself: whatever pieces the bytes come in, and whatever the far side does."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from exporter.config import Http
from exporter.http.limits import Gate
from exporter.http.secured import Layer
from tests.secured import Authority
from tests.serving import request, run

AUTHORITY = Authority()
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 200000\r\n\r\n" + bytes(range(250)) * 800


def server_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    AUTHORITY.issue("localhost").configure_cert(context)
    return context


CONTEXT = server_context()


class Socket(asyncio.Transport):
    """What the layer writes to."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = bytearray()
        self.closed = self.ended = self.paused = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.ended
        self.sent += data

    def write_eof(self) -> None:
        self.ended = True

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def is_reading(self) -> bool:
        return not self.paused

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        return


class Answering:
    """Answers each head, as aiohttp's protocol does."""

    def __init__(self) -> None:
        self.heads: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport, /) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes, /) -> None:
        self.heads.append(data)
        self.transport.write(ANSWER)

    def connection_lost(self, exc: BaseException | None, /) -> None:
        return

    def pause_writing(self) -> None:
        return

    def resume_writing(self) -> None:
        return


class Rig:
    def __init__(self, admits: bool = True) -> None:
        self.rejected: list[str] = []
        self.inner = Answering()
        self.socket = Socket()
        gate = Gate(Http(), self.rejected.append, lambda: self.inner)

        def judge(certificate: Mapping[str, Any] | None) -> bool:
            return admits

        self.layer = Layer(gate, lambda: CONTEXT, judge)
        self.layer.connection_made(self.socket)
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.client = AUTHORITY.client().wrap_bio(self.incoming, self.outgoing, server_hostname="localhost")

    def exchange(self, piece: int) -> None:
        """Carry bytes both ways, so many at a time to the server, until nothing is left."""
        while True:
            out = self.outgoing.read()
            for start in range(0, len(out), piece):
                self.layer.data_received(out[start : start + piece])
            back = bytes(self.socket.sent)
            self.socket.sent.clear()
            self.incoming.write(back)
            if not out and not back:
                return

    def shake_hands(self, piece: int) -> None:
        while True:
            try:
                self.client.do_handshake()
            except ssl.SSLWantReadError:
                self.exchange(piece)
            else:
                self.exchange(piece)
                return

    def read(self) -> bytes:
        got = b""
        while True:
            try:
                data = self.client.read(1 << 16)
            except ssl.SSLWantReadError:
                return got
            if not data:
                return got
            got += data


@pytest.mark.parametrize("piece", [1, 3, 100, 1 << 20])
def test_a_request_is_understood_in_whatever_pieces_it_comes(piece: int) -> None:
    async def test() -> None:
        rig = Rig()
        rig.shake_hands(piece)
        head = request("/metrics")
        rig.client.write(head)
        rig.exchange(piece)
        assert rig.inner.heads == [head]
        assert rig.read() == ANSWER
        assert rig.rejected == []
        rig.layer.connection_lost(None)

    run(test)


def test_a_client_that_says_goodbye_is_closed_without_a_word() -> None:
    async def test() -> None:
        rig = Rig()
        rig.shake_hands(1 << 20)
        with pytest.raises(ssl.SSLWantReadError):
            rig.client.unwrap()
        rig.exchange(1 << 20)
        assert rig.socket.closed
        assert rig.rejected == []
        # The server has said goodbye, too: nothing was cut short.
        rig.client.unwrap()
        rig.layer.connection_lost(None)

    run(test)


def test_a_client_that_may_not_come_in_gets_no_answer() -> None:
    async def test() -> None:
        rig = Rig(admits=False)
        rig.shake_hands(1 << 20)
        rig.client.write(request("/metrics"))
        rig.exchange(1 << 20)
        assert rig.inner.heads == []
        assert rig.read() == b""
        assert rig.socket.ended
        assert rig.rejected == ["client_name"]
        rig.layer.connection_lost(None)

    run(test)


def test_what_was_received_ahead_is_decrypted_when_its_turn_comes() -> None:
    async def test() -> None:
        rig = Rig()
        rig.shake_hands(1 << 20)
        head = request("/metrics", f"X: {'y' * 4000}")
        # The first is being answered while the others come: far more than one head may have.
        rig.client.write(head * 20)
        rig.exchange(1 << 20)
        assert rig.inner.heads == [head]
        assert rig.socket.paused
        connection = rig.inner.transport.get_protocol()
        for number in range(2, 21):
            connection.sending()  # type: ignore[attr-defined]
            connection.sent(keep=True)  # type: ignore[attr-defined]
            await asyncio.sleep(0)
            assert len(rig.inner.heads) == number
        assert not rig.socket.paused
        rig.layer.connection_lost(None)

    run(test)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.binary(min_size=1, max_size=300), min_size=1, max_size=5), st.booleans(), st.booleans())
def test_any_bytes_end_in_a_refusal_or_wait_for_more(pieces: list[bytes], greeted: bool, shaken: bool) -> None:
    async def test() -> None:
        rig = Rig()
        if shaken:
            rig.shake_hands(1 << 20)
        elif greeted:
            rig.layer.data_received(b"\x16")
        for piece in pieces:
            if rig.socket.closed:
                break
            rig.layer.data_received(piece)
        assert rig.inner.heads == []
        assert len(rig.rejected) <= 1
        rig.layer.connection_lost(None)

    run(test)
