"""Processes of devices, with a host's /proc made of files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from exporter.attribution.claims import Pod
from exporter.attribution.processes import ProcessSource, Running

UID = "11111111-2222-3333-4444-555555555555"
STATIC = "92617437c0ed1afb5e49f4240931da98"
ID, OTHER = "0123456789abcdef" * 4, "fedcba9876543210" * 4
CONTAINER = f"0::/kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice/cri-containerd-{ID}.scope"
POD = Pod(namespace="ns", name="a", uid=UID, containers={ID: "main", OTHER: "side"})


class Host:
    """A /proc with processes."""

    def __init__(self, root: Path) -> None:
        self.proc = root

    def start(
        self, pid: int, cgroup: str, *, at: int = 100, environ: bytes | None = None, name: str = "python"
    ) -> None:
        folder = self.proc / str(pid)
        folder.mkdir(exist_ok=True)
        (folder / "stat").write_text(f"{pid} ({name}) S 1 {'0 ' * 17}{at} 0 0\n")
        (folder / "cgroup").write_text(f"{cgroup}\n")
        if environ is not None:
            (folder / "environ").write_bytes(environ)

    def end(self, pid: int) -> None:
        for file in (self.proc / str(pid)).iterdir():
            file.unlink()
        (self.proc / str(pid)).rmdir()


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def process(pid: int, *, uuid: str = "GPU-0", partition: str = "", **used: Any) -> Running:
    return Running("acme", uuid, partition, pid, **used)


def refreshed(host: Host, running: Sequence[Running], pods: Sequence[Pod] = (POD,)) -> ProcessSource:
    source = ProcessSource(str(host.proc), lambda: running, lambda: {(pod.namespace, pod.name): pod for pod in pods})
    source.refresh()
    return source


def owners(source: ProcessSource) -> list[tuple[str, str, str, str]]:
    return [(claim.pod, claim.container, claim.job_kind, claim.job_name) for claim in source.claims()]


@pytest.mark.parametrize(
    ("cgroup", "pods", "owner"),
    [
        pytest.param(CONTAINER, [POD], ("a", "main", "", ""), id="pod and container"),
        pytest.param(
            CONTAINER.replace(ID, "a" * 64), [POD], ("a", "", "", ""), id="a sandbox, whose id no container has"
        ),
        pytest.param(
            f"0::/../cri-containerd-{OTHER}.scope", [POD], ("a", "side", "", ""), id="the container's id alone"
        ),
        pytest.param(
            f"4:memory:/kubepods/besteffort/pod{STATIC}/{ID}",
            [Pod(namespace="ns", name="s", uid=UID, other_uid=STATIC, containers={ID: "etcd"})],
            ("s", "etcd", "", ""),
            id="a static pod, by the kubelet's uid",
        ),
        pytest.param(
            f"0::/kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice/cri-containerd-{ID}.scope",
            [Pod(namespace="ns", name="s", uid=UID.replace("-", ""))],
            ("s", "", "", ""),
            id="a uid without dashes",
        ),
        pytest.param(
            "0::/system.slice/slurmstepd.scope/job_4711/step_0/user/task_0",
            [],
            ("", "", "SlurmJob", "4711"),
            id="Slurm",
        ),
        pytest.param(
            f"0::/system.slice/docker-{ID}.scope", [], ("", "", "Container", "0123456789ab"), id="a container of Docker"
        ),
        pytest.param(
            "0::/user.slice/user-1000.slice/session-3.scope",
            [],
            ("", "", "User", "user-1000.slice"),
            id="a user's session",
        ),
        pytest.param(
            "0::/system.slice/trainer.service", [], ("", "", "Service", "trainer.service"), id="a service of the host"
        ),
    ],
)
def test_a_process_belongs_to_whom_its_group_names(
    host: Host, cgroup: str, pods: Sequence[Pod], owner: tuple[str, str, str, str]
) -> None:
    host.start(7, cgroup)
    assert owners(refreshed(host, [process(7)], pods)) == [owner]


def test_slurm_within_a_pod_gives_both(host: Host) -> None:
    host.start(7, f"{CONTAINER}/system.slice/slurmstepd.scope/job_4711/step_0/user/task_0")
    assert owners(refreshed(host, [process(7)])) == [("a", "main", "SlurmJob", "4711")]


@pytest.mark.parametrize("cgroup", ["0::/", "0::/user.slice", f"0::/../cri-containerd-{ID}.scope", "", "garbage"])
def test_a_group_that_names_nobody_makes_no_claim(host: Host, cgroup: str) -> None:
    host.start(7, cgroup)
    assert owners(refreshed(host, [process(7)], [])) == []


def test_a_pod_that_is_not_known_makes_no_claim(host: Host) -> None:
    host.start(7, CONTAINER)
    assert owners(refreshed(host, [process(7)], [])) == []


@pytest.mark.parametrize(
    ("partition", "names"), [("", {"uuid": "GPU-0"}), ("1g/7", {"uuid": "GPU-0", "partition": "1g/7"})]
)
def test_a_claim_names_the_device_or_its_part(host: Host, partition: str, names: dict[str, str]) -> None:
    host.start(7, CONTAINER)
    (claim,) = refreshed(host, [process(7, partition=partition)]).claims()
    assert (claim.vendor, claim.names, claim.pod_uid) == ("acme", names, UID)


def test_several_processes_of_one_container_are_one_claim(host: Host) -> None:
    for pid in (7, 8, 9):
        host.start(pid, CONTAINER)
    running = [process(pid) for pid in (7, 8, 9)] + [process(7, uuid="GPU-1")]
    assert [claim.names["uuid"] for claim in refreshed(host, running).claims()] == ["GPU-0", "GPU-1"]


SLUID = "sEKNKTV3WPV500"
SLUID_GROUP = f"0::/system.slice/slurmstepd.scope/{SLUID}/step_0/user/task_0"


@pytest.mark.parametrize(
    ("environ", "job"),
    [
        pytest.param(b"A=b\0SLURM_JOB_ID=4711\0C=d\0", "4711", id="told"),
        pytest.param(b"SLURM_JOB_ID=x\0", SLUID, id="no number"),
        pytest.param(b"XSLURM_JOB_ID=1\0", SLUID, id="another name"),
        pytest.param(None, SLUID, id="not readable"),
    ],
)
def test_a_job_that_is_named_by_its_sluid_has_its_number_in_the_environment(
    host: Host, environ: bytes | None, job: str
) -> None:
    host.start(7, SLUID_GROUP, environ=environ)
    assert owners(refreshed(host, [process(7)], [])) == [("", "", "SlurmJob", job)]


def test_a_pid_that_is_used_again_is_another_process(host: Host) -> None:
    host.start(7, SLUID_GROUP, environ=b"SLURM_JOB_ID=1\0", at=100)
    source = refreshed(host, [process(7)], [])
    host.start(7, SLUID_GROUP, environ=b"SLURM_JOB_ID=2\0", at=200)
    source.refresh()
    assert owners(source) == [("", "", "SlurmJob", "2")]
    host.start(7, "0::/system.slice/x.service", at=300)
    source.refresh()
    assert owners(source) == [("", "", "Service", "x.service")]
    host.end(7)
    source.refresh()
    assert owners(source) == []


def test_a_name_with_parentheses_hides_no_start_time(host: Host) -> None:
    host.start(7, SLUID_GROUP, environ=b"SLURM_JOB_ID=1\0", name="evil) S 1 (2")
    assert owners(refreshed(host, [process(7)], [])) == [("", "", "SlurmJob", "1")]


def test_where_no_process_is_to_be_seen_the_hint_names_the_pid_namespace(host: Host) -> None:
    source = refreshed(host, [process(7), process(8)])
    assert not source.status.up
    assert "hostPID" in source.status.hint
    host.start(7, CONTAINER)
    source.refresh()
    assert source.status.up
    assert source.status.last_success > 0


def test_a_device_without_processes_is_no_trouble(host: Host) -> None:
    assert refreshed(host, []).status.up


MAIN, SIDE = ("GPU-0", "", "ns", "a", "main"), ("GPU-0", "", "ns", "a", "side")


@pytest.mark.parametrize(
    ("running", "memory"),
    [
        pytest.param([process(7, memory=5), process(8, memory=6)], {MAIN: 11}, id="two processes"),
        pytest.param([process(7, memory=5), process(7, memory=5)], {MAIN: 5}, id="one that computes and draws"),
        pytest.param([process(7, memory=5), process(8)], {}, id="one does not tell"),
        pytest.param([process(7), process(7, memory=5)], {}, id="one does not tell once"),
        pytest.param([process(7, memory=5), process(9, memory=1)], {MAIN: 5, SIDE: 1}, id="two containers"),
        pytest.param([process(7, memory=0)], {MAIN: 0}, id="none in use"),
        pytest.param([process(10, memory=5)], {}, id="of nobody's pod"),
    ],
)
def test_memory_of_a_container_is_the_sum_where_all_its_processes_tell(
    host: Host, running: Sequence[Running], memory: dict[tuple[str, str, str, str, str], int]
) -> None:
    host.start(7, CONTAINER)
    host.start(8, CONTAINER)
    host.start(9, CONTAINER.replace(ID, OTHER))
    host.start(10, "0::/system.slice/x.service")
    used = refreshed(host, running).usage()
    assert {key: each.memory for key, each in used.items() if each.memory is not None} == memory


@pytest.mark.parametrize(
    ("shares", "expected"), [((0.25, 0.5), 0.75), ((0.75, 0.75), 1.0), ((0.25, None), None), ((0.0, 0.0), 0.0)]
)
def test_a_containers_share_of_the_time_is_the_sum_where_all_its_processes_tell(
    host: Host, shares: tuple[float | None, float | None], expected: float | None
) -> None:
    host.start(7, CONTAINER)
    host.start(8, CONTAINER)
    running = [process(pid, utilization=share) for pid, share in zip((7, 8), shares, strict=True)]
    assert refreshed(host, running).usage()[MAIN].utilization == expected


def test_a_crowd_of_processes_is_looked_at_to_a_limit(host: Host) -> None:
    host.start(1, CONTAINER)
    source = refreshed(host, [process(pid) for pid in range(1, 20_000)])
    assert [claim.pod for claim in source.claims()] == ["a"]
