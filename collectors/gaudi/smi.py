"""hl-smi as a source: a table a sample. For nodes on which the library is missing or has an unknown ABI."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from typing import Final

from collectors.base import NODE, Settings, Unavailable, UnavailableState
from collectors.gaudi import table
from collectors.gaudi.failure import Failure
from collectors.gaudi.program import Finished, ProgramError, Runner
from collectors.gaudi.questions import Ask, Kind, columns
from collectors.gaudi.source import Event, Found, Listing, Port
from collectors.gaudi.table import Parsed, Row
from collectors.gaudi.units import Answer, Asker, Unit

_WHO: Final = ("index", "bus_id")
_FACTS: Final = ("name", "serial", "uuid", "driver_version", "module_id")
_OLDEST_FACTS: Final = ("name", "uuid")
"""Of those, what the oldest releases have: sysfs tells the others but the serial number."""
_OLD: Final = (
    "temperature.aip",
    "utilization.aip",
    "memory.total",
    "memory.free",
    "memory.used",
    "power.draw",
)
"""Fields of every release that is known."""
_PATIENCE: Final = 3
"""Runs that may fail in a row before the vendor counts as gone."""
_STATES: Final[Mapping[str, UnavailableState]] = {"library": "no_library", "permission": "no_permission"}
_PORTS: Final = Ask("column", "ports")


class SmiSource:
    """One hl-smi, run once for each group of a sample and, where ports are wanted, once for each device."""

    name = "hl-smi"

    def __init__(self, settings: Settings) -> None:
        self._program = str(settings.options.get("hl_smi") or "hl-smi")
        self._seconds = float(settings.options.get("hl_smi_timeout", 8.0))
        self._runner = Runner()
        self._offered: frozenset[str] = frozenset(table.FIELDS)
        self._rows: Mapping[str, Row] = {}
        self._external: dict[str, Mapping[int, bool]] = {}
        self._failures = 0
        self._deadline = 0.0

    @property
    def answers(self) -> Mapping[Kind, Answer]:
        return {"column": self._cell}

    def open(self) -> None:
        if shutil.which(self._program) is None:
            raise Unavailable(
                "no_library",
                f"the command {self._program} is not found: install the package of the Gaudi firmware tools, or set "
                "collectors.gaudi.options.hl_smi to its path",
            )

    def discover(self) -> Listing:
        self._deadline = time.monotonic() + self._seconds
        self._external = {}
        try:
            parsed = self._first_table()
        except ProgramError as error:
            raise Unavailable(_STATES.get(error.kind, "no_driver"), error.detail) from None
        found = [
            Found(
                key=bdf,
                index=row.texts.get("index", ""),
                bdf=bdf,
                module_id=row.texts.get("module_id", ""),
                uuid=row.texts.get("uuid", ""),
                serial=row.texts.get("serial", ""),
                model=row.texts.get("name", ""),
                driver_version=row.texts.get("driver_version", ""),
            )
            for bdf, row in _by_address(parsed).items()
        ]
        nameless = sum(not table.bus_id(row) for row in parsed.rows)
        failed = tuple(parsed.problems) + ((f"{nameless} lines without a PCI address",) if nameless else ())
        return Listing(found=tuple(found), failed=failed)

    def _first_table(self) -> Parsed:
        """A table of all that a release may know; if this one refuses, of what every release is known to have.

        Raises ProgramError.
        """
        for fields in (tuple(table.FIELDS), (*_WHO, *_FACTS, *_OLD), (*_WHO, *_OLDEST_FACTS, *_OLD)):
            done, parsed = self._query(fields)
            if parsed.rows:
                self._offered = frozenset(fields)
                return parsed
        raise ProgramError("parse", _complaint(self._program, done, parsed))

    def begin(self, wanted: frozenset[str], units: Sequence[Unit], asker: Asker) -> None:
        """Raises Unavailable when hl-smi has not given a table several times in a row."""
        self._rows = {}
        self._deadline = time.monotonic() + self._seconds
        fields = [name for name in columns(wanted) if name in self._offered]
        if not fields:
            return
        try:
            done, parsed = self._query((*_WHO, *fields))
        except ProgramError as error:
            self._failed(error.kind, error.detail, asker)
            return
        if not parsed.rows:
            self._failed("parse", _complaint(self._program, done, parsed), asker)
            return
        self._failures = 0
        self._rows = _by_address(parsed)
        if done.code:
            asker.report(NODE, "library", f"{self._program} ended with {done.code}: {done.words}")
        for problem in parsed.problems:
            asker.report(NODE, "parse", f"{self._program}: {problem}")
        for unit in units:
            if unit.key not in self._rows:
                asker.report(unit.position, "transient", f"{self._program} has no line of {unit.key}")

    def _failed(self, kind: str, detail: str, asker: Asker) -> None:
        self._failures += 1
        if self._failures >= _PATIENCE:
            raise Unavailable(_STATES.get(kind, "no_driver"), detail)
        asker.report(NODE, kind, detail)

    def _query(self, fields: Sequence[str]) -> tuple[Finished, Parsed]:
        done = self._run("-Q", ",".join(fields), "-f", "csv")
        return done, table.parse(done.output)

    def _run(self, *arguments: str) -> Finished:
        """Raises ProgramError."""
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise ProgramError(
                "timeout", f"{self._program} took more than {self._seconds:g} s in all: raise hl_smi_timeout"
            )
        return self._runner.run((self._program, *arguments), left)

    def _cell(self, unit: Unit, ask: Ask) -> int | float:
        row = self._rows.get(unit.key)
        if row is None:
            raise Failure("nothing", f"{self._program} has no line of {unit.key}")
        if ask.name not in self._offered:
            raise Failure("unsupported", f"{self._program} does not offer {ask.name}")
        value = row.numbers.get(ask.name)
        if value is None:
            raise Failure("nothing", f"{self._program} gives no {ask.name}")
        return value

    def state(self, unit: Unit) -> str:
        """hl-smi has no field of it."""
        return ""

    def ports(self, unit: Unit, asker: Asker) -> Sequence[tuple[Port, bool]]:
        if asker.skips(unit, _PORTS):
            return ()
        try:
            if unit.key not in self._external:
                self._external[unit.key] = table.external_ports(self._run("-n", "ports", "-i", unit.key).output)
            states = table.port_states(self._run("-n", "link", "-i", unit.key).output)
        except ProgramError as error:
            asker.report(unit.position, error.kind, error.detail)
            return ()
        external = self._external[unit.key]
        if not states:
            asker.failed(unit, _PORTS, Failure("unsupported", f"{self._program} -n link tells no port"))
        # Where some are told to be external, the others are internal; where none is told anything, nothing is known.
        rest = False if external else None
        return [(Port(number, external.get(number, rest)), up) for number, up in sorted(states.items())]

    def octets(self, unit: Unit, port: Port) -> tuple[int, int] | None:
        raise Failure("unsupported", f"{self._program} tells no octets in a form that is documented")

    def watch(self, units: Sequence[Unit]) -> None:
        """hl-smi tells no events."""

    def events(self) -> Sequence[Event]:
        return ()

    def close(self) -> None:
        self._rows = {}


def _by_address(parsed: Parsed) -> dict[str, Row]:
    """The first line of each device."""
    found: dict[str, Row] = {}
    for row in parsed.rows:
        if bdf := table.bus_id(row):
            found.setdefault(bdf, row)
    return found


def _complaint(program: str, done: Finished, parsed: Parsed) -> str:
    why = parsed.problems[0] if parsed.problems else "no table"
    return f"{program} gave no table of devices (exit code {done.code}: {done.words}; {why})"
