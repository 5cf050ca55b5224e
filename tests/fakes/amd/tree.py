"""Writes what amdgpu, hwmon and KFD show in sysfs below a directory that stands for /sys."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

Content = str | int | bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A KFD node of a board: the board itself, or a partition."""

    gpu_id: int
    render: int
    partition: int = 0
    simds: int = 1216
    simds_of_a_unit: int = 4
    memory: int = 0
    used: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A process with memory on some nodes: KFD's id of the node → bytes, and compute units' worth of waves."""

    pid: int
    memory: Mapping[int, int]
    units: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """A card on the PCI bus with the files of its folder."""

    bdf: str
    card: int
    vendor: str = "0x1002"
    device: str = "0x74a1"
    class_code: str = "0x120000"
    driver: str = "amdgpu"
    files: Mapping[str, Content] = field(default_factory=dict)
    hwmon: Mapping[str, Content] = field(default_factory=dict)
    nodes: Sequence[Node] = ()
    first_platform: int = 0
    """Number of the platform device of its second partition."""


@dataclass(frozen=True, slots=True)
class Tree:
    """The written files."""

    root: Path

    @property
    def sys(self) -> Path:
        return self.root / "sys"

    def folder(self, bdf: str) -> Path:
        return self.sys / "bus/pci/devices" / bdf

    def hwmon(self, bdf: str) -> Path:
        return next((self.folder(bdf) / "hwmon").iterdir())

    def put(self, bdf: str, name: str, content: Content) -> None:
        """Change a file of a card. It is replaced as a whole, as the kernel does it."""
        _write(self.folder(bdf) / name, content)

    def drop(self, bdf: str, name: str) -> None:
        (self.folder(bdf) / name).unlink()

    def refuse(self, bdf: str, name: str) -> None:
        """Let a file be one that cannot be opened: the kernel says ENXIO, as of a card that is gone."""
        import socket

        path = self.folder(bdf) / name
        path.unlink(missing_ok=True)
        # The name of a socket is short: it is bound in its own folder.
        descriptor = os.open(path.parent, os.O_RDONLY)
        try:
            with socket.socket(socket.AF_UNIX) as end:
                end.bind(f"/proc/self/fd/{descriptor}/{path.name}")
        finally:
            os.close(descriptor)

    def remove(self, bdf: str) -> None:
        """The card leaves the bus."""
        shutil.rmtree(self.folder(bdf))

    def rebind(self, bdf: str, driver: str) -> None:
        """The card gets another driver."""
        link = self.folder(bdf) / "driver"
        link.unlink()
        link.symlink_to(self.sys / "bus/pci/drivers" / driver)

    def processes(self, running: Sequence[Process]) -> None:
        """These are all processes that use KFD."""
        root = self.sys / "class/kfd/kfd/proc"
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir(parents=True)
        for process in running:
            for gpu_id, memory in process.memory.items():
                _write(root / f"{process.pid}/vram_{gpu_id}", f"{memory}\n")
            for gpu_id, units in process.units.items():
                _write(root / f"{process.pid}/stats_{gpu_id}/cu_occupancy", f"{units}\n")


def build(root: Path, boards: Sequence[Board], *, version: str = "6.12.12") -> Tree:
    """A host with these cards; ``version`` is that of a driver from AMD, empty for the kernel's own."""
    tree = Tree(root)
    module = tree.sys / "module/amdgpu"
    module.mkdir(parents=True)
    if version:
        _write(module / "version", f"{version}\n")
    for place, board in enumerate(boards):
        _board(tree, place, board)
    _kfd(tree, boards)
    return tree


def _board(tree: Tree, place: int, board: Board) -> None:
    folder = tree.folder(board.bdf)
    driver = tree.sys / "bus/pci/drivers" / board.driver
    driver.mkdir(parents=True, exist_ok=True)
    for name, number in (("vendor", board.vendor), ("device", board.device), ("class", board.class_code)):
        _write(folder / name, f"{number}\n")
    (folder / "driver").symlink_to(driver)
    for name, content in board.files.items():
        _write(folder / name, content)
    (folder / f"drm/card{board.card}").mkdir(parents=True)
    if board.nodes:
        (folder / f"drm/renderD{board.nodes[0].render}").mkdir()
    for name, content in {"name": "amdgpu\n", **board.hwmon}.items():
        if board.hwmon:
            _write(folder / f"hwmon/hwmon{place + 3}" / name, content)
    link = tree.sys / f"class/drm/card{board.card}/device"
    link.parent.mkdir(parents=True)
    link.symlink_to(folder)


def _kfd(tree: Tree, boards: Sequence[Board]) -> None:
    root = tree.sys / "class/kfd/kfd/topology/nodes"
    # The first node is the processor: its gpu_id is 0.
    _write(root / "0/gpu_id", "0\n")
    _write(root / "0/properties", "cpu_cores_count 96\nsimd_count 0\n")
    number = 1
    for board in boards:
        domain, bus, rest = board.bdf.split(":")
        slot, function = rest.split(".")
        location = int(bus, 16) << 8 | int(slot, 16) << 3 | int(function)
        for node in board.nodes:
            folder = root / str(number)
            number += 1
            _write(folder / "gpu_id", f"{node.gpu_id}\n")
            properties = {
                "simd_count": node.simds,
                "simd_per_cu": node.simds_of_a_unit,
                "gfx_target_version": 90402,
                "domain": int(domain, 16),
                "location_id": location | node.partition << 28,
                "drm_render_minor": node.render,
                "unique_id": 11476173018397068383,
            }
            _write(folder / "properties", "".join(f"{name} {value}\n" for name, value in properties.items()))
            _write(folder / "mem_banks/0/properties", f"heap_type 1\nsize_in_bytes {node.memory}\nflags 0\n")
            _write(folder / "mem_banks/0/used_memory", f"{node.used}\n")
            if node.partition:
                name = f"amdgpu_xcp_{board.first_platform + node.partition - 1}"
                drm = tree.sys / "devices/platform" / name / "drm"
                (drm / f"renderD{node.render}").mkdir(parents=True)
                (drm / f"card{board.card + node.partition}").mkdir()
    (tree.sys / "class/kfd/kfd/proc").mkdir(parents=True)


def _write(path: Path, content: Content) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    data = content if isinstance(content, bytes) else str(content).encode()
    draft = path.with_name(f".{path.name}.new")
    draft.write_bytes(data)
    draft.rename(path)
