"""Sources that disagree about one device, or of which each knows a part."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.base import Device
from exporter.attribution.claims import Claim, Pod
from exporter.attribution.identity import identifier
from exporter.attribution.join import Joined, join
from exporter.attribution.match import VendorDevices
from exporter.attribution.settle import Entry, merged, settle
from exporter.attribution.table import Attribution as Table
from exporter.attribution.table import DraRule, IdPattern
from exporter.config.attribution import Attribution
from exporter.model import Workload

TABLE = Table(
    resources=("acme.com/*",),
    ids=(IdPattern(pattern=r"(?P<uuid>D\d)(?:::(?P<share>\d+))?"), IdPattern(pattern=r"(?P<partition_uuid>P-\w)")),
    dra=(DraRule(driver="gpu.acme.com", names=(r"(?P<index>\d)",)),),
)
DEVICES = (
    Device(uuid="D0", index="0"),
    Device(uuid="D1", index="1"),
    Device(uuid="D1", index="1", partition="a", partition_uuid="P-a"),
    Device(uuid="D1", index="1", partition="b", partition_uuid="P-b"),
)
PODS = {("ns", name): Pod(namespace="ns", name=name, uid=f"uid-{name}") for name in "ab"}
WHOLE, CUT, PART_A, PART_B = ("D0", ""), ("D1", ""), ("D1", "a"), ("D1", "b")


def kubelet(device_id: str, pod: str = "a", container: str = "main", resource: str = "acme.com/gpu") -> Claim:
    return Claim(
        source="podresources", resource=resource, device_id=device_id, namespace="ns", pod=pod, container=container
    )


def process(uuid: str = "D0", pod: str = "", container: str = "", job: str = "", kind: str = "SlurmJob") -> Claim:
    return Claim(
        source="processes",
        names={"uuid": uuid},
        namespace="ns" if pod else "",
        pod=pod,
        container=container,
        job_name=job,
        job_kind=kind if job else "",
    )


def slurm(job: str, tenant: str = "", queue: str = "") -> Claim:
    return Claim(
        source="slurm",
        names={"uuid": "D0"},
        job_name=job,
        job_kind="SlurmJob",
        tenant=tenant,
        queue=queue,
        raw={"hpc_job": job},
    )


def joined(*claims: Claim) -> Joined:
    vendors = [VendorDevices("acme", TABLE, DEVICES)]
    return join(vendors, claims, PODS, identifier(Attribution(), dict))


def owners(found: Joined, key: tuple[str, str] = WHOLE) -> list[tuple[str, str, str]]:
    return [(each.pod, each.container, each.job_name) for each in found.allocation.get(key, ())]


def test_a_process_of_the_same_container_is_no_replica_and_no_contradiction() -> None:
    found = joined(kubelet("D0::3"), kubelet("D0::1"), process(pod="a", container="main"))
    (workload,) = found.allocation[WHOLE]
    assert (workload.share, workload.replicas, found.contradictions) == ("1", 2, 0)


def test_a_process_of_the_pods_sandbox_is_the_containers() -> None:
    found = joined(kubelet("D0"), process(pod="a"))
    assert (owners(found), found.contradictions) == ([("a", "main", "")], 0)
    assert found.allocation[WHOLE][0].pod_uid == "uid-a"


def test_a_process_of_another_pod_contradicts_the_kubelet_and_the_kubelet_is_believed() -> None:
    found = joined(kubelet("D0"), process(pod="b", container="main"))
    assert (owners(found), found.contradictions) == ([("a", "main", "")], 1)


def test_a_service_of_the_host_on_a_pods_device_is_no_contradiction() -> None:
    found = joined(kubelet("D0"), process(job="dcgm.service", kind="Service"))
    assert (owners(found), found.contradictions) == ([("a", "main", "")], 0)


def test_processes_tell_where_nobody_else_does() -> None:
    assert owners(joined(process(pod="b", container="side"))) == [("b", "side", "")]


def test_slurm_in_a_pod_gives_pod_and_job_with_the_account_for_a_tenant() -> None:
    found = joined(kubelet("D0"), slurm("4711", tenant="physics", queue="gpu"))
    (workload,) = found.allocation[WHOLE]
    assert (workload.pod, workload.job_name, workload.job_kind) == ("a", "4711", "SlurmJob")
    assert (workload.tenant, workload.queue, workload.raw) == ("physics", "gpu", {"hpc_job": "4711"})
    assert found.contradictions == 0


def test_a_process_tells_the_job_of_slurm_in_a_pod() -> None:
    found = joined(kubelet("D0"), process(pod="a", container="main", job="4711"))
    assert owners(found) == [("a", "main", "4711")]


def test_several_jobs_in_one_pod_share_the_device() -> None:
    found = joined(kubelet("D0"), slurm("1"), slurm("2"))
    assert owners(found) == [("a", "main", "1"), ("a", "main", "2")]


def test_a_job_beside_several_pods_is_nobodys() -> None:
    found = joined(kubelet("D0::1"), kubelet("D0::2", pod="b"), slurm("1"))
    assert owners(found) == [("a", "main", ""), ("b", "main", "")]


def test_the_same_job_by_files_and_by_processes_is_one() -> None:
    found = joined(slurm("1"), process(job="1"))
    assert (owners(found), found.contradictions) == ([("", "", "1")], 0)
    assert joined(slurm("1"), process(job="2")).contradictions == 1


def test_processes_of_a_whole_do_not_say_who_has_a_part_that_another_source_tells_of() -> None:
    found = joined(kubelet("P-a"), process("D1", pod="a", container="main"))
    assert (owners(found, PART_A), owners(found, PART_B), owners(found, CUT)) == ([("a", "main", "")], [], [])


def test_who_holds_the_whole_holds_its_parts_whatever_their_processes() -> None:
    part = Claim(source="processes", names={"uuid": "D1", "partition": "a"}, namespace="ns", pod="b")
    found = joined(kubelet("D1"), part)
    assert owners(found, PART_A) == owners(found, PART_B) == owners(found, CUT) == [("a", "main", "")]


def test_a_part_is_found_by_its_uuid_under_either_name() -> None:
    by_uuid = Claim(source="dra", vendor="acme", names={"uuid": "P-b"}, namespace="ns", pod="a")
    assert owners(joined(by_uuid), PART_B) == [("a", "", "")]


def test_devices_of_a_driver_that_no_collector_knows_are_counted() -> None:
    def dra(device: str) -> Claim:
        names = {"index": device}
        return Claim(source="dra", resource="gpu.acme.com", device_id=device, names=names, namespace="ns", pod="a")

    found = joined(dra("0"), dra("7"), dra("8"))
    assert found.unmatched == {"gpu.acme.com": 2}
    assert owners(found) == [("a", "", "")]


def test_rules_of_several_annotations_replace_what_each_names() -> None:
    found = joined(
        kubelet("D0", resource="acme.com/gpu"),
        kubelet("D0", container="other", resource="acme.com/slice"),
        *(
            Claim(source="annotations", names={"uuid": "D1"}, namespace="ns", pod="a", replaces=(resource,))
            for resource in ("acme.com/gpu", "acme.com/slice")
        ),
    )
    assert owners(found) == []


RANKS = st.integers(0, 4)
WORKLOADS = st.builds(
    Workload,
    namespace=st.just("ns"),
    pod=st.sampled_from(["", "a", "b"]),
    container=st.sampled_from(["", "c", "d"]),
    job_name=st.sampled_from(["", "1", "2"]),
    job_kind=st.sampled_from(["", "SlurmJob", "Service"]),
)
ENTRIES = st.lists(st.builds(Entry, RANKS, WORKLOADS, st.frozensets(st.sampled_from("xy"))), min_size=1, max_size=6)


@given(ENTRIES)
def test_somebody_always_has_a_claimed_device_and_it_is_one_that_claimed_it(entries: Sequence[Entry]) -> None:
    found = settle(entries)
    assert found.owners
    assert {owner.workload.pod for owner in found.owners} <= {entry.workload.pod for entry in entries}
    assert {owner.workload.job_name for owner in found.owners} <= {entry.workload.job_name for entry in entries}
    assert {owner.rank for owner in found.owners} == {min(owner.rank for owner in found.owners)}


@pytest.mark.parametrize("swapped", [False, True])
def test_of_two_facts_the_better_sources_counts(swapped: bool) -> None:
    better = Entry(1, Workload(pod="a", tenant="t1", raw={"x": "1"}))
    worse = Entry(3, Workload(pod="a", tenant="t2", queue="q", raw={"x": "2", "y": "3"}))
    found = merged(worse, better) if swapped else merged(better, worse)
    assert (found.rank, found.workload.tenant, found.workload.queue) == (1, "t1", "q")
    assert found.workload.raw == {"x": "1", "y": "3"}
