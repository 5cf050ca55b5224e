"""Temperatures from hwmon. Which channel is what stands in the configuration of lm-sensors, not in the driver.

``/etc/sensors.d/hl_sensors.conf`` comes with the driver's package: ``chip "HL225-pci-*"``, then lines
``label temp3 "On Chip 0"`` and ``ignore temp9``. HLML reads the same channels, but some releases leak memory each time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

import msgspec

from collectors.gaudi.failure import Failure, of_file
from collectors.gaudi.sysfs import Card, read

FILE: Final = "sensors.d/hl_sensors.conf"
_MOST_BYTES: Final = 1 << 20
_QUOTED: Final = re.compile(r'"([^"]*)"')
_LABEL: Final = re.compile(r'label\s+(temp\d+)\s+(?:"([^"]*)"|(\S+))\s*')
_IGNORE: Final = re.compile(r"ignore\s+(temp\d+)\s*")
_KINDS: Final[Mapping[str, str]] = {"on chip": "onchip", "on board": "onboard", "hbm": "hbm", "vrm": "vrm"}
"""How a label begins → which of our temperatures it is."""


class Chip(msgspec.Struct, frozen=True):
    """One ``chip`` statement: which chips it is about, and its temperature channels by kind."""

    patterns: tuple[str, ...]
    channels: Mapping[str, str]
    """Channel (temp3) → kind."""


def parse(text: str) -> list[Chip]:
    """The statements of a configuration of lm-sensors, as far as they concern temperatures."""
    chips: list[tuple[tuple[str, ...], dict[str, str], set[str]]] = []
    for line in text.splitlines():
        words = line.split("#", 1)[0].strip()
        if words.startswith("chip"):
            chips.append((tuple(_QUOTED.findall(words)), {}, set()))
        elif chips and (label := _LABEL.fullmatch(words)):
            kind = _kind(label[2] or label[3] or "")
            if kind:
                chips[-1][1][label[1]] = kind
        elif chips and (ignored := _IGNORE.fullmatch(words)):
            chips[-1][2].add(ignored[1])
    return [
        Chip(patterns, {channel: kind for channel, kind in labels.items() if channel not in ignored})
        for patterns, labels, ignored in chips
    ]


def _kind(label: str) -> str:
    lower = " ".join(label.lower().split())
    return next((kind for begin, kind in _KINDS.items() if lower.startswith(begin)), "")


def configuration(etc: str) -> list[Chip]:
    """The installed configuration; nothing where there is none."""
    try:
        with Path(etc, FILE).open("rb") as file:
            return parse(file.read(_MOST_BYTES).decode("utf-8", "replace"))
    except OSError:
        return []


def channels(card: Card, chips: list[Chip]) -> dict[str, tuple[str, ...]]:
    """Kind → files of a card's channels of that kind. A channel that has no file is none."""
    found: dict[str, list[str]] = {}
    for folder in _folders(card):
        try:
            name = f"{read(folder / 'name')}-pci-{_chip_address(card.bdf)}"
        except OSError:
            continue
        for chip in chips:
            if any(fnmatchcase(name, pattern) for pattern in chip.patterns):
                for channel, kind in sorted(chip.channels.items()):
                    file = folder / f"{channel}_input"
                    if file.exists():
                        found.setdefault(kind, []).append(str(file))
    return {kind: tuple(files) for kind, files in found.items()}


def power_file(card: Card) -> str:
    """The file of the draw at the module's input; empty where there is none."""
    return next((str(file) for folder in _folders(card) if (file := folder / "power1_input").exists()), "")


def _folders(card: Card) -> list[Path]:
    roots = dict.fromkeys(root for root in (card.attributes, card.pci) if root)
    return next((found for root in roots if (found := sorted(Path(root).glob("hwmon/hwmon*")))), [])


def _chip_address(bdf: str) -> str:
    """How lm-sensors writes a PCI address: one hexadecimal number of domain, bus, slot and function."""
    domain, bus, rest = bdf.split(":")
    slot, function = rest.split(".")
    return f"{int(domain, 16) << 16 | int(bus, 16) << 8 | int(slot, 16) << 3 | int(function):04x}"


def hottest(files: tuple[str, ...]) -> int | float:
    """The highest of some channels, in degrees. Raises Failure: the hottest of a part is no answer."""
    try:
        millidegrees = max(int(read(file)) for file in files)
    except OSError as error:
        raise of_file(error, files[0].rpartition("/")[2]) from error
    except ValueError as error:
        raise Failure("transient", f"hwmon gave what is no number: {error}") from error
    return millidegrees // 1000 if millidegrees % 1000 == 0 else millidegrees / 1000


def milliwatts(file: str) -> int:
    """The draw, which hwmon has in µW. Raises Failure."""
    try:
        return int(read(file)) // 1000
    except OSError as error:
        raise of_file(error, "power1_input") from error
    except ValueError as error:
        raise Failure("transient", f"hwmon gave what is no number: {error}") from error
