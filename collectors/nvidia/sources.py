"""How a raw series is read: the kinds of entries that table.py consists of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Literal

import msgspec

from collectors.nvidia.picks import pairs

Number = int | float
Pick = Callable[[Any], Number | None]
"""From what a call returned to the series' value; None when the device gave none."""
Way = tuple[str | Callable[..., Any], tuple[Any, ...]]
"""A function of the binding by name, or one of ours that takes the handle; and its further arguments."""

ALL_LINKS: Final = 0xFFFFFFFF
"""The scope of a field value that sums over the links."""


class Call(msgspec.Struct, frozen=True):
    """A call on the handle. Series of the same ways share one call."""

    ways: tuple[Way, ...]
    """Tried in this order where the driver or the device does not know one."""
    pick: Pick
    level: Literal["device", "part"] = "device"


class Field(msgspec.Struct, frozen=True):
    """A field value (``NVML_FI_DEV_*``)."""

    id: int
    scope: int = 0
    pick: Pick | None = None
    family: str = ""
    """Fields of different families are never asked for in one call."""
    fallback: Call | None = None
    """Used where the device does not offer the field."""


class Rate(msgspec.Struct, frozen=True):
    """The increase a second of the sum of some field values that count up."""

    fields: tuple[Field, ...]
    finish: Callable[[float], Number]
    fallback: Call | None = None
    """Used where the device does not offer the counters, or where they stand below ``least``."""
    least: int = 0
    """What a counter must have reached: one that never did may be so narrow that it wraps between two reads."""


class Gpm(msgspec.Struct, frozen=True):
    """A GPM metric: profiling figures of Hopper and newer, between two samples."""

    id: int
    finish: Callable[[float], Number]
    level: Literal["device", "part"] = "device"
    fallback: Rate | None = None
    """Used on devices without GPM."""
    stand_in: bool = False
    """Nothing but the fallback is told: a series of ours beside the vendor's, which says how exact the number is."""


class Spread(msgspec.Struct, frozen=True):
    """A call that gives several numbers of one kind, each with a value of a label."""

    ways: tuple[Way, ...]
    label: str
    pick: Callable[[Any], Sequence[tuple[str, Number]]] = pairs


Kind = Literal["xid", "xid_count", "clock_events", "p2p", "processes", "process_memory"]


class Special(msgspec.Struct, frozen=True):
    """Made by specials.py: counted over time, or between devices."""

    kind: Kind


Source = Call | Field | Rate | Gpm | Spread | Special
