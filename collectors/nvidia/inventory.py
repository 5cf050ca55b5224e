"""What a discovery finds: GPUs and the parts that they are cut into, in whatever way they are read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from collectors.base import Device


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU instance, or one of several compute instances of a GPU instance."""

    position: int
    handle: Any
    gi: int
    ci: int | None
    """None for a GPU instance as a whole."""


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    """A physical GPU with its handle and its parts."""

    position: int
    handle: Any
    nvml_index: int
    uuid: str
    mig_capable: bool = False
    parts: tuple[Part, ...] = ()

    @property
    def instances(self) -> tuple[Part, ...]:
        """The GPU instances."""
        return tuple(part for part in self.parts if part.ci is None)

    @property
    def rows(self) -> tuple[int, ...]:
        """Where a number of the whole GPU stands: on each GPU instance where there are any, as with dcgm-exporter."""
        return tuple(part.position for part in self.instances) or (self.position,)

    @property
    def positions(self) -> tuple[int, ...]:
        """The GPU and all its parts."""
        return (self.position, *(part.position for part in self.parts))


class Inventory(msgspec.Struct, frozen=True, kw_only=True):
    """What a discovery found. ``gpus`` are those that can be read; ``devices`` has the lost ones, too."""

    devices: tuple[Device, ...] = ()
    gpus: tuple[Gpu, ...] = ()
    lost: tuple[int, ...] = ()
    denied: tuple[int, ...] = ()
    """NVML indices that this process may not open."""
    failed: tuple[str, ...] = ()
    """GPUs that could not be identified, in words."""
    count: int = 0


def still_missing(sys: str, known: Inventory, found: Sequence[Device]) -> list[Device]:
    """The GPUs of an earlier discovery that are not found now; their parts are not remembered.

    One that has been given to another driver, to be passed through to a virtual machine, is not missing.
    """
    present = {device.uuid for device in found}
    return [
        device
        for device in known.devices
        if not device.partition and device.uuid not in present and not _has_other_driver(sys, device.pci_bus_id)
    ]


def _has_other_driver(sys: str, bus_id: str) -> bool:
    link = Path(sys, "bus/pci/devices", bus_id[-12:].lower(), "driver")
    try:
        return link.readlink().name != "nvidia"
    except OSError:
        return False
