"""The table that a run prints."""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import msgspec


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One result. ``value`` is in ``unit``, and so are the target and what it is compared with."""

    what: str
    value: float
    unit: str
    below: float | None = None
    """The target: the value shall be less."""
    beside: str = ""
    """What it is compared with."""
    other: float | None = None
    note: str = ""


class Subject(msgspec.Struct, frozen=True):
    """The results of one subject."""

    title: str
    rows: Sequence[Row]
    remarks: Sequence[str] = ()
    """What a reader must know: what could not be measured, and why."""


BEGIN: Final = "<!-- Results: made by `python -m benchmarks --write` -->"
END: Final = "<!-- End of results -->"
HEAD: Final = ("", "measured", "target", "met", "beside it", "beside it ÷ measured")


def number(value: float) -> str:
    """Three figures that count, without exponents."""
    if value == 0:
        return "0"
    return f"{value:,.{max(0, 2 - math.floor(math.log10(abs(value))))}f}"


def machine() -> str:
    """What the run ran on, in words without a name."""
    cores = len(os.sched_getaffinity(0))
    load = Path("/proc/loadavg").read_text().split()[0]
    return f"{cores} cores, load {load} at the start, Linux {platform.release()}, Python {platform.python_version()}"


def lines(subjects: Iterable[Subject]) -> Iterable[str]:
    """A table of Markdown that can be read as it is."""
    rows: list[tuple[str, ...]] = [HEAD, ()]
    remarks: list[str] = []
    for subject in subjects:
        rows.append((f"**{subject.title}**", *("",) * (len(HEAD) - 1)))
        rows += map(_cells, subject.rows)
        remarks += subject.remarks
    widths = [max(len(row[column]) for row in rows if row) for column in range(len(HEAD))]
    for row in rows:
        if row:
            yield "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        else:
            yield "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    if remarks:
        yield ""
        yield from (f"- {remark}" for remark in remarks)


def replaced(page: str, text: str) -> str:
    """The page with another table between its marks. Raises ValueError for a page without them."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page has no place for the table: a line {BEGIN} and below it {END}")
    return f"{before}{BEGIN}\n{text}\n{END}{after}"


def _cells(row: Row) -> tuple[str, ...]:
    unit = f" {row.unit}" if row.unit else ""
    met = "" if row.below is None else "yes" if row.value < row.below else "NO"
    target = "" if row.below is None else f"< {row.below:g}{unit}"
    beside = ratio = ""
    if row.other is not None:
        beside = f"{row.beside}: {number(row.other)}{unit}"
        ratio = f"{number(row.other / row.value)}×" if row.value > 0 else ""
    what = f"{row.what} ({row.note})" if row.note else row.what
    return (what, f"{number(row.value)}{unit}", target, met, beside, ratio)
