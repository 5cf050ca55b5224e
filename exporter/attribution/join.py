"""Claims of all sources + pods + devices → who works on which device."""

from __future__ import annotations

import fnmatch
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from collectors.base import Device
from exporter.attribution.claims import Claim, Pod, Pods
from exporter.attribution.match import DeviceKey, Match, Matcher, VendorDevices
from exporter.model import Allocation, Workload

# A source that sees less of the truth gives way to one that sees more, device by device.
PRECEDENCE: Final[Mapping[str, int]] = {
    "static": 0,
    "annotations": 1,
    "dra": 2,
    "podresources": 2,
    "slurm": 3,
    "processes": 4,
}
MAX_WORKLOADS: Final = 256
"""Workloads of one device that are kept; a device is hardly shared by more."""

Identify = Callable[[Workload, Pod | None], Workload]
"""Fills in job, tenant, queue and the like from a pod's labels (exporter/attribution/identity.py)."""


class Joined(msgspec.Struct, frozen=True, kw_only=True):
    """Who works on which device, and what could not be joined."""

    allocation: Allocation
    unmatched: Mapping[str, int]
    """Resource → ids that a source hands out and no collector knows."""
    unattributed: Mapping[str, int]
    """Reason → devices without a workload."""
    contradictions: int = 0
    """Devices for which two sources of equal right name different pods."""


class Excluded(msgspec.Struct, frozen=True):
    """Pods that never count as owners: the agent's own and other monitors that see every device."""

    pods: tuple[str, ...] = ()
    """Patterns NAMESPACE/NAME."""

    def __contains__(self, pod: tuple[str, str]) -> bool:
        name = "/".join(pod)
        return any(fnmatch.fnmatchcase(name, pattern) for pattern in self.pods)


def join(
    vendors: Sequence[VendorDevices],
    claims: Sequence[Claim],
    pods: Pods,
    identify: Identify,
    *,
    excluded: Excluded = Excluded(),  # noqa: B008 - frozen
    reason_if_free: str = "free",
) -> Joined:
    """``reason_if_free``: why a device without a claim has no workload, as far as the sources can tell."""
    matcher = Matcher(vendors)
    found: dict[DeviceKey, dict[tuple[str, ...], tuple[int, Workload]]] = defaultdict(dict)
    unmatched: dict[str, set[str]] = defaultdict(set)
    replaced = _replaced(claims)
    for claim in claims:
        if any(fnmatch.fnmatchcase(claim.resource, name) for name in replaced.get((claim.namespace, claim.pod), ())):
            continue
        pod = pods.get((claim.namespace, claim.pod)) if claim.pod else None
        if (claim.namespace, claim.pod) in excluded or (pod is not None and pod.ended):
            continue
        matches = matcher.find(claim)
        if not matches:
            if claim.device_id and matcher.knows(claim.resource):
                unmatched[claim.resource].add(claim.device_id)
            continue
        for match in matches:
            _add(found[match.key], claim, match, identify(_workload(claim, pod), pod))
    allocation, contradictions = _settled(found)
    _inherit(allocation, vendors)
    free = sum((device.uuid, device.partition) not in allocation for vendor in vendors for device in _bearers(vendor))
    return Joined(
        allocation={key: tuple(workloads) for key, workloads in allocation.items()},
        unmatched={resource: len(ids) for resource, ids in unmatched.items()},
        unattributed={reason_if_free: free},
        contradictions=contradictions,
    )


def _replaced(claims: Sequence[Claim]) -> dict[tuple[str, str], tuple[str, ...]]:
    """Pod → resources of which another source knows the truth."""
    return {(claim.namespace, claim.pod): claim.replaces for claim in claims if claim.replaces}


def _workload(claim: Claim, pod: Pod | None) -> Workload:
    return Workload(
        namespace=claim.namespace,
        pod=claim.pod,
        container=claim.container,
        job_name=claim.job_name,
        job_kind=claim.job_kind,
        tenant=claim.tenant,
        queue=claim.queue,
        pod_uid=claim.pod_uid or (pod.uid if pod is not None else ""),
        resource=claim.resource,
        share=claim.share,
        raw=claim.raw,
    )


def _add(bucket: dict[tuple[str, ...], tuple[int, Workload]], claim: Claim, match: Match, workload: Workload) -> None:
    """Several replicas of one device in one container are one workload with a count; other sources fill its gaps."""
    who = (workload.namespace, workload.pod, workload.container or workload.job_name)
    rank = PRECEDENCE.get(claim.source, 9)
    kept = bucket.get(who)
    if kept is None:
        if len(bucket) < MAX_WORKLOADS:
            bucket[who] = (rank, msgspec.structs.replace(workload, share=match.share, replicas=1))
        return
    old_rank, old = kept
    replicas = old.replicas + (match.share != old.share)
    bucket[who] = (min(rank, old_rank), msgspec.structs.replace(old, replicas=replicas, **_gaps(old, workload)))


def _gaps(old: Workload, new: Workload) -> dict[str, str]:
    """What the new workload knows and the old one does not."""
    names = ("job_name", "job_kind", "tenant", "queue", "pod_uid", "served_model", "resource")
    return {name: getattr(new, name) for name in names if not getattr(old, name) and getattr(new, name)}


def _settled(
    found: Mapping[DeviceKey, Mapping[tuple[str, ...], tuple[int, Workload]]],
) -> tuple[dict[DeviceKey, list[Workload]], int]:
    """Where the best source names someone, lesser sources name nobody else; what they know of the same one is kept."""
    allocation: dict[DeviceKey, list[Workload]] = {}
    contradictions = 0
    for key, bucket in found.items():
        best = min(rank for rank, _ in bucket.values())
        kept = [workload for rank, workload in bucket.values() if rank == best]
        contradictions += len(kept) < len(bucket)
        allocation[key] = sorted(kept, key=lambda w: (w.namespace, w.pod, w.container, w.job_name))
    return allocation, contradictions


def _bearers(vendor: VendorDevices) -> Sequence[Device]:
    """Devices that a workload can hold: parts where a device has any, else the whole."""
    cut = {device.uuid for device in vendor.devices if device.partition}
    return [device for device in vendor.devices if device.partition or device.uuid not in cut]


def _inherit(allocation: dict[DeviceKey, list[Workload]], vendors: Sequence[VendorDevices]) -> None:
    """Parts of a device that is held as a whole are held with it, and a whole whose parts one workload has is its."""
    for vendor in vendors:
        parts: dict[str, list[DeviceKey]] = defaultdict(list)
        for device in vendor.devices:
            if device.partition:
                parts[device.uuid].append((device.uuid, device.partition))
        for uuid, keys in parts.items():
            whole = allocation.get((uuid, ""))
            if whole is not None:
                for key in keys:
                    allocation.setdefault(key, whole)
                continue
            owners = [allocation.get(key, []) for key in keys]
            if all(len(owner) == 1 for owner in owners) and len({_who(owner[0]) for owner in owners}) == 1:
                allocation[uuid, ""] = list(owners[0])


def _who(workload: Workload) -> tuple[str, str, str, str]:
    return (workload.namespace, workload.pod, workload.container, workload.job_name)
