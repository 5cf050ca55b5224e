"""A compute node of Slurm without Kubernetes and without a prolog: jobs come from the processes' control groups."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import collectors
from collectors.base import Device, Process
from exporter.attribution import service as services
from exporter.attribution import setup
from exporter.attribution.service import Attribution
from exporter.attribution.squeue import JobDetails
from exporter.catalogue import load
from exporter.config import Config
from exporter.config import attribution as settings
from exporter.config.paths import Paths
from exporter.model import GroupSample, Layout, Snapshot
from exporter.selfmetrics import SelfMetrics
from tests.attribution_rig import in_loop, until
from tests.fakes.slurm import programs

JOB = {"job_id": 4711, "account": "physics", "user_name": "alice", "partition": "gpu"}


class Host:
    """A host's /proc and /sys, made of files, and the attribution of an agent there."""

    def __init__(self, root: Path, **config: Any) -> None:
        self.root = root
        kubernetes = settings.KubernetesAttribution(pod_resources_socket=f"{root}/kubelet/kubelet.sock", token_file="")
        attribution = settings.Attribution(kubernetes=kubernetes, **config)
        catalogue = load(Path(collectors.__path__[0]) / "nvidia", "collectors.nvidia")
        self.metrics = SelfMetrics()
        self.service = Attribution(
            Config(attribution=attribution, paths=Paths(root=str(root))),
            {"nvidia": catalogue},
            self.metrics,
            lambda: None,
        )
        self._running: dict[int, int] = {}

    def group(self, path: str) -> None:
        """A control group that is there."""
        (self.root / "sys/fs/cgroup" / path).mkdir(parents=True, exist_ok=True)

    def run(self, pid: int, device: int, group: str, *, visible: bool = True) -> None:
        """A process in a control group works on a device."""
        self._running[pid] = device
        folder = self.root / "proc" / str(pid)
        if visible:
            folder.mkdir(parents=True)
            (folder / "stat").write_text(f"{pid} (python) S 1 {'0 ' * 17}100 0 0\n")
            (folder / "cgroup").write_text(f"0::/{group}\n")

    def end(self, pid: int) -> None:
        del self._running[pid]
        shutil.rmtree(self.root / "proc" / str(pid))

    def owners(self) -> dict[str, list[tuple[str, str, str]]] | None:
        """Device → (job, tenant, queue) of each; None where nobody can say."""
        processes = tuple(Process(device, pid) for pid, device in self._running.items())
        now = time.monotonic()
        sample = GroupSample(layout=Layout(()), values=(), taken_at=0, taken_monotonic=now, duration=0,
                             processes=processes)  # fmt: skip
        devices = tuple(Device(uuid=f"GPU-{number}", index=str(number)) for number in range(2))
        told = self.service.attributed(
            [Snapshot(collector="nvidia", vendor="nvidia", generation=1, devices=devices, groups={"normal": sample})]
        )
        if told is None:
            return None
        return {
            uuid: [(each.job_name, each.tenant, each.queue) for each in held]
            for (uuid, _), held in told.allocation.items()
        }


@asynccontextmanager
async def host(root: Path, groups: Sequence[str] = (), **config: Any) -> AsyncIterator[Host]:
    for path in groups:
        (root / "sys/fs/cgroup" / path).mkdir(parents=True)
    found = Host(root, **config)
    found.service.start()
    try:
        yield found
    finally:
        await found.service.stop()


@pytest.fixture(autouse=True)
def outside_of_clusters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setattr(services, "REFRESH", 0.05)


@in_loop
async def test_a_job_has_its_device_without_a_prolog(tmp_path: Path) -> None:
    scope = "system.slice/slurmstepd.scope"
    async with host(tmp_path, [scope]) as found:
        assert found.owners() == {}
        found.run(7, 1, f"{scope}/job_4711/step_0/user/task_0")
        await until(lambda: found.owners() == {"GPU-1": [("4711", "", "")]})
        assert set(found.service.statuses()) == {"processes"}
        found.end(7)
        await until(lambda: found.owners() == {})


