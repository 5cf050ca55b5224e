"""The driver's files in sysfs: which cards there are, their state and facts. No device node is ever opened.

Documentation/ABI/testing/sysfs-driver-habanalabs of the kernel. The class ``accel`` is shared with other vendors'
drivers, so accelN of these cards has holes; before driver 1.10 the class was ``habanalabs`` with hlN.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

VENDOR: Final = "0x1da3"
MODELS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("0x1000", "0x1001", "0x1010", "0x1011"), "Gaudi"),
    **dict.fromkeys(("0x1020", "0x1021"), "Gaudi2"),
    **dict.fromkeys(("0x1030", "0x1060", "0x1061", "0x1062", "0x1063"), "Gaudi3"),
}
"""PCI device id → generation."""
STATES: Final = (
    "operational",
    "in_reset",
    "in_reset_after_device_release",
    "in_device_creation",
    "needs_reset",
    "disabled",
    "malfunction",
    "other",
)
"""What the file ``status`` says, in one spelling. ``other``: a text that no known driver has."""

_CLASSES: Final = (("accel", re.compile(r"accel(\d+)")), ("habanalabs", re.compile(r"hl(\d+)")))
_ADDRESS: Final = re.compile(r"([0-9a-fA-F]{4,8}):([0-9a-fA-F]{2}):([0-9a-fA-F]{2})\.([0-7])")
_SPEED: Final = re.compile(r"(\d+(?:\.\d+)?) GT/s\b")
_GENERATIONS: Final[Mapping[float, int]] = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}
_WIDTHS: Final = frozenset((1, 2, 4, 8, 12, 16, 32))
"""A link that is down reads as 0 or 63."""


class Card(msgspec.Struct, frozen=True, kw_only=True):
    """A card on the PCI bus. Without a node the driver has not taken it, or gave it up."""

    bdf: str
    """PCI address in lower case, with four digits of domain."""
    node: str = ""
    """accelN, or hlN of an old driver."""
    minor: str = ""
    attributes: str = ""
    """Folder of the driver's files."""
    pci: str = ""
    """Folder of the PCI function."""
    pci_id: str = ""
    """Device id, such as 0x1020."""


def address(text: str) -> str:
    """A PCI address in one spelling; empty if the text is none."""
    found = _ADDRESS.fullmatch(text.strip())
    if found is None:
        return ""
    domain, bus, slot, function = found.groups()
    return f"{int(domain, 16):04x}:{bus}:{slot}.{function}".lower()


def cards(sys: str) -> dict[str, Card]:
    """All cards by address: those with a device node, and those on the bus without one.

    A card that another driver holds, to pass it through to a virtual machine, is none of ours.
    """
    found = {card.bdf: card for card in _with_nodes(sys)}
    for folder in _listed(Path(sys, "bus/pci/devices")):
        bdf = address(folder.name)
        if bdf and bdf not in found and _is_ours(folder):
            found[bdf] = Card(bdf=bdf, pci=str(folder), pci_id=_line(folder / "device"))
    return dict(sorted(found.items()))


def _with_nodes(sys: str) -> Iterator[Card]:
    for kind, pattern in _CLASSES:
        for entry in _listed(Path(sys, "class", kind)):
            name = pattern.fullmatch(entry.name)
            card = _card(sys, entry, name[1]) if name else None
            if card is not None:
                yield card


def _card(sys: str, entry: Path, minor: str) -> Card | None:
    """None for another vendor's accelerator."""
    device = entry / "device"
    attributes = device if (device / "status").exists() else entry
    bdf = address(_line(attributes / "pci_addr")) or address(device.resolve().name)
    pci = Path(sys, "bus/pci/devices", bdf) if bdf else device
    if not pci.exists():
        pci = device
    if not bdf or _line(pci / "vendor") != VENDOR:
        return None
    return Card(
        bdf=bdf,
        node=entry.name,
        minor=minor,
        attributes=str(attributes),
        pci=str(pci),
        pci_id=_line(pci / "device"),
    )


def _is_ours(folder: Path) -> bool:
    if _line(folder / "vendor") != VENDOR or _line(folder / "device") not in MODELS or (folder / "physfn").exists():
        return False
    driver = folder / "driver"
    return not driver.is_symlink() or driver.readlink().name == "habanalabs"


def _listed(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _line(file: Path) -> str:
    """The first line of a fact; empty where there is none."""
    try:
        return read(file)
    except OSError:
        return ""


def read(file: Path | str) -> str:
    """The first line of a file. Raises OSError."""
    with Path(file).open("rb") as opened:
        return opened.read(4096).decode("utf-8", "replace").partition("\n")[0].strip()


def fact(folder: str, name: str) -> str:
    """A fact of a card; empty where the driver does not tell it, or not now."""
    return _line(Path(folder, name)) if folder else ""


def module_version(sys: str) -> str:
    return _line(Path(sys, "module/habanalabs/version"))


def state(text: str) -> str:
    """One of STATES. Drivers differ in the case of letters, and the oldest say malfunction for disabled."""
    slug = re.sub(r"[^a-z]+", "_", text.strip().lower()).strip("_")
    return slug if slug in STATES else "other"


def numa_node(card: Card) -> str:
    """-1 means that there is none."""
    found = fact(card.pci, "numa_node")
    return found if found.isdigit() else ""


def whole(text: str) -> int | None:
    """A number that is not negative; None for any other text."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 19 else None


def gigatransfers(text: str) -> float | None:
    """GT/s of a link speed such as ``16.0 GT/s PCIe``; None for ``Unknown``."""
    found = _SPEED.match(text)
    return float(found[1]) if found else None


def speed(text: str) -> int | None:
    """Whole GT/s, as the vendor's exporter has them: 2.5 is 2."""
    found = gigatransfers(text)
    return None if found is None else int(found)


def generation(text: str) -> int | None:
    found = gigatransfers(text)
    return None if found is None else _GENERATIONS.get(found)


def width(text: str) -> int | None:
    found = whole(text)
    return found if found in _WIDTHS else None
