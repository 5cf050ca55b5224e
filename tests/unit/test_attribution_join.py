"""Claims meet devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from collectors.base import Device
from exporter.attribution.claims import Claim, Owner, Pod
from exporter.attribution.identity import identifier
from exporter.attribution.join import Excluded, Joined, join
from exporter.attribution.match import VendorDevices
from exporter.attribution.static import claims_of
from exporter.attribution.table import Attribution as Table
from exporter.attribution.table import IdPattern
from exporter.attribution.watch import Metadata
from exporter.config.attribution import Attribution, JobRule, StaticOwner, TenantSource
from exporter.model import Workload

TABLE = Table(
    resources=("acme.com/*",),
    ignore=("acme.com/memory",),
    ids=(
        IdPattern(pattern=r"(?P<uuid>ACME-\d+)(?:::(?P<share>\d+))?"),
        IdPattern(pattern=r"(?P<partition_uuid>PART-\w+)"),
        IdPattern(pattern=r"acme(?P<minor>\d+)(?:/gi(?P<gi>\d+))?"),
        IdPattern(pattern=r"(?P<pci_bus_id>[0-9a-fA-F:.]+)"),
        IdPattern(pattern=r"(?P<core>\d+)", resources=("acme.com/core",)),
        IdPattern(pattern=r"(?P<index>\d+)", resources=("acme.com/npu",)),
    ),
)
DEVICES = (
    Device(uuid="ACME-0", index="0", pci_bus_id="00000000:1A:00.0", ids={"minor": "3"}),
    Device(uuid="ACME-1", index="1", pci_bus_id="00000000:3B:00.0", serial="S1", ids={"minor": "4"}),
    Device(
        uuid="ACME-1", index="1", partition="1g/7", partition_uuid="PART-a", ids={"minor": "4", "gi": "7", "core": "2"}
    ),
    Device(
        uuid="ACME-1", index="1", partition="1g/8", partition_uuid="PART-b", ids={"minor": "4", "gi": "8", "core": "3"}
    ),
)
VENDORS = [VendorDevices("acme", TABLE, DEVICES)]


def claim(device_id: str, pod: str = "p", resource: str = "acme.com/npu", **more: Any) -> Claim:
    return Claim(
        source=more.pop("source", "podresources"),
        resource=resource,
        device_id=device_id,
        namespace=more.pop("namespace", "ns"),
        pod=pod,
        container=more.pop("container", "c"),
        **more,
    )


def joined(claims: Sequence[Claim], pods: Sequence[Pod] = (), config: Attribution | None = None, **more: Any) -> Joined:
    config = config or Attribution()
    namespaces = more.pop("namespaces", {})
    return join(
        VENDORS,
        claims,
        {(pod.namespace, pod.name): pod for pod in pods},
        identifier(config, lambda: namespaces),
        **more,
    )


def owners(found: Joined) -> dict[tuple[str, str], list[str]]:
    return {key: [workload.pod for workload in workloads] for key, workloads in found.allocation.items()}


@pytest.mark.parametrize(
    ("resource", "device_id", "key"),
    [
        ("acme.com/npu", "ACME-0", ("ACME-0", "")),
        ("acme.com/npu.shared", "ACME-0::5", ("ACME-0", "")),
        ("acme.com/part-1g", "PART-a", ("ACME-1", "1g/7")),
        ("acme.com/npu", "acme3", ("ACME-0", "")),
        ("acme.com/npu", "acme4/gi8", ("ACME-1", "1g/8")),
        ("acme.com/npu", "0000:1a:00.0", ("ACME-0", "")),
        ("acme.com/npu", "0000:1A:00.0", ("ACME-0", "")),
        ("acme.com/core", "3", ("ACME-1", "1g/8")),
        ("acme.com/npu", "0", ("ACME-0", "")),
    ],
)
def test_each_form_of_id_finds_its_device(resource: str, device_id: str, key: tuple[str, str]) -> None:
    found = joined([claim(device_id, resource=resource)])
    assert owners(found)[key] == ["p"]
    assert found.unmatched == {}


def test_an_id_that_names_a_whole_gives_its_parts_too() -> None:
    assert owners(joined([claim("ACME-1")])) == {
        ("ACME-1", ""): ["p"],
        ("ACME-1", "1g/7"): ["p"],
        ("ACME-1", "1g/8"): ["p"],
    }


def test_a_whole_belongs_to_the_one_that_has_all_its_parts_and_to_nobody_else() -> None:
    both = [claim("PART-a"), claim("PART-b")]
    assert owners(joined(both))["ACME-1", ""] == ["p"]
    other = [claim("PART-a"), claim("PART-b", pod="q")]
    assert ("ACME-1", "") not in owners(joined(other))
    assert ("ACME-1", "") not in owners(joined([claim("PART-a")]))


def test_ids_that_no_device_has_are_counted_by_resource() -> None:
    found = joined(
        [claim("ACME-7"), claim("ACME-8"), claim("x", resource="other.com/gpu"), claim("1", resource="acme.com/memory")]
    )
    assert found.unmatched == {"acme.com/npu": 2}
    assert found.allocation == {}
    assert found.unattributed == {"free": 3}


def test_a_device_told_once_for_each_numa_node_is_one_claim() -> None:
    [workload] = joined([claim("ACME-0"), claim("ACME-0")]).allocation["ACME-0", ""]
    assert (workload.replicas, workload.share) == (1, "")


def test_replicas_of_one_container_are_one_workload_with_a_count() -> None:
    [workload] = joined([claim(f"ACME-0::{n}") for n in (4, 2, 9)]).allocation["ACME-0", ""]
    assert workload.replicas == 3


def test_a_device_shared_by_pods_has_them_all() -> None:
    assert owners(joined([claim("ACME-0::0", pod="a"), claim("ACME-0::1", pod="b")]))["ACME-0", ""] == ["a", "b"]


def test_a_pod_that_has_ended_owns_nothing() -> None:
    done = Pod(namespace="ns", name="done", phase="Succeeded")
    assert owners(joined([claim("ACME-0", pod="done"), claim("ACME-0", pod="p")], [done]))["ACME-0", ""] == ["p"]


def test_monitors_that_see_every_device_own_none() -> None:
    excluded = Excluded(("ns/mon*",))
    assert joined([claim("ACME-0", pod="monitor")], excluded=excluded).allocation == {}


def test_an_annotation_wins_over_the_kubelet_and_the_kubelet_over_processes() -> None:
    told = [
        claim("ACME-0", pod="kubelet"),
        claim("ACME-0", pod="annotation", source="annotations"),
        claim("ACME-0", pod="process", source="processes"),
    ]
    found = joined(told)
    assert owners(found)["ACME-0", ""] == ["annotation"]
    assert found.contradictions == 1


def test_a_lesser_source_fills_the_gaps_of_a_better_one() -> None:
    found = joined([claim("ACME-0"), claim("ACME-0", source="processes", job_name="77", pod_uid="u-1")])
    [workload] = found.allocation["ACME-0", ""]
    assert (workload.pod, workload.job_name, workload.pod_uid) == ("p", "77", "u-1")
    assert found.contradictions == 0


def test_fixed_owners_win_and_name_devices_as_people_do() -> None:
    owner = StaticOwner(devices=("1", "0000:1a:00.0"), tenant="lab", job_name="notebook")
    found = joined([*claims_of(owner), claim("ACME-0", pod="q")])
    assert {workload.tenant for workload in found.allocation["ACME-0", ""]} == {"lab"}
    assert found.allocation["ACME-1", ""][0].job_name == "notebook"


def test_a_fixed_owner_without_devices_has_them_all() -> None:
    found = joined(claims_of(StaticOwner(vendor="acme", tenant="lab")))
    assert set(found.allocation) == {("ACME-0", ""), ("ACME-1", ""), ("ACME-1", "1g/7"), ("ACME-1", "1g/8")}
    assert joined(claims_of(StaticOwner(vendor="other", tenant="lab"))).allocation == {}


def identified(pod: Pod, config: Attribution | None = None, **more: Any) -> Any:
    return joined([claim("ACME-0", pod=pod.name)], [pod], config, **more).allocation["ACME-0", ""][0]


def pod(labels: dict[str, str] | None = None, **more: Any) -> Pod:
    return Pod(namespace="ns", name="p", labels=labels or {}, **more)


@pytest.mark.parametrize(
    ("labels", "job_name", "job_kind"),
    [
        ({"scheduler.slinky.slurm.net/slurm-jobid": "4711", "batch.kubernetes.io/job-name": "j"}, "4711", "SlurmJob"),
        ({"jobset.sigs.k8s.io/jobset-name": "js", "batch.kubernetes.io/job-name": "js-w-0"}, "js", "JobSet"),
        (
            {"jobset.sigs.k8s.io/jobset-name": "t", "trainer.kubeflow.org/trainjob-ancestor-step": "trainer"},
            "t",
            "TrainJob",
        ),
        ({"training.kubeflow.org/job-name": "pt", "training.kubeflow.org/replica-type": "worker"}, "pt", "TrainingJob"),
        ({"ray.io/cluster": "r", "ray.io/node-type": "worker"}, "r", "RayCluster"),
        ({"volcano.sh/job-name": "v"}, "v", "VolcanoJob"),
        ({"leaderworkerset.sigs.k8s.io/name": "l"}, "l", "LeaderWorkerSet"),
        ({"serving.kserve.io/inferenceservice": "i"}, "i", "InferenceService"),
        (
            {"app.kubernetes.io/part-of": "llminferenceservice", "app.kubernetes.io/name": "llama"},
            "llama",
            "LLMInferenceService",
        ),
        ({"batch.kubernetes.io/job-name": "b", "job-name": "b"}, "b", "Job"),
        ({"job-name": "old"}, "old", "Job"),
        ({}, "", ""),
    ],
)
def test_the_job_comes_from_the_highest_label(labels: dict[str, str], job_name: str, job_kind: str) -> None:
    found = identified(pod(labels))
    assert (found.job_name, found.job_kind) == (job_name, job_kind)


def test_without_such_a_label_the_controller_is_the_job() -> None:
    replica_set = Owner("ReplicaSet", "web-5d8f9c7b6", controller=True)
    found = identified(pod({"pod-template-hash": "5d8f9c7b6"}, owners=[replica_set]))
    assert (found.job_name, found.job_kind) == ("web", "Deployment")
    bare = identified(pod({}, owners=[replica_set]))
    assert (bare.job_name, bare.job_kind) == ("web-5d8f9c7b6", "ReplicaSet")
    stateful = identified(pod(owners=[Owner("Other", "x"), Owner("StatefulSet", "db", controller=True)]))
    assert (stateful.job_name, stateful.job_kind) == ("db", "StatefulSet")


def test_a_rule_of_the_configuration_comes_first() -> None:
    config = Attribution(job_rules=(JobRule(label="example.com/run", kind="Run"),))
    found = identified(pod({"example.com/run": "r-1", "ray.io/cluster": "r"}), config)
    assert (found.job_name, found.job_kind) == ("r-1", "Run")


def test_queue_and_served_model() -> None:
    found = identified(pod({"kueue.x-k8s.io/queue-name": "team-q", "serving.kserve.io/inferenceservice": "llama"}))
    assert (found.queue, found.served_model) == ("team-q", "llama")
    assert identified(pod(annotations={"scheduling.volcano.sh/queue-name": "gold"})).queue == "gold"
    config = Attribution(served_model_labels=("example.com/model",))
    assert (
        identified(pod({"example.com/model": "m", "serving.kserve.io/inferenceservice": "i"}), config).served_model
        == "m"
    )


def test_the_tenant_is_the_namespace_unless_something_better_is_known() -> None:
    assert identified(pod()).tenant == "ns"
    capsule = Metadata(name="ns", labels={"capsule.clastix.io/tenant": "oil"})
    assert identified(pod(), namespaces={"ns": capsule}).tenant == "oil"


def test_a_namespaces_annotation_may_name_the_tenant() -> None:
    """Rancher's is CLUSTER:PROJECT."""
    source = TenantSource(source="namespace_annotation", key="field.cattle.io/projectId", pattern="[^:]+$")
    config = Attribution(tenant_from=(source, TenantSource(source="namespace")))
    rancher = Metadata(name="ns", annotations={"field.cattle.io/projectId": "c-m-abc:p-xyz"})
    assert identified(pod(), config, namespaces={"ns": rancher}).tenant == "p-xyz"
    assert identified(pod(), config, namespaces={"ns": Metadata(name="ns")}).tenant == "ns"
    assert identified(pod(), config).tenant == "ns"


