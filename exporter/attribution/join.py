"""Claims of all sources + pods + devices → who works on which device."""

from __future__ import annotations

import fnmatch
import functools
from collections import defaultdict
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from typing import Final

import msgspec

from collectors.base import Device
from exporter.attribution.claims import Claim, Pod, Pods
from exporter.attribution.match import DeviceKey, Matcher, VendorDevices
from exporter.attribution.settle import Entry, Settled, inherit, merged, settle
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

SLICE: Final = 1000
"""Claims that are joined without a pause, of some microseconds each."""

MAX_RESOURCES: Final = 50
"""Resources whose unknown ids are counted apart; a node hands out a handful."""
OTHER: Final = "other"
ANNOTATION_UNKNOWN: Final = "annotation_unknown"
"""Why a device has no workload: its scheduler told in an annotation who has it, and the pod is not known."""

Who = tuple[str, str, str]
"""namespace, pod, container or else job"""

_Facts = tuple[object, ...]
_Bucket = dict[Who, dict[_Facts, tuple[Claim, set[str]]]]
"""What the sources say of one device: who → each different claim, with its shares."""

Identify = Callable[[Workload, Pod | None], Workload]
"""Fills in job, tenant, queue and the like from a pod's labels (exporter/attribution/identity.py)."""


class Joined(msgspec.Struct, frozen=True, kw_only=True):
    """Who works on which device, and what could not be joined."""

    allocation: Allocation
    unmatched: Mapping[str, int]
    """Resource → ids that a source hands out and no collector knows."""
    unattributed: Mapping[str, int]
    """Reason → devices without a workload."""
    unsure: frozenset[str] = frozenset()
    """Vendors of whose devices some workload has one, and nobody tells which."""
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
    """What ``joining`` comes to, without a pause."""
    work = joining(vendors, claims, pods, identify, excluded=excluded, reason_if_free=reason_if_free)
    while True:
        try:
            next(work)
        except StopIteration as end:
            joined: Joined = end.value
            return joined


def joining(
    vendors: Sequence[VendorDevices],
    claims: Sequence[Claim],
    pods: Pods,
    identify: Identify,
    *,
    excluded: Excluded = Excluded(),  # noqa: B008 - frozen
    reason_if_free: str = "free",
) -> Generator[None, None, Joined]:
    """Join in slices of some milliseconds, behind each of which it yields.

    ``reason_if_free``: why a device without a claim has no workload, as far as the sources can tell.
    """
    matcher = Matcher(vendors)
    holders = _Holders(claims, pods, excluded)
    found: dict[DeviceKey, _Bucket] = defaultdict(dict)
    unmatched: dict[str, set[str]] = defaultdict(set)
    unsure: set[str] = set()
    for number, claim in enumerate(claims, 1):
        if number % SLICE == 0:
            yield
        if not holders.counts(claim):
            continue
        matches = matcher.find(claim)
        if not matches and claim.device_id and matcher.knows(claim.resource):
            unmatched[claim.resource].add(claim.device_id)
        for match in matches:
            if match.hint:
                unsure.add(match.vendor)
            else:
                _add(found[match.key], claim, match.share)
    settled: dict[DeviceKey, Settled] = {}
    for key, bucket in found.items():
        settled[key] = settle(_entries(bucket, pods))
        yield
    inherit(settled, vendors)
    allocation: dict[DeviceKey, Sequence[Workload]] = {}
    for key, each in settled.items():
        allocation[key] = tuple(_named(entry, pods, identify) for entry in each.owners)
        yield
    free: dict[str, int] = {reason_if_free: 0}
    for vendor in vendors:
        reason = ANNOTATION_UNKNOWN if vendor.vendor in unsure else reason_if_free
        without = sum((device.uuid, device.partition) not in allocation for device in _bearers(vendor))
        free[reason] = free.get(reason, 0) + without
    return Joined(
        allocation=allocation,
        unmatched=_few({resource: len(ids) for resource, ids in unmatched.items()}),
        unattributed=free,
        unsure=frozenset(unsure),
        contradictions=sum(each.contradicted for each in settled.values()),
    )


def _few(unmatched: Mapping[str, int]) -> Mapping[str, int]:
    """Those with the most ids; the others together. Each is a series of the agent's own metrics."""
    if len(unmatched) <= MAX_RESOURCES:
        return unmatched
    ordered = sorted(unmatched.items(), key=lambda item: (-item[1], item[0]))
    return {**dict(ordered[:MAX_RESOURCES]), OTHER: sum(count for _, count in ordered[MAX_RESOURCES:])}


class _Holders:
    """Which claims count: worked out once for each pod, of whose ids there may be thousands."""

    def __init__(self, claims: Sequence[Claim], pods: Pods, excluded: Excluded) -> None:
        self._pods, self._excluded = pods, excluded
        self._replaced: dict[tuple[str, str], set[str]] = defaultdict(set)
        """Pod → resources of which another source knows the truth."""
        for claim in claims:
            if claim.replaces:
                self._replaced[claim.namespace, claim.pod].update(claim.replaces)
        self._counts: dict[tuple[str, str], bool] = {}

    def counts(self, claim: Claim) -> bool:
        """Not those of ended pods, of monitors, and of what another source knows better."""
        name = (claim.namespace, claim.pod)
        counts = self._counts.get(name)
        if counts is None:
            pod = _pod(self._pods, claim)
            counts = self._counts[name] = name not in self._excluded and (pod is None or not pod.ended)
        return counts and not (
            name in self._replaced and any(fnmatch.fnmatchcase(claim.resource, glob) for glob in self._replaced[name])
        )


def _add(bucket: _Bucket, claim: Claim, share: str) -> None:
    """Ids of which a source says the same are one claim with as many shares."""
    who = (claim.namespace, claim.pod, claim.container or claim.job_name)
    said = bucket.get(who)
    if said is None:
        if len(bucket) >= MAX_WORKLOADS:
            return
        said = bucket[who] = {}
    facts = (
        claim.source,
        claim.resource,
        claim.job_name,
        claim.job_kind,
        claim.tenant,
        claim.queue,
        claim.pod_uid,
        *claim.raw.items(),
    )
    if facts not in said:
        said[facts] = (claim, set())
    if share:
        said[facts][1].add(share)


def _entries(bucket: _Bucket, pods: Pods) -> Sequence[Entry]:
    """Several shares of one device in one container are one workload with a count; other sources fill its gaps."""
    return [
        functools.reduce(merged, (_entry(claim, shares, pods) for claim, shares in said.values()))
        for said in bucket.values()
    ]


def _entry(claim: Claim, shares: Collection[str], pods: Pods) -> Entry:
    pod = _pod(pods, claim)
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
    return Entry(PRECEDENCE.get(claim.source, 9), workload, frozenset(shares))


def _pod(pods: Pods, of: Claim | Workload) -> Pod | None:
    return pods.get((of.namespace, of.pod)) if of.pod else None


def _named(entry: Entry, pods: Pods, identify: Identify) -> Workload:
    """With what its pod tells, and its shares."""
    workload = entry.workload
    share = min(entry.shares, key=lambda share: (len(share), share), default="")
    known = msgspec.structs.replace(workload, share=share, replicas=max(1, len(entry.shares)))
    return identify(known, _pod(pods, workload))


def _bearers(vendor: VendorDevices) -> Sequence[Device]:
    """Devices that a workload can hold: parts where a device has any, else the whole."""
    cut = {device.uuid for device in vendor.devices if device.partition}
    return [device for device in vendor.devices if device.partition or device.uuid not in cut]
