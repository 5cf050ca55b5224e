"""The TPU collector on GKE, where the device plugin answers: natively preferred, and through the bridge."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
import pytest

from collectors.base import NODE, Sample, Settings, Unavailable
from collectors.tpu import open_collector
from collectors.tpu.plugin import open_collector as open_bridged
from exporter.model import Key
from exporter.normalize import make_plan
from exporter.tables import tables
from tests.bridge_sources import PageServer
from tests.fakes.tpu.host import Host, add_chips, make_host
from tests.fakes.tpu.page import Board, Node, text
from tests.fakes.tpu.service import Runtime, usual
from tests.tpu_rig import CATALOGUE, GIB, V6E_TOTAL, Rig, host_of, opened, settings, workload

USED = [17_695_000_000, 2 * GIB, 3 * GIB, 4 * GIB]


def boards(numbers: tuple[int | None, ...]) -> list[Board]:
    """Chips by place, each with figures of its own."""
    return [
        Board(
            number=number,
            duty=0.0 if number is None else 10.0 * place + 5,
            used=0.0 if number is None else USED[place],
            total=0.0 if number is None else V6E_TOTAL,
            tensorcore=20.0 + place,
            bandwidth=40.0 + place,
        )
        for place, number in enumerate(numbers)
    ]


SECOND_HOST = Node(chips=boards((4, 5, 6, 7)))
GAPS = Node(chips=boards((8, 9, 12, 13)))
IDLE = Node(chips=boards((None, None, None, None)))


@contextlib.contextmanager
def plugin(node: Node) -> Iterator[PageServer]:
    with PageServer(text(node)).serving() as server:
        yield server


Common = Mapping[tuple[str, str], float]


def common(rig: Rig, sample: Sample) -> Common:
    """Metric and index of the device → value."""
    layout = tuple(Key(reading.series, reading.device, reading.labels) for reading in sample.readings)
    plan = make_plan(CATALOGUE, rig.devices, {"normal": layout})
    values = [reading.value for reading in sample.readings]
    index = {device.uuid: device.index for device in rig.devices}
    return {(out.id.metric, index[out.id.uuid]): out.evaluate(values) for out in plan.outputs}


def expected(place: int) -> dict[tuple[str, str], float]:
    """What a bound chip's page means in the common schema."""
    index = str(place)
    return {
        ("accel_utilization_ratio", index): (10 * place + 5) / 100,
        ("accel_compute_active_ratio", index): (10 * place + 5) / 100,
        ("accel_matrix_active_ratio", index): (20 + place) / 100,
        ("accel_memory_bandwidth_active_ratio", index): (40 + place) / 100,
        ("accel_memory_used_bytes", index): USED[place],
        ("accel_memory_total_bytes", index): V6E_TOTAL,
    }


@pytest.mark.parametrize("node", [SECOND_HOST, GAPS], ids=["4 to 7", "8, 9, 12, 13"])
@pytest.mark.parametrize("hidden", [False, True], ids=["chips on the bus", "no bus in sight"])
def test_each_chip_has_its_own_figures_whatever_the_plugin_calls_it(tmp_path: Path, node: Node, hidden: bool) -> None:
    host = make_host(tmp_path)
    if not hidden:
        add_chips(host, "v6e", 4)
    with plugin(node) as server, opened(host, "auto", plugin_url=server.url, instance_id="") as rig:
        assert rig.source == "plugin"
        assert [device.uuid for device in rig.devices] == [f"1234567890123456789-{place}" for place in range(4)]
        assert [device.index for device in rig.devices] == ["0", "1", "2", "3"]
        _, sample = rig.sample()
        found = common(rig, sample)
        for place in range(4):
            assert expected(place).items() <= found.items()
            assert found["accel_memory_free_bytes", str(place)] == V6E_TOTAL - USED[place]
        assert {key[1] for key in found} == {"0", "1", "2", "3"}
        assert sample.errors == []
        assert not sample.rediscover


