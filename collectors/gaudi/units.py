"""A device as the collector reads it, and the asking: once a sample, never again what it does not offer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from collectors.base import ReadError
from collectors.gaudi import hwmon, sysfs
from collectors.gaudi.failure import Failure, of_file
from collectors.gaudi.questions import Ask, Kind, Number, Way
from collectors.gaudi.sysfs import Card

_MOST_ERRORS: Final = 100
"""In one sample: a device that fails in everything must not flood the log."""


class Unit(msgspec.Struct, frozen=True, kw_only=True):
    """A device that can be read."""

    position: int
    key: Any
    """The source's own name of it: a handle of HLML, or hl-smi's PCI address."""
    card: Card | None
    """Its place in sysfs, where there is one."""
    sensors: Mapping[str, tuple[str, ...]] = {}
    power_file: str = ""


Answer = Callable[[Unit, Ask], Any]
"""Raises Failure."""


class Asker:
    """Asks, remembers within a sample, and keeps count of what devices lack. One a discovery."""

    def __init__(self, answers: Mapping[Kind, Answer]) -> None:
        self._by_kind: Mapping[Kind, Answer] = {**_FILES, **answers}
        self._skipped: set[tuple[int, Ask]] = set()
        self._known: dict[tuple[int, Ask], Any] = {}
        self._errors: list[ReadError] = []

    def begin(self) -> None:
        """A new sample."""
        self._known.clear()

    def value(self, unit: Unit, ways: tuple[Way, ...]) -> Number | None:
        """The first way that has a value. All ways of a series tell the same quantity; what counts up has one alone.

        Raises Failure when the device or the driver is gone.
        """
        for way in ways:
            answer = self.ask(unit, way.ask)
            value = way.pick(answer) if answer is not None else None
            if value is not None:
                return value
        return None

    def ask(self, unit: Unit, ask: Ask) -> Any:
        """None where there is no answer. Raises Failure when the device or the driver is gone."""
        key = (unit.position, ask)
        if key in self._known:
            return self._known[key]
        if ask.kind not in self._by_kind or self.skips(unit, ask):
            return None
        self._known[key] = None
        try:
            self._known[key] = self._by_kind[ask.kind](unit, ask)
        except Failure as failure:
            self.failed(unit, ask, failure)
        return self._known[key]

    def skips(self, unit: Unit, ask: Ask) -> bool:
        """Whether the device is known not to offer an answer."""
        return (unit.position, ask) in self._skipped

    def failed(self, unit: Unit, ask: Ask, failure: Failure) -> None:
        """Judge a failure. Raises it when the device or the driver is gone."""
        if failure.verdict in ("lost", "gone"):
            raise failure
        if failure.verdict in ("unsupported", "permission"):
            self._skipped.add((unit.position, ask))
        if failure.verdict not in ("unsupported", "nothing"):
            self.report(unit.position, failure.verdict, failure.detail)

    def report(self, position: int, kind: str, detail: str) -> None:
        if len(self._errors) < _MOST_ERRORS:
            self._errors.append(ReadError(position, kind, detail))

    def take_errors(self) -> tuple[ReadError, ...]:
        """The errors since the last call."""
        errors, self._errors = tuple(self._errors), []
        return errors


def _file(folder: str, name: str) -> str:
    if not folder:
        raise Failure("unsupported", f"{name}: no place in sysfs")
    try:
        return sysfs.read(Path(folder, name))
    except OSError as error:
        raise of_file(error, name) from error


def _attribute(unit: Unit, ask: Ask) -> str:
    return _file(unit.card.attributes if unit.card else "", ask.name)


def _pci(unit: Unit, ask: Ask) -> str:
    return _file(unit.card.pci if unit.card else "", ask.name)


def _sensor(unit: Unit, ask: Ask) -> int | float:
    files = unit.sensors.get(ask.name)
    if not files:
        raise Failure("unsupported", f"no channel of hwmon is known to be {ask.name}")
    return hwmon.hottest(files)


def _power(unit: Unit, _: Ask) -> int:
    if not unit.power_file:
        raise Failure("unsupported", "hwmon has no power1_input")
    return hwmon.milliwatts(unit.power_file)


_FILES: Final[Mapping[Kind, Answer]] = {"attribute": _attribute, "pci": _pci, "sensor": _sensor, "power": _power}
