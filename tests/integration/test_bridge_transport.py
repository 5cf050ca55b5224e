"""How the bridge reaches its source, and what it does with servers that are slow, endless, broken or alien."""

from __future__ import annotations

import contextlib
import gzip
import socket
import socketserver
import ssl
import struct
import subprocess
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from collectors.base import Collector, Unavailable
from collectors.bridge import open_collector
from tests.bridge_sources import PageServer, hostile
from tests.bridge_tables import settings

UUID = "GPU-0f0e0d0c-1111-2222-3333-44445555aaaa"
TEMP = "DCGM_FI_DEV_GPU_TEMP"
PAGE = f'{TEMP}{{gpu="0",UUID="{UUID}"}} 40\n'
OK = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\n"

Act = Callable[[socket.socket, threading.Event], None]


@pytest.fixture
def page() -> Iterator[PageServer]:
    with PageServer(PAGE).serving() as server:
        yield server


def bridge(page: PageServer, **options: Any) -> Collector:
    return open_collector(settings(page.url, **options))


def temperatures(collector: Collector) -> list[float]:
    collector.discover()
    return [reading.value for reading in collector.sample("fast").readings]


def trouble(act: Act, **options: Any) -> Unavailable:
    """What the bridge says of a server that acts so. It must not take longer than its timeout, be it ever so slow."""
    timeout = options.setdefault("timeout", 5.0)
    with hostile(act) as url:
        started = time.monotonic()
        with pytest.raises(Unavailable) as caught:
            open_collector(settings(url, **options)).discover()
        assert time.monotonic() - started < timeout + 1.5
        assert url in caught.value.hint
    return caught.value


def sends(data: bytes) -> Act:
    return lambda connection, _: connection.sendall(data)


def drips(head: bytes, drop: bytes) -> Act:
    """Sends ``drop`` again and again, always sooner than any timeout of a single receive."""

    def act(connection: socket.socket, over: threading.Event) -> None:
        connection.sendall(head)
        while not over.wait(0.02):
            connection.sendall(drop)

    return act


def pours(head: bytes, flood: bytes) -> Act:
    def act(connection: socket.socket, over: threading.Event) -> None:
        connection.sendall(head)
        while not over.is_set():
            connection.sendall(flood)

    return act


def resets(connection: socket.socket, _: threading.Event) -> None:
    connection.sendall(OK + b"Content-Length: 1000\r\n\r\n" + PAGE.encode())
    time.sleep(0.05)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


