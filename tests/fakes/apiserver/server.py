"""A real HTTP server that plays the API server: list, watch, versions, selectors, tokens, and trouble on order.

The behaviour is that of kube-apiserver as its documentation and its clients' sources state it: a watch begins at a
version and ends in silence; a version that is too old answers 200 and then one event ERROR with code 410.
"""

from __future__ import annotations

import json
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, Self
from urllib.parse import parse_qs, urlsplit

from tests.fakes.apiserver.objects import DRA, Json

STATUS_REASONS: Final = {401: "Unauthorized", 403: "Forbidden", 404: "NotFound", 410: "Expired", 504: "Timeout"}


@dataclass(frozen=True, slots=True)
class Request:
    path: str
    query: Mapping[str, str]
    accept: str
    token: str
    at: float = field(default_factory=time.monotonic)

    @property
    def is_watch(self) -> bool:
        return self.query.get("watch") in ("1", "true")


@dataclass(frozen=True, slots=True)
class Fault:
    """Answers one request that it fits, instead of what is so."""

    answer: Callable[[_Handler], None]
    fits: Callable[[Request], bool] = lambda request: True


def is_list(request: Request) -> bool:
    return not request.is_watch


def is_watch(request: Request) -> bool:
    return request.is_watch


class ApiServer:
    """Serves what was ``put``; at /pods it is a kubelet, which has no watch."""

    def __init__(self, *, dra: Sequence[str] = (), tls: ssl.SSLContext | None = None, port: int = 0) -> None:
        """``dra``: served versions of resource.k8s.io."""
        self.dra = tuple(dra)
        self.tokens: set[str] | None = None
        """Accepted ones; None: anybody is."""
        self.forbidden: set[str] = set()
        """Paths whose lists and watches the role does not grant."""
        self.bookmarks = False
        self.requests: list[Request] = []
        self.faults: deque[Fault] = deque()
        self._version = 100
        self._oldest = 100
        self._objects: dict[str, dict[tuple[str, str], Json]] = {}
        self._events: list[tuple[int, str, str, Json]] = []
        self._news = threading.Condition()
        self._epoch = 0
        self._closed = False
        self._server = _Server(self, tls, port)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    @property
    def port(self) -> int:
        return self._server.server_port

    @property
    def url(self) -> str:
        return f"{'https' if self._server.tls else 'http'}://localhost:{self.port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._news:
            self._closed = True
            self._news.notify_all()
        self._server.shutdown()
        self._thread.join()
        self._server.end()

    # What there is

    def put(self, path: str, *items: Json) -> None:
        """Create or change objects; each change is an event with a version of its own."""
        with self._news:
            known = self._objects.setdefault(path, {})
            for item in items:
                self._version += 1
                name = _key(item)
                written = {**item, "metadata": {**item["metadata"], "resourceVersion": str(self._version)}}
                self._events.append((self._version, path, "MODIFIED" if name in known else "ADDED", written))
                known[name] = written
            self._news.notify_all()

    def delete(self, path: str, name: str, namespace: str = "ns") -> None:
        with self._news:
            self._version += 1
            gone = self._objects[path].pop((namespace, name))
            gone = {**gone, "metadata": {**gone["metadata"], "resourceVersion": str(self._version)}}
            self._events.append((self._version, path, "DELETED", gone))
            self._news.notify_all()

    def forget(self) -> None:
        """Compact: watches from any version before the present one are refused from now on."""
        with self._news:
            self._version += 1
            self._oldest = self._version
            self._events.clear()

    def cut(self) -> None:
        """End all watches, as the end of their time does."""
        with self._news:
            self._epoch += 1
            self._news.notify_all()

    def asked(self, path: str, *, watch: bool) -> list[Request]:
        return [request for request in list(self.requests) if request.path == path and request.is_watch == watch]

    # What is answered

    def get(self, handler: _Handler, request: Request) -> None:
        self.requests.append(request)
        for fault in self.faults:
            if fault.fits(request):
                self.faults.remove(fault)
                fault.answer(handler)
                return
        if self.tokens is not None and request.token not in self.tokens:
            handler.status(401)
        elif request.path in self.forbidden:
            handler.status(403)
        elif request.path == DRA and self.dra:
            handler.json({"kind": "APIGroup", "name": DRA[6:], "versions": [{"version": each} for each in self.dra]})
        elif request.path in self._objects and request.is_watch:
            self._watch(handler, request)
        elif request.path in self._objects:
            self._list(handler, request)
        else:
            self._one(handler, request)

    def _one(self, handler: _Handler, request: Request) -> None:
        folder, _, name = request.path.rpartition("/")
        for (_, known), item in self._objects.get(folder, {}).items():
            if known == name:
                handler.json(item)
                return
        handler.status(404)

    def _list(self, handler: _Handler, request: Request) -> None:
        asked = request.query.get("resourceVersion", "")
        with self._news:
            version, items = self._version, list(self._objects[request.path].values())
        if asked and int(asked) > version:
            cause = {"causes": [{"reason": "ResourceVersionTooLarge"}], "retryAfterSeconds": 1}
            handler.status(504, retry_after="1", details=cause)
            return
        selected = [item for item in items if _selects(request.query, item)]
        partial = "as=PartialObjectMetadataList" in request.accept
        # Items of a full list lack kind and version; those of the other carry them.
        listed = [_partial(item) if partial else _without_kind(item) for item in selected]
        kind = "PartialObjectMetadataList" if partial else "List"
        handler.json({"kind": kind, "metadata": {"resourceVersion": str(version)}, "items": listed})

    def _watch(self, handler: _Handler, request: Request) -> None:
        began = time.monotonic()
        seen = int(request.query.get("resourceVersion") or 0)
        limit = float(request.query.get("timeoutSeconds", "1800"))
        partial = "as=PartialObjectMetadata;" in request.accept
        handler.begin_stream()
        if seen < self._oldest:
            handler.event("ERROR", expired(f"too old resource version: {seen} ({self._oldest})"))
            handler.end_stream()
            return
        epoch = self._epoch
        while self._goes_on(epoch) and time.monotonic() - began < limit:
            for version, _, kind, item in self._since(seen, request.path, epoch):
                seen = version
                if _selects(request.query, item):
                    handler.event(kind, _partial(item) if partial else item)
            if self.bookmarks and request.query.get("allowWatchBookmarks") == "true" and self._version > seen:
                seen = self._version
                handler.event("BOOKMARK", {"kind": "Pod", "metadata": {"resourceVersion": str(seen)}})
        handler.end_stream()

    def _goes_on(self, epoch: int) -> bool:
        return not self._closed and self._epoch == epoch

    def _since(self, version: int, path: str, epoch: int) -> list[tuple[int, str, str, Json]]:
        """Events after the version; waits a little when there are none."""
        with self._news:
            events = [each for each in self._events if each[0] > version and each[1] == path]
            if not events and self._goes_on(epoch):
                self._news.wait(0.2)
            return events


