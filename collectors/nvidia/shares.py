"""How much of a GPU's time each process had (nvidia.md §4.4, nvmlDeviceGetProcessUtilization)."""

from __future__ import annotations

from typing import Any, Final

from collectors.nvidia import codes
from collectors.nvidia.binding import NvmlFailure, call
from collectors.nvidia.inventory import Gpu
from collectors.nvidia.readers import Reader

_CALL: Final = "nvmlDeviceGetProcessUtilization"
_FULL: Final = 100
"""Percent; more than that is no share."""


class ProcessShares:
    """Reads the samples that the driver has taken since the last time."""

    def __init__(self) -> None:
        self._seen: dict[int, int] = {}
        """Position → the driver's time of the newest sample that was read, in µs."""

    def read(self, gpu: Gpu, reader: Reader) -> dict[int, float] | None:
        """pid → the mean share of the SMs' time, 0 to 1; who is not there had none. None where this is not told.

        With MIG it is not. Raises DeviceLostError, DriverGoneError.
        """
        if gpu.parts:
            return None
        samples = reader.ask(gpu.position, gpu.handle, ((self._since_last, (gpu.position,)),))
        if samples is None:
            return None
        by_pid: dict[int, list[int]] = {}
        for sample in samples:
            self._seen[gpu.position] = max(int(sample.timeStamp), self._seen.get(gpu.position, 0))
            if sample.smUtil <= _FULL:
                by_pid.setdefault(int(sample.pid), []).append(int(sample.smUtil))
        return {pid: sum(shares) / len(shares) / _FULL for pid, shares in by_pid.items()}

    def _since_last(self, handle: Any, position: int) -> list[Any]:
        try:
            return list(call(_CALL, handle, self._seen.get(position, 0)))
        except NvmlFailure as failure:
            # Nobody did anything: NOT_FOUND by the library, SUCCESS where the binding asked for the number of samples.
            if failure.code in (codes.NOT_FOUND, codes.SUCCESS):
                return []
            raise
