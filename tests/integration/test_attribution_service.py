"""All sources together, against a kubelet and an API server that change as clusters do."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import collectors
from collectors.base import Device
from exporter.attribution import api as limits
from exporter.attribution import service, setup
from exporter.attribution.service import Attribution
from exporter.catalogue import load
from exporter.config import Config
from exporter.config import attribution as settings
from exporter.model import Snapshot, Workload
from exporter.selfmetrics import SelfMetrics
from tests.attribution_rig import in_loop, until
from tests.fakes.apiserver.objects import DRA, NAMESPACES, PODS, namespace, pod, resource_claim, resource_slice
from tests.fakes.apiserver.server import ApiServer
from tests.fakes.kubelet import messages
from tests.fakes.kubelet.messages import Claim, Container, Devices, Dra
from tests.fakes.kubelet.server import Kubelet, pods

GPU = "nvidia.com/gpu"
UUIDS = [f"GPU-0000000{number}-1111-2222-3333-444444444444" for number in range(4)]
MIG = "MIG-00000000-1111-2222-3333-00000000000{}"
SLICES = f"{DRA}/v1/resourceslices"
CLAIMS = f"{DRA}/v1/namespaces/ns/resourceclaims"


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "BACKOFF_FIRST", 0.02)
    monkeypatch.setattr(setup, "RETRY", 0.05)


@pytest.fixture
def kubelet(tmp_path: Path) -> Iterator[Kubelet]:
    with Kubelet(tmp_path / "kubelet.sock") as found:
        yield found


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer(dra=["v1"]) as found:
        found.put(PODS)
        found.put(NAMESPACES, namespace("ns", {"capsule.clastix.io/tenant": "oil"}))
        yield found


class Agent:
    """Asks the service as a publication does."""

    def __init__(self, kubelet: Kubelet, server: ApiServer, *, cut: bool = False) -> None:
        """``cut``: the last GPU is cut into three instances."""
        kubernetes = settings.KubernetesAttribution(
            enabled=True,
            pod_resources_socket=str(kubelet.socket),
            poll=0.05,
            hold=0.5,
            pods_from="apiserver",
            node_name="node1",
            api_url=server.url,
            token_file="",
            ca_file="",
            namespaces=True,
            own_pods=("monitoring/*",),
        )
        catalogue = load(Path(collectors.__path__[0]) / "nvidia", "collectors.nvidia")
        devices = tuple(
            Device(uuid=uuid, index=str(number), ids={"dra": f"gpu-{number}"}) for number, uuid in enumerate(UUIDS)
        )
        instances = [
            Device(uuid=UUIDS[3], index="3", partition=f"1g.5gb/{gi}", partition_uuid=MIG.format(gi),
                   ids={"index": "3", "gi": str(gi), "dra": f"gpu-3-mig-1g5gb-19-{gi}"})
            for gi in (7, 8, 9)
        ]  # fmt: skip
        devices += tuple(instances) if cut else ()
        self._snapshot = Snapshot(collector="nvidia", vendor="nvidia", generation=1, devices=devices, groups={})
        config = Config(attribution=settings.Attribution(kubernetes=kubernetes))
        self.service = Attribution(config, {"nvidia": catalogue}, SelfMetrics(), lambda: None)

    def workloads(self) -> dict[int, list[Workload]]:
        """Number of the device → who has it."""
        told = self.service.attributed([self._snapshot])
        assert told is not None
        held = told.allocation.items()
        return {UUIDS.index(uuid): list(workloads) for (uuid, part), workloads in held if not part}

    def unsure(self) -> frozenset[str]:
        told = self.service.attributed([self._snapshot])
        assert told is not None
        return told.unsure

    def parts(self) -> dict[str, list[Workload]]:
        """Instance → who has it."""
        told = self.service.attributed([self._snapshot])
        assert told is not None
        return {partition: list(workloads) for (_, partition), workloads in told.allocation.items() if partition}

    def owners(self) -> dict[int, list[str]]:
        return {device: [each.pod for each in workloads] for device, workloads in self.workloads().items()}


@asynccontextmanager
async def agent(kubelet: Kubelet, server: ApiServer, *, cut: bool = False) -> AsyncIterator[Agent]:
    found = Agent(kubelet, server, cut=cut)
    found.service.start()
    try:
        yield found
    finally:
        await found.service.stop()


def holding(name: str, *devices: int, suffix: str = "", container: str = "main") -> messages.Pod:
    held = [Devices(GPU, [UUIDS[device] + suffix], [0]) for device in devices]
    return messages.Pod("ns", name, [Container(container, held)])


def claiming(name: str, claim: str, *devices: str) -> messages.Pod:
    listed = [Dra("gpu.nvidia.com", "node1", device) for device in devices]
    return messages.Pod("ns", name, [Container("main", claims=[Claim(claim, "ns", listed)])])


@in_loop
async def test_a_pod_gets_its_device_its_job_and_its_tenant_and_gives_them_back(
    kubelet: Kubelet, server: ApiServer
) -> None:
    async with agent(kubelet, server) as found:
        await until(lambda: found.service.statuses()["podresources"].up)
        assert found.owners() == {}
        server.put(PODS, pod("train-0", uid="u1", labels={"jobset.sigs.k8s.io/jobset-name": "train"}))
        kubelet.script = pods([holding("train-0", 0, 1)])
        await until(lambda: found.owners() == {0: ["train-0"], 1: ["train-0"]})
        await until(lambda: found.workloads()[0][0].tenant == "oil")
        (workload,) = found.workloads()[0]
        assert (workload.namespace, workload.container, workload.pod_uid) == ("ns", "main", "u1")
        assert (workload.job_name, workload.job_kind, workload.resource) == ("train", "JobSet", GPU)
        kubelet.script = pods([])
        server.delete(PODS, "train-0")
        await until(lambda: found.owners() == {})


@in_loop
async def test_a_pod_that_is_made_again_with_its_name_is_the_new_one(kubelet: Kubelet, server: ApiServer) -> None:
    server.put(PODS, pod("db-0", uid="first", labels={"job-name": "a"}))
    kubelet.script = pods([holding("db-0", 0)])
    async with agent(kubelet, server) as found:
        await until(lambda: found.workloads().get(0, [Workload()])[0].pod_uid == "first")
        server.delete(PODS, "db-0")
        server.put(PODS, pod("db-0", uid="second", labels={"job-name": "b"}))
        kubelet.script = pods([holding("db-0", 1)])
        await until(lambda: found.owners() == {1: ["db-0"]})
        await until(lambda: found.workloads()[1][0].pod_uid == "second")
        assert found.workloads()[1][0].job_name == "b"


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
@in_loop
async def test_a_finished_pod_owns_nothing_though_the_kubelet_lists_it(
    kubelet: Kubelet, server: ApiServer, phase: str
) -> None:
    server.put(PODS, pod("done"), pod("next"))
    kubelet.script = pods([holding("done", 0)])
    async with agent(kubelet, server) as found:
        await until(lambda: found.owners() == {0: ["done"]})
        server.put(PODS, pod("done", phase=phase))
        await until(lambda: found.owners() == {})
        kubelet.script = pods([holding("done", 0), holding("next", 0)])
        await until(lambda: found.owners() == {0: ["next"]})


@in_loop
async def test_no_device_keeps_a_pod_past_the_bound_when_the_kubelet_is_gone(
    kubelet: Kubelet, server: ApiServer
) -> None:
    kubelet.script = pods([holding("a", 0)])
    async with agent(kubelet, server) as found:
        await until(lambda: found.owners() == {0: ["a"]})
        await asyncio.to_thread(kubelet.stop, leave_file=True)
        await until(lambda: not found.service.statuses()["podresources"].up)
        assert found.owners() == {0: ["a"]}
        await until(lambda: found.owners() == {})
        await asyncio.to_thread(kubelet.start)
        await until(lambda: found.owners() == {0: ["a"]})


@in_loop
async def test_without_the_api_server_pods_are_named_all_the_same(kubelet: Kubelet, server: ApiServer) -> None:
    server.forbidden.update({PODS, NAMESPACES})
    kubelet.script = pods([holding("a", 0)])
    async with agent(kubelet, server) as found:
        await until(lambda: found.owners() == {0: ["a"]})
        await until(lambda: "ClusterRole" in found.service.statuses()["pods"].hint)
        (workload,) = found.workloads()[0]
        assert (workload.namespace, workload.pod, workload.pod_uid) == ("ns", "a", "")


@in_loop
async def test_shares_of_a_device_are_workloads_of_their_own(kubelet: Kubelet, server: ApiServer) -> None:
    replicas = Devices(GPU, [f"{UUIDS[0]}::1", f"{UUIDS[0]}::2"])
    both = messages.Pod("ns", "greedy", [Container("main", [replicas])])
    kubelet.script = pods([both, holding("modest", 0, suffix="::3")])
    async with agent(kubelet, server) as found:
        await until(lambda: found.owners() == {0: ["greedy", "modest"]})
        assert [(each.share, each.replicas) for each in found.workloads()[0]] == [("1", 2), ("3", 1)]


@in_loop
async def test_hamis_annotation_decides_and_the_kubelet_confirms(kubelet: Kubelet, server: ApiServer) -> None:
    annotations = {"hami.io/vgpu-devices-allocated": f"{UUIDS[2]},NVIDIA,8192,30:;"}
    server.put(PODS, pod("slice", annotations=annotations), pod("gone", annotations=annotations))
    kubelet.script = pods([holding("slice", 0, suffix="-7"), holding("plain", 1)])
    async with agent(kubelet, server) as found:
        await until(lambda: found.owners() == {1: ["plain"], 2: ["slice"]})
        assert found.workloads()[2][0].container == "main"
        kubelet.script = pods([])
        await until(lambda: found.owners() == {})


@in_loop
async def test_without_the_annotation_hamis_id_is_no_proof(kubelet: Kubelet, server: ApiServer) -> None:
    """Its scheduler may have chosen another GPU: neither that one's pod nor that any is free is known."""
    kubelet.script = pods([holding("slice", 0, suffix="-7"), holding("plain", 1)])
    async with agent(kubelet, server) as found:
        await until(lambda: found.owners() == {1: ["plain"]})
        assert found.service.joined is not None
        assert found.service.joined.unattributed == {"free": 0, "annotation_unknown": len(UUIDS) - 1}
        assert found.unsure() == {"nvidia"}


