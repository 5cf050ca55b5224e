"""Processes that use a device → the pods, batch jobs or services that they belong to."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from exporter.attribution import cgroups
from exporter.attribution.cgroups import Group
from exporter.attribution.claims import Claim, Pod, Pods, SourceName, Status
from exporter.model import ContainerKey, Usage

MAX_CACHED: Final = 8192
MAX_ENVIRON: Final = 256 * 1024
SHORT_ID: Final = 12
"""Characters of a container's id, as `docker ps` and `podman ps` show it."""


class Running(msgspec.Struct, frozen=True):
    """A process on a device, as its collector tells it."""

    vendor: str
    uuid: str
    partition: str
    pid: int
    memory: int | None = None
    """Bytes of the device's memory; None: not told."""
    utilization: float | None = None
    """Share of the device's time, 0 to 1."""


class _Known(msgspec.Struct, frozen=True):
    started: str
    group: Group
    job: str
    """Slurm's job id, where the group does not tell it."""


class ProcessSource:
    """Claims of processes. Looks into the host's /proc, in a thread of the caller's choice: ``refresh`` blocks."""

    name: SourceName = "processes"

    def __init__(
        self,
        proc: str,
        running: Callable[[], Sequence[Running]],
        pods: Callable[[], Pods],
        fill: Callable[[Claim], Claim] = lambda claim: claim,
        wakes: Callable[[], bool] = lambda: True,
    ) -> None:
        """``fill`` adds what is known of a claim's batch job.

        ``wakes``: whether the host has a scheduler whose jobs processes tell. Until it has, or some process of a device
        is a job's, the source says nothing: a node without any scheduler must not look as if nobody used its devices.
        """
        self._proc, self._running, self._pods, self._fill, self._wakes = proc, running, pods, fill, wakes
        self.awake = wakes()
        self._known: dict[int, _Known] = {}
        self._status = Status(up=True)

    @property
    def status(self) -> Status:
        return self._status

    def refresh(self) -> None:
        """Look at the processes that are new. A pid is used again: the start time tells."""
        wanted = {process.pid for process in self._running()}
        known: dict[int, _Known] = {}
        hidden = 0
        for pid in sorted(wanted)[:MAX_CACHED]:
            found = cgroups.of_process(self._proc, pid)
            if found is None:
                hidden += 1
                continue
            group, started = found
            kept = self._known.get(pid)
            job = kept.job if kept and kept.started == started else _slurm_job(self._proc, pid, group)
            known[pid] = _Known(started, group, job)
        self._known = known
        if not self.awake:
            jobs = any(each.group.slurm_job or each.group.sluid for each in known.values())
            self.awake = jobs or self._wakes()
        if wanted and hidden == len(wanted):
            hint = "no process of the devices is to be seen: the host's pid namespace (hostPID) is needed"
            self._status = Status(up=False, last_success=self._status.last_success, hint=hint)
        else:
            self._status = Status(up=True, last_success=time.time())

    def claims(self) -> Sequence[Claim]:
        """One for each owner of processes on a device."""
        if not self.awake:
            return ()
        found: dict[tuple[str, ...], Claim] = {}
        for process, claim in self._owned():
            key = (process.uuid, process.partition, claim.pod_uid, claim.pod, claim.container, claim.job_name)
            names = {"uuid": process.uuid, **({"partition": process.partition} if process.partition else {})}
            if key not in found:
                found[key] = self._fill(msgspec.structs.replace(claim, vendor=process.vendor, names=names))
        return list(found.values())

    def usage(self) -> Mapping[ContainerKey, Usage]:
        """What the processes of each container use of each device."""
        used: dict[ContainerKey, dict[int, Running]] = defaultdict(dict)
        for process, claim in self._owned():
            if claim.pod:
                of = used[process.uuid, process.partition, claim.namespace, claim.pod, claim.container]
                # One that computes and draws is told twice, each time with all it uses.
                of[process.pid] = _more(of.get(process.pid, process), process)
        return {key: _together(list(by_pid.values())) for key, by_pid in used.items()}

    def _owned(self) -> Iterator[tuple[Running, Claim]]:
        pods = self._pods()
        by_uid = {uid: pod for pod in pods.values() for uid in (pod.uid, pod.other_uid) if uid}
        by_container = {identity: pod for pod in pods.values() for identity in pod.containers}
        for process in self._running():
            known = self._known.get(process.pid)
            if known is None:
                continue
            claim = _claim(known, by_uid, by_container)
            if claim is not None:
                yield process, claim


def _more(one: Running, other: Running) -> Running:
    """Of one process, told twice: what is not told once is not known."""
    known = one.memory is not None and other.memory is not None
    memory = max(one.memory or 0, other.memory or 0) if known else None
    return msgspec.structs.replace(one, memory=memory)


def _together(processes: Sequence[Running]) -> Usage:
    """Sums over processes, where each of them tells. The shares of threads that ran side by side exceed the whole."""
    memory = [process.memory for process in processes if process.memory is not None]
    shares = [process.utilization for process in processes if process.utilization is not None]
    count = len(processes)
    return Usage(
        memory=sum(memory) if len(memory) == count else None,
        utilization=min(1.0, sum(shares)) if len(shares) == count else None,
    )


def _claim(known: _Known, by_uid: Mapping[str, Pod], by_container: Mapping[str, Pod]) -> Claim | None:
    group = known.group
    pod = (
        by_uid.get(group.pod_uid) or by_uid.get(group.pod_uid.replace("-", "")) or by_container.get(group.container_id)
    )
    job = group.slurm_job or known.job
    if pod is not None:
        container = pod.containers.get(group.container_id, "")
        return Claim(
            source="processes",
            namespace=pod.namespace,
            pod=pod.name,
            pod_uid=pod.uid,
            container=container,
            job_name=job,
            job_kind="SlurmJob" if job else "",
        )
    if job:
        return Claim(source="processes", job_name=job, job_kind="SlurmJob")
    if group.alone:
        return Claim(source="processes", job_name=group.container_id[:SHORT_ID], job_kind="Container")
    if group.unit:
        return Claim(source="processes", job_name=group.unit, job_kind="Service")
    if group.user:
        return Claim(source="processes", job_name=group.user, job_kind="User")
    return None


def _slurm_job(proc: str, pid: int, group: Group) -> str:
    """The job id of a process whose group carries a SLUID only: from its environment, where that may be read."""
    if not group.sluid:
        return ""
    try:
        with (Path(proc) / str(pid) / "environ").open("rb") as file:
            environ = file.read(MAX_ENVIRON)
    except OSError:
        return group.sluid
    for entry in environ.split(b"\0"):
        name, _, value = entry.partition(b"=")
        if name == b"SLURM_JOB_ID" and value.isdigit():
            return value.decode()
    return group.sluid