def expired(message: str, reason: str = "Expired", code: int = 410) -> Json:
    return {"kind": "Status", "status": "Failure", "message": message, "reason": reason, "code": code}


def refuse(code: int, *, retry_after: str = "", fits: Callable[[Request], bool] = lambda request: True) -> Fault:
    """A status, with its object."""
    return Fault(lambda handler: handler.status(code, retry_after=retry_after), fits)


def stream(
    *parts: bytes,
    after: float = 0.0,
    cut: bool = False,
    hang: bool = False,
    fits: Callable[[Request], bool] = is_watch,
) -> Fault:
    """These bytes of a watch, in pieces of their own. ``after`` seconds it ends, without the end of its last piece if
    it is ``cut``; ``hang``: never."""

    def answer(handler: _Handler) -> None:
        handler.begin_stream()
        for part in parts:
            handler.chunk(part)
            time.sleep(0.01)
        time.sleep(after)
        if hang:
            handler.silence()
        if cut or hang:
            handler.cut()
        else:
            handler.end_stream()

    return Fault(answer, fits)


def mute(*, fits: Callable[[Request], bool] = is_watch) -> Fault:
    """Not a word until the client leaves."""
    return Fault(lambda handler: handler.silence(), fits)


def compressed(data: bytes, *, fits: Callable[[Request], bool] = is_watch) -> Fault:
    """These bytes, which gzip has made."""
    return Fault(lambda handler: handler.send(200, data, {"Content-Encoding": "gzip"}), fits)