@in_loop
async def test_instances_that_hami_makes_are_their_pods_and_no_others(kubelet: Kubelet, server: ApiServer) -> None:
    def annotations(**made: Any) -> dict[str, str]:
        told = {"containerIndex": 0, "deviceIndex": 0, "gpuUUID": UUIDS[3], "profile": "1g.5gb",
                "placement": {"start": 0, "size": 1}, **made}  # fmt: skip
        return {
            "hami.io/vgpu-devices-allocated": f"{UUIDS[3]}[0-0],NVIDIA,4864,0:;",
            "hami.io/vgpu-mig-allocations": json.dumps([told]),
        }

    server.put(PODS, pod("waits", annotations=annotations()))
    server.put(PODS, pod("works", annotations=annotations(migUUID=MIG.format(7), gpuInstanceID=7, computeInstanceID=0)))
    kubelet.script = pods([holding("waits", 3, suffix="-1"), holding("works", 3, suffix="-2"), holding("plain", 0)])
    async with agent(kubelet, server, cut=True) as found:
        await until(lambda: found.owners() == {0: ["plain"]} and found.parts())
        assert {part: [each.pod for each in held] for part, held in found.parts().items()} == {"1g.5gb/7": ["works"]}
        assert found.service.joined is not None
        assert found.service.joined.unmatched == {}
        made = annotations(migUUID=MIG.format(9), gpuInstanceID=9, computeInstanceID=0)
        server.put(PODS, pod("waits", annotations=made))
        await until(lambda: set(found.parts()) == {"1g.5gb/7", "1g.5gb/9"})
        assert [each.pod for each in found.parts()["1g.5gb/9"]] == ["waits"]


