"""A real gRPC server on a unix socket that plays the kubelet's PodResources v1, as it behaves and as it misbehaves."""

from __future__ import annotations

import random
import socket as sockets
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Self

import grpc

from tests.fakes.kubelet.messages import Pod, answer

LIST: Final = "/v1.PodResourcesLister/List"
RATE_LIMIT: Final = "rejected by rate limit"
"""The kubelet's words."""

Script = Callable[[grpc.ServicerContext], bytes]
"""Makes one answer, or aborts."""


class Kubelet:
    """Listens at ``socket``. What it says is its ``script``, which a test changes as it goes on.

    ``serves_v1`` False: one before Kubernetes 1.20, which knows v1alpha1 only.
    """

    def __init__(self, socket: Path, *, serves_v1: bool = True) -> None:
        self.socket = socket
        self.script: Script = pods(())
        self.questions = 0
        self.answers = 0
        """How many scripts have come to their end."""
        self.released = threading.Event()
        """Ends answers that hang."""
        self._serves_v1 = serves_v1
        self._server: grpc.Server | None = None
        self._threads: futures.ThreadPoolExecutor | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Listen; a socket file that is there is replaced by one with a new inode, as the kubelet does."""
        self.socket.unlink(missing_ok=True)
        self._threads = futures.ThreadPoolExecutor(4)
        self._server = grpc.server(self._threads, options=[("grpc.max_send_message_length", -1)])
        self._server.add_generic_rpc_handlers((_Methods(self._answer, serves_v1=self._serves_v1),))
        self._server.add_insecure_port(f"unix:{self.socket}")
        self._server.start()

    def stop(self, *, leave_file: bool = False) -> None:
        """``leave_file``: the socket's file stays while nobody listens, as after a kill."""
        self.released.set()
        if self._server is not None and self._threads is not None:
            self._server.stop(None).wait()
            self._threads.shutdown()
        self._server = self._threads = None
        self.released.clear()
        if leave_file and not self.socket.exists():
            with _bound(self.socket):
                pass

    def _answer(self, _: bytes, context: grpc.ServicerContext) -> bytes:
        self.questions += 1
        try:
            return self.script(context)
        finally:
            self.answers += 1


class _Methods(grpc.GenericRpcHandler):
    def __init__(self, answer: Callable[[bytes, grpc.ServicerContext], bytes], *, serves_v1: bool) -> None:
        self._answer, self._methods = answer, {LIST} if serves_v1 else {"/v1alpha1.PodResourcesLister/List"}

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any] | None:
        known = handler_call_details.method in self._methods
        return grpc.unary_unary_rpc_method_handler(self._answer) if known else None


@contextmanager
def _bound(path: Path) -> Iterator[None]:
    """A file of a socket at which nobody listens any more."""
    with sockets.socket(sockets.AF_UNIX) as sock:
        sock.bind(str(path))
        yield


def pods(listed: Sequence[Pod], *, shuffled: bool = False) -> Script:
    """These pods; ``shuffled``: in another order each time, as Go's maps give them."""

    def script(_: grpc.ServicerContext) -> bytes:
        return answer(random.sample(listed, len(listed)) if shuffled else listed)

    return script


def raw(body: bytes) -> Script:
    """These bytes, whatever they mean."""
    return lambda _: body


def refusal(code: grpc.StatusCode, detail: str) -> Script:
    """A status and no answer."""

    def script(context: grpc.ServicerContext) -> bytes:
        context.abort(code, detail)
        raise AssertionError("abort raises")

    return script


def hanging(kubelet: Kubelet) -> Script:
    """No answer until the kubelet is stopped."""

    def script(_: grpc.ServicerContext) -> bytes:
        kubelet.released.wait(60)
        return b""

    return script