def test_raw_series_keep_the_plugins_names_labels_and_values(tmp_path: Path) -> None:
    host, _ = host_of(tmp_path, "v6e", 4)
    with plugin(SECOND_HOST) as server, opened(host, "auto", plugin_url=server.url) as rig:
        assert dict(rig.devices[2].raw_labels) == {
            "make": "cloud-tpu",
            "accelerator_id": "1234567890123456789-2",
            "model": "tpu-v6e-slice",
            "tpu_topology": "4x4",
        }
        found, sample = rig.sample()
        assert found["duty_cycle", 1] == found["duty_cycle_node", 1] == 15
        assert found["memory_used", 0] == 17_695_000_000
        assert found["tensorcore_utilization_node", 3] == 23
        request = next(r for r in sample.readings if r.series == "accelerator_request")
        assert (request.device, request.value) == (NODE, 4)
        assert dict(request.labels) == {
            "namespace": "ns", "pod": "w-0", "container": "vllm-worker", "resource_name": "google.com/tpu",
        }  # fmt: skip
        assert not [name for name, _ in found if name.startswith("libtpu_metric")]


def test_idle_chips_are_told_by_the_plugin(tmp_path: Path) -> None:
    host, _ = host_of(tmp_path, "v6e", 4)
    with plugin(IDLE) as server, opened(host, "auto", plugin_url=server.url) as rig:
        found, sample = rig.sample()
        assert [found["duty_cycle_node", place] for place in range(4)] == [0, 0, 0, 0]
        assert [found["tensorcore_utilization_node", place] for place in range(4)] == [20, 21, 22, 23]
        assert not [name for name, _ in found if name in ("duty_cycle", "memory_used", "memory_total")]
        assert sample.errors == []


def test_the_plugin_is_preferred_to_the_runtime_and_never_mixed_with_it(tmp_path: Path) -> None:
    host, nodes = host_of(tmp_path, "v6e", 4)
    runtime = Runtime(usual(dict.fromkeys(range(4), (99.0, 1, 2))))
    with workload(host, nodes, runtime), plugin(SECOND_HOST) as server:
        with opened(host, "auto", plugin_url=server.url) as rig:
            assert rig.of("duty_cycle") == {0: 5, 1: 15, 2: 25, 3: 35}
            assert rig.of("tpu_processes") == dict.fromkeys(range(4), 1)
            assert runtime.asked == []
        with opened(host, "runtime", plugin_url=server.url) as rig:
            assert (rig.source, rig.of("duty_cycle")) == ("runtime", dict.fromkeys(range(4), 99))


def test_a_moment_in_which_the_plugin_has_emptied_its_gauges_loses_no_chip(tmp_path: Path) -> None:
    host, _ = host_of(tmp_path, "v6e", 4)
    with plugin(SECOND_HOST) as server, opened(host, "auto", plugin_url=server.url) as rig:
        rig.sample()
        server.body = text(msgspec.structs.replace(SECOND_HOST, emptied=True))
        found, sample = rig.sample()
        assert not [name for name, _ in found if name.endswith("_utilization_node")]
        assert found["duty_cycle", 3] == 35
        server.body = text(msgspec.structs.replace(IDLE, emptied=True))
        nothing, empty = rig.sample()
        assert not [name for name, _ in nothing if name.startswith(("duty", "memory", "tensor"))]
        server.body = text(SECOND_HOST)
        assert rig.of("tensorcore_utilization_node") == {0: 20, 1: 21, 2: 22, 3: 23}
        assert not sample.rediscover
        assert not empty.rediscover
        assert sample.lost == empty.lost == []


def test_numbers_that_tell_no_place_are_an_error_and_cost_no_other_series(tmp_path: Path) -> None:
    host, _ = host_of(tmp_path, "7x", 4)
    node = Node(chips=boards((4, 5, None, None)), model="tpu7x")
    with plugin(node) as server, opened(host, "auto", plugin_url=server.url) as rig:
        found, sample = rig.sample()
        assert not [name for name, _ in found if name.startswith(("duty", "memory_used", "memory_total"))]
        assert found["tensorcore_utilization_node", 2] == 22
        assert {error.kind for error in sample.errors} == {"parse"}
        assert "4, 5" in sample.errors[0].detail


