"""Field values: many numbers of a device in one call."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Any, Final

from collectors.nvidia import codes
from collectors.nvidia.binding import NvmlFailure, call
from collectors.nvidia.ledger import Ledger
from collectors.nvidia.picks import BLANK_32, BLANK_64
from collectors.nvidia.sources import Field

LARGEST_CALL: Final = 16
"""Ids in one call. Sets that are larger made some of them vanish on GB200."""
_DOUBLE: Final = 0
_FORMATS: Final = {0: "d", 1: "I", 2: "L", 3: "Q", 4: "q", 5: "i", 6: "H"}
"""``nvmlValueType_t`` to how the union is read."""
_UNSIGNED: Final = 1
_UNSIGNED_LONG_LONG: Final = 3
_MEMORY_TEMP: Final = 82
"""An unsigned int, whatever type the driver tells: R545 tells double."""
_COUNTS: Final = range(1, 32)
"""ECC and retired pages. Some drivers leave their type unset, which reads as double."""
_BLANKS: Final = {1: BLANK_32, 2: BLANK_64, 3: BLANK_64}

Key = tuple[int, int]
"""Field id and scope."""


def batches(fields: Iterable[Field]) -> tuple[tuple[Key, ...], ...]:
    """Fields into calls: each once, families apart, few in each."""
    families: dict[str, dict[Key, None]] = {}
    for field in fields:
        families.setdefault(field.family, {})[(field.id, field.scope)] = None
    return tuple(
        tuple(keys)[start : start + LARGEST_CALL]
        for keys in families.values()
        for start in range(0, len(keys), LARGEST_CALL)
    )


def read(handle: Any, position: int, groups: Sequence[tuple[Key, ...]], ledger: Ledger) -> dict[Key, int | float]:
    """All fields that the device gives. Raises DeviceLostError, DriverGoneError."""
    found: dict[Key, int | float] = {}
    for group in groups:
        keys = [key for key in group if not ledger.skips(position, key)]
        if keys:
            _read(handle, position, keys, ledger, found)
    return found


def _read(handle: Any, position: int, keys: list[Key], ledger: Ledger, found: dict[Key, int | float]) -> None:
    try:
        values = call("nvmlDeviceGetFieldValues", handle, keys)
    except NvmlFailure as failure:
        if len(keys) > 1 and codes.judge(failure.code) in ("unsupported", "stale"):
            # A driver that refuses the set because of one id that it does not know.
            for key in keys:
                _read(handle, position, [key], ledger, found)
            return
        together = tuple(keys)
        ledger.failed(position, together, failure)
        if ledger.skips(position, together):
            for key in keys:
                ledger.skip(position, key)
        return
    for key, value in zip(keys, values, strict=True):
        code = int(value.nvmlReturn)
        if code == codes.INVALID_ARGUMENT:
            # How an old driver answers to an id that it does not know.
            ledger.skip(position, key)
        elif code != codes.SUCCESS:
            ledger.failed(position, key, NvmlFailure(code, f"field {key[0]}"))
        elif value.valueType == _DOUBLE and value.timestamp == 0 and key[0] != _MEMORY_TEMP:
            # With ECC off some drivers answer success without having written a value.
            ledger.skip(position, key)
        else:
            number = decode(value)
            if number is not None:
                found[key] = number


def decode(value: Any) -> int | float | None:
    """The number in a field value; None for the driver's 'not available'."""
    kind = int(value.valueType)
    if value.fieldId == _MEMORY_TEMP:
        kind = _UNSIGNED
    elif kind == _DOUBLE and value.fieldId in _COUNTS:
        kind = _UNSIGNED_LONG_LONG
    layout = _FORMATS.get(kind)
    if layout is None:
        return None
    number: int | float = struct.unpack_from(layout, value.value)[0]
    return None if number == _BLANKS.get(kind) else number
