"""What the Neuron collector makes of each generation of devices, drivers and tools."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from collectors.base import NODE, Unavailable
from collectors.neuron import collector, open_collector
from tests.fakes.neuron import MACHINES, Machine, NeuronHost, RuntimeData, make_host, report
from tests.fakes.neuron.machines import CATEGORIES, INSTANCE, device_memory, runtime_memory
from tests.integration.neuron_rig import Rig, rig, settings

LATENCY = {"p0": 0.011, "p50": 0.0123, "p99": 0.019, "p100": 0.02}


def labels(machine: Machine) -> tuple[tuple[str, str], ...]:
    """The script's labels of the instance, in their order."""
    return (
        ("availability_zone", "us-east-1b"),
        ("instance_id", INSTANCE["instance_id"]),
        ("instance_name", ""),
        ("instance_type", machine.instance_type),
        ("region", "us-east-1"),
        ("subnet_id", "subnet-1a2b3c4d"),
    )


def lines(host: NeuronHost, *reports: dict[str, Any]) -> None:
    """neuron-monitor writes these reports, and then no more."""
    host.scenario([{"hang": True}], first=[{"text": "".join(json.dumps(one) + "\n" for one in reports)}])


def busy(host: NeuronHost, *runtimes: RuntimeData) -> None:
    host.scenario(report(host.machine, runtimes))


