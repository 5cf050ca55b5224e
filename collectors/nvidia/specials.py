"""Series that are no single number of the driver: counted over a window, by peer, by process."""

from __future__ import annotations

import time
from typing import Final

from collectors.base import Labels, Reading, Settings
from collectors.nvidia import processes
from collectors.nvidia.binding import NvmlFailure, call
from collectors.nvidia.discovery import Gpu, Inventory
from collectors.nvidia.faultlog import FaultLog
from collectors.nvidia.readers import Reader, emit
from collectors.nvidia.sources import Kind
from collectors.nvidia.table import EVENT_REASONS
from collectors.nvidia.xid import Window

_DEFAULT_WINDOW: Final = 300_000
"""Milliseconds: dcgm-exporter's."""
_CLOCK_EVENTS: Final = (
    "gpu_idle",
    "clocks_setting",
    "power_cap",
    "hw_slowdown",
    "sync_boost",
    "sw_thermal",
    "hw_thermal",
    "hw_power_brake",
    "display_clocks",
)
"""By bit of the event reasons, from bit 0."""
_P2P_NVLINK: Final = 2
_P2P_STATUS: Final = (
    "OK",
    "ChipsetNotSupported",
    "GPUNotSupported",
    "TopologyNotSupported",
    "DisabledByRegKey",
    "NotSupported",
    "Unknown",
)


def window(settings: Settings, option: str) -> float:
    """A window of the options, in seconds."""
    return float(settings.options.get(option, _DEFAULT_WINDOW)) / 1000


class Specials:
    """Keeps what has been seen of clock events over the window."""

    __slots__ = ("_clock_events", "_faults")

    def __init__(self, faults: FaultLog, clock_window: float) -> None:
        self._faults = faults
        self._clock_events = Window(clock_window)

    def read(self, gpu: Gpu, inventory: Inventory, reader: Reader, series: str, kind: Kind, out: list[Reading]) -> None:
        """Add the readings of one series. Raises DeviceLostError, DriverGoneError."""
        if kind == "xid":
            self._faults.last_xid(gpu, series, out)
        elif kind == "xid_count":
            self._faults.xid_counts(gpu, series, out)
        elif kind == "clock_events":
            self._count_clock_events(gpu, reader, series, out)
        elif kind == "p2p":
            _p2p(gpu, inventory, reader, series, out)
        elif kind == "processes":
            for position, running in processes.by_level(gpu, reader):
                emit(out, series, (position,), len({process.pid for process in running}))
        elif kind == "process_memory":
            for position, running in processes.by_level(gpu, reader):
                for process in running:
                    labels = (("pid", str(process.pid)), ("type", process.type))
                    emit(out, series, (position,), process.memory, labels)

    def _count_clock_events(self, gpu: Gpu, reader: Reader, series: str, out: list[Reading]) -> None:
        mask = reader.ask(gpu.position, gpu.handle, EVENT_REASONS)
        if mask is None:
            return
        now = time.monotonic()
        for bit in range(len(_CLOCK_EVENTS)):
            if int(mask) >> bit & 1:
                self._clock_events.add(gpu.uuid, bit, now)
        size: Labels = (("window_size_in_ms", str(round(self._clock_events.seconds * 1000))),)
        counts = self._clock_events.counts(gpu.uuid, now)
        for bit, count in counts.items():
            emit(out, series, gpu.rows, count, (("clock_event", _CLOCK_EVENTS[bit]), *size))
        if not counts:
            emit(out, series, gpu.rows, 0, size)


def _p2p(gpu: Gpu, inventory: Inventory, reader: Reader, series: str, out: list[Reading]) -> None:
    for peer in inventory.gpus:
        quantity = ("nvmlDeviceGetP2PStatus", peer.uuid)
        if peer.uuid == gpu.uuid or reader.ledger.skips(gpu.position, quantity):
            continue
        try:
            status = int(call("nvmlDeviceGetP2PStatus", gpu.handle, peer.handle, _P2P_NVLINK))
        except NvmlFailure as failure:
            reader.ledger.failed(gpu.position, quantity, failure)
            continue
        text = _P2P_STATUS[status] if status < len(_P2P_STATUS) else _P2P_STATUS[-1]
        emit(out, series, gpu.rows, status, (("link_status", text), ("peer_gpu", str(peer.nvml_index))))
