"""Claims of all sources + pods + devices → who works on which device."""

from __future__ import annotations

import fnmatch
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from collectors.base import Device
from exporter.attribution.claims import Claim, Pod, Pods
from exporter.attribution.match import DeviceKey, Matcher, VendorDevices
from exporter.attribution.settle import Entry, inherit, merged, settle
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

MAX_RESOURCES: Final = 50
"""Resources whose unknown ids are counted apart; a node hands out a handful."""
OTHER: Final = "other"

Who = tuple[str, str, str]
"""namespace, pod, container or else job"""

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
    """Devices for which two sources name different pods or jobs."""


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
    found: dict[DeviceKey, dict[Who, Entry]] = defaultdict(dict)
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
            _add(found[match.key], claim, match.share, pod)
    settled = {key: settle(list(bucket.values())) for key, bucket in found.items()}
    inherit(settled, vendors)
    allocation = {key: tuple(_named(entry, pods, identify) for entry in each.owners) for key, each in settled.items()}
    free = sum((device.uuid, device.partition) not in allocation for vendor in vendors for device in _bearers(vendor))
    return Joined(
        allocation=allocation,
        unmatched=_few({resource: len(ids) for resource, ids in unmatched.items()}),
        unattributed={reason_if_free: free},
        contradictions=sum(each.contradicted for each in settled.values()),
    )


def _few(unmatched: Mapping[str, int]) -> Mapping[str, int]:
    """Those with the most ids; the others together. Each is a series of the agent's own metrics."""
    if len(unmatched) <= MAX_RESOURCES:
        return unmatched
    ordered = sorted(unmatched.items(), key=lambda item: (-item[1], item[0]))
    return {**dict(ordered[:MAX_RESOURCES]), OTHER: sum(count for _, count in ordered[MAX_RESOURCES:])}


def _replaced(claims: Sequence[Claim]) -> dict[tuple[str, str], set[str]]:
    """Pod → resources of which another source knows the truth."""
    found: dict[tuple[str, str], set[str]] = defaultdict(set)
    for claim in claims:
        if claim.replaces:
            found[claim.namespace, claim.pod] |= set(claim.replaces)
    return found


def _add(bucket: dict[Who, Entry], claim: Claim, share: str, pod: Pod | None) -> None:
    """Several shares of one device in one container are one workload with a count; other sources fill its gaps."""
    workload = Workload(
        namespace=claim.namespace,
        pod=claim.pod,
        container=claim.container,
        job_name=claim.job_name,
        job_kind=claim.job_kind,
        tenant=claim.tenant,
        queue=claim.queue,
        pod_uid=claim.pod_uid or (pod.uid if pod is not None else ""),
        resource=claim.resource,
        raw=claim.raw,
    )
    entry = Entry(PRECEDENCE.get(claim.source, 9), workload, frozenset((share,) if share else ()))
    who = (workload.namespace, workload.pod, workload.container or workload.job_name)
    if who in bucket:
        bucket[who] = merged(bucket[who], entry)
    elif len(bucket) < MAX_WORKLOADS:
        bucket[who] = entry


def _named(entry: Entry, pods: Pods, identify: Identify) -> Workload:
    """With what its pod tells, and its shares."""
    workload = entry.workload
    pod = pods.get((workload.namespace, workload.pod)) if workload.pod else None
    share = min(entry.shares, key=lambda share: (len(share), share), default="")
    known = msgspec.structs.replace(workload, share=share, replicas=max(1, len(entry.shares)))
    return identify(known, pod)


def _bearers(vendor: VendorDevices) -> Sequence[Device]:
    """Devices that a workload can hold: parts where a device has any, else the whole."""
    cut = {device.uuid for device in vendor.devices if device.partition}
    return [device for device in vendor.devices if device.partition or device.uuid not in cut]
