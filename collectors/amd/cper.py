"""Error records (CPER) of a GPU: fault events, and what AMD's exporter calls gpu_afid_errors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from collectors.amd.cards import Card
from collectors.amd.health import HealthRule
from collectors.amd.reader import Reader
from collectors.amd.smi import Smi, SmiFailure
from collectors.base import Fault, Reading

_ALL: Final = 0b111
"""Severities to ask for: uncorrected, fatal, corrected."""
_BUFFER: Final = 1 << 20
_MORE_DATA: Final = frozenset((39, 57))
_MOST_CALLS: Final = 50
"""In one sample; each gives up to 20 records."""
_SEVERITIES: Final = ("fatal", "non_fatal_uncorrected", "non_fatal_corrected")


class Record(msgspec.Struct, frozen=True):
    """One error record."""

    severity: str
    timestamp: float
    """Unix seconds."""
    afids: tuple[int, ...]


class Records:
    """Reads each card's records, once each. Those from before the first look are no events, but count for health."""

    def __init__(self, smi: Smi, health: HealthRule) -> None:
        self._smi, self._health = smi, health
        self._cursors: dict[int, int] = {}
        self._last: dict[int, Record] = {}
        self._off: set[int] = set()

    def sample(self, reader: Reader, card: Card) -> tuple[list[Reading], list[Fault]]:
        """The last record, and an event for each code of each new one."""
        if card.position in self._off:
            return [], []
        first = card.position not in self._cursors
        faults: list[Fault] = []
        try:
            for record in self._new(card):
                self._last[card.position] = record
                if record.severity == "fatal":
                    self._health.fatal(card, record.timestamp)
                if not first:
                    faults += [Fault(card.position, f"afid:{afid}", record.timestamp) for afid in record.afids]
        except SmiFailure as failure:
            verdict = failure.verdict
            if verdict in ("unsupported", "permission", "library"):
                self._off.add(card.position)
            if verdict not in ("unsupported", "nothing", "gone"):
                reader.report(card.position, verdict, f"error records: {failure}")
        return self._rows(card), faults

    def _rows(self, card: Card) -> list[Reading]:
        last = self._last.get(card.position)
        if last is None:
            return []
        return [
            Reading("gpu_afid_errors", card.position, afid, (("severity", last.severity), ("afid_index", str(index))))
            for index, afid in enumerate(last.afids)
        ]

    def _new(self, card: Card) -> Iterator[Record]:
        cursor = self._cursors.get(card.position, 0)
        for _ in range(_MOST_CALLS):
            answer = self._smi.call("amdsmi_get_gpu_cper_entries", card.handle, _ALL, _BUFFER, cursor)
            entries, cursor, blobs, status = answer
            self._cursors[card.position] = cursor
            for index, blob in enumerate(blobs):
                yield self._record(entries.get(index, {}), blob)
            if status not in _MORE_DATA or not blobs:
                return

    def _record(self, entry: Mapping[str, Any], blob: Mapping[str, Any]) -> Record:
        severity = str(entry.get("error_severity", ""))
        # The package gives signed bytes, and takes unsigned ones.
        raw = bytes(byte & 0xFF for byte in blob["bytes"])
        afids: Sequence[int] = self._smi.call("amdsmi_get_afids_from_cper", raw)[0]
        return Record(
            severity if severity in _SEVERITIES else "unknown",
            _unix(str(entry.get("timestamp", ""))),
            tuple(int(afid) for afid in afids),
        )


def _unix(text: str) -> float:
    """The record's time, which is UTC; 0 for what is no time."""
    try:
        return datetime.strptime(text, "%Y/%m/%d %H:%M:%S").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return 0.0
