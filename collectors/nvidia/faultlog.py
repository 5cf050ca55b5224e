"""Faults of the GPUs, from NVML's events and the kernel's log."""

from __future__ import annotations

import contextlib
import time

import msgspec

from collectors import kernel_log
from collectors.base import NODE, Fault, ReadError
from collectors.kernel_log import KernelLog
from collectors.nvidia import codes
from collectors.nvidia.binding import NvmlFailure
from collectors.nvidia.events import Drained, Events
from collectors.nvidia.identity import pci_address
from collectors.nvidia.inventory import Inventory
from collectors.nvidia.kernel_xids import KernelXid, parse
from collectors.nvidia.xid import Origin, Twins
from collectors.nvidia.xidbook import XidBook, where


class Collected(msgspec.Struct, frozen=True, kw_only=True):
    """What one drain of both sources gave."""

    faults: tuple[Fault, ...] = ()
    errors: tuple[ReadError, ...] = ()
    layout_changed: bool = False
    device_lost: bool = False


class FaultLog:
    """Reads both sources, and keeps the book."""

    __slots__ = ("_addresses", "_events", "_inventory", "_kernel", "_left_out", "_twins", "book")

    def __init__(self, window: float, kmsg_path: str | None) -> None:
        self.book = XidBook(window)
        self._twins = Twins()
        self._events: Events | None = None
        self._left_out: frozenset[int] = frozenset()
        self._addresses: dict[tuple[int, int, int], int] = {}
        self._inventory = Inventory()
        self._kernel: KernelLog[KernelXid] | None = None
        if kmsg_path is not None:
            # Without it, as in most containers, NVML's events remain; doctor tells what to do.
            with contextlib.suppress(OSError):
                self._kernel = KernelLog(kmsg_path, parse)

    def watch(self, inventory: Inventory) -> None:
        """Register with the GPUs of a new discovery. Raises NvmlFailure when the driver is gone."""
        self._inventory = inventory
        self._left_out = frozenset()
        self._addresses = _addresses(inventory)
        self.book.keep(inventory)
        self._register()

    def leave_out(self, positions: frozenset[int]) -> None:
        """Register anew without these GPUs, if that is a change. Raises NvmlFailure when the driver is gone."""
        if positions != self._left_out:
            self._left_out = positions
            self._register()

    def _register(self) -> None:
        self.unwatch()
        try:
            self._events = Events([gpu for gpu in self._inventory.gpus if gpu.position not in self._left_out])
        except NvmlFailure as failure:
            if codes.judge(failure.code) == "gone":
                raise

    def unwatch(self) -> None:
        """Free the event set."""
        events, self._events = self._events, None
        if events is not None:
            events.close()

    def close(self) -> None:
        """Close the kernel's log."""
        if self._kernel is not None:
            self._kernel.close()

    def drain(self) -> Collected:
        """New faults, each once. Raises NvmlFailure when the driver is gone."""
        errors: list[ReadError] = []
        self._twins.next_drain()
        faults = self._drain_kernel(errors)
        drained = self._events.drain() if self._events is not None else Drained()
        now = time.time()
        for event in drained.xids:
            faults += self._note(where(event.gpu, event.gi, event.ci), event.xid, "nvml", now)
        return Collected(
            faults=tuple(faults),
            errors=tuple(errors),
            layout_changed=drained.layout_changed,
            device_lost=drained.device_lost,
        )

    def _drain_kernel(self, errors: list[ReadError]) -> list[Fault]:
        if self._kernel is None:
            return []
        faults: list[Fault] = []
        try:
            found = self._kernel.drain()
        except OSError as error:
            errors.append(ReadError(NODE, "transient", f"the kernel's log cannot be read: {error}"))
            return []
        gpus = {gpu.position: gpu for gpu in self._inventory.gpus}
        now, uptime = time.time(), kernel_log.uptime()
        for record in found:
            position = self._addresses.get(record.pci)
            if position is not None:
                if position in gpus:
                    position = where(gpus[position], record.gi, record.ci)
                faults += self._note(position, record.xid, "kmsg", kernel_log.unix_time(record.uptime, now, uptime))
        return faults

    def _note(self, position: int, xid: int, origin: Origin, at: float) -> list[Fault]:
        device = self._inventory.devices[position]
        if not self._twins.is_new(device.uuid, xid, origin, time.monotonic()):
            return []
        self.book.note(position, xid)
        return [Fault(position, f"xid:{xid}", at)]


def _addresses(inventory: Inventory) -> dict[tuple[int, int, int], int]:
    """PCI domain, bus and device → position of the whole GPU, lost ones too: the kernel speaks of them longest."""
    return {
        address: position
        for position, device in enumerate(inventory.devices)
        if not device.partition and (address := pci_address(device.pci_bus_id)) is not None
    }