def test_the_plugin_may_end_and_come_again(tmp_path: Path) -> None:
    host, nodes = host_of(tmp_path, "v6e", 4)
    runtime = Runtime(usual(dict.fromkeys(range(4), (99.0, 1, 2))))
    with (
        workload(host, nodes, runtime),
        plugin(SECOND_HOST) as server,
        opened(host, "auto", plugin_url=server.url) as rig,
    ):
        rig.sample()
        server.status = 503
        for _ in range(3):
            sample = rig.collector.sample("normal")
        assert sample.rediscover
        rig.devices = rig.collector.discover()
        assert rig.source == "runtime"
        assert rig.of("duty_cycle") == dict.fromkeys(range(4), 99)


def test_without_the_runtime_the_end_of_the_plugin_is_told(tmp_path: Path) -> None:
    host, _ = host_of(tmp_path, "v6e", 4)
    with plugin(SECOND_HOST) as server, opened(host, "plugin", plugin_url=server.url) as rig:
        rig.sample()
        server.status = 503
        for _ in range(2):
            assert [error.kind for error in rig.collector.sample("normal").errors] == ["transient"]
        with pytest.raises(Unavailable, match="503"):
            rig.collector.sample("normal")


def test_if_the_plugin_alone_is_wanted_and_is_not_there_that_is_said(tmp_path: Path) -> None:
    host, _ = host_of(tmp_path, "v6e", 4)
    with pytest.raises(Unavailable, match="cannot be reached"), opened(host, "plugin"):
        pass


def test_another_exporter_at_the_plugins_port_is_not_taken_for_it(tmp_path: Path) -> None:
    host, _ = host_of(tmp_path, "v6e", 2)
    page = '# TYPE duty_cycle gauge\nduty_cycle{make="nvidia",node="x"} 3\nnode_load1 0.5\n'
    with PageServer(page).serving() as server:
        started = time.monotonic()
        with opened(host, "auto", plugin_url=server.url) as rig:
            assert time.monotonic() - started < 5
            assert rig.source == "runtime"
            assert len(rig.devices) == 2
            assert not rig.sample()[1].rediscover


@pytest.mark.parametrize("variable", ["NODE_IP", "HOST_IP"])
def test_the_plugin_is_looked_for_at_the_nodes_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "127.0.0.77")
    host = make_host(tmp_path)
    with pytest.raises(Unavailable, match=r"http://127\.0\.0\.77:2112/metrics"), opened(host, "auto", plugin_url=""):
        pass


def bridged(url: str) -> Settings:
    """As the agent makes them for the bridge."""
    plain = settings(Host(Path("nowhere")))
    return msgspec.structs.replace(plain, options={**tables(CATALOGUE), "url": url})


@pytest.mark.parametrize("node", [SECOND_HOST, GAPS, IDLE], ids=["4 to 7", "8, 9, 12, 13", "idle"])
def test_the_bridge_gives_the_same_common_values_as_the_native_collector(tmp_path: Path, node: Node) -> None:
    host, _ = host_of(tmp_path, "v6e", 4)
    with plugin(node) as server:
        collector = open_bridged(bridged(server.url))
        with contextlib.closing(collector), opened(host, "auto", plugin_url=server.url) as native:
            through_bridge = Rig(collector)
            values = common(through_bridge, through_bridge.sample()[1])
            own = common(native, native.sample()[1])
            ours = {"accel_memory_free_bytes", "accel_processes", "accel_capacity_memory_bytes"}
            ours |= {"accel_compute_units", "accel_capacity_compute_units"}
            assert values == {key: value for key, value in own.items() if key[0] not in ours}
            assert values
            assert [d.uuid for d in through_bridge.devices] == [d.uuid for d in native.devices]
            assert [d.index for d in through_bridge.devices] == [d.index for d in native.devices]


def test_a_port_that_accepts_and_says_nothing_is_left_in_time(tmp_path: Path) -> None:
    host, _ = host_of(tmp_path, "v6e", 1)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/metrics"
        started = time.monotonic()
        collector = open_collector(settings(host, "auto", plugin_url=url, timeout=0.3))
        with contextlib.closing(collector):
            assert Rig(collector).source == "runtime"
        assert time.monotonic() - started < 3
