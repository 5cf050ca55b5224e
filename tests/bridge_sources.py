"""HTTP servers on loopback for the bridge's tests: one serves a page, one does whatever a test wants to suffer."""

from __future__ import annotations

import contextlib
import gzip
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TEXT = "text/plain; version=0.0.4; charset=utf-8"


class _Server(ThreadingHTTPServer):
    def handle_error(self, *_: object) -> None:
        """A client that breaks off is what some tests are about."""


class PageServer:
    """Serves ``body``, which a test may replace, and remembers the headers of each request."""

    def __init__(self, body: str, content_type: str | None = TEXT) -> None:
        self.body = body
        self.content_type = content_type
        self.status = 200
        self.headers: Mapping[str, str] = {}
        self.requests: list[Mapping[str, str]] = []
        self.url = ""

    @contextlib.contextmanager
    def serving(self, tls: ssl.SSLContext | None = None) -> Iterator[PageServer]:
        page = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                page.answer(self)

            def log_message(self, *_: object) -> None:
                """Quiet."""

        with _Server(("127.0.0.1", 0), Handler) as server:
            if tls is not None:
                server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
            thread = threading.Thread(target=server.serve_forever, args=(0.02,))
            thread.start()
            try:
                self.url = f"http{'s' if tls else ''}://127.0.0.1:{server.server_address[1]}/metrics"
                yield self
            finally:
                server.shutdown()
                thread.join()

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        self.requests.append(dict(request.headers.items()) | {"path": request.path})
        body = self.body.encode()
        request.send_response(self.status)
        if self.content_type is not None:
            request.send_header("Content-Type", self.content_type)
        for name, value in self.headers.items():
            request.send_header(name, value)
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.compress(body)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)


@contextlib.contextmanager
def hostile(act: Callable[[socket.socket, threading.Event], None]) -> Iterator[str]:
    """Reads a request and leaves the connection to ``act``, with an event that is set when the test is over."""
    over = threading.Event()
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(0.05)

    def serve() -> None:
        while not over.is_set():
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                continue
            with connection, contextlib.suppress(OSError):
                connection.settimeout(5)
                connection.recv(65536)
                act(connection, over)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/metrics"
    finally:
        over.set()
        thread.join()
        listener.close()
