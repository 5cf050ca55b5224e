"""The CSV that ``hl-smi -Q … -f csv`` prints: parsed by its header, with nothing taken for granted.

Releases differ in columns, in how they write that there is no value, in units, and in lines around the table.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Final, Literal

import msgspec

from collectors.gaudi import sysfs

Quantity = Literal["text", "bytes", "milliwatts", "celsius", "percent", "megahertz", "count", "switch"]
Number = int | float

FIELDS: Final[Mapping[str, tuple[Quantity, str]]] = {
    "index": ("text", ""),
    "bus_id": ("text", ""),
    "name": ("text", ""),
    "serial": ("text", ""),
    "uuid": ("text", ""),
    "driver_version": ("text", ""),
    "module_id": ("text", ""),
    "temperature.aip": ("celsius", "C"),
    "utilization.aip": ("percent", "%"),
    "memory.total": ("bytes", "MiB"),
    "memory.free": ("bytes", "MiB"),
    "memory.used": ("bytes", "MiB"),
    "power.draw": ("milliwatts", "W"),
    "clocks.current.soc": ("megahertz", "MHz"),
    "clocks.max.soc": ("megahertz", "MHz"),
    "ecc.mode.current": ("switch", ""),
    "ecc.errors.uncorrected.volatile.total": ("count", ""),
    "ecc.errors.uncorrected.aggregate.total": ("count", ""),
    "ecc.errors.corrected.volatile.total": ("count", ""),
    "ecc.errors.corrected.aggregate.total": ("count", ""),
    "ecc.errors.dram.volatile.total": ("count", ""),
    "ecc.errors.dram.aggregate.total": ("count", ""),
    "ecc.errors.dram-corrected.volatile.total": ("count", ""),
    "ecc.errors.dram-corrected.aggregate.total": ("count", ""),
    "pcie.link.gen.current": ("count", ""),
    "pcie.link.gen.max": ("count", ""),
    "pcie.link.width.current": ("count", ""),
    "pcie.link.width.max": ("count", ""),
}
"""Field → what it is, and the unit that it has where neither header nor value name one."""

_UNITS: Final[Mapping[str, Mapping[str, float]]] = {
    "bytes": {"b": 1, "kib": 2**10, "mib": 2**20, "gib": 2**30},
    "milliwatts": {"w": 1000, "mw": 1},
    "celsius": {"c": 1, "°c": 1},
    "percent": {"%": 1},
    "megahertz": {"mhz": 1, "ghz": 1000},
    "count": {"": 1, "x": 1},
}
_ABSENT: Final = frozenset(("", "-", "na", "n/a", "none", "not supported", "not available", "unknown"))
_BRACKETED: Final = re.compile(r"\[[^\[\]]*\]")
_HEAD: Final = re.compile(r"([a-z0-9_.-]+)\s*(?:\[([^\[\]]*)\])?", re.IGNORECASE)
_VALUE: Final = re.compile(r"([0-9]{1,20}(?:\.[0-9]{1,9})?)\s*([A-Za-z%°]{0,4})")
_SWITCH: Final[Mapping[str, int]] = {"enabled": 1, "on": 1, "1": 1, "disabled": 0, "off": 0, "0": 0}
_MOST_ROWS: Final = 256
_MOST_COLUMNS: Final = 256
_MOST_PROBLEMS: Final = 20
_PORT: Final = re.compile(r"\s*port\s+(\d{1,3})\s*:\s*([A-Za-z]+)\s*", re.IGNORECASE)


class Row(msgspec.Struct, frozen=True):
    """What the table says of one device. A field that it does not say is in neither."""

    texts: Mapping[str, str]
    numbers: Mapping[str, Number]


class Parsed(msgspec.Struct, frozen=True):
    rows: tuple[Row, ...]
    problems: tuple[str, ...]
    """What could not be understood, in words."""


def parse(text: str) -> Parsed:
    """Read a table. Never raises, and gives no value that is not in the text."""
    head: list[tuple[str, str]] | None = None
    rows: list[Row] = []
    problems: list[str] = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if not any(cells):
            continue
        found = _header(cells)
        if found is not None:
            head = head or found
        elif head is None:
            problems.append(f"a line before the header: {line.strip()[:80]!r}")
        elif len(cells) != len(head):
            problems.append(f"a line with {len(cells)} of {len(head)} columns: {line.strip()[:80]!r}")
        elif len(rows) < _MOST_ROWS:
            rows.append(_row(head, cells, problems))
    return Parsed(tuple(rows), tuple(dict.fromkeys(problems))[:_MOST_PROBLEMS])


def _header(cells: Sequence[str]) -> list[tuple[str, str]] | None:
    """Fields and units, if this is a header: all cells look like a field and the device's own fields are there."""
    found = [_HEAD.fullmatch(cell) for cell in cells[:_MOST_COLUMNS]]
    names = [(match[1].lower(), (match[2] or "").strip()) if match else ("", "") for match in found]
    return names if {"bus_id", "index"} & {name for name, _ in names} else None


def _row(head: Sequence[tuple[str, str]], cells: Sequence[str], problems: list[str]) -> Row:
    texts: dict[str, str] = {}
    numbers: dict[str, Number] = {}
    for (name, unit), cell in zip(head, cells, strict=False):
        field = FIELDS.get(name)
        if field is None or name in texts or name in numbers or absent(cell):
            continue
        quantity, usual = field
        if quantity == "text":
            texts[name] = "".join(character for character in cell if character.isprintable())
            continue
        value = number(cell, quantity, unit or usual)
        if value is None:
            problems.append(f"{name} is {cell[:40]!r}, which is no number in a unit that is known")
        else:
            numbers[name] = value
    return Row(texts, numbers)


def absent(cell: str) -> bool:
    """Whether a cell says that there is no value: releases write N/A, [N/A], [Not Supported], -, or nothing."""
    return cell.strip().lower() in _ABSENT or _BRACKETED.fullmatch(cell.strip()) is not None


def number(cell: str, quantity: Quantity, unit: str) -> Number | None:
    """A value in the quantity's unit; None if it is no number, or in an unknown unit. The cell's unit counts."""
    if quantity == "switch":
        return _SWITCH.get(cell.strip().lower())
    found = _VALUE.fullmatch(cell.strip())
    if found is None:
        return None
    scale = _UNITS[quantity].get((found[2] or unit).lower())
    if scale is None:
        return None
    value = float(found[1]) * scale if "." in found[1] else int(found[1]) * scale
    if not math.isfinite(value):
        return None
    return int(value) if float(value).is_integer() else value


def bus_id(row: Row) -> str:
    """The device's address in one spelling; empty if the row does not tell it."""
    return sysfs.address(row.texts.get("bus_id", ""))


def port_states(text: str) -> dict[int, bool]:
    """``hl-smi -n link``: lines such as ``port  0:        UP``. A port with another word is left out."""
    return {port: word == "up" for port, word in _ports(text) if word in ("up", "down")}


def external_ports(text: str) -> dict[int, bool]:
    """``hl-smi -n ports``: lines such as ``port 8: external``."""
    return {port: word == "external" for port, word in _ports(text) if word in ("external", "internal")}


def _ports(text: str) -> list[tuple[int, str]]:
    lines = [_PORT.fullmatch(line) for line in text.splitlines()]
    return [(int(line[1]), line[2].lower()) for line in lines if line is not None and int(line[1]) < 128]
