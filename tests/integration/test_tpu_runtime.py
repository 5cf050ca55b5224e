"""The TPU collector on hosts where libtpu's metric service answers, or should."""

from __future__ import annotations

import contextlib
from pathlib import Path

import msgspec
import pytest

from collectors.base import NODE, Group, Process
from collectors.tpu import open_collector
from tests.fakes.tpu.service import DUTY, TOTAL, USED, Buckets, Runtime, Value, by_device, serve, usual
from tests.tpu_rig import FOUR, GIB, INSTANCE, V6E_TOTAL, Rig, host_of, opened, settings, workload

OURS = "0.0.0.0"
"""An address that is not the loopback's in words, and leads to this host: pods of our own are not to be had."""


def no_errors(rig: Rig) -> None:
    assert list(rig.sample()[1].errors) == []


@pytest.mark.parametrize("kind", ["v4", "v5e", "v5p", "v6e"])
def test_four_chips_tell_what_the_runtime_says_by_rank(tmp_path: Path, kind: str) -> None:
    host, nodes = host_of(tmp_path, kind, 4)
    told = {device: (duty, used, 15 * GIB) for device, (duty, used, _) in FOUR.items()}
    with workload(host, nodes, Runtime(usual(told))), opened(host) as rig:
        assert [device.model for device in rig.devices] == [f"TPU {kind}"] * 4
        found, sample = rig.sample()
        for place, device in enumerate(sorted(told)):
            duty, used, total = told[device]
            for series, value in (("duty_cycle", duty), ("memory_used", used), ("memory_total", total)):
                assert found[series, place] == found[f"{series}_node", place] == value
            assert found["libtpu_memory_free_bytes", place] == total - used
            assert found["libtpu_metric_service_up", place] == 1
            assert found["tpu_processes", place] == 1
            assert found["tpu_device_node_present", place] == 1
        assert sample.errors == []
        assert sample.lost == []
        assert rig.source == "runtime"


def test_devices_are_named_as_the_plugin_names_them(tmp_path: Path) -> None:
    host, _ = host_of(tmp_path, "v6e", 2)
    with opened(host, topology="2x4") as rig:
        first, second = rig.devices
        assert first.uuid == f"{INSTANCE}-0"
        assert second.raw_labels == (
            ("make", "cloud-tpu"), ("accelerator_id", f"{INSTANCE}-1"),
            ("model", "tpu-v6e-slice"), ("tpu_topology", "2x4"),
        )  # fmt: skip
        assert dict(second.ids) == {"device_name": "1", "slot": "0000:c0:02"}
        assert (first.kind, first.index, first.pci_bus_id, first.serial) == ("tpu", "0", "0000:c1:02.0", "")


def test_a_name_that_could_be_one_of_several_is_left_out(tmp_path: Path) -> None:
    host, _ = host_of(tmp_path, "v5e", 1)
    with opened(host) as rig:
        assert rig.devices[0].raw_labels == (("make", "cloud-tpu"), ("accelerator_id", f"{INSTANCE}-0"))
    with opened(host, model="tpu-v5-lite-device") as rig:
        assert ("model", "tpu-v5-lite-device") in rig.devices[0].raw_labels


def test_an_idle_host_has_devices_and_a_duty_cycle_of_0_and_nothing_invented(tmp_path: Path) -> None:
    host, _ = host_of(tmp_path, "v6e", 4)
    with opened(host) as rig:
        found, sample = rig.sample()
        assert {name for name, _ in found} == {
            "duty_cycle_node", "libtpu_metric_service_up", "tpu_processes", "tpu_device_node_present",
            "tpu_model_hbm_bytes", "tpu_model_tensorcores",
        }  # fmt: skip
        for place in range(4):
            assert found["duty_cycle_node", place] == 0
            assert found["libtpu_metric_service_up", place] == 0
            assert found["tpu_processes", place] == 0
            assert found["tpu_model_hbm_bytes", place] == 32 * GIB
            assert found["tpu_model_tensorcores", place] == 1
        assert sample.errors == []


def test_only_what_the_service_lists_is_asked_for(tmp_path: Path) -> None:
    host, nodes = host_of(tmp_path, "v6e", 4)
    runtime = Runtime({**usual(FOUR), "tensorcore_utilization": by_device(dict.fromkeys(FOUR, 0))})
    runtime.listed = [DUTY, USED]
    with workload(host, nodes, runtime), opened(host) as rig:
        found, sample = rig.sample()
        rig.sample()
        assert set(runtime.asked) == {DUTY, USED}
        assert runtime.lists == 1
        assert not [name for name, _ in found if "total" in name or "free" in name]
        assert found["memory_used", 3] == 2 * GIB
        assert sample.errors == []


