"""The model of one device: how load becomes power, power becomes heat, heat becomes throttling, and what is counted."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Final

from collectors.simulated.load import Load, Workload, blend
from collectors.simulated.options import DeviceData
from collectors.simulated.trouble import SOUND, Course, Event, Trouble

_POWER_LAG: Final = 3.0
_HEAT_LAG: Final = 45.0
"""Seconds after which about two thirds of a change have happened."""
_STEP: Final = 1.0
_MOST_STEPS: Final = 300
_PCIE_LANE: Final = 0.25e9
"""Bytes a second of a lane of the first generation; each generation doubles it."""
_HBM: Final = 40.0
"""Bytes a second of memory bandwidth for each byte of memory: 3.2 TB/s for 80 GB."""
_REASONS: Final = ("power_cap", "thermal")


class Unit:
    """A whole device or a part: what works, and the memory it works in."""

    def __init__(self, board: Board, workload: Workload | None, memory_share: float, unit_share: float) -> None:
        data = board.data
        self.board = board
        self.workload = workload
        self.memory_share = memory_share
        self.share = unit_share
        self.load = Load()
        self.memory_total = data.memory_bytes * memory_share
        self.memory_reserved = data.reserved_memory_bytes * memory_share
        self.memory_used = 0.0
        self.compute_units = max(1, round(data.compute_units * unit_share))
        self.memory_read = 0.0
        self.memory_written = 0.0

    def work(self, load: Load, seconds: float) -> None:
        self.load = load
        self.memory_used = (self.memory_total - self.memory_reserved) * load.memory
        moved = load.bandwidth * self.bandwidth * seconds
        self.memory_read += 0.7 * moved
        self.memory_written += 0.3 * moved

    @property
    def bandwidth(self) -> float:
        return self.memory_total * _HBM


class Board:
    """A physical device. ``advance`` brings it to a later time; everything else only looks."""

    def __init__(self, data: DeviceData, rng: random.Random, workload: Workload, course: Course | None) -> None:
        self.data = data
        self.limit = data.power_limit_watts or data.max_watts
        self.course = course
        self.whole = Unit(self, workload, 1.0, 1.0)
        self.parts: list[Unit] = []
        self.time = 0.0
        self.trouble: Trouble = SOUND
        self.last_event: Event | None = None
        self.power = data.idle_watts
        self.celsius = data.idle_celsius
        self.throttled: dict[str, bool] = dict.fromkeys(_REASONS, False)
        self.throttled_seconds: dict[str, float] = dict.fromkeys(_REASONS, 0.0)
        # No two boards of a kind are quite alike.
        self.thirst = rng.uniform(0.97, 1.03)
        self.airflow = rng.uniform(0.95, 1.05)
        self.age = rng.uniform(1e6, 9e7)
        """Seconds of life before the start, for counters that outlive a driver."""
        self.uptime = rng.uniform(1e4, 2e6)
        """Seconds since the driver was loaded before the start, for those that do not."""
        self.energy = 0.5 * data.max_watts * self.uptime
        self.pcie_in = 0.03 * self.pcie_rate * self.uptime
        self.pcie_out = 0.02 * self.pcie_rate * self.uptime
        self.link_in = self.link_out = 0.2 * self.link_rate * self.uptime
        self._settle()

    def split(self, parts: Sequence[tuple[Workload, float, float]]) -> None:
        """Cut the device: workload, share of memory and share of compute units of each part."""
        self.parts = [Unit(self, workload, memory, units) for workload, memory, units in parts]
        self._settle()

    def _settle(self) -> None:
        """Begin as if the present load had been there for long."""
        self._work(0.0, 0.0)
        self.power = min(self._wanted_watts(), self.limit)
        self.celsius = self._target_celsius(self.power)

    def advance(self, now: float) -> list[Event]:
        """Go on to ``now`` (seconds since the start, never back) and tell which faults happened on the way."""
        span = now - self.time
        if span <= 0:
            return []
        events = self.course.between(self.time, now) if self.course else []
        steps = min(_MOST_STEPS, math.ceil(span / _STEP))
        for _ in range(steps):
            self._step(span / steps)
        self.time = now
        self._work(now, 0.0)
        if events:
            self.last_event = events[-1]
        return events

    def _step(self, seconds: float) -> None:
        self._work(self.time + seconds / 2, seconds)
        self._draw(seconds)
        self.pcie_in += self.whole.load.pcie_in * self.pcie_rate * seconds
        self.pcie_out += self.whole.load.pcie_out * self.pcie_rate * seconds
        self.link_in += self.whole.load.link * self.link_rate * seconds
        self.link_out += self.whole.load.link * self.link_rate * 0.98 * seconds
        self.time += seconds

    def _work(self, t: float, seconds: float) -> None:
        self.trouble = self.course.at(t) if self.course else SOUND
        units = self.parts or [self.whole]
        loads = []
        for unit in units:
            load = Load() if self.trouble.hung or unit.workload is None else unit.workload.at(t)
            unit.work(load, seconds)
            loads.append(load)
        if self.parts:
            whole = blend([(unit.share, load) for unit, load in zip(units, loads, strict=True)])
            self.whole.work(whole, seconds)
            self.whole.memory_used = sum(unit.memory_used for unit in units)

    def _draw(self, seconds: float) -> None:
        """Power and temperature after ``seconds`` of this load, exactly as the lags say, and the energy between."""
        wanted = self._wanted_watts()
        target = min(wanted, self.limit)
        left = math.exp(-seconds / _POWER_LAG)
        energy = target * seconds + (self.power - target) * _POWER_LAG * (1 - left)
        self.power = target + (self.power - target) * left
        self.energy += energy
        self._heat(energy / seconds, seconds)
        self.throttled["power_cap"] = wanted > self.limit
        margin = self.data.slowdown_celsius - self.celsius
        self.throttled["thermal"] = margin < 4.0 if self.throttled["thermal"] else margin < 1.0
        for reason, active in self.throttled.items():
            self.throttled_seconds[reason] += seconds * active

    def _heat(self, watts: float, seconds: float) -> None:
        target = self._target_celsius(watts)
        self.celsius = target + (self.celsius - target) * math.exp(-seconds / _HEAT_LAG)

    def _wanted_watts(self) -> float:
        """What the load would draw if no limit stopped it."""
        data, load = self.data, self.whole.load
        effort = 0.12 * load.utilization + 0.48 * load.compute + 0.32 * load.matrix + 0.25 * load.bandwidth
        wanted = (data.max_watts - data.idle_watts) * effort * self.thirst
        return data.idle_watts + (0.7 * wanted if self.throttled["thermal"] else wanted)

    def _target_celsius(self, watts: float) -> float:
        """Where the temperature ends if the power stays."""
        data = self.data
        exertion = max(0.0, (watts - data.idle_watts) / (data.max_watts - data.idle_watts))
        rise = (data.max_celsius - data.idle_celsius) * exertion * self.airflow
        if self.trouble.hot:
            rise += (data.shutdown_celsius - data.idle_celsius) * 0.75 * exertion
        return min(data.idle_celsius + rise, data.shutdown_celsius - 1.0)

    @property
    def pcie_rate(self) -> float:
        """Bytes a second that the slot carries in each direction."""
        return _PCIE_LANE * float(2 ** (self.data.pcie_generation - 1)) * self.data.pcie_width

    @property
    def link_rate(self) -> float:
        return self.data.link_bytes_per_second * self.data.links

    @property
    def exertion(self) -> float:
        """Power above idle, as a share of the most."""
        return max(0.0, (self.power - self.data.idle_watts) / (self.data.max_watts - self.data.idle_watts))

    @property
    def clock_mhz(self) -> float:
        clocks = self.data.core_clock_mhz
        if self.whole.load.utilization <= 0:
            return clocks.min
        slowed = 0.62 if self.throttled["thermal"] else 0.93 if self.throttled["power_cap"] else 1.0
        return max(clocks.min, clocks.max * slowed * (1 - 0.05 * self.exertion))
