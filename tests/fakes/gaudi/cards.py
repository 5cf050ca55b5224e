"""The worlds: eight Gaudi2 on a baseboard, by formulas in the card's index, and what can be changed about them."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

Value = str | int | float
Keys = Mapping[str, Value]
MIB: Final = 1 << 20
BUSES: Final = ("33", "34", "4d", "4e", "9a", "9b", "b3", "b4")
EXTERNAL: Final = (8, 22, 23)
PORTS: Final = 24
DOWN: Final = (3, 5)
"""Card and port whose link is down."""
DRIVER: Final = "1.24.0-abcdef0"

SINCE: Final[Mapping[int, tuple[str, ...]]] = {
    14: ("hlml_device_get_oper_status",),
    18: ("hlml_device_get_power_management_limit",),
    21: ("hlml_device_get_power_management_limit_constraints",),
}
"""Minor number of the release → functions that it brought."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """Sections by header, and the symbols that this release's library does not have."""

    sections: Mapping[str, Keys]
    missing: frozenset[str] = frozenset()

    def with_keys(self, section: str, keys: Keys) -> Scenario:
        """The same world with these keys added or changed; a new section comes last."""
        return replace(self, sections={**self.sections, section: {**self.sections.get(section, {}), **keys}})

    def without_keys(self, section: str, names: Collection[str]) -> Scenario:
        """The same world where a device does not support these quantities, which it must have had."""
        assert set(names) <= self.sections[section].keys(), names
        kept = {name: value for name, value in self.sections[section].items() if name not in names}
        return replace(self, sections={**self.sections, section: kept})

    def without_section(self, section: str) -> Scenario:
        return replace(self, sections={header: keys for header, keys in self.sections.items() if header != section})

    def with_missing(self, symbols: Collection[str]) -> Scenario:
        return replace(self, missing=self.missing | frozenset(symbols))

    def write(self, path: Path) -> None:
        """Put the file in place whole."""
        lines = [
            line
            for header, keys in self.sections.items()
            for line in (f"[{header}]", *(f"{key}={value}" for key, value in keys.items()))
        ]
        draft = path.with_name(path.name + ".draft")
        draft.write_text("\n".join(lines) + "\n")
        draft.replace(path)


def bdf(i: int) -> str:
    return f"0000:{BUSES[i]}:00.0"


def minor(i: int) -> int:
    """accel2 is another vendor's: HLML's index and the minor number differ from there on."""
    return i if i < 2 else i + 1


def serial(i: int) -> str:
    return f"AM{10_000_000 + i}"


def uuid(i: int) -> str:
    return f"01P4-HL2090A0-18-U4V193-{i:02d}-07-00"


def module_id(i: int) -> int:
    return (3 * i + 1) % 8


def energy_mj(i: int) -> int:
    """When the counters began; from there on it grows by the draw."""
    return 1_000_000_000 * (i + 1)


def gaudi2_keys(i: int) -> dict[str, Value]:
    """What HLML says of card i. Gaudi2 has no VRM sensor and no link width (keys that are not there)."""
    ports: dict[str, Value] = {}
    for port in range(PORTS):
        ports[f"port.{port}.up"] = int((i, port) != DOWN)
        ports[f"port.{port}.rx"] = f"{(i + 1) * 10**13 + port}+{port * 1000}/s"
        ports[f"port.{port}.tx"] = (i + 1) * 10**12 + port
    return {
        "name": "HL-225",
        "serial": serial(i),
        "uuid": uuid(i),
        "bus_id": bdf(i),
        "minor": minor(i),
        "module_id": module_id(i),
        "oper_status": "Operational",
        "clock.0": 1650 - 5 * i,
        "max_clock.0": 1800,
        "utilization": 40 + i,
        "memory.total": 98304 * MIB,
        "memory.used": (768 + 1024 * i) * MIB,
        "memory.free": 1,
        "power_mw": 96_000 + 1000 * i,
        "power_default_limit_mw": 600_000,
        "power_limit_mw": 550_000,
        "power_limit_min_mw": 450_000,
        "power_limit_max_mw": 600_000,
        "energy_mj": f"{energy_mj(i)}+{96_000 + 1000 * i}/s",
        "temperature.0": 45 + i,
        "temperature.1": 35 + i,
        "temperature.3": 50 + i,
        "threshold.0": 90,
        "threshold.1": 89,
        "threshold.2": 88,
        "threshold.3": 87,
        "throttle": i % 4,
        "violation.0": 1_500_000_000 + i,
        "violation.1": 250_000_000 + i,
        "pcie.throughput.0": 1000 + i,
        "pcie.throughput.1": 2000 + i,
        "pcie.replay": 7 + i,
        "ecc.current": 1,
        "ecc.pending": 0,
        **{
            f"ecc.{error}.{counter}.{place}": 100 * error + 10 * counter + place + 1000 * i
            for error in (0, 1)
            for counter in (0, 1)
            for place in (0, 1)
        },
        "rows.0": i,
        "rows.1": 2 * i,
        "rows.pending": 0,
        "ports.mask": (1 << PORTS) - 1,
        "ports.external": sum(1 << port for port in EXTERNAL),
        **ports,
    }


def gaudi2(count: int = 8, release: int = 24) -> Scenario:
    """Cards under this release (24: 1.24), whose library lacks what came later."""
    sections: dict[str, Keys] = {
        "system": {"driver_version": DRIVER, "release": release, "epoch": time.time()},
        **{f"device {i}": gaudi2_keys(i) for i in range(count)},
    }
    missing = frozenset(name for since, names in SINCE.items() if release < since for name in names)
    return Scenario(sections, missing)