@in_loop
async def test_a_mig_device_of_a_claim_has_the_labels_that_dcgm_exporter_gives_it(
    kubelet: Kubelet, server: ApiServer
) -> None:
    mig = {"type": {"string": "mig"}, "profile": {"string": "1g.5gb"}, "parentUUID": {"string": UUIDS[3]}}
    devices = {"gpu-3-mig-1g5gb-19-7": {**mig, "uuid": {"string": MIG.format(7)}}, "gpu-3-mig-1g5gb-19-8": mig}
    server.put(SLICES, resource_slice("s", devices))
    kubelet.script = pods(
        [claiming("static", "a", "gpu-3-mig-1g5gb-19-7"), claiming("made", "b", "gpu-3-mig-1g5gb-19-8")]
    )
    async with agent(kubelet, server, cut=True) as found:
        await until(
            lambda: all(held[0].raw.get("dra_mig_profile") for held in found.parts().values()) and found.parts()
        )
        (static,), (made,) = found.parts()["1g.5gb/7"], found.parts()["1g.5gb/8"]
        assert (static.pod, static.raw["dra_mig_device_uuid"]) == ("static", MIG.format(7))
        assert (made.pod, made.raw["dra_mig_profile"], "dra_mig_device_uuid" in made.raw) == ("made", "1g.5gb", False)


