"""The simulation keeps the laws of the devices that it stands for."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from collectors.base import NODE, Settings, Unavailable
from collectors.simulated import open_collector
from collectors.simulated.options import SimulatedOptions
from collectors.simulated.trouble import Course
from tests.simulated_rig import HANDMADE, WALL, handmade
from tests.unit.test_repository import ROOT


@pytest.mark.parametrize("scenario", ["training", "inference", "idle", "failing"])
def test_utilization_is_never_below_compute_nor_compute_below_matrix(scenario: str) -> None:
    rig = handmade(scenario)
    for second in range(0, 1500, 7):
        found = rig.values(second)
        if "utilization" in found:
            assert 1 >= found["utilization"] >= found["compute"] >= found["matrix"] >= 0


@pytest.mark.parametrize("scenario", ["training", "inference", "failing"])
def test_energy_is_the_integral_of_power(scenario: str) -> None:
    rig = handmade(scenario, cycle_seconds=4000)
    before, total = rig.values(0), 0.0
    first = before
    for step in range(1, 1200):
        now = rig.values(step / 4)
        total += (before["power"] + now["power"]) / 2 / 4
        before = now
    assert before["energy"] - first["energy"] == pytest.approx(total, rel=1e-3)
    assert before["energy_mj"] == pytest.approx(before["energy"] * 1000, abs=1000)


def test_energy_hardly_depends_on_how_often_it_is_asked() -> None:
    often, seldom = handmade(), handmade()
    start = often.values(0)["energy"]
    assert seldom.values(0)["energy"] == start
    for quarter in range(1, 4 * 240):
        often.values(quarter / 4)
    used = often.values(240)["energy"] - start
    assert used > 240 * 60
    assert seldom.values(240)["energy"] - start == pytest.approx(used, rel=1e-3)


def test_power_follows_load_and_temperature_follows_power() -> None:
    busy, idle = handmade("training"), handmade("idle")
    for second in range(0, 240, 5):
        worked, rested = busy.values(second), idle.values(second)
    assert worked["power"] > 3 * rested["power"]
    assert worked["die"] > rested["die"] + 15
    assert rested["utilization"] == rested["compute"] == 0
    assert worked["clock"] > 2 * rested["clock"]


def test_heat_lags_behind_power() -> None:
    """At 500 s all work of this device stops at once."""
    rig = handmade("failing", cycle_seconds=1000)
    for second in range(0, 500, 5):
        before = rig.values(second)
    soon, late = rig.values(512), rig.values(559)
    fallen = {name: (before[name] - soon[name]) / (before[name] - late[name]) for name in ("power", "die")}
    assert fallen["power"] > 0.9
    assert fallen["die"] < 0.6
    assert late["die"] < before["die"] - 20


def test_a_node_is_met_at_work() -> None:
    found = handmade("training").values(0)
    assert found["utilization"] > 0.05
    assert found["die"] > 35
    assert found["energy"] > 1e6


def test_limits_hold_on_the_hottest_device() -> None:
    rig = handmade("failing")
    throttled = False
    for second in range(0, 1300, 3):
        found = rig.values(second)
        if not found:
            continue
        assert 0 < found["power"] <= found["power_limit"]
        assert 20 < found["die"] < found["shutdown"]
        assert found["clock"] <= found["clock_limit"]
        if int(found["reasons"]) & 0x20:
            throttled = True
            assert found["die"] > found["slowdown"] - 5
            assert found["clock"] < 0.75 * found["clock_limit"]
        assert int(found["reasons"]) & ~0x24 == 0, "one bit of each reason"
    assert throttled


@pytest.mark.parametrize("scenario", ["training", "inference", "idle", "failing"])
def test_memory_adds_up(scenario: str) -> None:
    rig = handmade(scenario)
    for second in range(0, 700, 11):
        found = rig.values(second)
        if found:
            assert found["used"] + found["free"] + found["reserved"] == pytest.approx(found["total"])
            assert min(found["used"], found["free"], found["reserved"]) >= 0


def test_links_share_what_the_device_sends() -> None:
    rig = handmade("training", simulation={"device": {"links": 6}}, links="each")
    found, _ = rig.at(400)
    links = [value for (series, _, _), value in found.items() if series == "link_bytes"]
    assert len(links) == len(set(links)) == 6
    assert sum(links) == pytest.approx(found["sent", 0, ()], abs=6)


def test_summed_links_are_one_series_without_their_label() -> None:
    found, _ = handmade("training", simulation={"device": {"links": 6}}).at(400)
    assert found["link_bytes", 0, ()] == found["sent", 0, ()] > 0
    assert not any(series == "link_up" for series, _, _ in found)


def test_a_series_is_read_in_the_group_that_the_agent_says() -> None:
    told = Settings(wanted={"fast": frozenset({"power"})}, options={**msgspec.to_builtins(HANDMADE), "devices": 1})
    collector = open_collector(told)
    collector.discover()
    assert [reading.series for reading in collector.sample("fast").readings] == ["power"]
    assert collector.sample("normal").readings == []


def test_one_scenario_can_be_for_all() -> None:
    rig = handmade(scenario="idle", devices=3, scenarios=["training", "inference"])
    assert {value for (series, _, _), value in rig.at(100)[0].items() if series == "utilization"} == {0}


def test_a_failing_device_fails_in_order_and_comes_back() -> None:
    rig = handmade("failing", cycle_seconds=100)
    sound = rig.values(10)
    assert (sound["ecc"], sound["action"]) == (0, 0)
    faults = []
    for second in range(11, 50):
        _, samples = rig.at(second)
        faults += [fault for sample in samples for fault in sample.faults]
    assert [(fault.code, fault.device, fault.timestamp) for fault in faults] == [("af:3", 0, WALL + 15)]
    sick = rig.values(49)
    assert sick["ecc"] > 10
    _, samples = rig.at(52)
    assert [(fault.code, fault.timestamp) for sample in samples for fault in sample.faults] == [("af:99", WALL + 50)]
    hung = rig.values(53)
    assert (hung["utilization"], hung["action"]) == (0, 7)
    found, samples = rig.at(61)
    assert {position for _, position, _ in found} == {NODE}
    assert [list(sample.lost) for sample in samples] == [[0]] * 3
    found, samples = rig.at(101)
    assert [list(sample.lost) for sample in samples] == [[]] * 3
    back = rig.values(102)
    assert back["utilization"] > 0
    assert back["action"] == 0
    assert back["energy"] > hung["energy"]


def test_a_device_is_lost_for_as_long_as_the_alert_on_it_needs() -> None:
    """A sample older than a minute, seen by rules that are evaluated once a minute, and true for a minute more."""
    rig = handmade("failing")
    lost = [second for second in range(0, 600, 5) if any(sample.lost for sample in rig.at(second)[1])]
    assert lost == list(range(lost[0], 600, 5))
    assert 600 - lost[0] >= 60 + 60 + 60 + 30, "and a scrape each 30 seconds"


def test_the_page_on_alerts_tells_the_course_of_a_failing_device() -> None:
    page = (ROOT / "docs/alerts.md").read_text()
    told = re.findall(r"^\| (\d+):(\d\d) \| ", page, re.MULTILINE)
    start, errors, heat, fatal, lost, back = (60 * int(minutes) + int(seconds) for minutes, seconds in told)
    course = Course(SimulatedOptions().cycle_seconds, HANDMADE.faults)
    assert course.at(start) == course.at(errors - 1)
    assert course.at(errors - 1).correctable == 0 < course.at(errors + 1).correctable
    assert (course.at(heat - 1).hot, course.at(heat).hot) == (False, True)
    assert (course.at(fatal - 1).hung, course.at(fatal).hung) == (False, True)
    assert (course.at(lost - 1).lost, course.at(lost).lost) == (False, True)
    assert (course.at(back - 1).lost, course.at(back).lost) == (True, False)


def test_the_last_fault_stands_in_the_series_and_labels_that_tell_of_it() -> None:
    rig = handmade("failing", cycle_seconds=100)
    assert rig.at(10)[0]["last_fault", 0, (("code", "0"), ("text", ""))] == 0
    assert rig.at(40)[0]["last_fault", 0, (("code", "3"), ("text", "A bit flipped"))] == 3
    assert rig.at(54)[0]["last_fault", 0, (("code", "99"), ("text", "Off the bus"))] == 99


def test_faults_are_told_once_whichever_group_asks_first() -> None:
    rig = handmade("failing", cycle_seconds=100)
    rig.at(10)
    _, samples = rig.at(82)
    assert [len(sample.faults) for sample in samples] == [2, 0, 0]
    assert [len(sample.faults) for sample in rig.at(82)[1]] == [0, 0, 0]


def test_the_same_seed_and_times_give_the_same_numbers() -> None:
    times = [0, 3, 3.5, 60, 61, 400]
    runs = [[(rig.devices, *rig.at(now)) for now in times] for rig in (handmade("failing"), handmade("failing"))]
    assert runs[0] == runs[1]


@pytest.mark.parametrize("other", [{"seed": 2}, {"node": "node-b"}])
def test_another_seed_or_node_gives_other_devices(other: dict[str, Any]) -> None:
    one, two = handmade(), handmade(**other)
    assert one.devices[0].uuid != two.devices[0].uuid
    assert one.values(100)["power"] != two.values(100)["power"]


def test_a_clock_that_goes_back_is_a_clock_that_stands() -> None:
    rig = handmade()
    before = rig.values(100)
    assert rig.values(40)["energy"] == before["energy"]
    assert rig.values(101)["energy"] > before["energy"]


def test_parts_have_their_own_memory_and_the_whole_has_the_sum() -> None:
    rig = handmade("mixed", devices=2, parts=1, scenarios=["training", "inference"])
    whole, *parts, other = rig.devices
    assert [part.partition for part in parts] == ["quarter/0", "quarter/1", "quarter/2", "quarter/3"]
    assert {part.uuid for part in parts} == {whole.uuid}
    assert len({part.partition_uuid for part in parts}) == 4
    assert (other.index, other.partition) == ("1", "")
    found, _ = rig.at(120)
    positions = {position for series, position, _ in found if series == "memory_now"}
    assert positions == {1, 2, 3, 4, 5}
    assert sum(found["memory_now", position, ()] for position in (1, 2, 3, 4)) == pytest.approx(
        found["used", 0, ()], abs=4
    )
    assert ("power", 1, ()) not in found


def test_a_split_device_is_lost_with_its_parts() -> None:
    rig = handmade("failing", parts=1, cycle_seconds=100)
    found, samples = rig.at(90)
    assert list(samples[0].lost) == [0, 1, 2, 3, 4]
    assert {series for series, _, _ in found} == {"chassis"}


def test_labels_are_guessed_by_their_names_where_no_file_tells_them() -> None:
    [device] = handmade().devices
    assert device.raw_labels == (
        ("card", "Acme accelerators (simulated)"),
        ("uuid", device.uuid),
        ("model_name", "Acme accelerators (simulated)"),
        ("hostname", "node-a"),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        ({"devices": 0}, "devices"),
        ({"scenarios": ["sleeping"]}, "scenarios"),
        ({"scenarios": []}, "scenarios"),
        ({"parts": 1, "profile": "1g"}, "expected one of quarter"),
        ({"simulation": {"raw_labels": {"card": "{cart}"}}}, "cart"),
        ({"simulation": {"device": {"uuid": "{who}"}}}, "who"),
        ({"devices": "many"}, "devices"),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, Any], hint: str) -> None:
    told = {**msgspec.to_builtins(HANDMADE), **options}
    with pytest.raises(Unavailable, match=hint):
        open_collector(Settings(wanted={}, options=told)).discover()