@pytest.mark.parametrize(
    "act",
    [
        drips(b"", b"H"),
        drips(OK, b"X"),
        drips(OK + b"\r\n", b"x"),
        drips(OK + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
        drips(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        lambda _, over: over.wait(10),
    ],
    ids=["status line", "header", "body", "chunks", "100 Continue", "silence"],
)
def test_a_server_that_is_never_late_for_a_receive_is_late_in_all(act: Act) -> None:
    found = trouble(act, timeout=0.4)
    assert "0.4 s" in found.hint
    assert found.state == "no_driver"


@pytest.mark.parametrize(
    ("head", "flood"),
    [
        (OK + b"\r\n", b"# comment\n" * 1000),
        (OK + b"\r\n", b"x" * 10_000),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n", b"2710\r\n" + b"y 1\n" * 2500 + b"\r\n"),
    ],
    ids=["lines", "one line", "chunks"],
)
def test_an_endless_body_ends_at_the_limit(head: bytes, flood: bytes) -> None:
    assert "raise max_bytes" in trouble(pours(head, flood), max_bytes=1_000_000).hint


def test_an_endless_head_is_refused() -> None:
    assert "HTTP" in trouble(pours(OK, b"X-More: and more\r\n")).hint


def test_a_gzip_bomb_stays_packed() -> None:
    bomb = gzip.compress(b"\0" * 50_000_000)
    assert len(bomb) < 60_000
    head = OK + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(bomb)
    tracemalloc.start()
    try:
        found = trouble(sends(head + bomb), max_bytes=1_000_000)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert "raise max_bytes" in found.hint
    assert peak < 5_000_000


def test_too_many_series_are_refused_as_a_whole(page: PageServer) -> None:
    page.body = "".join(f'{TEMP}{{gpu="{n}",UUID="u{n}"}} 40\n' for n in range(20))
    assert len(temperatures(bridge(page, max_series=20))) == 20
    with pytest.raises(Unavailable, match="raise max_series"):
        bridge(page, max_series=19).discover()


def test_a_source_that_names_devices_without_end_is_refused(page: PageServer) -> None:
    page.body = "".join(f'{TEMP}{{gpu="{n}"}} 40\n' for n in range(1025))
    with pytest.raises(Unavailable, match="1024 devices"):
        bridge(page).discover()


BODY = PAGE.encode()


@pytest.mark.parametrize(
    ("answer", "hint"),
    [
        (OK + b"Content-Length: 999\r\n\r\n" + BODY, "broke off"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\nff\r\n" + BODY, "broke off"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n" + BODY, "broke off"),
        (OK + b"Content-Encoding: gzip\r\n\r\n" + gzip.compress(BODY * 50)[:-12], "broke off within its gzip"),
        (OK + b"Content-Encoding: gzip\r\n\r\n" + BODY, "cannot be unpacked"),
        (OK + b"Content-Encoding: br\r\n\r\n" + BODY, "'br'"),
        (b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<!DOCTYPE html><title>Sign in</title>", "web page"),
        (b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n\n{"status":"success"}', "JSON"),
        (b"HTTP/1.1 500 Internal Server Error\r\n\r\n" + BODY, "500"),
        (b"HTTP/1.1 404 Not Found\r\n\r\n", "404"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", "204"),
        (b"HTTP/1.1 302 Found\r\nLocation: http://elsewhere/login\r\n\r\n", "redirects to 'http://elsewhere/login'"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "HTTP"),
        (b"", "cannot be reached"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_answer_that_is_none_says_what_to_look_at(answer: bytes, hint: str) -> None:
    assert hint in trouble(sends(answer)).hint


@pytest.mark.parametrize("status", [401, 403])
def test_a_refusal_asks_for_credentials(status: int) -> None:
    found = trouble(sends(b"HTTP/1.1 %d No\r\n\r\n" % status))
    assert (found.state, "bearer_token_file" in found.hint) == ("no_permission", True)


def test_a_connection_that_is_reset_midway_gives_no_half_a_page() -> None:
    assert "broke off" in trouble(resets).hint


def test_a_redirect_to_itself_is_not_followed(page: PageServer) -> None:
    page.status = 301
    page.headers = {"Location": page.url}
    with pytest.raises(Unavailable, match="redirects"):
        bridge(page).discover()
    assert len(page.requests) == 1


def test_a_length_that_cuts_a_number_does_not_make_another_number() -> None:
    body = (PAGE + f'DCGM_FI_DEV_POWER_USAGE{{gpu="0",UUID="{UUID}"}} 512.250000\n').encode()
    with hostile(sends(OK + b"Content-Length: %d\r\n\r\n" % (len(body) - 9) + body)) as url:
        collector = open_collector(settings(url))
        collector.discover()
        sample = collector.sample("fast")
    assert [(reading.series, reading.value) for reading in sample.readings] == [(TEMP, 40)]
    assert "last line without a newline" in sample.errors[0].detail


def test_nothing_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(Unavailable, match="start the exporter") as caught:
        open_collector(settings(f"http://127.0.0.1:{port}/metrics")).discover()
    assert caught.value.state == "no_driver"


def test_no_socket_stays_open_whatever_happened(page: PageServer) -> None:
    def sockets() -> int:
        found = 0
        for path in Path("/proc/self/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # the descriptor of the listing itself
                found += str(path.readlink()).startswith("socket:")
        return found

    collector = bridge(page, share_seconds=0, max_series=1)
    before = sockets()
    for status, body in ((200, PAGE), (500, ""), (200, PAGE), (200, "<html>"), (200, PAGE), (200, PAGE + PAGE)):
        page.status, page.body = status, body
        collector.sample("fast")
    # The server closes its own ends a moment later.
    deadline = time.monotonic() + 5
    while sockets() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert sockets() <= before


def test_gzip_is_asked_for_and_read(page: PageServer) -> None:
    page.headers = {"Content-Encoding": "gzip"}
    assert temperatures(bridge(page)) == [40]
    assert page.requests[0]["Accept-Encoding"] == "gzip"


@pytest.mark.parametrize("content_type", [None, "text/html", "application/octet-stream", "nonsense"])
def test_metrics_are_read_whatever_their_type_claims(page: PageServer, content_type: str | None) -> None:
    page.content_type = content_type
    assert temperatures(bridge(page)) == [40]


def test_headers_and_a_token_that_is_rotated_are_sent(page: PageServer, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first\n")
    collector = bridge(page, headers={"X-Scope": "a"}, bearer_token_file=str(token))
    collector.discover()
    collector.sample("fast")
    token.write_text("second")
    collector.sample("fast")
    assert [request["Authorization"] for request in page.requests] == ["Bearer first", "Bearer second"]
    assert page.requests[0]["X-Scope"] == "a"
    token.unlink()
    [error] = collector.sample("fast").errors
    assert error.kind == "permission"
    assert str(token) in error.detail


def test_a_unix_socket_is_an_address(tmp_path: Path) -> None:
    page = PageServer(PAGE)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            page.answer(self)

        def log_message(self, *_: object) -> None:
            """Quiet."""

    path = tmp_path / "x.sock"
    with socketserver.UnixStreamServer(str(path), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            collector = open_collector(settings(f"unix://{path}?path=/nvidia/metrics"))
            assert temperatures(collector) == [40]
        finally:
            server.shutdown()
            thread.join()
    assert page.requests[0]["path"] == "/nvidia/metrics"
    with pytest.raises(Unavailable, match="cannot be reached"):
        open_collector(settings(f"unix://{tmp_path}/none.sock")).discover()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tls")
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"
    try:
        subprocess.run(
            [*command.split(), "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", "key.pem", "-out", "cert.pem"],
            cwd=folder, check=True, capture_output=True, timeout=30,
        )  # fmt: skip
    except FileNotFoundError:
        pytest.skip("needs the program openssl")
    return folder


def test_tls_is_checked_against_the_authority_that_is_named(certificate: Path) -> None:
    page = PageServer(PAGE)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
    with page.serving(context):
        assert page.url.startswith("https://")
        assert temperatures(bridge(page, ca_file=str(certificate / "cert.pem"))) == [40]
        with pytest.raises(Unavailable, match="ca_file"):
            bridge(page).discover()
        with pytest.raises(Unavailable, match="cannot be read as a certificate"):
            bridge(page, ca_file=str(certificate / "none.pem")).discover()


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        ({"url": "ftp://x/metrics"}, "expected http://"),
        ({"url": "http://user:secret@x/metrics"}, "bearer_token_file"),
        ({"url": "http://x/a b"}, "blank"),
        ({"url": "http://x:99999/"}, "cannot be read"),
        ({"timeout": 0}, "timeout"),
        ({"max_bytes": "many"}, "max_bytes"),
        ({"bridge": None}, "bridge"),
    ],
)
def test_a_wrong_option_is_named_and_no_password_is_repeated(options: dict[str, Any], hint: str) -> None:
    with pytest.raises(Unavailable, match=hint) as caught:
        open_collector(settings(**{"url": "http://x/", **options}))
    assert "secret" not in caught.value.hint
