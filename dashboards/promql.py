"""PromQL over the common schema: which series, joined how, so that sums stay right with partitions and sharing.

Dashboards and rules build their expressions here. Each function returns an expression that can stand as an operand.
"""

from __future__ import annotations

from typing import Final

import msgspec

from exporter.schema import METRICS

DEVICE: Final = ("cluster", "node", "vendor", "device", "uuid")
"""What tells a physical device. ``cluster`` comes from outside, or is absent everywhere and then means nothing."""
PART: Final = (*DEVICE, "partition")
"""What tells a part of a device, or the whole where there are no parts."""
WORKLOAD: Final = ("namespace", "pod", "container", "job_name", "tenant")
RATE: Final = "$__rate_interval"
IDLE: Final = 0.05
"""Utilization below which a device counts as idle."""


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """Which series an expression sees. The empty one sees all: that of rules."""

    matchers: str = ""
    """On every series of a device."""
    workload: str = ""
    """On series that carry the workload, and on the allocation."""
    facts: str = ""
    """On accel_info: devices whose facts do not match are left out."""

    def of(self, metric: str, more: str = "") -> str:
        """A selector of one metric; ``more`` are further matchers."""
        known = METRICS.get(metric)
        workload = self.workload if known is not None and (known.workload or metric == "accel_allocation_info") else ""
        matchers = ",".join(part for part in (self.matchers, workload, more) if part)
        return f"{metric}{{{matchers}}}" if matchers else metric

    def without_workload(self) -> Scope:
        """The same for series of everybody's devices."""
        return msgspec.structs.replace(self, workload="")

    def only(self, expression: str, by: tuple[str, ...] = PART) -> str:
        """What of the expression belongs to devices with the facts. Its labels stay, and so do its values."""
        if not self.facts:
            return expression
        return f"({expression} and {on(by)} {self.of('accel_info', self.facts)})"

    def get(self, metric: str, more: str = "") -> str:
        """The series of one metric."""
        return self.only(self.of(metric, more))

    def rate(self, metric: str, more: str = "", window: str = RATE) -> str:
        """Growth of a counter per second."""
        return self.only(f"rate({self.of(metric, more)}[{window}])")

    def increase(self, metric: str, more: str = "", window: str = RATE) -> str:
        return self.only(f"increase({self.of(metric, more)}[{window}])")


EVERYTHING: Final = Scope()


def on(labels: tuple[str, ...]) -> str:
    return f"on ({', '.join(labels)})"


def by(labels: tuple[str, ...]) -> str:
    return f"by ({', '.join(labels)})"


def total(labels: tuple[str, ...], expression: str) -> str:
    return f"sum {by(labels)} ({expression})"


def most(labels: tuple[str, ...], expression: str) -> str:
    return f"max {by(labels)} ({expression})"


def average(labels: tuple[str, ...], expression: str) -> str:
    return f"avg {by(labels)} ({expression})"


def per_device(scope: Scope, metric: str) -> str:
    """A ratio of whole devices: its own, else that of its parts by their compute units, else their plain average."""
    whole, parts = scope.of(metric, 'partition=""'), scope.of(metric, 'partition!=""')
    units = most(PART, scope.of("accel_compute_units", 'partition!=""'))
    worked = total(DEVICE, f"{parts} * {on(PART)} group_left () {units}")
    could = total(DEVICE, f"{units} and {on(PART)} {parts}")
    text = f"({most(DEVICE, whole)} or {worked} / {could} or {average(DEVICE, parts)})"
    return scope.only(text, DEVICE)


def with_class(scope: Scope, expression: str) -> str:
    """An expression by device, with the label device_class."""
    labels = (*DEVICE, "device_class")
    facts = ",".join(part for part in ('partition=""', scope.facts) if part)
    return f"({expression} * {on(DEVICE)} group_left (device_class) {most(labels, scope.of('accel_info', facts))})"


def device_share(scope: Scope) -> str:
    """Which share of its device each thing is that a workload can hold: 1 for a whole, less for a part.

    By compute units where they are told, else by the number of parts.
    """
    allocated = most(PART, scope.of("accel_allocated"))
    units = most(PART, scope.of("accel_compute_units"))
    weight = f"(({units} and {on(PART)} {allocated}) or {on(PART)} ({allocated} * 0 + 1))"
    return scope.only(f"({weight} / {on(DEVICE)} group_left () {total(DEVICE, weight)})")