@in_loop
async def test_account_and_partition_come_from_the_controller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}/slurm:{os.environ['PATH']}")
    programs.install(tmp_path / "slurm", [JOB])
    monkeypatch.setattr(setup, "JobDetails", lambda _, **told: JobDetails(0.05, **told))
    async with host(tmp_path, ["freezer/slurm"], slurm=settings.SlurmAttribution(details="squeue")) as found:
        found.run(7, 0, "slurm/uid_1000/job_4711/step_batch")
        await until(lambda: found.owners() == {"GPU-0": [("4711", "physics", "gpu")]})


@in_loop
async def test_without_squeue_on_the_path_everybody_hears_of_it_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """With the settings of deploy/slurm, whose service has systemd's PATH, and Slurm is in a directory of its own."""
    monkeypatch.setenv("PATH", str(tmp_path))
    jobs = tmp_path / "run/accel-exporter/jobs"
    jobs.mkdir(parents=True)
    (jobs / "0").write_text("4711")
    slurm = settings.SlurmAttribution(enabled=True, job_directories=(str(jobs),), details="squeue")

    async with host(tmp_path, slurm=slurm) as found:

        def up(source: str) -> float | None:
            return found.metrics.registry.get_sample_value("accel_exporter_attribution_up", {"source": source})

        def come_to_that() -> bool:
            # Each look is what a publication does.
            return found.owners() == {"GPU-0": [("4711", "", "")]} and (up("slurm"), up("squeue")) == (1.0, 0.0)

        await until(come_to_that)
        for _ in range(5):
            found.owners()
        (warning,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
        assert "squeue is not on the PATH" in warning.getMessage()
        assert "squeue is not on the PATH" in found.service.statuses()["squeue"].hint


@in_loop
async def test_what_has_just_begun_is_no_trouble(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    slurm = settings.SlurmAttribution(enabled=True, job_directories=(str(tmp_path / "jobs"),))
    async with host(tmp_path, slurm=slurm) as found:
        assert found.owners() == {}
        assert not found.service.statuses()["slurm"].up
        await until(lambda: found.owners() == {} and found.service.statuses()["slurm"].up)
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


@in_loop
async def test_slurm_that_begins_after_the_agent_is_noticed(tmp_path: Path) -> None:
    async with host(tmp_path) as found:
        assert found.owners() is None
        found.group("system.slice/slurmd.service")
        await until(lambda: found.owners() == {})


@in_loop
async def test_a_process_in_a_jobs_group_is_a_sign_as_well(tmp_path: Path) -> None:
    """A container may have the host's /proc and no more of the host's control groups than its own."""
    async with host(tmp_path) as found:
        found.run(7, 0, "system.slice/slurmstepd.scope/job_4711/step_0/user/task_0")
        assert found.owners() is None
        await until(lambda: found.owners() == {"GPU-0": [("4711", "", "")]})


@in_loop
async def test_a_host_without_a_scheduler_says_nothing_of_owners(tmp_path: Path) -> None:
    async with host(tmp_path, ["system.slice/trainer.service"]) as found:
        found.run(7, 0, "system.slice/trainer.service")
        for _ in range(5):
            assert found.owners() is None
            await asyncio.sleep(0.05)
        assert found.service.statuses() == {}


@in_loop
async def test_without_the_hosts_pid_namespace_the_hint_names_it(tmp_path: Path) -> None:
    async with host(tmp_path, ["system.slice/slurmstepd.scope"]) as found:
        found.run(7, 0, "", visible=False)
        await until(lambda: found.owners() == {} and not found.service.statuses()["processes"].up)
        assert "hostPID" in found.service.statuses()["processes"].hint


@in_loop
async def test_switched_off_it_stays_off(tmp_path: Path) -> None:
    processes = settings.ProcessAttribution(enabled=False)
    async with host(tmp_path, ["system.slice/slurmstepd.scope"], processes=processes) as found:
        assert found.owners() is None


@in_loop
async def test_a_job_that_follows_another_on_its_device_is_the_only_one_there(tmp_path: Path) -> None:
    scope = "system.slice/slurmstepd.scope"
    async with host(tmp_path, [scope]) as found:
        for number in range(3):
            found.run(7, 0, f"{scope}/job_{number + 1}/step_0/user/task_0")
            await until(lambda: found.owners() == {"GPU-0": [(str(number + 1), "", "")]})  # noqa: B023 - awaited
            found.end(7)
