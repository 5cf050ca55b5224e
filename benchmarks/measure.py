"""What processes use, read from /proc, and the few statistics that the tables need."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import msgspec

PROC: Final = Path("/proc")
TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")


class Memory(msgspec.Struct, frozen=True):
    """Bytes. Of a page that several processes map, ``pss`` holds this process's share and ``rss`` all of it."""

    pss: int
    rss: int

    def __add__(self, other: Memory) -> Memory:
        return Memory(self.pss + other.pss, self.rss + other.rss)


class Usage(msgspec.Struct, frozen=True):
    """What a process and its descendants use at one moment."""

    memory: Memory
    cpu: dict[int, float]
    """Process → seconds of user and system time since its start."""
    descriptors: int


def memory(pid: int) -> Memory:
    """From smaps_rollup, whose numbers are kB. Raises OSError for a process that is gone or somebody else's."""
    found = dict(
        line.split(":", 1) for line in (PROC / str(pid) / "smaps_rollup").read_text().splitlines()[1:] if ":" in line
    )
    return Memory(*(int(found[name].split()[0]) * 1024 for name in ("Pss", "Rss")))


def cpu_seconds(pid: int) -> float:
    """User and system time of all threads, also of those that have ended. Raises OSError."""
    user, system = _stat(pid)[11:13]
    return (int(user) + int(system)) / TICKS_PER_SECOND


def waiting(pid: int) -> float:
    """Seconds for which its living threads were ready to run and other processes had the cores. Raises OSError."""
    delays = [(task / "schedstat").read_text().split()[1] for task in (PROC / str(pid) / "task").iterdir()]
    return sum(map(int, delays)) / 1e9


def descriptors(pid: int) -> int:
    """How many files, sockets and pipes are open. Raises OSError."""
    return sum(1 for _ in (PROC / str(pid) / "fd").iterdir())


def descendants(pid: int) -> list[int]:
    """The process itself, its children, theirs and so on."""
    children: dict[int, list[int]] = {}
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            try:
                parent = int(_stat(int(entry.name))[1])
            except OSError:
                # It ended while the list was read.
                continue
            children.setdefault(parent, []).append(int(entry.name))
    found = [pid]
    for member in found:
        found += children.get(member, ())
    return found


def usage(pid: int) -> Usage:
    """Of the whole tree. Raises OSError if one of its processes ends meanwhile: such a figure would be wrong."""
    members = descendants(pid)
    total = Memory(0, 0)
    for member in members:
        total += memory(member)
    return Usage(total, {member: cpu_seconds(member) for member in members}, sum(map(descriptors, members)))


def cpu_between(before: Usage, after: Usage) -> float:
    """Seconds of processor time between two moments. Raises ValueError if a process of the tree has ended."""
    gone = before.cpu.keys() - after.cpu.keys()
    if gone:
        raise ValueError(f"processes {sorted(gone)} ended while they were measured")
    return sum(seconds - before.cpu.get(pid, 0.0) for pid, seconds in after.cpu.items())


def percentile(values: Sequence[float], share: float) -> float:
    """The least value that at least ``share`` (0 to 1) of all do not exceed. Raises ValueError without values."""
    if not values or not 0 <= share <= 1:
        raise ValueError(f"percentile: expected values and a share from 0 to 1, got {len(values)} and {share}")
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def median(values: Iterable[float]) -> float:
    """The middle one; of an even number, the mean of the two. Raises ValueError without values."""
    ordered = sorted(values)
    if not ordered:
        raise ValueError("median: expected values")
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def _stat(pid: int) -> list[str]:
    """The fields behind the command's name, which may hold spaces and brackets: the first is the state."""
    return (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
