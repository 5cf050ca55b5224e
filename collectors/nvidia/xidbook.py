"""The Xids of each device, wherever they were told: the last one, and how often each came of late."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from collectors.base import Device, Labels, Reading
from collectors.nvidia.inventory import Gpu, Inventory
from collectors.nvidia.readings import emit
from collectors.nvidia.xid import Window, message, messages


class XidBook:
    """Lives as long as the collector, so that the last Xid stays through discoveries, as dcgm-exporter's does."""

    __slots__ = ("_counts", "_inventory", "_last", "_order", "_texts")

    def __init__(self, window: float) -> None:
        """``window`` in seconds: over which Xids are counted."""
        self._counts = Window(window)
        self._texts: Mapping[int, str] = messages(Path(__file__).parent / "faults.toml")
        self._last: dict[str, tuple[int, int]] = {}
        """Device key → (order, xid)."""
        self._order = 0
        self._inventory = Inventory()

    def keep(self, inventory: Inventory) -> None:
        """Take a new discovery's devices.

        Instances of earlier layouts do not come back: a new one of the same shape has another uuid.
        """
        self._inventory = inventory
        keys = {_key(device) for device in inventory.devices}
        self._last = {key: last for key, last in self._last.items() if key in keys}
        self._counts.keep(keys)

    def note(self, position: int, xid: int) -> None:
        """One event of a device, now."""
        self.remember(position, xid)
        self._counts.add(_key(self._inventory.devices[position]), xid, time.monotonic())

    def remember(self, position: int, xid: int) -> None:
        """The last Xid of a device, from before anybody counted."""
        self._order += 1
        self._last[_key(self._inventory.devices[position])] = (self._order, xid)

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


def _key(device: Device) -> str:
    return f"{device.uuid}/{device.partition_uuid or device.partition}"


def where(gpu: Gpu, gi: int | None, ci: int | None) -> int:
    """The part that an Xid names; the GPU where it names none, or one that is not there any more."""
    matching = [part for part in gpu.parts if gi is not None and part.gi == gi]
    for part in matching:
        if part.ci is not None and part.ci == ci:
            return part.position
    return next((part.position for part in matching if part.ci is None), gpu.position)
