"""What a workload asks of a device at a moment: closed formulas of time, so that no history is needed."""

from __future__ import annotations

import math
import random
from typing import Final

import msgspec

from collectors.simulated.options import Scenario

_TURN: Final = 2 * math.pi
_CHECKPOINT_EVERY: Final = 420.0
_CHECKPOINT_FOR: Final = 18.0
_LOADING_FOR: Final = 30.0
"""Seconds, as are the two above."""


class Load(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Ratios from 0 to 1. utilization >= compute >= matrix always."""

    utilization: float = 0.0
    compute: float = 0.0
    matrix: float = 0.0
    bandwidth: float = 0.0
    memory: float = 0.0
    """Of the memory that workloads can have."""
    link: float = 0.0
    """Of the links' capacity."""
    pcie_in: float = 0.0
    pcie_out: float = 0.0
    media: float = 0.0


class Wander:
    """A smooth course between -1 and 1 that repeats for no one to see: three sines of unlike periods."""

    __slots__ = ("_phases", "_rates")

    def __init__(self, rng: random.Random, fastest: float) -> None:
        self._phases = tuple(rng.uniform(0, _TURN) for _ in range(3))
        self._rates = tuple(_TURN / (fastest * stretch * rng.uniform(0.8, 1.25)) for stretch in (1.0, 2.7, 7.3))

    def at(self, t: float) -> float:
        (a, b, c), (x, y, z) = self._rates, self._phases
        return 0.5 * math.sin(a * t + x) + 0.3 * math.sin(b * t + y) + 0.2 * math.sin(c * t + z)


class Workload:
    """One workload's course over time."""

    def __init__(self, scenario: Scenario, rng: random.Random) -> None:
        self.scenario = scenario
        self._slow = Wander(rng, 40.0)
        self._fast = Wander(rng, 6.0)
        self._other = Wander(rng, 17.0)
        self._phase = rng.uniform(0, _TURN)
        self._size = rng.uniform(0.86, 0.95)
        self._length = rng.uniform(2700.0, 7200.0)
        self._elapsed = rng.uniform(2 * _LOADING_FOR, self._length / 2)
        """Of the job that runs at the start: a node is rarely met while its jobs begin."""

    def at(self, t: float) -> Load:
        if self.scenario == "idle":
            return Load(memory=0.004)
        return self._inference(t) if self.scenario == "inference" else self._training(t)

    def _training(self, t: float) -> Load:
        """One job after the other: loads its data, then keeps the device busy but for a checkpoint now and then."""
        since = (t + self._elapsed) % self._length
        if since < _LOADING_FOR:
            filled = self._size * since / _LOADING_FOR
            return Load(utilization=0.12, compute=0.02, matrix=0.004, memory=filled, pcie_in=0.6)
        into = (t + self._phase / _TURN * _CHECKPOINT_EVERY) % _CHECKPOINT_EVERY
        slow, fast, other = self._slow.at(t), self._fast.at(t), self._other.at(t)
        if into < _CHECKPOINT_FOR:
            busy = 0.06 + 0.02 * fast
            return Load(
                utilization=busy,
                compute=0.3 * busy,
                matrix=0.02 * busy,
                bandwidth=0.05,
                memory=self._size,
                pcie_out=0.7,
            )
        utilization = 0.985 + 0.012 * fast
        compute = utilization * (0.82 + 0.07 * slow + 0.02 * fast)
        return Load(
            utilization=utilization,
            compute=compute,
            matrix=compute * (0.66 + 0.1 * slow + 0.04 * other),
            bandwidth=0.5 + 0.12 * other,
            memory=self._size + 0.01 * other,
            link=0.45 + 0.2 * slow,
            pcie_in=0.05 + 0.02 * other,
            pcie_out=0.02 + 0.01 * fast,
        )

    def _inference(self, t: float) -> Load:
        """Follows the requests: a slow tide with gusts. Bound by memory more than by arithmetic."""
        tide = 0.5 + 0.25 * math.sin(_TURN * t / 900.0 + self._phase)
        slow, fast, other = self._slow.at(t), self._fast.at(t), self._other.at(t)
        utilization = min(0.98, max(0.02, tide + 0.12 * slow + 0.08 * fast))
        compute = utilization * (0.5 + 0.1 * other)
        return Load(
            utilization=utilization,
            compute=compute,
            matrix=compute * (0.4 + 0.1 * slow),
            bandwidth=utilization * (0.7 + 0.1 * fast),
            memory=self._size * (0.75 + 0.2 * utilization),
            link=0.08 * utilization,
            pcie_in=0.03 * utilization,
            pcie_out=0.01 * utilization,
            media=0.2 * utilization,
        )


def blend(loads: list[tuple[float, Load]]) -> Load:
    """The load of a whole from its parts and their weights, which add up to at most 1."""
    fields = Load.__struct_fields__
    return Load(**{name: sum(weight * float(getattr(load, name)) for weight, load in loads) for name in fields})
