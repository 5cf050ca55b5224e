"""Paths of control groups, as kubelets, runtimes and Slurm make them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.attribution import cgroups
from exporter.attribution.cgroups import Group, has_slurm, of_process, parse, path_of

UID = "11111111-2222-3333-4444-555555555555"
UNDER = UID.replace("-", "_")
ID = "0123456789abcdef" * 4

POD = Group(pod_uid=UID, container_id=ID)


@pytest.mark.parametrize(
    ("path", "group"),
    [
        (
            f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UNDER}.slice/cri-containerd-{ID}.scope",
            POD,
        ),
        (f"/kubepods.slice/kubepods-pod{UNDER}.slice/cri-containerd-{ID}.scope", POD),
        (
            f"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{UNDER}.slice/crio-{ID}.scope/container",
            POD,
        ),
        (f"/kubepods.slice/kubepods-pod{UNDER}.slice/crio-conmon-{ID}.scope", Group(pod_uid=UID)),
        (f"/kubepods/besteffort/pod{UID}/{ID}", POD),
        (f"/attr/kubepods/besteffort/pod{UID}/{ID}", POD),
        (
            f"/kubepods/besteffort/pod92617437c0ed1afb5e49f4240931da98/{ID}",
            Group(pod_uid="92617437c0ed1afb5e49f4240931da98", container_id=ID),
        ),
        (f"/kubepods/burstable/pod{UID}/crio-{ID}", POD),
        (f"/kubepods.slice/kubepods-pod{UNDER}.slice/docker-{ID}.scope", POD),
        (f"/system.slice/containerd.service/kubepods-burstable-pod{UNDER}.slice:cri-containerd:{ID}", POD),
        (
            f"/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{UNDER}.slice/cri-containerd-{ID}.scope",
            POD,
        ),
        (f"/docker/{'f' * 64}/kubelet/kubepods/besteffort/pod{UID}/{ID}", POD),
        (f"/../../../kubepods-pod{UNDER}.slice/cri-containerd-{ID}.scope", POD),
        (f"/../cri-containerd-{ID}.scope", Group(container_id=ID)),
        ("/", Group()),
        (f"/system.slice/docker-{ID}.scope", Group(container_id=ID, alone=True)),
        (f"/docker/{ID}", Group(container_id=ID, alone=True)),
        (f"/machine.slice/libpod-{ID}.scope/container", Group(container_id=ID, alone=True)),
        (
            f"/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{ID}.scope/container",
            Group(container_id=ID, alone=True, user="user-1000.slice"),
        ),
        ("/user.slice/user-1000.slice/session-3.scope", Group(user="user-1000.slice")),
        (
            "/user.slice/user-1000.slice/user@1000.service/app.slice/jupyter.service",
            Group(user="user-1000.slice"),
        ),
        ("/slurm/uid_1000/job_4711/step_0/task_1", Group(slurm_job="4711", slurm_step="0")),
        ("/slurm_n1/uid_0/job_1/step_batch", Group(slurm_job="1", slurm_step="batch")),
        (
            "/system.slice/slurmstepd.scope/job_4711/step_extern/user/task_0",
            Group(slurm_job="4711", slurm_step="extern"),
        ),
        ("/system.slice/n1_slurmstepd.scope/job_7/step_12/user", Group(slurm_job="7", slurm_step="12")),
        (
            "/system.slice/slurmstepd.scope/sEKNKTV3WPV500/step_0/user/task_0",
            Group(sluid="sEKNKTV3WPV500", slurm_step="0"),
        ),
        ("/user.slice/job_5/step_0", Group()),
        ("/system.slice/jupyter.service", Group(unit="jupyter.service")),
    ],
)
def test_a_path_tells_pod_container_job_or_unit(path: str, group: Group) -> None:
    assert parse(path) == group


def test_version_1_tells_by_its_controllers_and_not_by_systemd() -> None:
    text = f"12:pids:/kubepods/pod{UID}/{ID}\n4:memory:/kubepods/pod{UID}/{ID}\n1:name=systemd:/init.scope\n0::/\n"
    assert parse(path_of(text)) == POD


def test_slurm_of_version_1_may_use_one_controller_only() -> None:
    text = "5:freezer:/slurm_n1/uid_0/job_1/step_batch\n4:memory:/\n1:name=systemd:/system.slice/slurmd.service\n0::/\n"
    assert parse(path_of(text)).slurm_job == "1"


def test_a_process_is_known_by_its_group_and_its_start(tmp_path: Path) -> None:
    folder = tmp_path / "42"
    folder.mkdir()
    (folder / "cgroup").write_text(f"0::/kubepods.slice/kubepods-pod{UNDER}.slice/cri-containerd-{ID}.scope\n")
    fields = " ".join(str(number) for number in range(3, 53))
    (folder / "stat").write_text(f"42 (a) b) {fields}\n")
    assert of_process(str(tmp_path), 42) == (POD, "22")
    assert of_process(str(tmp_path), 43) is None


@given(st.text(max_size=300))
def test_any_text_is_taken(text: str) -> None:
    group = parse(path_of(text))
    assert group.pod_uid in text.replace("_", "-")
    assert group.container_id in text


@pytest.mark.parametrize(
    ("folder", "expected"),
    [
        pytest.param("freezer/slurm/uid_0/job_1", True, id="version 1"),
        pytest.param("memory/slurm_n1/uid_0", True, id="version 1, several daemons on a host"),
        pytest.param("system.slice/slurmstepd.scope/job_1", True, id="version 2"),
        pytest.param("system.slice/n1_slurmstepd.scope", True, id="version 2, several daemons on a host"),
        pytest.param("batch.slice/slurmstepd.scope/sEKNKTV3WPV500", True, id="a slice of the site's, and no job ids"),
        pytest.param("system.slice/slurmd.service", True, id="before the first job"),
        pytest.param("system.slice/slurmctld.service", False, id="the controller's host"),
        pytest.param("kubepods.slice/kubepods-besteffort.slice", False, id="Kubernetes"),
        pytest.param("user.slice", False, id="neither"),
    ],
)
def test_a_host_of_slurm_is_known_by_its_control_groups(tmp_path: Path, folder: str, expected: bool) -> None:
    (tmp_path / "fs/cgroup" / folder).mkdir(parents=True)
    assert has_slurm(str(tmp_path)) == expected


def test_a_host_without_control_groups_has_no_slurm(tmp_path: Path) -> None:
    assert not has_slurm(str(tmp_path))


@pytest.mark.parametrize(
    ("path", "job", "sluid"),
    [
        pytest.param("/user.slice/user-1000.slice/user@1000.service/app.slice/slurm/uid_0/job_42", "", "", id="own"),
        pytest.param(
            "/user.slice/user-1000.slice/user@1000.service/slurmstepd.scope/job_42/step_0", "", "", id="own 2"
        ),
        pytest.param("/user.slice/user-1.slice/user@1.service/slurmstepd.scope/sEKNKTV3WPV500", "", "", id="own SLUID"),
        pytest.param("/system.slice/slurmstepd.scope/job_1/step_0/user/slurm/uid_0/job_42", "1", "", id="in a job"),
        pytest.param(
            "/system.slice/slurmstepd.scope/sEKNKTV3WPV500/step_0/user/slurmstepd.scope/job_42",
            "",
            "sEKNKTV3WPV500",
            id="in a job that is named by its SLUID",
        ),
        pytest.param("/system.slice/slurmstepd.scope/sEKNKTV3WPV500/job_42", "", "sEKNKTV3WPV500", id="its child"),
        pytest.param("/system.slice/x.service/slurm/job_42", "", "", id="no group of Slurm's"),
    ],
)
def test_a_group_that_a_user_makes_does_not_put_his_processes_into_anothers_job(
    path: str, job: str, sluid: str
) -> None:
    found = parse(path)
    assert (found.slurm_job, found.sluid) == (job, sluid)


def test_one_group_under_very_many_controllers_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []

    def counted(path: str) -> Group:
        looked.append(path)
        return parse(path)

    monkeypatch.setattr(cgroups, "parse", counted)
    controllers = ",".join(f"c{number}" for number in range(9000))
    assert path_of(f"1:{controllers}:/a.service\n0::/\n") == "/a.service"
    assert len(looked) == 2
