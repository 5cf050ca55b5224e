"""Texts of the driver's files → numbers. What is not exactly as the driver writes it is None, never a guess."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import msgspec

_COUNT: Final = re.compile(r"[0-9]{1,20}")
_SERIAL: Final = re.compile(r"[0-9a-f]{16}")
_DEAD: Final = "deadbeef"
"""What a register that cannot be read gives, in each half."""
_POWER: Final = re.compile(
    r"(POWER_STATUS_[A-Z_]+),([0-9]{1,12}),(-?[0-9]{1,6}\.?[0-9]*),(-?[0-9]{1,6}\.?[0-9]*),(-?[0-9]{1,6}\.?[0-9]*)\n?"
)
_POWER_AGE: Final = 120.0
"""Seconds. The driver rolls up once a minute, on the minute."""
_ROW: Final = re.compile(r"([0-3]),([0-9]{1,20}),([0-9]{1,20}),([0-9]{1,20})")
_WRAP: Final = 2**64
_BDF: Final = re.compile(r"(?:([0-9a-fA-F]{4,8}):)?([0-9a-fA-F]{2}):([0-9a-fA-F]{2})\.([0-7])")
_SPEED: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?) GT/s(?: PCIe)?")
_GENERATIONS: Final[Mapping[float, int]] = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}
"""Transfers a second and lane (GT/s) → PCIe generation."""


class Power(msgspec.Struct, frozen=True):
    """Percent of the device's maximum power over a minute, without its baseline."""

    min: float
    max: float
    avg: float


class Cycles(msgspec.Struct, frozen=True):
    """Cycles of one group of rows of a tensor engine since the device's reset."""

    matmul: int
    weights: int
    idle: int


def count(text: str) -> int | None:
    """A plain decimal number."""
    text = text.strip()
    return int(text) if _COUNT.fullmatch(text) else None


def serial(text: str) -> str:
    """A device's serial number; empty if the firmware did not tell it: 0, or a half that is 0xdeadbeef."""
    text = text.strip().lower()
    if not _SERIAL.fullmatch(text) or int(text, 16) == 0 or _DEAD in (text[:8], text[8:]):
        return ""
    return text


def power(text: str, now: float) -> Power | None:
    """``STATUS,epoch,min,max,avg``. Only a valid reading of the last two minutes is one; ``now`` is Unix time."""
    found = _POWER.fullmatch(text)
    if found is None or found[1] != "POWER_STATUS_VALID" or abs(now - int(found[2])) > _POWER_AGE:
        return None
    return Power(float(found[3]), float(found[4]), float(found[5]))


def cycles(text: str) -> Mapping[int, Cycles]:
    """Rows of pe_cntrs by group. A row that is cut off (the driver's buffer is short) or garbled is left out."""
    lines = text.split("\n")
    # What follows the last newline is no complete row.
    rows = [found for line in lines[:-1] if (found := _ROW.fullmatch(line)) is not None]
    numbers = {int(row[1]): (int(row[2]), int(row[3]), int(row[4])) for row in rows}
    return {group: Cycles(*values) for group, values in numbers.items() if max(values) < _WRAP}


def untorn(first: Mapping[int, Cycles], second: Mapping[int, Cycles]) -> Mapping[int, Cycles]:
    """Two reads in a row, joined. The driver reads a counter in halves, so that one read can be 2**32 too low."""
    return {
        group: Cycles(
            max(first[group].matmul, second[group].matmul),
            max(first[group].weights, second[group].weights),
            max(first[group].idle, second[group].idle),
        )
        for group in first.keys() & second.keys()
    }


def matrix_share(before: Mapping[int, Cycles], now: Mapping[int, Cycles]) -> tuple[int, int]:
    """(matrix cycles, all cycles) between two reads, over the groups that both have and that did not go back."""
    matmul = everything = 0
    for group in before.keys() & now.keys():
        old, new = before[group], now[group]
        steps = (new.matmul - old.matmul, new.weights - old.weights, new.idle - old.idle)
        if min(steps) >= 0:
            matmul += steps[0]
            everything += sum(steps)
    return matmul, everything


def components(text: str) -> frozenset[str]:
    """A comma list."""
    return frozenset(word for part in text.split(",") if re.fullmatch(r"[a-z][a-z0-9_]{0,47}", word := part.strip()))


def pci_address(text: str) -> str:
    """As the kernel writes it: neuron-ls leaves the domain out, or not. Empty if it is none."""
    found = _BDF.fullmatch(text.strip())
    if found is None:
        return ""
    return f"{int(found[1] or '0', 16):04x}:{found[2]}:{found[3]}.{found[4]}".lower()


def pcie_generation(text: str) -> int | None:
    """``16.0 GT/s PCIe`` → 4."""
    found = _SPEED.fullmatch(text.strip())
    return _GENERATIONS.get(float(found[1])) if found else None


def version(text: str) -> tuple[int, ...]:
    """``2.24.7.0`` → its numbers; empty if there are none."""
    found = re.match(r"[0-9]{1,6}(?:\.[0-9]{1,6})*", text)
    return tuple(map(int, found[0].split("."))) if found else ()