@pytest.mark.parametrize("name", MACHINES)
def test_devices_and_cores_of_each_generation(tmp_path: Path, name: str) -> None:
    machine = MACHINES[name]
    host = make_host(tmp_path / "host", machine)
    with rig(host) as found:
        wholes = [device for device in found.devices if not device.partition]
        parts = [device for device in found.devices if device.partition]
        assert [device.index for device in wholes] == [str(index) for index in range(machine.devices)]
        assert [part.partition for part in parts] == [str(core) for core in range(machine.devices * machine.cores)]
        for index, device in enumerate(wholes):
            serial = machine.serial(index) if machine.serials else ""
            assert device.uuid == (serial or f"{INSTANCE['instance_id']}-neuron{index}")
            assert (device.serial, device.model, device.driver_version) == (serial, machine.device_name, machine.driver)
            assert (device.pci_bus_id, device.numa_node) == (f"0000:{machine.bdf(index)}", str(index % 2))
            assert device.kind == "npu"
            assert device.raw_labels == labels(machine)
        for part in parts:
            whole = wholes[int(part.partition) // machine.cores]
            assert (part.uuid, part.index) == (whole.uuid, whole.index)
            assert part.partition_profile == (f"lnc{machine.lnc}" if machine.tells_lnc else "")
            assert part.ids == {"neuroncore": part.partition}
        common = found.common()
        assert common["accel_capacity_memory_bytes", "0", ""] == machine.memory_bytes
        assert common["accel_capacity_compute_units", "0", ""] == machine.physical
        assert common["accel_compute_units", "0", "0"] == machine.lnc
        assert getattr(found.collector, "source", None) == "monitor"
        assert found.errors == []


def test_inf1_without_serial_numbers_is_named_after_its_instance(tmp_path: Path) -> None:
    with rig(make_host(tmp_path / "host", MACHINES["inf1"])) as found:
        assert [device.uuid for device in found.devices if not device.partition] == [
            f"i-0a1b2c3d4e5f60718-neuron{index}" for index in range(4)
        ]


def test_the_scripts_series_of_two_runtimes(tmp_path: Path) -> None:
    machine = MACHINES["trn1"]
    host = make_host(tmp_path / "host", machine)
    first = RuntimeData(784315, "535", {0: 12.5}, completed=7, errors={"numerical": 2}, latency=LATENCY)
    second = RuntimeData(784318, "job-9", {2: 42.5, 3: 100.0}, completed=1)
    host.scenario([{"hang": True}], first=report(machine, [first, second]))
    with rig(host) as found:
        base, readings = labels(machine), found.readings
        core3 = found.position(1, 3)
        for core in range(32):
            position = found.position(core // 2, core)
            for runtime in (first, second):
                key = (
                    "neuroncore_utilization_ratio",
                    position,
                    (("neuroncore", str(core)), ("runtime_tag", runtime.tag)),
                )
                assert readings[key] == runtime.cores.get(core, 0) / 100
        for place, category in enumerate(CATEGORIES):
            own = (("memory_location", "None"), ("neuroncore", "3"), ("runtime_tag", "job-9"))
            assert readings[f"neuroncore_memory_usage_{category}", core3, own] == 4 * 2**20 + place
        used = sum(sum(runtime_memory(core).values()) for core in (2, 3))

        def on_node(series: str, *more: tuple[str, str]) -> float:
            return readings[series, NODE, (*base, *more)]

        tag = ("runtime_tag", "535")
        memory, device = "neuron_runtime_memory_used_bytes", ("memory_location", "neuron_device")
        assert on_node(memory, device, ("runtime_tag", "job-9")) == used
        assert on_node(memory, ("memory_location", "host"), tag) == 6997643264
        assert on_node("execution_status_total", tag, ("status_type", "completed")) == 7
        assert on_node("execution_status_total", tag, ("status_type", "timed_out")) == 0
        assert on_node("execution_errors_total", ("error_type", "numerical"), tag) == 2
        for percentile, seconds in LATENCY.items():
            assert on_node("execution_latency_seconds", ("percentile", percentile), tag) == seconds
        assert found.values("execution_latency_seconds", runtime_tag="job-9") == []
        assert on_node("neuron_runtime_vcpu_usage_ratio", tag, ("usage_type", "user")) == 0.425
        assert on_node("system_vcpu_count") == 8
        assert on_node("system_vcpu_usage_ratio", ("usage_type", "user")) == pytest.approx(0.31)
        assert on_node("system_vcpu_usage_ratio", ("usage_type", "system")) == pytest.approx(0.125)
        assert on_node("system_memory_used_bytes") == 16 * 2**30
        assert on_node("system_swap_total_bytes") == 0
        assert on_node("instance_info") == 1
        hardware = (
            ("neuron_device_count", "16"),
            ("neuron_device_memory_size", "34359738368"),
            ("neuroncore_per_device_count", "2"),
        )
        assert on_node("neuron_hardware_info", *hardware) == 1
        event = (("event_type", "mem_ecc_corrected"), ("neuron_device_index", "7"))
        assert readings["hardware_ecc_events_total", found.position(7), event] == 0


def test_utilization_of_a_core_is_its_own_runtimes_and_zero_where_nobody_works(tmp_path: Path) -> None:
    host = make_host(tmp_path / "host", MACHINES["trn1"])
    busy(host, RuntimeData(1, "1", {0: 12.5}), RuntimeData(2, "1", {1: 99.5}))
    with rig(host) as found:
        common = found.common()
        assert common["accel_utilization_ratio", "0", "0"] == 0.125
        assert common["accel_compute_active_ratio", "0", "1"] == 0.995
        assert [common["accel_utilization_ratio", str(core // 2), str(core)] for core in range(2, 32)] == [0.0] * 30
        assert common["accel_processes", "0", "0"] == 1
        assert common["accel_processes", "1", "2"] == 0
        assert common["accel_process_memory_used_bytes", "0", "1", "2"] == sum(runtime_memory(1).values())


def test_an_idle_node_has_zeros_in_the_common_schema_and_none_in_the_raw_one(tmp_path: Path) -> None:
    host = make_host(tmp_path / "host", MACHINES["inf2"])
    with rig(host) as found:
        assert found.common()["accel_utilization_ratio", "0", "1"] == 0
        assert found.values("neuroncore_utilization_ratio") == []
        assert found.values("execution_status_total") == []
        assert found.values("instance_info") == [1]


def test_without_access_to_the_devices_there_are_no_zeros_but_an_error(tmp_path: Path) -> None:
    machine = MACHINES["inf2"]
    host = make_host(tmp_path / "host", machine)
    blind = report(machine)
    blind["system_data"]["neuron_hw_counters"]["neuron_devices"] = None
    host.scenario(blind)
    with rig(host) as found:
        found.until(lambda: found.errors)
        assert ("accel_utilization_ratio", "0", "0") not in found.common()
        assert ("accel_processes", "0", "0") not in found.common()
        assert any("/dev/neuron" in text for _, text in found.errors)
        assert found.values("hardware_ecc_events_total") == []


def test_a_group_in_error_gives_nothing_and_the_others_go_on(tmp_path: Path) -> None:
    machine = MACHINES["inf2"]
    host = make_host(tmp_path / "host", machine)
    broken = {
        "neuroncore_counters": "cannot read counters",
        "neuron_runtime_vcpu_usage": "open /proc/1/stat: no such file or directory",
    }
    busy(host, RuntimeData(1, "1", {0: 50}, broken=broken), RuntimeData(2, "2", {1: 25}))
    with rig(host) as found:
        found.until(lambda: found.errors)
        assert {kind for kind, _ in found.errors} == {"transient"}
        assert all("cannot read counters" in text for _, text in found.errors)
        assert found.values("neuroncore_utilization_ratio", runtime_tag="1") == []
        # Core 0 may be at work, since one runtime did not tell: the zero of the other one says nothing.
        assert found.values("neuron_core_utilization_ratio", neuroncore="0") == []
        assert found.values("neuron_core_utilization_ratio", neuroncore="1") == [0.25]
        assert found.value("neuroncore_utilization_ratio", runtime_tag="2", neuroncore="1") == 0.25
        assert found.value("execution_status_total", runtime_tag="1", status_type="completed") >= 100
        assert found.values("neuron_runtime_vcpu_usage_ratio", runtime_tag="1") == []


def test_counters_add_up_over_reports_and_end_with_their_runtime(tmp_path: Path) -> None:
    machine = MACHINES["inf2"]
    host = make_host(tmp_path / "host", machine)
    lines(host, *(report(machine, [RuntimeData(1, "1", {0: 1}, completed=count)]) for count in (5, 7, 11)))
    with rig(host) as found:
        found.until(lambda: found.values("execution_status_total", status_type="completed") == [23])
        assert found.values("execution_status_total", status_type="timed_out") == [0]
    lines(host, report(machine, [RuntimeData(1, "1", {0: 1})]), report(machine))
    with rig(host) as found:
        found.until(lambda: not found.values("execution_status_total"))


def test_ecc_counts_of_neuron_monitor_are_added_as_the_script_does_and_safely_beside_it(tmp_path: Path) -> None:
    """If they are totals, the script's counter grows without events; the other one does not."""
    machine = MACHINES["inf2"]
    host = make_host(tmp_path / "host", machine)
    numbers = (0, 3, 3, 0, 2)
    lines(host, *(report(machine, ecc={0: {"mem_ecc_corrected": number}}) for number in numbers))
    with rig(host) as found:
        event = {"event_type": "mem_ecc_corrected"}
        found.until(lambda: found.values("hardware_ecc_events_total", **event) == [8])
        assert found.values("neuron_monitor_ecc_events_total", **event) == [5]
        assert found.common()["accel_memory_errors_total", "0", "", "true", "hbm"] == 5


def test_latency_stands_on_every_device_that_the_runtime_works_on(tmp_path: Path) -> None:
    host = make_host(tmp_path / "host", MACHINES["trn1"])
    slow = {"p50": 0.5}
    busy(host, RuntimeData(1, "1", {0: 5, 2: 5}, latency=LATENCY), RuntimeData(2, "2", {3: 5}, latency=slow))
    with rig(host) as found:
        common = found.common()
        metric = "accel_execution_latency_seconds"
        assert common[metric, "0", "", "p50"] == 0.0123
        assert common[metric, "1", "", "p50"] == 0.5
        assert common[metric, "1", "", "p99"] == 0.019
        assert (metric, "2", "", "p50") not in common


def test_processes_are_told_to_attribution_by_core(tmp_path: Path) -> None:
    host = make_host(tmp_path / "host", MACHINES["trn1"])
    busy(host, RuntimeData(784315, "1", {0: 12.5, 1: 0}), RuntimeData(784318, "1", {5: 100}))
    made = open_collector(msgspec.structs.replace(settings(host), processes=True))
    found = Rig(made)
    try:
        found.discover()
        found.sample()
        told = found.samples["normal"].processes
        assert told is not None
        assert [(one.pid, found.devices[one.device].partition, one.memory, one.utilization) for one in told] == [
            (784315, "0", sum(runtime_memory(0).values()), 0.125),
            (784315, "1", sum(runtime_memory(1).values()), 0.0),
            (784318, "5", sum(runtime_memory(5).values()), 1.0),
        ]
        assert found.samples["slow"].processes is None
    finally:
        made.close()


def test_a_configured_program_that_is_not_there_is_told(tmp_path: Path) -> None:
    with rig(make_host(tmp_path / "host", MACHINES["inf2"]), monitor="/nowhere/neuron-monitor") as found:
        assert getattr(found.collector, "source", None) == "sysfs"
        assert found.errors == [
            ("library", "the option monitor names no program that can be run: /nowhere/neuron-monitor")
        ]


def test_the_instances_labels_stay_while_its_metadata_are_out_of_reach(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collector, "_REDISCOVER_EVERY", 0.0)
    machine = MACHINES["inf1"]
    host = make_host(tmp_path / "host", machine)
    away = report(machine)
    away["instance_info"] = {"error": "metadata service not reachable", "instance_id": "", "instance_name": None}
    with rig(host) as found:
        host.scenario(away)
        found.until(lambda: any("metadata" in text for _, text in found.errors))
        assert not found.samples["normal"].rediscover
        found.discover()
        assert found.devices[0].raw_labels == labels(machine)
        assert found.devices[0].uuid == "i-0a1b2c3d4e5f60718-neuron0"


def test_flops_are_the_effective_ones_where_they_are_told(tmp_path: Path) -> None:
    host = make_host(tmp_path / "host", MACHINES["inf2"])
    busy(host, RuntimeData(1, "1", {0: 5}, effective_flops=1.2e13), RuntimeData(2, "2", {1: 5}))
    with rig(host) as found:
        assert found.common()["accel_flops_per_second", "0", "0"] == 1.2e13


def test_physical_cores_behind_a_logical_one(tmp_path: Path) -> None:
    host = make_host(tmp_path / "host", MACHINES["trn2"])
    busy(host, RuntimeData(1, "1", {0: 42}, physical={0: {0: 21.0, 1: 63.0}}))
    with rig(host) as found:
        series = "neuron_physical_core_utilization_ratio"
        assert found.value(series, neuroncore="0", physical_neuroncore="1") == 0.63
        assert found.common()["accel_utilization_ratio", "0", "0"] == 0.42


def test_the_ultraserver_is_a_label_where_there_is_one(tmp_path: Path) -> None:
    machine = MACHINES["trn2"]
    host = make_host(tmp_path / "host", machine)
    host.scenario(report(machine, ultraserver="u-cafb07773a569a23"))
    with rig(host) as found:
        assert found.devices[0].raw_labels == (*labels(machine), ("ultraserver_id", "u-cafb07773a569a23"))


# What is not there


def refused(found: Rig) -> tuple[str, str]:
    with pytest.raises(Unavailable) as caught:
        found.discover()
    found.collector.close()
    return caught.value.state, caught.value.hint


def test_from_sysfs_alone_the_parts_are_the_physical_cores_and_no_program_runs(tmp_path: Path) -> None:
    host = make_host(tmp_path / "host", MACHINES["trn2"])
    with rig(host, "sysfs") as found:
        assert getattr(found.collector, "source", None) == "sysfs"
        assert [part.partition for part in found.devices if part.partition] == [str(core) for core in range(16)]
        assert {part.partition_profile for part in found.devices} == {""}
        assert found.common()["accel_memory_used_bytes", "1", "11", "device"] == device_memory(1, 3)
        assert not any(key[0] == "accel_utilization_ratio" for key in found.common())
        assert (host.starts, host.ls_starts) == ([], 0)


def test_without_the_tools_sysfs_is_read(tmp_path: Path) -> None:
    with rig(make_host(tmp_path / "host", MACHINES["inf2"], tools=False)) as found:
        assert getattr(found.collector, "source", None) == "sysfs"
        assert found.errors == []


def test_neuron_monitor_that_is_asked_for_and_missing_is_named(tmp_path: Path) -> None:
    host = make_host(tmp_path / "host", MACHINES["inf2"], tools=False)
    state, hint = refused(Rig(open_collector(settings(host, "monitor"))))
    assert state == "no_library"
    assert "aws-neuronx-tools" in hint


def test_without_the_driver_the_hint_says_what_to_load(tmp_path: Path) -> None:
    host = make_host(tmp_path / "host", MACHINES["inf2"])
    host.unload_driver()
    host.scenario([], first=[{"stderr": "FATA[0000] neuron driver is not loaded"}, {"exit": 1}])
    (host.tools / "ls.json").unlink()
    state, hint = refused(Rig(open_collector(settings(host))))
    assert state == "no_driver"
    assert "modprobe neuron" in hint
