"""One collector's share of a publication: its raw series and the common series made from them.

What depends only on which series there are (plans, escaped label strings) is kept while they are the same; blocks are
kept while their group's sample is.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

import msgspec

from collectors.base import NODE, Device, Group, Labels
from exporter.catalogue import Catalogue
from exporter.families import Block, prefix
from exporter.model import Allocation, GroupSample, Layout, MetricType, Number, SeriesId, Snapshot, Workload
from exporter.normalize import Links, Output, Plan, make_plan
from exporter.schema import METRICS, WORKLOAD, Metric

WorkloadOn = Literal["usage", "all", "none"]
Blocks = dict[str, list[Block]]
"""Family name → blocks."""

NOBODY = Workload()


class Header(msgspec.Struct, frozen=True):
    """How a raw family is exposed."""

    name: str
    type: MetricType
    help: str


class ViewOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What of a collector is shown, and how."""

    raw: frozenset[str]
    """Names of the raw series that are exposed."""
    headers: Mapping[str, Header] = {}
    """Raw series that are exposed under another spelling, type or help, by their names."""
    common: bool = True
    node: str = ""
    """The value of the label ``node``; empty: no such label."""
    workload: WorkloadOn = "usage"
    """Which common series carry the workload: those that it causes, all, or none."""
    raw_workload: Literal["none", "exclusive", "copies"] = "exclusive"
    """Whether raw series carry it, and whether a shared device's are repeated for each of its workloads."""
    links: Links = "sum"
    max_age: Mapping[Group, float]


class _Rows(msgspec.Struct, frozen=True, eq=False):
    """Series of one family from one group: label strings, and how their values come out of the group's."""

    family: str
    prefixes: tuple[str, ...]
    values: Callable[[Sequence[Number]], tuple[Number, ...]]


class _Shape(msgspec.Struct, frozen=True, eq=False):
    """All that follows from the layouts, the devices and who works on them."""

    key: tuple[object, ...]
    allocation: Allocation | None
    plan: Plan
    rows: Mapping[Group, tuple[_Rows, ...]]
    duplicates: int


