"""Which chips the host has, from the PCI bus alone: it works on a node without a workload."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from collectors.base import HostPaths
from collectors.tpu.generations import Generation, generation

_NUMBERED: Final = re.compile(r"[0-9]{1,9}")
_ACCEL: Final = re.compile(r"accel([0-9]{1,9})")
_SPEED: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?) GT/s")
_GENERATIONS: Final = {"2.5": 1, "5": 2, "5.0": 2, "8": 3, "8.0": 3, "16": 4, "16.0": 4, "32": 5, "32.0": 5, "64.0": 6}
"""Transfers a second of a lane → PCIe generation."""
_MAX_FILE: Final = 4096


class Chip(msgspec.Struct, frozen=True, kw_only=True):
    """One chip. ``nodes`` are its device nodes below /dev; on 7x one for each of its two PCI functions."""

    index: int
    """Its place among the host's chips."""
    generation: Generation
    slot: str
    """PCI address without the function."""
    functions: tuple[str, ...]
    nodes: tuple[str, ...]
    numa_node: str

    @property
    def pci_bus_id(self) -> str:
        return self.functions[0]

    @property
    def device_name(self) -> str:
        """What kubelet and DRA call it up to v6e: accel0, or the number of the IOMMU group."""
        return self.nodes[0].removeprefix("vfio/") if self.nodes else ""


class _Function(msgspec.Struct, frozen=True):
    address: str
    generation: Generation
    node: str
    number: int
    """Of the device node, -1 where sysfs does not tell it."""
    numa_node: str


def find_chips(paths: HostPaths) -> tuple[Chip, ...]:
    """The chips in the order in which Google's tools count them; none where the bus cannot be seen."""
    functions = list(_functions(paths))
    by_slot: dict[str, list[_Function]] = {}
    for function in functions:
        by_slot.setdefault(function.address.rpartition(".")[0], []).append(function)
    ordered = sorted(by_slot.items(), key=lambda item: _place(item[0], item[1][0]))
    return tuple(
        Chip(
            index=index,
            generation=of[0].generation,
            slot=slot,
            functions=tuple(function.address for function in of),
            nodes=tuple(function.node for function in of if function.node),
            numa_node=of[0].numa_node,
        )
        for index, (slot, of) in enumerate(ordered)
    )


def _place(slot: str, first: _Function) -> tuple[int, str]:
    """7x: by NUMA node and slot, as GKE's device plugin numbers them. Else by device node, as tpu-info does."""
    if first.generation.name == "7x":
        return int(first.numa_node or 0), slot
    return first.number, slot


def _functions(paths: HostPaths) -> Iterable[_Function]:
    accels = _accel_numbers(paths)
    root = Path(paths.sys, "bus/pci/devices")
    for folder in _listed(root):
        found = generation(_text(folder / "vendor"), _text(folder / "device"), _text(folder / "subsystem_device"))
        if found is None:
            continue
        number = accels.get(folder.name)
        node = "" if number is None else f"accel{number}"
        if number is None and (group := _link_name(folder / "iommu_group")) and _NUMBERED.fullmatch(group):
            number, node = int(group), f"vfio/{group}"
        numa = _text(folder / "numa_node")
        yield _Function(
            folder.name, found, node, -1 if number is None else number, numa if _NUMBERED.fullmatch(numa) else ""
        )


def _accel_numbers(paths: HostPaths) -> dict[str, int]:
    """PCI address → N of /dev/accelN, where the driver of v2 to v4 is bound."""
    found: dict[str, int] = {}
    for folder in _listed(Path(paths.sys, "class/accel")):
        number = _ACCEL.fullmatch(folder.name)
        address = _link_name(folder / "device")
        if number is not None and address:
            found[address] = int(number[1])
    return found


def nodes_present(paths: HostPaths, chips: Sequence[Chip]) -> dict[int, bool]:
    """Chip → whether all its device nodes exist. Empty where /dev shows none of any chip: then it is not the host's."""
    seen = {chip.index: [Path(paths.dev, node).exists() for node in chip.nodes] for chip in chips if chip.nodes}
    if not any(any(found) for found in seen.values()):
        return {}
    return {index: all(found) for index, found in seen.items()}


def on_bus(paths: HostPaths, chip: Chip) -> bool:
    """Whether the chip is still there."""
    return all(Path(paths.sys, "bus/pci/devices", function, "vendor").exists() for function in chip.functions)


def pci_link(paths: HostPaths, chip: Chip) -> dict[str, int]:
    """Series → what the first function's link is; only what the virtual machine shows of it."""
    folder = Path(paths.sys, "bus/pci/devices", chip.pci_bus_id)
    found: dict[str, int] = {}
    for which, name in (("current", "link"), ("max", "link_max")):
        width = _text(folder / f"{which}_link_width")
        if _NUMBERED.fullmatch(width) and 0 < int(width) <= 32:
            found[f"tpu_pci_{name}_width"] = int(width)
        speed = _SPEED.match(_text(folder / f"{which}_link_speed"))
        if speed is not None and speed[1] in _GENERATIONS:
            found[f"tpu_pci_{name}_generation"] = _GENERATIONS[speed[1]]
    return found


def _listed(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _text(path: Path) -> str:
    """Empty for what is not there, or vanished while it was read."""
    try:
        with path.open("rb") as file:
            return file.read(_MAX_FILE).decode("ascii", "replace").strip()
    except OSError:
        return ""


def _link_name(path: Path) -> str:
    try:
        return path.readlink().name
    except OSError:
        return ""
