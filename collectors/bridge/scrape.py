"""Makes readings of a foreign exporter's text, by the vendor's table.

Exporters repeat a series with other workload labels (a pod, a job, a virtual device) and repeat facts of a whole device
on each of its parts. Of such copies one becomes the reading; they are never summed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from collectors.base import NODE, Device, Group, Holder, Labels, ReadError, Reading
from collectors.bridge.identity import MAX_DEVICES, Inventory, Named, Spellings, TooManyDevices, inventory
from collectors.bridge.parser import Line, Malformed, is_name, number, parse_line, parse_tail, split
from collectors.tables import Bridge, Series, Tables

_MAX_REASONS: Final = 20
_MAX_EXAMPLE: Final = 120
_ODD: Final = frozenset((float("inf"), float("-inf")))


class Refused(Exception):
    """The text goes beyond a limit; the message says which."""


class Entry(msgspec.Struct, frozen=True, gc=False):
    """What a series' text up to its value means. It is the same text at each scrape, so it is worked out once."""

    series: Series
    labels: Labels
    """Those that the table declares, in its order."""
    named: Named | None
    """None: a series of the node."""
    alias: bool
    parts: int
    """How many parts a device has, where the labels tell it; else 0."""
    spare: int
    """How many labels say something else than the table and the device's name: a pod, a job."""
    holder: Labels = ()
    """Whose the device is, as the labels say it."""


class Scrape(msgspec.Struct, frozen=True):
    """One text, understood. Positions of readings are those of ``devices``."""

    devices: tuple[Device, ...]
    readings: Mapping[Group, tuple[Reading, ...]]
    errors: tuple[ReadError, ...]
    known: int
    """Samples of series that the table has."""
    unknown: int
    holders: tuple[Holder, ...] = ()


class _Copy(msgspec.Struct, gc=False):
    """The copy that stands for a reading so far. The one with the least rank is the device's own."""

    entry: Entry
    rank: tuple[int, bool, int]
    value: int | float
    disagreed: bool = False


