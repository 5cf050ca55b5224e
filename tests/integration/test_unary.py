"""The small gRPC client against the real runtime's server, and against servers that misbehave."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import grpc
import h2.config
import h2.connection
import h2.events
import pytest

from collectors.dial import Address, dial, parse_address
from collectors.unary import Channel, RpcError
from tests.grpc_servers import grpc_server, tcp_server

ECHO = "/test.Echo/Say"


def echo(request: bytes, _: grpc.ServicerContext) -> bytes:
    return request


@contextmanager
def channel(address: str, max_message: int = 4 * 1024 * 1024) -> Iterator[Channel]:
    with closing(Channel(parse_address(address), max_message=max_message)) as found:
        yield found


def failure(call: Callable[[], object]) -> RpcError:
    with pytest.raises(RpcError) as caught:
        call()
    return caught.value


@pytest.mark.parametrize("message", [b"", b"hello", bytes(range(256)) * 300], ids=["empty", "short", "77 kB"])
def test_a_call_brings_the_answer(message: bytes) -> None:
    with grpc_server({ECHO: echo}) as address, channel(address) as client:
        assert client.call(ECHO, message, 5) == message
        assert client.call(ECHO, message, 5) == message
        assert client.connections == 1


def test_a_unix_socket_serves_as_well(tmp_path: Path) -> None:
    with grpc_server({ECHO: echo}, f"unix:{tmp_path}/s") as address, channel(address) as client:
        assert client.call(ECHO, b"x", 5) == b"x"


def test_an_answer_of_64_mebibytes_comes_whole_and_in_time() -> None:
    size = 64 * 1024 * 1024
    with (
        grpc_server({ECHO: lambda _, __: b"\x5a" * size}) as address,
        channel(address, max_message=size) as client,
    ):
        started = time.monotonic()
        answer = client.call(ECHO, b"", 30)
        assert time.monotonic() - started < 15
        assert len(answer) == size
        assert answer.count(b"\x5a") == size
        assert client.call(ECHO, b"", 30)[:1] == b"\x5a"


def test_a_request_larger_than_the_servers_window_is_sent() -> None:
    message = bytes(3_000_000)
    with grpc_server({ECHO: lambda request, _: str(len(request)).encode()}) as address, channel(address) as client:
        assert client.call(ECHO, message, 10) == b"3000000"


def test_a_larger_answer_than_allowed_is_refused_and_the_connection_goes_on() -> None:
    methods = {ECHO: echo, "/test.Echo/Much": lambda _, __: bytes(5000)}
    with grpc_server(methods) as address, channel(address, max_message=4999) as client:
        assert failure(lambda: client.call("/test.Echo/Much", b"", 5)).code == "RESOURCE_EXHAUSTED"
        assert client.call(ECHO, b"x", 5) == b"x"
        assert client.connections == 1


@pytest.mark.parametrize("code", [code for code in grpc.StatusCode if code is not grpc.StatusCode.OK])
def test_the_servers_status_and_words_are_told(code: grpc.StatusCode) -> None:
    def refuse(request: bytes, context: grpc.ServicerContext) -> bytes:
        context.abort(code, "no: größer % than this")
        return request

    with grpc_server({ECHO: refuse}) as address, channel(address) as client:
        error = failure(lambda: client.call(ECHO, b"", 5))
        assert error.code == code.name
        assert "no: größer % than this" in error.detail
        assert not error.absent


def test_an_unknown_method_is_unimplemented() -> None:
    with grpc_server({ECHO: echo}) as address, channel(address) as client:
        assert failure(lambda: client.call("/test.Echo/Other", b"", 5)).code == "UNIMPLEMENTED"


def test_a_slow_server_is_given_up_in_time_and_asked_again() -> None:
    release = threading.Event()

    def slow(request: bytes, _: grpc.ServicerContext) -> bytes:
        release.wait(20)
        return request

    with grpc_server({ECHO: slow}) as address, channel(address) as client:
        started = time.monotonic()
        assert failure(lambda: client.call(ECHO, b"x", 0.2)).code == "DEADLINE_EXCEEDED"
        assert time.monotonic() - started < 2
        release.set()
        assert client.call(ECHO, b"y", 5) == b"y"


def test_the_server_is_told_how_long_we_wait() -> None:
    left: list[float] = []

    def note(request: bytes, context: grpc.ServicerContext) -> bytes:
        left.append(context.time_remaining())
        return request

    with grpc_server({ECHO: note}) as address, channel(address) as client:
        client.call(ECHO, b"", 7)
    assert 4 < left[0] <= 7


def test_many_calls_run_at_the_same_time_on_one_connection() -> None:
    together = threading.Barrier(8)

    def meet(request: bytes, _: grpc.ServicerContext) -> bytes:
        together.wait(10)
        return request

    with grpc_server({ECHO: meet}) as address, channel(address) as client:
        deadline = time.monotonic() + 10
        streams = [client.begin(ECHO, bytes([number]), deadline) for number in range(8)]
        assert [client.finish(stream, deadline) for stream in reversed(streams)] == [
            bytes([n]) for n in range(7, -1, -1)
        ]
        assert client.connections == 1


def test_a_server_that_takes_one_call_at_a_time_gets_them_one_by_one() -> None:
    with grpc_server({ECHO: echo}, options={"grpc.max_concurrent_streams": 1}) as address, channel(address) as client:
        client.call(ECHO, b"", 5)
        deadline = time.monotonic() + 10
        streams = [client.begin(ECHO, bytes([number]), deadline) for number in range(5)]
        assert [client.finish(stream, deadline) for stream in streams] == [bytes([number]) for number in range(5)]


def test_a_slow_server_does_not_take_from_another_what_has_arrived() -> None:
    release = threading.Event()
    with (
        grpc_server({ECHO: lambda request, _: (release.wait(20), request)[1]}) as slow,
        grpc_server({ECHO: echo}) as fast,
        channel(slow) as first,
        channel(fast) as second,
    ):
        second.call(ECHO, b"", 5)
        deadline = time.monotonic() + 0.5
        streams = first.begin(ECHO, b"x", deadline), second.begin(ECHO, b"y", deadline)
        assert failure(lambda: first.finish(streams[0], deadline)).code == "DEADLINE_EXCEEDED"
        assert time.monotonic() > deadline
        assert second.finish(streams[1], deadline) == b"y"
        release.set()


def test_where_nobody_listens_the_server_is_absent(tmp_path: Path) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        port = listener.getsockname()[1]
    for address in (f"127.0.0.1:{port}", f"unix:{tmp_path}/none"):
        with channel(address) as client:
            error = failure(lambda: client.call(ECHO, b"", 1))
            assert (error.code, error.absent) == ("UNAVAILABLE", True)


@pytest.mark.parametrize("host", ["a..b", "x" * 70, "no-such-host.invalid"])
def test_a_name_that_leads_nowhere_is_unavailable(host: str) -> None:
    with channel(f"{host}:8431") as client:
        assert failure(lambda: client.call(ECHO, b"", 1)).code == "UNAVAILABLE"


def test_a_server_that_comes_again_is_found_again(tmp_path: Path) -> None:
    address = f"unix:{tmp_path}/s"
    with channel(address) as client:
        for count in (1, 2):
            with grpc_server({ECHO: echo}, address):
                assert client.call(ECHO, b"x", 5) == b"x"
                assert client.connections == count
            assert failure(lambda: client.call(ECHO, b"", 1)).code == "UNAVAILABLE"


def test_another_thread_can_end_a_call_that_waits() -> None:
    asked, released = threading.Event(), threading.Event()

    def silent(request: bytes, _: grpc.ServicerContext) -> bytes:
        asked.set()
        released.wait(60)
        return request

    with grpc_server({ECHO: silent}) as address, channel(address) as client, ThreadPoolExecutor(1) as threads:
        call = threads.submit(client.call, ECHO, b"x", 3600)
        assert asked.wait(10)
        client.interrupt()
        assert isinstance(call.exception(30), RpcError)
        assert not released.is_set()
        assert failure(lambda: client.call(ECHO, b"x", 5)).code == "CANCELLED"
        released.set()


def test_connections_are_renewed_before_they_have_had_very_many_calls() -> None:
    with grpc_server({ECHO: echo}) as address, channel(address) as client:
        for _ in range(1001):
            client.call(ECHO, b"x", 5)
        assert client.connections == 2


def test_a_local_port_that_must_stay_free_is_not_held() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        where = parse_address(f"127.0.0.1:{listener.getsockname()[1]}")
        deadline = time.monotonic() + 5
        with pytest.raises(ConnectionRefusedError):
            dial(where, deadline, range(65536))
        with closing(dial(where, deadline, range(8431, 8439))) as sock:
            assert sock.getsockname()[1] not in range(8431, 8439)


def hang(connection: socket.socket) -> None:
    while connection.recv(65536):
        pass


def say(data: bytes) -> Callable[[socket.socket], None]:
    def serve(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(data)
        hang(connection)

    return serve


SETTINGS = bytes.fromhex("000000040000000000")


def endless(connection: socket.socket) -> None:
    connection.sendall(SETTINGS)
    while True:
        connection.sendall(bytes.fromhex("000008060000000000") + bytes(8))


@pytest.mark.parametrize(
    ("serve", "codes"),
    [
        (hang, {"DEADLINE_EXCEEDED"}),
        (lambda connection: connection.close(), {"UNAVAILABLE"}),
        (say(b"HTTP/1.1 400 Bad Request\r\n\r\n"), {"INTERNAL"}),
        (say(b"\x00" * 4000), {"INTERNAL"}),
        (say(b"\xff" * 4000), {"INTERNAL"}),
        (say(SETTINGS + bytes.fromhex("00000807000000000000000000" + "00000000")), {"UNAVAILABLE"}),
        (say(SETTINGS + bytes.fromhex("000004030000000001" + "00000007")), {"UNAVAILABLE"}),
        (say(SETTINGS + bytes.fromhex("000004030000000001" + "0000000b")), {"RESOURCE_EXHAUSTED"}),
        (endless, {"DEADLINE_EXCEEDED"}),
    ],
    ids=["silent", "closes", "HTTP/1", "zeros", "ones", "GOAWAY", "refuses the stream", "enhance your calm", "endless"],
)
def test_what_is_no_grpc_server_fails_in_time(serve: Callable[[socket.socket], None], codes: set[str]) -> None:
    with tcp_server(serve) as address:
        for _ in range(2):
            started = time.monotonic()
            with channel(address) as client:
                assert failure(lambda: client.call(ECHO, b"x", 0.3)).code in codes
            assert time.monotonic() - started < 2


def answering(
    headers: list[tuple[str, str]], data: bytes, trailers: list[tuple[str, str]]
) -> Callable[[socket.socket], None]:
    """An HTTP/2 server that gives this to each request."""

    def serve(connection: socket.socket) -> None:
        http = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
        http.initiate_connection()
        connection.sendall(http.data_to_send())
        while received := connection.recv(65536):
            for event in http.receive_data(received):
                if isinstance(event, h2.events.StreamEnded):
                    stream = event.stream_id or 0
                    http.send_headers(stream, headers, end_stream=not data and not trailers)
                    if data:
                        http.send_data(stream, data, end_stream=not trailers)
                    if trailers:
                        http.send_headers(stream, trailers, end_stream=True)
            connection.sendall(http.data_to_send())

    return serve


GRPC = [(":status", "200"), ("content-type", "application/grpc")]
OK = [("grpc-status", "0")]


@pytest.mark.parametrize(
    ("headers", "data", "trailers", "code"),
    [
        ([(":status", "404")], b"", [], "UNIMPLEMENTED"),
        ([(":status", "403")], b"<html>", [], "PERMISSION_DENIED"),
        ([(":status", "503")], b"", [], "UNAVAILABLE"),
        ([(":status", "418")], b"", [], "UNKNOWN"),
        ([*GRPC, ("grpc-status", "5")], b"", [], "NOT_FOUND"),
        (GRPC, b"\0\0\0\0\1x", [], "UNKNOWN"),
        (GRPC, b"\0\0\0\0\1x", [("grpc-status", "99")], "UNKNOWN"),
        (GRPC, b"\0\0\0\0\1x", [("grpc-status", "four")], "UNKNOWN"),
        (GRPC, b"", OK, "INTERNAL"),
        (GRPC, b"\0\0\0\0\2x", OK, "INTERNAL"),
        (GRPC, b"\0\0\0", OK, "INTERNAL"),
        (GRPC, b"\1\0\0\0\1x", OK, "INTERNAL"),
        (GRPC, b"\0\0\0\0\1x\0\0\0\0\1y", OK, "INTERNAL"),
        (GRPC, b"\0\xff\xff\xff\xffx", OK, "RESOURCE_EXHAUSTED"),
    ],
)
def test_an_odd_answer_is_an_error_and_no_value(
    headers: list[tuple[str, str]], data: bytes, trailers: list[tuple[str, str]], code: str
) -> None:
    with tcp_server(answering(headers, data, trailers)) as address, channel(address) as client:
        assert failure(lambda: client.call(ECHO, b"", 2)).code == code


@pytest.mark.parametrize(
    ("written", "address"),
    [
        ("localhost:8431", Address(host="localhost", port=8431)),
        ("10.1.2.3:1", Address(host="10.1.2.3", port=1)),
        ("[fd00::1]:8431", Address(host="fd00::1", port=8431)),
        ("unix:/run/a.sock", Address(path="/run/a.sock")),
        ("unix:///run/a.sock", Address(path="/run/a.sock")),
    ],
)
def test_addresses_are_read_and_written(written: str, address: Address) -> None:
    assert parse_address(written) == address
    assert parse_address(str(address)) == address


@pytest.mark.parametrize(
    "written", ["", "localhost", "localhost:0", "h:65536", "http://h:1", "unix:relative", "::1:80"]
)
def test_what_is_no_address_is_refused_with_the_form_that_is_expected(written: str) -> None:
    with pytest.raises(ValueError, match="expected host:port"):
        parse_address(written)
