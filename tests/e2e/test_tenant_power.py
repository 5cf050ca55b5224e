"""A real Prometheus scrapes a node as our scrape configuration says: what tenants draw adds up to what the node draws.

The GPUs are those of the fake NVML, the pods those of a fake kubelet: MIG instances of several tenants, time-slicing, a
free GPU; with workload labels on the series, and in join mode.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
import yaml

from dashboards import promql as q
from tests.e2e.agent import Agent
from tests.e2e.worlds import NODE, Place, place
from tests.fakes.kubelet.messages import Container, Devices, Pod
from tests.fakes.kubelet.server import Kubelet, pods
from tests.fakes.nvml import Scenario, scenarios
from tests.prometheus import Prometheus, prometheus

pytestmark = [pytest.mark.gcc, pytest.mark.prometheus, pytest.mark.timeout(180)]

ROOT: Final = Path(__file__).resolve().parents[2]
GPUS: Final = 5
WATTS: Final = {gpu: 310.0 + gpu for gpu in range(GPUS)}
"""As the fake NVML's boards have it: the power of a GPU, whether it is cut or not. Instances tell none."""
TOTAL: Final = 1560.0
UNITS: Final = {"3g.40gb": 60, "1g.10gb": 16}
"""Multiprocessors of the two instances of a GPU that is cut."""
DISCOVERED: Final = {
    "__meta_kubernetes_namespace": "monitoring",
    "__meta_kubernetes_pod_name": "accel-exporter-x7k2p",
    "__meta_kubernetes_pod_container_name": "accel-exporter",
    "__meta_kubernetes_pod_container_port_name": "metrics",
    "__meta_kubernetes_pod_label_app_kubernetes_io_name": "accel-exporter",
    "__meta_kubernetes_pod_node_name": NODE,
}


def gpu_uuid(gpu: int) -> str:
    return f"GPU-48100000-{gpu:04x}-4000-8000-00000000{gpu:04x}"


def mig_uuid(gpu: int, slot: int) -> str:
    return f"MIG-48100000-{gpu:04x}-5000-8000-{slot:012x}"


def cut(scenario: Scenario, gpu: int) -> Scenario:
    """The GPU in two instances: slot 0 is 3g.40gb, slot 2 is 1g.10gb."""
    model = scenarios.h100_mig()
    for slot, units in ((0, UNITS["3g.40gb"]), (2, UNITS["1g.10gb"])):
        keys = {**model.keys(f"mig 0.{slot}"), "uuid": mig_uuid(gpu, slot), "attr.sm": units}
        scenario = scenario.with_keys(f"mig {gpu}.{slot}", keys)
    return scenario.with_keys(f"gpu {gpu}", {"mig_mode": 1, "mig_pending": 1})


def node() -> Scenario:
    """GPUs 0 and 4 are cut, the others whole."""
    scenario = scenarios.h100(GPUS)
    for gpu in range(GPUS):
        scenario = scenario.with_keys(f"gpu {gpu}", {"uuid": gpu_uuid(gpu)})
    return cut(cut(scenario, 0), 4)


def holding(namespace: str, pod: str, **resources: str) -> Pod:
    devices = [Devices(f"nvidia.com/{name.replace('_', '-')}", [identity]) for name, identity in resources.items()]
    return Pod(namespace, pod, [Container("main", devices)])


PODS: Final = (
    # Two tenants on the instances of GPU 0.
    holding("red", "notebook", mig_3g=mig_uuid(0, 0)),
    holding("blue", "infer", mig_1g=mig_uuid(0, 2)),
    holding("red", "train", gpu=gpu_uuid(1)),
    # Two pods on GPU 2, by time-slicing.
    holding("red", "share-a", gpu=f"{gpu_uuid(2)}::0"),
    holding("green", "share-b", gpu=f"{gpu_uuid(2)}::1"),
    # Both instances of GPU 4; nobody has GPU 3.
    holding("blue", "both", mig_3g=mig_uuid(4, 0), mig_1g=mig_uuid(4, 2)),
)
NAIVE: Final = {"red": WATTS[1], "blue": WATTS[4], "": WATTS[0] + WATTS[2] + WATTS[3]}
"""By the labels of the series: a GPU of several tenants counts for none of them."""
SHARES: Final = {
    "red": WATTS[1] + WATTS[0] * 60 / 76 + WATTS[2] / 2,
    "blue": WATTS[4] + WATTS[0] * 16 / 76,
    "green": WATTS[2] / 2,
}
"""By the shares that each tenant holds."""


def scrape_jobs(address: str) -> list[dict[str, Any]]:
    """Those of deploy/prometheus, with the one target in place of discovery."""
    jobs: list[dict[str, Any]] = yaml.safe_load((ROOT / "deploy/prometheus/kubernetes.yaml").read_text())[
        "scrape_configs"
    ]
    for job in jobs:
        del job["kubernetes_sd_configs"]
        job["static_configs"] = [{"targets": [address], "labels": DISCOVERED}]
    return jobs


class Scene(NamedTuple):
    mode: str
    server: Prometheus


def configured(here: Place, mode: str, socket: Path) -> dict[str, Any]:
    kubernetes = {"enabled": True, "pods_from": "none", "poll": 1, "pod_resources_socket": str(socket)}
    return here.config(attribution={"mode": mode, "kubernetes": kubernetes}, labels={"node": False})


