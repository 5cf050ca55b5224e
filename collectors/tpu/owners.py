"""Which processes hold the chips, and where their runtimes answer: from /proc, with the host's process ids.

A process holds a chip while it has the chip's device node open (tpu-info finds owners in the same way). Needs hostPID
and the right to look at other users' processes; where that is missing nothing is known, which is not nobody.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

_NODE: Final = re.compile(r"/dev/(accel[0-9]{1,9}|vfio/[0-9]{1,9})")
_LOCAL: Final = re.compile(r"\|-- ([0-9.]{7,15})\n\s+/32 host LOCAL")
_SIX: Final = re.compile(r"([0-9a-f]{32}) [0-9a-f]{2} [0-9a-f]{2} 00 ")
"""A global address in if_inet6."""
_MAX_FILE: Final = 256 * 1024
_MAX_ADDRESSES: Final = 4
_COST: Final = 200
"""A look takes no more than one part in so many of the time."""
_SHORTEST: Final = 1.0
_LONGEST: Final = 15.0
"""Seconds between two looks. Where a look is so costly that this is too short, nothing is ever called complete."""


class Owners(msgspec.Struct, frozen=True, kw_only=True):
    """What a look at the processes gave."""

    pids: Mapping[str, frozenset[int]] = {}
    """Device node below /dev → the processes that hold it."""
    complete: bool = False
    """All processes of the host were looked at: who is not among them holds nothing."""


class OwnerWatch:
    """Looks at the processes again and again, as often as that is cheap."""

    def __init__(self, proc: str) -> None:
        self._proc = Path(proc)
        self._owners = Owners()
        self._next = 0.0

    def look(self, nodes: frozenset[str]) -> Owners:
        """Who holds these device nodes. Known owners are verified each time; new ones are found when a look is due."""
        now = time.monotonic()
        if now >= self._next:
            found = _scan(self._proc, nodes)
            pause = max(_SHORTEST, (time.monotonic() - now) * _COST)
            self._next = now + pause
            self._owners = Owners(pids=found.pids, complete=found.complete and pause <= _LONGEST)
            return self._owners
        known = {pid for pids in self._owners.pids.values() for pid in pids}
        still = {pid: _held(self._proc / str(pid), nodes) or set() for pid in known}
        pids = {node: frozenset(pid for pid, held in still.items() if node in held) for node in nodes}
        self._owners = Owners(
            pids={node: found for node, found in pids.items() if found}, complete=self._owners.complete
        )
        return self._owners


def _scan(proc: Path, nodes: frozenset[str]) -> Owners:
    found: dict[str, set[int]] = {}
    complete = _text(proc / "2/comm").strip() == "kthreadd"
    for folder in _processes(proc):
        held = _held(folder, nodes)
        if held is None:
            complete = False
        for node in held or ():
            found.setdefault(node, set()).add(int(folder.name))
    return Owners(pids={node: frozenset(pids) for node, pids in found.items()}, complete=complete)


def _processes(proc: Path) -> Iterator[Path]:
    try:
        yield from (folder for folder in proc.iterdir() if folder.name.isdecimal())
    except OSError:
        return


def _held(process: Path, nodes: frozenset[str]) -> set[str] | None:
    """The device nodes that a process holds; None if it may not be looked at."""
    held: set[str] = set()
    try:
        for descriptor in (process / "fd").iterdir():
            try:
                target = _NODE.fullmatch(str(descriptor.readlink()))
            except FileNotFoundError:
                continue
            if target is not None and target[1] in nodes:
                held.add(target[1])
    except PermissionError:
        return None
    except OSError:
        # It has ended.
        return set()
    return held


def environment(proc: str, pid: int) -> dict[str, str]:
    """The variables with which a process was started; empty if they may not be read."""
    pairs = (entry.partition("=") for entry in _text(Path(proc, str(pid), "environ")).split("\0"))
    return {name: value for name, _, value in pairs}


def network(proc: str, pid: int | str) -> str:
    """The network namespace of a process; empty if it may not be read."""
    try:
        return str(Path(proc, str(pid), "ns/net").readlink())
    except OSError:
        return ""


def addresses(proc: str, pid: int) -> tuple[str, ...]:
    """The addresses that a process has in its network, but for those of the loopback."""
    folder = Path(proc, str(pid), "net")
    four = [found for found in _LOCAL.findall(_text(folder / "fib_trie")) if not found.startswith("127.")]
    six = [_colons(found) for found in _SIX.findall(_text(folder / "if_inet6"))]
    return tuple(dict.fromkeys(four + six))[:_MAX_ADDRESSES]


def _colons(digits: str) -> str:
    return ":".join(digits[at : at + 4] for at in range(0, 32, 4))


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_MAX_FILE).decode("utf-8", "replace")
    except OSError:
        return ""
