"""The kernel's log as the device and as a file: from its end, in bounded pieces, over what was overwritten."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from collectors import kernel_log
from collectors.kernel_log import KernelLog


def event(line: str) -> int | None:
    """The number in lines such as ``event 7``."""
    text, _ = kernel_log.text_and_uptime(line)
    found = re.match(r"event (\d+)", text)
    return int(found[1]) if found else None


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("3,1410,5120000000,-;event 1", ("event 1", 5120.0)),
        ("6,1,2500000,c,caller=T7;event 2\n KEY=value", ("event 2\n KEY=value", 2.5)),
        ("[Sun Feb 23 16:24:18 2025] event 3", ("[Sun Feb 23 16:24:18 2025] event 3", None)),
        ("", ("", None)),
    ],
    ids=["record", "record with a dictionary", "dmesg", "empty"],
)
def test_a_record_has_a_text_and_a_time(line: str, expected: tuple[str, float | None]) -> None:
    assert kernel_log.text_and_uptime(line) == expected


def test_the_time_of_a_record_becomes_the_time_of_day() -> None:
    assert kernel_log.unix_time(90.0, 1_000_000.0, 100.0) == 999_990.0


def test_a_record_of_the_future_or_without_time_happened_now() -> None:
    for logged in (None, 101.0):
        assert kernel_log.unix_time(logged, 1_000_000.0, 100.0) == 1_000_000.0


def test_the_log_is_read_from_its_end_and_half_lines_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "kmsg"
    path.write_text("event 48\n")
    log = KernelLog(str(path), event)
    assert log.drain() == []
    with path.open("a") as file:
        file.write("event 31\neve")
    assert log.drain() == [31]
    with path.open("a") as file:
        file.write("nt 74\n")
    assert log.drain() == [74]
    assert log.drain() == []
    log.close()


class Device:
    """Stands for /dev/kmsg: a read gives one record, nothing, or says that records were overwritten."""

    def __init__(self, *reads: bytes | OSError) -> None:
        self.reads = list(reads)

    def __call__(self, descriptor: int, size: int) -> bytes:
        assert size >= 8192, "the kernel refuses a buffer that is shorter than a record"
        if not self.reads:
            raise BlockingIOError
        answer = self.reads.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer


@pytest.fixture
def device_log(tmp_path: Path) -> KernelLog[int]:
    fifo = tmp_path / "kmsg"
    fifo.touch()
    log = KernelLog(str(fifo), event)
    log._stream = False
    return log


def test_an_overrun_loses_records_and_not_the_log(device_log: KernelLog[int], monkeypatch: pytest.MonkeyPatch) -> None:
    first = b"3,1,1000,-;event 31\n KEY=value\n"
    last = b"3,9,2000,-;event 79\n"
    device = Device(first, BrokenPipeError(32, "overrun"), last)
    monkeypatch.setattr(os, "read", device)
    assert device_log.drain() == [31, 79]
    monkeypatch.undo()
    device_log.close()


def test_a_flood_is_read_in_bounded_pieces(device_log: KernelLog[int], monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device(*[b"6,1,1000,-;noise\n"] * 5000, b"3,9,2000,-;event 79\n")
    monkeypatch.setattr(os, "read", device)
    assert device_log.drain() == []
    assert len(device.reads) > 0
    drains = 0
    while device.reads:
        found = device_log.drain()
        drains += 1
    assert found == [79]
    assert drains < 10
    monkeypatch.undo()
    device_log.close()
