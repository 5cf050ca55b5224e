"""What can go wrong with one question to one device, and what it means."""

from __future__ import annotations

import errno
from typing import Final, Literal

Verdict = Literal["unsupported", "nothing", "permission", "transient", "timeout", "lost", "gone"]
"""unsupported: never ask this device again; nothing: no value now; permission: told once, then never asked again;
lost: the device does not answer; gone: the driver does not; transient and timeout: told each time."""

SUCCESS: Final = 0
NOT_SUPPORTED: Final = 3
ALREADY_INITIALIZED: Final = 5
DRIVER_NOT_LOADED: Final = 9
TIMEOUT: Final = 10

_NAMES: Final[dict[int, str]] = {
    1: "not initialised",
    2: "invalid argument",
    3: "not supported",
    5: "already initialised",
    6: "not found",
    7: "insufficient size",
    9: "driver not loaded",
    10: "timeout",
    15: "device is lost",
    20: "out of memory",
    21: "no data",
    49: "unknown error",
}
"""``hlml_return_t`` of hlml.h."""

# A bad argument and a quantity that another release has look the same: neither is asked for again.
_VERDICTS: Final[dict[int, Verdict]] = {
    1: "gone",
    2: "unsupported",
    3: "unsupported",
    6: "nothing",
    7: "unsupported",
    9: "gone",
    10: "timeout",
    15: "lost",
    21: "nothing",
}


class Failure(Exception):
    """A question that got no answer."""

    def __init__(self, verdict: Verdict, detail: str) -> None:
        super().__init__(detail)
        self.verdict: Verdict = verdict
        self.detail = detail


class HlmlFailure(Failure):
    """A function of HLML gave a return code other than 0."""

    def __init__(self, code: int, function: str) -> None:
        super().__init__(_VERDICTS.get(code, "transient"), f"{function}: {_NAMES.get(code, 'unlisted error')} ({code})")
        self.code = code


def of_file(error: OSError, what: str) -> Failure:
    """What it means that a file of sysfs cannot be read. ENODEV: the driver refuses while the device is in a reset."""
    verdict: Verdict = "transient"
    if isinstance(error, FileNotFoundError) or error.errno in (errno.EOPNOTSUPP, errno.ENOTDIR):
        verdict = "unsupported"
    elif isinstance(error, PermissionError):
        verdict = "permission"
    elif error.errno == errno.ENODEV:
        verdict = "nothing"
    return Failure(verdict, f"{what}: {error.strerror or error}")