class View:
    """Keeps one collector's shape and blocks between publications."""

    def __init__(self, catalogue: Catalogue, options: ViewOptions) -> None:
        self.catalogue = catalogue
        self.options = options
        self._shape: _Shape | None = None
        self.headers: Mapping[str, Header] = {
            name: options.headers.get(name) or Header(name, series.type, series.help)
            for name, series in catalogue.series.items()
            if name in options.raw
        }
        """How each raw series that is shown is exposed, in the catalogue's order."""
        self._generation = -1
        self._blocks: dict[Group, tuple[GroupSample, _Shape, Blocks]] = {}

    def update(
        self, snapshot: Snapshot, allocation: Allocation | None, taken: frozenset[SeriesId], monotonic: float
    ) -> tuple[Blocks, Plan, int]:
        """The blocks of what is fresh, the plan behind them, and how many series were dropped as duplicates."""
        shape = self._shaped(snapshot, allocation, taken)
        found: Blocks = {}
        for group, sample in snapshot.groups.items():
            if self.fresh(group, sample, monotonic):
                for name, blocks in self._made(group, sample, shape).items():
                    found.setdefault(name, []).extend(blocks)
            else:
                self._blocks.pop(group, None)
        return found, shape.plan, shape.duplicates

    def fresh(self, group: Group, sample: GroupSample, monotonic: float) -> bool:
        """Whether a sample may still be shown: a frozen value is worse than none."""
        return monotonic - sample.taken_monotonic <= self.options.max_age[group]

    def _made(self, group: Group, sample: GroupSample, shape: _Shape) -> Blocks:
        kept = self._blocks.get(group)
        if kept is not None and kept[0] is sample and kept[1] is shape:
            return kept[2]
        made: Blocks = {}
        for rows in shape.rows.get(group, ()):
            made.setdefault(rows.family, []).append(Block(rows.prefixes, rows.values(sample.values), sample.taken_at))
        self._blocks[group] = (sample, shape, made)
        return made

    def _shaped(self, snapshot: Snapshot, allocation: Allocation | None, taken: frozenset[SeriesId]) -> _Shape:
        layouts = {group: sample.layout for group, sample in snapshot.groups.items()}
        key = (snapshot.generation, snapshot.lost, layouts, taken)
        kept = self._shape if self._shape is not None and self._shape.key == key else None
        if kept is not None and kept.allocation is allocation:
            return kept
        # Who works on a device changes with every pod, and nothing in the plan with it.
        plan = kept.plan if kept is not None else self._planned(snapshot, layouts, taken)
        rows, duplicates = self._rows(snapshot, layouts, plan, allocation)
        self._generation = snapshot.generation
        self._shape = _Shape(key, allocation, plan, rows, duplicates)
        return self._shape

    def _planned(self, snapshot: Snapshot, layouts: Mapping[Group, Layout], taken: frozenset[SeriesId]) -> Plan:
        return make_plan(
            self.catalogue,
            snapshot.devices,
            layouts,
            lost=snapshot.lost,
            sources=self._shape.plan.sources if self._shape and self._generation == snapshot.generation else None,
            taken=taken,
            links=self.options.links,
        )

    def _rows(
        self, snapshot: Snapshot, layouts: Mapping[Group, Layout], plan: Plan, allocation: Allocation | None
    ) -> tuple[dict[Group, tuple[_Rows, ...]], int]:
        rows: dict[Group, list[_Rows]] = {group: [] for group in layouts}
        if self.options.common:
            texts = CommonTexts(snapshot.vendor, self.options, allocation)
            for group, group_rows in common_rows(plan, snapshot, texts):
                rows[group].append(group_rows)
        duplicates = 0
        seen: set[str] = set()
        for group, layout in layouts.items():
            for name, indices, prefixes in self._raw(layout, snapshot, allocation or {}):
                fresh: dict[str, int] = {}
                for index, text in zip(indices, prefixes, strict=True):
                    if text not in seen:
                        fresh.setdefault(text, index)
                duplicates += len(indices) - len(fresh)
                seen.update(fresh)
                if fresh:
                    rows[group].append(_Rows(name, tuple(fresh), _picker(list(fresh.values()))))
        return {group: tuple(found) for group, found in rows.items()}, duplicates

    def _raw(
        self, layout: Layout, snapshot: Snapshot, allocation: Allocation
    ) -> Iterable[tuple[str, list[int], list[str]]]:
        found: dict[str, tuple[list[int], list[str]]] = {}
        names = {name: header.name for name, header in self.headers.items()}
        lost_uuids = {snapshot.devices[lost].uuid for lost in snapshot.lost if not snapshot.devices[lost].partition}
        # A device's identity stands in all of its series: it is escaped once.
        heads = [
            [opened(labels) if labels else "" for labels in self._raw_identities(device, allocation)]
            for device in snapshot.devices
        ]
        tails = Tails()
        for index, key in enumerate(layout):
            if key.series not in self.options.raw:
                continue
            lost = key.device in snapshot.lost or (
                key.device != NODE and snapshot.devices[key.device].uuid in lost_uuids
            )
            if lost and not self.catalogue.series[key.series].survives:
                continue
            indices, prefixes = found.setdefault(key.series, ([], []))
            name = names[key.series]
            for head in heads[key.device] if key.device != NODE else ("",):
                indices.append(index)
                prefixes.append(name + head + tails[key.labels] if head else prefix(name, key.labels))
        for name, (indices, prefixes) in found.items():
            yield names[name], indices, prefixes

    def _raw_identities(self, device: Device, allocation: Allocation) -> Sequence[Labels]:
        """The device's labels with those of its workload, as the vendor's exporter writes them."""
        table = self.catalogue.collector.attribution
        workloads = allocation.get((device.uuid, device.partition), ())
        shown = workloads if len(workloads) == 1 or self.options.raw_workload == "copies" else ()
        if self.options.raw_workload == "none" or not table.raw_labels:
            return [device.raw_labels]
        taken = {name for name, _ in device.raw_labels}
        spelled = [(fact, label) for fact, label in table.raw_labels.items() if label not in taken]
        if not shown:
            return [device.raw_labels + tuple((label, "") for _, label in spelled if table.raw_empty)]
        return [
            device.raw_labels
            + tuple((label, value) for fact, label in spelled if (value := _fact(workload, fact)) or table.raw_empty)
            for workload in shown
        ]


