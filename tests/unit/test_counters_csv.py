"""A counters file as other exporters take it: what is read, what is told."""

# ruff: noqa: E501 - the tables are read by their columns
from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.config import ConfigError
from exporter.config.counters_csv import Counter, choose, parse, read

# In the shape of the files that are in use: a head in comments, blanks for alignment, an entry without a series.
USUAL = """\
# Format
# If line starts with a '#' it is considered a comment
# DCGM FIELD, Prometheus metric type, help message

# Clocks
DCGM_FI_DEV_SM_CLOCK,  gauge, SM clock frequency (in MHz).
DCGM_FI_DEV_DEC_UTIL ,      gauge, Decoder utilization (in %).

# Energy,,
   DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION, counter, Total energy consumption since boot (in mJ).
# DCGM_FI_DEV_POWER_VIOLATION,       counter, Throttling duration due to power constraints (in us).
DCGM_FI_DRIVER_VERSION, label, Driver Version
DCGM_EXP_XID_ERRORS_COUNT, gauge, Count of XID Errors, by code, within a window.
DCGM_FI_DEV_GPU_TEMP,gauge,"Temperature, in ""C""."
"""


def told(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse(text, "counters.csv")
    return [str(problem) for problem in caught.value.problems]


def test_a_usual_file_is_read() -> None:
    counters = parse(USUAL, "counters.csv")
    assert counters.warnings == ()
    assert counters.entries == (
        Counter("DCGM_FI_DEV_SM_CLOCK", "gauge", "SM clock frequency (in MHz).", 6),
        Counter("DCGM_FI_DEV_DEC_UTIL", "gauge", "Decoder utilization (in %).", 7),
        Counter("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "counter", "Total energy consumption since boot (in mJ).", 10),
        Counter("DCGM_FI_DRIVER_VERSION", "label", "Driver Version", 12),
        Counter("DCGM_EXP_XID_ERRORS_COUNT", "gauge", "Count of XID Errors, by code, within a window.", 13),
        Counter("DCGM_FI_DEV_GPU_TEMP", "gauge", 'Temperature, in "C".', 14),
    )


@pytest.mark.parametrize("ending", ["\r\n", "\n"])
def test_line_ends_of_any_system_count_alike(ending: str) -> None:
    assert parse(USUAL.replace("\n", ending), "c").entries == parse(USUAL, "c").entries


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a, gauge, A\nb, gauge\n", 'counters.csv:2: line: got "b, gauge", expected three fields: name, type, help'),
        ("a\n", 'counters.csv:1: line: got "a", expected three fields: name, type, help'),
        (",gauge,x\n", 'counters.csv:1: line: got ",gauge,x", expected three fields: name, type, help'),
        ("\n\na, gouge, A\n", 'counters.csv:3: a type: got "gouge", expected one of gauge, counter, histogram, summary, label'),
        ("a, Gauge, A\n", 'counters.csv:1: a type: got "Gauge", expected one of'),
        ("1a, gauge, A\n", 'counters.csv:1: name: got "1a", expected a metric name'),
        ("a b, gauge, A\n", 'counters.csv:1: name: got "a b", expected a metric name'),
        ("é, gauge, A\n", 'counters.csv:1: name: got "\\u00e9", expected a metric name'),
        ('a, gauge, "A\nb, gauge, B"\n', 'counters.csv:1: line: got "a, gauge, \\"A", expected name, type, help, with quotes in pairs'),
        ("", "counters.csv: counters file: it names no series, expected lines of: name, type, help"),
        ("# a, gauge, A\n", "counters.csv: counters file: it names no series"),
        ("a;gauge;A\n", 'counters.csv:1: line: got "a;gauge;A", expected three fields'),
    ],
)  # fmt: skip
def test_a_wrong_line_is_told_with_its_number(text: str, message: str) -> None:
    assert any(problem.startswith(message) for problem in told(text)), told(text)


def test_all_wrong_lines_are_told() -> None:
    assert [problem.split(": ")[0] for problem in told("a\nb, gauge, B\nc\nd, x, D")] == [
        "counters.csv:1",
        "counters.csv:3",
        "counters.csv:4",
    ]


def test_a_name_that_stands_twice_is_a_warning_and_the_first_counts() -> None:
    counters = parse("a, gauge, first\na, counter, second\n", "counters.csv")
    assert [entry.help for entry in counters.entries] == ["first"]
    assert counters.warnings == ("counters.csv:2: a stands already in line 1, which counts",)


def test_names_that_nobody_knows_are_warnings_with_the_nearest_that_is_known() -> None:
    counters = parse("red_power, gauge, P\nred_powr, gauge, P\nzzz, gauge, Z\n", "counters.csv")
    choice = choose(counters, {"red_power": "red_power", "red_temp": "red_temp"})
    assert set(choice.entries) == {"red_power"}
    assert choice.warnings == (
        "counters.csv:2: red_powr is not a series that any collector knows: it is left out; "
        "the nearest that is: red_power",
        "counters.csv:3: zzz is not a series that any collector knows: it is left out",
    )


def test_a_type_that_the_series_has_not_is_told() -> None:
    counters = parse("red_power, histogram, P\n", "counters.csv")
    assert choose(counters, {"red_power": "red_power"}).warnings == (
        "counters.csv:1: red_power has no histogram: it is served as a gauge",
    )


def test_the_nearest_is_a_series_and_no_other_spelling_of_one() -> None:
    counters = parse("RED_PROF_ACTIVE, gauge, P\n", "counters.csv")
    [first, last] = choose(counters, {"RED_POWER": "RED_POWER", "red_prof_active": "RED_POWER"}).warnings
    assert "red_prof_active" not in first
    assert last == "counters.csv: it names no series that any collector knows: the usual ones are served"


def test_another_spelling_of_a_series_chooses_the_series() -> None:
    counters = parse("red_watts, gauge, P\nred_power, gauge, P\n", "counters.csv")
    choice = choose(counters, {"red_power": "red_power", "red_watts": "red_power"})
    assert {series: entry.name for series, entry in choice.entries.items()} == {"red_power": "red_watts"}
    assert choice.warnings == ("counters.csv:2: red_power is another name of red_watts, which counts",)


def test_a_file_is_read_with_its_path_in_the_errors(tmp_path: Path) -> None:
    path = tmp_path / "counters.csv"
    path.write_bytes(b"\xef\xbb\xbfa, gauge, A\n")
    assert [entry.name for entry in read(path).entries] == ["a"]
    path.write_text("a\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=f"{path}:1: line"):
        read(path)
    path.unlink()
    with pytest.raises(ConfigError, match=f"{path}: counters file: there is no such file"):
        read(path)


def check_told(error: ConfigError) -> None:
    assert error.problems
    assert all(str(problem).isprintable() for problem in error.problems)


@given(st.text() | st.lists(st.text(alphabet='ab_:,"# \t\x00é', max_size=30)).map("\n".join))
def test_any_text_is_read_or_told(text: str) -> None:
    try:
        counters = parse(text, "c")
    except ConfigError as error:
        check_told(error)
        return
    assert counters.entries
    assert len({entry.name for entry in counters.entries}) == len(counters.entries)
    assert all(entry.help.isprintable() for entry in counters.entries)
