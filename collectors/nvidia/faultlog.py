"""Faults of the GPUs, from NVML's events and the kernel's log, and the Xid series made from them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from collectors.base import NODE, Device, Fault, Labels, ReadError, Reading
from collectors.nvidia import codes, kmsg
from collectors.nvidia.binding import NvmlFailure
from collectors.nvidia.discovery import Gpu, Inventory
from collectors.nvidia.events import Drained, Events
from collectors.nvidia.readers import emit
from collectors.nvidia.xid import Origin, Twins, Window, message, messages


class Collected(msgspec.Struct, frozen=True, kw_only=True):
    """What one drain of both sources gave."""

    faults: tuple[Fault, ...] = ()
    errors: tuple[ReadError, ...] = ()
    layout_changed: bool = False
    device_lost: bool = False


class FaultLog:
    """Lives as long as the collector, so that the last Xid stays through discoveries, as dcgm-exporter's does."""

    __slots__ = (
        "_addresses",
        "_counts",
        "_events",
        "_inventory",
        "_kernel",
        "_last",
        "_left_out",
        "_order",
        "_texts",
        "_twins",
    )

    def __init__(self, window: float, kmsg_path: str | None) -> None:
        self._counts = Window(window)
        self._texts: Mapping[int, str] = messages(Path(__file__).parent / "faults.toml")
        self._twins = Twins()
        self._last: dict[str, tuple[int, int]] = {}
        """Device key → (order, xid)."""
        self._order = 0
        self._events: Events | None = None
        self._left_out: frozenset[int] = frozenset()
        self._addresses: dict[tuple[int, int, int], int] = {}
        self._inventory = Inventory()
        self._kernel: kmsg.KernelLog | None = None
        if kmsg_path is not None:
            # Without it, as in most containers, NVML's events remain; doctor tells what to do.
            with contextlib.suppress(OSError):
                self._kernel = kmsg.KernelLog(kmsg_path)

    def watch(self, inventory: Inventory) -> None:
        """Register with the GPUs of a new discovery. Raises NvmlFailure when the driver is gone."""
        self._inventory = inventory
        self._left_out = frozenset()
        self._addresses = _addresses(inventory)
        # Instances of earlier layouts do not come back: a new one of the same shape has another uuid.
        keys = {_key(device) for device in inventory.devices}
        self._last = {key: last for key, last in self._last.items() if key in keys}
        self._counts.keep(keys)
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
            faults += self._note(_where(event.gpu, event.gi, event.ci), event.xid, "nvml", now)
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
        now, uptime = time.time(), kmsg.uptime()
        for record in found:
            position = self._addresses.get(record.pci)
            if position is not None:
                if position in gpus:
                    position = _where(gpus[position], record.gi, record.ci)
                faults += self._note(position, record.xid, "kmsg", kmsg.unix_time(record, now, uptime))
        return faults

    def _note(self, position: int, xid: int, origin: Origin, at: float) -> list[Fault]:
        device = self._inventory.devices[position]
        if not self._twins.is_new(device.uuid, xid, origin, time.monotonic()):
            return []
        key = _key(device)
        self._order += 1
        self._last[key] = (self._order, xid)
        self._counts.add(key, xid, time.monotonic())
        return [Fault(position, f"xid:{xid}", at)]

    def last_xid(self, gpu: Gpu, series: str, out: list[Reading]) -> None:
        """The last Xid of each row: its own or the whole GPU's, whichever is newer; 0 before the first."""
        for row in gpu.rows:
            _, xid = max((self._last.get(key, (0, 0)) for key in self._keys(gpu, row)), default=(0, 0))
            emit(out, series, (row,), xid, (("err_code", str(xid)), ("err_msg", message(self._texts, xid))))

    def xid_counts(self, gpu: Gpu, series: str, out: list[Reading]) -> None:
        """How often each Xid came in the window; one 0 without ``xid`` if none did."""
        window: Labels = (("window_size_in_ms", str(round(self._counts.seconds * 1000))),)
        now = time.monotonic()
        for row in gpu.rows:
            counts: dict[int, int] = {}
            for key in self._keys(gpu, row):
                for xid, count in self._counts.counts(key, now).items():
                    counts[xid] = counts.get(xid, 0) + count
            for xid, count in sorted(counts.items()):
                emit(out, series, (row,), count, (*window, ("xid", str(xid))))
            if not counts:
                emit(out, series, (row,), 0, window)

    def _keys(self, gpu: Gpu, row: int) -> Sequence[str]:
        """A row's own key, that of its GPU, and those of the compute instances that have no row."""
        devices = self._inventory.devices
        here = {row, gpu.position}
        instance = next((part.gi for part in gpu.parts if part.position == row), None)
        here |= {part.position for part in gpu.parts if part.gi == instance}
        return [_key(devices[position]) for position in sorted(here)]


def _addresses(inventory: Inventory) -> dict[tuple[int, int, int], int]:
    """PCI domain, bus and device → position of the whole GPU, lost ones too: the kernel speaks of them longest."""
    found = {}
    for position, device in enumerate(inventory.devices):
        parts = device.pci_bus_id.replace(".", ":").split(":")
        if not device.partition and len(parts) == 4:
            with contextlib.suppress(ValueError):
                found[int(parts[0], 16), int(parts[1], 16), int(parts[2], 16)] = position
    return found


def _key(device: Device) -> str:
    return f"{device.uuid}/{device.partition_uuid or device.partition}"


def _where(gpu: Gpu, gi: int | None, ci: int | None) -> int:
    """The part that an Xid names; the GPU where it names none, or one that is not there any more."""
    matching = [part for part in gpu.parts if gi is not None and part.gi == gi]
    for part in matching:
        if part.ci is not None and part.ci == ci:
            return part.position
    return next((part.position for part in matching if part.ci is None), gpu.position)
