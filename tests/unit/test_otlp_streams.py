"""Since when a counter's whole value has arisen: nobody is charged with what came before."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from exporter.families import Family, Publication
from exporter.model import Allocation, Number, Workload
from exporter.otlp.encode import Selection
from tests.exposition_readers import family
from tests.otlp import Point, one
from tests.otlp_rig import OTHER, POD, START, Rig, common, labels, publication, seconds

FREE = Workload()
ENERGY = "accel_energy_joules_total"


def energy(value: Number, at: float, workload: Workload = FREE, *, own: bool = False) -> Family:
    """The vendor's counter, or the one that the agent integrates."""
    return common(ENERGY, (labels(workload=workload), value), taken_at=0 if own else at)


def held(*workloads: Workload) -> Allocation:
    return {("U0", ""): workloads}


def published(value: Number, at: float, workload: Workload | None = None, *, own: bool = False) -> Publication:
    allocation = None if workload is None else held(workload) if workload != FREE else {}
    return publication(energy(value, at, workload or FREE, own=own), at=at, allocation=allocation)


def times(found: Sequence[Point], name: str = "hw.energy") -> tuple[float, float, object]:
    """Start, time and value of the point that has a value."""
    (point,) = [point for point in found if point.name == name and point.value is not None]
    return seconds(point.start), seconds(point.time), point.value


# A vendor's counter


def test_the_first_point_of_a_vendors_counter_starts_at_its_own_time_and_later_ones_keep_that_start() -> None:
    rig = Rig()
    assert times(rig.export(published(9e8, START + 10))) == (START + 10, START + 10, 9e8)
    assert times(rig.export(published(9e8 + 50, START + 70))) == (START + 10, START + 70, 9e8 + 50)
    assert times(rig.export(published(9e8 + 90, START + 130))) == (START + 10, START + 130, 9e8 + 90)


def test_so_does_a_vendors_own_series() -> None:
    rig = Rig(Selection("raw"))
    rig.export(publication(family("acme_replays", "counter", [((("slot", "0"),), 7)]), at=START + 10))
    found = rig.export(publication(family("acme_replays", "counter", [((("slot", "0"),), 9)]), at=START + 70))
    assert times(found, "acme_replays") == (START + 10, START + 70, 9)


def test_a_counter_that_falls_has_begun_anew_since_its_last_point() -> None:
    rig = Rig()
    rig.export(published(100, START + 10))
    rig.export(published(200, START + 70))
    assert times(rig.export(published(30, START + 130))) == (START + 70, START + 130, 30)
    assert times(rig.export(published(40, START + 190))) == (START + 70, START + 190, 40)


def test_other_counters_of_the_family_keep_their_start_when_one_falls() -> None:
    rig = Rig()
    for at, values in ((10, (100, 100)), (70, (5, 200))):
        rows = [(labels(uuid, workload=FREE), value) for uuid, value in zip(("U0", "U1"), values, strict=True)]
        found = rig.export(publication(common(ENERGY, *rows, taken_at=START + at), at=START + at))
    assert seconds(one(found, "hw.energy", hw_id="U1").start) == START + 10


def test_the_same_sample_sent_again_is_the_same_point() -> None:
    rig = Rig()
    rig.export(published(100, START + 10))
    again = publication(energy(100, START + 10), at=START + 70)
    assert times(rig.export(again)) == (START + 10, START + 10, 100)


def test_a_device_that_comes_back_begins_anew() -> None:
    rig = Rig()
    rig.export(published(100, START + 10))
    rig.export(publication(at=START + 70))
    assert times(rig.export(published(150, START + 130))) == (START + 130, START + 130, 150)


def test_a_clock_that_was_set_back_begins_anew() -> None:
    rig = Rig()
    rig.export(published(100, START + 1000))
    start, time, _ = times(rig.export(published(110, START + 70)))
    assert start == time == START + 70
    assert times(rig.export(published(120, START + 130)))[0] == START + 70


def test_what_is_no_counter_has_no_start() -> None:
    rig = Rig()
    for at in (10, 70):
        found = rig.export(publication(common("accel_memory_free_bytes", (labels(memory="device"), 5)), at=START + at))
    assert {point.start for point in found} == {0}


# Points that no receiver took


def test_a_start_holds_once_a_receiver_has_taken_its_point() -> None:
    rig = Rig()
    rig.export(published(100, START + 10), took=False)
    # Whoever gets this one first must not think that all of it arose within a minute.
    assert times(rig.export(published(150, START + 70))) == (START + 70, START + 70, 150)
    assert times(rig.export(published(160, START + 130))) == (START + 70, START + 130, 160)


def test_of_several_points_on_their_way_the_newest_counts_so_that_starts_never_go_back() -> None:
    rig = Rig()
    rig.export(published(100, START + 10), took=False)
    first = rig.requests
    rig.export(published(150, START + 70), took=False)
    second = rig.requests
    rig.take(first)
    assert times(rig.export(published(160, START + 130), took=False))[0] == START + 130
    third = rig.requests
    rig.take(second)
    rig.take(third)
    assert times(rig.export(published(170, START + 190)))[0] == START + 130


def test_a_start_that_held_before_holds_however_many_requests_are_lost() -> None:
    rig = Rig()
    rig.export(published(100, START + 10))
    for at in (70, 130):
        rig.export(published(100 + at, START + at), took=False)
    assert times(rig.export(published(400, START + 190)))[0] == START + 10


