"""Answers of the runtimes → readings and faults."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from collectors.base import NODE, Fault, Labels, ReadError, Reading
from collectors.tpu import numbering
from collectors.tpu.chips import Chip
from collectors.tpu.messages import Distribution, Entry
from collectors.tpu.numbering import Numbers
from collectors.tpu.runtime import Answer
from collectors.tpu.table import ALARMS, DUTY, FREE_SERIES, PER_DEVICE, PER_NODE, TOTAL, USED, Alarm, PerNode

_MISFIT: Final = (
    "{} devices of a runtime do not fit {} chips, so that no number of theirs can be placed; with hostPID the agent "
    "sees which chips are the workload's"
)
_SLICE_ERROR: Final = "libtpu:slice_error"
_HANG: Final = "libtpu:hang_detected"
_MEGASCALE: Final = "libtpu:megascale_error"

Alert = tuple[int, str, Labels]
"""Chip, fault code, labels."""


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """What became of all answers."""

    readings: Sequence[Reading]
    errors: Sequence[ReadError]
    faults: Sequence[Fault]
    served: frozenset[int]
    """Chips of which a runtime told something."""


class Reader:
    """Keeps what must be known from one reading to the next: numbers that were seen, alarms that are on."""

    def __init__(self, chips: Sequence[Chip], identity: Labels) -> None:
        """``identity``: make, model and tpu_topology, for series of the node."""
        self._chips = {chip.index: chip for chip in chips}
        self._identity = identity
        self._numbers: dict[tuple[int, ...], Numbers] = {}
        self._alerts: frozenset[Alert] = frozenset()

    def read(self, answers: Sequence[Answer], wanted: frozenset[str]) -> Told:
        """``wanted``: the series of this group of readings."""
        readings: list[Reading] = []
        errors: list[ReadError] = []
        served: set[int] = set()
        alerts: set[Alert] = set()
        of_node: dict[tuple[str, Labels], Reading] = {}
        for answer in answers:
            errors += [ReadError(NODE, kind, detail) for kind, detail in answer.errors]
            chips = [self._chips[index] for index in answer.group.chips if index in self._chips]
            for index, series, value in self._of_devices(answer, chips, errors):
                served.add(index)
                if series in wanted:
                    readings.append(Reading(series, index, value))
            readings += _alarms(answer, chips, wanted, alerts)
            if self._of_workload(answer, wanted, of_node):
                errors.append(
                    ReadError(
                        NODE, "library", "two workloads tell the same series of the node: the first one's is shown"
                    )
                )
        if any(alarm.series in wanted for alarm in ALARMS):
            faults = [Fault(chip, code, time.time()) for chip, code, _ in sorted(alerts - self._alerts)]
            self._alerts = frozenset(alerts)
        else:
            faults = []
        return Told(readings=[*readings, *of_node.values()], errors=errors, faults=faults, served=frozenset(served))

    def _of_devices(
        self, answer: Answer, chips: Sequence[Chip], errors: list[ReadError]
    ) -> Iterator[tuple[int, str, float]]:
        """Chip, series, value. What cannot be placed is an error."""
        told = {
            item.metric: numbers for item in PER_DEVICE if (numbers := _by_number(answer.metrics.get(item.metric, ())))
        }
        places = self._placed(answer, told, chips) if told else {}
        if places is None:
            errors.append(ReadError(NODE, "parse", _MISFIT.format(_count(told), len(chips))))
            return
        for chip in chips:
            values = _of_chip(chip, told, places, errors)
            for item in PER_DEVICE:
                value = values.get(item.metric)
                if value is not None:
                    yield from ((chip.index, series, value) for series in item.series)
            if TOTAL in values and values[TOTAL] >= values.get(USED, math.inf):
                yield chip.index, FREE_SERIES, values[TOTAL] - values[USED]

    def _placed(
        self, answer: Answer, told: Mapping[str, Mapping[int, float]], chips: Sequence[Chip]
    ) -> dict[str, Mapping[int, int]] | None:
        """Metric → device number → chip."""
        duty = told.get(DUTY, {})
        apart = numbering.duty_has_own_numbers(duty, told.get(TOTAL, {}) or told.get(USED, {}), chips)
        seen = frozenset(number for name, numbers in told.items() if not (apart and name == DUTY) for number in numbers)
        most = len(chips) * min((chip.generation.devices for chip in chips), default=1)
        known = self._numbers.setdefault(answer.group.chips, Numbers()).all(seen, answer.connections, most)
        places = numbering.place(known, chips)
        of_duty = numbering.place(duty, chips) if apart else places
        if places is None or of_duty is None:
            return None
        return {name: of_duty if name == DUTY else places for name in told}

    def _of_workload(self, answer: Answer, wanted: frozenset[str], found: dict[tuple[str, Labels], Reading]) -> bool:
        """Add the series of the node. True: some were there already."""
        repeated = False
        for item in PER_NODE:
            for entry in answer.metrics.get(item.metric, ()):
                for series, labels, value in _of_entry(item, entry, self._identity):
                    if series not in wanted:
                        continue
                    repeated |= (series, labels) in found
                    found.setdefault((series, labels), Reading(series, NODE, value, labels))
        return repeated


def _count(told: Mapping[str, Mapping[int, float]]) -> int:
    return len({number for numbers in told.values() for number in numbers})


def _of_chip(
    chip: Chip,
    told: Mapping[str, Mapping[int, float]],
    places: Mapping[str, Mapping[int, int]],
    errors: list[ReadError],
) -> dict[str, float]:
    """Metric → the chip's value, out of those of its devices."""
    found: dict[str, float] = {}
    for item in PER_DEVICE:
        numbers = told.get(item.metric, {})
        own = [number for number, index in places.get(item.metric, {}).items() if index == chip.index]
        values = [numbers[number] for number in own if number in numbers]
        if len(values) < len(own):
            # Half of a chip is not the chip.
            continue
        totals = [told[TOTAL][number] for number in own if number in told.get(TOTAL, {})]
        value = numbering.fold(values, item.fold, totals, chip.generation.hbm_bytes) if values else None
        if values and value is None:
            errors.append(
                ReadError(chip.index, "parse", f"{item.metric} of a chip's devices comes without their totals")
            )
        elif value is not None and (value or item.metric != TOTAL):
            found[item.metric] = min(max(value, 0.0), 100.0) if item.percent else value
    return found


