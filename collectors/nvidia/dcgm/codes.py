"""DCGM return codes (``dcgmReturn_t`` in dcgm_structs.h) and what each means to the collector."""

from __future__ import annotations

from typing import Final, Literal

Verdict = Literal["unsupported", "permission", "nothing", "transient", "timeout", "lost", "gone", "mismatch"]

OK: Final = 0
BAD_PARAMETER: Final = -1
GENERIC: Final = -3
NOT_SUPPORTED: Final = -6
VERSION_MISMATCH: Final = -12
FUNCTION_NOT_FOUND: Final = -20
TOO_SMALL: Final = -31
LOST: Final = -18
MODULE_NOT_LOADED: Final = -33
IN_USE: Final = -34
SEVERAL_PASSES: Final = -38
NOT_WATCHED: Final = -16
NO_PERMISSION: Final = -17
NEEDS_ROOT: Final = -29
PAUSED: Final = -54

_NAMES: Final[dict[int, str]] = {
    -1: "bad parameter",
    -3: "error without a reason",
    -5: "not configured",
    -6: "not supported",
    -7: "initialization error",
    -8: "NVML error",
    -10: "not initialized",
    -11: "timeout",
    -12: "structure version not supported",
    -13: "unknown field",
    -14: "no data",
    -15: "stale",
    -16: "not watched",
    -17: "no permission",
    -18: "GPU is lost",
    -19: "reset required",
    -20: "function not found: the engine is older than the library",
    -21: "connection not valid",
    -22: "GPU not supported",
    -23: "the GPUs are not alike",
    -24: "limit reached",
    -26: "name in use",
    -29: "needs root",
    -31: "too small",
    -33: "module not loaded",
    -34: "in use by another program",
    -36: "profiling not supported",
    -37: "error of the profiling library",
    -38: "the metrics need several passes",
    -44: "driver too old",
    -54: "profiling is paused",
    -56: "NVML is not loaded",
    -57: "the driver does not answer in time",
    -67: "GPUs are detached",
}

_VERDICTS: Final[dict[int, Verdict]] = {
    -6: "unsupported",
    -10: "gone",
    -11: "timeout",
    -12: "mismatch",
    -13: "unsupported",
    -14: "nothing",
    -15: "nothing",
    -16: "nothing",
    -17: "permission",
    -18: "lost",
    -19: "lost",
    -20: "mismatch",
    -21: "gone",
    -22: "unsupported",
    -29: "permission",
    -33: "unsupported",
    -36: "unsupported",
    -57: "timeout",
    -67: "lost",
}


def judge(code: int) -> Verdict:
    """What to do about a code.

    unsupported: no such quantity here; permission: report once; nothing: no value now; lost: the device is gone; gone:
    the connection is; mismatch: engine and library do not understand each other; timeout: told each time; transient:
    all else, told each time.
    """
    return _VERDICTS.get(code, "transient")


def name(code: int) -> str:
    """The code for people."""
    return f"{_NAMES.get(code, 'unlisted error')} ({code})"


class DcgmFailure(Exception):
    """A call gave a return code other than 0."""

    def __init__(self, code: int, call: str) -> None:
        super().__init__(f"{call}: {name(code)}")
        self.code = code
        self.call = call
