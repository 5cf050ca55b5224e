from __future__ import annotations

from pathlib import Path

import pytest

from tests import golden


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(golden, "FOLDER", tmp_path)
    monkeypatch.delenv("UPDATE_GOLDEN", raising=False)
    return tmp_path


def test_the_same_text_passes_and_another_fails_with_the_difference(folder: Path) -> None:
    (folder / "a.txt").write_text("one\ntwo\n")

    golden.assert_golden("a.txt", "one\ntwo\n")
    with pytest.raises(AssertionError, match=r"-two\n\+three"):
        golden.assert_golden("a.txt", "one\nthree\n")


def test_a_missing_file_says_what_to_do() -> None:
    with pytest.raises(AssertionError, match="UPDATE_GOLDEN=1"):
        golden.assert_golden("absent.txt", "one\n")


@pytest.mark.parametrize(
    ("line", "skipped"),
    [
        ('accel_exporter_build_info{version="2"} 1.0', True),
        ("process_cpu_seconds_total 12.5", True),
        ('accel_exporter_collector_duration_seconds_bucket{collector="x",le="0.1"} 4.0', True),
        ('accel_exporter_collector_last_success_timestamp_seconds{collector="x"} 1.7e+09', True),
        ('accel_exporter_collector_up{collector="x"} 0.0', False),
        ('accel_temperature_celsius{device="0"} 61', False),
        ("# TYPE process_cpu_seconds_total counter", False),
    ],
)
def test_volatile_samples_are_skipped_on_both_sides_and_nothing_else(folder: Path, line: str, skipped: bool) -> None:
    (folder / "a.txt").write_text("one\n")
    (folder / "b.txt").write_text(f"one\n{line}\n")

    for file, text in (("a.txt", f"one\n{line}\n"), ("b.txt", "one\n")):
        if skipped:
            golden.assert_golden(file, text)
        else:
            with pytest.raises(AssertionError):
                golden.assert_golden(file, text)


def test_the_update_flag_rewrites_the_file_without_volatile_samples(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UPDATE_GOLDEN", "1")

    golden.assert_golden("deep/a.txt", "one\r\x85\nprocess_open_fds 7\n")

    assert (folder / "deep" / "a.txt").read_bytes() == "one\r\x85\n".encode()
    monkeypatch.delenv("UPDATE_GOLDEN")
    golden.assert_golden("deep/a.txt", "one\r\x85\nprocess_open_fds 9\n")
