"""Series with labels of their own: states, throttling by policy, memory errors by place, ports."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from collectors.base import Labels, Reading
from collectors.gaudi import sysfs
from collectors.gaudi.failure import Failure
from collectors.gaudi.questions import DRAM_ECC, ECC, ERRORS, PLACES, VIOLATIONS, Ask, EccSeries
from collectors.gaudi.source import Port, Source
from collectors.gaudi.units import Asker, Unit

STATE: Final = "habanalabs_x_device_state"
VIOLATION: Final = "habanalabs_x_violation_nanoseconds_total"
PORT_STATUS: Final = "habanalabs_nic_port_status"
PORT_UP: Final = "habanalabs_x_port_up"
RECEIVED: Final = "habanalabs_x_port_received_bytes_total"
SENT: Final = "habanalabs_x_port_sent_bytes_total"


class PortPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What of the ports is read."""

    counters: str
    """off, external, all."""
    each: bool
    """Links are told apart."""
    budget: float
    """Seconds for counters, in one sample."""


def states(position: int, text: str) -> Iterator[Reading]:
    """1 for the state that the driver gives, 0 for the others; nothing where it gives none."""
    if text:
        now = sysfs.state(text)
        for name in sysfs.STATES:
            yield Reading(STATE, position, int(name == now), (("state", name),))


def violations(unit: Unit, asker: Asker) -> Iterator[Reading]:
    for policy, ask in VIOLATIONS.items():
        value = asker.ask(unit, ask)
        if value is not None:
            yield Reading(VIOLATION, unit.position, value, (("policy", policy),))


def memory_errors(unit: Unit, wanted: frozenset[str], asker: Asker) -> Iterator[Reading]:
    for series in ECC:
        if series.name in wanted:
            yield from _by_place(unit, series, asker) or _in_all(unit, series, asker)
    for name, fields in DRAM_ECC.items():
        if name in wanted:
            for correctable, field in fields.items():
                value = asker.ask(unit, Ask("column", field))
                if value is not None:
                    yield Reading(name, unit.position, value, (("correctable", correctable),))


def _by_place(unit: Unit, series: EccSeries, asker: Asker) -> list[Reading]:
    """Errors by place. Nothing, if the device does not tell them: a total beside its parts would count twice.

    A place that fails for now is left out, and the total does not stand in for it.
    """
    found: list[Reading] = []
    told = False
    for correctable, error in ERRORS.items():
        for place, location in PLACES.items():
            ask = Ask("wide", "hlml_device_get_memory_error_counter", (error, series.counter, location))
            value = asker.ask(unit, ask)
            told = told or value is not None
            if value is not None:
                labels: Labels = (("correctable", correctable), ("location", place))
                found.append(Reading(series.name, unit.position, value, labels))
    return found


def _in_all(unit: Unit, series: EccSeries, asker: Asker) -> Iterator[Reading]:
    for correctable, error in ERRORS.items():
        value = asker.ask(unit, Ask("wide", "hlml_device_get_total_ecc_errors", (error, series.counter)))
        if value is None:
            value = asker.ask(unit, Ask("column", series.columns[correctable]))
        if value is not None:
            labels: Labels = (("correctable", correctable), ("location", "unknown"))
            yield Reading(series.name, unit.position, value, labels)


def port_states(
    unit: Unit, ports: Sequence[tuple[Port, bool]], wanted: frozenset[str], plan: PortPlan
) -> Iterator[Reading]:
    for port, up in ports:
        if PORT_STATUS in wanted:
            yield Reading(PORT_STATUS, unit.position, int(up), port.labels)
        if plan.each and PORT_UP in wanted:
            yield Reading(PORT_UP, unit.position, int(up), port.labels)


def port_counters(
    unit: Unit, ports: Sequence[tuple[Port, bool]], source: Source, asker: Asker, plan: PortPlan, until: float
) -> list[Reading]:
    """Octets of the ports. Summed ports are read all or not at all: a sum of fewer would look like a reset."""
    found: list[Reading] = []
    for port, _ in ports:
        ask = Ask("wide", "octets", (port.number,))
        if (plan.counters == "external" and not port.external) or asker.skips(unit, ask):
            continue
        octets = None
        if time.monotonic() >= until:
            asker.report(unit.position, "timeout", "no time was left for the port counters: raise port_counters_budget")
        else:
            try:
                octets = source.octets(unit, port)
            except Failure as failure:
                asker.failed(unit, ask, failure)
                if asker.skips(unit, ask):
                    continue
        if octets is not None:
            found.append(Reading(RECEIVED, unit.position, octets[0], port.labels))
            found.append(Reading(SENT, unit.position, octets[1], port.labels))
        elif not plan.each:
            return []
    return found
