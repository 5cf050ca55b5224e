"""Xids from the kernel's log: NVML's events miss some."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from collectors.kernel_log import text_and_uptime

_XID: Final = re.compile(r"NVRM: Xid \(PCI:([0-9a-fA-F]{1,8}):([0-9a-fA-F]{2}):([0-9a-fA-F]{2})([^)]*)\): (\d+)")
_GPU_INSTANCE: Final = re.compile(r"GPU-I:(\d+)")
_COMPUTE_INSTANCE: Final = re.compile(r"GPU-CI:(\d+)")


class KernelXid(msgspec.Struct, frozen=True, kw_only=True):
    """An Xid that the driver logged. ``gi`` and ``ci`` tell the MIG instance where it did."""

    pci: tuple[int, int, int]
    xid: int
    gi: int | None = None
    ci: int | None = None
    uptime: float | None = None
    """Seconds since boot of the record; None where the line tells none."""


def parse(line: str) -> KernelXid | None:
    """A record of /dev/kmsg, or a line as dmesg prints it; None if it is no Xid."""
    text, uptime = text_and_uptime(line)
    match = _XID.search(text)
    if match is None:
        return None
    gpu, compute = _GPU_INSTANCE.search(match[4]), _COMPUTE_INSTANCE.search(match[4])
    return KernelXid(
        pci=(int(match[1], 16), int(match[2], 16), int(match[3], 16)),
        xid=int(match[5]),
        gi=int(gpu[1]) if gpu else None,
        ci=int(compute[1]) if compute else None,
        uptime=uptime,
    )
