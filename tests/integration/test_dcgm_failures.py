"""An engine that is absent, lost, too old, slow or half-dead, and GPUs that do not answer."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.dcgm import HostEngine, World, install, worlds
from tests.fakes.dcgm.world import GPU
from tests.integration.collector_child import Answer, Refused, RefusedError
from tests.integration.dcgm_rig import DEV, PROF, Rig, rig, settings
from tests.integration.nvml_child import Child

pytestmark = pytest.mark.gcc

WANTED = {"normal": [DEV + "GPU_TEMP", DEV + "SM_CLOCK", DEV + "POWER_USAGE", DEV + "XID_ERRORS"]}


def refused(child: Child) -> Refused:
    with pytest.raises(RefusedError) as caught:
        child.discover()
    return caught.value.refused


def functions(running: Rig) -> list[str]:
    return [call.function for call in running.dcgm.calls()]


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Rig]:
    with rig(tmp_path, worlds.h100(3), WANTED) as found:
        found.child.discover()
        assert found.child.sample().value(DEV + "GPU_TEMP", 2) == 52
        yield found


def test_where_nothing_listens_it_says_so_at_once_and_loads_nothing(tmp_path: Path) -> None:
    with rig(tmp_path, worlds.h100(1), WANTED) as (child, engine, dcgm):
        engine.stop()
        began = time.monotonic()
        answer = refused(child)
        assert time.monotonic() - began < 2
        assert answer.state == "no_driver"
        assert str(tmp_path / "engine") in answer.hint
        assert "source: nvml" in answer.hint
        assert dcgm.calls() == []
        engine.start()
        assert len(child.discover()) == 1


def test_the_loopbacks_port_works_as_well(tmp_path: Path) -> None:
    dcgm = install(tmp_path, worlds.h100(1))
    with HostEngine() as engine, Child(dcgm, settings(engine.address, WANTED), dcgm.environment()) as child:  # type: ignore[arg-type]
        assert len(child.discover()) == 1
        assert child.sample().value(DEV + "GPU_TEMP") == 50


def test_without_the_library_the_user_is_told_what_to_install(tmp_path: Path) -> None:
    with rig(tmp_path, worlds.h100(1), WANTED, majors=()) as (child, _, _):
        answer = refused(child)
    assert answer.state == "no_library"
    assert "datacenter-gpu-manager" in answer.hint


@pytest.mark.parametrize(
    ("world", "majors"),
    [
        (worlds.h100(1, engine="4.5.3", library="4.6.0"), (4,)),
        (worlds.h100(1, engine="3.3.9", library="4.2.0"), (4,)),
    ],
    ids=["4.6 at 4.5", "4.2 at 3.3"],
)
def test_a_library_that_is_newer_than_the_engine_is_refused(
    tmp_path: Path, world: World, majors: tuple[int, ...]
) -> None:
    with rig(tmp_path, world, WANTED, majors=majors) as found:
        answer = refused(found.child)
        assert answer.state == "version_mismatch"
        assert str(world.system["engine"]) in answer.hint
        assert "dcgmEntitiesGetLatestValues" not in functions(found)
        assert "dcgmDisconnect" in functions(found)


def test_of_two_libraries_the_one_that_the_engine_understands_is_used(tmp_path: Path) -> None:
    world = worlds.h100(1, engine="3.3.9").with_system(library4="4.5.0")
    with rig(tmp_path, world, WANTED, majors=(3, 4)) as (child, _, _):
        child.discover()
        assert child.sample().value(DEV + "GPU_TEMP") == 50


def test_an_engine_that_hides_its_version_is_found_out_by_the_first_read(tmp_path: Path) -> None:
    world = worlds.h100(1).fails("dcgmEntitiesGetLatestValues", -20)
    with rig(tmp_path, world.without_system("engine"), WANTED) as (child, _, _):
        answer = refused(child)
    assert answer.state == "version_mismatch"
    assert "update the engine" in answer.hint


def test_a_login_that_failed_behind_a_good_code_is_noticed(tmp_path: Path) -> None:
    with rig(tmp_path, worlds.h100(1).with_system(login_refused=1), WANTED) as (child, _, _):
        answer = refused(child)
    assert answer.state == "no_driver"
    assert "connection not valid (-21)" in answer.hint


@pytest.mark.parametrize("function", ["dcgmConnect_v2", "dcgmHostengineVersionInfo"])
def test_an_engine_that_does_not_answer_is_given_up_in_time(tmp_path: Path, function: str) -> None:
    with rig(tmp_path, worlds.h100(1).hangs(function), WANTED) as (child, _, _):
        began = time.monotonic()
        answer = refused(child)
        assert time.monotonic() - began < 9
    assert answer.state == "no_driver"
    assert "does not answer within" in answer.hint


def test_no_gpu_is_no_device(tmp_path: Path) -> None:
    with rig(tmp_path, worlds.empty(), WANTED) as (child, _, _):
        assert refused(child).state == "no_device"


def test_a_lost_engine_empties_the_sample_and_asks_for_a_discovery(running: Rig) -> None:
    running.engine.stop()
    sample = running.child.sample().sample
    assert (sample.readings, sample.rediscover) == ([], True)
    assert [error.kind for error in sample.errors] == ["transient"]
    assert "is gone" in sample.errors[0].detail
    assert refused(running.child).state == "no_driver"


def test_an_engine_that_was_restarted_is_watched_again(running: Rig) -> None:
    running.engine.stop()
    running.engine.start()
    assert running.child.sample().sample.rediscover
    assert len(running.child.discover()) == 3
    answer = running.child.sample()
    assert (answer.value(DEV + "GPU_TEMP", 1), answer.sample.errors) == (51, [])
    assert functions(running).count("dcgmConnect_v2") == 2


def test_closing_takes_back_what_was_made(running: Rig) -> None:
    made = functions(running)
    running.child.close()
    after = functions(running)[len(made) :]
    for make, take in (
        ("dcgmGroupCreate", "dcgmGroupDestroy"),
        ("dcgmFieldGroupCreate", "dcgmFieldGroupDestroy"),
        ("dcgmConnect_v2", "dcgmDisconnect"),
    ):
        assert after.count(take) == made.count(make), make
    watched = {tuple(call.detail.split()[:2]) for call in running.dcgm.calls() if call.function == "dcgmWatchFields"}
    assert after.count("dcgmUnwatchFields") == len(watched) > 0
    assert after[-1] == "dcgmShutdown"


def test_a_discovery_leaves_no_groups_behind(running: Rig) -> None:
    for _ in range(20):
        running.child.discover()
    calls = functions(running)
    assert calls.count("dcgmGroupCreate") - calls.count("dcgmGroupDestroy") <= 2
    assert calls.count("dcgmFieldGroupCreate") - calls.count("dcgmFieldGroupDestroy") <= 2


def test_an_engine_without_room_for_groups_says_so(tmp_path: Path) -> None:
    with rig(tmp_path, worlds.h100(1).with_system(most_groups=0), WANTED) as (child, _, _):
        answer = refused(child)
    assert answer.state == "no_driver"
    assert "limit reached (-24)" in answer.hint


def test_an_engine_that_samples_no_more_is_not_believed(tmp_path: Path) -> None:
    world = worlds.h100(1)
    with rig(tmp_path, world, {"fast": [DEV + "GPU_TEMP"]}) as (child, _, dcgm):
        child.discover()
        assert child.sample("fast").values(DEV + "GPU_TEMP") == [50]
        dcgm.apply(world.with_system(frozen_at=time.time()))
        deadline = time.monotonic() + 30
        while (answer := child.sample("fast")).values(DEV + "GPU_TEMP"):
            assert time.monotonic() < deadline
            time.sleep(0.5)
        assert [error.kind for error in answer.sample.errors] == ["timeout"]
        dcgm.apply(world)
        assert child.sample("fast").values(DEV + "GPU_TEMP") == [50]


def test_a_value_that_is_older_than_the_others_is_absent(tmp_path: Path) -> None:
    world = worlds.h100(2).with_values((GPU, 1), {155: f"300@{time.time() - 60:.3f}"})
    with rig(tmp_path, world, WANTED) as (child, _, _):
        child.discover()
        answer = child.sample()
    assert answer.values(DEV + "POWER_USAGE", 1) == []
    assert answer.value(DEV + "POWER_USAGE", 0) == 310.5


def test_an_engine_whose_clock_is_wrong_is_read_all_the_same(tmp_path: Path) -> None:
    with rig(tmp_path, worlds.h100(1).with_system(clock_offset=-86400), WANTED) as (child, _, _):
        child.discover()
        assert child.sample().value(DEV + "GPU_TEMP") == 50


def of_gpu(answer: Answer, device: int) -> set[str]:
    return {one.series for one in answer.sample.readings if one.device == device}


def test_a_gpu_off_the_bus_is_lost_and_the_others_go_on(running: Rig) -> None:
    running.dcgm.apply(worlds.h100(3).lost(1))
    answer = running.child.sample()
    assert answer.sample.lost == [1]
    # Of a lost GPU only what needs no answer from it.
    assert of_gpu(answer, 1) == {DEV + "XID_ERRORS"}
    assert answer.value(DEV + "GPU_TEMP", 2) == 52
    devices = running.child.discover()
    assert [device.index for device in devices] == ["0", "2", "1"]
    answer = running.child.sample()
    assert (answer.sample.lost, of_gpu(answer, 2)) == ([2], {DEV + "XID_ERRORS"})
    running.dcgm.apply(worlds.h100(3))
    assert [device.index for device in running.child.discover()] == ["0", "1", "2"]
    assert running.child.sample().value(DEV + "GPU_TEMP", 1) == 51


@pytest.mark.parametrize("status", [-18, -19, -67])
def test_a_gpu_that_the_engine_calls_lost_is_lost(running: Rig, status: int) -> None:
    running.dcgm.apply(worlds.h100(3).with_values((GPU, 0), {100: 0}, status))
    answer = running.child.sample()
    assert answer.sample.lost == [0]
    assert of_gpu(answer, 0) == {DEV + "XID_ERRORS"}


def test_a_gpu_without_a_temperature_alone_is_not_lost(running: Rig) -> None:
    running.dcgm.apply(worlds.h100(3).with_values((GPU, 0), {150: "blank"}))
    answer = running.child.sample()
    assert answer.sample.lost == []
    assert answer.value(DEV + "SM_CLOCK", 0) == 1980


def test_a_gpu_that_cannot_be_identified_costs_the_others_nothing(tmp_path: Path) -> None:
    with rig(tmp_path, worlds.h100(3).with_gpu(1, rc=-18), WANTED) as (child, _, _):
        assert [device.index for device in child.discover()] == ["0", "2"]
        answer = child.sample()
        assert [(error.device, error.kind) for error in answer.sample.errors] == [(-1, "lost")]
        assert answer.value(DEV + "GPU_TEMP", 1) == 52
        assert child.sample().sample.errors == []


def test_watches_that_vanished_are_made_again(running: Rig) -> None:
    world = worlds.h100(3)
    for gpu in range(3):
        world = world.with_values((GPU, gpu), dict.fromkeys((100, 150, 155), 0), -16)
    running.dcgm.apply(world)
    assert running.child.sample().sample.rediscover


@pytest.mark.parametrize(
    ("code", "kind", "advice"),
    [
        (-33, "library", "datacenter-gpu-manager-4-proprietary"),
        (-34, "library", "another program"),
        (-54, "library", "resume"),
        (-29, "permission", "CAP_SYS_ADMIN"),
    ],
)
def test_why_there_are_no_ratios_is_told_once(tmp_path: Path, code: int, kind: str, advice: str) -> None:
    wanted = {"normal": [DEV + "GPU_TEMP", PROF + "SM_ACTIVE", PROF + "DRAM_ACTIVE"]}
    with rig(tmp_path, worlds.h100(2).with_system(profiling_rc=code), wanted) as (child, _, _):
        child.discover()
        first, second = child.sample(), child.sample()
    assert first.values(PROF + "SM_ACTIVE") == []
    assert first.value(DEV + "GPU_TEMP") == 50
    [error] = first.sample.errors
    assert error.kind == kind
    assert advice in error.detail
    assert second.sample.errors == []


def test_a_gpu_without_ratios_is_quiet_about_it(tmp_path: Path) -> None:
    with rig(tmp_path, worlds.h100(1).without_lines("metrics"), {"normal": [PROF + "SM_ACTIVE"]}) as (child, _, _):
        child.discover()
        assert child.sample().sample.errors == []


def test_ratios_of_turing_come_in_one_pass(tmp_path: Path) -> None:
    names = ("GR_ENGINE_ACTIVE", "SM_ACTIVE", "SM_OCCUPANCY", "DRAM_ACTIVE", "PIPE_TENSOR_ACTIVE", "PIPE_FP64_ACTIVE")
    wanted = {"normal": [PROF + name for name in names]}
    with rig(tmp_path, worlds.t4().with_system(passes=4), wanted) as (child, _, _):
        child.discover()
        answer = child.sample()
    assert answer.value(PROF + "SM_ACTIVE") == pytest.approx(worlds.ratio(1002, 0))
    assert answer.value(PROF + "DRAM_ACTIVE") == pytest.approx(worlds.ratio(1005, 0))
    # 1004 and 1006 share counters with the other four.
    assert answer.values(PROF + "PIPE_TENSOR_ACTIVE") == answer.values(PROF + "PIPE_FP64_ACTIVE") == []
    [error] = answer.sample.errors
    assert "1004, 1006" in error.detail


@pytest.mark.parametrize(
    ("function", "missing"),
    [
        ("dcgmHealthCheck", "DCGM_EXP_GPU_HEALTH_STATUS"),
        ("dcgmGetDeviceAttributes", "dcgm_memory_capacity_mebibytes"),
        ("dcgmGetNvLinkLinkStatus", "dcgm_nvlink_links"),
        ("dcgmEntitiesGetLatestValues", DEV + "GPU_TEMP"),
    ],
)
def test_a_call_that_fails_now_and_then_costs_only_what_it_gives(tmp_path: Path, function: str, missing: str) -> None:
    names = [DEV + "GPU_TEMP", DEV + "XID_ERRORS", "DCGM_EXP_GPU_HEALTH_STATUS", "dcgm_nvlink_links",
             "dcgm_memory_capacity_mebibytes"]  # fmt: skip
    world = worlds.h100(1)
    with rig(tmp_path, world, {"normal": names}) as (child, _, dcgm):
        child.discover()
        assert {one.series for one in child.sample().sample.readings} == {*names}
        dcgm.apply(world.fails(function, -3))
        answer = child.sample()
        assert {one.series for one in answer.sample.readings} == {*names} - {missing}
        assert not answer.sample.rediscover
        assert {error.kind for error in answer.sample.errors} == {"transient"}
        dcgm.apply(world)
        answer = child.sample()
        assert {one.series for one in answer.sample.readings} == {*names}
        assert answer.sample.errors == []


def test_a_gpu_whose_attributes_say_that_it_is_lost_is_lost(tmp_path: Path) -> None:
    world = worlds.h100(2)
    with rig(tmp_path, world, {"normal": ["dcgm_memory_capacity_mebibytes", DEV + "GPU_TEMP"]}) as (child, _, dcgm):
        child.discover()
        dcgm.apply(world.with_gpu(0, rc=-18))
        answer = child.sample()
    assert answer.sample.lost == [0]
    assert of_gpu(answer, 0) == set()
    assert answer.value(DEV + "GPU_TEMP", 1) == 51


def test_an_engine_that_was_restarted_unnoticed_is_connected_to_again(running: Rig) -> None:
    running.engine.stop()
    running.engine.start()
    assert len(running.child.discover()) == 3
    assert running.child.sample().value(DEV + "GPU_TEMP", 1) == 51


def test_a_slow_engine_is_waited_for(tmp_path: Path) -> None:
    with rig(tmp_path, worlds.h100(1).slow("dcgmEntitiesGetLatestValues", 300), WANTED) as (child, _, _):
        child.discover()
        assert child.sample().value(DEV + "GPU_TEMP") == 50


def test_an_engine_in_this_process_is_started_where_that_is_allowed(tmp_path: Path) -> None:
    dcgm = install(tmp_path, worlds.h100(1))
    told = settings(str(tmp_path / "nothing"), WANTED, options={"dcgm_embedded": True})
    with Child(dcgm, told, dcgm.environment(os.environ)) as child:  # type: ignore[arg-type]
        assert len(child.discover()) == 1
        assert child.sample().value(DEV + "GPU_TEMP") == 50
        # A second discovery uses the same engine: a second start would give no handle.
        child.discover()
        assert child.sample().value(DEV + "GPU_TEMP") == 50
        child.close()
    calls = dcgm.calls()
    starts = [call for call in calls if call.function == "dcgmStartEmbedded_v2"]
    # Its log is not written to the system's.
    assert [call.detail for call in starts] == ["/dev/null"]
    assert [call.function for call in calls][-2:] == ["dcgmStopEmbedded", "dcgmShutdown"]


def test_a_sample_before_a_discovery_is_refused(tmp_path: Path) -> None:
    with rig(tmp_path, worlds.h100(1), WANTED) as (child, _, _), pytest.raises(RefusedError):
        child.sample()
