"""What collectors and sources of attribution say of themselves, ready for everyone who can reach the port."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from collectors.base import Device, Group
from exporter.attribution.service import Attribution as Service
from exporter.catalogue import Catalogue
from exporter.derived import reporting
from exporter.http.landing import public
from exporter.model import GroupSample, Snapshot
from exporter.normalize import holds
from exporter.status.devices import Known, Owner
from exporter.status.model import Attribution, AttributionSource, Collector
from exporter.supervisor import Runner
from exporter.view import View, ViewOptions

MOST_ERRORS: Final = 20
"""Different errors of a collector that are shown."""
UNANSWERED: Final = "does not answer"
NO_SAMPLE: Final = "no fresh sample"

Ages = Mapping[Group, float]
"""Group → seconds after which its sample is withdrawn."""


def known(runners: Iterable[Runner], max_age: Ages) -> dict[Owner, Known]:
    """What the newest snapshots tell of each device and part.

    Where two collectors read one device, it is stale if neither has a fresh sample of it, and has the reasons of both.
    """
    found: dict[Owner, Known] = {}
    for runner in runners:
        if runner.snapshot is not None:
            for owner, here in _of(runner.snapshot, runner.spec.catalogue, max_age).items():
                before = found.get(owner)
                found[owner] = here if before is None else _both(before, here)
    return found


def _both(one: Known, other: Known) -> Known:
    reasons = dict.fromkeys((*one.reasons, *other.reasons))
    if not (one.stale and other.stale):
        reasons.pop(NO_SAMPLE, None)
    return Known(stale=one.stale and other.stale, reasons=tuple(reasons))


def _of(snapshot: Snapshot, catalogue: Catalogue, max_age: Ages) -> dict[Owner, Known]:
    now = time.monotonic()
    view = View(catalogue, ViewOptions(raw=frozenset(), max_age=max_age))
    answering = reporting(view, snapshot, now)
    fresh = [sample for group, sample in snapshot.groups.items() if view.fresh(group, sample, now)]
    rules = _rules(snapshot.devices, catalogue, fresh)
    found: dict[Owner, Known] = {}
    for position, device in enumerate(snapshot.devices):
        lost = position in snapshot.lost
        stale = not lost and position not in answering
        reasons = (*([UNANSWERED] if lost else ()), *([NO_SAMPLE] if stale else ()), *rules.get(position, ()))
        found[snapshot.vendor, device.uuid, device.partition] = Known(stale=stale, reasons=reasons)
    return found


def _rules(
    devices: Sequence[Device], catalogue: Catalogue, samples: Iterable[GroupSample]
) -> dict[int, tuple[str, ...]]:
    """Position of a whole device → the vendor's health rules that hold for it or for a part of it."""
    rules = catalogue.collector.health
    watched = {rule.series for rule in rules}
    wholes = {device.uuid: position for position, device in enumerate(devices) if not device.partition}
    found: dict[int, dict[str, None]] = {}
    for sample in samples:
        for key, value in zip(sample.layout, sample.values, strict=True):
            if key.series not in watched or key.device < 0:
                continue
            labels = dict(key.labels)
            for rule in rules:
                if rule.series == key.series and rule.labels.items() <= labels.items() and holds(rule, value):
                    position = wholes.get(devices[key.device].uuid, key.device)
                    found.setdefault(position, {})[rule.reason] = None
    return {position: tuple(reasons) for position, reasons in found.items()}


def collectors(runners: Iterable[Runner], max_age: Ages, without_series: Mapping[str, str]) -> tuple[Collector, ...]:
    """How each collector is. ``without_series``: those of whose samples no series can be made, and why."""
    return tuple(_collector(runner, max_age, without_series.get(runner.spec.name, "")) for runner in runners)


def _collector(runner: Runner, max_age: Ages, fault: str) -> Collector:
    now = time.monotonic()
    snapshot = runner.snapshot
    groups = snapshot.groups if snapshot is not None else {}
    errors = dict.fromkeys(f"{error.kind}: {error.detail}" for sample in groups.values() for error in sample.errors)
    return Collector(
        name=runner.spec.name,
        title=runner.spec.catalogue.collector.title,
        vendor=runner.spec.catalogue.collector.vendor,
        state="failed" if fault else runner.state,
        hint=public(f"no series of its samples can be made, please report it: {fault}" if fault else runner.hint),
        devices=len(snapshot.devices) if snapshot is not None else 0,
        series=sum(len(sample.layout) for sample in groups.values()),
        sampled_at=max((sample.taken_at for sample in groups.values()), default=None),
        age=min((round(now - sample.taken_monotonic, 3) for sample in groups.values()), default=None),
        stale=tuple(name for name, sample in groups.items() if now - sample.taken_monotonic > max_age[name]),
        source=snapshot.source if snapshot is not None else "",
        bridged=runner.spec.bridged,
        simulated=runner.spec.simulated,
        errors=tuple(public(error)[:300] for error in list(errors)[:MOST_ERRORS]),
    )


def attribution(service: Service) -> Attribution:
    """How the sources are, and what could not be joined."""
    if not service.active:
        return Attribution(active=False)
    joined = service.joined
    return Attribution(
        active=True,
        sources=tuple(
            AttributionSource(
                name=name,
                up=status.up,
                last_success=status.last_success or None,
                hint="" if status.up else public(status.hint),
            )
            for name, status in service.statuses().items()
        ),
        unattributed=dict(joined.unattributed) if joined is not None else {},
        unmatched=dict(joined.unmatched) if joined is not None else {},
        contradictions=joined.contradictions if joined is not None else 0,
    )
