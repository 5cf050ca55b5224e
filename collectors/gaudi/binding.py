"""HLML by ctypes. Function names, enumerations and layouts are those of hlml.h; HLML has no versioned symbols.

Its structs grew from release to release (pci_info 52, 76, 80, 84 bytes; utilization 4, 8). So every result goes into a
zeroed buffer that is larger than any of them, and only fields are used that stand at the same place in all: the bus id
of pci_info at 4, the utilization at 0. Nothing is known of two threads in HLML, so there must be one.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final

from collectors.gaudi.failure import ALREADY_INITIALIZED, NOT_SUPPORTED, SUCCESS, TIMEOUT, HlmlFailure

USUAL_PATH: Final = "/usr/lib/habanalabs/libhlml.so"
_ROOM: Final = 512
"""Bytes for a result, whatever its type. The largest struct of a known release has 84."""
_COUNTERS: Final = 512
"""Counters of a port that there is room for; known releases have at most 256, each with a name of 32 bytes."""
_NAME_BYTES: Final = 32
_BUS_ID: Final = slice(4, 23)
_MASK: Final = (1 << 64) - 1

NEEDED: Final = ("hlml_init", "hlml_shutdown", "hlml_device_get_count", "hlml_device_get_handle_by_index")
"""Without these a library is no HLML that can be used."""

Handle = int


class Library:
    """A loaded libhlml.so."""

    def __init__(self, path: str) -> None:
        """Raises OSError when the loader does not find it or cannot link it."""
        self._library = ctypes.CDLL(path)

    def lacks(self) -> list[str]:
        """Needed functions that the library does not export."""
        return [name for name in NEEDED if not hasattr(self._library, name)]

    def call(self, function: str, *arguments: Any) -> None:
        """Raises HlmlFailure; a function that this release lacks is 'not supported'."""
        symbol = getattr(self._library, function, None)
        if symbol is None:
            raise HlmlFailure(NOT_SUPPORTED, function)
        code = symbol(*arguments)
        if code != SUCCESS:
            raise HlmlFailure(code, function)

    def start(self) -> None:
        """Raises HlmlFailure."""
        try:
            self.call("hlml_init")
        except HlmlFailure as failure:
            if failure.code != ALREADY_INITIALIZED:
                raise

    def stop(self) -> None:
        """Raises HlmlFailure."""
        self.call("hlml_shutdown")

    def count(self) -> int:
        return self._filled("hlml_device_get_count", (), "<I")[0]

    def handle(self, index: int) -> Handle:
        return self._filled("hlml_device_get_handle_by_index", (ctypes.c_uint(index),), "<Q")[0]

    def number(self, function: str, handle: Handle, *arguments: int) -> int:
        """A function whose last parameter is ``unsigned *``."""
        return self._filled(function, _arguments(handle, arguments), "<I")[0]

    def wide(self, function: str, handle: Handle, *arguments: int) -> int:
        """A function whose last parameter is ``unsigned long long *``."""
        return self._filled(function, _arguments(handle, arguments), "<Q")[0]

    def pair(self, function: str, handle: Handle) -> tuple[int, int]:
        """A function whose last two parameters are ``unsigned *``."""
        first, second = _buffer(), _buffer()
        self.call(function, ctypes.c_void_p(handle), first, second)
        return int.from_bytes(first.raw[:4], "little"), int.from_bytes(second.raw[:4], "little")

    def text(self, function: str, handle: Handle | None, size: int) -> str:
        """A function that fills ``char[size]``; without a handle, one of the library itself."""
        buffer = _buffer()
        device = () if handle is None else (ctypes.c_void_p(handle),)
        self.call(function, *device, buffer, ctypes.c_uint(size))
        return _text(buffer.raw)

    def bus_id(self, handle: Handle) -> str:
        """PCI address as pci_info has it: 15 bytes up to 1.18, 19 since, both ended by NUL."""
        buffer = _buffer()
        self.call("hlml_device_get_pci_info", ctypes.c_void_p(handle), buffer)
        return _text(buffer.raw[_BUS_ID])

    def memory(self, handle: Handle) -> tuple[int, int]:
        """Total and used bytes."""
        _, total, used = self._filled("hlml_device_get_memory_info", _arguments(handle, ()), "<QQQ")
        return total, used

    def violation(self, handle: Handle, policy: int) -> int:
        """Time for which a policy held the clocks down: the second field of hlml_violation_time."""
        arguments = _arguments(handle, (policy,))
        return self._filled("hlml_device_get_violation_status", arguments, "<QQ")[1]

    def replaced_rows(self, handle: Handle, cause: int) -> int:
        """How many rows were replaced. Without room for addresses HLML gives the count alone."""
        buffer = _buffer()
        self.call("hlml_device_get_replaced_rows", ctypes.c_void_p(handle), ctypes.c_int(cause), buffer, None)
        return int.from_bytes(buffer.raw[:4], "little")

    def ports(self, handle: Handle) -> tuple[int, int]:
        """Bit masks of the ports that there are, and of those that lead out of the chassis. Two words each."""
        mask, external = _buffer(), _buffer()
        self.call("hlml_get_mac_addr_info", ctypes.c_void_p(handle), mask, external)
        return int.from_bytes(mask.raw[:16], "little"), int.from_bytes(external.raw[:16], "little")

    def link(self, handle: Handle, port: int) -> bool:
        buffer = _buffer()
        self.call("hlml_nic_get_link", ctypes.c_void_p(handle), ctypes.c_uint32(port), buffer)
        return buffer.raw[0] != 0

    def statistics(self, handle: Handle, port: int) -> Mapping[str, int]:
        """The counters of a port by their names (hlml_nic_stats_info)."""
        names = ctypes.create_string_buffer(_COUNTERS * _NAME_BYTES)
        values = (ctypes.c_uint64 * _COUNTERS)()
        count = _buffer()
        addresses = (ctypes.addressof(names), ctypes.addressof(values), ctypes.addressof(count))
        info = ctypes.create_string_buffer(struct.pack("<I4xQQQ", port, *addresses), _ROOM)
        self.call("hlml_nic_get_statistics", ctypes.c_void_p(handle), info)
        found = min(int.from_bytes(count.raw[:4], "little"), _COUNTERS)
        return {_text(names.raw[i * _NAME_BYTES : (i + 1) * _NAME_BYTES]): values[i] for i in range(found)}

    def event_set(self, handles: Sequence[Handle], mask: int) -> Handle:
        """An event set that gets these events of these devices. Raises HlmlFailure; a set is then freed again."""
        found = self._filled("hlml_event_set_create", (), "<Q")[0]
        try:
            for handle in handles:
                device, events = ctypes.c_void_p(handle), ctypes.c_uint64(mask)
                self.call("hlml_device_register_events", device, events, ctypes.c_void_p(found))
        except HlmlFailure:
            self.free(found)
            raise
        return found

    def free(self, event_set: Handle) -> None:
        self.call("hlml_event_set_free", ctypes.c_void_p(event_set))

    def event(self, event_set: Handle, milliseconds: int) -> tuple[Handle, int] | None:
        """Device and bits of the next event; None if none comes in time."""
        arguments = (ctypes.c_void_p(event_set),)
        buffer = _buffer()
        try:
            self.call("hlml_event_set_wait", *arguments, buffer, ctypes.c_uint(milliseconds))
        except HlmlFailure as failure:
            if failure.code == TIMEOUT:
                return None
            raise
        device, bits = struct.unpack_from("<QQ", buffer.raw)
        return device, bits & _MASK

    def _filled(self, function: str, arguments: Sequence[Any], layout: str) -> tuple[int, ...]:
        buffer = _buffer()
        self.call(function, *arguments, buffer)
        return struct.unpack_from(layout, buffer.raw)


def _buffer() -> ctypes.Array[ctypes.c_char]:
    return ctypes.create_string_buffer(_ROOM)


def _arguments(handle: Handle, numbers: Sequence[int]) -> tuple[Any, ...]:
    return (ctypes.c_void_p(handle), *(ctypes.c_int(number) for number in numbers))


def _text(raw: bytes) -> str:
    """Up to the first NUL; bytes that are no text become U+FFFD, and what cannot be printed is left out."""
    found = raw.split(b"\0", 1)[0].decode("utf-8", "replace")
    return "".join(character for character in found if character.isprintable()).strip()
