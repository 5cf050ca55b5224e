"""Layouts and constants of libdcgm's C interface (dcgm_structs.h, dcgm_agent.h, dcgm_fields.h of DCGM 3.3 to 4.6).

Structures are byte buffers here: what is read of each is a few members at fixed offsets, and the first four bytes are
its version, ``sizeof | (number << 24)``, which the library compares before it looks at anything else.
"""

from __future__ import annotations

import ctypes
import struct
from typing import Any, Final, Literal

# dcgm_field_entity_group_t
NONE: Final = 0
GPU: Final = 1
VGPU: Final = 2
SWITCH: Final = 3
GPU_I: Final = 4
GPU_CI: Final = 5
LINK: Final = 6
CPU: Final = 7
CPU_CORE: Final = 8

Entity = tuple[int, int]
"""Entity group and id."""

MAX_GPUS: Final = 32
"""What ``dcgmGetAllDevices`` needs room for."""
MAX_FIELDS: Final = 128
"""In one field group or one read."""
MAX_PAIRS: Final = 64
"""Entities in one group or one read that DCGM 3.x takes; 4.x takes 1024."""
EMPTY_GROUP: Final = 1
LIVE: Final = 1
"""Flag of a read: ask the driver instead of the cache."""
ALL_HEALTH: Final = 0xFFFFFFFF

# name: (size, version word)
CONNECT: Final = (16, 0x02000010)
CONNECT_URI: Final = (12, 0x0100000C)
EMBEDDED: Final = (72, 0x01000048)
VERSION_INFO: Final = (516, 0x02000204)
ATTRIBUTES: Final = (5220, 0x03001464)
HIERARCHY: Final = (73480, 0x02011F08)
METRIC_GROUPS: Final = (1376, 0x03000560)
CPUS: Final = (1160, 0x01000488)
HEALTH: Final = {4: (1069068, 0x0510500C), 3: (66828, 0x0401050C)}
"""By the library's major version, which takes no other."""
LINK_STATUS: Final = {3: (5564, 0x030015BC), 4: (14780, 0x040039BC), 5: (17084, 0x050042BC)}
"""By the structure's number."""
LINKS_OF_GPU: Final = {3: 18, 4: 18, 5: 36}
LINKS_OF_SWITCH: Final = {3: 64, 4: 256, 5: 256}

VALUE: Final = (4128, 0x02001020)
"""dcgmFieldValue_v2: a record of a read."""
VALUE_HEAD: Final = struct.Struct("=IiIHHi4xq")
"""Version, entity group, entity, field, type, status, time in µs."""
VALUE_UNION: Final = 32
PAST_VALUE: Final = (4120, 0x01001018)
"""dcgmFieldValue_v1: a record of the history, which does not name its entity."""
PAST_HEAD: Final = struct.Struct("=IHHi4xq")
"""Version, field, type, status, time in µs."""
PAST_UNION: Final = 24
TEXT_SIZE: Final = 256

Past = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_uint, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)
"""What ``dcgmGetValuesSince_v2`` calls: entity group, entity, records, their number, nothing of ours."""

DOUBLE: Final = ord("d")
INTEGER: Final = ord("i")
TIMESTAMP: Final = ord("t")
STRING: Final = ord("s")

Blank = Literal["nothing", "unsupported", "permission"]
_BLANKS: Final[tuple[Blank, ...]] = ("nothing", "nothing", "unsupported", "permission")
"""Blank, not found, not supported, no permission: what each base value stands for, and the three above it."""
_INTEGERS: Final = (0x7FFFFFF0, 0x7FFFFFFFFFFFFFF0)
_DOUBLE: Final = 140737488355328.0
_TEXTS: Final[dict[str, Blank]] = {
    "<<<NULL>>>": "nothing",
    "<<<NOT_FOUND>>>": "nothing",
    "<<<NOT_SUPPORTED>>>": "unsupported",
    "<<<NOT_PERM>>>": "permission",
}


def blank(value: int | float | str) -> Blank | None:
    """Why a value is none; None for a value. A blank of 32 bits may stand in a field of 64."""
    if isinstance(value, str):
        return _TEXTS.get(value)
    if isinstance(value, float):
        return _kind(value - _DOUBLE)
    return next((found for base in _INTEGERS if (found := _kind(value - base)) is not None), None)


def _kind(above: int | float) -> Blank | None:
    return _BLANKS[int(above)] if above in (0, 1, 2, 3) else None


def structure(layout: tuple[int, int]) -> ctypes.Array[ctypes.c_char]:
    """A zeroed structure with its version word."""
    size, version = layout
    buffer = ctypes.create_string_buffer(size)
    struct.pack_into("=I", buffer, 0, version)
    return buffer


def text(buffer: Any, offset: int, size: int) -> str:
    """A text member; empty for DCGM's blanks."""
    found = bytes(memoryview(buffer)[offset : offset + size]).split(b"\0", 1)[0].decode("utf-8", "replace")
    return "" if blank(found) else found


def number(buffer: Any, offset: int) -> int | None:
    """A member of 32 bits; None for DCGM's blanks."""
    found: int = struct.unpack_from("=I", buffer, offset)[0]
    return None if blank(found) else found


def union(buffer: Any, offset: int, kind: int) -> int | float | str | None:
    """The value of a record by its type; None for a type that carries no number or text."""
    if kind in (INTEGER, TIMESTAMP):
        found: int = struct.unpack_from("=q", buffer, offset)[0]
        return found
    if kind == DOUBLE:
        real: float = struct.unpack_from("=d", buffer, offset)[0]
        return real
    if kind == STRING:
        raw = bytes(memoryview(buffer)[offset : offset + TEXT_SIZE])
        return raw.split(b"\0", 1)[0].decode("utf-8", "replace")
    return None
