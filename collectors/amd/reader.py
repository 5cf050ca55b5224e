"""Reads one card by a list of probes, of which the first that gives a series counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from collectors.amd import files
from collectors.amd.cards import Card
from collectors.amd.derive import Throttling
from collectors.amd.files import FileError
from collectors.amd.gpu_metrics import NOTHING, GpuMetrics, MetricsError, decode
from collectors.amd.health import HealthRule
from collectors.amd.plausibility import EnergyCheck
from collectors.base import Group, ReadError, Reading

_MOST_ERRORS: Final = 100
"""In one sample: a card that fails in everything must not flood the log."""
_MOST_METRICS: Final = 65536


class CardLostError(Exception):
    """The card does not answer any more."""


class QuantityError(Exception):
    """One quantity cannot be read now; ``kind`` is one of ReadError's."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind


class Probe(msgspec.Struct, frozen=True):
    """One way to read some series of a card."""

    series: frozenset[str]
    read: Callable[[Reader, Card], Iterable[Reading]]
    """Raises FileError, QuantityError, CardLostError."""


Probes = Sequence[Probe]
MetricsWay = Callable[["Reader", Card], GpuMetrics]


class Reader:
    """The state between samples. One a discovery."""

    def __init__(
        self,
        sys: str,
        probes: Probes,
        wanted: Mapping[Group, frozenset[str]],
        metrics: MetricsWay,
        energy: EnergyCheck,
        health: HealthRule,
        pairs: Mapping[int, Card],
    ) -> None:
        self.sys = sys
        self.wanted: frozenset[str] = frozenset()
        """What is asked for in this sample."""
        self.group: Group = "normal"
        self.throttling: dict[tuple[Group, int], Throttling] = {}
        self.pairs = pairs
        """Position of a board's first die → its second."""
        self.energy = energy
        self.health = health
        self._probes, self._all_wanted, self._metrics_way = probes, wanted, metrics
        self._metrics: dict[int, GpuMetrics] = {}
        self._errors: list[ReadError] = []
        self._told: set[tuple[int, str]] = set()

    def begin(self, group: Group) -> None:
        """A new sample begins."""
        self.group, self.wanted = group, self._all_wanted.get(group, frozenset())
        self._metrics.clear()

    def read(self, card: Card) -> list[Reading]:
        """Every wanted series that the card gives. Raises CardLostError."""
        out: list[Reading] = []
        given: set[str] = set()
        for probe in self._probes:
            asked = (probe.series & self.wanted) - given
            if not asked:
                continue
            first = len(out)
            try:
                out.extend(reading for reading in probe.read(self, card) if reading.series in asked)
            except FileError as error:
                self._failed(card, error)
            except QuantityError as error:
                self.report(card.position, error.kind, str(error))
            given.update(reading.series for reading in out[first:])
        return out

    def metrics(self, card: Card) -> GpuMetrics:
        """The card's table, read once in a sample; an empty one where there is none."""
        known = self._metrics.get(card.position)
        if known is None:
            try:
                known = self._metrics_way(self, card)
            except MetricsError as error:
                self.report(card.position, "parse", str(error))
                known = NOTHING
            except FileError as error:
                self._failed(card, error)
                known = NOTHING
            self._metrics[card.position] = known
        return known

    def report(self, position: int, kind: str, detail: str) -> None:
        """Add an error to the sample. What will not change by itself (permission) is told once."""
        if kind == "permission":
            if (position, detail) in self._told:
                return
            self._told.add((position, detail))
        if len(self._errors) < _MOST_ERRORS:
            self._errors.append(ReadError(position, kind, detail))

    def take_errors(self) -> tuple[ReadError, ...]:
        """The errors since the last call."""
        errors, self._errors = tuple(self._errors), []
        return errors

    def _failed(self, card: Card, error: FileError) -> None:
        if error.kind == "lost":
            raise CardLostError from None
        self.report(card.position, error.kind, str(error))


def from_file(_: Reader, card: Card) -> GpuMetrics:
    """The table from sysfs. Raises MetricsError, FileError."""
    blob = files.read(card.folder / "gpu_metrics", _MOST_METRICS) if card.has("gpu_metrics") else None
    return decode(blob) if blob else NOTHING


def hwmon(card: Card, name: str) -> int | None:
    """A number of the card's hwmon folder; None where it has none. Raises FileError."""
    if card.hwmon is None or not card.has(f"hwmon/{name}"):
        return None
    return files.number(card.hwmon / name)


def number(card: Card, name: str) -> int | None:
    """A number of the card's folder; None where it has none. Raises FileError."""
    return files.number(path(card, name)) if card.has(name) else None


def path(card: Card, name: str) -> Path:
    return card.folder / name
