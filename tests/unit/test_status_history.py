"""The short memory behind the page's curves: what it keeps, what it forgets, and how little it may take."""

from __future__ import annotations

import gc
import tracemalloc
from math import inf, nan

import pytest

from exporter.families import Block, Family, Publication, prefix
from exporter.model import Number
from exporter.status.history import MOST_TRACKED, POINTS, History
from exporter.status.model import DeviceHistory

Values = dict[tuple[str, str], Number]
"""(uuid, partition) → watts."""


def publication(version: int, watts: Values, **further: Number) -> Publication:
    """Power of devices; ``further``: temperature of the device A by sensor."""

    def family(metric: str, rows: list[tuple[tuple[tuple[str, str], ...], Number]]) -> Family:
        texts = tuple(prefix(metric, labels) for labels, _ in rows)
        return Family(metric, "gauge", "x", "common", (Block(texts, tuple(value for _, value in rows)),))

    rows = [((("vendor", "acme"), ("uuid", uuid), ("partition", part)), value) for (uuid, part), value in watts.items()]
    hot = [((("vendor", "acme"), ("uuid", "A"), ("sensor", sensor)), value) for sensor, value in further.items()]
    return Publication(version, (family("accel_power_watts", [*rows]), family("accel_temperature_celsius", [*hot])))


def told(history: History, since: float = 0.0) -> dict[str, DeviceHistory]:
    return {each.uuid + each.partition: each for each in history.devices(since)}


def test_each_point_is_one_value_of_each_device_and_a_gap_is_null() -> None:
    history = History()
    history.record(publication(1, {("A", ""): 100, ("B", "p"): 5}), 10.0)
    history.record(publication(2, {("A", ""): 110}), 15.0)
    history.record(publication(3, {("A", ""): 120, ("B", "p"): 7}), 20.0)
    assert history.times() == (10.0, 15.0, 20.0)
    assert told(history)["A"].power_watts == (100, 110, 120)
    assert told(history)["Bp"].power_watts == (5, None, 7)
    assert (told(history)["A"].vendor, told(history)["A"].temperature_celsius) == ("acme", ())


def test_a_device_that_came_later_had_nothing_before() -> None:
    history = History()
    history.record(publication(1, {("A", ""): 1}), 1.0)
    history.record(publication(2, {("A", ""): 2, ("B", ""): 3}), 2.0)
    assert told(history)["B"].power_watts == (None, 3)


def test_a_publication_counts_once() -> None:
    history = History()
    for now in (1.0, 2.0):
        history.record(publication(1, {("A", ""): 1}), now)
    assert history.times() == (1.0,)


def test_only_what_is_newer_is_told_to_who_has_the_rest() -> None:
    history = History()
    for number in range(1, 6):
        history.record(publication(number, {("A", ""): number}), number * 5.0)
    assert history.times(15.0) == (20.0, 25.0)
    assert told(history, 15.0)["A"].power_watts == (4, 5)
    assert history.times(25.0) == ()
    assert history.times(3.0) == (5.0, 10.0, 15.0, 20.0, 25.0)


def test_a_clock_that_was_set_back_hides_nothing_that_came_after() -> None:
    history = History()
    for number, now in enumerate((1000.0, 1005.0, 500.0, 505.0), 1):
        history.record(publication(number, {("A", ""): number}), now)
    assert history.times(505.0) == ()
    assert history.times(500.0) == (505.0,)


def test_the_oldest_points_go_and_with_them_devices_that_are_gone() -> None:
    history = History()
    history.record(publication(1, {("A", ""): 1, ("B", ""): 1}), 1.0)
    for number in range(2, POINTS + 1):
        history.record(publication(number, {("A", ""): number}), float(number))
    assert set(told(history)) == {"A", "B"}
    history.record(publication(POINTS + 1, {("A", ""): POINTS + 1}), float(POINTS + 1))
    assert set(told(history)) == {"A"}
    assert history.times() == tuple(float(number) for number in range(2, POINTS + 2))
    assert told(history)["A"].power_watts == tuple(range(2, POINTS + 2))


def test_what_is_no_number_is_a_gap() -> None:
    history = History()
    for number, value in enumerate((nan, inf, -inf, 4.0), 1):
        history.record(publication(number, {("A", ""): value}), float(number))
    assert told(history)["A"].power_watts == (None, None, None, 4)


@pytest.mark.parametrize(
    ("sensors", "shown"), [({"memory": 80, "die": 60}, 60), ({"memory": 80, "hotspot": 70}, 70), ({"strange": 9}, None)]
)
def test_the_temperature_is_that_of_the_first_sensor_that_there_is(sensors: dict[str, int], shown: int | None) -> None:
    history = History()
    history.record(publication(1, {("A", ""): 1}, **sensors), 1.0)
    assert told(history)["A"].temperature_celsius == (() if shown is None else (shown,))


def test_numbers_have_four_digits() -> None:
    history = History()
    history.record(publication(1, {("A", ""): 85_899_345_920, ("B", ""): 0.123456}), 1.0)
    assert told(history)["A"].power_watts == (85_900_000_000,)
    assert told(history)["B"].power_watts == (0.1235,)


def test_memory_is_bounded_whatever_comes() -> None:
    """2,400 bytes are five quantities of 120 numbers of four bytes; here each device has one."""
    history = History()
    for number in range(1, 3 * POINTS):
        history.record(publication(number, {(f"D{device}", ""): device for device in range(40)}), float(number))
    assert history.bytes == POINTS * 8 + 40 * POINTS * 4
    history = History()
    everything: Values = {(f"D{device}", ""): device for device in range(2 * MOST_TRACKED)}
    history.record(publication(1, everything), 1.0)
    assert len(told(history)) == MOST_TRACKED
    assert history.bytes == POINTS * 8 + MOST_TRACKED * POINTS * 4


def test_devices_that_come_and_go_leave_nothing_behind() -> None:
    history = History()

    def churn(first: int) -> None:
        for number in range(first, first + 2 * POINTS):
            history.record(publication(number, {(f"D{number // 10}", ""): 1, ("A", ""): 2}), float(number))

    def kept() -> int:
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        churn(1)
        before = kept()
        churn(1 + 2 * POINTS)
        churn(1 + 4 * POINTS)
        grown = kept() - before
    finally:
        tracemalloc.stop()
    # 48 devices came and went, each with a ring of 480 bytes.
    assert grown < 48 * 480 / 2
    assert len(told(history)) <= POINTS // 10 + 2
