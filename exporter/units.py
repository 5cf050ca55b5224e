"""Units of raw series and what they are in the common schema's base units."""

from __future__ import annotations

from typing import Final

UNITS: Final[dict[str, tuple[str, float]]] = {
    # A pure number: counts, codes, indices, lanes, generations, states, bit masks.
    "": ("", 1.0),
    "celsius": ("celsius", 1.0),
    "decicelsius": ("celsius", 0.1),
    "millicelsius": ("celsius", 1e-3),
    "watts": ("watts", 1.0),
    "deciwatts": ("watts", 0.1),
    "milliwatts": ("watts", 1e-3),
    "microwatts": ("watts", 1e-6),
    "joules": ("joules", 1.0),
    "kilojoules": ("joules", 1e3),
    "millijoules": ("joules", 1e-3),
    "microjoules": ("joules", 1e-6),
    "watt_hours": ("joules", 3600.0),
    "bytes": ("bytes", 1.0),
    "kibibytes": ("bytes", 1024.0),
    "mebibytes": ("bytes", 1024.0**2),
    "beats_of_32_bytes": ("bytes", 32.0),
    "gibibytes": ("bytes", 1024.0**3),
    "kilobytes": ("bytes", 1e3),
    "megabytes": ("bytes", 1e6),
    "gigabytes": ("bytes", 1e9),
    "bytes_per_second": ("bytes_per_second", 1.0),
    "kibibytes_per_second": ("bytes_per_second", 1024.0),
    "mebibytes_per_second": ("bytes_per_second", 1024.0**2),
    "gibibytes_per_second": ("bytes_per_second", 1024.0**3),
    "kilobytes_per_second": ("bytes_per_second", 1e3),
    "megabytes_per_second": ("bytes_per_second", 1e6),
    "gigabytes_per_second": ("bytes_per_second", 1e9),
    "megabits_per_second": ("bytes_per_second", 125e3),
    "hertz": ("hertz", 1.0),
    "kilohertz": ("hertz", 1e3),
    "megahertz": ("hertz", 1e6),
    "gigahertz": ("hertz", 1e9),
    "seconds": ("seconds", 1.0),
    "milliseconds": ("seconds", 1e-3),
    "microseconds": ("seconds", 1e-6),
    "nanoseconds": ("seconds", 1e-9),
    "ratio": ("ratio", 1.0),
    "percent": ("ratio", 0.01),
    "permille": ("ratio", 1e-3),
    "volts": ("volts", 1.0),
    "millivolts": ("volts", 1e-3),
    "amperes": ("amperes", 1.0),
    "milliamperes": ("amperes", 1e-3),
    "rpm": ("rpm", 1.0),
    "flops_per_second": ("flops_per_second", 1.0),
}
"""Unit → (base unit, factor to it)."""


class UnitMismatch(ValueError):
    """Two units measure different things."""


def factor(unit: str, base: str) -> float:
    """What makes ``base`` of ``unit`` when multiplied. Raises UnitMismatch, and KeyError for an unknown unit."""
    found, scale = UNITS[unit]
    if found != base:
        raise UnitMismatch(f"{unit or 'a pure number'} cannot become {base or 'a pure number'}")
    return scale
