"""NVML's events: Xids, and changes of the MIG layout."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from collectors.nvidia import codes
from collectors.nvidia.binding import NvmlFailure, call
from collectors.nvidia.inventory import Gpu

XID: Final = 0x8
MIG_LAYOUT: Final = 0x100
_MOST_EVENTS: Final = 256
_WAIT: Final = 1
"""Milliseconds. Events queue in the driver, so none is missed between two drains."""
_NO_INSTANCE: Final = 0xFFFFFFFF


class XidEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An Xid from NVML."""

    gpu: Gpu
    xid: int
    gi: int | None
    ci: int | None


class Drained(msgspec.Struct, frozen=True, kw_only=True):
    """What was waiting."""

    xids: tuple[XidEvent, ...] = ()
    layout_changed: bool = False
    device_lost: bool = False


class Events:
    """An event set over all GPUs."""

    __slots__ = ("_gpus", "_set")

    def __init__(self, gpus: Sequence[Gpu]) -> None:
        """Register the events that each GPU supports. Raises NvmlFailure when the driver has no event sets."""
        self._set: Any = call("nvmlEventSetCreate")
        self._gpus: dict[int, Gpu] = {}
        for gpu in gpus:
            try:
                mask = int(call("nvmlDeviceGetSupportedEventTypes", gpu.handle)) & (XID | MIG_LAYOUT)
                if mask:
                    call("nvmlDeviceRegisterEvents", gpu.handle, mask, self._set)
                    self._gpus[_address(gpu.handle)] = gpu
            except NvmlFailure as failure:
                # A GPU without events still has the kernel's log.
                if codes.judge(failure.code) == "gone":
                    raise

    def drain(self) -> Drained:
        """Everything that waits. Raises NvmlFailure when the driver is gone."""
        xids: list[XidEvent] = []
        changed = lost = False
        for _ in range(_MOST_EVENTS if self._gpus else 0):
            try:
                event = call("nvmlEventSetWait", self._set, _WAIT)
            except NvmlFailure as failure:
                # 15 says that some GPU was lost and not which: its next read will.
                lost = codes.judge(failure.code) == "lost"
                if codes.judge(failure.code) == "gone":
                    raise
                break
            gpu = self._gpus.get(_address(event.device))
            if event.eventType & MIG_LAYOUT:
                changed = True
            if event.eventType & XID and gpu is not None:
                gi, ci = (None if value == _NO_INSTANCE else int(value) for value in _instances(event))
                xids.append(XidEvent(gpu=gpu, xid=int(event.eventData), gi=gi, ci=ci))
        return Drained(xids=tuple(xids), layout_changed=changed, device_lost=lost)

    def close(self) -> None:
        """Free the event set. Never fails: what cannot be freed goes with the session."""
        handle, self._set, self._gpus = self._set, None, {}
        if handle is not None:
            with contextlib.suppress(NvmlFailure):
                call("nvmlEventSetFree", handle)


def _instances(event: Any) -> tuple[int, int]:
    return int(event.gpuInstanceId), int(event.computeInstanceId)


def _address(handle: Any) -> int:
    """What an opaque handle points to: two handles of one device compare equal by it."""
    return ctypes.cast(handle, ctypes.c_void_p).value or 0
