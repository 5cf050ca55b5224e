"""The TPU collector where services hang, lie, end or are not there, and chips vanish."""

from __future__ import annotations

import socket
import threading
import time
from pathlib import Path
from typing import Any

import grpc
import pytest

from collectors.base import NODE, ReadError, Unavailable
from collectors.tpu import open_collector
from tests.fakes.tpu.host import add_chips, make_host
from tests.fakes.tpu.service import DUTY, TOTAL, USED, Runtime, serve, usual
from tests.grpc_servers import tcp_server
from tests.tpu_rig import FOUR, GIB, V6E_TOTAL, Rig, host_of, opened, settings, workload


def test_where_processes_cannot_be_seen_silence_is_no_idleness(tmp_path: Path) -> None:
    host = make_host(tmp_path, hostpid=False)
    add_chips(host, "v6e", 2)
    with opened(host, addresses=["127.0.0.1:1"]) as rig:
        found, sample = rig.sample()
        assert {name for name, _ in found} == {
            "libtpu_metric_service_up", "tpu_device_node_present", "tpu_model_hbm_bytes", "tpu_model_tensorcores",
        }  # fmt: skip
        assert sample.errors == []


def test_a_job_whose_metric_service_failed_is_unreachable_and_not_idle(tmp_path: Path) -> None:
    host, nodes = host_of(tmp_path, "v4", 2)
    host.process(1000, nodes, {"TPU_RUNTIME_METRICS_PORTS": "1"})
    with opened(host) as rig:
        found, _ = rig.sample()
        assert [found["libtpu_metric_service_up", place] for place in (0, 1)] == [0, 0]
        assert [found["tpu_processes", place] for place in (0, 1)] == [1, 1]
        assert not [name for name, _ in found if "duty" in name]


def test_an_old_libtpu_that_cannot_list_is_asked_for_the_three_that_it_has(tmp_path: Path) -> None:
    host, nodes = host_of(tmp_path, "v6e", 4)
    runtime = Runtime(usual(FOUR))
    runtime.can_list = False
    with workload(host, nodes, runtime), opened(host) as rig:
        found, sample = rig.sample()
        assert set(runtime.asked) == {DUTY, USED, TOTAL}
        assert found["duty_cycle", 1] == 25.0
        assert sample.errors == []


@pytest.mark.parametrize("code", [grpc.StatusCode.NOT_FOUND, grpc.StatusCode.INVALID_ARGUMENT])
def test_a_metric_that_is_listed_and_then_not_known_is_not_asked_for_again(
    tmp_path: Path, code: grpc.StatusCode
) -> None:
    host, nodes = host_of(tmp_path, "v6e", 4)
    runtime = Runtime(usual(FOUR))
    runtime.failures[DUTY] = code
    with workload(host, nodes, runtime), opened(host) as rig:
        for _ in range(2):
            found, sample = rig.sample()
            assert sample.errors == []
            assert ("duty_cycle", 0) not in found
            assert found["memory_used", 0] == GIB
        assert runtime.asked.count(DUTY) == 1


def test_numbers_that_fit_no_chips_are_an_error_and_no_values(tmp_path: Path) -> None:
    host = make_host(tmp_path, hostpid=False)
    add_chips(host, "v6e", 4)
    with serve(Runtime(usual(dict.fromkeys(range(3), FOUR[8])))) as address, opened(host, addresses=[address]) as rig:
        found, sample = rig.sample()
        assert not [name for name, _ in found if name.startswith(("duty", "memory"))]
        assert [error.kind for error in sample.errors] == ["parse"]
        assert "3 devices" in sample.errors[0].detail
        assert "4 chips" in sample.errors[0].detail
        assert found["libtpu_metric_service_up", 0] == 1


def test_a_workload_that_compiles_is_given_up_in_time_and_read_again_afterwards(tmp_path: Path) -> None:
    host, nodes = host_of(tmp_path, "v6e", 4)
    runtime = Runtime(usual(FOUR))
    with workload(host, nodes, runtime), opened(host, timeout=0.4) as rig:
        assert rig.of("duty_cycle")
        runtime.hold.clear()
        started = time.monotonic()
        sample = rig.collector.sample("normal")
        assert time.monotonic() - started < 1.5
        assert [error.kind for error in sample.errors] == ["timeout"]
        assert {r.value for r in sample.readings if r.series == "libtpu_metric_service_up"} == {0}
        assert not [r for r in sample.readings if r.series.startswith(("duty", "memory"))]
        runtime.hold.set()
        assert rig.of("duty_cycle") == {0: 0.0, 1: 25.0, 2: 0.0, 3: 25.0}


def test_a_process_that_hangs_does_not_take_from_the_others(tmp_path: Path) -> None:
    host, nodes = host_of(tmp_path, "v6e", 4)
    hung = Runtime({})
    hung.hold.clear()
    fine = Runtime(usual(FOUR))
    with workload(host, nodes, hung, fine), opened(host, timeout=0.6) as rig:
        found, sample = rig.sample()
        assert found["duty_cycle", 3] == 25.0
        assert {error.kind for error in sample.errors} == {"timeout"}
        hung.hold.set()