@in_loop
async def test_devices_of_claims_are_found_through_the_slices(kubelet: Kubelet, server: ApiServer) -> None:
    # The slice says otherwise than the name: minor numbers change with a boot.
    uuids: Mapping[str, dict[str, dict[str, str]]] = {"gpu-0": {"uuid": {"string": UUIDS[3]}}}
    server.put(SLICES, resource_slice("s", uuids))
    server.put(CLAIMS, resource_claim("ns", "gpus", [{"driver": "gpu.nvidia.com", "pool": "node1", "device": "gpu-0"}]))
    everything = [
        {"driver": "gpu.nvidia.com", "pool": "node1", "device": f"gpu-{number}", "adminAccess": True}
        for number in range(4)
    ]
    server.put(CLAIMS, resource_claim("ns", "watch", everything))
    kubelet.script = pods([claiming("train", "gpus", "gpu-0"), claiming("monitor", "watch", "gpu-0", "gpu-1", "gpu-2")])
    async with agent(kubelet, server) as found:
        await until(lambda: found.owners() == {3: ["train"]})
        (workload,) = found.workloads()[3]
        assert workload.raw["dra_claim_name"] == "gpus"
        assert workload.resource == "gpu.nvidia.com"


@in_loop
async def test_monitors_of_the_configuration_own_nothing(kubelet: Kubelet, server: ApiServer) -> None:
    monitor = messages.Pod("monitoring", "dcgm", [Container("main", [Devices(GPU, UUIDS)])])
    kubelet.script = pods([monitor, holding("a", 0)])
    async with agent(kubelet, server) as found:
        await until(lambda: found.owners() == {0: ["a"]})


@in_loop
async def test_what_does_not_fit_together_is_counted(kubelet: Kubelet, server: ApiServer) -> None:
    strangers = [Devices(GPU, ["GPU-ffffffff-0000-0000-0000-000000000000", "0"]), Devices("example.com/x", ["1"])]
    kubelet.script = pods([messages.Pod("ns", "a", [Container("main", strangers)]), holding("b", 0)])
    async with agent(kubelet, server) as found:
        await until(lambda: found.owners() == {0: ["b"]})
        joined = found.service.joined
        assert joined is not None
        assert (joined.unmatched, joined.unattributed) == ({GPU: 2}, {"free": 3})


@in_loop
async def test_a_source_that_broke_begins_again(
    kubelet: Kubelet, server: ApiServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """On a host where no thread can be started for a while, no source may be lost for good."""
    kubelet.script = pods([holding("a", 0)])
    server.put(PODS, pod("a", labels={"job-name": "j"}))
    monkeypatch.setattr(service, "RESTART", 0.05)
    start = asyncio.to_thread

    async def refused(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(asyncio, "to_thread", refused)
    async with agent(kubelet, server) as found:
        await until(lambda: caplog.text.count("a source of attribution broke") > 4)
        assert found.owners() == {}
        monkeypatch.setattr(asyncio, "to_thread", start)
        await until(lambda: [each.job_name for each in found.workloads().get(0, [])] == ["j"])
