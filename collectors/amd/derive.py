"""What follows from two tables of the same card: shares of time, and whether it is throttled now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from collectors.amd.cards import Card
from collectors.amd.gpu_metrics import Array, GpuMetrics
from collectors.base import Reading

COUNTER: Final = "accumulation_counter"
RESIDENCIES: Final[Mapping[str, str]] = {
    "prochot_residency_acc": "processor_hot",
    "ppt_residency_acc": "ppt",
    "socket_thm_residency_acc": "socket_thermal",
    "vr_thm_residency_acc": "vr_thermal",
    "hbm_thm_residency_acc": "hbm_thermal",
}
"""Field of the card → how AMD's exporter names it."""
PART_RESIDENCIES: Final[Mapping[str, str]] = {
    "gfx_below_host_limit_ppt_acc": "gfx_clock_below_host_limit_power",
    "gfx_below_host_limit_thm_acc": "gfx_clock_below_host_limit_thermal",
    "gfx_below_host_limit_total_acc": "gfx_clock_below_host_limit_total",
    "gfx_low_utilization_acc": "low_utilization",
}
"""Field of a partition's compute dies → how AMD's exporter names it."""
_REASONS: Final[Mapping[str, tuple[str, ...]]] = {
    "power_cap": ("ppt_residency_acc",),
    "thermal": ("socket_thm_residency_acc", "vr_thm_residency_acc", "hbm_thm_residency_acc"),
    "other": ("prochot_residency_acc",),
}
# The driver's bits, independent of the chip (Linux, amdgpu_smu.h): limits of power and current from 0 and 16 on,
# temperatures from 32 on with PROCHOT at 46 and 47, the rest from 56 on.
_BITS: Final[Mapping[str, int]] = {
    "power_cap": 0x0000_0000_00FF_00FF,
    "thermal": 0x0000_3FFF_0000_0000,
    "other": 0xFF00_C000_0000_0000,
}
THROTTLE: Final = "amdsmi_throttle_active"


class Throttling(msgspec.Struct, frozen=True):
    """The counters of one table."""

    counter: int
    card: Mapping[str, int]
    parts: Mapping[tuple[str, int], Array]
    """Field and partition → compute dies."""


def throttling(card: Card, metrics: GpuMetrics) -> Throttling | None:
    """The counters, if the table has them."""
    counter = metrics.number(COUNTER)
    if counter is None:
        return None
    found = {field: value for field in RESIDENCIES if (value := metrics.number(field)) is not None}
    parts = {
        (field, part.position): metrics.part(field, part.partition) for part in card.parts for field in PART_RESIDENCIES
    }
    return Throttling(counter, found, parts)


def accumulated(card: Card, now: Throttling) -> Iterable[Reading]:
    """The counters themselves."""
    at = card.position
    yield Reading("gpu_violation_current_accumulated_counter", at, now.counter)
    for field, value in now.card.items():
        yield Reading(f"gpu_violation_{RESIDENCIES[field]}_residency_accumulated", at, value)
    thermal = [now.card[field] for field in _REASONS["thermal"] if field in now.card]
    if thermal:
        yield Reading("amdsmi_thermal_residency_milliseconds", at, max(thermal))
    for (field, position), dies in now.parts.items():
        for index, count in enumerate(dies):
            if count is not None:
                name = f"gpu_violation_{PART_RESIDENCIES[field]}_accumulated"
                yield Reading(name, position, count, (("xcc_index", str(index)),))


def since(card: Card, before: Throttling, now: Throttling) -> Iterable[Reading]:
    """Shares of the time between two tables. Nothing if the counters stood still or began anew."""
    elapsed = now.counter - before.counter
    if elapsed <= 0:
        return
    at = card.position
    grown = {field: value - before.card[field] for field, value in now.card.items() if field in before.card}
    for field, growth in grown.items():
        if (share := _share(growth, elapsed)) is not None:
            yield Reading(f"gpu_violation_{RESIDENCIES[field]}_residency_percentage", at, share)
    for reason, fields in _REASONS.items():
        told = [grown[field] for field in fields if field in grown]
        if told:
            yield Reading(THROTTLE, at, int(any(growth > 0 for growth in told)), (("reason", reason),))
    for (field, position), dies in now.parts.items():
        earlier = before.parts.get((field, position), ())
        for index, (new, old) in enumerate(zip(dies, earlier, strict=False)):
            if new is not None and old is not None and (share := _share(new - old, elapsed)) is not None:
                name = f"gpu_violation_{PART_RESIDENCIES[field]}_percentage"
                yield Reading(name, position, share, (("xcc_index", str(index)),))


def _share(growth: int, elapsed: int) -> int | None:
    """Whole per cent, at most 100: a counter and its denominator are not read at quite the same time."""
    return min(100, 100 * growth // elapsed) if growth >= 0 else None


def told_by_bits(card: Card, metrics: GpuMetrics) -> Iterable[Reading]:
    """Which throttlers work at this moment, where the driver has bits for them (layout 1.3)."""
    bits = metrics.number("indep_throttle_status")
    if bits is not None:
        for reason, mask in _BITS.items():
            yield Reading(THROTTLE, card.position, int(bool(bits & mask)), (("reason", reason),))
