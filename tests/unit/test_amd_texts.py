"""The texts of amdgpu's and KFD's files, the kernel's errors, and what follows from them without a device."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.amd import derive, files, identity, kfd, texts
from collectors.amd.cards import Card, Part
from collectors.amd.gpu_metrics import decode
from collectors.amd.health import HealthRule
from collectors.amd.plausibility import EnergyCheck
from collectors.amd.texts import Errors, Levels, Pages
from tests.fakes.amd import blobs, build, worlds
from tests.fakes.amd.tree import Process

CARD = Card(position=0, bdf="0000:05:00.0", folder=Path("/"), parts=(Part(position=0, partition=0),), uuid="a")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0: 500Mhz\n1: 1330Mhz *\n2: 2100Mhz\n", Levels(1330, 500, 2100)),
        ("0: 500Mhz\n1: 2100Mhz\n", Levels(None, 500, 2100)),
        ("S: 132Mhz *\n0: 500Mhz\n1: 2100Mhz\n", Levels(132, 500, 2100)),
        ("1: 16.0GT/s, x16 619Mhz *\n", Levels(619, 619, 619)),
        ("0: 2.5GT/s, x16 \n", Levels()),
        ("0: 900MHz *", Levels(900, 900, 900)),
        ("", Levels()),
        ("N/A\n", Levels()),
        ("0: Mhz *\n: 5Mhz\n0: -5Mhz\n", Levels()),
    ],
)
def test_the_levels_of_a_clock(text: str, expected: Levels) -> None:
    assert texts.levels(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("32.0 GT/s PCIe", 32.0), ("2.5 GT/s PCIe", 2.5), ("16 GT/s", 16.0), ("Unknown", None), ("", None)],
)
def test_the_speed_of_a_link(text: str, expected: float | None) -> None:
    assert texts.speed(text) == expected


def test_the_generation_of_a_speed() -> None:
    assert [texts.generation(s) for s in (2.5, 5, 8, 16, 32, 64)] == [1, 2, 3, 4, 5, 6]
    assert texts.generation(20.0) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ue: 0\nce: 3\nde: 1\n", Errors(3, 0, 1)),
        ("ue: 0\nce: 3\n", Errors(3, 0, None)),
        ("Query currently inaccessible\n", Errors()),
        ("", Errors()),
        ("ue: x\nce: -1\n", Errors()),
    ],
)
def test_the_errors_of_a_block(text: str, expected: Errors) -> None:
    assert texts.errors(text) == expected


def test_the_bad_pages() -> None:
    lines = [f"0x{0x12AF3 + n:08x} : 0x00001000 : {state}" for n, state in enumerate("RRPFR")]
    assert texts.pages("\n".join(lines) + "\n") == Pages(retired=3, pending=1, unreservable=1)
    assert texts.pages("") == Pages()
    assert texts.pages("0x1 : 0x1000 : X\nhalf a li") == Pages()


@given(st.text(max_size=300))
def test_no_text_breaks_a_parser(text: str) -> None:
    for parse in (texts.levels, texts.speed, texts.errors, texts.pages, texts.properties, texts.numbers):
        parse(text)
    assert all(value >= 0 for value in texts.properties(text).values())


# Files


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOENT, None),
        (errno.EPERM, None),
        (errno.EOPNOTSUPP, None),
        (errno.ENODATA, None),
        (errno.EACCES, "permission"),
        (errno.EBUSY, "transient"),
        (errno.EAGAIN, "transient"),
        (errno.EIO, "transient"),
        (errno.ENODEV, "lost"),
    ],
)
def test_the_kernels_errors_have_a_meaning(monkeypatch: pytest.MonkeyPatch, number: int, kind: str | None) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Path, "open", refuse)
    if kind is None:
        assert files.read(Path("power1_average")) is None
        return
    with pytest.raises(files.FileError) as caught:
        files.read(Path("power1_average"))
    assert caught.value.kind == kind
    assert "power1_average" in str(caught.value)


def test_a_file_is_read_up_to_a_limit(tmp_path: Path) -> None:
    path = tmp_path / "big"
    path.write_bytes(b"x" * 10_000_000)
    assert len(files.read(path) or b"") == 4096
    assert len(files.read(path, 5000) or b"") == 5000


@pytest.mark.parametrize(("content", "expected"), [("12\n", 12), ("", None), ("N/A\n", None), ("0x1f", None)])
def test_a_number_is_a_number_or_nothing(tmp_path: Path, content: str, expected: int | None) -> None:
    (tmp_path / "file").write_text(content)
    assert files.number(tmp_path / "file") == expected


# KFD


def test_nodes_tell_their_card_and_partition(tmp_path: Path) -> None:
    tree = build(tmp_path, worlds.mi300x_cpx(2))
    nodes = kfd.nodes(str(tree.sys))
    assert [(node.bdf, node.partition, node.gpu_id, node.render) for node in nodes] == [
        (worlds.mi300x_bdf(i), n, 20_000 + 10 * i + n, 128 + 8 * i + n) for i in range(2) for n in range(8)
    ]
    assert {(node.compute_units, node.memory) for node in nodes} == {(38, worlds.MI300X_VRAM // 8)}


def test_partitions_that_the_kernel_does_not_number_are_told_apart_by_their_render_nodes(tmp_path: Path) -> None:
    tree = build(tmp_path, worlds.mi300x_cpx())
    for folder in (tree.sys / "class/kfd/kfd/topology/nodes").iterdir():
        properties = (folder / "properties").read_text()
        for n in range(8):
            properties = properties.replace(f"location_id {0x0500 | n << 28}\n", f"location_id {0x0500}\n")
        (folder / "properties").write_text(properties)
    assert [(node.partition, node.render) for node in kfd.nodes(str(tree.sys))] == [(n, 128 + n) for n in range(8)]


def test_processes_are_those_with_memory_on_the_node(tmp_path: Path) -> None:
    tree = build(tmp_path, worlds.mi300x(1))
    [node] = kfd.nodes(str(tree.sys))
    tree.processes(
        [
            Process(pid=700, memory={node.gpu_id: 5 << 30}, units={node.gpu_id: 76}),
            Process(pid=701, memory={node.gpu_id: 0}),
            Process(pid=702, memory={99: 1 << 30}),
        ]
    )
    assert kfd.processes(str(tree.sys), node) == [kfd.Process("700", 5 << 30, 76)]


def test_without_kfd_nothing_is_known_of_processes(tmp_path: Path) -> None:
    tree = build(tmp_path / "a", worlds.mi300x(1))
    [node] = kfd.nodes(str(tree.sys))
    assert kfd.processes(str(tmp_path / "b"), node) is None
    assert kfd.nodes(str(tmp_path / "b")) == []


# Identity


def test_the_uuid_is_the_one_that_amds_library_makes_of_the_chips_number() -> None:
    assert identity.uuid("9f440a1b2c3d4e5f", "1234") == "9fff1234-0000-1000-8044-0a1b2c3d4e5f"
    assert identity.uuid("9f444a2fb30adeb0", "74b9") == "9fff74b9-0000-1000-8044-4a2fb30adeb0"
    assert identity.uuid("b7d181671a192e45", "74b9") == "b7ff74b9-0000-1000-80d1-81671a192e45"
    assert identity.uuid("9f440a1b2c3d4e5f", "1234", 3) == "9f031234-0000-1000-8044-0a1b2c3d4e5f"
    assert identity.uuid("", "1234") == ""


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0x9F440A1B2C3D4E5F", "9f440a1b2c3d4e5f"), ("1a\n", "000000000000001a"), ("0", ""), ("N/A", ""), ("", "")],
)
def test_a_chips_number_has_sixteen_digits(text: str, expected: str) -> None:
    assert identity.hexadecimal(text, 16) == expected


@pytest.mark.parametrize(
    ("text", "expected"), [("MI300X", "MI300X"), ("N/A", ""), ("0x1002", ""), ("null", ""), (" a b ", "a b"), ("", "")]
)
def test_placeholders_are_no_names(text: str, expected: str) -> None:
    assert identity.plain(text) == expected


# What follows from two tables


def throttling(card: Card, **fields: int) -> derive.Throttling:
    found = derive.throttling(card, decode(blobs.table((1, 7), {"accumulation_counter": 0, **fields})))
    assert found is not None
    return found


def derived(card: Card, before: derive.Throttling, now: derive.Throttling) -> dict[tuple[str, ...], Any]:
    return {(r.series, *(value for _, value in r.labels)): r.value for r in derive.since(card, before, now)}


def test_a_share_is_the_growth_of_a_residency_over_that_of_the_counter() -> None:
    before = throttling(CARD, ppt_residency_acc=100, prochot_residency_acc=7, socket_thm_residency_acc=0)
    now = throttling(
        CARD, accumulation_counter=4000, ppt_residency_acc=1100, prochot_residency_acc=7, socket_thm_residency_acc=39
    )
    found = derived(CARD, before, now)
    assert found["gpu_violation_ppt_residency_percentage",] == 25
    assert found["gpu_violation_processor_hot_residency_percentage",] == 0
    assert found["gpu_violation_socket_thermal_residency_percentage",] == 0
    assert [found["amdsmi_throttle_active", reason] for reason in ("power_cap", "thermal", "other")] == [1, 1, 0]


@pytest.mark.parametrize("counter", [0, -1])
def test_without_progress_there_is_no_share(counter: int) -> None:
    before = throttling(CARD, accumulation_counter=1000, ppt_residency_acc=100)
    assert derived(CARD, before, throttling(CARD, accumulation_counter=1000 + counter, ppt_residency_acc=100)) == {}


def test_a_residency_that_began_anew_has_no_share() -> None:
    before = throttling(CARD, accumulation_counter=1000, ppt_residency_acc=100)
    found = derived(CARD, before, throttling(CARD, accumulation_counter=2000, ppt_residency_acc=5))
    assert ("gpu_violation_ppt_residency_percentage",) not in found
    assert found["amdsmi_throttle_active", "power_cap"] == 0


@pytest.mark.parametrize(
    ("bits", "active"),
    [
        (0, set()),
        (1 << 0, {"power_cap"}),
        (1 << 16, {"power_cap"}),
        (1 << 36, {"thermal"}),
        (1 << 45 | 1 << 3, {"thermal", "power_cap"}),
        (1 << 47, {"other"}),
        (1 << 57, {"other"}),
    ],
)
def test_the_drivers_bits_become_reasons(bits: int, active: set[str]) -> None:
    rows = list(derive.told_by_bits(CARD, decode(blobs.table((1, 3), {"indep_throttle_status": bits}))))
    assert {dict(row.labels)["reason"] for row in rows} == {"power_cap", "thermal", "other"}
    assert {dict(row.labels)["reason"] for row in rows if row.value} == active


# Plausibility and health


def run(check: EnergyCheck, watts: float, joules_per_second: float, seconds: Sequence[int]) -> None:
    for second in seconds:
        check.add(CARD, 1000 + joules_per_second * second, watts, float(second))


@pytest.mark.parametrize(
    ("rate", "believed"), [(300.0, True), (200.0, True), (550.0, True), (100.0, False), (1000.0, False), (0.0, False)]
)
def test_an_energy_counter_must_agree_with_power_within_a_factor_of_two(rate: float, believed: bool) -> None:
    check = EnergyCheck()
    run(check, 300.0, rate, range(0, 60, 5))
    assert check.believes(CARD) == believed
    assert check.news == ([] if believed else [CARD])


def test_a_gap_or_a_counter_that_began_anew_is_no_evidence() -> None:
    check = EnergyCheck()
    run(check, 300.0, 300.0, range(0, 25, 5))
    check.add(CARD, 0.0, 300.0, 26.0)
    check.add(CARD, 10.0, 300.0, 100.0)
    check.add(CARD, 1510.0, 300.0, 105.0)
    assert check.believes(CARD)


def test_a_card_that_idles_at_a_few_watts_is_not_judged_by_them() -> None:
    check = EnergyCheck()
    run(check, 3.0, 60.0, range(0, 60, 5))
    assert check.believes(CARD)


@pytest.mark.parametrize(
    ("uncorrectable", "threshold", "health"), [((0, 0), 0, 1), ((0, 1), 0, 0), ((2, 2), 2, 1), ((3, 0), 2, 0)]
)
def test_a_gpu_is_unhealthy_if_one_block_has_more_errors_than_the_threshold(
    uncorrectable: tuple[int, int], threshold: int, health: int
) -> None:
    blocks = {name: Errors(5, count) for name, count in zip(("umc", "gfx"), uncorrectable, strict=True)}
    assert [row.value for row in HealthRule(threshold, 0).rows(CARD, blocks, Errors())] == [health]


def test_of_a_gpu_that_counts_no_errors_nobody_knows_the_health() -> None:
    assert list(HealthRule(0, 0).rows(CARD, {}, Errors())) == []
    assert [row.value for row in HealthRule(0, 0).rows(CARD, {}, Errors(1, 1))] == [0]


def test_a_fatal_record_counts_for_a_time_or_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: 10_000.0)
    for age, health in ((0.0, 0), (5000.0, 1), (9500.0, 0)):
        rule = HealthRule(0, age)
        rule.fatal(CARD, 1000.0)
        assert [row.value for row in rule.rows(CARD, {"umc": Errors(0, 0)}, Errors())] == [health]
