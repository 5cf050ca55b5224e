"""Which AMD GPUs there are, and what each is made of: card, partitions, sensors. Asked of the kernel alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from collectors.amd import files, texts
from collectors.amd.kfd import Node

VENDOR: Final = "0x1002"
_CLASSES: Final = ("0x03", "0x1200")
DRIVER: Final = "amdgpu"
RUNTIME_STATUS: Final = "power/runtime_status"
_RADEON: Final = "0x0300"
"""The class of cards with a screen: their energy counters do not count energy."""


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A logical GPU: a partition, or the whole card where it is not cut."""

    position: int
    partition: int
    node: Node | None = None
    handle: Any = None
    """amdsmi's."""


class Card(msgspec.Struct, frozen=True, kw_only=True):
    """A physical GPU with its parts; not cut, its one part has its own position."""

    position: int
    bdf: str
    folder: Path
    """Its folder in sysfs."""
    parts: tuple[Part, ...]
    hwmon: Path | None = None
    sensors: Mapping[str, str] = {}
    """Label of a temperature sensor → how its files begin."""
    files: frozenset[str] = frozenset()
    """What is in its folder, and in hwmon's with ``hwmon/`` before it."""
    ras: frozenset[str] = frozenset()
    """Blocks that count errors, as the driver names them."""
    uuid: str = ""
    memory_in_parts: bool = False
    """The parts' memories are shares of the card's."""
    counts_energy: bool = True

    @property
    def positions(self) -> tuple[int, ...]:
        """The card's and its parts'."""
        return tuple(dict.fromkeys((self.position, *(part.position for part in self.parts))))

    @property
    def handle(self) -> Any:
        """amdsmi's handle of the first part, which tells of the whole card."""
        return self.parts[0].handle

    def has(self, name: str) -> bool:
        """Whether the driver offers the file."""
        return name in self.files


def addresses(sys: str) -> list[str]:
    """The PCI addresses of the GPUs that the driver amdgpu has."""
    root = Path(sys, "bus/pci/devices")
    return [name for name in files.names(root) if _ours(root / name)]


def _ours(folder: Path) -> bool:
    if files.fact(folder / "vendor") != VENDOR or not files.fact(folder / "class").startswith(_CLASSES):
        return False
    try:
        return (folder / "driver").readlink().name == DRIVER
    except OSError:
        return False


def describe(sys: str, bdf: str, position: int, parts: Sequence[Part], uuid: str) -> Card:
    """A card with what its folder shows now."""
    folder = Path(sys, "bus/pci/devices", bdf)
    hwmon = _hwmon(folder)
    found = {*files.names(folder), *(f"power/{name}" for name in files.names(folder / "power"))}
    if hwmon is not None:
        found |= {f"hwmon/{name}" for name in files.names(hwmon)}
    suffix = "_err_count"
    ras = {name.removesuffix(suffix) for name in files.names(folder / "ras") if name.endswith(suffix)}
    if (folder / "ras/gpu_vram_bad_pages").exists():
        found.add("ras/gpu_vram_bad_pages")
    return Card(
        position=position,
        bdf=bdf,
        folder=folder,
        parts=tuple(parts),
        hwmon=hwmon,
        sensors=_sensors(hwmon) if hwmon else {},
        files=frozenset(found),
        ras=frozenset(ras),
        uuid=uuid,
        memory_in_parts=_shares(parts, texts.whole(files.fact(folder / "mem_info_vram_total"))),
        counts_energy=not files.fact(folder / "class").startswith(_RADEON),
    )


def _shares(parts: Sequence[Part], whole: int | None) -> bool:
    """Whether the parts' memories add up to the card's. Where each tells the whole, a sum over them would be wrong."""
    if len(parts) < 2:
        return False
    memories = [part.node.memory if part.node else None for part in parts]
    told = [memory for memory in memories if memory is not None]
    return len(told) == len(parts) and (whole is None or sum(told) <= 1.05 * whole)


def _hwmon(folder: Path) -> Path | None:
    root = folder / "hwmon"
    return next((root / name for name in files.names(root) if files.fact(root / name / "name") == DRIVER), None)


def _sensors(hwmon: Path) -> dict[str, str]:
    """The label decides which sensor it is: numbers differ from card to card."""
    return {
        files.fact(hwmon / name): name.removesuffix("_label")
        for name in files.names(hwmon)
        if name.startswith("temp") and name.endswith("_label")
    }


def layout(sys: str) -> tuple[object, ...]:
    """What must stay the same until the next discovery: cards, how each is cut, and KFD's nodes."""
    root = Path(sys, "bus/pci/devices")
    modes = [
        (bdf, files.fact(root / bdf / "current_compute_partition"), files.fact(root / bdf / "current_memory_partition"))
        for bdf in addresses(sys)
    ]
    return (*modes, tuple(files.names(Path(sys, "class/kfd/kfd/topology/nodes"))))


def suspended(card: Card) -> bool:
    """Whether the card sleeps. Reading its measurements would wake it, and then tell of that."""
    return card.has(RUNTIME_STATUS) and files.fact(card.folder / RUNTIME_STATUS) == "suspended"


def gone(card: Card) -> bool:
    """Whether the card has left the bus or its driver."""
    try:
        return (card.folder / "driver").readlink().name != DRIVER
    except OSError:
        return True
