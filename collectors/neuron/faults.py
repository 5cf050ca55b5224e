"""Fault events, from the kernel's log and the driver's counters, each told once.

Both tell of the same errors, the driver's counters later (before driver 2.30.2 when the process exits) and the log not
everywhere. So an event counts when either source has seen more of its kind on the device than was told so far.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from typing import Final, Literal

from collectors import kernel_log
from collectors.base import NODE, Fault, ReadError
from collectors.kernel_log import KernelLog
from collectors.neuron.hardware_errors import HardwareError, parse
from collectors.neuron.inventory import Inventory

Source = Literal["log", "driver"]

CODES: Final[Mapping[str, str]] = {
    "hw_hbm_ue_error": "neuron:HBM_UNCORRECTABLE_ERROR",
    "hw_nc_ue_error": "neuron:NC_UNCORRECTABLE_ERROR",
    "hw_dma_abort_error": "neuron:DMA_ERROR",
    "hw_collectives_error": "neuron:HANG_ON_COLLECTIVES",
    "hw_repairable_hbm_ue_error": "nrt:1205",
}
"""The driver's status → the code under which the log has the same error, or the runtime's return code."""
_MOST_KINDS: Final = 1000
"""Kinds of errors, of all devices, that are kept: the log can hold anything."""
_MOST_AT_ONCE: Final = 100
"""Events of one counter's step: a counter that leaps tells of many, and a broken one of billions."""


class FaultLog:
    """Lives as long as the collector."""

    def __init__(self, kmsg_path: str | None) -> None:
        self._inventory = Inventory()
        self._seen: dict[tuple[str, str], dict[Source, int]] = {}
        """(uuid, code) → source → events."""
        self._told: dict[tuple[str, str], int] = {}
        self._totals: dict[tuple[str, str], int] = {}
        """(uuid, status) → the driver's number before."""
        self._log: KernelLog[HardwareError] | None = None
        if kmsg_path is not None:
            # Without it, as in most containers, the driver's counters remain; doctor tells what to do.
            with contextlib.suppress(OSError):
                self._log = KernelLog(kmsg_path, parse)

    def watch(self, inventory: Inventory) -> None:
        """Take the devices of a new discovery."""
        self._inventory = inventory

    def close(self) -> None:
        """Close the kernel's log."""
        if self._log is not None:
            self._log.close()

    def drain(self, errors: list[ReadError]) -> list[Fault]:
        """New events of the kernel's log."""
        if self._log is None:
            return []
        try:
            found = self._log.drain()
        except OSError as error:
            errors.append(ReadError(NODE, "transient", f"the kernel's log cannot be read: {error}"))
            return []
        now, uptime = time.time(), kernel_log.uptime()
        faults: list[Fault] = []
        for entry in found:
            position = self._position(entry)
            if position is None:
                text = f"NEURON_HW_ERR={entry.kind} in the kernel's log names no device of this node"
                errors.append(ReadError(NODE, "library", text))
            else:
                at = kernel_log.unix_time(entry.uptime, now, uptime)
                faults += self._count(position, f"neuron:{entry.kind}", "log", 1, at)
        return faults

    def counted(self, totals: Mapping[tuple[int, str], int]) -> list[Fault]:
        """New events by the driver's counters: (position, status) → total. What was before the first look is past."""
        faults: list[Fault] = []
        for (position, status), total in totals.items():
            key = (self._inventory.devices[position].uuid, status)
            before = self._totals.get(key)
            self._totals[key] = total
            if before is not None and total > before:
                steps = min(total - before, _MOST_AT_ONCE)
                faults += self._count(position, CODES[status], "driver", steps, time.time())
        return faults

    def _count(self, position: int, code: str, source: Source, more: int, at: float) -> list[Fault]:
        key = (self._inventory.devices[position].uuid, code)
        if key not in self._seen and len(self._seen) >= _MOST_KINDS:
            return []
        seen = self._seen.setdefault(key, {})
        seen[source] = seen.get(source, 0) + more
        told = self._told.get(key, 0)
        new = max(seen.values()) - told
        if new > 0:
            self._told[key] = told + new
        return [Fault(position, code, at)] * max(0, new)

    def _position(self, error: HardwareError) -> int | None:
        """The device that a line means: by serial number, since inside a container indexes are counted anew."""
        chips = self._inventory.chips
        devices = self._inventory.devices
        if error.serial:
            for chip in chips:
                if devices[chip.position].serial == error.serial:
                    return chip.position
        if error.device is not None and error.device in self._inventory.by_index:
            return self._inventory.by_index[error.device].position
        return chips[0].position if len(chips) == 1 and error.device is None and not error.serial else None
