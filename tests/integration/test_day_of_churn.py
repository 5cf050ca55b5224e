"""A day of pods that come and go on one node, by a clock that jumps: 17,280 polls of a kubelet that are all different.

Names are used again by other pods, partitions are made anew under other ids, finished pods stay listed, the kubelet is
away now and then. After each poll the publication is compared with what is true, and nothing grows.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import gc
import random
import tracemalloc
import types
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import pytest

import collectors
from collectors.base import Device
from collectors.unary import RpcError
from exporter.attribution import api, podresources, pods, watch
from exporter.attribution.api import Api
from exporter.attribution.service import Attribution
from exporter.catalogue import Catalogue, load
from exporter.config import Config
from exporter.config import attribution as settings
from exporter.derived import Book
from exporter.families import Publication, parse_labels
from exporter.model import GroupSample, Key, Layout, Snapshot
from exporter.publisher import CollectorStatus, Publisher
from exporter.selfmetrics import SelfMetrics
from exporter.view import View, ViewOptions
from tests.acme import MAX_AGE, series
from tests.fakes.kubelet import messages
from tests.fakes.kubelet.messages import Container, Devices, answer
from tests.otlp_rig import Rig
from tests.virtual_time import Clock, virtual

POLL: Final = 5
POLLS: Final = 24 * 3600 // POLL
PART: Final = POLLS // 16
"""Behind each sixteenth of the day it is looked at what is kept."""
RECUT: Final = 700
"""Polls between two layouts of the GPU that is cut; each comes again twice an hour or so."""
QUIET: Final = 20
"""Polls without pods before memory is compared."""
WHOLES: Final = tuple(f"GPU-0000000{number}-1111-2222-3333-444444444444" for number in range(3))
SHARED, CUT = WHOLES[1], WHOLES[2]
GPU, MIG = "nvidia.com/gpu", "nvidia.com/mig-1g.10gb"
STABLE: Final = ("db-0", "db-1", "notebook", "web-0")
"""Names that pods of a StatefulSet have again and again."""
USED: Final = ("accel_power_watts", "accel_memory_used_bytes")

Place = tuple[str, str]
"""uuid, partition"""


@dataclass(frozen=True, slots=True)
class Pod:
    name: str
    uid: str
    place: Place
    resource: str
    device_id: str
    ends: int
    lingers: int
    """Polls for which the kubelet lists it after its end, as kubelets before 1.34 do."""


@dataclass(slots=True)
class World:
    """What is true. ``step`` goes on by one poll."""

    rng: random.Random = field(default_factory=lambda: random.Random(20_260_730))
    poll: int = -1
    layout: int = 0
    running: list[Pod] = field(default_factory=list)
    ended: list[Pod] = field(default_factory=list)
    made: int = 0
    away: int = 0
    """Polls for which the kubelet is not there, with this one."""
    held: dict[Place, int] = field(default_factory=Counter)
    """Polls that were begun and ended by somebody's having it."""
    before: set[Place] = field(default_factory=set)
    last: list[Pod] = field(default_factory=list)
    changed: bool = True
    """Whether anybody came or went with the last step."""

    def step(self) -> None:
        self.poll += 1
        self.away = max(0, self.away - 1) or (self.rng.random() < 0.002) * self.rng.randint(1, 6)
        if not self.away or self._is_quiet():
            # While the kubelet is away nobody comes or goes: it would have to see to it.
            self.away = 0
            self._churn()
        now = {pod.place for pod in self.running}
        self.changed = self.running != self.last
        self.last = list(self.running)
        for place in now & self.before:
            self.held[place] += 1
        self.before = now

    def _is_quiet(self) -> bool:
        return self.poll % PART >= PART - QUIET

    def _churn(self) -> None:
        self.ended = [pod for pod in self.ended if self.poll < pod.ends + pod.lingers]
        recut = self.poll % RECUT == 0
        going = [
            pod for pod in self.running if self.poll >= pod.ends or self._is_quiet() or (recut and pod.place[0] == CUT)
        ]
        self.running = [pod for pod in self.running if pod not in going]
        self.ended += [dataclasses.replace(pod, ends=self.poll) for pod in going]
        if recut:
            self.layout += 1
            self.ended = [pod for pod in self.ended if pod.place[0] != CUT]
        if self._is_quiet():
            return
        for place in self.places():
            sharers = [pod for pod in self.running if pod.place == place]
            if self.rng.random() < 0.1 and len(sharers) < (3 if place[0] == SHARED else 1):
                self._start(place, {pod.device_id for pod in sharers})

    def _start(self, place: Place, taken: set[str]) -> None:
        self.made += 1
        name = self.rng.choice((*STABLE, f"job-{self.made}", f"job-{self.made}"))
        # A name is free again when the pod that had it is deleted; that can be in the same moment.
        if any(pod.name == name for pod in self.running):
            return
        self.ended = [pod for pod in self.ended if pod.name != name]
        device_id = self.mig_uuid(place) if place[1] else place[0]
        if place[0] == SHARED:
            device_id = next(each for n in range(4) if (each := f"{place[0]}::{n}") not in taken)
        ends = self.poll + self.rng.randint(1, 60)
        uid = f"uid-{self.made}"
        resource = MIG if place[1] else GPU
        self.running.append(Pod(name, uid, place, resource, device_id, ends, self.rng.choice((0, 0, 3))))

    def places(self) -> list[Place]:
        parts = (f"1g.10gb/{1 + (2 * self.layout) % 6}", f"1g.10gb/{2 + (2 * self.layout) % 6}")
        return [*((uuid, "") for uuid in WHOLES if uuid != CUT), *((CUT, part) for part in parts)]

    def mig_uuid(self, place: Place) -> str:
        """Never the same again."""
        return f"MIG-{self.layout:08x}-1111-2222-3333-{int(place[1].rpartition('/')[2]):012x}"

    def listed(self) -> bytes:
        """The kubelet's answer, in another order each time."""
        found = [*self.running, *self.ended]
        self.rng.shuffle(found)
        return answer(
            [
                messages.Pod("ml", pod.name, [Container("main", [Devices(pod.resource, [pod.device_id])])])
                for pod in found
            ]
        )

    def objects(self) -> bytes:
        """The same pods with their metadata."""
        found = [(pod, "Running") for pod in self.running] + [(pod, "Succeeded") for pod in self.ended]
        items = [
            {
                "metadata": {
                    "namespace": "ml",
                    "name": pod.name,
                    "uid": pod.uid,
                    "labels": {"job-name": f"of-{pod.uid}", "team": f"team-{len(pod.uid)}"},
                },
                "spec": {"containers": [{"name": "main"}]},
                "status": {
                    "phase": phase,
                    "containerStatuses": [{"name": "main", "containerID": f"cri-o://{pod.uid}"}],
                },
            }
            for pod, phase in found
        ]
        return msgspec.json.encode({"items": items})


