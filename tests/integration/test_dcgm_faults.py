"""Xids and health watches through DCGM: each event once, at the right device, and never from before us."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.fakes.dcgm import World, worlds
from tests.fakes.dcgm.world import GPU, GPU_CI, GPU_I
from tests.integration.collector_child import Answer
from tests.integration.dcgm_rig import DEV, Rig, rig

pytestmark = pytest.mark.gcc

XID = DEV + "XID_ERRORS"
COUNT = "DCGM_EXP_XID_ERRORS_COUNT"
CLOCKS = "DCGM_EXP_CLOCK_EVENTS_COUNT"
HEALTH = "DCGM_EXP_GPU_HEALTH_STATUS"
WINDOW = ("window_size_in_ms", "300000")
WANTED = {"normal": [XID, COUNT, DEV + "GPU_TEMP"]}


def codes(answer: Answer) -> list[tuple[int, str]]:
    return [(fault.device, fault.code) for fault in answer.sample.faults]


def happens(running: Rig, world: World, entity: tuple[int, int], *xids: int) -> World:
    for number, xid in enumerate(xids):
        world = world.xid(entity, xid, time.time() + number / 1e5)
    running.dcgm.apply(world)
    return world


def test_an_xid_is_a_fault_once_with_the_engines_time(tmp_path: Path) -> None:
    world = worlds.h100(2)
    with rig(tmp_path, world, WANTED) as running:
        running.child.discover()
        assert codes(running.child.sample()) == []
        began = time.time()
        world = happens(running, world, (GPU, 1), 79)
        answer = running.child.sample()
        assert codes(answer) == [(1, "xid:79")]
        assert began - 0.001 <= answer.sample.faults[0].timestamp <= time.time()
        assert codes(running.child.sample()) == []
        happens(running, world, (GPU, 1), 79, 79, 63)
        assert codes(running.child.sample()) == [(1, "xid:79"), (1, "xid:79"), (1, "xid:63")]


def test_the_last_xid_stands_in_the_gauge_and_zero_before_the_first(tmp_path: Path) -> None:
    world = worlds.h100(2)
    with rig(tmp_path, world, WANTED) as running:
        running.child.discover()
        before = running.child.sample()
        assert [(one.value, one.labels) for one in before.readings(XID, 1)] == [
            (0, (("err_code", "0"), ("err_msg", "No Error")))
        ]
        assert [(one.value, one.labels) for one in before.readings(COUNT, 1)] == [(0, (WINDOW,))]
        happens(running, world, (GPU, 1), 48, 31, 31)
        answer = running.child.sample()
        running.child.discover()
        later = running.child.sample()
    for found in (answer, later):
        [last] = found.readings(XID, 1)
        assert (last.value, last.labels) == (31, (("err_code", "31"), ("err_msg", "GPU memory page fault")))
        assert [(one.value, one.labels) for one in found.readings(COUNT, 1)] == [
            (2, (WINDOW, ("xid", "31"))),
            (1, (WINDOW, ("xid", "48"))),
        ]
        assert found.value(XID, 0) == 0
    assert codes(later) == []


def test_an_xid_from_before_us_is_in_the_gauge_and_no_fault(tmp_path: Path) -> None:
    world = worlds.h100(1).xid((GPU, 0), 119, time.time() - 3600)
    with rig(tmp_path, world, WANTED) as running:
        running.child.discover()
        answer = running.child.sample()
    assert codes(answer) == []
    assert answer.value(XID) == 119
    assert answer.value(COUNT) == 0


def test_an_xid_between_discovery_and_first_sample_counts(tmp_path: Path) -> None:
    world = worlds.h100(1)
    with rig(tmp_path, world, WANTED) as running:
        running.child.discover()
        happens(running, world, (GPU, 0), 94)
        assert codes(running.child.sample()) == [(0, "xid:94")]


def test_an_xid_while_we_were_cut_off_is_fetched_later(tmp_path: Path) -> None:
    world = worlds.h100(1)
    with rig(tmp_path, world, WANTED) as running:
        running.child.discover()
        happens(running, world, (GPU, 0), 13)
        assert codes(running.child.sample()) == [(0, "xid:13")]
        running.engine.stop()
        running.engine.start()
        assert running.child.sample().sample.rediscover
        happens(running, worlds.h100(1), (GPU, 0), 62)
        running.child.discover()
        answer = running.child.sample()
    assert answer.value(XID) == 62
    assert codes(answer) == [(0, "xid:62")]


def test_an_xid_of_an_instance_belongs_to_it(tmp_path: Path) -> None:
    world = worlds.a100_mig()
    with rig(tmp_path, world, WANTED) as running:
        places = {device.partition: place for place, device in enumerate(running.child.discover())}
        # By instance, by one of two compute instances, and by the only compute instance of another.
        world = happens(running, world, (GPU_I, 1), 94)
        assert codes(running.child.sample()) == [(places["1g.5gb/7"], "xid:94")]
        world = happens(running, world, (GPU_CI, 1), 43)
        assert codes(running.child.sample()) == [(places["1c.3g.20gb/1/1"], "xid:43")]
        world = happens(running, world, (GPU_CI, 10), 31)
        answer = running.child.sample()
        assert codes(answer) == [(places["1g.5gb/7"], "xid:31")]
        assert answer.value(XID, places["1g.5gb/7"]) == 31
        assert answer.value(XID, places["3g.20gb/1"]) == 43
        happens(running, world, (GPU, 0), 119)
        answer = running.child.sample()
        assert codes(answer) == [(0, "xid:119")]
        assert {answer.value(XID, places[name]) for name in ("1g.5gb/7", "3g.20gb/1")} == {119}


def test_a_storm_of_xids_costs_bounded_work(tmp_path: Path) -> None:
    world = worlds.h100(1)
    with rig(tmp_path, world, WANTED) as running:
        running.child.discover()
        now = int(time.time() * 1e6)
        running.dcgm.apply(world.with_lines(*(("xid", GPU, 0, now + number, 31) for number in range(6000))))
        assert len(codes(running.child.sample())) == 4096
        assert codes(running.child.sample()) == []


def test_clock_events_are_counted_by_sample(tmp_path: Path) -> None:
    world = worlds.h100(1).with_values((GPU, 0), {112: 0x4 | 0x40})
    with rig(tmp_path, world, {"normal": [CLOCKS]}) as (child, _, _):
        child.discover()
        child.sample()
        answer = child.sample()
    counts = {dict(one.labels)["clock_event"]: one.value for one in answer.readings(CLOCKS)}
    assert counts == {"power_cap": 2, "hw_thermal": 2}
    assert answer.readings(DEV + "CLOCKS_EVENT_REASONS") == []


def test_health_watches_pass_but_for_what_dcgm_says(tmp_path: Path) -> None:
    world = worlds.with_incident(worlds.h100(2), 0x10, 10, 80, (GPU, 1))
    world = worlds.with_incident(world, 0x10, 20, 81, (GPU, 1))
    world = worlds.with_incident(world, 0xFFFFFFFF, 20, 120, (GPU, 0))
    with rig(tmp_path, world, {"normal": [HEALTH]}) as (child, _, _):
        child.discover()
        answer = child.sample()
    first, second = (
        {dict(one.labels)["health_watch"]: (one.value, dict(one.labels)["health_error_code"]) for one in found}
        for found in (answer.readings(HEALTH, 0), answer.readings(HEALTH, 1))
    )
    # PCIE, THERMAL and POWER need a minute of data: until then they say nothing.
    assert first.keys() == {"NVLINK", "PMU", "MCU", "MEM", "SM", "INFOROM", "DRIVER", "ALL"}
    assert first.pop("ALL") == (20, "DCGM_FR_FALLEN_OFF_BUS")
    assert set(first.values()) == {(0, "DCGM_FR_OK")}
    # The worse of two incidents.
    assert second["MEM"] == (20, "DCGM_FR_UNCONTAINED_ERROR")
    assert second["SM"] == (0, "DCGM_FR_OK")


def test_a_health_watch_that_finds_something_early_is_told_early(tmp_path: Path) -> None:
    world = worlds.with_incident(worlds.h100(1), 0x80, 10, 10, (GPU, 0))
    with rig(tmp_path, world, {"normal": [HEALTH]}) as (child, _, _):
        child.discover()
        answer = child.sample()
    assert answer.value(HEALTH, health_watch="THERMAL", health_error_code="DCGM_FR_CLOCKS_EVENT_THERMAL") == 10
    assert answer.values(HEALTH, health_watch="POWER") == []


def test_health_of_dcgm_3_has_another_size(tmp_path: Path) -> None:
    world = worlds.with_incident(worlds.h100(1, engine="3.3.9"), 0x2, 20, 14, (GPU, 0))
    with rig(tmp_path, world, {"normal": [HEALTH]}, majors=(3,)) as (child, _, _):
        child.discover()
        assert child.sample().value(HEALTH, health_watch="NVLINK", health_error_code="DCGM_FR_NVLINK_DOWN") == 20


def test_without_health_watches_the_rest_is_read_and_it_is_said_once(tmp_path: Path) -> None:
    world = worlds.h100(1).fails("dcgmHealthSet", -33)
    with rig(tmp_path, world, {"normal": [HEALTH, DEV + "GPU_TEMP"]}) as (child, _, _):
        child.discover()
        first, second = child.sample(), child.sample()
    assert first.values(HEALTH) == []
    assert first.value(DEV + "GPU_TEMP") == 50
    assert [error.kind for error in first.sample.errors] == ["library"]
    assert second.sample.errors == []