@pytest.fixture(scope="module", params=["labels", "join"])
def scene(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("tenants")
    here = place(folder, node())
    with Kubelet(folder / "kubelet.sock") as kubelet:
        kubelet.script = pods(PODS, shuffled=True)
        config = configured(here, request.param, kubelet.socket)
        with (
            Agent.start(folder, {**os.environ, **here.environ}, config) as agent,
            prometheus(folder, scrape_jobs(agent.address)) as server,
        ):
            # In both halves: the last device of the last pod.
            server.wait_for(f"count(accel_allocation_info) == {len(PODS) + 1} and sum(accel_power_watts) == {TOTAL}")
            server.wait_for('count(DCGM_FI_DEV_POWER_USAGE{exported_pod="both"}) == 2')
            yield Scene(request.param, server)


def by(server: Prometheus, query: str, *labels: str) -> dict[Any, float]:
    """Its values by one label, or by several as a tuple; one that is absent is empty."""
    found = {tuple(sample.labels.get(label, "") for label in labels): sample for sample in server.query(query)}
    return {key if len(labels) > 1 else key[0]: round(sample.value, 6) for key, sample in found.items()}


def rounded(expected: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value, 6) for name, value in expected.items()}


def test_power_is_there_once_for_each_gpu_whoever_shares_it(scene: Scene) -> None:
    assert by(scene.server, "accel_power_watts", "device") == {str(gpu): watts for gpu, watts in WATTS.items()}
    assert sum(WATTS.values()) == TOTAL


def test_the_sum_by_tenant_is_the_nodes_with_what_no_single_tenant_has_under_no_name(scene: Scene) -> None:
    found = by(scene.server, "sum by (tenant) (accel_power_watts)", "tenant")
    assert found == (NAIVE if scene.mode == "labels" else {"": TOTAL})
    assert sum(found.values()) == TOTAL


def test_each_tenants_share_and_what_is_free_are_the_nodes(scene: Scene) -> None:
    """The dashboards' and rules' own expression: instances by their compute units, sharers in equal parts."""
    power = q.total(q.DEVICE, "accel_power_watts")
    held = by(scene.server, q.total(("tenant",), q.held_part_of(q.EVERYTHING, power)), "tenant")
    assert held == rounded(SHARES)
    share = q.device_share(q.EVERYTHING)
    nobodys = f"({share} * {q.on(q.PART)} (1 - {q.most(q.PART, 'accel_allocated')}))"
    (sample,) = scene.server.query(f"sum({nobodys} * {q.on(q.DEVICE)} group_left () {power})")
    assert sample.value == WATTS[3]
    assert round(sum(held.values()) + sample.value, 3) == TOTAL


def test_each_sharer_is_told_once(scene: Scene) -> None:
    sharers = by(scene.server, 'accel_allocation_info{device="2"}', "namespace", "pod", "share")
    assert sharers == {("red", "share-a", "shared"): 1, ("green", "share-b", "shared"): 1}
    assert by(scene.server, "accel_allocated", "device", "partition") == {
        ("0", "3g.40gb/2"): 1,
        ("0", "1g.10gb/9"): 1,
        ("1", ""): 1,
        ("2", ""): 1,
        ("3", ""): 0,
        ("4", "3g.40gb/2"): 1,
        ("4", "1g.10gb/9"): 1,
    }


def test_the_documented_join_gives_whole_devices_to_their_pods_in_both_modes(scene: Scene) -> None:
    page = (ROOT / "docs/scaling.md").read_text()
    (query,) = re.findall(r"```promql\n(.*?)```", page, re.DOTALL)
    assert by(scene.server, query, "namespace", "pod") == {("red", "train"): WATTS[1]}


def test_no_common_series_is_the_agents_own_pods(scene: Scene) -> None:
    assert scene.server.query('{job="accel-exporter", namespace="monitoring"}') == []
    assert scene.server.query('{job="accel-exporter", pod=~"accel-exporter.*"}') == []


# What public dashboards for dcgm-exporter ask of a Prometheus that does not honor labels.

PUBLIC: Final = {
    'DCGM_FI_DEV_FB_USED{exported_namespace=~"red|blue",exported_pod=~".+"}': {"notebook", "infer", "train", "both"},
    'avg by (exported_namespace, exported_pod) (DCGM_FI_DEV_GPU_UTIL{exported_pod="train"})': {"train"},
    'sum by (exported_pod) (DCGM_FI_DEV_POWER_USAGE{exported_namespace="red"})': {"notebook", "train"},
    'max by (exported_pod, exported_container) (DCGM_FI_DEV_GPU_TEMP{exported_container="main"})': {
        "notebook", "infer", "train", "both",
    },
}  # fmt: skip


@pytest.mark.parametrize("query", PUBLIC)
def test_dashboards_that_ask_for_exported_pods_have_data(scene: Scene, query: str) -> None:
    assert {sample.labels["exported_pod"] for sample in scene.server.query(query)} == PUBLIC[query]


def test_the_vendors_series_keep_the_targets_own_pod_beside_the_workloads(scene: Scene) -> None:
    (sample,) = scene.server.query('DCGM_FI_DEV_POWER_USAGE{gpu="1"}')
    assert sample.value == WATTS[1]
    told = {name: sample.labels[name] for name in ("exported_namespace", "exported_pod", "namespace", "pod", "node")}
    assert told == {
        "exported_namespace": "red",
        "exported_pod": "train",
        "namespace": "monitoring",
        "pod": DISCOVERED["__meta_kubernetes_pod_name"],
        "node": NODE,
    }


def test_a_shared_gpus_raw_series_is_there_once_and_nobodys(scene: Scene) -> None:
    (sample,) = scene.server.query('DCGM_FI_DEV_POWER_USAGE{gpu="2"}')
    assert sample.labels.get("exported_pod", "") == ""