def test_a_metric_that_lacks_a_device_moves_no_other_device(tmp_path: Path) -> None:
    host, nodes = host_of(tmp_path, "v6e", 4)
    runtime = Runtime(usual(FOUR))
    runtime.metrics[DUTY] = by_device({device: FOUR[device][0] for device in (13, 8, 12)})
    with workload(host, nodes, runtime), opened(host) as rig:
        assert rig.of("duty_cycle") == {0: 0.0, 2: 0.0, 3: 25.0}
        runtime.metrics[USED] = by_device({device: FOUR[device][1] for device in (8, 12, 13)})
        runtime.metrics[TOTAL] = by_device({8: V6E_TOTAL})
        assert rig.of("memory_used") == {0: GIB, 2: GIB, 3: 2 * GIB}
        no_errors(rig)


def test_each_process_has_its_port_and_its_chips(tmp_path: Path) -> None:
    host, nodes = host_of(tmp_path, "v6e", 4)
    first = Runtime(usual({n: FOUR[n] for n in (8, 9)}))
    second = Runtime(usual({n: FOUR[n] for n in (12, 13)}))
    with workload(host, nodes, first, second), opened(host) as rig:
        assert rig.of("duty_cycle") == {0: 0.0, 1: 25.0, 2: 0.0, 3: 25.0}
        no_errors(rig)


def test_a_primary_that_speaks_for_all_is_not_counted_twice(tmp_path: Path) -> None:
    host, nodes = host_of(tmp_path, "v6e", 4)
    primary = Runtime(usual(FOUR))
    second = Runtime(usual(dict.fromkeys((12, 13), (99.0, 1, V6E_TOTAL))))
    with workload(host, nodes, primary, second), opened(host) as rig:
        assert rig.of("duty_cycle") == {0: 0.0, 1: 25.0, 2: 0.0, 3: 25.0}


def test_two_workloads_with_the_same_numbers_keep_to_their_own_chips(tmp_path: Path) -> None:
    host, nodes = host_of(tmp_path, "7x", 4)
    total = 203_465_670_656
    told = Runtime(usual({0: (10.0, GIB, total), 1: (20.0, 2 * GIB, total)}))
    other = Runtime(usual({0: (30.0, 3 * GIB, total), 1: (40.0, 4 * GIB, total)}))
    with serve(told) as here, serve(other) as there:
        for pid, held, address, network in ((100, nodes[:4], here, "net:[2]"), (200, nodes[4:], there, "net:[3]")):
            port = address.rpartition(":")[2]
            host.process(pid, held, {"TPU_RUNTIME_METRICS_PORTS": port}, network, [OURS])
        with opened(host) as rig:
            assert rig.of("duty_cycle") == {0: 10.0, 1: 20.0, 2: 30.0, 3: 40.0}
            assert rig.of("memory_used") == {0: GIB, 1: 2 * GIB, 2: 3 * GIB, 3: 4 * GIB}
            no_errors(rig)


@pytest.mark.parametrize(
    ("total", "used"),
    [(94 * GIB, 3 * GIB), (189 * GIB, 2 * GIB)],
    ids=["each device has half of the chip", "each device tells the whole chip's"],
)
def test_two_devices_of_a_7x_chip_become_one(tmp_path: Path, total: int, used: int) -> None:
    host, nodes = host_of(tmp_path, "7x", 2)
    own = {4: GIB, 5: 2 * GIB, 6: GIB, 7: 2 * GIB} if total < 100 * GIB else dict.fromkeys(range(4, 8), 2 * GIB)
    told = {device: (10.0 * device, own[device], total) for device in range(4, 8)}
    runtime = Runtime(usual(told))
    runtime.metrics["tpu.runtime.hbm.utilization.percent"] = by_device({4: 10.0, 5: 30.0, 6: 0.0, 7: 0.0})
    runtime.metrics["tpu.runtime.tensorcore.idle_duration.seconds"] = by_device({4: 0.0, 5: 9.0, 6: 5.0, 7: 6.0})
    with workload(host, nodes, runtime), opened(host) as rig:
        found, sample = rig.sample()
        assert [found["duty_cycle", chip] for chip in (0, 1)] == [50.0, 70.0]
        assert [found["memory_used", chip] for chip in (0, 1)] == [used, used]
        assert found["memory_total", 0] == (2 * total if total < 100 * GIB else total)
        assert [found["libtpu_hbm_utilization_percent", chip] for chip in (0, 1)] == [20.0, 0.0]
        assert [found["libtpu_tensorcore_idle_duration_seconds", chip] for chip in (0, 1)] == [0.0, 5.0]
        assert [found["tpu_model_tensorcores", chip] for chip in (0, 1)] == [2, 2]
        assert sample.errors == []


