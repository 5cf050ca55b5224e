"""What a device is: sizes, its PCIe link, its neighbours, and in which layout the driver shows its files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from collectors.base import NODE, Reading
from collectors.neuron import formats, sysfs
from collectors.neuron.inventory import Chip, Inventory

LAYOUTS: Final = ("exit_counts", "live_counts", "moved", "unknown")
_LINK: Final[Mapping[str, tuple[str, Callable[[str], int | None]]]] = {
    "neuron_pcie_link_width": ("current_link_width", formats.count),
    "neuron_pcie_link_max_width": ("max_link_width", formats.count),
    "neuron_pcie_link_generation": ("current_link_speed", formats.pcie_generation),
    "neuron_pcie_link_max_generation": ("max_link_speed", formats.pcie_generation),
}
"""Series → file of the PCI function and how it is read."""
SERIES: Final = frozenset(
    (
        "neuron_device_memory_total_bytes",
        "neuron_device_cores",
        "neuron_core_physical_cores",
        "neuron_sysfs_connected_devices",
        "neuron_sysfs_layout",
        *_LINK,
    )
)


def readings(inventory: Inventory, wanted: frozenset[str], sys_path: str) -> Iterator[Reading]:
    """Every wanted series that follows from the inventory."""
    for chip in inventory.chips:
        label = (("neuron_device_index", str(chip.index)),)
        for series, value in _of_chip(chip, wanted, sys_path):
            if series in wanted and value:
                yield Reading(series, chip.position, value, label)
        for core in chip.cores if "neuron_core_physical_cores" in wanted else ():
            behind = len(core.physical) or chip.lnc
            if behind:
                yield Reading("neuron_core_physical_cores", core.position, behind, (("neuroncore", str(core.index)),))
    trees = [chip.tree for chip in inventory.chips if chip.tree is not None]
    if "neuron_sysfs_layout" in wanted and trees:
        found = {tree.layout for tree in trees}
        for layout in LAYOUTS:
            yield Reading("neuron_sysfs_layout", NODE, int(layout in found), (("layout", layout),))


def _of_chip(chip: Chip, wanted: frozenset[str], sys_path: str) -> Iterator[tuple[str, int]]:
    yield "neuron_device_memory_total_bytes", chip.memory_bytes
    yield "neuron_device_cores", chip.physical_cores
    yield "neuron_sysfs_connected_devices", _neighbours(chip)
    if chip.bdf:
        for series, (name, read) in _LINK.items():
            if series in wanted:
                yield series, read(_text(Path(sys_path) / "bus/pci/devices" / chip.bdf / name)) or 0


def _neighbours(chip: Chip) -> int:
    told = chip.tree.facts.get("connected_devices", "") if chip.tree is not None else ""
    listed = [word for word in told.split(",") if word.strip().isdecimal()]
    return len(listed) or chip.neighbours or 0


def _text(path: Path) -> str:
    try:
        return sysfs.read(str(path))
    except OSError:
        # Virtual machines need not show the link.
        return ""
