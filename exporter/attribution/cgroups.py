"""A process's control group → its pod and container, or its Slurm job."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import msgspec

POD_UID: Final = re.compile(
    r"pod([0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12}|[0-9a-f]{32})"
)
CONTAINER_ID: Final = re.compile(r"(?<![0-9a-f])([0-9a-f]{64})(?![0-9a-f])")
MONITOR: Final = re.compile(r"conmon")
SLURM_JOB: Final = re.compile(r"/job_(\d+)(?:/step_([a-z]+|\d+))?")
SLURM_SLUID: Final = re.compile(r"slurmstepd\.scope/(s[0-9a-hjkmnp-tv-z]{13})(?:/step_([a-z]+|\d+))?", re.IGNORECASE)
SLURM: Final = re.compile(r"/slurm(_[^/]+)?/|slurmstepd\.scope/")
SLURM_FOLDERS: Final = ("*/slurm", "*/slurm_*", "*/slurmstepd.scope", "*/*_slurmstepd.scope", "*/slurmd.service")
"""Below /sys/fs/cgroup, of version 1 in each controller. The service is there before the first job."""
UNIT: Final = re.compile(r"/([^/]+\.service)(?:/|$)")
CONTROLLERS: Final = ("memory", "cpu", "pids", "freezer")
"""Of version 1: the first of these that a process is in tells."""


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """What a control group's path says. What it does not say stays empty."""

    pod_uid: str = ""
    container_id: str = ""
    slurm_job: str = ""
    slurm_step: str = ""
    sluid: str = ""
    """Slurm 26.05 and newer name the job so."""
    unit: str = ""


def path_of(text: str) -> str:
    """The path that tells most, from the text of /proc/<pid>/cgroup: version 2's, or one of version 1's controllers."""
    unified = ""
    by_controller: dict[str, str] = {}
    for line in text.splitlines():
        parts = line.split(":", 2)
        if len(parts) != 3:
            continue
        if parts[1]:
            by_controller.update(dict.fromkeys(parts[1].split(","), parts[2]))
        else:
            unified = parts[2]
    candidates = [by_controller[name] for name in CONTROLLERS if name in by_controller]
    candidates += [path for name, path in by_controller.items() if not name.startswith("name=")]
    candidates += [unified, *by_controller.values()]
    return max(candidates, key=_tells, default="")


def _tells(path: str) -> int:
    group = parse(path)
    return sum(bool(value) for value in (group.pod_uid, group.container_id, group.slurm_job, group.sluid, group.unit))


def parse(path: str) -> Group:
    """What a path says, wherever in it: from inside our own namespace it is relative. The deepest match counts."""
    pods = POD_UID.findall(path)
    containers = [
        found for segment in path.split("/") if not MONITOR.search(segment) for found in CONTAINER_ID.findall(segment)
    ]
    sluid = SLURM_SLUID.findall(path)
    jobs = SLURM_JOB.findall(path) if SLURM.search(path) else []
    units = UNIT.findall(path)
    return Group(
        pod_uid=pods[-1].replace("_", "-") if pods else "",
        container_id=containers[-1] if containers else "",
        slurm_job=jobs[-1][0] if jobs else "",
        slurm_step=(jobs or sluid)[-1][1] if jobs or sluid else "",
        sluid=sluid[-1][0] if sluid else "",
        unit=units[-1] if units and not pods and not jobs else "",
    )


def has_slurm(sys: str) -> bool:
    """Whether Slurm runs jobs on this host, as its control groups say."""
    root = Path(sys) / "fs/cgroup"
    return any(next(root.glob(pattern), None) is not None for pattern in SLURM_FOLDERS)


def of_process(proc: str, pid: int) -> tuple[Group, str] | None:
    """A process's group and start time (pids are used again). None for one that is gone or hidden."""
    folder = Path(proc) / str(pid)
    try:
        stat = (folder / "stat").read_bytes()
        text = (folder / "cgroup").read_bytes()
    except OSError:
        return None
    rest = stat.rpartition(b")")[2].split()
    started = rest[19].decode("ascii", "replace") if len(rest) > 19 else ""
    return parse(path_of(text[:65536].decode("utf-8", "replace"))), started
