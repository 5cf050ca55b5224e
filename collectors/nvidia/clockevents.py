"""How often each reason for low clocks was seen: dcgm-exporter's DCGM_EXP_CLOCK_EVENTS_COUNT."""

from __future__ import annotations

import time
from typing import Final

from collectors.base import Labels, Reading
from collectors.nvidia.inventory import Gpu
from collectors.nvidia.readings import emit
from collectors.nvidia.xid import Window

_EVENTS: Final = (
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


class ClockEvents:
    """Counts over a sliding window the samples in which each bit was set."""

    __slots__ = ("_seen",)

    def __init__(self, seconds: float) -> None:
        self._seen = Window(seconds)

    def read(self, gpu: Gpu, mask: int, series: str, out: list[Reading]) -> None:
        """Note what is set now, and add the counts: one 0 without ``clock_event`` if there was none."""
        now = time.monotonic()
        for bit in range(len(_EVENTS)):
            if mask >> bit & 1:
                self._seen.add(gpu.uuid, bit, now)
        size: Labels = (("window_size_in_ms", str(round(self._seen.seconds * 1000))),)
        counts = self._seen.counts(gpu.uuid, now)
        for bit, count in counts.items():
            emit(out, series, gpu.rows, count, (("clock_event", _EVENTS[bit]), *size))
        if not counts:
            emit(out, series, gpu.rows, 0, size)
