"""Trees of /sys, /dev and /proc as TPU hosts have them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from collectors.base import HostPaths

GOOGLE: Final = "0x1ae0"


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """A generation as its host shows it: Google's tpu-info and the device plugin tell the ids and the nodes."""

    device: str
    subsystem: str = "0x0000"
    vfio: bool = True
    functions: int = 1
    """PCI functions of a chip."""


KINDS: Final[Mapping[str, Kind]] = {
    "v2": Kind(device="0x0027", subsystem="0x004e", vfio=False),
    "v3": Kind(device="0x0027", subsystem="0x004f", vfio=False),
    "v4": Kind(device="0x005e", vfio=False),
    "v5e": Kind(device="0x0063"),
    "v5p": Kind(device="0x0062"),
    "v6e": Kind(device="0x006f"),
    "7x": Kind(device="0x0076", functions=2),
}


@dataclass(frozen=True, slots=True)
class Host:
    """The root of a host's files."""

    root: Path

    @property
    def paths(self) -> HostPaths:
        return HostPaths(**{name: str(self.root / name) for name in ("proc", "sys", "dev", "run", "etc", "opt")})

    def function(self, address: str, **files: str) -> Path:
        """A PCI function with these files."""
        folder = self.root / "sys/bus/pci/devices" / address
        folder.mkdir(parents=True)
        for name, text in files.items():
            (folder / name).write_text(f"{text}\n")
        return folder

    def process(
        self,
        pid: int,
        holds: Sequence[str] = (),
        environ: Mapping[str, str] | None = None,
        network: str = "net:[1]",
        addresses: Sequence[str] = (),
    ) -> Path:
        """A process that has these files below /dev open."""
        folder = self.root / "proc" / str(pid)
        (folder / "fd").mkdir(parents=True)
        (folder / "ns").mkdir()
        (folder / "net").mkdir()
        (folder / "comm").write_text("python3\n")
        (folder / "fd/0").symlink_to("/dev/null")
        (folder / "fd/1").symlink_to("socket:[4711]")
        for number, node in enumerate(holds, 3):
            (folder / f"fd/{number}").symlink_to(f"/dev/{node}")
        variables = {"PATH": "/usr/bin", **(environ or {})}
        (folder / "environ").write_bytes(b"".join(f"{k}={v}\0".encode() for k, v in variables.items()))
        (folder / "ns/net").symlink_to(network)
        (folder / "net/fib_trie").write_text(_fib_trie(addresses))
        return folder


def make_host(folder: Path, *, hostpid: bool = True) -> Host:
    """A host without a chip; among its processes are the kernel's thread daemon and ourselves."""
    host = Host(folder / "host")
    for name in ("sys/bus/pci/devices", "dev/vfio", "proc/self/ns"):
        (host.root / name).mkdir(parents=True)
    (host.root / "dev/vfio/vfio").touch()
    (host.root / "proc/self/ns/net").symlink_to("net:[1]")
    # What else Google puts on the bus: a disk, a network card.
    host.function("0000:00:03.0", vendor=GOOGLE, device="0x001f", **{"class": "0x010802"})
    host.function("0000:00:04.0", vendor=GOOGLE, device="0x0042", **{"class": "0x020000"})
    host.process(1)
    if hostpid:
        kthreadd = host.process(2)
        (kthreadd / "comm").write_text("kthreadd\n")
    return host


def add_chips(host: Host, kind: str, count: int, *, first: int = 0, link: bool = False) -> list[str]:
    """So many chips of a kind, with device nodes; gives the nodes below /dev, chip after chip.

    Device nodes are numbered from ``first``, and the bus is not in their order.
    """
    shape = KINDS[kind]
    nodes = []
    for chip in range(count):
        for function in range(shape.functions):
            number = first + chip * shape.functions + function
            bus = 0xC0 + count - 1 - chip if kind != "7x" else 0xC0 + chip
            address = f"0000:{bus:02x}:02.{function}"
            files = {"vendor": GOOGLE, "device": shape.device, "subsystem_device": shape.subsystem}
            files |= {"class": "0x120000", "numa_node": str(chip * 2 // max(count, 2))}
            if link:
                files |= {"current_link_width": "16", "max_link_width": "16"}
                files |= {"current_link_speed": "16.0 GT/s PCIe", "max_link_speed": "32.0 GT/s PCIe"}
            pci = host.function(address, **files)
            nodes.append(_node(host, pci, number, vfio=shape.vfio))
    return nodes


def _node(host: Host, pci: Path, number: int, *, vfio: bool) -> str:
    if vfio:
        group = host.root / "sys/kernel/iommu_groups" / str(number)
        group.mkdir(parents=True)
        (pci / "iommu_group").symlink_to(group)
        node = f"vfio/{number}"
    else:
        accel = host.root / "sys/class/accel" / f"accel{number}"
        accel.mkdir(parents=True)
        (accel / "device").symlink_to(pci)
        node = f"accel{number}"
    (host.root / "dev" / node).touch()
    return node


def _fib_trie(addresses: Iterable[str]) -> str:
    """As the kernel writes /proc/net/fib_trie: the local table of a network with these addresses."""
    lines = ["Local:", "  +-- 0.0.0.0/0 3 0 5"]
    for address in (*addresses, "127.0.0.1"):
        lines += [f"           |-- {address}", "              /32 host LOCAL"]
    return "\n".join(lines) + "\n"
