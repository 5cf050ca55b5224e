"""Which way the GPUs are read: through DCGM where its engine can be reached, else through NVML."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

import msgspec

from collectors.base import NODE, Collector, Device, Group, ReadError, Sample, Settings, Unavailable
from collectors.nvidia import open_nvml
from collectors.nvidia.dcgm.address import reachable

_LOOK_EVERY: Final = 60.0
"""Seconds between two looks whether nv-hostengine has come, while NVML is read."""
_LOOK_AFTER_REFUSAL: Final = 600.0
"""The same after one was there that could not be used."""
_NOT_HERE: Final = ("no_driver", "no_library", "no_device")


class BestWay:
    """The collector under ``source: auto``. One way at a time, so that no series is told twice."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._current: Collector | None = None
        self.source = ""
        """The way in use, once there is one."""
        self._next_look = 0.0
        self._notices: list[ReadError] = []
        self._told = False

    def discover(self) -> Sequence[Device]:
        """List what is there, by the best way that works. Raises Unavailable."""
        refused = None
        if self.source == "dcgm" or time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + _LOOK_EVERY
            if self._engine_is_there():
                try:
                    return self._by_dcgm()
                except Unavailable as error:
                    refused = error
                    self._next_look = time.monotonic() + _LOOK_AFTER_REFUSAL
                    self._tell(error)
        return self._by_nvml(refused)

    def sample(self, group: Group) -> Sample:
        """Read a group. Raises Unavailable when no way is open."""
        if self._current is None:
            raise Unavailable("no_driver", "the GPUs have not been discovered")
        sample = self._current.sample(group)
        errors, self._notices = (*self._notices, *sample.errors), []
        return msgspec.structs.replace(sample, errors=errors, rediscover=sample.rediscover or self._better_way())

    def close(self) -> None:
        """Let go of driver and engine."""
        current, self._current, self.source = self._current, None, ""
        if current is not None:
            current.close()

    def _engine_is_there(self) -> bool:
        options = self._settings.options
        return bool(options.get("dcgm_embedded", False)) or reachable(options) is not None

    def _tell(self, error: Unavailable) -> None:
        """Once, that an engine is there and NVML is read all the same."""
        if not self._told:
            self._told = True
            self._notices.append(ReadError(NODE, "library", f"NVML is read instead of DCGM: {error.hint}"))

    def _by_dcgm(self) -> Sequence[Device]:
        from collectors.nvidia.dcgm.collector import DcgmCollector

        known = self._current if self.source == "dcgm" else None
        dcgm = known or DcgmCollector(self._settings)
        try:
            devices = dcgm.discover()
        except BaseException:
            if known is None:
                dcgm.close()
            raise
        if known is None:
            self.close()
        self._current, self.source = dcgm, "dcgm"
        return devices

    def _by_nvml(self, refused: Unavailable | None) -> Sequence[Device]:
        if self.source != "nvml":
            self.close()
        try:
            nvml = self._current or open_nvml(self._settings)
            devices = nvml.discover()
        except Unavailable as error:
            self.close()
            if refused is not None and error.state in _NOT_HERE:
                # An engine that is there and of no use says more than a driver that is not.
                raise Unavailable(error.state, f"{error.hint}; {refused.hint}", restart=error.restart) from None
            raise
        self._current, self.source = nvml, "nvml"
        return devices

    def _better_way(self) -> bool:
        if self.source != "nvml" or time.monotonic() < self._next_look:
            return False
        if reachable(self._settings.options) is not None:
            return True
        self._next_look = time.monotonic() + _LOOK_EVERY
        return False
