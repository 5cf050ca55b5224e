"""DCGM's own judgement: its health watches."""

from __future__ import annotations

import ctypes
import struct
import time
from collections.abc import Mapping
from typing import Final

import msgspec

from collectors.nvidia.dcgm import abi
from collectors.nvidia.dcgm.engine import Engine
from collectors.nvidia.dcgm.incidents import error

_SYSTEMS: Final[Mapping[int, str]] = {
    0x1: "PCIE",
    0x2: "NVLINK",
    0x4: "PMU",
    0x8: "MCU",
    0x10: "MEM",
    0x20: "SM",
    0x40: "INFOROM",
    0x80: "THERMAL",
    0x100: "POWER",
    0x200: "DRIVER",
    # What concerns a whole GPU, such as that it fell off the bus.
    abi.ALL_HEALTH: "ALL",
}
"""dcgmHealthSystems_t, those of a GPU, as dcgm-exporter spells them."""
_NEED_A_MINUTE: Final = frozenset({"PCIE", "THERMAL", "POWER"})
_MINUTE: Final = 60.0
_PASS: Final = 0
_WORST: Final = 20
_FIRST: Final = 12
_INCIDENT: Final = 1044
_HEAD: Final = struct.Struct("=Ii")
_TAIL: Final = struct.Struct("=IiI")
_CODE: Final = 1032


class Finding(msgspec.Struct, frozen=True):
    """What one health watch says of one entity."""

    watch: str
    result: int
    """0 pass, 10 warn, 20 fail."""
    error: str


class Health:
    """The health watches of a group of GPUs."""

    __slots__ = ("_armed_at", "_buffer", "_engine", "_group", "_most")

    def __init__(self, engine: Engine, group: int) -> None:
        """Switch them on. Raises DcgmFailure. The first check looks at nothing: it is made here."""
        self._engine, self._group = engine, group
        engine.call("dcgmHealthSet", group, abi.ALL_HEALTH)
        self._buffer: ctypes.Array[ctypes.c_char] | None = None
        self._most = (abi.HEALTH[engine.library.major][0] - _FIRST) // _INCIDENT
        self._armed_at = time.monotonic()
        self._check()

    def read(self) -> Mapping[abi.Entity, list[Finding]]:
        """Entity → what is wrong with it, the worst of each watch. Raises DcgmFailure."""
        buffer = self._check()
        worst: dict[tuple[abi.Entity, str], Finding] = {}
        for place in range(min(struct.unpack_from("=I", buffer, 8)[0], self._most)):
            at = _FIRST + place * _INCIDENT
            system, result = _HEAD.unpack_from(buffer, at)
            code, group, entity = _TAIL.unpack_from(buffer, at + _CODE)
            watch = _SYSTEMS.get(system)
            if watch is None or not _PASS < result <= _WORST:
                continue
            key = (group, entity), watch
            if key not in worst or worst[key].result < result:
                worst[key] = Finding(watch, result, error(code))
        found: dict[abi.Entity, list[Finding]] = {}
        for (pair, _), finding in worst.items():
            found.setdefault(pair, []).append(finding)
        return found

    def complete(self, found: list[Finding]) -> list[Finding]:
        """One finding for each watch that has had the time it needs: those that found nothing pass."""
        wrong = {finding.watch: finding for finding in found}
        young = time.monotonic() - self._armed_at < _MINUTE
        return [
            wrong.get(watch) or Finding(watch, _PASS, error(0))
            for watch in _SYSTEMS.values()
            if watch in wrong or not (young and watch in _NEED_A_MINUTE)
        ]

    def _check(self) -> ctypes.Array[ctypes.c_char]:
        # A megabyte, so it is kept; only its head has to be new.
        layout = abi.HEALTH[self._engine.library.major]
        if self._buffer is None:
            self._buffer = abi.structure(layout)
        struct.pack_into("=III", self._buffer, 0, layout[1], 0, 0)
        self._engine.call("dcgmHealthCheck", self._group, self._buffer)
        return self._buffer
