"""Series that are no single number of the driver: counted over a window, by peer, by process."""

from __future__ import annotations

from typing import Final

from collectors.base import Reading
from collectors.nvidia import processes
from collectors.nvidia.binding import NvmlFailure, call
from collectors.nvidia.clockevents import ClockEvents
from collectors.nvidia.faultlog import FaultLog
from collectors.nvidia.inventory import Gpu, Inventory
from collectors.nvidia.readers import Reader
from collectors.nvidia.readings import emit
from collectors.nvidia.sources import Kind
from collectors.nvidia.table import EVENT_REASONS

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


class Specials:
    """Keeps what has been seen of clock events over the window."""

    __slots__ = ("_clock_events", "_faults", "_sees_processes")

    def __init__(self, faults: FaultLog, clock_window: float, proc: str) -> None:
        self._faults = faults
        self._clock_events = ClockEvents(clock_window)
        self._sees_processes = processes.are_visible(proc)

    def read(self, gpu: Gpu, inventory: Inventory, reader: Reader, series: str, kind: Kind, out: list[Reading]) -> None:
        """Add the readings of one series. Raises DeviceLostError, DriverGoneError."""
        match kind:
            case "xid":
                self._faults.book.last_xid(gpu, series, out)
            case "xid_count":
                self._faults.book.xid_counts(gpu, series, out)
            case "clock_events":
                self._count_clock_events(gpu, reader, series, out)
            case "p2p":
                _p2p(gpu, inventory, reader, series, out)
            case "processes":
                self._count_processes(gpu, reader, series, out)
            case "process_memory":
                _process_memory(gpu, reader, series, out)

    def _count_processes(self, gpu: Gpu, reader: Reader, series: str, out: list[Reading]) -> None:
        for position, running in processes.by_level(gpu, reader):
            # That there is none is known only where they can be seen.
            if running or self._sees_processes:
                emit(out, series, (position,), len({process.pid for process in running}))

    def _count_clock_events(self, gpu: Gpu, reader: Reader, series: str, out: list[Reading]) -> None:
        mask = reader.ask(gpu.position, gpu.handle, EVENT_REASONS)
        if mask is not None:
            self._clock_events.read(gpu, int(mask), series, out)


def _process_memory(gpu: Gpu, reader: Reader, series: str, out: list[Reading]) -> None:
    for position, running in processes.by_level(gpu, reader):
        for process in running:
            labels = (("pid", str(process.pid)), ("kind", process.kind))
            emit(out, series, (position,), process.memory, labels)


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
