"""The right pod, job and tenant on the right device, as pods come, end, are evicted and are made again."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.agent import Agent, Seen
from tests.kubelet.api import Refused
from tests.kubelet.cluster import PATIENCE, Cluster
from tests.kubelet.conftest import ALONE, TOGETHER, UUIDS
from tests.kubelet.node import GPU, SHARED, TENANT, Node, agrees, container, held, job, names, of, pod, spec, told

pytestmark = [pytest.mark.kubelet, pytest.mark.timeout(600)]

USAGE = ("accel_utilization_ratio", "accel_power_watts", "accel_memory_used_bytes")
"""Series that carry the workload."""
RAW = "DCGM_FI_DEV_GPU_UTIL"
"""Of the vendor's exporter, which adds the pod to it."""
MARKS = ("namespace", "pod", "container", "job_name", "tenant")
NOBODY = ("", "", "", "", "")


def marks(seen: Seen, series: str, uuid: str) -> tuple[str, ...]:
    (sample,) = seen.all(series, uuid=uuid)
    return tuple(sample.labels.get(label, "") for label in MARKS)


def test_each_device_shows_the_pod_that_has_it_with_its_job_and_tenant(node: Node, agent: Agent) -> None:
    node.make_namespace("oil", {TENANT: "oil-and-gas"})
    node.make_namespace("lab")
    workers = node.start(job("oil", "train", spec(container(gpu=1)), pods=2), devices=2)
    notebook = pod("lab", "notebook", spec(container("idle"), container("kernel", gpu=1)))
    node.start(notebook, devices=1)
    seen = agrees(agent)

    assert {each.uuid for each in held()} == set(ALONE)
    for worker in workers:
        expected = ("oil", worker.pod, "main", "train", "oil-and-gas")
        assert [marks(seen, series, worker.uuid) for series in USAGE] == [expected] * len(USAGE)
        (row,) = of(names(seen), worker.uuid)
        assert (row.pod_uid, row.job_kind) == (worker.pod_uid, "Job")
    (other,) = held() - workers
    # No label of its namespace says who the tenant is: then it is the namespace.
    assert marks(seen, USAGE[0], other.uuid) == ("lab", "notebook", "kernel", "", "lab")
    assert marks(seen, USAGE[0], TOGETHER) == NOBODY
    allocated = {uuid: seen.value("accel_allocated", uuid=uuid) for uuid in UUIDS}
    assert allocated == {**dict.fromkeys(ALONE, 1), TOGETHER: 0}
    for each in held():
        (raw,) = seen.all(RAW, UUID=each.uuid)
        assert [raw.labels[label] for label in ("namespace", "pod", "container")] == [*each[1:3], each.container]
    assert {sample.labels["resource"] for sample in seen.all("accel_allocation_info")} == {GPU}


def test_a_shared_device_shows_each_pod_and_gives_its_usage_to_none(node: Node, agent: Agent) -> None:
    node.make_namespace("share")
    for name in ("one", "two"):
        node.start(pod("share", name, spec(container(shared=1)), {"job-name": f"job-of-{name}"}), devices=1)
    seen = agrees(agent)
    assert [(row.pod, row.job_name) for row in sorted(of(names(seen), TOGETHER))] == [
        ("one", "job-of-one"),
        ("two", "job-of-two"),
    ]
    infos = seen.all("accel_allocation_info", uuid=TOGETHER)
    assert {(info.labels["share"], info.labels["resource"]) for info in infos} == {("shared", SHARED)}
    assert marks(seen, USAGE[0], TOGETHER) == NOBODY