def test_on_v3_a_chip_has_one_duty_cycle_and_two_memories(tmp_path: Path) -> None:
    host, nodes = host_of(tmp_path, "v3", 2)
    metrics = {
        DUTY: by_device({2: 30.0, 3: 60.0}),
        USED: by_device({4: GIB, 5: 2 * GIB, 6: 3 * GIB, 7: 4 * GIB}),
        TOTAL: by_device(dict.fromkeys((4, 5, 6, 7), 16 * GIB)),
    }
    with workload(host, nodes, Runtime(metrics)), opened(host) as rig:
        found, sample = rig.sample()
        assert [found["duty_cycle", chip] for chip in (0, 1)] == [30.0, 60.0]
        assert [found["memory_used", chip] for chip in (0, 1)] == [3 * GIB, 7 * GIB]
        assert [found["memory_total", chip] for chip in (0, 1)] == [32 * GIB, 32 * GIB]
        assert sample.errors == []


def test_a_total_of_zero_and_a_duty_cycle_out_of_range(tmp_path: Path) -> None:
    host, nodes = host_of(tmp_path, "v6e", 2)
    told = usual({0: (100.4, GIB, 0), 1: (-0.1, GIB, V6E_TOTAL)})
    with workload(host, nodes, Runtime(told)), opened(host) as rig:
        assert rig.of("duty_cycle") == {0: 100.0, 1: 0.0}
        assert rig.of("memory_total") == {1: V6E_TOTAL}
        assert set(rig.of("libtpu_memory_free_bytes")) == {1}


def test_errors_of_the_slice_and_of_multislice_are_faults_once(tmp_path: Path) -> None:
    host, nodes = host_of(tmp_path, "v5p", 2)
    runtime = Runtime(usual({0: (1.0, 1, 2), 1: (1.0, 1, 2)}))
    slice_labels = {"error_message": "chip 3 of host 7", "session_id": "s-1", "type": "LINK", "topology": "2x2x2"}
    with workload(host, nodes, runtime), opened(host) as rig:
        assert rig.sample()[1].faults == []
        runtime.metrics["slice.error.detected.gauge"] = [Value(1, slice_labels)]
        runtime.metrics["megascale.error.detected.gauge"] = [Value(1, {"error_type": "HANG_DETECTED"})]
    with workload(host, nodes, runtime, pid=1001), opened(host) as rig:
        first, second = rig.sample()[1], rig.sample()[1]
        assert sorted((fault.device, fault.code) for fault in first.faults) == [
            (0, "libtpu:hang_detected"), (0, "libtpu:slice_error"),
            (1, "libtpu:hang_detected"), (1, "libtpu:slice_error"),
        ]  # fmt: skip
        assert second.faults == []
        states = {(r.series, r.device, r.labels): r.value for r in second.readings if "error" in r.series}
        expected = (("slice_error_type", "LINK"), ("topology", "2x2x2"))
        assert states["libtpu_slice_error_detected", 1, expected] == 1
        assert states["libtpu_megascale_error_detected", 0, (("error_type", "HANG_DETECTED"),)] == 1
        runtime.metrics["slice.error.detected.gauge"] = [Value(0, slice_labels)]
        assert rig.sample()[1].faults == []
        runtime.metrics["slice.error.detected.gauge"] = [Value(1, {**slice_labels, "session_id": "s-2"})]
        assert {fault.code for fault in rig.sample()[1].faults} == {"libtpu:slice_error"}


FRAMEWORK = (("ml_framework_name", "UNKNOWN"), ("ml_framework_version", "x.y.z"))
DOUBLING = {"num_finite_buckets": 1, "growth_factor": 2.0, "scale": 50.0}
HEAD = (("make", "cloud-tpu"), ("model", "tpu-v6e-slice"), ("tpu_topology", "4x4"))


