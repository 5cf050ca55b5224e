"""Which field of DCGM gives each raw series: the ids of series.toml, and what the loaded library says of them."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, Literal

import msgspec

from collectors.nvidia.dcgm import abi
from collectors.nvidia.dcgm.library import Library

SOURCE: Final = "dcgm"
XID: Final = 230
"""DCGM_FI_DEV_XID_ERRORS: read as a history, not as a value."""
CLOCK_EVENTS: Final = 112
"""DCGM_FI_DEV_CLOCKS_EVENT_REASONS."""
EVENTS: Final = frozenset({XID, 856, 857})
"""Fields that get a sample when something happens, so that an old one is no stale one."""
_COUNTED: Final = {"DCGM_EXP_CLOCK_EVENTS_COUNT": CLOCK_EVENTS}
"""Series that the collector makes of a field."""

Kind = Literal["global", "gpu", "part", "switch", "cpu", "core", "gpu_link", "switch_link"]
_KINDS: Final[Mapping[int, Kind]] = {
    abi.NONE: "global",
    abi.GPU: "gpu",
    abi.VGPU: "gpu",
    abi.GPU_I: "part",
    abi.GPU_CI: "part",
    abi.SWITCH: "switch",
    abi.CPU: "cpu",
    abi.CPU_CORE: "core",
}


class Quantity(msgspec.Struct, frozen=True, kw_only=True):
    """A field and the series that show it: more than one where two names of a field are series of their own."""

    field: int
    kind: Kind
    series: tuple[str, ...]
    absent: frozenset[int | float]
    """Values that say 'no reading'."""
    profiling: bool
    """Of the profiling module: it may be missing, busy, or refuse."""


class Entry(msgspec.Struct, frozen=True):
    """A series of the table that DCGM can give."""

    name: str
    field: int
    labels: tuple[str, ...]
    absent: tuple[int | float, ...]


def entries(path: Path, wanted: Iterable[str]) -> list[Entry]:
    """The wanted series that have a field here. Raises OSError, ValueError for a table that cannot be read."""
    names = set(wanted)
    with path.open("rb") as file:
        table = tomllib.load(file)["series"]
    return [
        Entry(row["name"], row["id"], tuple(row.get("labels", ())), tuple(row.get("absent", ())))
        for row in table
        if row["name"] in names and "id" in row and "native" in row and SOURCE in row.get("sources", (SOURCE,))
    ]


def quantities(library: Library, found: Iterable[Entry], counted: Iterable[str]) -> list[Quantity]:
    """What to read for these series, without the Xids. A field that the library does not know is left out."""
    by_field: dict[int, list[Entry]] = {}
    for entry in found:
        if entry.field != XID:
            by_field.setdefault(entry.field, []).append(entry)
    for name in counted:
        if name in _COUNTED:
            by_field.setdefault(_COUNTED[name], [])
    made = []
    for field, same in by_field.items():
        meta = library.meta(field)
        kind = _kind(meta.level, same) if meta is not None else None
        if kind is not None:
            made.append(
                Quantity(
                    field=field,
                    kind=kind,
                    series=tuple(entry.name for entry in same),
                    absent=frozenset(value for entry in same for value in entry.absent),
                    profiling=any(entry.name.startswith("DCGM_FI_PROF_") for entry in same),
                )
            )
    return made


def _kind(level: int, same: Iterable[Entry]) -> Kind | None:
    """Where a field is read; None for entities that no series is about (network cards)."""
    if level == abi.LINK:
        return "switch_link" if any("nvswitch" in entry.labels for entry in same) else "gpu_link"
    return _KINDS.get(level)
