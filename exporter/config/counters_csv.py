"""Reads a counters file: which raw series to serve, one ``name, type, help`` a line.

The format is that of a widely used exporter's counters file: fields are trimmed, lines that begin with ``#`` and empty
ones are skipped, and the type ``label`` makes a field a label of the other series. Commas in the help need no quotes.
"""

from __future__ import annotations

import csv
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

import msgspec

from exporter.config.problems import ConfigError, Problem, nearest, printable, show_value
from exporter.config.text import read_text

TYPES: Final = ("gauge", "counter", "histogram", "summary", "label")
_LONGEST_NAME: Final = 200


class Counter(msgspec.Struct, frozen=True):
    """One line of the file."""

    name: str
    type: str
    """One of TYPES. ``label``: the field's text becomes a label of the device's series, under this name."""
    help: str
    line: int


class Counters(msgspec.Struct, frozen=True):
    """What the file lists, in its order. ``warnings`` say what was left out, ready to be logged."""

    source: str
    entries: tuple[Counter, ...]
    warnings: tuple[str, ...] = ()


class Choice(msgspec.Struct, frozen=True):
    """The entries of a counters file that can be served."""

    entries: Mapping[str, Counter]
    """Name of the series in the catalogue → the entry that asks for it (which may spell it otherwise)."""
    warnings: tuple[str, ...]


def read(path: Path) -> Counters:
    """Read a counters file. Raises ConfigError with every wrong line."""
    return parse(read_text(path, "counters file"), printable(str(path)))


def parse(text: str, source: str) -> Counters:
    """As ``read``, for a text that came from ``source``."""
    entries: dict[str, Counter] = {}
    problems: list[Problem] = []
    warnings: list[str] = []
    for number, line in enumerate(text.splitlines(), start=1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        entry = _entry(stripped, number, source)
        if isinstance(entry, Problem):
            problems.append(entry)
        elif entry.name in entries:
            first = entries[entry.name].line
            warnings.append(f"{source}:{number}: {entry.name} stands already in line {first}, which counts")
        else:
            entries[entry.name] = entry
    if problems:
        raise ConfigError(problems)
    if not entries:
        raise ConfigError([Problem(source, "counters file", "it names no series", "lines of: name, type, help")])
    return Counters(source, tuple(entries.values()), tuple(warnings))


def choose(counters: Counters, names: Mapping[str, str], labels: Collection[str] = ()) -> Choice:
    """Those entries that can be served. ``names`` maps each known series and each other spelling of it to the series.

    ``labels`` are those that the series have anyway: an entry that asks for one of them is met.
    The others are no error, for a file that served elsewhere must go on to work; each is told by a warning.
    """
    found: dict[str, Counter] = {}
    warnings: list[str] = []
    for entry in counters.entries:
        series = names.get(entry.name)
        place = f"{counters.source}:{entry.line}"
        if entry.type == "label":
            if entry.name not in labels:
                warnings.append(f"{place}: {entry.name} cannot be made a label of the series: it is left out")
        elif series is None:
            close = nearest(entry.name, sorted(set(names.values())))
            hint = f"; the nearest that is: {close}" if close else ""
            warnings.append(f"{place}: {entry.name} is not a series that any collector knows: it is left out{hint}")
        elif series in found:
            warnings.append(f"{place}: {entry.name} is another name of {found[series].name}, which counts")
        else:
            if entry.type not in ("gauge", "counter"):
                warnings.append(f"{place}: {entry.name} has no {entry.type}: it is served as a gauge")
            found[series] = entry
    if not found:
        warnings.append(f"{counters.source}: it names no series that any collector knows: the usual ones are served")
    return Choice(found, (*counters.warnings, *warnings))


def _entry(line: str, number: int, source: str) -> Counter | Problem:
    place = f"{source}:{number}"
    try:
        fields = [field.strip() for field in next(csv.reader([line], skipinitialspace=True, strict=True))]
    except csv.Error as error:
        found = f"got {show_value(line)}"
        return Problem(place, "line", found, f"name, type, help, with quotes in pairs ({printable(str(error))})")
    name, kind, text = fields[0], fields[1] if len(fields) > 1 else "", ", ".join(fields[2:])
    # Some spreadsheets and formatters pad short lines: an entry has a help, so all three are asked for.
    if len(fields) < 3 or not name:
        return Problem(place, "line", f"got {show_value(line)}", "three fields: name, type, help")
    if not _is_name(name):
        return Problem(place, "name", f"got {show_value(name)}", "a metric name: letters, digits, underscores, colons")
    if kind not in TYPES:
        return Problem(place, f"{name} type", f"got {show_value(kind)}", f"one of {', '.join(TYPES)}")
    return Counter(name, kind, printable(text), number)


def _is_name(name: str) -> bool:
    plain = name.replace(":", "_")
    return len(name) <= _LONGEST_NAME and plain.isascii() and plain.isidentifier()
