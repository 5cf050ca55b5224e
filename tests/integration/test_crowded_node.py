"""Nodes with very many pods and ids: a real kubelet's answers of that size, an API server with as many pods."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import collectors
from collectors.base import Device
from exporter.attribution import pods as metadata
from exporter.attribution.join import SLICE
from exporter.attribution.podresources import PodResources
from exporter.attribution.service import Attribution
from exporter.catalogue import load
from exporter.config import Config
from exporter.config import attribution as settings
from exporter.model import Snapshot, Workload
from exporter.selfmetrics import SelfMetrics
from tests.attribution_rig import Heard, in_loop, running, until
from tests.fakes.apiserver.objects import NAMESPACES, PODS, namespace, pod
from tests.fakes.apiserver.server import ApiServer
from tests.fakes.kubelet import messages
from tests.fakes.kubelet.messages import Claim, Container, Devices, Dra, answer
from tests.fakes.kubelet.server import Kubelet, pods, raw

GPU = "nvidia.com/gpu"
UUIDS = [f"GPU-0000000{number}-1111-2222-3333-444444444444" for number in range(4)]
CROWD = 500
"""Pods; Kubernetes itself is tested with 110 on a node, and some run 500."""
MANY = 99_000
"""Ids; more than 100,000 are refused."""


@pytest.fixture
def kubelet(tmp_path: Path) -> Iterator[Kubelet]:
    with Kubelet(tmp_path / "kubelet.sock") as found:
        yield found


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer() as found:
        found.put(PODS)
        found.put(NAMESPACES, namespace("ns", {"capsule.clastix.io/tenant": "oil"}))
        yield found


class Agent:
    """Asks the service as a publication does."""

    def __init__(self, kubelet: Kubelet, server: ApiServer) -> None:
        kubernetes = settings.KubernetesAttribution(
            enabled=True,
            pod_resources_socket=str(kubelet.socket),
            poll=0.05,
            pods_from="apiserver",
            node_name="node1",
            api_url=server.url,
            token_file="",
            ca_file="",
            namespaces=True,
        )
        catalogue = load(Path(collectors.__path__[0]) / "nvidia", "collectors.nvidia")
        devices = tuple(Device(uuid=uuid, index=str(number)) for number, uuid in enumerate(UUIDS))
        self.snapshot = Snapshot(collector="nvidia", vendor="nvidia", generation=1, devices=devices, groups={})
        config = Config(attribution=settings.Attribution(kubernetes=kubernetes))
        self.service = Attribution(config, {"nvidia": catalogue}, SelfMetrics(), lambda: None)

    def workloads(self) -> dict[int, list[Workload]]:
        """Number of the device → who has it."""
        told = self.service.attributed([self.snapshot])
        return {} if told is None else {UUIDS.index(uuid): list(each) for (uuid, _), each in told.allocation.items()}

    def owners(self) -> dict[int, list[str]]:
        return {device: [each.pod for each in workloads] for device, workloads in self.workloads().items()}


@asynccontextmanager
async def agent(kubelet: Kubelet, server: ApiServer) -> AsyncIterator[Agent]:
    found = Agent(kubelet, server)
    found.service.start()
    try:
        yield found
    finally:
        await found.service.stop()


def holding(name: str, device: int, suffix: str = "") -> messages.Pod:
    return messages.Pod("ns", name, [Container("main", [Devices(GPU, [UUIDS[device] + suffix])])])


def crowd(*holders: messages.Pod) -> list[messages.Pod]:
    """Five hundred pods: the holders, and others that have processors, memory and nothing else."""
    names = [f"pod-{number}" for number in range(CROWD - len(holders))]
    plain = Container("main", cpus=range(8), memory=[2**30])
    return [*holders, *(messages.Pod("ns", name, [plain]) for name in names)]


def stuck() -> messages.Pod:
    """A pod whose claim's driver fails and repeats what it has prepared, without end."""
    listed = [Dra("other.example.com", "n", f"d-{i % 8}", cdi=[f"vendor/class={'x' * 99}"]) for i in range(120_000)]
    return messages.Pod("ns", "stuck", [Container("main", claims=[Claim("all", "ns", listed)])])


@in_loop
async def test_of_five_hundred_pods_and_17_megabytes_each_device_gets_its_own(
    kubelet: Kubelet, server: ApiServer
) -> None:
    holders = [holding(f"train-{number}", number) for number in range(4)]
    listed = crowd(stuck(), *holders)
    body = answer(listed)
    assert len(body) > 17_000_000
    server.put(
        PODS, *(pod(each.name, uid=f"uid-{each.name}", labels={"job-name": f"job-{each.name}"}) for each in listed)
    )
    kubelet.script = raw(body)
    async with agent(kubelet, server) as found:
        await until(lambda: len(found.owners()) == 4)
        await until(lambda: all(each[0].pod_uid for each in found.workloads().values()))
        for number, (workload,) in found.workloads().items():
            name = f"train-{number}"
            assert (workload.pod, workload.pod_uid, workload.job_name) == (name, f"uid-{name}", f"job-{name}")
            assert workload.tenant == "oil"
        # The next answer, without one of them, counts within one poll.
        kubelet.script = raw(answer(crowd(stuck(), *holders[1:])))
        await until(lambda: found.owners() == {number: [f"train-{number}"] for number in (1, 2, 3)})