class Troubles:
    """Counts what could not be used, by reason, with an example of each."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[int, str]] = {}

    def add(self, reason: str, example: str = "") -> None:
        if reason not in self._found and len(self._found) >= _MAX_REASONS:
            reason = "more"
        count, first = self._found.get(reason, (0, example[:_MAX_EXAMPLE]))
        self._found[reason] = (count + 1, first)

    def errors(self) -> tuple[ReadError, ...]:
        return tuple(
            ReadError(NODE, "parse", f"{reason}: {count} times" + (f", first in {first!r}" if first else ""))
            for reason, (count, first) in self._found.items()
        )


class Reader:
    """Reads scrape after scrape of one exporter. What it keeps between them is bounded by ``max_series``."""

    def __init__(
        self,
        tables: Tables,
        bridge: Bridge,
        wanted: Mapping[Group, frozenset[str]],
        *,
        max_series: int,
        max_age: float,
    ) -> None:
        self._series = {name: series for series in tables.series for name in (series.name, *series.aliases)}
        self._absent = {
            series.name: frozenset(float(value) for value in (*series.absent, *bridge.sentinels)) | _ODD
            for series in tables.series
        }
        self._kind = tables.kind
        self._spellings = Spellings(bridge, tables.identity)
        self._workload = bridge.labels.workload
        # The agent decides in which group a series is read; the table's group is no more than its proposal.
        self._groups = {name: group for group, names in wanted.items() for name in names}
        self._max_series = max_series
        self._max_age = max_age
        self._entries: dict[str, Entry] = {}

    def read(self, chunks: Iterable[bytes], *, openmetrics: bool, now: float) -> Scrape:
        """``now`` is Unix time. Raises Refused, and whatever ``chunks`` raises."""
        troubles = Troubles()
        found: list[tuple[Entry, int | float]] = []
        kept: dict[str, Entry] = {}
        known = unknown = stamped = stale = 0
        ended = False
        for text in split(chunks):
            if isinstance(text, Malformed):
                troubles.add(text.reason)
                continue
            text = text.strip(" \t\r")
            if text.startswith("#"):
                ended = ended or text == "# EOF"
                continue
            sample = self._sample(text, openmetrics, kept)
            if sample is None:
                unknown += 1
                continue
            if isinstance(sample, Malformed):
                troubles.add(sample.reason, text)
                continue
            entry, value, timestamp = sample
            known += 1
            if known > self._max_series:
                raise Refused(
                    f"has more than {self._max_series} samples of known series; raise max_series if it should"
                )
            stamped += timestamp is not None
            if timestamp is not None and self._max_age and now - timestamp > self._max_age:
                stale += 1
            else:
                found.append((entry, value))
        if openmetrics and not ended:
            raise Refused("ends before its # EOF")
        self._entries = kept
        if stale and stale == stamped:
            troubles.add(
                f"all {stale} timestamps are older than max_age ({self._max_age:g} s): it hangs, or clocks differ"
            )
        devices, readings, holders = self._placed(found, troubles)
        return Scrape(devices, readings, troubles.errors(), known, unknown, holders)

    def _sample(
        self, text: str, openmetrics: bool, kept: dict[str, Entry]
    ) -> tuple[Entry, int | float, float | None] | Malformed | None:
        """One line. None: it is empty, or of a series that the table has not."""
        head, _, tail = text.rpartition(" ")
        entry = self._entries.get(head)
        if entry is not None and (plain := number(tail)) is not None:
            # A series' text that was complete before is complete here, whatever follows it.
            kept[head] = entry
            return entry, plain, None
        if entry is None:
            # With a timestamp the series' text ends one word earlier.
            head, _, value = head.rpartition(" ")
            tail = f"{value} {tail}"
            entry = self._entries.get(head)
        if entry is not None:
            numbers = parse_tail(tail, openmetrics=openmetrics)
            if not isinstance(numbers, Malformed):
                kept[head] = entry
                return entry, *numbers
        return self._unmet(text, openmetrics, kept)

    def _unmet(
        self, text: str, openmetrics: bool, kept: dict[str, Entry]
    ) -> tuple[Entry, int | float, float | None] | Malformed | None:
        name = text[: text.find("{")] if "{" in text else text.partition(" ")[0]
        if name not in self._series and is_name(name):
            return None
        line = parse_line(text, openmetrics=openmetrics)
        if not isinstance(line, Line):
            return line
        series = self._series.get(line.name)
        if series is None:
            return None
        entry = self._entry(series, line)
        kept[text[: line.end]] = entry
        return entry, line.value, line.timestamp

    def _entry(self, series: Series, line: Line) -> Entry:
        values = dict(line.labels)
        declared = tuple((name, values[name]) for name in series.labels if name in values)
        spare = sum(
            1
            for name, value in line.labels
            if value and name not in series.labels and name not in self._spellings.names
        )
        named = None if series.level == "node" else self._spellings.read(line.labels, series.labels)
        parts = self._spellings.parts_per_device(line.labels)
        return Entry(series, declared, named, line.name != series.name, parts, spare, self._holder(values))

    def _holder(self, values: Mapping[str, str]) -> Labels:
        """A pod or a job, with what belongs to it, by fact and as it was spelled; nothing where neither is named."""
        told: dict[str, str] = {}
        for fact, names in self._workload.items():
            name = next((name for name in names if values.get(name)), None)
            if name is not None:
                told |= {name: values[name], fact: values[name]}
        return tuple(told.items()) if told.get("pod") or told.get("job_name") else ()

    def _placed(
        self, found: list[tuple[Entry, int | float]], troubles: Troubles
    ) -> tuple[tuple[Device, ...], dict[Group, tuple[Reading, ...]], tuple[Holder, ...]]:
        parts = max((entry.parts for entry, _ in found), default=0)
        complete = {
            named: self._spellings.complete(named, parts) for named in {entry.named for entry, _ in found} if named
        }
        try:
            known = inventory((named for named in complete.values() if not named.anonymous()), self._kind)
        except TooManyDevices as error:
            raise Refused(f"names more than {MAX_DEVICES} devices or parts") from error
        copies: dict[tuple[str, int, Labels], _Copy] = {}
        holders: dict[tuple[int, Labels], None] = {}
        for entry, value in found:
            if entry.holder and entry.named and (place := known.places.get(complete[entry.named])) is not None:
                holders[place[1], entry.holder] = None
            if entry.series.name in self._groups:
                named = complete[entry.named] if entry.named else None
                self._place(entry, named, value, known, copies, troubles)
        readings: dict[Group, list[Reading]] = {}
        for (name, position, labels), copy in copies.items():
            if copy.disagreed:
                troubles.add("copies of a series that differ in labels alone have different values", name)
            else:
                readings.setdefault(self._groups[name], []).append(Reading(name, position, copy.value, labels))
        grouped = {group: tuple(values) for group, values in readings.items()}
        return known.devices, grouped, tuple(Holder(*each) for each in holders)

    def _place(
        self,
        entry: Entry,
        named: Named | None,
        value: int | float,
        known: Inventory,
        copies: dict[tuple[str, int, Labels], _Copy],
        troubles: Troubles,
    ) -> None:
        series = entry.series
        if value != value or float(value) in self._absent[series.name]:
            return
        whole = own = NODE
        if named is not None:
            place = known.places.get(named)
            if place is None:
                reason = "its labels name no device" if named.anonymous() else "its labels fit several devices"
                troubles.add(reason, series.name)
                return
            whole, own = place
        key = (series.name, own if series.level == "part" else whole, entry.labels)
        # Of a whole's facts that its parts repeat, always the same part's copy: copies of a counter need not be equal.
        rank = (own, entry.alias, entry.spare)
        copy = copies.get(key)
        if copy is None or rank < copy.rank:
            copies[key] = _Copy(entry, rank, value)
        elif rank == copy.rank and value != copy.value:
            copy.disagreed = True