def test_the_end_of_a_job_and_the_next_one_are_followed(tmp_path: Path) -> None:
    host, nodes = host_of(tmp_path, "v6e", 4)
    with opened(host) as rig:
        with workload(host, nodes, Runtime(usual(FOUR)), pid=1000):
            until_owned(rig)
            assert rig.of("duty_cycle")[1] == 25.0
        found, sample = rig.sample()
        assert ("duty_cycle", 1) not in found
        assert found["libtpu_metric_service_up", 1] == 0
        assert sample.errors == []
        with workload(host, nodes, Runtime(usual(dict.fromkeys(range(4), (77.0, 5, V6E_TOTAL)))), pid=1001):
            until_owned(rig)
            assert rig.of("duty_cycle") == dict.fromkeys(range(4), 77.0)


def until_owned(rig: Rig) -> None:
    end = time.monotonic() + 10
    while not any(rig.of("tpu_processes").values()):
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("raw", "kind"),
    [(b"\xff" * 50, "parse"), (b"\x0a\x7f", "parse"), (b"", None)],
    ids=["rubbish", "cut off", "empty"],
)
def test_rubbish_for_one_metric_costs_that_metric_alone(tmp_path: Path, raw: bytes, kind: str | None) -> None:
    host, nodes = host_of(tmp_path, "v6e", 4)
    runtime = Runtime(usual(FOUR))
    runtime.raw[DUTY] = raw
    with workload(host, nodes, runtime), opened(host) as rig:
        found, sample = rig.sample()
        assert [error.kind for error in sample.errors] == ([kind] if kind else [])
        assert ("duty_cycle", 0) not in found
        assert found["memory_used", 3] == 2 * GIB


def test_another_server_at_the_port_is_told_and_harmless(tmp_path: Path) -> None:
    host, nodes = host_of(tmp_path, "v6e", 1)

    def web(connection: socket.socket) -> None:
        connection.recv(4096)
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
        connection.recv(4096)

    with tcp_server(web) as address:
        host.process(100, nodes, {"TPU_RUNTIME_METRICS_PORTS": address.rpartition(":")[2]})
        with opened(host) as rig:
            found, sample = rig.sample()
            assert found["libtpu_metric_service_up", 0] == 0
            assert {error.kind for error in sample.errors} == {"transient"}


def test_a_chip_that_falls_off_the_bus_is_lost_and_the_others_keep_their_names(tmp_path: Path) -> None:
    host, _ = host_of(tmp_path, "v5p", 4)
    with opened(host) as rig:
        before = [device.uuid for device in rig.devices]
        folder = host.root / "sys/bus/pci/devices" / rig.devices[1].pci_bus_id
        folder.rename(host.root / "gone")
        found, sample = rig.sample()
        assert sample.lost == [1]
        assert {place for _, place in found} == {0, 2, 3}
        assert [device.uuid for device in rig.collector.discover()] == before


def test_the_ports_that_libtpu_wants_are_never_bound(tmp_path: Path) -> None:
    """Another program can listen on all of them while the collector asks at the usual ports."""
    host = make_host(tmp_path, hostpid=False)
    add_chips(host, "v5e", 8)
    stop = threading.Event()
    refused: list[int] = []

    def take_and_give_back() -> None:
        while not stop.is_set():
            for port in range(8431, 8439):
                try:
                    socket.create_server(("127.0.0.1", port)).close()
                except OSError:
                    refused.append(port)

    with opened(host, timeout=0.2) as rig:
        taker = threading.Thread(target=take_and_give_back)
        taker.start()
        try:
            for _ in range(5):
                rig.collector.sample("normal")
        finally:
            stop.set()
            taker.join()
    assert refused == []


def test_a_host_without_chips_says_what_to_do(tmp_path: Path) -> None:
    with (
        pytest.raises(Unavailable, match="no TPU that is known is on the PCI bus") as caught,
        opened(make_host(tmp_path)),
    ):
        pass
    assert caught.value.state == "no_device"
    assert "plugin_url" in caught.value.hint


@pytest.mark.parametrize("options", [{"addresses": ["8431"]}, {"timeout": "long"}])
def test_a_wrong_option_is_named(tmp_path: Path, options: dict[str, Any]) -> None:
    host, _ = host_of(tmp_path, "v4", 1)
    with pytest.raises(Unavailable, match=r"collectors\.tpu\.options"):
        open_collector(settings(host, **options))


def test_read_errors_name_a_known_kind(tmp_path: Path) -> None:
    host, nodes = host_of(tmp_path, "v6e", 4)
    runtime = Runtime(usual(FOUR))
    runtime.failures = {DUTY: grpc.StatusCode.PERMISSION_DENIED}
    with workload(host, nodes, runtime), opened(host) as rig:
        errors = rig.sample()[1].errors
        assert [(error.device, error.kind) for error in errors] == [(NODE, "permission")]
        assert isinstance(errors[0], ReadError)