def held(scope: Scope, share: str = "") -> str:
    """Devices that each container holds: a part is a share of one, and containers that share it have equal shares.

    ``share``: a recorded ``device_share``.
    """
    everyone = scope.without_workload()
    sharers = f"count {by(PART)} ({everyone.of('accel_allocation_info')})"
    return (
        f"(({share or device_share(everyone)} / {on(PART)} {sharers}) "
        f"* {on(PART)} group_right () {scope.of('accel_allocation_info')})"
    )


def of_bearers(scope: Scope, metric: str, more: str = "", window: str = "") -> str:
    """A gauge at the level that workloads hold: the part's own, or the device's for each of its parts.

    With a ``window`` it is the average over that time.
    """
    everyone = scope.without_workload()
    allocated = most(PART, everyone.of("accel_allocated"))
    own = f"({most(PART, _over(everyone.of(metric, more), window))} and {on(PART)} {allocated})"
    of_whole = everyone.of(metric, f'partition="",{more}' if more else 'partition=""')
    whole = most(DEVICE, _over(of_whole, window))
    return f"({own} or {on(PART)} ({allocated} * 0 + {on(DEVICE)} group_left () {whole}))"


def _over(selector: str, window: str) -> str:
    return f"avg_over_time({selector}[{window}])" if window else selector


def held_average(scope: Scope, metric: str, labels: tuple[str, ...]) -> str:
    """Average of a ratio over the devices that are held, by labels of their workloads."""
    value = of_bearers(scope, metric)
    weighted = total(labels, f"{held(scope)} * {on(PART)} group_left () {value}")
    return f"({weighted} / {total(labels, f'{held(scope)} and {on(PART)} {value}')})"


def idle(scope: Scope) -> str:
    """1 for what a workload can hold and that does nothing, else 0."""
    return f"({of_bearers(scope, 'accel_utilization_ratio')} < bool {IDLE})"


def held_idle(scope: Scope) -> str:
    """Devices that each container holds and that do nothing, as shares."""
    return f"({held(scope)} * {on(PART)} group_left () {idle(scope)})"


def held_part_of(scope: Scope, per_whole: str) -> str:
    """A quantity of whole devices (``per_whole``, by device) that falls to each container by its share."""
    return f"({held(scope)} * {on(DEVICE)} group_left () {per_whole})"


def felt(scope: Scope, of_device: str, labels: tuple[str, ...]) -> str:
    """What happens to devices (``of_device``, by device), for each workload on them: shared trouble is everybody's."""
    holders = most((*DEVICE, *labels), scope.of("accel_allocation_info"))
    return total(labels, f"{holders} * {on(DEVICE)} group_left () {of_device}")


def energy_rate(scope: Scope, window: str = RATE) -> str:
    """Watts of each device by its energy counter, which misses nothing between two samples."""
    everyone = scope.without_workload()
    return total(DEVICE, f"rate({everyone.of('accel_energy_joules_total')}[{window}])")


def bytes_rate(scope: Scope, stem: str, labels: tuple[str, ...], more: str = "") -> str:
    """Bytes per second by labels, from the counter where the vendor has one, else from the rate that it gives."""
    counted = total(labels, scope.rate(f"{stem}_bytes_total", more))
    told = total(labels, scope.get(f"{stem}_bytes_per_second", more))
    return f"({counted} or {told})"


def memory_fullness(scope: Scope, labels: tuple[str, ...]) -> str:
    """Device memory in use as a share of what workloads can have: what is reserved counts neither way, where told."""
    used = scope.get("accel_memory_used_bytes", 'memory="device"')
    free = scope.get("accel_memory_free_bytes", 'memory="device"')
    size = scope.get("accel_memory_total_bytes", 'memory="device"')
    of_free = f"{total(labels, used)} / ({total(labels, used)} + {total(labels, free)})"
    return f"({of_free} or {total(labels, used)} / {total(labels, size)})"
