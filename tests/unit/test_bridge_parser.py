"""The bridge's parser against the reference implementation, and against text that nobody meant to write."""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families
from prometheus_client.parser import text_string_to_metric_families as text_families

from collectors.bridge.parser import MAX_LINE, Line, Malformed, number, parse_line, split

NAMES = st.from_regex(r"\A[a-zA-Z_:][a-zA-Z0-9_:]{0,20}\Z")
LABEL_NAMES = st.from_regex(r"\A[a-zA-Z_][a-zA-Z0-9_]{0,12}\Z").filter(lambda name: not name.startswith("__"))
# Any text but lone surrogates, which no UTF-8 carries. Other line separators of Unicode stay in: only \n ends a line.
VALUES = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
LABELS = st.dictionaries(LABEL_NAMES, VALUES, max_size=5)
NUMBERS = st.one_of(
    st.integers(-(2**63), 2**63 - 1).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.sampled_from(["NaN", "+Inf", "-Inf", "1e3", "9223372036854775794", "0.015234", "+5", "1E-7"]),
)


def escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def rendered(name: str, labels: dict[str, str], value: str) -> str:
    if not labels:
        return f"{name} {value}"
    inner = ",".join(f'{label}="{escaped(text)}"' for label, text in labels.items())
    return f"{name}{{{inner}}} {value}"


def seconds(stamp: Any) -> float:
    assert stamp is not None
    return float(stamp)


def parsed(text: str, *, openmetrics: bool = False) -> Line:
    line = parse_line(text, openmetrics=openmetrics)
    assert isinstance(line, Line), line
    return line


@given(NAMES, LABELS, NUMBERS)
def test_a_valid_line_reads_as_the_reference_parser_reads_it(name: str, labels: dict[str, str], value: str) -> None:
    text = rendered(name, labels, value)
    [family] = text_families(text + "\n")
    [expected] = family.samples
    line = parsed(text)
    assert line.name == expected.name
    assert dict(line.labels) == expected.labels == labels
    assert [label for label, _ in line.labels] == list(labels)
    assert float(line.value) == float(expected.value) or (math.isnan(line.value) and math.isnan(expected.value))
    assert line.timestamp is None
    assert text[: line.end] + " " + value == text


@given(NAMES, LABELS, NUMBERS, st.integers(-(10**15), 10**15))
def test_a_timestamp_of_the_text_format_is_in_milliseconds(
    name: str, labels: dict[str, str], value: str, stamp: int
) -> None:
    text = f"{rendered(name, labels, value)} {stamp}"
    [family] = text_families(text + "\n")
    assert parsed(text).timestamp == pytest.approx(seconds(family.samples[0].timestamp))


@given(LABELS, st.integers(-(2**53), 2**53).map(str), st.decimals(0, 4_000_000_000, places=3))
def test_a_timestamp_of_openmetrics_is_in_seconds(labels: dict[str, str], value: str, stamp: object) -> None:
    text = f"{rendered('x', labels, value)} {stamp}"
    [family] = openmetrics_families(f"# TYPE x gauge\n{text}\n# EOF\n")  # type: ignore[no-untyped-call]
    line = parsed(text, openmetrics=True)
    assert dict(line.labels) == family.samples[0].labels
    assert line.timestamp == pytest.approx(seconds(family.samples[0].timestamp), abs=1e-3)


def test_an_exemplar_is_passed_over() -> None:
    line = parsed('x_total{a="b # {"} 17 1520879607.789 # {trace_id="K"} 0.67 1520879606', openmetrics=True)
    assert (line.labels, line.value, line.timestamp) == ((("a", "b # {"),), 17, 1520879607.789)


@given(st.text(max_size=200), st.booleans())
def test_no_text_makes_it_raise(text: str, openmetrics: bool) -> None:
    parse_line(text, openmetrics=openmetrics)