def test_a_job_that_completes_gives_its_device_to_the_next(node: Node, agent: Agent) -> None:
    node.make_namespace("batch")
    first = node.start(job("batch", "first", spec(container(gpu=3))), devices=3)
    assert {row.job_name for row in names(agrees(agent))} == {"first"}
    node.end_containers(first)
    (name,) = {each.pod for each in first}
    node.wait(lambda: node.phase("batch", name) == "Succeeded", "the pod does not end")
    agent.wait_for(lambda seen: not names(seen), PATIENCE)
    second = node.start(job("batch", "second", spec(container(gpu=3))), devices=3)
    seen = agrees(agent)
    assert {each.uuid for each in first} == {each.uuid for each in second}
    assert {(row.job_name, row.pod_uid) for row in names(seen)} == {("second", each.pod_uid) for each in second}
    # The first pod is still there for whoever reads its log.
    assert node.phase("batch", name) == "Succeeded"


def test_a_pod_that_is_made_again_with_its_name_is_the_new_one(node: Node, agent: Agent) -> None:
    node.make_namespace("again")
    first = node.start(pod("again", "db-0", spec(container(gpu=3)), {"job-name": "old"}), devices=3)
    agrees(agent)
    node.api.delete("Pod", "db-0", "again")
    node.wait(lambda: not node.phase("again", "db-0"), "the pod is not deleted")
    second = node.start(pod("again", "db-0", spec(container(gpu=1)), {"job-name": "new"}), devices=1)
    seen = agent.wait_for(lambda seen: {row.pod_uid for row in names(seen)} == {e.pod_uid for e in second}, PATIENCE)
    assert first.isdisjoint(second)
    agrees(agent)
    assert {(row.pod, row.job_name) for row in names(seen)} == {("db-0", "new")}


def test_an_evicted_pod_gives_its_device_back(node: Node, agent: Agent) -> None:
    node.make_namespace("drain")
    stays = node.start(pod("drain", "stays", spec(container(gpu=1))), devices=1)
    node.start(pod("drain", "goes", spec(container(gpu=2))), devices=2)
    agrees(agent)
    eviction = {"apiVersion": "policy/v1beta1", "kind": "Eviction", "metadata": {"name": "goes", "namespace": "drain"}}
    node.api.call("POST", "/api/v1/namespaces/drain/pods/goes/eviction", eviction)
    agent.wait_for(lambda seen: told(seen) == stays, PATIENCE)
    node.wait(lambda: held() == stays, "the evicted pod's containers do not end")


def test_a_pod_that_the_kubelet_evicts_gives_its_device_back(node: Node, agent: Agent) -> None:
    node.make_namespace("disk")
    stays = node.start(pod("disk", "stays", spec(container(gpu=1))), devices=1)
    greedy = container(command="dd if=/dev/zero of=/scratch/x bs=1M count=8; sleep 1000000", gpu=2)
    greedy["volumeMounts"] = [{"name": "scratch", "mountPath": "/scratch"}]
    volumes = [{"name": "scratch", "emptyDir": {"sizeLimit": "1Mi"}}]
    goes = node.start(pod("disk", "goes", spec(greedy, volumes=volumes)), devices=2)
    agent.wait_for(lambda seen: told(seen) == stays | goes, PATIENCE)
    node.wait(lambda: node.phase("disk", "goes") == "Failed", "the kubelet does not evict the pod")
    evicted = node.api.get("Pod", "goes", "disk")
    assert evicted is not None
    assert evicted["status"]["reason"] == "Evicted"
    agent.wait_for(lambda seen: told(seen) == stays, PATIENCE)
    # It is there until somebody deletes it, and owns nothing.
    assert node.phase("disk", "goes") == "Failed"


def test_the_account_may_do_what_the_chart_grants_and_no_more(node: Node, cluster: Cluster, account: Path) -> None:
    limited = cluster.client(account.read_text())
    for path in ("/api/v1/pods", "/api/v1/namespaces"):
        assert limited.call("GET", path)["kind"].endswith("List")
    for method, path in (
        ("GET", "/api/v1/secrets"),
        ("GET", "/api/v1/nodes"),
        ("GET", "/api/v1/namespaces/default/pods/x"),
        ("DELETE", "/api/v1/namespaces/default/pods/x"),
    ):
        with pytest.raises(Refused, match="forbidden") as refused:
            limited.call(method, path)
        assert refused.value.code == 403
