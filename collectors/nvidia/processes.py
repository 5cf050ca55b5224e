"""Processes that use a GPU, with their memory."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from collectors.nvidia import codes
from collectors.nvidia.binding import NvmlFailure, has_symbol, symbol
from collectors.nvidia.inventory import Gpu
from collectors.nvidia.picks import BLANK_64
from collectors.nvidia.readers import Reader
from collectors.nvidia.sources import Way

_KINDS: Final = ("Compute", "MPSCompute", "Graphics")
_INSUFFICIENT_SIZE: Final = 7
_HOST_PIDS: Final = "pid:[4026531836]"
"""The first pid namespace (PROC_PID_INIT_INO in the kernel's include/linux/proc_ns.h)."""


class Process(msgspec.Struct, frozen=True, kw_only=True):
    """A process on a GPU or MIG instance. One may appear as both kinds."""

    pid: int
    kind: Literal["C", "G"]
    memory: int | None
    """Bytes; None where the driver does not tell."""


def are_visible(proc: str) -> bool:
    """Whether NVML tells this process of all others: not in a pid namespace of its own, where the lists are empty."""
    try:
        return Path(proc, "self/ns/pid").readlink().name == _HOST_PIDS
    except OSError:
        return True


class _Record(ctypes.Structure):
    """nvmlProcessInfo_t, the same in versions 2 and 3: 24 bytes."""

    _fields_ = (
        ("pid", ctypes.c_uint),
        ("usedGpuMemory", ctypes.c_ulonglong),
        ("gpuInstanceId", ctypes.c_uint),
        ("computeInstanceId", ctypes.c_uint),
    )


class _WideRecord(ctypes.Structure):
    """The 32 bytes that R535 before about 535.104 wrote instead."""

    _fields_ = (*_Record._fields_, ("protectedMemory", ctypes.c_ulonglong))


def by_level(gpu: Gpu, reader: Reader) -> Iterator[tuple[int, list[Process]]]:
    """The processes of each GPU instance, else of the GPU, by position. Raises DeviceLostError, DriverGoneError."""
    if not gpu.instances:
        found = _running(gpu.position, gpu.handle, reader)
        if found is not None:
            yield gpu.position, found
    for instance in gpu.instances:
        # Each handle tells of one compute instance.
        computes = [part for part in gpu.parts if part.gi == instance.gi and part.ci is not None] or [instance]
        lists = [_running(part.position, part.handle, reader) for part in computes]
        if any(found is not None for found in lists):
            yield instance.position, [process for found in lists for process in found or ()]


def _running(position: int, handle: Any, reader: Reader) -> list[Process] | None:
    """None where the driver tells of no type of process at all."""
    found: dict[tuple[int, Literal["C", "G"]], int | None] = {}
    told = False
    for kind in _KINDS:
        answer = reader.ask(position, handle, _ways(kind))
        told |= answer is not None
        letter: Literal["C", "G"] = "G" if kind == "Graphics" else "C"
        for record in answer or ():
            memory = record.usedGpuMemory
            if memory is not None and int(memory) == BLANK_64:
                memory = None
            key = (int(record.pid), letter)
            known = found.get(key)
            found[key] = known if memory is None else max(int(memory), known or 0)
    if not told:
        return None
    return [Process(pid=pid, kind=letter, memory=memory) for (pid, letter), memory in sorted(found.items())]


def _ways(kind: str) -> tuple[Way, ...]:
    name = f"nvmlDeviceGet{kind}RunningProcesses"
    if has_wide_records(has_symbol):
        return ((_records, (f"{name}_v3", _WideRecord)),)
    # Not every binding has the functions of version 2, which drivers before R510 need.
    return ((f"{name}_v3", ()), (_records, (f"{name}_v2", _Record)))


def has_wide_records(exports: Callable[[str], bool]) -> bool:
    """Whether this driver is one that writes records of 32 bytes.

    It exports one function that came with NVML 12.2 and lacks the other, which came a little later (nvml.h of 12.1 has
    neither, that of 12.2 both).
    """
    return exports("nvmlDeviceGetConfComputeMemSizeInfo") and not exports("nvmlDeviceGetRunningProcessDetailList")


def _records(handle: Any, name: str, record: type[ctypes.Structure]) -> list[Any]:
    function = symbol(name)
    count = ctypes.c_uint(0)
    code = int(function(handle, ctypes.byref(count), None))
    if code == codes.SUCCESS:
        return []
    if code != _INSUFFICIENT_SIZE:
        raise NvmlFailure(code, name)
    # More may start between the two calls.
    records = (record * (2 * count.value + 5))()
    count.value = len(records)
    code = int(function(handle, ctypes.byref(count), records))
    if code != codes.SUCCESS:
        raise NvmlFailure(code, name)
    return list(records[: count.value])
