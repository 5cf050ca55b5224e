"""Real gRPC servers on the loopback or a unix socket, and servers that are none."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent import futures
from contextlib import contextmanager
from typing import Any

import grpc

Handler = Callable[[bytes, grpc.ServicerContext], bytes]


class _Routes(grpc.GenericRpcHandler):
    def __init__(self, methods: Mapping[str, Handler]) -> None:
        self._methods = methods

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any] | None:
        handler = self._methods.get(handler_call_details.method)
        return None if handler is None else grpc.unary_unary_rpc_method_handler(handler)


@contextmanager
def grpc_server(
    methods: Mapping[str, Handler], address: str = "127.0.0.1:0", options: Mapping[str, int] | None = None
) -> Iterator[str]:
    """A server of these methods (``/package.Service/Method`` → request to answer, as bytes); gives its address."""
    threads = futures.ThreadPoolExecutor(8)
    limits = {"grpc.max_send_message_length": -1, "grpc.max_receive_message_length": -1, "grpc.so_reuseport": 0}
    server = grpc.server(threads, options=list({**limits, **(options or {})}.items()))
    server.add_generic_rpc_handlers((_Routes(methods),))
    port = server.add_insecure_port(address)
    server.start()
    try:
        yield address if address.startswith("unix:") else f"127.0.0.1:{port}"
    finally:
        server.stop(None).wait()
        threads.shutdown()


@contextmanager
def tcp_server(serve: Callable[[socket.socket], None]) -> Iterator[str]:
    """A server that hands each connection to ``serve`` in a thread and closes it then; gives its address."""
    listener = socket.create_server(("127.0.0.1", 0))
    threads: list[threading.Thread] = []
    connections: list[socket.socket] = []

    def one(connection: socket.socket) -> None:
        with connection:
            try:
                serve(connection)
            except OSError:
                return

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            connections.append(connection)
            thread = threading.Thread(target=one, args=(connection,))
            threads.append(thread)
            thread.start()

    acceptor = threading.Thread(target=accept)
    acceptor.start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        acceptor.join()
        for connection in connections:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue
        for thread in threads:
            thread.join()