class Channel:
    """Stands for the connection to the kubelet's socket."""

    def __init__(self, world: World, address: object, *, max_message: int) -> None:
        self._world = world

    def call(self, method: str, request: bytes, timeout: float) -> bytes:
        if self._world.away:
            raise RpcError("UNAVAILABLE", "nobody listens", absent=True)
        return self._world.listed()

    def interrupt(self) -> None:
        pass

    def close(self) -> None:
        pass


@functools.cache
def catalogue() -> Catalogue:
    """Without faults, which are most of what is derived and not looked at here."""
    found = load(Path(collectors.__path__[0]) / "nvidia", "collectors.nvidia")
    return msgspec.structs.replace(found, faults={})


class Node:
    """The parts of an agent that come behind its workers: attribution, publications, a push."""

    def __init__(self, world: World, clock: Clock) -> None:
        self.world, self.clock = world, clock
        kubernetes = settings.KubernetesAttribution(
            enabled=True,
            pod_resources_socket="/kubelet.sock",
            poll=POLL,
            pods_from="kubelet",
            kubelet_url="http://kubelet",
            node_name="node-1",
            token_file="",
            dra=False,
        )
        processes = settings.ProcessAttribution(enabled=False)
        config = Config(attribution=settings.Attribution(kubernetes=kubernetes, processes=processes))
        self.metrics = SelfMetrics()
        self.changes = 0
        self.service = Attribution(config, {"nvidia": catalogue()}, self.metrics, self._changed)
        raw = frozenset({"DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_FB_USED"})
        self.view = View(catalogue(), ViewOptions(raw=raw, node="node-1", max_age=MAX_AGE))
        self.publisher = Publisher(Book(fault_hold=600.0), lambda reason, count: None)
        self.push = Rig()
        self._snapshot: tuple[int, tuple[Device, ...], Layout] = (0, (), ())

    def _changed(self) -> None:
        self.changes += 1

    def publish(self) -> Publication:
        now = self.clock.monotonic()
        devices, layout = self._devices()
        sample = GroupSample(
            layout=layout, values=(300,) * len(layout), taken_at=self.clock.time(), taken_monotonic=now, duration=0.01
        )
        found = Snapshot(
            collector="nvidia",
            vendor="nvidia",
            generation=self.world.layout,
            devices=devices,
            groups={"normal": sample},
        )
        status = CollectorStatus(name="nvidia", view=self.view, snapshot=found, present=len(WHOLES))
        attributed = self.service.attributed([found])
        return self.publisher.publish([status], attributed, now=self.clock.time(), monotonic=now)

    def _devices(self) -> tuple[tuple[Device, ...], Layout]:
        if self._snapshot[0] != self.world.layout:
            devices = tuple(self._device(place) for place in (*self.world.places(), (CUT, "")))
            keys = [Key("DCGM_FI_DEV_POWER_USAGE", at) for at, device in enumerate(devices) if not device.partition]
            keys += [Key("DCGM_FI_DEV_FB_USED", at) for at, device in enumerate(devices) if device != devices[-1]]
            self._snapshot = (self.world.layout, devices, tuple(keys))
        return self._snapshot[1:]

    def _device(self, place: Place) -> Device:
        uuid, partition = place
        part_uuid = self.world.mig_uuid(place) if partition else ""
        labels = (("gpu", str(WHOLES.index(uuid))), ("UUID", uuid), *((("GPU_I_ID", partition),) if partition else ()))
        return Device(
            uuid=uuid,
            index=str(WHOLES.index(uuid)),
            partition=partition,
            partition_uuid=part_uuid,
            kind="gpu",
            model="H100",
            raw_labels=labels,
        )


