"""Expressions that several alerts use."""

from __future__ import annotations

from typing import Final

from dashboards import promql as q

SENSOR: Final = (*q.PART, "sensor")
COLLECTOR: Final = ("cluster", "job", "instance", "collector")
PEERS: Final = 3
"""So many like it have to be on the node before one is compared with them."""


def _limit(kind: str) -> str:
    return q.most(SENSOR, f'accel_temperature_limit_celsius{{limit="{kind}"}}')


LIMIT: Final = (
    f"({_limit('slowdown')} or {q.on(SENSOR)} {_limit('max_operating')} or {q.on(SENSOR)} {_limit('shutdown')})"
)
"""Of each sensor the device's own limit: where it slows down, else the most at work, else where it switches off."""
TEMPERATURE: Final = q.most(SENSOR, "accel_temperature_celsius")
DISTANCE: Final = f"({LIMIT} - {q.on(SENSOR)} {TEMPERATURE})"

_FAILED: Final = q.most(q.DEVICE, 'accel_health_state{state="failed"}')
FAILED: Final = f"({_FAILED} == 1)"
SAMPLE_AGE: Final = f"(time() - {q.most(q.DEVICE, 'accel_sample_timestamp_seconds')})"


def newest_faults(severity: str) -> str:
    """Seconds since the last event of each code."""
    labels = (*q.PART, "code", "class", "action")
    last = q.most(labels, f'accel_fault_last_timestamp_seconds{{severity="{severity}"}}')
    return f"(time() - {last})"


def throttled(reasons: str, window: str) -> str:
    """Share of the time for which a reason slowed the device down, by what the vendor tells."""
    labels = (*q.PART, "reason")
    seen = q.most(labels, f'avg_over_time(accel_throttle_active{{reason=~"{reasons}"}}[{window}])')
    counted = q.most(labels, f'rate(accel_throttle_seconds_total{{reason=~"{reasons}"}}[{window}])')
    return f"({seen} or {counted})"


def fallen(metric: str, labels: tuple[str, ...]) -> str:
    """How many fewer there are than there were on the last day, or than the most of its peers on the node have.

    What a device could have at most says nothing: not all links are connected everywhere.
    """
    own = (*q.DEVICE, *labels)
    now = q.most(own, metric)
    before = q.most(own, f"max_over_time({metric}[1d])")
    group = ("cluster", "node", "vendor", *labels)
    best = f"({q.most(group, metric)} and {q.on(group)} count {q.by(group)} ({now}) >= {PEERS})"
    return f"(({before} - {q.on(own)} {now} > 0) or {q.on(own)} (-({now} - {q.on(group)} group_left () {best}) > 0))"


def memory_fullness() -> str:
    """Of parts where use and size are told of them, else of devices."""
    return (
        f"({q.memory_fullness(q.EVERYTHING, q.PART)} or {q.on(q.DEVICE)} {q.memory_fullness(q.EVERYTHING, q.DEVICE)})"
    )


def held_for(window: str) -> str:
    """What has been allocated all this time."""
    return f"({q.most(q.PART, f'min_over_time(accel_allocated[{window}])')} == 1)"


def of_collectors(expression: str) -> str:
    return q.most(COLLECTOR, expression)
