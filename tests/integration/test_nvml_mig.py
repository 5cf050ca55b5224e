"""GPUs that are cut into MIG instances: what stands where, and that a new layout is noticed."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.fakes.nvml import Scenario, boards, install, scenarios
from tests.fakes.nvml.gpus import GPM_RATIOS
from tests.integration.collector_child import RefusedError
from tests.integration.nvml_child import Child, settings

pytestmark = pytest.mark.gcc

MIB = 1 << 20
DEV = "DCGM_FI_DEV_"
PROF = "DCGM_FI_PROF_"
PARENT = "GPU-a1000000-0000-4000-8000-000000000000"


def two_computes_in_one_instance() -> Scenario:
    """An H100 with GPU instance 1 of 3g.40gb that holds the compute instances 0 and 1."""
    scenario = scenarios.h100(1).with_keys("gpu 0", {"mig_mode": 1, "mig_pending": 1})
    for slot in (0, 1):
        device = boards.mig_1g_5gb(0, slot) | {
            "name": "NVIDIA H100 80GB HBM3 MIG 1c.3g.40gb",
            "uuid": f"MIG-48100000-0000-5000-8000-00000000000{slot}",
            "gi": 1,
            "ci": slot,
            "profile_id": 9,
            "attr.sm": 16,
            "attr.gi_slices": 3,
            "attr.ci_slices": 1,
            "memory.used": 700 * MIB,
            "gpm.1": 25.0,
        }
        scenario = scenario.with_keys(f"mig 0.{slot}", device)
        process = {"pid": 7000 + slot, "memory": (10 + slot) * MIB, "gi": 1, "ci": slot}
        scenario = scenario.with_keys(f"process 0.{slot}", process)
    return scenario


def test_each_instance_is_a_device_behind_its_gpu(tmp_path: Path) -> None:
    with Child(install(tmp_path, scenarios.a100_mig()), settings()) as child:
        devices = child.discover()
    assert [device.partition for device in devices] == ["", *(f"1g.5gb/{7 + slot}" for slot in range(7)), ""]
    assert {device.uuid for device in devices[:8]} == {PARENT}
    assert devices[8].uuid != PARENT
    third = devices[3]
    assert third.index == "0"
    assert third.partition_profile == "1g.5gb"
    assert third.partition_uuid == "MIG-a1000000-0000-5000-8000-000000000002"
    assert third.raw_labels == (
        ("gpu", "0"),
        ("UUID", PARENT),
        ("pci_bus_id", "00000000:1A:00.0"),
        ("device", "nvidia0"),
        ("modelName", "NVIDIA A100-SXM4-40GB"),
        ("GPU_I_PROFILE", "1g.5gb"),
        ("GPU_I_ID", "9"),
        ("Hostname", "node-a"),
        ("DCGM_FI_DRIVER_VERSION", "580.95.05"),
    )
    # The board's minor number is not its index; kubelets speak of the minor number.
    assert third.ids["device_name"] == "nvidia1/gi9"
    assert third.ids["dra"] == "gpu-1-mig-1g5gb-19-2"
    assert third.ids["mig_uuid"] == third.partition_uuid
    assert third.ids["mig_legacy"] == f"MIG-{PARENT}/9/0"


def test_whole_gpu_numbers_are_repeated_on_each_instance_and_not_on_the_gpu(tmp_path: Path) -> None:
    with Child(install(tmp_path, scenarios.a100_mig()), settings()) as child:
        child.discover()
        answer = child.sample()
    series = {DEV + "GPU_TEMP": 30, DEV + "POWER_USAGE": 67.03, DEV + "ROW_REMAP_FAILURE": 0, DEV + "XID_ERRORS": 0}
    for position in range(1, 8):
        assert {name: answer.value(name, position) for name in series} == pytest.approx(series)
        assert answer.values(DEV + "GPU_UTIL", position) == []
    assert [one for one in answer.sample.readings if one.device == 0] == []
    assert answer.value(DEV + "GPU_TEMP", 8) == 31
    assert answer.value(DEV + "GPU_UTIL", 8) == 91


def test_memory_and_processes_are_those_of_the_instance(tmp_path: Path) -> None:
    with Child(install(tmp_path, scenarios.a100_mig()), settings(options={"processes": True})) as child:
        child.discover()
        answer = child.sample()
    for slot in range(7):
        assert answer.value(DEV + "FB_USED", 1 + slot) == 3 + slot
        assert answer.value(DEV + "FB_FREE", 1 + slot) == 4864 - 3 - slot
        assert answer.value(DEV + "BAR1_TOTAL", 1 + slot) == 8191
        assert answer.value("nvml_memory_total_bytes", 1 + slot) == 4864 * MIB
        assert answer.value("nvml_memory_capacity_bytes", 1 + slot) == 40960 * MIB
        assert answer.value("nvml_compute_units", 1 + slot) == 14
        [process] = answer.readings("nvml_process_memory_used_bytes", 1 + slot)
        assert (dict(process.labels)["pid"], process.value) == (str(5000 + slot), (1 + slot) * MIB)
    assert answer.value(DEV + "FB_USED", 8) == 5100
    assert answer.values("nvml_compute_units", 8) == []


def test_profiling_figures_are_those_of_the_instance(tmp_path: Path) -> None:
    with Child(install(tmp_path, scenarios.h100_mig()), settings()) as child:
        devices = child.discover()
        time.sleep(0.12)
        answer = child.sample()
    assert [device.partition for device in devices] == ["", "3g.40gb/2", "1g.10gb/9"]
    for position, share in ((1, 2), (2, 4)):
        assert answer.value(PROF + "GR_ENGINE_ACTIVE", position) == pytest.approx(GPM_RATIOS[1] / share / 100)
        assert answer.value(PROF + "SM_ACTIVE", position) == pytest.approx(GPM_RATIOS[2] / share / 100)
        assert answer.value(PROF + "DRAM_ACTIVE", position) == pytest.approx(GPM_RATIOS[10] / share / 100)
        # PCIe is the whole GPU's.
        assert answer.value(PROF + "PCIE_TX_BYTES", position) == 1000 * MIB


def test_several_compute_instances_share_one_row_of_numbers(tmp_path: Path) -> None:
    installation = install(tmp_path, two_computes_in_one_instance())
    with Child(installation, settings(options={"processes": True})) as child:
        devices = child.discover()
        time.sleep(0.12)
        answer = child.sample()
    assert [device.partition for device in devices] == ["", "3g.40gb/1", "1c.3g.40gb/1/0", "1c.3g.40gb/1/1"]
    assert [device.partition_uuid[-1:] for device in devices] == ["", "", "0", "1"]
    assert answer.value(DEV + "FB_USED", 1) == 700
    assert answer.value(PROF + "GR_ENGINE_ACTIVE", 1) == 0.25
    assert answer.value("nvml_processes", 1) == 2
    assert {reading.device for reading in answer.sample.readings} == {1}
    # 16 SMs are those of one slice; nobody says how many the instance has.
    assert answer.values("nvml_compute_units", 1) == []


def test_a_layout_that_loses_an_instance_asks_for_a_discovery(tmp_path: Path) -> None:
    installation = install(tmp_path, scenarios.a100_mig())
    with Child(installation, settings()) as child:
        child.discover()
        assert not child.sample().sample.rediscover
        installation.apply(scenarios.a100_mig(absent_slots=[2]))
        deadline = time.monotonic() + 10
        while not child.sample().sample.rediscover:
            assert time.monotonic() < deadline
            time.sleep(0.2)
        assert [device.partition for device in child.discover()].count("1g.5gb/9") == 0
        answer = child.sample()
        assert not answer.sample.rediscover
        # Position 3 is now the instance of slot 3.
        assert answer.value(DEV + "FB_USED", 3) == 6


def test_an_event_of_the_driver_tells_of_a_new_layout_at_once(tmp_path: Path) -> None:
    scenario = scenarios.h100(1)
    installation = install(tmp_path, scenario)
    with Child(installation, settings({"fast": [DEV + "GPU_TEMP"]})) as child:
        child.discover()
        assert not child.sample("fast").sample.rediscover
        installation.apply(scenarios.event(scenario, 0, scenarios.MIG_CONFIG_EVENT, 0))
        assert child.sample("fast").sample.rediscover


def test_mig_mode_that_is_switched_asks_for_a_discovery_even_without_instances(tmp_path: Path) -> None:
    without_utilization = scenarios.h100(1).with_keys("gpu 0", {"mig_mode": 1, "rc.nvmlDeviceGetUtilizationRates": 3})
    installation = install(tmp_path, without_utilization)
    with Child(installation, settings({"normal": [DEV + "GPU_UTIL"]})) as child:
        child.discover()
        assert child.sample().values(DEV + "GPU_UTIL") == []
        installation.apply(scenarios.h100(1))
        deadline = time.monotonic() + 15
        while not child.sample().sample.rediscover:
            assert time.monotonic() < deadline
            time.sleep(0.2)
        child.discover()
        assert child.sample().value(DEV + "GPU_UTIL") == 90


def test_a_gpu_in_mig_mode_without_instances_speaks_for_itself(tmp_path: Path) -> None:
    scenario = scenarios.h100(1).with_keys("gpu 0", {"mig_mode": 1, "mig_pending": 1})
    with Child(install(tmp_path, scenario), settings()) as child:
        assert len(child.discover()) == 1
        assert child.sample().value(DEV + "FB_USED") == 10_000


def test_an_instance_whose_gpu_is_lost_is_lost_too(tmp_path: Path) -> None:
    scenario = scenarios.a100_mig()
    installation = install(tmp_path, scenario)
    with Child(installation, settings()) as child:
        child.discover()
        installation.apply(scenarios.lost(scenario, 0))
        answer = child.sample()
        assert answer.sample.lost == list(range(8))
        # What the events and the kernel's log said outlives the GPU; nothing that is asked of it does.
        left = {(reading.device, reading.series) for reading in answer.sample.readings if reading.device != 8}
        assert left == {(0, DEV + "XID_ERRORS"), (0, "DCGM_EXP_XID_ERRORS_COUNT")}
        installation.apply(scenarios.lost(scenarios.lost(scenario, 0), 1))
        assert child.sample().sample.lost == list(range(9))


def test_a_child_that_was_never_discovered_refuses_to_sample(tmp_path: Path) -> None:
    with Child(install(tmp_path, scenarios.h100(1)), settings()) as child, pytest.raises(RefusedError):
        child.sample()