def many() -> list[messages.Pod]:
    """Pods that hold shares of the four GPUs, in all a hundred thousand."""
    of_one = 4000
    return [
        messages.Pod(
            "ns",
            f"p-{number // of_one}",
            [
                Container(
                    "main", [Devices(GPU, [f"{UUIDS[i % 4]}::{i}" for i in range(number, min(number + of_one, MANY))])]
                )
            ],
        )
        for number in range(0, MANY, of_one)
    ]


def shares(found: Agent) -> Sequence[int]:
    return [sum(workload.replicas for workload in each) for _, each in sorted(found.workloads().items())]


@in_loop
async def test_a_hundred_thousand_ids_are_joined_between_other_work(kubelet: Kubelet, server: ApiServer) -> None:
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    kubelet.script = pods([holding("before", 0)])
    async with agent(kubelet, server) as found:
        await until(lambda: found.owners() == {0: ["before"]})
        kubelet.script = raw(answer(many()))
        busy: set[int] = set()
        async with running(other()):
            while found.owners() == {0: ["before"]}:
                # What is known is there at once, while the rest is worked out.
                if found.service._long is not None:
                    busy.add(turns)
                await asyncio.sleep(0)
        assert shares(found) == [MANY // 4] * 4
        assert {each.pod for each in found.workloads()[0]} == {f"p-{number}" for number in range(25)}
        # Whoever else wants the loop has it after each slice.
        assert len(busy) >= MANY // SLICE
        # It is done, and not begun again.
        assert found.service._long is None
        before = found.service.attributed([found.snapshot])
        await asyncio.sleep(0)
        assert found.service.attributed([found.snapshot]) is before
        kubelet.script = pods([holding("after", 1)])
        await until(lambda: found.owners() == {1: ["after"]})


@in_loop
async def test_an_agent_that_ends_in_the_middle_leaves_no_task(kubelet: Kubelet, server: ApiServer) -> None:
    kubelet.script = raw(answer(many()))
    async with agent(kubelet, server) as found:
        await until(lambda: found.workloads() == {} and found.service._long is not None)
        task = found.service._long
    assert task is not None
    assert task.cancelled()
    assert found.service._long is None


@in_loop
async def test_a_fault_in_the_middle_leaves_what_was_known_and_the_next_join_its_chance(
    kubelet: Kubelet, server: ApiServer, caplog: pytest.LogCaptureFixture
) -> None:
    kubelet.script = pods([holding("before", 0)])
    async with agent(kubelet, server) as found:
        await until(lambda: found.owners() == {0: ["before"]})
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("exporter.attribution.join.settle", lambda entries: entries[MANY])
            kubelet.script = raw(answer(many()))
            await until(lambda: found.owners() and "please report it" in caplog.text)
            assert found.owners() == {0: ["before"]}
        kubelet.script = pods([holding("after", 1)])
        await until(lambda: found.owners() == {1: ["after"]})


@in_loop
async def test_a_pod_made_anew_under_its_name_gets_what_a_finished_pod_is_still_listed_with(kubelet: Kubelet) -> None:
    """Between two answers: of the pod itself only the name is told, and it has been there for longer."""
    heard = Heard()
    found = PodResources(str(kubelet.socket), 0.05, 60.0, changed=heard.changed, failed=heard.failed)

    def owners() -> dict[str, list[str]]:
        told: dict[str, list[str]] = {}
        for claim in found.claims():
            told.setdefault(claim.device_id, []).append(claim.pod)
        return told

    kubelet.script = pods([holding("db-0", 1)])
    async with running(found.run()):
        await until(lambda: owners() == {UUIDS[1]: ["db-0"]})
        kubelet.script = pods([holding("db-0", 1), holding("job", 0)])
        await until(lambda: owners() == {UUIDS[0]: ["job"], UUIDS[1]: ["db-0"]})
        kubelet.script = pods([holding("db-0", 0), holding("job", 0)], shuffled=True)
        await until(lambda: UUIDS[1] not in owners())
        assert owners() == {UUIDS[0]: ["db-0"]}


@in_loop
async def test_labels_of_namespaces_are_gathered_once_for_all_workloads(
    kubelet: Kubelet, server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    gathered = 0
    really = metadata.namespaces_of

    def counting(*told: object) -> object:
        nonlocal gathered
        gathered += 1
        return really(*told)  # type: ignore[arg-type]

    monkeypatch.setattr("exporter.attribution.setup.namespaces_of", counting)
    sharers = [holding(f"p-{number}", 0, suffix=f"::{number}") for number in range(200)]
    kubelet.script = pods(sharers)
    async with agent(kubelet, server) as found:
        await until(lambda: len(found.workloads().get(0, [])) == 200)
        await until(lambda: {each.tenant for each in found.workloads()[0]} == {"oil"})
        # A few joins: with the first answer, the pods, the namespaces.
        assert gathered < 20