def body(data: bytes, *, fits: Callable[[Request], bool] = is_list) -> Fault:
    """These bytes with status 200."""
    return Fault(lambda handler: handler.send(200, data), fits)


def line(kind: str, item: Json) -> bytes:
    return json.dumps({"type": kind, "object": item}).encode() + b"\n"


class _Server(ThreadingHTTPServer):
    daemon_threads = False

    def __init__(self, api: ApiServer, tls: ssl.SSLContext | None, port: int) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.api, self.tls = api, tls
        self.open: set[socket.socket] = set()

    def finish_request(self, request: Any, client_address: Any) -> None:
        if self.tls is None:
            self._serve(request, client_address)
            return
        request.settimeout(10)
        try:
            secured = self.tls.wrap_socket(request, server_side=True)
        except (ssl.SSLError, OSError):
            # The client does not trust the certificate.
            return
        with secured:
            secured.settimeout(None)
            self._serve(secured, client_address)

    def _serve(self, request: Any, client_address: Any) -> None:
        self.open.add(request)
        try:
            super().finish_request(request, client_address)
        finally:
            self.open.discard(request)

    def end(self) -> None:
        """Close all connections, and wait for their threads."""
        for sock in list(self.open):
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_GET(self) -> None:
        split = urlsplit(self.path)
        query = {name: values[-1] for name, values in parse_qs(split.query, keep_blank_values=True).items()}
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        try:
            self.server.api.get(self, Request(split.path, query, self.headers.get("Accept") or "", token))
        except OSError:
            # The client left; a watch notices when it writes.
            self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        pass

    def status(self, code: int, *, retry_after: str = "", details: Json | None = None) -> None:
        reason = STATUS_REASONS.get(code, "InternalError")
        told = {**expired(f"the server says {code}", reason, code), "details": details or {}}
        headers = {"Retry-After": retry_after} if retry_after else {}
        self.send(code, json.dumps(told).encode(), headers)

    def json(self, told: Json) -> None:
        self.send(200, json.dumps(told).encode())

    def send(self, code: int, data: bytes, headers: Mapping[str, str] | None = None) -> None:
        self.send_response(code)
        for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def begin_stream(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()

    def event(self, kind: str, item: Json) -> None:
        self.chunk(line(kind, item))

    def chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def end_stream(self) -> None:
        self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()

    def silence(self) -> None:
        """Until the client leaves or the server is closed."""
        self.connection.recv(1)

    def cut(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)


def _key(item: Json) -> tuple[str, str]:
    return item["metadata"].get("namespace", ""), item["metadata"]["name"]


def _selects(query: Mapping[str, str], item: Json) -> bool:
    return all(_field(item, name) == value for name, value in _terms(query.get("fieldSelector", "")))


def _terms(selector: str) -> Iterator[tuple[str, str]]:
    for term in filter(None, selector.split(",")):
        name, _, value = term.partition("=")
        yield name, value


def _field(item: Json, path: str) -> object:
    found: Any = item
    for name in path.split("."):
        found = found.get(name, "")
    return found


def _partial(item: Json) -> Json:
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": item["metadata"]}


def _without_kind(item: Json) -> Json:
    return {name: value for name, value in item.items() if name not in ("kind", "apiVersion")}
