"""The texts of amdgpu's and KFD's files (Linux, ``Documentation/gpu/amdgpu``). What is not understood is left out."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import msgspec

_LEVEL: Final = re.compile(r"^\s*(\w+)\s*:\s*(\d{1,7})\s*mhz\s*(\*?)", re.ASCII | re.IGNORECASE)
_PCIE_LEVEL: Final = re.compile(r"^\s*(\d+)\s*:.*?GT/s.*?\s(\d{1,7})\s*mhz\s*(\*?)", re.ASCII | re.IGNORECASE)
_SPEED: Final = re.compile(r"^(\d{1,3}(?:\.\d)?)\s*GT/s", re.ASCII)
_COUNT: Final = re.compile(r"^\s*(ue|ce|de)\s*:\s*(\d{1,20})\s*$", re.ASCII)
_PAGE: Final = re.compile(r"^\s*0x[0-9a-fA-F]{1,16}\s*:\s*0x[0-9a-fA-F]{1,16}\s*:\s*([RPF])\s*$", re.ASCII)
_PROPERTY: Final = re.compile(r"^\s*(\w+)\s+(\d{1,20})\s*$", re.ASCII)
_NUMBER: Final = re.compile(r"-?\d{1,20}", re.ASCII)
_WORD: Final = re.compile(r"\d{1,20}", re.ASCII)

_GENERATIONS: Final[Mapping[float, int]] = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}


class Levels(msgspec.Struct, frozen=True):
    """The levels of a clock, in MHz."""

    current: int | None = None
    """None where no level is marked, as on MI300."""
    lowest: int | None = None
    highest: int | None = None


class Errors(msgspec.Struct, frozen=True):
    """Errors of one block since the driver was loaded; None where the driver does not count them."""

    correctable: int | None = None
    uncorrectable: int | None = None
    deferred: int | None = None


class Pages(msgspec.Struct, frozen=True):
    """Bad pages of the device memory by what has become of them."""

    retired: int = 0
    pending: int = 0
    unreservable: int = 0


def levels(text: str) -> Levels:
    """``pp_dpm_sclk`` and its like. The level S, deep sleep, is current but none of the range."""
    current: int | None = None
    found: list[int] = []
    for line in text.splitlines():
        match = _LEVEL.match(line) or _PCIE_LEVEL.match(line)
        if match is None:
            continue
        name, mhz, mark = match.groups()
        if mark:
            current = int(mhz)
        if name.isdecimal():
            found.append(int(mhz))
    return Levels(current, min(found, default=None), max(found, default=None))


def speed(text: str) -> float | None:
    """``current_link_speed``: GT/s."""
    match = _SPEED.match(text)
    return float(match[1]) if match else None


def generation(gigatransfers: float) -> int | None:
    """The PCIe generation of a link's speed; None for a speed that no generation has."""
    return _GENERATIONS.get(gigatransfers)


def errors(text: str) -> Errors:
    """``ras/<block>_err_count``. A block that is not ready says so in words."""
    found = {match[1]: int(match[2]) for line in text.splitlines() if (match := _COUNT.match(line))}
    return Errors(found.get("ce"), found.get("ue"), found.get("de"))


def pages(text: str) -> Pages:
    """``ras/gpu_vram_bad_pages``."""
    found = [match[1] for line in text.splitlines() if (match := _PAGE.match(line))]
    return Pages(retired=found.count("R"), pending=found.count("P"), unreservable=found.count("F"))


def properties(text: str) -> dict[str, int]:
    """KFD's ``properties``: lines of a name and a number."""
    found = {}
    for line in text.splitlines():
        if match := _PROPERTY.match(line):
            found[match[1]] = int(match[2])
    return found


def whole(text: str) -> int | None:
    """A file of one whole number, with a sign or without; None for anything else."""
    return int(text) if _NUMBER.fullmatch(text) else None


def numbers(text: str) -> list[int]:
    """``pcie_bw``: numbers between blanks; empty if there is anything else."""
    words = text.split()
    return [int(word) for word in words] if all(map(_WORD.fullmatch, words)) else []
