"""Which processes hold a card open, and the memory that their framework declares (option processes).

Device nodes are recognised by the links in ``/proc/<pid>/fd``, and never opened: a card belongs to one process at a
time. ``/dev/shm/mem_usage_accelN`` holds three words: version, time, used bytes; it is read through its owner's
descriptor, so that it is found across containers.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from collectors.base import Reading
from collectors.gaudi.failure import Failure
from collectors.gaudi.units import Unit

COUNT: Final = "habanalabs_x_processes"
MEMORY: Final = "habanalabs_x_process_memory_used_bytes"
_NODE: Final = re.compile(r"/dev/(?:accel/)?((?:accel|hl)\d+)")
# Seen from another mount namespace the path can begin differently.
_USAGE: Final = re.compile(r".*/shm/mem_usage_((?:accel|hl)\d+)(?: \(deleted\))?")
_INITIAL: Final = "pid:[4026531836]"
"""The initial namespace of processes: anywhere else only some of them are seen."""
_MOST_PROCESSES: Final = 64
"""Of one card."""


class Open(msgspec.Struct, frozen=True):
    """A descriptor of a process that has to do with a card."""

    pid: str
    node: str
    usage: str = ""
    """Path of the descriptor, where it is one of the framework's declaration of memory."""


def readings(units: Sequence[Unit], wanted: frozenset[str], proc: str) -> list[Reading]:
    """Raises Failure where not all processes of the node can be seen: a count of some of them would be wrong."""
    if not wanted & {COUNT, MEMORY}:
        return []
    positions = {unit.card.node: unit.position for unit in units if unit.card and unit.card.node}
    holders: dict[int, set[str]] = {position: set() for position in positions.values()}
    memory: dict[tuple[int, str], int] = {}
    for found in _opened(proc):
        position = positions.get(found.node)
        if position is None:
            continue
        if not found.usage:
            holders[position].add(found.pid)
        elif (used := _used(found.usage)) is not None:
            memory[position, found.pid] = used
    out = []
    if COUNT in wanted:
        out += [Reading(COUNT, position, len(pids)) for position, pids in holders.items()]
    if MEMORY in wanted:
        for position, pids in holders.items():
            told = [pid for pid in sorted(pids, key=int) if (position, pid) in memory][:_MOST_PROCESSES]
            out += [Reading(MEMORY, position, memory[position, pid], (("pid", pid),)) for pid in told]
    return out


def _opened(proc: str) -> Iterator[Open]:
    try:
        namespace = str(Path(proc, "1/ns/pid").readlink())
        pids = [entry.name for entry in Path(proc).iterdir() if entry.name.isdigit()]
    except OSError as error:
        raise Failure("permission", f"processes cannot be seen ({error}): run as root, with hostPID") from error
    if namespace != _INITIAL:
        raise Failure("permission", "only the processes of this container can be seen: it needs hostPID")
    for pid in pids:
        yield from _of_process(proc, pid)


def _of_process(proc: str, pid: str) -> Iterator[Open]:
    """Nothing for a process that has ended meanwhile."""
    try:
        descriptors = list(Path(proc, pid, "fd").iterdir())
    except PermissionError as error:
        raise Failure("permission", f"the descriptors of process {pid} cannot be seen: run as root") from error
    except OSError:
        return
    for descriptor in descriptors:
        try:
            target = str(descriptor.readlink())
        except OSError:
            continue
        if node := _NODE.fullmatch(target):
            yield Open(pid, node[1])
        elif usage := _USAGE.fullmatch(target):
            yield Open(pid, usage[1], str(descriptor))


def _used(path: str) -> int | None:
    """Used bytes of a declaration; None where it is gone or is none."""
    try:
        with Path(path).open("rb") as file:
            data = file.read(24)
    except OSError:
        return None
    if len(data) < 24:
        return None
    version, _, used = struct.unpack("<QQQ", data)
    return used if version >= 1 else None