def test_whoever_makes_a_pod_does_not_choose_its_tenant_unless_configured() -> None:
    """Slurm's bridge notes the account on the pod, and so can anybody."""
    annotations = {"slurmjob.slinky.slurm.net/account": "physics", "slurmjob.slinky.slurm.net/partition": "gpu"}
    found = identified(pod({"scheduler.slinky.slurm.net/slurm-jobid": "4711"}, annotations=annotations))
    assert (found.job_name, found.job_kind, found.queue, found.tenant) == ("4711", "SlurmJob", "gpu", "ns")


def test_tenant_sources_are_asked_in_order_and_cut_by_their_pattern() -> None:
    config = Attribution(
        tenant_from=(
            TenantSource(source="pod_label", key="team", pattern="^team-(?P<tenant>.+)$"),
            TenantSource(source="queue"),
            TenantSource(source="value", key="nobody"),
        )
    )
    assert identified(pod({"team": "team-red"}), config).tenant == "red"
    assert identified(pod({"team": "red", "volcano.sh/queue-name": "q"}), config).tenant == "q"
    assert identified(pod(), config).tenant == "nobody"


def test_chosen_pod_labels_get_names_that_cannot_collide() -> None:
    config = Attribution(pod_labels=("ops-managed", "ops_managed", "absent"))
    found = identified(pod({"ops-managed": "a", "ops_managed": "b", "other": "c"}), config)
    assert found.labels == (("label_ops_managed_conflict1", "a"), ("label_ops_managed_conflict2", "b"))


