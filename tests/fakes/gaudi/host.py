"""A directory that looks like a host with Gaudi cards: sysfs of the driver, hwmon, lm-sensors' configuration, /proc."""

from __future__ import annotations

import shutil
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from collectors.base import HostPaths
from tests.fakes.gaudi.cards import DRIVER, bdf, minor, module_id

SENSORS: Final = """\
# installed by the driver's package
chip "coretemp-*"
    label temp1 "On Chip 9"

chip "HL225-pci-*" "HL225B-pci-*"
    label temp1 "On Chip 0"
    label temp2 "On Chip 1"
    label temp3 "TD"
    label temp4 "On Board"
    label temp5 "HBM 0"
    label temp6 "HBM 1"
    label temp7 "HBM 2"
    ignore temp7
    label temp8 "VRM 0"
"""


@dataclass(frozen=True, slots=True)
class Host:
    root: Path

    @property
    def paths(self) -> HostPaths:
        folders = {name: str(self.root / name) for name in ("proc", "sys", "dev", "run", "etc", "opt")}
        return HostPaths(**folders, kmsg=str(self.root / "dev/kmsg"), var_lib=str(self.root / "var/lib"))

    def pci(self, i: int) -> Path:
        return self.root / "sys/bus/pci/devices" / bdf(i)

    def set(self, i: int, attribute: str, value: object) -> None:
        """Change a file of the driver or of the PCI function."""
        (self.pci(i) / attribute).write_text(f"{value}\n")

    def unset(self, i: int, attribute: str) -> None:
        (self.pci(i) / attribute).unlink()

    def give_up(self, i: int) -> None:
        """The driver could not initialise the card: it is on the bus, without a node and without the driver's files."""
        (self.root / f"sys/class/accel/accel{minor(i)}/device").unlink()
        (self.root / f"sys/class/accel/accel{minor(i)}").rmdir()
        (self.pci(i) / "driver").unlink()
        for name in ("status", "pci_addr"):
            self.unset(i, name)

    def remove(self, i: int) -> None:
        """The card is not on the bus any more."""
        (self.root / f"sys/class/accel/accel{minor(i)}/device").unlink()
        (self.root / f"sys/class/accel/accel{minor(i)}").rmdir()
        shutil.rmtree(self.pci(i))

    def pass_through(self, i: int) -> None:
        """The card is given to a virtual machine."""
        self.give_up(i)
        (self.pci(i) / "driver").symlink_to("../../../../bus/pci/drivers/vfio-pci")

    def process(self, pid: int, card: int | None, used: int | None = None, version: int = 1) -> None:
        """A process that holds a card, and its framework's declaration of memory."""
        descriptors = self.root / "proc" / str(pid) / "fd"
        descriptors.mkdir(parents=True)
        (descriptors / "0").symlink_to("/dev/null")
        if card is not None:
            (descriptors / "5").symlink_to(f"/dev/accel/accel{minor(card)}")
            (descriptors / "6").symlink_to(f"/dev/accel/accel_controlD{minor(card)}")
        if card is not None and used is not None:
            declaration = self.root / f"dev/shm/mem_usage_accel{minor(card)}"
            declaration.parent.mkdir(exist_ok=True)
            (descriptors / "7").symlink_to(declaration)
            declaration.write_bytes(struct.pack("<QQQ", version, 1_700_000_000, used))


def make_host(folder: Path, cards: int = 8, *, labels: bool = True) -> Host:
    """A host with so many Gaudi2. ``labels``: lm-sensors' configuration is installed."""
    host = Host(folder / "host")
    for name in (
        "proc",
        "dev/accel",
        "etc/sensors.d",
        "sys/bus/pci/devices",
        "sys/class/accel",
        "sys/module/habanalabs",
    ):
        (host.root / name).mkdir(parents=True)
    (host.root / "dev/kmsg").touch()
    (host.root / "sys/module/habanalabs/version").write_text(f"{DRIVER}\n")
    namespaces = host.root / "proc/1/ns"
    namespaces.mkdir(parents=True)
    (namespaces.parent / "fd").mkdir()
    (namespaces / "pid").symlink_to("pid:[4026531836]")
    _foreign(host)
    for i in range(cards):
        _card(host, i)
    if labels:
        (host.root / "etc/sensors.d/hl_sensors.conf").write_text(SENSORS)
    return host


def _foreign(host: Host) -> None:
    """Another vendor's accelerator between ours."""
    pci = host.root / "sys/bus/pci/devices/0000:21:00.0"
    pci.mkdir()
    for name, value in {"vendor": "0x17cb", "device": "0xa100", "class": "0x120000", "status": "operational"}.items():
        (pci / name).write_text(f"{value}\n")
    node = host.root / "sys/class/accel/accel2"
    node.mkdir()
    (node / "device").symlink_to(pci)


def _card(host: Host, i: int) -> None:
    pci = host.pci(i)
    pci.mkdir()
    (pci / "driver").symlink_to("../../../../bus/pci/drivers/habanalabs")
    facts: dict[str, object] = {
        "vendor": "0x1da3",
        "device": "0x1020",
        "class": "0x120000",
        "numa_node": i // 4,
        "current_link_speed": "16.0 GT/s PCIe",
        "current_link_width": 16,
        "max_link_speed": "32.0 GT/s PCIe",
        "max_link_width": 16,
        "status": "Operational",
        "pci_addr": bdf(i),
        "device_type": "GAUDI2",
        "module_id": module_id(i),
        "clk_cur_freq_mhz": 1650 - 5 * i,
        "clk_max_freq_mhz": 1800,
        "max_power": 550_000,
        "hard_reset_cnt": i,
        "uboot_ver": f"U-Boot fw-{50 + i}",
        "armcp_kernel_ver": "Linux gaudi2 5.10",
    }
    for name, value in facts.items():
        host.set(i, name, value)
    node = host.root / f"sys/class/accel/accel{minor(i)}"
    node.mkdir()
    (node / "device").symlink_to(pci)
    hwmon = pci / f"hwmon/hwmon{i + 3}"
    hwmon.mkdir(parents=True)
    (hwmon / "name").write_text("HL225\n")
    readings = {1: 44.0, 2: 45.0, 3: 99.0, 4: 35.0, 5: 50.0, 6: 49.5, 7: 99.0, 8: 60.5}
    for channel, celsius in readings.items():
        (hwmon / f"temp{channel}_input").write_text(f"{round((celsius + i) * 1000)}\n")
    (hwmon / "power1_input").write_text(f"{(96_000 + 1000 * i) * 1000}\n")
