"""What the host alone tells of its chips, whatever they do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from collectors.base import HostPaths, Process, Reading
from collectors.tpu.chips import Chip, nodes_present, pci_link
from collectors.tpu.owners import Owners

LINKS: Final = frozenset(
    ("tpu_pci_link_width", "tpu_pci_link_max_width", "tpu_pci_link_generation", "tpu_pci_link_max_generation")
)
OWNED: Final = frozenset(("tpu_processes",))
"""What needs a look at the processes."""


def read(paths: HostPaths, chips: Sequence[Chip], owners: Owners, wanted: frozenset[str]) -> Iterator[Reading]:
    """The readings of these chips. A chip's index is its position among the devices."""
    for chip in chips:
        if "tpu_model_hbm_bytes" in wanted:
            yield Reading("tpu_model_hbm_bytes", chip.index, chip.generation.hbm_bytes)
        if "tpu_model_tensorcores" in wanted:
            yield Reading("tpu_model_tensorcores", chip.index, chip.generation.tensorcores)
        if wanted & LINKS:
            for series, value in pci_link(paths, chip).items():
                if series in wanted:
                    yield Reading(series, chip.index, value)
        if "tpu_processes" in wanted and owners.complete and chip.nodes:
            yield Reading("tpu_processes", chip.index, len(holders(chip, owners)))
    if "tpu_device_node_present" in wanted:
        for index, present in nodes_present(paths, chips).items():
            yield Reading("tpu_device_node_present", index, int(present))


def holders(chip: Chip, owners: Owners) -> frozenset[int]:
    """The processes that hold any of the chip's device nodes."""
    return frozenset().union(*(owners.pids.get(node, frozenset()) for node in chip.nodes))


def processes(chips: Sequence[Chip], owners: Owners) -> list[Process] | None:
    """Who works on which chip, for attribution; None where not all processes can be seen."""
    if not owners.complete:
        return None
    return [Process(chip.index, pid) for chip in chips for pid in sorted(holders(chip, owners))]


def idle(chips: Sequence[Chip], owners: Owners) -> list[Chip]:
    """The chips of which it is certain that no process holds them."""
    return [chip for chip in chips if owners.complete and chip.nodes and not holders(chip, owners)]
