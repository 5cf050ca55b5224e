"""A directory that looks like a host to the agent: what `paths.root` points to."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from tests.fakes.nvml.gpus import PCI_BUSES


@dataclass(frozen=True, slots=True)
class Host:
    root: Path

    @property
    def kmsg(self) -> Path:
        return self.root / "dev/kmsg"

    def log_xid(self, bus: str, xid: int, more: str = "pid=1234, name=python") -> None:
        """The kernel's log gets a record of an Xid, as /dev/kmsg shows it."""
        micros = int(time.clock_gettime(time.CLOCK_MONOTONIC) * 1e6)
        with self.kmsg.open("a") as file:
            file.write(f"3,{micros},{micros},-;NVRM: Xid (PCI:0000:{bus.lower()}:00): {xid}, {more}\n")


def make_host(folder: Path, gpus: int = 0) -> Host:
    """A host with so many NVIDIA GPUs on its bus, its driver loaded, and an empty kernel log."""
    host = Host(folder / "host")
    devices = host.root / "sys/bus/pci/devices"
    devices.mkdir(parents=True)
    (host.root / "dev").mkdir()
    host.kmsg.touch()
    (host.root / "proc").mkdir()
    if gpus:
        version = host.root / "proc/driver/nvidia/version"
        version.parent.mkdir(parents=True)
        version.write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05\n")
    for i in range(gpus):
        card = devices / f"0000:{PCI_BUSES[i].lower()}:00.0"
        card.mkdir()
        (card / "vendor").write_text("0x10de\n")
        (card / "device").write_text("0x2330\n")
        (card / "class").write_text("0x030200\n")
        (card / "numa_node").write_text(f"{i // 4}\n")
    return host