# Counters of the agent's own


def test_a_counter_of_the_agents_own_starts_with_the_agent() -> None:
    rig = Rig()
    assert times(rig.export(published(70, START + 10, own=True))) == (START, START + 10, 70)
    assert times(rig.export(published(90, START + 70, own=True))) == (START, START + 70, 90)


def test_that_start_holds_whether_or_not_a_receiver_took_the_first_point() -> None:
    rig = Rig()
    rig.export(published(70, START + 10, own=True), took=False)
    assert times(rig.export(published(90, START + 70, own=True)))[0] == START


def seconds_held(value: Number, at: float, workload: Workload) -> Publication:
    shown = common("accel_allocated_seconds_total", (labels(), value), taken_at=0)
    return publication(shown, at=at, allocation=held(workload))


def test_a_counter_without_workload_keeps_its_start_when_the_workload_changes() -> None:
    rig = Rig()
    rig.export(seconds_held(5, START + 10, POD))
    assert times(rig.export(seconds_held(60, START + 70, OTHER)), "accel.allocated_seconds")[0] == START


# Another workload


def test_a_new_workload_is_not_charged_with_what_a_vendors_counter_held_before() -> None:
    rig = Rig()
    rig.export(published(9e8, START + 10, POD))
    rig.export(published(9e8 + 50, START + 70, POD))
    found = rig.export(published(9e8 + 90, START + 130, OTHER))
    assert times(found) == (START + 130, START + 130, 9e8 + 90)
    (ended,) = [point for point in found if point.value is None]
    assert ended.resource["k8s.pod.name"] == POD.pod
    assert times(rig.export(published(9e8 + 99, START + 190, OTHER))) == (START + 130, START + 190, 9e8 + 99)


def test_nor_with_what_the_agent_counted_before() -> None:
    rig = Rig()
    rig.export(published(70, START + 10, POD, own=True))
    assert times(rig.export(published(90, START + 70, OTHER, own=True)))[0] == START + 70


@pytest.mark.parametrize("own", [False, True])
def test_a_pod_of_the_same_name_that_was_made_anew_is_another_workload(own: bool) -> None:
    anew = Workload(**{name: getattr(POD, name) for name in POD.__struct_fields__} | {"pod_uid": "uid-9"})
    rig = Rig()
    rig.export(published(70, START + 10, POD, own=own))
    found = rig.export(published(90, START + 70, anew, own=own))
    assert times(found)[0] == START + 70
    assert {point.resource["k8s.pod.uid"]: point.value for point in found} == {"uid-0": None, "uid-9": 90}


@pytest.mark.parametrize("own", [False, True])
def test_a_device_that_was_freed_and_taken_again_begins_anew(own: bool) -> None:
    rig = Rig()
    rig.export(published(70, START + 10, POD, own=own))
    rig.export(published(80, START + 70, FREE, own=own))
    assert times(rig.export(published(90, START + 130, POD, own=own)))[0] == START + 130


FAULT = {"code": "acme:7", "class": "memory", "severity": "info", "action": "none"}


def faults(at: float, workload: Workload, *counts: tuple[str, int]) -> Publication:
    rows = [(labels(workload=workload, **{**FAULT, "code": code}), count) for code, count in counts]
    shown = [common("accel_fault_code_total", *rows, taken_at=0)] if rows else []
    return publication(*shown, at=at, allocation=held(workload))


def test_a_fault_that_is_first_seen_under_a_workload_counts_since_the_workload_came() -> None:
    rig = Rig()
    rig.export(faults(START + 10, POD))
    rig.encoder.observe(faults(START + 30, OTHER))
    # It was not there when the second pod came: the whole 1 is its own.
    assert times(rig.export(faults(START + 70, OTHER, ("acme:7", 1))), "accel.fault_code") == (
        START + 30,
        START + 70,
        1,
    )


def test_a_fault_of_the_workload_before_counts_for_nobody_else() -> None:
    rig = Rig()
    rig.export(faults(START + 10, POD))
    # Between two exports a fault comes and the pod goes.
    rig.encoder.observe(faults(START + 20, POD, ("acme:7", 1)))
    rig.encoder.observe(faults(START + 30, OTHER, ("acme:7", 1)))
    start, time, value = times(rig.export(faults(START + 70, OTHER, ("acme:7", 1))), "accel.fault_code")
    assert (start, time, value) == (START + 70, START + 70, 1)


def test_a_counter_that_stood_at_zero_when_the_workload_came_counts_since_then() -> None:
    rig = Rig()
    rig.export(faults(START + 10, POD, ("acme:7", 0)))
    rig.encoder.observe(faults(START + 30, OTHER, ("acme:7", 0)))
    assert times(rig.export(faults(START + 70, OTHER, ("acme:7", 2))), "accel.fault_code")[0] == START + 30


def test_a_fault_of_before_stays_so_when_its_series_vanishes_for_a_while() -> None:
    rig = Rig()
    rig.export(faults(START + 10, POD, ("acme:7", 3)))
    rig.export(faults(START + 70, OTHER, ("acme:7", 3)))
    rig.export(faults(START + 130, OTHER))
    assert times(rig.export(faults(START + 190, OTHER, ("acme:7", 3))), "accel.fault_code")[0] == START + 190
