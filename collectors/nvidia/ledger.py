"""What each device does not offer, and the errors of the current sample."""

from __future__ import annotations

from typing import Final

from collectors.base import ReadError
from collectors.nvidia import codes
from collectors.nvidia.binding import NvmlFailure

_MOST_ERRORS: Final = 100
"""In one sample: a GPU that fails in everything must not flood the log."""


class DeviceLostError(Exception):
    """The device answers no more (return codes 15 and 16)."""


class DriverGoneError(Exception):
    """NVML as a whole is gone (return codes 1, 9 and 18)."""

    def __init__(self, code: int) -> None:
        super().__init__(codes.name(code))
        self.code = code


class Ledger:
    """Judges failures. Kept from one discovery to the next, so that an unsupported quantity is asked once."""

    __slots__ = ("_errors", "_skipped", "stale")

    def __init__(self) -> None:
        self._skipped: set[tuple[int, object]] = set()
        self._errors: list[ReadError] = []
        self.stale = False
        """A handle was not valid: the devices may have changed."""

    def skips(self, position: int, quantity: object) -> bool:
        """Whether the device is known not to give the quantity."""
        return (position, quantity) in self._skipped

    def skip(self, position: int, quantity: object) -> None:
        """Never ask again, until the next discovery."""
        self._skipped.add((position, quantity))

    def failed(self, position: int, quantity: object, failure: NvmlFailure) -> bool:
        """Judge a failure; True means that the device does not offer the quantity, so another way may be tried.

        Raises DeviceLostError, DriverGoneError.
        """
        verdict = codes.judge(failure.code)
        if verdict == "lost":
            raise DeviceLostError
        if verdict == "gone":
            raise DriverGoneError(failure.code)
        if verdict == "unsupported":
            self.skip(position, quantity)
            return True
        if verdict == "permission":
            self.skip(position, quantity)
            self.report(position, "permission", str(failure))
        elif verdict == "stale":
            # An argument that this driver does not know looks the same as a handle that is gone: ask no more until the
            # next discovery, and let the collector look whether one is needed.
            self.skip(position, quantity)
            self.stale = True
            return True
        elif failure.code == codes.NOT_FOUND:
            # No value now; or a MIG instance that is there no more.
            self.stale = True
        elif verdict == "transient":
            self.report(position, "transient", str(failure))
        return False

    def report(self, position: int, kind: str, detail: str) -> None:
        """Add an error to the current sample."""
        if len(self._errors) < _MOST_ERRORS:
            self._errors.append(ReadError(position, kind, detail))

    def take_errors(self) -> tuple[ReadError, ...]:
        """The errors since the last call."""
        errors, self._errors = tuple(self._errors), []
        return errors
