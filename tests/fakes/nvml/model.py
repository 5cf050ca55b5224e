"""A scenario: what the fake library finds on the machine, as a value that tests build, change and write to a file."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

Value = str | int | float
"""A number may be a text ``value+rate/s``: it grows from the scenario's epoch on."""

Keys = Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class Scenario:
    """Sections by header (``gpu 0``, ``mig 0.3``), and the symbols that this driver's library does not have."""

    sections: Mapping[str, Keys]
    missing: frozenset[str] = frozenset()

    def keys(self, section: str) -> Keys:
        """The keys of a section. Raises KeyError when there is none of that header."""
        return self.sections[section]

    def with_keys(self, section: str, keys: Keys) -> Scenario:
        """The same world with these keys added to a section, or changed; a new section comes last."""
        return replace(self, sections={**self.sections, section: {**self.sections.get(section, {}), **keys}})

    def without_keys(self, section: str, names: Collection[str]) -> Scenario:
        """The same world where a section lacks these keys, which it must have: the device does not support them."""
        if absent := set(names) - self.sections[section].keys():
            raise KeyError(f"[{section}] has no {', '.join(sorted(absent))}")
        kept = {name: value for name, value in self.sections[section].items() if name not in names}
        return replace(self, sections={**self.sections, section: kept})

    def without_section(self, section: str) -> Scenario:
        """The same world without this section, which must exist."""
        if section not in self.sections:
            raise KeyError(f"no section [{section}]")
        return replace(self, sections={header: keys for header, keys in self.sections.items() if header != section})

    def with_missing(self, symbols: Collection[str]) -> Scenario:
        """The same world with a library that lacks these symbols, too."""
        return replace(self, missing=self.missing | frozenset(symbols))

    def headers(self, kind: str) -> list[str]:
        """The headers of one kind of section, in file order."""
        return [header for header in self.sections if header.split(" ")[0] == kind]

    def text(self) -> str:
        """The scenario file."""
        lines: list[str] = []
        for header, keys in self.sections.items():
            lines.append(f"[{header}]")
            lines.extend(f"{key}={value}" for key, value in keys.items())
            lines.append("")
        return "\n".join(lines)

    def write(self, path: Path) -> None:
        """Puts the file in place whole: a library that reads it at any moment finds the old world or the new."""
        draft = path.with_name(path.name + ".draft")
        draft.write_text(self.text(), encoding="utf-8")
        draft.replace(path)


def system(driver: str, nvml: str, cuda: int, **keys: Value) -> Scenario:
    """A world without devices. The epoch is now, so that counters go on growing when the file is written again."""
    section: dict[str, Value] = {
        "driver_version": driver,
        "nvml_version": nvml,
        "cuda": cuda,
        "epoch": f"{time.time():.6f}",
        **keys,
    }
    return Scenario({"system": section})
