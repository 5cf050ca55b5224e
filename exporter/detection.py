"""Signs of a vendor on this host, from the kernel alone: no library is loaded and no program is started."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from collectors.base import HostPaths
from exporter.catalogue import Detect, PciRule
from exporter.config.paths import expand


class PciDevice(msgspec.Struct, frozen=True):
    """A function on the PCI bus; numbers as the kernel writes them (``0x10de``, ``0x030200``)."""

    address: str
    vendor: str
    device: str
    device_class: str
    driver: str
    virtual: bool
    """A virtual function (SR-IOV): no card of its own."""


def pci_devices(sys_path: str) -> list[PciDevice] | None:
    """All functions on the bus; None where the host shows no PCI bus."""
    root = Path(sys_path) / "bus/pci/devices"
    try:
        folders = sorted(root.iterdir())
    except OSError:
        return None
    return [device for folder in folders if (device := _pci_device(folder)) is not None]


def _pci_device(folder: Path) -> PciDevice | None:
    """None for one that vanished while it was read."""
    try:
        return PciDevice(
            address=folder.name,
            vendor=(folder / "vendor").read_text().strip(),
            device=(folder / "device").read_text().strip(),
            device_class=(folder / "class").read_text().strip(),
            driver=(folder / "driver").readlink().name if (folder / "driver").is_symlink() else "",
            virtual=(folder / "physfn").exists(),
        )
    except (OSError, UnicodeDecodeError):
        return None


def matches(rule: PciRule, device: PciDevice) -> bool:
    return (
        device.vendor == rule.vendor
        and (not rule.classes or device.device_class.startswith(rule.classes))
        and (not rule.devices or device.device in rule.devices)
        and (not rule.drivers or device.driver in rule.drivers)
    )


def present(detect: Detect, bus: list[PciDevice] | None) -> int | None:
    """How many of the vendor's devices the bus has; None where it cannot tell."""
    if bus is None or not detect.pci:
        return None
    return len(
        {
            device.address.rpartition(".")[0] if rule.by_slot else device.address
            for device in bus
            for rule in detect.pci
            if not device.virtual and matches(rule, device)
        }
    )


def signs(
    detect: Detect, paths: HostPaths, bus: list[PciDevice] | None, environ: Mapping[str, str] = os.environ
) -> Iterator[str]:
    """What speaks for the vendor being here, in words for a person."""
    for device in bus or ():
        if any(matches(rule, device) for rule in detect.pci):
            yield f"PCI device {device.address} ({device.vendor}:{device.device.removeprefix('0x')})"
    for pattern in detect.files:
        found = sorted(glob(expand(pattern, paths)))
        if found:
            yield str(found[0])
    for name in detect.env:
        if environ.get(name):
            yield f"environment variable {name}"


def glob(pattern: str) -> list[Path]:
    """Files that match an absolute pattern. What cannot be looked at does not match."""
    path = Path(pattern)
    if not any(character in pattern for character in "*?["):
        return [path] if os.path.lexists(path) else []
    try:
        return list(Path(path.anchor).glob(str(path.relative_to(path.anchor))))
    except OSError:
        return []


class Bus:
    """What is on the PCI bus, looked at no more often than ``max_age`` and never on the event loop."""

    def __init__(self, sys_path: str, max_age: float = 30.0) -> None:
        self._sys_path, self._max_age = sys_path, max_age
        self._looked_at = float("-inf")
        self._found: list[PciDevice] | None = None
        self._looking = asyncio.Lock()

    async def devices(self) -> list[PciDevice] | None:
        async with self._looking:
            if time.monotonic() - self._looked_at > self._max_age:
                self._found = await asyncio.to_thread(pci_devices, self._sys_path)
                self._looked_at = time.monotonic()
            return self._found
