"""A device plugin, as a vendor's: it advertises devices and tells each container in its environment which it got."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent import futures
from pathlib import Path
from typing import Any, Final

import grpc

from tests.protos import message

PROTO: Final = Path(__file__).with_name("deviceplugin.proto")
FOLDER: Final = Path("/var/lib/kubelet/device-plugins")
"""The kubelet has it in its code."""
SERVICE: Final = "v1beta1.DevicePlugin"
VISIBLE: Final = "NVIDIA_VISIBLE_DEVICES"
"""The variable that a container finds its devices in."""


class DevicePlugin:
    """Serves one resource, from ``start`` to ``stop``; it is registered anew with each kubelet."""

    def __init__(self, resource: str, ids: Sequence[str]) -> None:
        self.resource = resource
        self._ids = ids
        self._socket = FOLDER / f"{resource.replace('/', '_')}.sock"
        self._server: grpc.Server | None = None
        self._threads: futures.ThreadPoolExecutor | None = None
        self._stopped = threading.Event()

    @property
    def count(self) -> int:
        return len(self._ids)

    def start(self) -> None:
        """Listen, and register at the kubelet."""
        self._socket.unlink(missing_ok=True)
        self._stopped.clear()
        self._threads = futures.ThreadPoolExecutor(4)
        self._server = grpc.server(self._threads)
        unary, stream = grpc.unary_unary_rpc_method_handler, grpc.unary_stream_rpc_method_handler
        # What is neither asked for nor advertised is answered as not implemented.
        methods: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            "GetDevicePluginOptions": unary(lambda _, context: b""),
            "ListAndWatch": stream(self._list),
            "Allocate": unary(self._allocate),
        }
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, methods),))
        self._server.add_insecure_port(f"unix:{self._socket}")
        self._server.start()
        request = _class("RegisterRequest")(version="v1beta1", endpoint=self._socket.name, resource_name=self.resource)
        with grpc.insecure_channel(f"unix:{FOLDER / 'kubelet.sock'}") as channel:
            register: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary("/v1beta1.Registration/Register")
            register(request.SerializeToString(), timeout=20, wait_for_ready=True)

    def stop(self) -> None:
        self._stopped.set()
        if self._server is not None and self._threads is not None:
            self._server.stop(None).wait()
            self._threads.shutdown()
        self._server = self._threads = None

    def _list(self, _: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        context.add_callback(self._stopped.set)
        devices = [{"ID": identity, "health": "Healthy"} for identity in self._ids]
        yield _class("ListAndWatchResponse")(devices=devices).SerializeToString()
        self._stopped.wait()

    def _allocate(self, request: bytes, _: grpc.ServicerContext) -> bytes:
        asked = _class("AllocateRequest").FromString(request)
        answer = _class("AllocateResponse")()
        for each in asked.container_requests:
            answer.container_responses.add().envs[VISIBLE] = ",".join(each.devicesIDs)
        return bytes(answer.SerializeToString())


def _class(name: str) -> Any:
    return message(PROTO, f"v1beta1.{name}")
