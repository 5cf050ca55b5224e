"""KFD, the driver's compute side: which logical GPUs there are, and which processes use them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from collectors.amd import files, texts

_SIMDS_OF_A_CU: Final = 4
"""Of CDNA, for kernels that do not tell."""
_MOST_PROCESSES: Final = 4096


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU node: a GPU, or one of its partitions."""

    folder: Path
    gpu_id: int
    """KFD's own number of it, in the names of a process's files."""
    bdf: str
    """PCI address, in lower case."""
    partition: int
    render: int
    """Minor number of the render node."""
    compute_units: int | None
    memory: int | None
    """Bytes of device memory that the node may use."""


class Process(msgspec.Struct, frozen=True):
    """What one process has on one node."""

    pid: str
    memory: int
    """Bytes of device memory."""
    compute_units: int | None
    """Compute units' worth of its waves."""


def nodes(sys: str) -> list[Node]:
    """All GPU nodes. Empty where KFD cannot be seen."""
    root = Path(sys, "class/kfd/kfd/topology/nodes")
    found = [node for name in files.names(root) if (node := _node(root / name)) is not None]
    return sorted(_numbered(found), key=lambda node: (node.bdf, node.partition, node.render))


def _node(folder: Path) -> Node | None:
    try:
        gpu_id = files.number(folder / "gpu_id")
        found = texts.properties(files.text(folder / "properties", 16384))
        banks = texts.properties(files.text(folder / "mem_banks/0/properties"))
    except files.FileError:
        return None
    if not gpu_id or "location_id" not in found:
        return None
    location = found["location_id"]
    address = location & 0xFFFF
    simds, each = found.get("simd_count", 0), found.get("simd_per_cu") or _SIMDS_OF_A_CU
    return Node(
        folder=folder,
        gpu_id=gpu_id,
        bdf=f"{found.get('domain', 0):04x}:{address >> 8:02x}:{address >> 3 & 31:02x}.{address & 7}",
        # The kernel puts the number of the part into the highest bits.
        partition=location >> 28 & 15,
        render=found.get("drm_render_minor", 0),
        compute_units=simds // each or None,
        memory=banks.get("size_in_bytes") or None,
    )


def _numbered(found: Sequence[Node]) -> Iterator[Node]:
    """The same, with each card's partitions told apart: by their order where the kernel does not number them."""
    for bdf in {node.bdf for node in found}:
        own = sorted((node for node in found if node.bdf == bdf), key=lambda node: (node.partition, node.render))
        distinct = len({node.partition for node in own}) == len(own)
        for place, node in enumerate(own):
            yield node if distinct else msgspec.structs.replace(node, partition=place)


def memory_used(node: Node) -> int | None:
    """Bytes of device memory in use. Raises FileError."""
    return files.number(node.folder / "mem_banks/0/used_memory")


def processes(sys: str, node: Node, *, occupancy: bool = True) -> list[Process] | None:
    """The processes that have memory on the node, by pid; None where KFD does not tell. Raises FileError.

    ``occupancy``: ask for compute units, too, for which the kernel looks at the hardware.
    """
    root = Path(sys, "class/kfd/kfd/proc")
    if not root.is_dir():
        return None
    found: list[Process] = []
    for pid in list(files.names(root))[:_MOST_PROCESSES]:
        if not pid.isdecimal():
            continue
        try:
            memory = files.number(root / pid / f"vram_{node.gpu_id}")
            units = files.number(root / pid / f"stats_{node.gpu_id}/cu_occupancy") if occupancy and memory else None
        except files.FileError as error:
            if error.kind == "permission":
                raise
            # It has ended meanwhile.
            continue
        if memory:
            found.append(Process(pid, memory, units))
    return found
