"""MIG through DCGM: entities that are not NVML's instances, and uuids that only NVML knows."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.fakes.dcgm import World, worlds
from tests.fakes.dcgm.world import GPU, GPU_I
from tests.fakes.nvml import Scenario, boards
from tests.fakes.nvml import install as install_nvml
from tests.fakes.nvml.model import system
from tests.integration.collector_child import Answer
from tests.integration.dcgm_rig import DEV, PROF, rig

pytestmark = pytest.mark.gcc

WANTED = {
    "normal": [
        DEV + "GPU_TEMP", DEV + "FB_USED", DEV + "GPU_UTIL", PROF + "SM_ACTIVE", PROF + "DRAM_ACTIVE",
        PROF + "PCIE_TX_BYTES",
    ],
}  # fmt: skip
NAMES = ["", "3g.20gb/1", "1c.3g.20gb/1/0", "1c.3g.20gb/1/1", "1g.5gb/7", ""]


def nvml() -> Scenario:
    """The same node as NVML has it: uuids and placements of the parts."""
    scenario = system("580.95.05", "13.580.95.05", 13000)
    for i in range(2):
        scenario = scenario.with_keys(f"gpu {i}", boards.a100(i))
    scenario = scenario.with_keys("gpu 0", {"mig_mode": 1, "mig_pending": 1})
    for slot, (gi, ci, name, profile, start) in enumerate(
        ((1, 0, "1c.3g.20gb", 9, 4), (1, 1, "1c.3g.20gb", 9, 4), (7, 0, "1g.5gb", 19, 2))
    ):
        keys = boards.mig_1g_5gb(0, slot) | {
            "name": f"NVIDIA A100-SXM4-40GB MIG {name}",
            "gi": gi,
            "ci": ci,
            "profile_id": profile,
            "placement_start": start,
        }
        scenario = scenario.with_keys(f"mig 0.{slot}", keys)
    return scenario


def by_device(answer: Answer, series: str) -> dict[int, int | float]:
    return {one.device: one.value for one in answer.sample.readings if one.series == series}


def test_parts_are_named_as_through_nvml(tmp_path: Path) -> None:
    with rig(tmp_path, worlds.a100_mig(), WANTED) as (child, _, _):
        devices = child.discover()
    # Instance 9 has no compute instance, so nothing can run there.
    assert [device.partition for device in devices] == NAMES
    part = devices[4]
    assert part.raw_labels[5:7] == (("GPU_I_PROFILE", "1g.5gb"), ("GPU_I_ID", "7"))
    assert (part.uuid, part.index) == (devices[0].uuid, "0")
    # Without NVML nobody tells the parts' own uuids: they are not made up.
    assert {device.partition_uuid for device in devices} == {""}
    assert "mig_uuid" not in part.ids


def test_numbers_stand_at_their_level(tmp_path: Path) -> None:
    with rig(tmp_path, worlds.a100_mig(), WANTED) as (child, _, _):
        child.discover()
        answer = child.sample()
    # Of the whole GPU, repeated on its instances; never the 7 that an instance would answer.
    assert by_device(answer, DEV + "GPU_TEMP") == {1: 50, 4: 50, 5: 51}
    assert by_device(answer, PROF + "PCIE_TX_BYTES") == {1: 10**9, 4: 10**9, 5: 10**9 + 1}
    # Of the instance.
    assert by_device(answer, DEV + "FB_USED") == {1: 101, 4: 107, 5: 700}
    assert by_device(answer, PROF + "SM_ACTIVE") == pytest.approx(
        {1: worlds.ratio(1002, 0) / 2, 4: worlds.ratio(1002, 0) / 8, 5: worlds.ratio(1002, 1)}
    )
    # Not in MIG mode.
    assert by_device(answer, DEV + "GPU_UTIL") == {5: 91}
    assert answer.sample.errors == []


def test_uuids_and_placements_come_from_nvml_where_it_can_be_asked(tmp_path: Path) -> None:
    there = install_nvml(tmp_path / "nvml", nvml())
    # Both stand-ins of the two boards have the same identity.
    world = worlds.a100_mig()
    assert world.gpus[0]["uuid"] == nvml().keys("gpu 0")["uuid"]
    with rig(tmp_path, world, WANTED, base=there.environment()) as (child, _, _):
        devices = {device.partition: device for device in child.discover() if device.partition}
        child.sample()
    assert devices["1g.5gb/7"].partition_uuid == nvml().keys("mig 0.2")["uuid"]
    assert devices["1c.3g.20gb/1/1"].partition_uuid == nvml().keys("mig 0.1")["uuid"]
    # GPU 0 has DRM minor 1 in this world.
    assert devices["1g.5gb/7"].ids["dra"] == "gpu-1-mig-1g5gb-19-2"
    # NVML is not held open: it would keep the GPUs from being reset.
    names = [call.function for call in there.calls()]
    assert names.count("nvmlInitWithFlags") == names.count("nvmlShutdown") > 0
    assert names[-1] == "nvmlShutdown"


def without_name(world: World) -> World:
    return world.with_values((GPU_I, 0), {50: "blank"}).with_values((GPU_I, 1), {50: "not_supported"})


def test_a_profile_without_a_name_is_made_of_slices_and_memory(tmp_path: Path) -> None:
    with rig(tmp_path, without_name(worlds.a100_mig()), WANTED) as (child, _, _):
        devices = child.discover()
    assert [device.partition for device in devices] == NAMES


def test_a_new_layout_is_found(tmp_path: Path) -> None:
    world = worlds.a100_mig()
    with rig(tmp_path, world, WANTED) as (child, _, dcgm):
        child.discover()
        assert not child.sample().sample.rediscover
        dcgm.apply(world.without_lines("mig").with_values((GPU, 0), {67: 0}))
        deadline = time.monotonic() + 20
        while not child.sample().sample.rediscover:
            assert time.monotonic() < deadline
            time.sleep(0.5)
        assert [device.partition for device in child.discover()] == ["", ""]


def test_an_engine_that_may_not_see_the_instances_is_told_of(tmp_path: Path) -> None:
    with rig(tmp_path, worlds.a100_mig().without_lines("mig"), WANTED) as (child, _, _):
        assert [device.partition for device in child.discover()] == ["", ""]
        [error] = child.sample().sample.errors
    assert (error.device, error.kind) == (-1, "permission")
    assert "must run as root" in error.detail
