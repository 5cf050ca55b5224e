"""Records of an engine → readings: values, what is none, what is old, and which GPUs do not answer."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

from collectors.base import NODE, ReadError, Reading
from collectors.nvidia.dcgm import abi, codes
from collectors.nvidia.dcgm.codes import DcgmFailure
from collectors.nvidia.dcgm.fields import CLOCK_EVENTS, EVENTS
from collectors.nvidia.dcgm.plan import Block, Target
from collectors.nvidia.dcgm.values import Reader, Value
from collectors.nvidia.readings import emit

_MOST_ERRORS: Final = 100
_PERIODS: Final = 3
_SLACK: Final = 5.0
"""A value is old when it is more periods and seconds behind the newest one, and so is an engine that gives no newer."""


class Readout:
    """Reads blocks. One a discovery: what was reported once as not permitted is not told again."""

    __slots__ = ("_denied", "_errors", "_moved", "_reader", "lost", "masks", "silent", "unwatched")

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._denied: set[tuple[abi.Entity, int]] = set()
        self._errors: list[ReadError] = []
        self._moved: dict[object, tuple[int, float]] = {}
        """Block → newest time of its records, and when we saw it change."""
        self.lost: set[int] = set()
        """GPUs that the engine calls lost, since the last ``begin``."""
        self.silent: set[int] = set()
        """GPUs of which every answer was blank."""
        self.masks: dict[int, int] = {}
        """GPU → its clock event reasons."""
        self.unwatched = False
        """Nothing is watched any more."""

    def begin(self) -> None:
        """Start a sample."""
        self.lost, self.silent, self.masks, self.unwatched = set(), set(), {}, False

    def read(self, key: object, block: Block, seconds: float, now: float, out: list[Reading]) -> None:
        """Add the readings of a block, which has a key of its own. Raises DcgmFailure when the engine does not answer.

        ``seconds`` is how often it is sampled, ``now`` of a clock that only goes forward.
        """
        records = list(self._reader.read(list(block.targets), list(block.quantities)))
        good = [record for record in records if self._is_value(block, record)]
        if block.answering:
            self._notice_silence(block, records, good)
        if records and all(record.status == codes.NOT_WATCHED for record in records):
            self.unwatched = True
        limit = _PERIODS * seconds + _SLACK
        newest = max((record.at for record in good if record.field not in EVENTS), default=0)
        if self._stands_still(key, newest, limit, now):
            self.report(NODE, "timeout", f"nv-hostengine has taken no new samples for {limit:.0f} s")
            return
        for record in good:
            if record.field in EVENTS or newest - record.at <= limit * 1e6:
                self._emit(block, record, out)

    @contextlib.contextmanager
    def tolerating(self, position: int = NODE) -> Iterator[None]:
        """What fails for one GPU or one set of fields costs the rest nothing; without a connection all of it fails."""
        try:
            yield
        except DcgmFailure as failure:
            verdict = codes.judge(failure.code)
            if verdict in ("gone", "mismatch", "timeout"):
                raise
            if verdict == "lost" and position != NODE:
                self.lost.add(position)
            elif verdict not in ("unsupported", "nothing"):
                self.report(position, "permission" if verdict == "permission" else "transient", str(failure))

    def report(self, position: int, kind: str, detail: str) -> None:
        """Add an error to the current sample."""
        if len(self._errors) < _MOST_ERRORS:
            self._errors.append(ReadError(position, kind, detail))

    def take_errors(self) -> tuple[ReadError, ...]:
        """The errors since the last call."""
        errors, self._errors = tuple(self._errors), []
        return errors

    def _emit(self, block: Block, record: Value, out: list[Reading]) -> None:
        quantity, target = block.quantities[record.field], block.targets[record.entity]
        value = record.value
        assert isinstance(value, int | float)
        if record.field == CLOCK_EVENTS and isinstance(value, int):
            self.masks[target.owner] = value
        if value not in quantity.absent:
            for series in quantity.series:
                emit(out, series, target.rows, value, target.labels)

    def _is_value(self, block: Block, record: Value) -> bool:
        """Whether a record holds a number; what is worth telling of the others is told."""
        target = block.targets.get(record.entity)
        if target is None or record.field not in block.quantities:
            return False
        if record.status != codes.OK:
            self._judge(target, record)
            return False
        if not isinstance(record.value, int | float):
            return False
        why = abi.blank(record.value)
        if why == "permission":
            self._deny(target, record)
        return why is None

    def _judge(self, target: Target, record: Value) -> None:
        verdict = codes.judge(record.status)
        if verdict == "lost" and target.owner != NODE:
            self.lost.add(target.owner)
        elif verdict == "permission":
            self._deny(target, record)
        elif verdict in ("transient", "timeout", "lost"):
            kind = "timeout" if verdict == "timeout" else "transient"
            self.report(target.owner, kind, f"field {record.field}: {codes.name(record.status)}")

    def _deny(self, target: Target, record: Value) -> None:
        key = (record.entity, record.field)
        if key not in self._denied:
            self._denied.add(key)
            self.report(target.owner, "permission", f"field {record.field}: nv-hostengine may not read it")

    def _notice_silence(self, block: Block, records: list[Value], good: list[Value]) -> None:
        """A driver that fails for a GPU leaves blanks with a good status: that is how a lost one looks."""
        speaking = {record.entity for record in good}
        for record in records:
            if record.entity not in speaking and record.status == codes.OK and record.entity in block.targets:
                value = record.value
                if value is not None and abi.blank(value) == "nothing":
                    self.silent.add(block.targets[record.entity].owner)

    def _stands_still(self, key: object, newest: int, limit: float, now: float) -> bool:
        if not newest:
            return False
        known = self._moved.get(key)
        if known is None or known[0] != newest:
            self._moved[key] = (newest, now)
            return False
        return now - known[1] > limit
