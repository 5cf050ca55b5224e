"""What is watched and read for a group of series: fields by the kind of entity, in sets that do not clash."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from collectors.base import NODE, Labels, ReadError, Settings
from collectors.nvidia.dcgm import abi, codes, links, profiling
from collectors.nvidia.dcgm.codes import DcgmFailure
from collectors.nvidia.dcgm.discovery import Node, entity_of
from collectors.nvidia.dcgm.engine import Engine
from collectors.nvidia.dcgm.fields import Kind, Quantity
from collectors.nvidia.dcgm.links import Links
from collectors.nvidia.dcgm.watches import Watches
from collectors.nvidia.identity import node_label
from collectors.nvidia.inventory import Gpu, Part

_NVLINK_COUNTERS: Final = range(1200, 1220)
"""Kept apart: on GB200 the ECC counters could not be watched in one set with them."""


class Target(msgspec.Struct, frozen=True):
    """Where the numbers of an entity stand."""

    rows: tuple[int, ...]
    labels: Labels
    owner: int
    """Position of the GPU that it is or belongs to; NODE for switches and CPUs."""


Targets = Mapping[abi.Entity, Target]


class Block(msgspec.Struct, frozen=True, kw_only=True):
    """Fields that are read of the same entities."""

    targets: Targets
    quantities: Mapping[int, Quantity]
    watches: tuple[tuple[int, int], ...]
    """Group and field group."""
    profiling: bool

    @property
    def answering(self) -> bool:
        """Whether a GPU that answers at all gives some of this."""
        return not self.profiling and any(quantity.kind == "gpu" for quantity in self.quantities.values())


class Builder:
    """Makes the blocks of a discovery. What cannot be watched is told in ``errors``."""

    def __init__(self, engine: Engine, watches: Watches, settings: Settings, node: Node, known_links: Links) -> None:
        self.errors: list[ReadError] = []
        self._engine, self._watches, self._node = engine, watches, node
        self._where = _where(engine, settings, node, known_links)
        self._offers: dict[int, list[profiling.MetricGroup]] = {}

    def blocks(self, wanted: Sequence[Quantity], seconds: float) -> tuple[Block, ...]:
        """Watch these fields so often. Raises DcgmFailure when the engine does not answer."""
        found: list[Block] = []
        for kind, targets in self._where.items():
            here = [quantity for quantity in wanted if quantity.kind == kind]
            plain = [quantity for quantity in here if not quantity.profiling]
            counters = [quantity for quantity in plain if quantity.field in _NVLINK_COUNTERS]
            found += self._block(targets, [quantity for quantity in plain if quantity not in counters], seconds)
            found += self._block(targets, counters, seconds)
            ratios = [quantity for quantity in here if quantity.profiling]
            if ratios:
                for some, these in self._ratios(targets, ratios):
                    found += self._block(some, these, seconds, profiling_=True)
        return tuple(found)

    def _block(
        self, targets: Targets, wanted: Sequence[Quantity], seconds: float, *, profiling_: bool = False
    ) -> list[Block]:
        if not targets or not wanted:
            return []
        # A field of the node is watched through any GPU.
        entities = list(targets) if (abi.NONE, 0) not in targets else [entity_of(self._node.inventory.gpus[0])]
        groups = self._watches.groups(entities)
        fields = {quantity.field: quantity for quantity in wanted}
        watch = self._watch_ratios if profiling_ else self._watch
        good, watched = watch(groups, list(fields), seconds)
        if not good:
            return []
        quantities = {field: fields[field] for field in good}
        return [Block(targets=targets, quantities=quantities, watches=tuple(watched), profiling=profiling_)]

    def _watch(
        self, groups: Sequence[int], fields: Sequence[int], seconds: float
    ) -> tuple[list[int], list[tuple[int, int]]]:
        """The fields that could be watched, and how. One that is refused costs the others nothing."""
        try:
            return self._watch_all(groups, fields, seconds)
        except DcgmFailure as failure:
            if codes.judge(failure.code) in ("gone", "mismatch", "timeout"):
                raise
            if len(fields) == 1:
                if codes.judge(failure.code) != "unsupported":
                    self.errors.append(ReadError(NODE, _kind(failure), f"field {fields[0]}: {failure}"))
                return [], []
        half = len(fields) // 2
        first, second = (self._watch(groups, part, seconds) for part in (fields[:half], fields[half:]))
        return first[0] + second[0], first[1] + second[1]

    def _watch_all(
        self, groups: Sequence[int], fields: Sequence[int], seconds: float
    ) -> tuple[list[int], list[tuple[int, int]]]:
        made = self._watches.field_groups(fields)
        self._watches.watch(groups, made, seconds)
        return list(fields), [(group, field_group) for group in groups for field_group in made]

    def _watch_ratios(
        self, groups: Sequence[int], fields: Sequence[int], seconds: float
    ) -> tuple[list[int], list[tuple[int, int]]]:
        """All at once, else those that go together."""
        try:
            return self._watch_all(groups, fields, seconds)
        except DcgmFailure as failure:
            if failure.code != codes.SEVERAL_PASSES:
                self._no_ratios(failure)
                return [], []
        together = next(
            (profiling.one_pass(offer, fields) for offer in self._offers.values() if offer), frozenset[int]()
        )
        left = [field for field in fields if field not in together]
        some = [field for field in fields if field in together]
        what = f"the GPU cannot count all at once: without the fields {', '.join(map(str, left))}"
        self.errors.append(ReadError(NODE, "library", what))
        try:
            return self._watch_all(groups, some, seconds) if some and left else ([], [])
        except DcgmFailure as failure:
            self._no_ratios(failure)
            return [], []

    def _no_ratios(self, failure: DcgmFailure) -> None:
        if codes.judge(failure.code) in ("gone", "mismatch", "timeout"):
            raise failure
        advice = profiling.ADVICE.get(failure.code, "see the log of nv-hostengine")
        if failure.code in profiling.ADVICE or codes.judge(failure.code) != "unsupported":
            error = ReadError(NODE, _kind(failure), f"no profiling ratios: {failure}: {advice}")
            if error not in self.errors:
                self.errors.append(error)

    def _ratios(self, targets: Targets, wanted: Sequence[Quantity]) -> Iterable[tuple[Targets, list[Quantity]]]:
        """GPUs that offer the same, and the wanted ratios among that: unlike GPUs cannot be watched together."""
        alike: dict[tuple[str, frozenset[int]], dict[abi.Entity, Target]] = {}
        for entity, target in targets.items():
            if target.owner == NODE:
                continue
            offer = self._offer(target.owner)
            model = self._node.inventory.devices[target.owner].model
            alike.setdefault((model, profiling.offered(offer)), {})[entity] = target
        for (_, fields), some in alike.items():
            # A rate of a link is no part of the list of a GPU's metrics: it is asked for as it is.
            these = [quantity for quantity in wanted if quantity.field in fields or quantity.kind == "gpu_link"]
            if these:
                yield some, these

    def _offer(self, position: int) -> list[profiling.MetricGroup]:
        if position not in self._offers:
            gpu = next(gpu for gpu in self._node.inventory.gpus if gpu.position == position)
            try:
                self._offers[position] = profiling.metric_groups(self._engine, entity_of(gpu)[1])
            except DcgmFailure as failure:
                self._no_ratios(failure)
                self._offers[position] = []
        return self._offers[position]


def _kind(failure: DcgmFailure) -> str:
    verdict = codes.judge(failure.code)
    return verdict if verdict in ("permission", "timeout", "lost") else "library"


def _where(engine: Engine, settings: Settings, node: Node, known: Links) -> dict[Kind, Targets]:
    """Every entity by kind, and where its numbers stand."""
    gpus = node.inventory.gpus
    label = node_label(settings)
    every = tuple(row for gpu in gpus for row in gpu.rows)
    return {
        "global": {(abi.NONE, 0): Target(every, (), NODE)} if every else {},
        "gpu": {entity_of(gpu): Target(gpu.rows, (), gpu.position) for gpu in gpus},
        "part": {entity_of(part): Target((part.position,), (), gpu.position) for gpu in gpus for part in levels(gpu)},
        "switch": {
            (abi.SWITCH, switch): Target((NODE,), (("nvswitch", f"nvswitch{switch}"), *label), NODE)
            for switch in node.switches
        },
        "cpu": {(abi.CPU, cpu): Target((NODE,), (("cpu", str(cpu)), *label), NODE) for cpu in node.cpus},
        "core": {
            (abi.CPU_CORE, core): Target((NODE,), (("cpucore", str(core)), ("cpu", str(cpu)), *label), NODE)
            for cpu, cores in node.cores.items()
            for core in cores
        },
        "gpu_link": {
            entity: Target(gpu.rows, (("nvlink", str(link)),), gpu.position)
            for gpu in gpus
            for link in known.of_gpus.get(entity_of(gpu)[1], ())
            if (entity := links.entity(engine, abi.GPU, entity_of(gpu)[1], link)) is not None
        },
        "switch_link": {
            entity: Target((NODE,), (("nvlink", str(link)), ("nvswitch", f"nvswitch{switch}"), *label), NODE)
            for switch, states in known.of_switches.items()
            for link in states
            if (entity := links.entity(engine, abi.SWITCH, switch, link)) is not None
        },
    }


def levels(gpu: Gpu) -> Sequence[Gpu | Part]:
    """What has memory of its own: the instances, else the GPU."""
    return gpu.instances or (gpu,)
