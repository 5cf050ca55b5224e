"""The health service that AMD's device plugin asks, as AMD's exporter offers it.

Package ``metricssvc``, service ``MetricsService`` with ``GetGPUState`` and ``List``, over gRPC on a socket of the host
(ROCm/device-metrics-exporter, metricssvc.proto; the plugin asks for that name whatever the file's package is). It reads
no device: who starts it tells it of the GPUs. Needs the package grpcio, which nothing else here does.
"""

from __future__ import annotations

import socket
import stat
from collections.abc import Callable, Iterable, Sequence
from concurrent import futures
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from collectors import protobuf
from collectors.base import DeviceState, HostPaths, ServiceUnavailable

SOCKET: Final = "amd-metrics-exporter/amdgpu_device_metrics_exporter_grpc.socket"
"""Below the host's /var/lib."""
SERVICE: Final = "metricssvc.MetricsService"
_ANSWER_STATES: Final = 1
_REQUEST_ID: Final = 1
_THREADS: Final = 2
_MODE: Final = 0o660


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU, or a partition of one, as AMD counts them."""

    index: str
    uuid: str
    pci_bus_id: str
    """In lower case with four digits of domain: the plugin's name for it."""
    healthy: bool
    """Health failed, or not known, is not healthy: the plugin takes such a GPU out of service."""
    workloads: tuple[str, ...] = ()


class Running(Protocol):
    """A started service."""

    def stop(self) -> None:
        """End it, and remove its socket."""
        ...


class HealthServiceError(ServiceUnavailable):
    """The service cannot be offered. The text says what to do."""


def start_service(states: Callable[[], Sequence[DeviceState]], paths: HostPaths) -> Running:
    """Offer the service for the agent's devices. Raises HealthServiceError."""
    return start(lambda: [_gpu(found) for found in states()], Path(paths.var_lib) / SOCKET)


def _gpu(found: DeviceState) -> Gpu:
    device = found.device
    return Gpu(
        index=device.index,
        uuid=device.partition_uuid or device.uuid,
        pci_bus_id=device.pci_bus_id.lower(),
        healthy=found.health in ("healthy", "degraded"),
        workloads=found.workloads,
    )


def start(gpus: Callable[[], Sequence[Gpu]], path: Path) -> Running:
    """Offer the service on a unix socket. ``gpus`` is asked at each request, from another thread.

    Raises HealthServiceError: without grpcio, if another exporter serves there, or if the socket cannot be made.
    """
    try:
        import grpc
    except ImportError:
        raise HealthServiceError("the package grpcio is missing: pip install grpcio (the extra amd-health)") from None
    _take(path)
    server = grpc.server(futures.ThreadPoolExecutor(_THREADS), maximum_concurrent_rpcs=8 * _THREADS)
    handlers: dict[str, Any] = {
        "GetGPUState": grpc.unary_unary_rpc_method_handler(lambda request, _: state(gpus(), request)),
        "List": grpc.unary_unary_rpc_method_handler(lambda _request, _: answer(gpus())),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    try:
        server.add_insecure_port(f"unix:{path}")
    except RuntimeError as error:
        raise HealthServiceError(f"the socket {path} cannot be made ({error}): is its folder writable?") from None
    server.start()
    path.chmod(_MODE)
    return _Service(server, path)


class _Service:
    def __init__(self, server: Any, path: Path) -> None:
        self._server, self._path = server, path

    def stop(self) -> None:
        self._server.stop(None).wait()
        self._path.unlink(missing_ok=True)


def _take(path: Path) -> None:
    """Make room for the socket: a left-over one goes, a living one stays. Raises HealthServiceError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            return
        if not stat.S_ISSOCK(path.stat().st_mode):
            raise HealthServiceError(f"{path} is no socket: remove it")
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(1.0)
            if probe.connect_ex(str(path)) == 0:
                raise HealthServiceError(f"another exporter serves {path}: stop it, or leave the health service to it")
        path.unlink()
    except OSError as error:
        raise HealthServiceError(f"the socket {path} cannot be made ({error}): mount its folder writable") from None


def state(gpus: Iterable[Gpu], request: bytes) -> bytes:
    """Answer GetGPUState: the GPUs whose indices are asked for, or all if none is."""
    try:
        wanted = {
            protobuf.text(value)
            for field, wire, value in protobuf.fields(request)
            if field == _REQUEST_ID and wire == protobuf.BYTES and isinstance(value, bytes)
        }
    except protobuf.Malformed:
        wanted = {""}
    return answer(gpu for gpu in gpus if not wanted or gpu.index in wanted)


def answer(gpus: Iterable[Gpu]) -> bytes:
    """A GPUStateResponse."""
    return b"".join(protobuf.bytes_field(_ANSWER_STATES, _state(gpu)) for gpu in gpus)


def _state(gpu: Gpu) -> bytes:
    texts = [(1, gpu.index), (2, gpu.uuid), (3, "healthy" if gpu.healthy else "unhealthy")]
    texts += [(4, workload) for workload in gpu.workloads]
    texts.append((5, gpu.pci_bus_id))
    return b"".join(protobuf.string_field(field, value) for field, value in texts if value)
