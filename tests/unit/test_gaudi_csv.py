"""hl-smi's table and port lists, in the ways that releases and broken firmware write them."""

from __future__ import annotations

import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.gaudi import table
from collectors.gaudi.table import FIELDS, Quantity

HEAD = "index, bus_id, temperature.aip [C], power.draw [W], memory.used [MiB]"


def one(text: str) -> table.Row:
    [row] = table.parse(text).rows
    return row


def test_values_come_in_the_units_of_the_vendors_exporter() -> None:
    row = one(f"{HEAD}, utilization.aip [%], clocks.max.soc [MHz]\n0, 0000:33:00.0, 27 C, 75 W, 768 MiB, 3 %, 1800 MHz")
    assert row.texts == {"index": "0", "bus_id": "0000:33:00.0"}
    assert row.numbers == {
        "temperature.aip": 27,
        "power.draw": 75_000,
        "memory.used": 768 * 1024 * 1024,
        "utilization.aip": 3,
        "clocks.max.soc": 1800,
    }


@pytest.mark.parametrize(
    "head",
    [
        "index,bus_id,temperature.aip,power.draw,memory.used",
        "INDEX, Bus_id, Temperature.aip [C], power.draw [W], memory.used [MiB]",
        HEAD,
    ],
)
def test_without_units_in_the_cells_the_header_or_the_fields_own_unit_counts(head: str) -> None:
    row = one(f"{head}\n0, 0000:33:00.0, 27, 75.5, 768")
    assert row.numbers == {"temperature.aip": 27, "power.draw": 75_500, "memory.used": 805_306_368}


def test_the_cells_unit_wins_over_the_headers() -> None:
    assert one(f"{HEAD}\n0, 0000:33:00.0, 27 C, 75500 mW, 1 GiB").numbers == {
        "temperature.aip": 27,
        "power.draw": 75_500,
        "memory.used": 1 << 30,
    }


@pytest.mark.parametrize("spelling", ["512Mib", "512 MIB", "512MiB"])
def test_the_case_of_a_unit_does_not_matter(spelling: str) -> None:
    assert table.number(spelling, "bytes", "MiB") == 512 << 20


@pytest.mark.parametrize("unit", ["MB", "GB", "F", "kW"])
def test_a_unit_that_is_not_known_gives_no_value_and_a_problem(unit: str) -> None:
    parsed = table.parse(f"{HEAD}\n0, 0000:33:00.0, 27 {unit}, 75 W, 768 MiB")
    assert "temperature.aip" not in parsed.rows[0].numbers
    assert len(parsed.problems) == 1
    assert "temperature.aip" in parsed.problems[0]


@pytest.mark.parametrize(
    "cell", ["N/A", "[N/A]", "n/a", "[Not Supported]", "Not Supported", "-", "", "[Unknown Error]", "NA", "unknown"]
)
def test_every_spelling_of_no_value_is_no_value_and_no_problem(cell: str) -> None:
    parsed = table.parse(f"{HEAD}\n0, 0000:33:00.0, {cell}, 75 W, 768 MiB")
    assert parsed.rows[0].numbers == {"power.draw": 75_000, "memory.used": 805_306_368}
    assert parsed.problems == ()


@pytest.mark.parametrize(("cell", "value"), [("Enabled", 1), ("disabled", 0), ("On", 1), ("0", 0)])
def test_a_mode_is_a_switch(cell: str, value: int) -> None:
    assert one(f"index, ecc.mode.current\n0, {cell}").numbers == {"ecc.mode.current": value}


def test_columns_that_are_not_known_and_columns_that_are_missing_are_left_alone() -> None:
    row = one("timestamp, bus_id, brand.new [X], power.draw [W]\nMon Jan  2 15:04:05 UTC 2006, 0000:33:00.0, 5 X, 75 W")
    assert (row.texts, row.numbers) == ({"bus_id": "0000:33:00.0"}, {"power.draw": 75_000})


def test_a_column_that_stands_there_twice_counts_once() -> None:
    assert one("index, power.draw [W], power.draw [W]\n0, 75 W, 99 W").numbers == {"power.draw": 75_000}