labels_of = functools.lru_cache(1024)(parse_labels)


def rows(publication: Publication, metric: str) -> list[tuple[dict[str, str], float]]:
    return [
        (labels_of(text), float(value))
        for family in publication.families
        if family.name == metric
        for block in family.blocks
        for text, value in zip(block.prefixes, block.values, strict=True)
    ]


def check(publication: Publication, world: World) -> None:
    """Each series is there once and says what is true now."""
    named = {labels_of(text).get(label, "") for text in series(publication) for label in ("pod", "exported_pod")}
    assert named <= {"", *(pod.name for pod in world.running)}, "a series names a pod that is gone"
    of: dict[Place, list[Pod]] = {place: [] for place in (*world.places(), (CUT, ""))}
    for pod in world.running:
        of[pod.place].append(pod)
    # A GPU whose parts are all one pod's would be its, too; here each part is another's.
    expected = {place: (owners[0].name, f"of-{owners[0].uid}") for place, owners in of.items() if len(owners) == 1}
    for metric in USED:
        told: dict[Place, tuple[str, str]] = {}
        for labels, _ in rows(publication, metric):
            place = (labels["uuid"], labels.get("partition", ""))
            assert place not in told, f"{metric} of {place} is there twice"
            told[place] = (labels["pod"], labels["job_name"])
        assert told == {place: expected.get(place, ("", "")) for place in told}
        assert len(told) == (len(of) - 1 if metric != USED[0] else len(WHOLES))
    shown = {
        (labels["uuid"], labels.get("partition", ""), labels["pod"], labels["pod_uid"])
        for labels, _ in rows(publication, "accel_allocation_info")
    }
    assert shown == {(*pod.place, pod.name, pod.uid) for pod in world.running}


def reachable(roots: Iterable[object]) -> Counter[str]:
    """How many objects of each type the roots keep: whatever grows, a cache or a list, is among them."""
    passed = (type, types.ModuleType, types.BuiltinFunctionType, types.CodeType, asyncio.Task, asyncio.Future)
    seen: dict[int, object] = {}
    waiting = list(roots)
    while waiting:
        found = waiting.pop()
        if id(found) in seen or isinstance(found, passed):
            continue
        seen[id(found)] = found
        # The globals of a function are everybody's.
        waiting += found.__closure__ or () if isinstance(found, types.FunctionType) else gc.get_referents(found)
    return Counter(type(found).__name__ for found in seen.values())


class Kept(NamedTuple):
    objects: Counter[str]
    """What the node's parts keep, by type."""
    traced: int
    """Bytes that Python has given out since tracing began."""


def kept(node: Node) -> Kept:
    labels_of.cache_clear()
    gc.collect()
    found = reachable([node.service, node.publisher, node.view, node.push, node.metrics])
    return Kept(found, tracemalloc.get_traced_memory()[0])


async def day(node: Node) -> tuple[dict[Place, float], list[Kept]]:
    """Returns what was told last of each device's time, and what was kept after each part of the day."""
    world = node.world
    seconds: dict[Place, float] = {}
    found: list[Kept] = []
    world.step()
    node.service.start()
    await asyncio.sleep(POLL / 2)
    for poll in range(POLLS):
        publication = node.publish()
        if world.changed or poll % 10 == 0:
            check(publication, world)
        for labels, value in rows(publication, "accel_allocated_seconds_total"):
            seconds[labels["uuid"], labels.get("partition", "")] = value
        node.push.encoder.observe(publication)
        if poll % 12 == 11:
            node.push.export(publication)
        if (poll + 1) % PART == 0:
            found.append(kept(node))
            if len(found) == 14:
                # It makes everything slow.
                tracemalloc.start()
        world.step()
        await asyncio.sleep(POLL)
    await node.service.stop()
    return seconds, found


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    for module in (podresources, pods, watch, api):
        monkeypatch.setattr(module, "time", found)
    return found


@pytest.mark.timeout(300)
def test_a_day_of_churn_is_told_right_and_leaves_nothing_behind(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()

    async def get(*_: object, **__: object) -> bytes:
        return world.objects()

    monkeypatch.setattr(Api, "get", get)
    monkeypatch.setattr(podresources, "Channel", functools.partial(Channel, world))

    async def main() -> tuple[dict[Place, float], list[Kept]]:
        return await day(Node(world, clock))

    try:
        seconds, found = virtual(clock, main())
    finally:
        tracemalloc.stop()
    assert world.made > 2500
    assert seconds == pytest.approx({place: POLL * polls for place, polls in world.held.items()})
    # After two parts each layout of the GPU that is cut has been seen.
    sizes = [sum(each.objects.values()) for each in found[2:]]
    assert max(sizes) - min(sizes) < 30, found[-1].objects - found[2].objects
    assert found[15].traced - found[14].traced < 32 * 1024
