"""NVML return codes (``nvmlReturn_t`` in nvml.h) and what each means to the collector."""

from __future__ import annotations

from typing import Final, Literal

Verdict = Literal["unsupported", "permission", "nothing", "transient", "lost", "gone", "stale"]

SUCCESS: Final = 0
INVALID_ARGUMENT: Final = 2
NO_PERMISSION: Final = 4
NOT_FOUND: Final = 6
DRIVER_NOT_LOADED: Final = 9
LIBRARY_NOT_FOUND: Final = 12
FUNCTION_NOT_FOUND: Final = 13
VERSION_MISMATCH: Final = 18

_NAMES: Final[dict[int, str]] = {
    0: "success",
    1: "not initialised",
    2: "invalid argument",
    3: "not supported",
    4: "no permission",
    6: "not found",
    7: "insufficient size",
    8: "insufficient power",
    9: "driver not loaded",
    10: "timeout",
    11: "interrupt problem",
    12: "library not found",
    13: "function not found",
    14: "corrupted inforom",
    15: "GPU is lost",
    16: "reset required",
    17: "blocked by the operating system",
    18: "library and driver versions differ",
    19: "in use",
    20: "out of memory",
    21: "no data",
    22: "ECC not supported with vGPU",
    23: "insufficient resources",
    24: "frequency not supported",
    25: "structure version not supported",
    26: "deprecated",
    27: "not ready",
    28: "GPU not found",
    29: "invalid state",
    999: "unknown error",
}

_VERDICTS: Final[dict[int, Verdict]] = {
    1: "gone",
    2: "stale",
    3: "unsupported",
    4: "permission",
    6: "nothing",
    9: "gone",
    13: "unsupported",
    15: "lost",
    16: "lost",
    18: "gone",
    21: "nothing",
    22: "unsupported",
    25: "unsupported",
    26: "unsupported",
    27: "nothing",
    28: "stale",
}


def judge(code: int) -> Verdict:
    """What to do about a code.

    unsupported: never ask this device again; permission: report once; nothing: no value now; lost: the device is gone;
    gone: the driver is gone; stale: a handle or an argument is not valid; transient: all else, told each time.
    """
    return _VERDICTS.get(code, "transient")


def name(code: int) -> str:
    """The code for people."""
    return f"{_NAMES.get(code, 'unlisted error')} ({code})"
