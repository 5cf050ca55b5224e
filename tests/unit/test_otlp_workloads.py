"""Whom a point is about: the node, or the workload that has the device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from exporter.derived import Book
from exporter.families import Publication
from exporter.model import Allocation, Attributed, Snapshot, Usage, Workload
from exporter.otlp.encode import Selection
from exporter.publisher import CollectorStatus, Publisher
from exporter.view import View, ViewOptions
from tests.acme import MAX_AGE, catalogue, device, sample, snapshot
from tests.otlp import Point, one
from tests.otlp_rig import NODE, OTHER, POD, Rig

POD_RESOURCE = {
    "k8s.namespace.name": "ml",
    "k8s.pod.name": "train-0",
    "k8s.pod.uid": "uid-0",
    "k8s.container.name": "main",
    "k8s.job.name": "train",
    "accel.job.name": "train",
    "accel.job.kind": "Job",
}
ROWS = [("acme_power_mw", 0, 5000), ("acme_power_mw", 1, 7000), ("acme_repair_failed", 0, 0)]


def found() -> Snapshot:
    return snapshot([device("0"), device("1")], {"normal": sample(ROWS)})


class Agent:
    """The publisher of an agent with two devices."""

    def __init__(self, **options: Any) -> None:
        given = {"raw": frozenset({"acme_power_mw"}), "max_age": MAX_AGE, "node": "node-1", **options}
        self._view = View(catalogue(), ViewOptions(**given))
        self._publisher = Publisher(Book(600.0), lambda reason, count: None)

    def publish(self, allocation: Allocation, usage: Any = None) -> Publication:
        status = CollectorStatus(name="acme", view=self._view, snapshot=found())
        return self._publisher.publish([status], Attributed(allocation, usage or {}), now=1_000_100.0, monotonic=100.0)


def export(allocation: Allocation, *, names: Any = "conventions", usage: Any = None, **options: Any) -> list[Point]:
    return Rig(Selection("both", names)).export(Agent(**options).publish(allocation, usage))


HELD = {("ACME-0", ""): (POD,)}


def test_what_a_workload_causes_stands_under_its_resource_with_the_nodes_attributes() -> None:
    power = one(export(HELD), "hw.power", hw_id="ACME-0")
    assert power.resource == {**NODE, **POD_RESOURCE}
    assert power.value == 5.0
    assert {"namespace", "pod", "container", "job_name", "tenant", "node"}.isdisjoint(power.attributes)


def test_what_it_does_not_cause_and_free_devices_stand_under_the_node() -> None:
    points = export(HELD)
    assert one(points, "hw.power", hw_id="ACME-1").resource == NODE
    assert one(points, "accel.memory_repair_failed", uuid="ACME-0").resource == NODE
    assert one(points, "hw.gpu.info", hw_id="ACME-0").resource == NODE


def test_the_series_that_tell_of_an_allocation_keep_its_labels_and_stand_under_the_workload() -> None:
    told = one(export(HELD), "accel.allocation_info", uuid="ACME-0")
    assert told.resource == {**NODE, **POD_RESOURCE}
    assert told.attributes["pod_uid"] == "uid-0"
    assert told.attributes["job_kind"] == "Job"


SHARED = {("ACME-0", ""): (POD, OTHER)}


def test_of_a_shared_device_the_node_is_charged_and_each_workload_is_told() -> None:
    points = export(SHARED, usage={("ACME-0", "", "ml", "train-0", "main"): Usage(7, 0.25)})
    assert one(points, "hw.power", hw_id="ACME-0").resource == NODE
    told = [point for point in points if point.name == "accel.allocation_info"]
    assert [point.resource.get("k8s.pod.uid") for point in told] == ["uid-0", "uid-1"]
    # Without the labels on the points, Prometheus would take the two for one.
    assert len({point.labels for point in told}) == 2
    memory = one(points, "accel.container_memory_used")
    assert memory.resource["k8s.pod.uid"] == "uid-0"
    assert memory.value == 7
    share = one(points, "accel.container_utilization")
    assert (share.resource["k8s.pod.uid"], share.value) == ("uid-0", 0.25)


def test_a_job_outside_kubernetes_has_a_resource_without_a_pod() -> None:
    job = Workload(job_name="4711", job_kind="slurm", tenant="physics", queue="long")
    power = one(export({("ACME-0", ""): (job,)}), "hw.power", hw_id="ACME-0")
    assert power.resource == {
        **NODE,
        "accel.job.name": "4711",
        "accel.job.kind": "slurm",
        "accel.tenant": "physics",
        "accel.queue": "long",
    }


@pytest.mark.parametrize(
    ("kind", "attribute"),
    [("Deployment", "k8s.deployment.name"), ("StatefulSet", "k8s.statefulset.name"), ("CronJob", "k8s.cronjob.name")],
)
def test_the_owner_of_a_pod_is_named_by_its_kind(kind: str, attribute: str) -> None:
    pod = msgspec.structs.replace(POD, job_kind=kind)
    assert one(export({("ACME-0", ""): (pod,)}), "hw.power", hw_id="ACME-0").resource[attribute] == "train"


def test_where_the_labels_are_left_off_the_resource_is_the_nodes() -> None:
    points = export(HELD, workload="none")
    assert one(points, "hw.power", hw_id="ACME-0").resource == NODE
    assert one(points, "accel.allocation_info").resource["k8s.pod.name"] == "train-0"


def test_under_prometheus_names_the_points_keep_the_labels_of_metrics() -> None:
    power = one(export(HELD, names="prometheus"), "accel.power", uuid="ACME-0")
    assert power.attributes == {
        "vendor": "acme",
        "device": "0",
        "uuid": "ACME-0",
        "node": "node-1",
        "namespace": "ml",
        "pod": "train-0",
        "container": "main",
        "job_name": "train",
        "tenant": "",
    }
    assert power.resource == {**NODE, **POD_RESOURCE}


def test_raw_series_stand_under_the_node_with_their_own_labels() -> None:
    raw = one(export(HELD), "acme_power_mw", slot="0")
    assert raw.resource == NODE
    assert raw.attributes["UUID"] == "ACME-0"


OWN_POD = {
    "k8s.namespace.name": "monitoring",
    "k8s.pod.name": "accel-exporter-x",
    "k8s.pod.uid": "uid-agent",
    "k8s.container.name": "agent",
    "k8s.daemonset.name": "own-daemonset",
    "container.id": "c0ffee",
}


@pytest.mark.parametrize("allocation", [{}, HELD, {("ACME-0", ""): (Workload(job_name="4711"),)}])
def test_the_agents_own_pod_never_seems_to_work_on_a_device(allocation: Allocation) -> None:
    rig = Rig(node={**NODE, "k8s.cluster.name": "c1", "k8s.node.name": "node-1", **OWN_POD})
    for point in rig.export(Agent().publish(allocation)):
        assert point.resource["k8s.cluster.name"] == "c1"
        assert point.resource["k8s.node.name"] == "node-1"
        assert set(point.resource.values()).isdisjoint(OWN_POD.values())


def test_a_pod_that_takes_a_device_ends_the_nodes_series_of_it() -> None:
    agent, rig = Agent(), Rig()
    rig.export(agent.publish({}))
    points = rig.export(agent.publish(HELD))
    power: Sequence[Point] = [p for p in points if p.name == "hw.power" and p.attributes["hw.id"] == "ACME-0"]
    assert {(p.resource.get("k8s.pod.name"), p.value) for p in power} == {(None, None), ("train-0", 5.0)}
    # Whatever the workload does not cause goes on.
    assert one(points, "hw.gpu.info", hw_id="ACME-0").value == 1


def test_resources_of_pods_that_are_gone_are_forgotten() -> None:
    agent, rig = Agent(), Rig()
    for number in range(20):
        pod = msgspec.structs.replace(POD, pod=f"p{number}", pod_uid=f"u{number}")
        rig.export(agent.publish({("ACME-0", ""): (pod,)}))
    assert len(rig.resources._workloads) == 1
