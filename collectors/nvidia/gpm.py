"""GPM: profiling figures between two samples, on Hopper and newer."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from typing import Any, Final

from collectors.nvidia import codes
from collectors.nvidia.binding import NvmlFailure, call, structure

SHORTEST: Final = 0.1
"""Seconds between two samples that a metric needs (nvml.h)."""
_VERSION: Final = 1


def supported(handle: Any) -> bool:
    """Whether this GPU has GPM. Raises NvmlFailure."""
    try:
        return bool(call("nvmlGpmQueryDeviceSupport", handle).isSupportedDevice)
    except NvmlFailure as failure:
        if codes.judge(failure.code) in ("unsupported", "stale"):
            return False
        raise


class Sampler:
    """Keeps the last sample of one GPU or GPU instance. Never waits: the figures are of the time between two reads."""

    __slots__ = ("_gi", "_handle", "_previous", "_spare", "_taken_at")

    def __init__(self, handle: Any, gi: int | None) -> None:
        self._handle = handle
        self._gi = gi
        self._previous: Any = None
        self._spare: Any = None
        self._taken_at = 0.0

    def read(self, metrics: Sequence[int], now: float) -> tuple[dict[int, float], dict[int, int]]:
        """The metrics that have a value, and return codes of the others. Both empty at first.

        ``now`` is in seconds of a clock that only goes forward. Raises NvmlFailure.
        """
        if self._previous is not None and now - self._taken_at < SHORTEST:
            return {}, {}
        spare, self._spare = self._spare, None
        current = spare if spare is not None else call("nvmlGpmSampleAlloc")
        try:
            if self._gi is None:
                call("nvmlGpmSampleGet", self._handle, current)
            else:
                call("nvmlGpmMigSampleGet", self._handle, self._gi, current)
        except NvmlFailure:
            self._spare = current
            raise
        self._spare, self._previous, self._taken_at = self._previous, current, now
        if self._spare is None:
            return {}, {}
        found, failed = _metrics(self._spare, current, metrics)
        if not found and not failed:
            # After some errors of a workload all figures stay blank until sampling begins anew.
            self.close()
        return found, failed

    def close(self) -> None:
        """Free the samples. Never fails: those of a lost GPU go with the session."""
        samples, self._previous, self._spare = (self._previous, self._spare), None, None
        for sample in samples:
            if sample is not None:
                with contextlib.suppress(NvmlFailure):
                    call("nvmlGpmSampleFree", sample)


def _metrics(first: Any, second: Any, metrics: Sequence[int]) -> tuple[dict[int, float], dict[int, int]]:
    request = structure("c_nvmlGpmMetricsGet_t")
    request.version = _VERSION
    request.sample1, request.sample2 = first, second
    asked = metrics[: len(request.metrics)]
    request.numMetrics = len(asked)
    for position, metric in enumerate(asked):
        request.metrics[position].metricId = metric
    call("nvmlGpmMetricsGet", request)
    found: dict[int, float] = {}
    failed: dict[int, int] = {}
    for position, metric in enumerate(asked):
        answer = request.metrics[position]
        if answer.nvmlReturn != codes.SUCCESS:
            failed[metric] = int(answer.nvmlReturn)
        elif math.isfinite(answer.value):
            found[metric] = float(answer.value)
    return found, failed
