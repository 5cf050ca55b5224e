"""The health service over a unix socket, asked by a gRPC client as AMD's device plugin asks it."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from collectors.amd.health_service import SERVICE, SOCKET, Gpu, HealthServiceError, start, state

grpc = pytest.importorskip("grpc", reason="the package grpcio is not installed: it is an extra of its own")

GPUS = [
    Gpu(index="0", uuid="9fff74a1-0000-1000-8044-0a1b2c3d4e00", pci_bus_id="0000:05:00.0", healthy=True),
    Gpu(
        index="10",
        uuid="9fff74a1-0000-1000-8044-0a1b2c3d4e01",
        pci_bus_id="0000:26:00.0",
        healthy=False,
        workloads=("ml/train-0", "ml/train-1"),
    ),
]
# GPUState: 1 ID, 2 UUID, 3 Health, 4 AssociatedWorkload (repeated), 5 Device; GPUStateResponse: 1 GPUState (repeated).
# Each is a length-delimited field: key (number × 8 + 2), length, bytes.
FIRST = b"\x0a\x010\x12\x249fff74a1-0000-1000-8044-0a1b2c3d4e00\x1a\x07healthy\x2a\x0c0000:05:00.0"
SECOND = (
    b"\x0a\x0210"
    b"\x12\x249fff74a1-0000-1000-8044-0a1b2c3d4e01"
    b"\x1a\x09unhealthy"
    b"\x22\x0aml/train-0\x22\x0aml/train-1"
    b"\x2a\x0c0000:26:00.0"
)
ALL = b"\x0a" + bytes([len(FIRST)]) + FIRST + b"\x0a" + bytes([len(SECOND)]) + SECOND


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / SOCKET.rpartition("/")[0] / "health.socket"


@pytest.fixture
def serving(path: Path) -> Iterator[Path]:
    running = start(lambda: GPUS, path)
    try:
        yield path
    finally:
        running.stop()


def ask(path: Path, method: str, request: bytes) -> bytes:
    with grpc.insecure_channel(f"unix:{path}") as channel:
        call = channel.unary_unary(f"/metricssvc.MetricsService/{method}")
        answer: bytes = call(request, timeout=20)
        return answer


def test_the_plugin_gets_every_gpu_with_its_health_and_its_address(serving: Path) -> None:
    assert ask(serving, "List", b"") == ALL


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (b"", ALL),
        (b"\x0a\x010", b"\x0a" + bytes([len(FIRST)]) + FIRST),
        (b"\x0a\x0210", b"\x0a" + bytes([len(SECOND)]) + SECOND),
        (b"\x0a\x010\x0a\x0210", ALL),
        (b"\x0a\x0277", b""),
        # A field that is not known.
        (b"\x10\x05\x0a\x010", b"\x0a" + bytes([len(FIRST)]) + FIRST),
    ],
)
def test_states_are_asked_for_by_index(serving: Path, request_: bytes, expected: bytes) -> None:
    assert ask(serving, "GetGPUState", request_) == expected


@pytest.mark.parametrize("request_", [b"\x0a", b"\x0a\x7f0", b"\xff" * 20])
def test_half_a_request_names_no_gpu(request_: bytes) -> None:
    assert state(GPUS, request_) == b""


def test_what_tests_of_the_vendor_set_cannot_be_set(serving: Path) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        ask(serving, "SetError", b"")
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_each_request_sees_the_gpus_of_now(path: Path) -> None:
    now: list[Sequence[Gpu]] = [[], GPUS]
    running = start(lambda: now.pop(0), path)
    try:
        assert [ask(path, "List", b""), ask(path, "List", b"")] == [b"", ALL]
    finally:
        running.stop()


def test_the_socket_is_not_for_everyone_and_goes_in_the_end(path: Path) -> None:
    running = start(lambda: GPUS, path)
    assert path.stat().st_mode & 0o007 == 0
    running.stop()
    assert not path.exists()


def test_a_left_over_socket_is_replaced(path: Path) -> None:
    path.parent.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as left_over:
        left_over.bind(str(path))
    running = start(lambda: GPUS, path)
    try:
        assert ask(path, "List", b"") == ALL
    finally:
        running.stop()


def test_amds_own_exporter_is_not_pushed_aside(serving: Path) -> None:
    with pytest.raises(HealthServiceError, match="another exporter"):
        start(lambda: [], serving)
    assert ask(serving, "List", b"") == ALL


def test_a_file_in_the_sockets_place_is_left_alone(path: Path) -> None:
    path.parent.mkdir(parents=True)
    path.write_text("precious")
    with pytest.raises(HealthServiceError, match="no socket"):
        start(lambda: [], path)
    assert path.read_text() == "precious"


def test_the_names_are_those_that_the_plugin_asks_for() -> None:
    assert SERVICE == "metricssvc.MetricsService"
    assert SOCKET == "amd-metrics-exporter/amdgpu_device_metrics_exporter_grpc.socket"


def test_grpc_is_loaded_only_where_the_service_is_started() -> None:
    code = "import sys, collectors.amd.health_service as h; assert 'grpc' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_without_grpcio_it_says_what_to_install(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "grpc", None)
    with pytest.raises(HealthServiceError, match="pip install"):
        start(lambda: [], path)