@given(NAMES, LABELS, NUMBERS, st.data())
def test_a_damaged_line_never_shows_what_the_reference_parser_would_not(
    name: str, labels: dict[str, str], value: str, data: st.DataObject
) -> None:
    text = rendered(name, labels, value)
    at = data.draw(st.integers(0, len(text)))
    damaged = (
        text[:at] + data.draw(st.sampled_from(["", "{", "}", '"', "\\", ",", "=", " ", "#", "x", "é"])) + text[at + 1 :]
    )
    line = parse_line(damaged)
    if not isinstance(line, Line):
        return
    # What it did read stands in the text: the name at its front, then each label's name and value.
    assert damaged.lstrip(" \t").startswith(line.name)
    for label, found in line.labels:
        assert label in damaged
        assert escaped(found).replace("\\", "") in damaged.replace("\\", "")
    assert not math.isinf(line.value) or "inf" in damaged.lower()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("x", "no value"),
        ("x{}", "no value"),
        ('x{a="b"', "broken labels"),
        ('x{a="b} 5', "broken labels"),
        ("x{a=b} 5", "broken labels"),
        ('x{a="b" c="d"} 5', "broken labels"),
        ('x{a="b\\"} 5', "broken labels"),
        ('x{a="1",a="2"} 5', "a label stands there twice"),
        ("x 5 6 7", "text behind the value"),
        ("x five", "the value is no number"),
        ("x 1_000", "the value is no number"),
        ("x 0x10", "the value is no number"),
        ("x ٣", "the value is no number"),
        ("x 1e999", "the value is no number"),
        ("x 5 1.5", "the timestamp is no number"),
        ("5 x", "no metric name"),
        ("<html>", "no metric name"),
        ("x<br> 5", "no value"),
    ],
)
def test_a_broken_line_says_what_is_wrong(text: str, reason: str) -> None:
    assert parse_line(text) == Malformed(reason)


@pytest.mark.parametrize("text", ["", "   ", "# HELP x y", "# TYPE x gauge", "#", "# EOF", "\t# comment"])
def test_comments_and_blank_lines_are_nothing(text: str) -> None:
    assert parse_line(text) is None


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ('x{a="b",} 1', (("a", "b"),)),
        ('x { a = "b" , c = "d" } 1', (("a", "b"), ("c", "d"))),
        ("x{} 1", ()),
        ('x{a=""} 1', (("a", ""),)),
        (r'x{a="C:\\new\"\n"} 1', (("a", 'C:\\new"\n'),)),
        ('x{a="} 9"} 1', (("a", "} 9"),)),
        ("x\t1", ()),
        ("x 1\r", ()),
    ],
)
def test_the_liberties_of_the_format_are_understood(text: str, labels: tuple[tuple[str, str], ...]) -> None:
    line = parsed(text)
    assert (line.labels, line.value) == (labels, 1)


def test_a_counter_beyond_the_precision_of_a_float_keeps_its_digits() -> None:
    assert parsed("x 9007199254740993").value == 9007199254740993
    assert number("9223372036854775807") == 2**63 - 1
    assert isinstance(number("9223372036854775808"), float)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n"), max_size=20)), st.data())
def test_lines_do_not_depend_on_how_the_body_is_cut(texts: list[str], data: st.DataObject) -> None:
    body = "".join(text + "\n" for text in texts).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=5)))
    chunks = [body[a:b] for a, b in zip([0, *cuts], [*cuts, len(body)], strict=True)]
    assert list(split(chunks)) == [text for text in texts if text]


@given(st.lists(st.binary(max_size=300), max_size=6))
def test_no_bytes_make_it_raise(chunks: list[bytes]) -> None:
    for text in split(chunks):
        if isinstance(text, str):
            parse_line(text)


def test_a_last_line_without_newline_is_not_trusted() -> None:
    assert list(split([b"x 1\nx 12"])) == ["x 1", Malformed("last line without a newline")]


def test_a_line_that_is_no_text_is_left_out_alone() -> None:
    assert list(split([b'x{a="\xff"} 1\ny 2\n'])) == [Malformed("not UTF-8"), "y 2"]


def test_an_endless_line_takes_no_more_memory_than_its_limit() -> None:
    def body() -> Iterator[bytes]:
        for _ in range(200):
            yield b"x" * 50_000
        yield b"\ny 2\n"

    tracemalloc.start()
    try:
        assert list(split(body())) == [Malformed("line too long"), "y 2"]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 10 * MAX_LINE < 200 * 50_000


def test_a_missing_quote_costs_no_backtracking() -> None:
    text = 'x{a="' + "\\a" * 30_000
    assert parse_line(text) == Malformed("broken labels")
