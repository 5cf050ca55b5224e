"""Reads one GPU by a plan."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any, Final

from collectors.base import Group, Reading
from collectors.nvidia import fields, gpm
from collectors.nvidia.binding import NvmlFailure, call
from collectors.nvidia.inventory import Gpu
from collectors.nvidia.ledger import Ledger
from collectors.nvidia.plan import Plan, Shared
from collectors.nvidia.rates import Rates
from collectors.nvidia.readings import emit
from collectors.nvidia.sources import Call, Gpm, Number, Rate, Way

Metrics = tuple[tuple[str, Gpm], ...]
_GPM: Final = "gpm"


class Reader:
    """The state between samples: what devices lack, last counters, last GPM samples. One a discovery."""

    __slots__ = ("_answers", "_gpm", "_rates", "_samplers", "ledger")

    def __init__(self) -> None:
        self.ledger = Ledger()
        self._rates = Rates()
        self._answers: dict[tuple[int, tuple[Way, ...]], Any] = {}
        self._gpm: dict[int, bool] = {}
        self._samplers: dict[tuple[int, Group], gpm.Sampler] = {}

    def read(self, gpu: Gpu, plan: Plan, group: Group, now: float) -> list[Reading]:
        """Every series of the plan that the GPU gives. Raises DeviceLostError, DriverGoneError."""
        out: list[Reading] = []
        self._answers.clear()
        for shared in plan.device_calls:
            self._call(gpu.position, gpu.handle, shared, gpu.rows, out)
        for position, handle in _levels(gpu):
            for shared in plan.part_calls:
                self._call(position, handle, shared, (position,), out)
        for series, spread in plan.spreads:
            answer = self.ask(gpu.position, gpu.handle, spread.ways)
            for value, number in spread.pick(answer) if answer is not None else ():
                emit(out, series, gpu.rows, number, ((spread.label, value),))
        self._fields(gpu, plan, now, out)
        if plan.device_gpm or plan.part_gpm or plan.fallbacks:
            self._profiling(gpu, plan, group, now, out)
        return out

    def prime(self, gpu: Gpu, plan: Plan, group: Group, now: float) -> None:
        """Take the first GPM samples, so that the first read has something to compare with."""
        if plan.device_gpm or plan.part_gpm or plan.fallbacks:
            self._profiling(gpu, plan, group, now, [])

    def settle(self) -> None:
        """Wait until the first GPM samples are old enough to be compared with.

        What feeds a common series is chosen at the first read and stays: a ratio that came later would not be chosen.
        """
        if self._samplers:
            time.sleep(gpm.SHORTEST)

    def ask(self, position: int, handle: Any, ways: tuple[Way, ...]) -> Any:
        """The answer of the first way that the device knows; None if there is none. Asked once in each read."""
        key = (position, ways)
        if key not in self._answers:
            self._answers[key] = self._ask(position, handle, ways)
        return self._answers[key]

    def _ask(self, position: int, handle: Any, ways: tuple[Way, ...]) -> Any:
        for way in ways:
            if self.ledger.skips(position, way):
                continue
            function, arguments = way
            try:
                if isinstance(function, str):
                    return call(function, handle, *arguments)
                return function(handle, *arguments)
            except NvmlFailure as failure:
                if not self.ledger.failed(position, way, failure):
                    return None
        return None

    def close(self) -> None:
        """Free the GPM samples."""
        samplers, self._samplers = self._samplers, {}
        for sampler in samplers.values():
            sampler.close()

    def _call(self, position: int, handle: Any, shared: Shared, rows: Iterable[int], out: list[Reading]) -> None:
        answer = self.ask(position, handle, shared.ways)
        if answer is not None:
            for series, pick in shared.outputs:
                emit(out, series, rows, pick(answer))

    def _fallback(self, gpu: Gpu, series: str, fallback: Call, out: list[Reading]) -> None:
        answer = self.ask(gpu.position, gpu.handle, fallback.ways)
        if answer is not None:
            emit(out, series, gpu.rows, fallback.pick(answer))

    def _fields(self, gpu: Gpu, plan: Plan, now: float, out: list[Reading]) -> None:
        values = fields.read(gpu.handle, gpu.position, plan.batches, self.ledger)
        for series, field in plan.fields:
            key = (field.id, field.scope)
            value = values.get(key)
            if value is not None:
                emit(out, series, gpu.rows, field.pick(value) if field.pick else int(value))
            elif field.fallback is not None and self.ledger.skips(gpu.position, key):
                self._fallback(gpu, series, field.fallback, out)
        for series, rate in plan.rates:
            self._rate(gpu, series, rate, values, now, out)

    def _rate(
        self, gpu: Gpu, series: str, rate: Rate, values: dict[fields.Key, Number], now: float, out: list[Reading]
    ) -> None:
        keys = [(field.id, field.scope) for field in rate.fields]
        if all(key in values and values[key] >= rate.least for key in keys):
            found = self._rates.per_second((gpu.position, series), sum(int(values[key]) for key in keys), now)
            if found is not None:
                emit(out, series, gpu.rows, rate.finish(found))
        elif rate.fallback is not None and any(
            values[key] < rate.least if key in values else self.ledger.skips(gpu.position, key) for key in keys
        ):
            self._fallback(gpu, series, rate.fallback, out)

    def _profiling(self, gpu: Gpu, plan: Plan, group: Group, now: float, out: list[Reading]) -> None:
        for position, gi, metrics in _targets(gpu, plan):
            if metrics and self._has_gpm(gpu) and not self.ledger.skips(position, _GPM):
                rows = gpu.rows if position == gpu.position else (position,)
                self._sample(gpu, position, gi, group, metrics, rows, now, out)
        lacking = [(series, rate) for series, source, rate in plan.fallbacks if not self._gives(gpu, source)]
        if lacking:
            values = fields.read(gpu.handle, gpu.position, plan.fallback_batches, self.ledger)
            for series, rate in lacking:
                self._rate(gpu, series, rate, values, now, out)

    def _sample(
        self,
        gpu: Gpu,
        position: int,
        gi: int | None,
        group: Group,
        metrics: Metrics,
        rows: Sequence[int],
        now: float,
        out: list[Reading],
    ) -> None:
        sampler = self._samplers.get((position, group))
        if sampler is None:
            sampler = self._samplers[position, group] = gpm.Sampler(gpu.handle, gi)
        ids = [source.id for _, source in metrics if not self.ledger.skips(position, (_GPM, source.id))]
        try:
            found, failed = sampler.read(list(dict.fromkeys(ids)), now)
        except NvmlFailure as failure:
            self.ledger.failed(position, _GPM, failure)
            return
        for metric, code in failed.items():
            self.ledger.failed(position, (_GPM, metric), NvmlFailure(code, f"GPM metric {metric}"))
        for series, source in metrics:
            if source.id in found:
                emit(out, series, rows, source.finish(found[source.id]))

    def _has_gpm(self, gpu: Gpu) -> bool:
        known = self._gpm.get(gpu.position)
        if known is None:
            try:
                known = gpm.supported(gpu.handle)
            except NvmlFailure as failure:
                self.ledger.failed(gpu.position, "nvmlGpmQueryDeviceSupport", failure)
                return False
            self._gpm[gpu.position] = known
        return known

    def _gives(self, gpu: Gpu, source: Gpm) -> bool:
        position = gpu.position
        lacks = self.ledger.skips(position, _GPM) or self.ledger.skips(position, (_GPM, source.id))
        return not lacks and self._has_gpm(gpu)


def _levels(gpu: Gpu) -> list[tuple[int, Any]]:
    """Position and handle of what has memory of its own: the instances, else the GPU."""
    return [(part.position, part.handle) for part in gpu.instances] or [(gpu.position, gpu.handle)]


def _targets(gpu: Gpu, plan: Plan) -> list[tuple[int, int | None, Metrics]]:
    """Position, GPU instance and metrics of what is sampled; without instances one sample serves both levels."""
    if not gpu.instances:
        return [(gpu.position, None, plan.device_gpm + plan.part_gpm)]
    return [
        (gpu.position, None, plan.device_gpm),
        *((part.position, part.gi, plan.part_gpm) for part in gpu.instances),
    ]
