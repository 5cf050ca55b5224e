"""A process's control group → its pod and container, its Slurm job, or the service, container or user that it is of."""

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
SLURM: Final = re.compile(
    r"(?:(?:/slurm(?:_[^/]+)?/uid_\d+|slurmstepd\.scope)/job_(?P<job>\d+)"
    r"|slurmstepd\.scope/(?P<sluid>s[0-9a-hjkmnp-tv-z]{13}))(?:/step_(?P<step>[a-z]+|\d+))?",
    re.IGNORECASE,
)
"""A job's group, by its number or its SLUID."""
SLURM_FOLDERS: Final = ("*/slurm", "*/slurm_*", "*/slurmstepd.scope", "*/*_slurmstepd.scope", "*/slurmd.service")
"""Below /sys/fs/cgroup, of version 1 in each controller. The service is there before the first job."""
USERS_OWN: Final = re.compile(r"/user@\d+\.service/.*", re.DOTALL)
"""Groups that a user of the host makes and names as he likes."""
UNIT: Final = re.compile(r"/([^/]+\.service)(?:/|$)")
USER: Final = re.compile(r"/(user-\d+\.slice)(?:/|$)")
"""The sessions and services of a user of the host."""
ALONE: Final = re.compile(r"(?:/docker/|docker-|libpod-)([0-9a-f]{64})(?![0-9a-f])")
"""A container of Docker or Podman: of no pod, if the path names none."""
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
    user: str = ""
    """The slice of the user that it is of."""
    alone: bool = False
    """A container that no kubelet made."""


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
    return max(dict.fromkeys(candidates), key=_tells, default="")


def _tells(path: str) -> int:
    group = parse(path)
    return sum(bool(value) for value in (group.pod_uid, group.container_id, group.slurm_job, group.sluid, group.unit))


def parse(path: str) -> Group:
    """What a path says, wherever in it: from inside our own namespace it is relative.

    Of pods the deepest match counts: a cluster can run in another's container. Of Slurm's jobs it is the first, and
    none in a user's own groups: what lies below a job is, where it is delegated, named by the job's owner.
    """
    pods = POD_UID.findall(path)
    containers = [
        found for segment in path.split("/") if not MONITOR.search(segment) for found in CONTAINER_ID.findall(segment)
    ]
    theirs = USERS_OWN.sub("", path)
    slurm = SLURM.search(theirs)
    told = slurm.groupdict("") if slurm is not None else {}
    units, user = UNIT.findall(theirs), USER.search(path)
    free = not pods and slurm is None
    return Group(
        pod_uid=pods[-1].replace("_", "-") if pods else "",
        container_id=containers[-1] if containers else "",
        slurm_job=told.get("job", ""),
        slurm_step=told.get("step", ""),
        sluid=told.get("sluid", ""),
        unit=units[-1] if units and free else "",
        user=user[1] if user is not None and free else "",
        alone=not pods and ALONE.search(path) is not None,
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
