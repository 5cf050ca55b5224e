"""What ``accel-exporter top`` draws: numbers, reasons, widths, and nothing that a terminal would obey."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from exporter.status.frame import View, clean, columns, fit, frame
from exporter.status.model import Collector, Count, Device, Devices, FaultCode, Status, Workload

BUSY = Device(
    vendor="acme",
    device="0",
    uuid="A",
    model="A1",
    health="healthy",
    sampled_at=97.0,
    utilization_ratio=0.75,
    compute_active_ratio=0.1,
    memory_used_bytes=3 * 2**30,
    memory_total_bytes=64 * 2**30,
    temperature_celsius=61.4,
    power_watts=312.6,
    allocated=True,
    workloads=(Workload(namespace="ns", pod="train-0"), Workload(namespace="ns", pod="train-1")),
)


def view(*devices: Device, counts: tuple[Count, ...] = (), trouble: str = "", **status: Any) -> View:
    given = {
        "agent_version": "1.2.3",
        "node": "node-7",
        "now": 100.0,
        "started_at": 1.0,
        "ready": True,
        "healthy": True,
    }
    return View(
        devices=Devices(now=100.0, version=1, devices=devices, counts=counts, sources=()),
        status=Status(**{**given, **status}),
        trouble=trouble,
        age=5.0,
    )


def texts(what: View, width: int = 500, height: int | None = None) -> list[str]:
    return [line.text for line in frame(what, width, height)]


def row(what: View, name: str) -> str:
    [found] = [text for text in texts(what) if text.startswith(name)]
    return found


def test_a_device_is_one_line_with_all_that_it_tells() -> None:
    words = row(view(BUSY), "acme 0").split("  ")
    cells = [word.strip() for word in words if word.strip()]
    assert cells == [
        "acme 0 A1", "healthy", "75%", "██████··", "10%", "█·······", "3.0/64 GiB", "61 °C", "313 W", "8 s",
        "ns/train-0 +1",
    ]  # fmt: skip


def test_what_a_device_does_not_tell_is_a_dash_and_no_zero() -> None:
    cells = row(view(Device(vendor="acme", device="1", uuid="B", health="unknown", stale=True)), "acme 1").split()
    assert cells == ["acme", "1", "unknown", "-", "-", "-", "-", "-", "-", "stale", "-"]


def test_a_device_that_nobody_holds_is_free() -> None:
    assert row(view(msgspec.structs.replace(BUSY, workloads=(), allocated=False)), "acme 0").endswith("free")


def test_parts_stand_under_their_whole() -> None:
    part = Device(vendor="acme", device="0", uuid="A", partition="half/0", utilization_ratio=0.5)
    lines = texts(view(msgspec.structs.replace(BUSY, parts=(part,))))
    position = next(number for number, text in enumerate(lines) if text.startswith("acme 0"))
    assert lines[position + 1].startswith("  └ half/0")
    assert "50%" in lines[position + 1]


def test_what_is_wrong_is_said_in_words() -> None:
    fault = FaultCode(
        code="acme:7",
        name="core halted",
        fault_class="compute",
        severity="fatal",
        action="reset_device",
        count=1,
        last=99,
    )
    ill = Device(
        vendor="acme", device="1", uuid="B", health="failed",
        reasons=("does not answer", "fault acme:ecc_derr"), faults=(fault,),
        recovery_actions=("reset_device",), throttling=("thermal",),
    )  # fmt: skip
    hung = Collector(
        name="acme",
        title="Acme",
        vendor="acme",
        state="timeout",
        hint="look at the kernel's log",
        devices=2,
        stale=("normal",),
    )
    absent = Collector(name="zeta", title="Zeta", vendor="zeta", state="no_device", hint="no sign")
    count = Count(vendor="acme", present=3, reporting=1, expected=2)
    lines = texts(
        view(BUSY, ill, counts=(count,), collectors=(hung, absent), simulated=True, trouble="http://x is silent")
    )
    assert "acme 1: does not answer, fault acme:ecc_derr, needs reset device, slowed down by thermal" in lines
    assert "collector acme is timeout, stale: normal: look at the kernel's log" in lines
    assert not [text for text in lines if "zeta" in text]
    assert "acme: 2 of 3 devices not reporting" in lines
    assert "SIMULATED: no device of this list exists." in lines
    assert "NO ANSWER for 5 s: http://x is silent" in lines


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ({"ready": False}, "The first samples are being taken."),
        ({"common_schema": False}, "schema.common: false"),
        ({}, "'accel-exporter doctor' tells why"),
    ],
)
def test_a_node_without_devices_says_why(status: dict[str, Any], words: str) -> None:
    assert [text for text in texts(view(**status)) if words in text]


@pytest.mark.parametrize("width", [20, 47, 80, 200])
def test_no_line_is_wider_than_the_window(width: int) -> None:
    wide = msgspec.structs.replace(BUSY, model="加速器" * 30, workloads=(Workload(namespace="n", pod="e\u0301" * 200),))
    found = texts(view(wide), width)
    assert max(columns(text) for text in found) <= width
    assert any(text.endswith("…") for text in found)


@pytest.mark.parametrize("height", [1, 3, 10])
def test_no_more_lines_than_the_window_has(height: int) -> None:
    devices = [msgspec.structs.replace(BUSY, device=str(number), uuid=str(number)) for number in range(20)]
    found = texts(view(*devices), 100, height)
    assert len(found) == height
    assert "more lines" in found[-1]


def test_wide_characters_count_as_the_terminal_counts_them() -> None:
    assert columns("ab") == 2
    assert columns("加速") == 4
    assert columns("e\u0301") == 1
    assert fit("加速器", 5) == "加速…"
    assert fit("abc", 3) == "abc"


@pytest.mark.parametrize("evil", ["\x1b[2J", "\x9b31m", "\r\n", "\x07", "\u202e", "\u2028", "\x00"])
def test_names_cannot_steer_the_terminal(evil: str) -> None:
    device = msgspec.structs.replace(
        BUSY, device=evil, model=evil, health="failed", reasons=(evil,), partition="",
        workloads=(Workload(namespace=evil, pod=evil),),
    )  # fmt: skip
    hung = Collector(name=evil, title=evil, vendor=evil, state="failed", hint=evil)
    what = view(device, counts=(Count(vendor=evil, expected=5),), collectors=(hung,), node=evil, trouble=evil)
    assert all(text.isprintable() for text in texts(what))
    assert clean(f"a{evil}b").isprintable()


def test_one_device_with_a_name_without_end_leaves_the_others_their_columns() -> None:
    long = msgspec.structs.replace(BUSY, device="1", model="x" * 10_000, power_watts=1e308)
    found = row(view(BUSY, long), "acme 0")
    assert "ns/train-0" in found[:200]
    assert all(columns(text) <= 200 for text in texts(view(BUSY, long)) if text.startswith("acme"))


def test_whole_numbers_beyond_every_float_are_no_numbers() -> None:
    vast = 10**400
    device = Device(
        vendor="acme", device="0", uuid="A", memory_used_bytes=vast, memory_total_bytes=vast, power_watts=vast
    )
    cells = row(view(device), "acme 0").split()
    assert cells == ["acme", "0", "-", "-", "?/?", "GiB", "-", "?", "-", "-"]