def test_half_a_line_is_a_problem_and_the_others_count() -> None:
    parsed = table.parse(f"{HEAD}\n0, 0000:33:00.0, 27 C, 75 W, 768 MiB\n1, 0000:34:00.0, 27 C, 7")
    assert [row.texts["index"] for row in parsed.rows] == ["0"]
    assert parsed.problems == ("a line with 4 of 5 columns: '1, 0000:34:00.0, 27 C, 7'",)


def test_lines_before_the_header_and_a_header_that_comes_again_are_no_devices() -> None:
    parsed = table.parse(f"Warning: persistence mode\n\n{HEAD}\n0, 0000:33:00.0, 27 C, 75 W, 768 MiB\n{HEAD}\n")
    assert len(parsed.rows) == 1
    assert parsed.problems == ("a line before the header: 'Warning: persistence mode'",)


def test_text_that_is_no_table_has_no_rows() -> None:
    parsed = table.parse("hl-smi: error while loading shared libraries: libhlml.so\n")
    assert parsed.rows == ()
    assert parsed.problems == ("a line before the header: 'hl-smi: error while loading shared libraries: libhlml.so'",)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("0000:33:00.0", "0000:33:00.0"),
        ("00000000:9A:00.0", "0000:9a:00.0"),
        ("0001:b3:00.0", "0001:b3:00.0"),
        ("33:00.0", ""),
        ("gibberish", ""),
    ],
)
def test_an_address_has_one_spelling(text: str, address: str) -> None:
    assert table.bus_id(one(f"index, bus_id\n0, {text}")) == address


def test_ports_are_read_as_they_are_printed() -> None:
    assert table.port_states("port  0:        UP\nport  1:        DOWN\nport 2: UNKNOWN\nport 999: UP\n") == {
        0: True,
        1: False,
    }
    assert table.external_ports("port 8: external\nport 22: external\nport 1: internal\n") == {
        8: True,
        22: True,
        1: False,
    }


CELLS = st.one_of(
    st.sampled_from(["N/A", "[N/A]", "-", "", "12", "12 C", "1e9", "nan", "-5", "0x10", "9" * 30, "12,5", "١٢"]),
    st.text(alphabet=string.printable, max_size=12),
)


@given(st.lists(st.lists(CELLS, max_size=6), max_size=8))
def test_no_table_makes_the_parser_fail_or_invent(lines: list[list[str]]) -> None:
    text = HEAD + "\n" + "\n".join(", ".join(cells) for cells in lines)
    parsed = table.parse(text)
    assert len(parsed.rows) <= 256
    assert len(parsed.problems) <= 20
    for row in parsed.rows:
        assert row.texts.keys() | row.numbers.keys() <= FIELDS.keys()
        for name, value in row.numbers.items():
            # A number of ours has its digits somewhere in the text.
            scale = {"power.draw": 1000, "memory.used": 1 << 20}.get(name, 1)
            digits = [float(found) for found in re.findall(r"[0-9]+(?:\.[0-9]+)?", text)]
            assert any(
                value == pytest.approx(found * factor) for found in digits for factor in (1, scale, 1 << 10, 1 << 30)
            )


@given(st.text(max_size=2000))
def test_any_text_at_all_is_read(text: str) -> None:
    assert len(table.parse(text).rows) <= 256
    assert all(0 <= port < 128 for port in table.port_states(text))


@given(
    st.text(max_size=40), st.sampled_from(["bytes", "milliwatts", "celsius", "percent", "megahertz", "count", "switch"])
)
def test_a_number_is_finite_and_not_negative_or_there_is_none(cell: str, quantity: Quantity) -> None:
    value = table.number(cell, quantity, "")
    assert value is None or 0 <= value < 1e40


def test_many_lines_are_cut() -> None:
    text = HEAD + "\n" + "0, 0000:33:00.0, 27 C, 75 W, 768 MiB\n" * 10_000
    assert len(table.parse(text).rows) == 256