def _by_number(entries: Sequence[Entry]) -> dict[int, float]:
    """Device number → value. Entries without one of them tell nothing."""
    return {entry.device: entry.value for entry in entries if entry.device is not None and entry.value is not None}


def _of_entry(item: PerNode, entry: Entry, identity: Labels) -> Iterator[tuple[str, Labels, float]]:
    head = identity if item.identified else ()
    labels = head + tuple(
        (name, str(value)) for name in item.labels if (value := _attribute(item, entry, name)) is not None
    )
    if item.statistic == "value":
        if entry.value is not None:
            yield item.series, labels, entry.value
    elif entry.distribution is not None:
        if item.statistic == "histogram":
            yield from _histogram(item.series, labels, entry.distribution)
        elif entry.distribution.count:
            yield item.series, labels, entry.distribution.mean


def _attribute(item: PerNode, entry: Entry, name: str) -> str | int | float | None:
    """Of an attribute whose key is not the one that is known, the only label is meant."""
    if name in entry.attributes:
        return entry.attributes[name]
    if len(item.labels) == 1 and len(entry.attributes) == 1:
        return next(iter(entry.attributes.values()))
    return None


def _histogram(series: str, labels: Labels, found: Distribution) -> Iterator[tuple[str, Labels, float]]:
    """The three series of a histogram. Without buckets there are a sum and a count."""
    count = sum(found.counts) if found.counts else found.count
    running = 0
    for bound, one in zip(found.bounds, found.counts, strict=False):
        running += one
        yield f"{series}_bucket", (*labels, ("le", _bound(bound))), running
    yield f"{series}_bucket", (*labels, ("le", "+Inf")), count
    yield f"{series}_sum", labels, found.mean * found.count
    yield f"{series}_count", labels, count


def _bound(value: float) -> str:
    """A bucket's bound as Prometheus' clients write it."""
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)


def _alarms(answer: Answer, chips: Sequence[Chip], wanted: frozenset[str], alerts: set[Alert]) -> Iterator[Reading]:
    for alarm in ALARMS:
        if alarm.series not in wanted:
            continue
        states: dict[Labels, int] = {}
        for entry in answer.metrics.get(alarm.metric, ()):
            if entry.value is not None:
                # The session and the message would be another series each time: they are left out.
                labels = tuple(
                    (label, str(entry.attributes[name]))
                    for name, label in alarm.labels.items()
                    if name in entry.attributes
                )
                states[labels] = max(states.get(labels, 0), int(entry.value != 0))
        for labels, state in states.items():
            for chip in chips:
                yield Reading(alarm.series, chip.index, state, labels)
                if state:
                    alerts.add((chip.index, _code(alarm, labels), labels))


def _code(alarm: Alarm, labels: Labels) -> str:
    if alarm.series == "libtpu_slice_error_detected":
        return _SLICE_ERROR
    return _HANG if ("error_type", "HANG_DETECTED") in labels else _MEGASCALE
