"""Which chip a device number means: the cases that hosts have shown, and those that cannot be told."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.tpu.chips import Chip
from collectors.tpu.generations import GIB, Generation, generation
from collectors.tpu.numbering import Numbers, duty_has_own_numbers, fold, place, ranks

IDS = {
    "v2": ("0x0027", "0x004e"), "v3": ("0x0027", "0x004f"), "v4": ("0x005e", "0x0000"), "v5e": ("0x0063", "0x0000"),
    "v5p": ("0x0062", "0x0000"), "v6e": ("0x006f", "0x0000"), "7x": ("0x0076", "0x0000"),
}  # fmt: skip


def of(name: str) -> Generation:
    found = generation("0x1ae0", *IDS[name])
    assert found is not None
    return found


def chips(name: str, count: int) -> list[Chip]:
    return [
        Chip(index=n, generation=of(name), slot=f"0000:0{n}:00", functions=(f"0000:0{n}:00.0",), nodes=(), numa_node="")
        for n in range(count)
    ]


@pytest.mark.parametrize(
    ("name", "cores", "gib", "devices", "model"),
    [
        ("v2", 2, 16, 2, "TPU v2"), ("v3", 2, 32, 2, "TPU v3"), ("v4", 2, 32, 1, "TPU v4"),
        ("v5e", 1, 16, 1, "TPU v5e"), ("v5p", 2, 95, 1, "TPU v5p"), ("v6e", 1, 32, 1, "TPU v6e"),
        ("7x", 2, 192, 2, "TPU 7x"),
    ],
)  # fmt: skip
def test_the_table_of_generations_is_tpu_infos(name: str, cores: int, gib: int, devices: int, model: str) -> None:
    found = of(name)
    assert (found.tensorcores, found.hbm_bytes, found.devices, found.model) == (cores, gib * GIB, devices, model)


def test_other_devices_of_google_and_of_others_are_no_tpu() -> None:
    assert generation("0x1ae0", "0x001f", "0x0000") is None
    assert generation("0x1ae0", "0x0042", "0x0058") is None
    assert generation("0x10de", "0x006f", "0x0000") is None
    assert generation("0x1ae0", "0x0027", "0x0000") is None


@pytest.mark.parametrize(
    ("name", "numbers", "count", "places"),
    [
        ("v6e", {0, 1, 2, 3}, 4, {0: 0, 1: 1, 2: 2, 3: 3}),
        ("v6e", {8, 9, 12, 13}, 4, {8: 0, 9: 1, 12: 2, 13: 3}),
        ("v4", {4, 5, 6, 7}, 4, {4: 0, 5: 1, 6: 2, 7: 3}),
        ("7x", {4, 5, 6, 7}, 4, {4: 0, 5: 1, 6: 2, 7: 3}),
        ("7x", set(range(8, 16)), 4, {8: 0, 9: 0, 10: 1, 11: 1, 12: 2, 13: 2, 14: 3, 15: 3}),
        ("v3", {0, 1, 2, 3}, 2, {0: 0, 1: 0, 2: 1, 3: 1}),
        ("v5e", set(), 8, {}),
    ],
)
def test_numbers_are_placed_by_rank(name: str, numbers: set[int], count: int, places: dict[int, int]) -> None:
    assert place(numbers, chips(name, count)) == places


@pytest.mark.parametrize(("name", "count"), [("v6e", 3), ("v6e", 8), ("v6e", 2), ("7x", 6), ("7x", 12)])
def test_what_does_not_fit_four_chips_is_not_placed(name: str, count: int) -> None:
    assert place(set(range(count)), chips(name, 4)) is None


def test_only_old_chips_number_duty_cycles_apart_from_memory() -> None:
    assert duty_has_own_numbers(range(4), range(8), chips("v3", 4))
    assert not duty_has_own_numbers(range(4), range(8), chips("7x", 4))
    assert not duty_has_own_numbers(range(8), range(8), chips("v3", 4))


def test_a_number_that_is_left_out_for_a_while_moves_no_other() -> None:
    numbers = Numbers()
    whole = frozenset((8, 9, 12, 13))
    assert numbers.all(whole, 1, 4) == whole
    assert numbers.all(frozenset((8, 12, 13)), 1, 4) == whole
    assert numbers.all(frozenset((4, 5, 6, 7)), 1, 4) == {4, 5, 6, 7}
    assert numbers.all(frozenset((0, 1)), 2, 4) == {0, 1}


def test_memory_of_parts_is_summed_and_a_repeated_whole_is_not() -> None:
    hbm = 192 * GIB
    half, whole = 94 * GIB, 189 * GIB
    assert fold([10, 20], "memory", [half, half], hbm) == 30
    assert fold([20, 20], "memory", [whole, whole], hbm) == 20
    assert fold([20, 20], "memory", [], hbm) is None
    assert fold([20], "memory", [], hbm) == 20
    assert (fold([40, 60], "max", [], hbm), fold([40, 60], "min", [], hbm), fold([40, 60], "mean", [], hbm)) == (
        60,
        40,
        50,
    )


@pytest.mark.parametrize(
    ("bound", "free", "local", "count", "places"),
    [
        # A second host of a slice: 4 to 7 are the chips 0 to 3, and the zeros at 0 to 3 stand for nothing.
        ({4, 5, 6, 7}, {0, 1, 2, 3, 4, 5, 6, 7}, {0, 1, 2, 3}, 4, {4: 0, 5: 1, 6: 2, 7: 3}),
        ({8, 9, 12, 13}, {8, 9, 12, 13, 0, 1, 2, 3}, {0, 1, 2, 3}, 0, {8: 0, 9: 1, 12: 2, 13: 3}),
        # The first host: both numberings are the same.
        ({0, 1, 2, 3}, {0, 1, 2, 3}, {0, 1, 2, 3}, 4, {0: 0, 1: 1, 2: 2, 3: 3}),
        # Nobody works.
        (set(), {0, 1, 2, 3}, {0, 1, 2, 3}, 4, {0: 0, 1: 1, 2: 2, 3: 3}),
        (set(), {0, 1, 2, 3}, set(), 0, {0: 0, 1: 1, 2: 2, 3: 3}),
        # The containers' series are left out for a moment.
        (set(), {4, 5, 6, 7}, {0, 1, 2, 3}, 4, {4: 0, 5: 1, 6: 2, 7: 3}),
        # A pod has two of four chips, by numbers that can only be places.
        ({0, 1}, {0, 1, 2, 3}, {0, 1, 2, 3}, 4, {0: 0, 1: 1, 2: 2, 3: 3}),
        # Two of four, by numbers that say nothing of places.
        ({4, 5}, {0, 1, 2, 3, 4, 5}, {0, 1, 2, 3}, 4, None),
        (set(), {0, 1, 2, 3, 4, 5, 6, 7}, {0, 1, 2, 3}, 4, None),
        (set(), set(), {0, 1}, 2, {}),
    ],
)  # fmt: skip
def test_the_plugins_two_numberings_become_one(
    bound: set[int], free: set[int], local: set[int], count: int, places: dict[int, int] | None
) -> None:
    assert ranks(bound, free, local, count) == places


@given(st.sets(st.integers(0, 40)), st.sets(st.integers(0, 40)), st.sets(st.integers(0, 8)), st.integers(0, 8))
def test_no_two_of_the_plugins_numbers_get_one_place(
    bound: set[int], free: set[int], local: set[int], count: int
) -> None:
    places = ranks(bound, free, local, count)
    assert places is None or len(set(places.values())) == len(places)
    assert places is None or set(places) <= bound | free
