"""The one place where nvidia-ml-py is called: its errors become NvmlFailure with a plain return code.

The binding's own exceptions are unhashable, ask the library for their text when printed, and are mixed with a foreign
type for missing symbols; none of them leaves this module.
"""

from __future__ import annotations

from typing import Any

import pynvml

from collectors.nvidia import codes

_MISMATCH: type[Exception] = getattr(pynvml, "NVMLLibraryMismatchError", pynvml.NVMLError)
"""Raised for a missing unversioned process symbol: a plain Exception, not an NVMLError."""


class NvmlFailure(Exception):
    """A call gave a return code other than 0."""

    def __init__(self, code: int, call: str) -> None:
        super().__init__(f"{call}: {codes.name(code)}")
        self.code = code
        self.call = call


def call(name: str, *arguments: Any) -> Any:
    """Call a function of the binding. Raises NvmlFailure, with 13 where binding or driver lack the function.

    Text that is no UTF-8 comes back with U+FFFD for the bad bytes: one odd board name must not cost the device.
    """
    function = getattr(pynvml, name, None)
    if function is None:
        raise NvmlFailure(codes.FUNCTION_NOT_FOUND, name)
    try:
        return function(*arguments)
    except pynvml.NVMLError as error:
        raise NvmlFailure(int(error.value), name) from None
    except _MISMATCH:
        raise NvmlFailure(codes.FUNCTION_NOT_FOUND, name) from None
    except UnicodeDecodeError as error:
        return error.object.decode("utf-8", "replace")


def structure(name: str) -> Any:
    """A fresh structure of the binding. Raises NvmlFailure with 13 where this version of the binding has none."""
    kind = getattr(pynvml, name, None)
    if kind is None:
        raise NvmlFailure(codes.FUNCTION_NOT_FOUND, name)
    return kind()


def symbol(name: str) -> Any:
    """A function of the loaded library itself, for ctypes. Raises NvmlFailure with 13 where the library has none."""
    function = getattr(getattr(pynvml, "nvmlLib", None), name, None)
    if function is None:
        raise NvmlFailure(codes.FUNCTION_NOT_FOUND, name)
    return function


def has_symbol(name: str) -> bool:
    """Whether the loaded library exports a symbol."""
    return hasattr(getattr(pynvml, "nvmlLib", None), name)


def text(name: str, *arguments: Any) -> str:
    """A text that the device may lack: empty then. Raises NvmlFailure for a lost device or driver alone."""
    try:
        return str(call(name, *arguments))
    except NvmlFailure as failure:
        if codes.judge(failure.code) in ("lost", "gone"):
            raise
        return ""


def number(name: str, *arguments: Any) -> int | None:
    """A number that the device may lack. Raises NvmlFailure only for a lost device or a driver that is gone."""
    try:
        return int(call(name, *arguments))
    except NvmlFailure as failure:
        if codes.judge(failure.code) in ("lost", "gone"):
            raise
        return None