def test_multislice_counters_and_histograms_are_the_plugins_series(tmp_path: Path) -> None:
    host, nodes = host_of(tmp_path, "v6e", 4)
    size = {"buffer-size": "8MB+", "type": "ALL_REDUCE"}
    runtime = Runtime(
        {
            **usual(FOUR),
            "megascale.grpc_tcp_packets_sent.cumulative.count": [Value(4711, counter=True)],
            "megascale.dcn_transfer_latencies.microsecond.cumulative.distribution": [
                Value(Buckets(2000.0, [1, 2, 3], {"explicit_buckets": {"bounds": [1000.0, 2500.0]}}), size)
            ],
            "megascale.host_to_device_transfer_latencies.microsecond.cumulative.distribution": [
                Value(Buckets(5.0, [2], {"explicit_buckets": {"bounds": [10.0]}}), {"size": "4MB+"})
            ],
            "megascale.dcn_transfer_size.bytes.cumulative.distribution": [
                Value(Buckets(64.0, [0, 4], {"exponential_buckets": DOUBLING}))
            ],
            "hlo.queue.size.gauge": [Value(3, {"device_ordinal": "0", "core_type": "tensorcore"})],
            "hlo.execution.timing.distribution.microseconds": [
                Value(Buckets(1500.5, [2], {}), {"device_ordinal": 0, "core_type": "tensorcore"})
            ],
            "tpu.runtime.uptime.seconds.gauge": [Value(86400, dict(FRAMEWORK))],
        }
    )  # fmt: skip
    with workload(host, nodes, runtime), opened(host, topology="4x4") as rig:
        sample = rig.sample()[1]
    told = {(r.series, r.labels): r.value for r in sample.readings if r.device == NODE}
    name = "dcn_transfer_latencies_microsecond"
    own = (("buffer_size", "8MB+"), ("type", "ALL_REDUCE"))
    process = (("device_ordinal", "0"), ("core_type", "tensorcore"))
    assert told == {
        ("grpc_tcp_packets_sent_count", HEAD): 4711,
        (f"{name}_bucket", (*HEAD, *own, ("le", "1000"))): 1,
        (f"{name}_bucket", (*HEAD, *own, ("le", "2500"))): 3,
        (f"{name}_bucket", (*HEAD, *own, ("le", "+Inf"))): 6,
        (f"{name}_sum", (*HEAD, *own)): 12000.0,
        (f"{name}_count", (*HEAD, *own)): 6,
        ("host_to_device_transfer_latencies_microsecond_bucket", (*HEAD, ("buffer_size", "4MB+"), ("le", "10"))): 2,
        ("host_to_device_transfer_latencies_microsecond_bucket", (*HEAD, ("buffer_size", "4MB+"), ("le", "+Inf"))): 2,
        ("host_to_device_transfer_latencies_microsecond_sum", (*HEAD, ("buffer_size", "4MB+"))): 10.0,
        ("host_to_device_transfer_latencies_microsecond_count", (*HEAD, ("buffer_size", "4MB+"))): 2,
        ("dcn_transfer_sizes_bytes_bucket", (*HEAD, ("le", "50"))): 0,
        ("dcn_transfer_sizes_bytes_bucket", (*HEAD, ("le", "100"))): 4,
        ("dcn_transfer_sizes_bytes_bucket", (*HEAD, ("le", "+Inf"))): 4,
        ("dcn_transfer_sizes_bytes_sum", HEAD): 256.0,
        ("dcn_transfer_sizes_bytes_count", HEAD): 4,
        ("libtpu_hlo_queue_size", process): 3,
        ("libtpu_hlo_execution_mean_microseconds", process): 1500.5,
        ("libtpu_uptime_seconds", FRAMEWORK): 86400,
    }
    assert sample.errors == []


def test_only_what_is_wanted_is_read(tmp_path: Path) -> None:
    host, nodes = host_of(tmp_path, "v6e", 4)
    runtime = Runtime(usual(FOUR))
    with workload(host, nodes, runtime):
        plain = settings(host)
        wanted: dict[Group, frozenset[str]] = {
            "fast": frozenset(("duty_cycle",)),
            "normal": frozenset[str](),
            "slow": frozenset[str](),
        }
        collector = open_collector(
            type(plain)(wanted=wanted, paths=plain.paths, options=plain.options, source="runtime")
        )
        with contextlib.closing(collector):
            rig = Rig(collector)
            found, _ = rig.sample()
            assert {name for name, _ in found} == {"duty_cycle"}
            assert set(runtime.asked) == {DUTY}


def test_without_an_instance_id_the_node_names_the_chips(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GCE_METADATA_HOST", "127.0.0.1:1")
    host, _ = host_of(tmp_path, "v4", 1)
    with opened(host, instance_id="") as rig:
        assert rig.devices[0].uuid == "node-a-0"


def test_attribution_is_told_which_processes_hold_which_chip(tmp_path: Path) -> None:
    host, nodes = host_of(tmp_path, "7x", 2)
    host.process(300, nodes)
    host.process(200, nodes[2:])
    asked = msgspec.structs.replace(settings(host), processes=True)
    with contextlib.closing(open_collector(asked)) as collector:
        collector.discover()
        assert collector.sample("slow").processes is None
        assert collector.sample("normal").processes == [Process(0, 300), Process(1, 200), Process(1, 300)]
    with contextlib.closing(open_collector(settings(host))) as collector:
        collector.discover()
        assert collector.sample("normal").processes is None