def test_chosen_pod_labels_are_called_as_kube_state_metrics_calls_them() -> None:
    """Its rules: what is no letter, digit or _ becomes _, and an upper letter behind another begins a word."""
    labels = {"teamName": "a", "app.kubernetes.io/name": "b", "HTTPPort": "c", "v2Beta": "d", "absent-one": "e"}
    found = identified(pod(labels), Attribution(pod_labels=tuple(labels)))
    assert dict(found.labels) == {
        "label_team_name": "a",
        "label_app_kubernetes_io_name": "b",
        "label_httpport": "c",
        "label_v2_beta": "d",
        "label_absent_one": "e",
    }
    one = identified(pod({"ops-managed": "a"}), Attribution(pod_labels=("ops-managed", "ops_managed")))
    assert one.labels == (("label_ops_managed", "a"),)


def test_hostile_values_are_cut_and_cleaned() -> None:
    found = identified(pod({"ray.io/cluster": "a\n\x00b" + "x" * 500}))
    assert found.job_name == "ab" + "x" * 124


def test_unknown_ids_are_counted_apart_for_a_bounded_number_of_resources() -> None:
    many = [claim(f"ACME-9{place}", resource=f"acme.com/r{number}") for number in range(80) for place in range(number)]
    found = joined(many).unmatched
    assert len(found) == 51
    assert found["acme.com/r79"] == 79
    assert found["other"] == sum(range(30))


def test_whatever_a_pod_or_a_source_calls_itself_is_printable_and_bounded() -> None:
    """Who makes a pod may name any kind for its owner; the API server looks at nothing but its length."""
    evil = "a\n\u202e\x1b[31m" + "x" * 500
    found = identified(pod(owners=[Owner(evil, evil, controller=True)]))
    assert found.job_kind == found.job_name == "a[31m" + "x" * 120
    workload = Workload(
        namespace=evil, pod=evil, container=evil, pod_uid=evil, resource=evil, share=evil, raw={"dra_pool_name": evil}
    )
    told = identifier(Attribution(), dict)(workload, None)
    cut = "a[31m" + "x" * 245
    assert {told.namespace, told.pod, told.container, told.pod_uid, told.resource, told.share} == {cut}
    assert told.raw == {"dra_pool_name": cut}
