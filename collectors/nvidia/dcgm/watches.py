"""Tells an engine what to sample and how often: groups of entities, groups of fields, watches of both."""

from __future__ import annotations

import contextlib
import ctypes
import secrets
from collections.abc import Iterator, Sequence
from typing import Final

from collectors.nvidia.dcgm import abi, codes
from collectors.nvidia.dcgm.codes import DcgmFailure
from collectors.nvidia.dcgm.engine import Engine
from collectors.nvidia.dcgm.library import shorts

HISTORY: Final = 600.0
"""Seconds for which an Xid waits in the engine to be fetched. dcgm-exporter's figure for all fields."""
_KEPT: Final = 30.0
"""Seconds for which an engine keeps what only its newest value is read of, or three samples."""
_UNLIMITED: Final = 0


class Watches:
    """What we have made in an engine. An engine has room for 64 groups of each kind, for all its clients together."""

    __slots__ = ("_engine", "_field_groups", "_groups", "_name", "_watched")

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        # Names are unique in an engine, and one that was killed before us may not be cleared away yet.
        self._name = f"accel-exporter-{secrets.token_hex(6)}"
        self._groups: dict[tuple[abi.Entity, ...], int] = {}
        self._field_groups: list[int] = []
        self._watched: list[tuple[int, int]] = []

    def groups(self, entities: Sequence[abi.Entity]) -> list[int]:
        """Groups of these entities, few in each; the same ones again for the same entities. Raises DcgmFailure."""
        found = []
        for start in range(0, len(entities), abi.MAX_PAIRS):
            part = tuple(entities[start : start + abi.MAX_PAIRS])
            if part not in self._groups:
                self._groups[part] = self._group(part)
            found.append(self._groups[part])
        return found

    def field_groups(self, fields: Sequence[int]) -> list[int]:
        """Groups of these fields. Raises DcgmFailure.

        An engine refuses a whole group for one field that it does not know: then it is asked for each half, so that
        only that field is left out.
        """
        found: list[int] = []
        for start in range(0, len(fields), abi.MAX_FIELDS):
            found += self._field_group(fields[start : start + abi.MAX_FIELDS])
        return found

    def watch(self, groups: Sequence[int], field_groups: Sequence[int], seconds: float, kept: float = _KEPT) -> None:
        """Sample so often from now on; for what is watched already this is its new interval. Raises DcgmFailure."""
        for group in groups:
            for fields in field_groups:
                interval = round(seconds * 1e6)
                age = max(kept, 3 * seconds)
                self._engine.call("dcgmWatchFields", group, fields, interval, age, _UNLIMITED)
                if (group, fields) not in self._watched:
                    self._watched.append((group, fields))

    def refresh(self) -> None:
        """Wait until everything that is due has been sampled. Raises DcgmFailure."""
        self._engine.call("dcgmUpdateAllFields", 1)

    def close(self) -> None:
        """Take everything back. Never fails: what is left ends with the connection."""
        for group, fields in self._watched:
            self._forget("dcgmUnwatchFields", group, fields)
        for fields in self._field_groups:
            self._forget("dcgmFieldGroupDestroy", fields)
        for group in self._groups.values():
            self._forget("dcgmGroupDestroy", group)
        self._watched, self._field_groups, self._groups = [], [], {}

    def _group(self, entities: Sequence[abi.Entity]) -> int:
        out = ctypes.c_size_t(0)
        self._engine.call("dcgmGroupCreate", abi.EMPTY_GROUP, self._unique("g"), ctypes.byref(out))
        for kind, entity in entities:
            try:
                self._engine.call("dcgmGroupAddEntity", out.value, kind, entity)
            except DcgmFailure as failure:
                # One that went away since it was listed: the next look at the layout finds that.
                if codes.judge(failure.code) in ("gone", "mismatch"):
                    raise
        return out.value

    def _field_group(self, fields: Sequence[int]) -> Iterator[int]:
        out = ctypes.c_size_t(0)
        try:
            name = self._unique("f")
            self._engine.call("dcgmFieldGroupCreate", len(fields), shorts(fields), name, ctypes.byref(out))
        except DcgmFailure as failure:
            if failure.code != codes.BAD_PARAMETER:
                raise
            half = len(fields) // 2
            if half:
                yield from self._field_group(fields[:half])
                yield from self._field_group(fields[half:])
            return
        self._field_groups.append(out.value)
        yield out.value

    def _unique(self, kind: str) -> bytes:
        return f"{self._name}-{kind}{len(self._groups)}-{len(self._field_groups)}-{secrets.token_hex(2)}".encode()

    def _forget(self, name: str, *handles: int) -> None:
        with contextlib.suppress(DcgmFailure):
            self._engine.call(name, *handles)