def _fact(workload: Workload, fact: str) -> str:
    return workload.raw.get(fact, "") or str(getattr(workload, fact, ""))


def common_rows(plan: Plan, snapshot: Snapshot, texts: CommonTexts) -> Iterable[tuple[Group, _Rows]]:
    """The plan's outputs, gathered by family and group."""
    devices = {(device.uuid, device.partition): device for device in snapshot.devices}
    gathered: dict[tuple[str, Group], list[Output]] = {}
    for output in plan.outputs:
        gathered.setdefault((output.id.metric, output.group), []).append(output)
    for (metric, group), outputs in gathered.items():
        prefixes = tuple(
            [texts.prefix(metric, devices[output.id.uuid, output.id.partition], output.id.labels) for output in outputs]
        )
        yield group, _Rows(metric, prefixes, _evaluation(outputs))


class CommonTexts:
    """Writes common series of a collector's devices: identity, node, workload where the metric has it, further labels.

    Hundreds of series share a device's identity, and as many their further labels: each of these is escaped once.
    """

    def __init__(self, vendor: str, options: ViewOptions, allocation: Allocation | None) -> None:
        self._vendor, self._node, self._workload = vendor, options.node, options.workload
        self._allocation = allocation or {}
        self._heads: dict[tuple[str, str, bool], str] = {}
        self._tails = Tails()

    def prefix(self, metric: str, device: Device, labels: Labels = ()) -> str:
        """The text of a series up to its value."""
        workload = carries_workload(METRICS[metric], self._workload)
        key = (device.uuid, device.partition, workload)
        head = self._heads.get(key)
        if head is None:
            head = self._heads[key] = opened(self._identity(device, workload))
        return metric + head + self._tails[labels]

    def _identity(self, device: Device, workload: bool) -> Labels:
        found = [("vendor", self._vendor), ("device", device.index), ("uuid", device.uuid)]
        if device.partition:
            found.append(("partition", device.partition))
        if self._node:
            found.append(("node", self._node))
        if workload:
            workloads = self._allocation.get((device.uuid, device.partition), ())
            only = workloads[0] if len(workloads) == 1 else NOBODY
            found.extend((name, getattr(only, name)) for name in WORKLOAD)
        return tuple(found)


def vendor_labels(vendor: str, node: str) -> Labels:
    """The first labels of a series that is about all of a vendor's devices."""
    return (("vendor", vendor), ("node", node)) if node else (("vendor", vendor),)


def carries_workload(metric: Metric, on: WorkloadOn) -> bool:
    """Whether series of a metric have the labels namespace, pod and so on; those with their own such labels do not."""
    return (
        metric.scope == "device"
        and "namespace" not in metric.labels
        and (metric.workload or on == "all")
        and on != "none"
    )


class Tails(dict[Labels, str]):
    """Labels → how they end a series whose first labels ``opened`` has written."""

    def __missing__(self, labels: Labels) -> str:
        text = self[labels] = "," + prefix("", labels)[1:] if labels else "} "
        return text


def opened(labels: Labels) -> str:
    """The first labels of a series, at least one; ``Tails`` has the rest."""
    return prefix("", labels).removesuffix("} ")


def _evaluation(outputs: Sequence[Output]) -> Callable[[Sequence[Number]], tuple[Number, ...]]:
    evaluations = [output.evaluate for output in outputs]
    return lambda values: tuple([evaluate(values) for evaluate in evaluations])


def _picker(indices: Sequence[int]) -> Callable[[Sequence[Number]], tuple[Number, ...]]:
    if len(indices) == 1:
        only = indices[0]
        return lambda values: (values[only],)
    return operator.itemgetter(*indices)
