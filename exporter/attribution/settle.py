"""Which of those that claim one device have it, where sources disagree or each knows a part."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from exporter.attribution.match import DeviceKey, VendorDevices
from exporter.model import Workload

_GAPS: Final = ("job_name", "job_kind", "tenant", "queue", "pod_uid", "resource")


class Entry(msgspec.Struct, frozen=True):
    """One workload that claims a device."""

    rank: int
    """Of the best source that says so; smaller is better."""
    workload: Workload
    shares: frozenset[str] = frozenset()


class Settled(msgspec.Struct, frozen=True):
    """Who has a device."""

    owners: Sequence[Entry]
    contradicted: bool = False
    """Some source names a pod or job that does not have it."""


def merged(better: Entry, other: Entry) -> Entry:
    """One workload of two; where both know something, the better rank's counts, else the first's."""
    if other.rank < better.rank:
        better, other = other, better
    old, new = better.workload, other.workload
    gaps = {name: getattr(new, name) for name in _GAPS if not getattr(old, name) and getattr(new, name)}
    workload = msgspec.structs.replace(old, raw={**new.raw, **old.raw}, **gaps)
    return Entry(better.rank, workload, better.shares | other.shares)


def settle(entries: Sequence[Entry]) -> Settled:
    """Where the best source names someone, lesser sources name nobody else; what they know of the same one is kept."""
    together = _jobs_of_pods(_by_container(entries))
    best = min(entry.rank for entry in together)
    owners = [entry for entry in together if entry.rank == best]
    others = [entry for entry in together if entry.rank != best]
    owners.sort(key=lambda entry: _who(entry.workload))
    return Settled(owners, any(_contradicts(entry.workload, owners) for entry in others))


def _by_container(entries: Sequence[Entry]) -> Sequence[Entry]:
    """A claim of a pod as a whole is one of its only container that claims the device."""
    known: dict[tuple[str, str], list[int]] = defaultdict(list)
    for place, entry in enumerate(entries):
        if entry.workload.container:
            known[_pod(entry.workload)].append(place)
    found: dict[int, Entry] = dict(enumerate(entries))
    for place, entry in enumerate(entries):
        places = known.get(_pod(entry.workload), [])
        if not entry.workload.pod or entry.workload.container or not places:
            continue
        if len(places) == 1:
            found[places[0]] = merged(found[places[0]], entry)
        if len(places) == 1 or entry.rank >= min(entries[other].rank for other in places):
            del found[place]
    return list(found.values())


def _jobs_of_pods(entries: Sequence[Entry]) -> Sequence[Entry]:
    """Where Slurm runs in pods, the pod has the device and works for the job: both are told."""
    pods = [entry for entry in entries if entry.workload.pod]
    jobs = [entry for entry in entries if not entry.workload.pod and entry.workload.job_kind == "SlurmJob"]
    if len(pods) != 1 or not jobs or any(job.rank < pods[0].rank for job in jobs):
        return entries
    best = min(job.rank for job in jobs)
    rest = [entry for entry in entries if entry.workload.pod == "" and entry.workload.job_kind != "SlurmJob"]
    return [*(merged(pods[0], job) for job in jobs if job.rank == best), *rest]


def _contradicts(workload: Workload, owners: Sequence[Entry]) -> bool:
    if workload.pod:
        return any(owner.workload.pod for owner in owners) and all(
            _pod(workload) != _pod(owner.workload) for owner in owners
        )
    jobs = [owner.workload.job_name for owner in owners if owner.workload.job_kind == "SlurmJob"]
    return workload.job_kind == "SlurmJob" and bool(jobs) and workload.job_name not in jobs


def inherit(settled: dict[DeviceKey, Settled], vendors: Sequence[VendorDevices]) -> None:
    """Parts of a device that is held as a whole are held with it, and a whole whose parts one workload has is its.

    A lesser source that names the whole, such as processes, does not count against one that names parts.
    """
    for vendor in vendors:
        parts: dict[str, list[DeviceKey]] = defaultdict(list)
        for device in vendor.devices:
            if device.partition:
                parts[device.uuid].append((device.uuid, device.partition))
        for uuid, keys in parts.items():
            held = [settled[key].owners[0].rank for key in keys if key in settled]
            whole = settled.get((uuid, ""))
            if whole is not None and (not held or whole.owners[0].rank <= min(held)):
                for key in keys:
                    if key not in settled or settled[key].owners[0].rank > whole.owners[0].rank:
                        settled[key] = Settled(whole.owners)
                continue
            settled.pop((uuid, ""), None)
            only = _only(settled, keys)
            if only is not None:
                settled[uuid, ""] = Settled((only,))


def _only(settled: Mapping[DeviceKey, Settled], keys: Sequence[DeviceKey]) -> Entry | None:
    """The one workload that has all of these."""
    owners = [settled[key].owners if key in settled else () for key in keys]
    if all(len(each) == 1 for each in owners) and len({_who(each[0].workload) for each in owners}) == 1:
        return owners[0][0]
    return None


def _pod(workload: Workload) -> tuple[str, str]:
    return workload.namespace, workload.pod


def _who(workload: Workload) -> tuple[str, str, str, str]:
    return workload.namespace, workload.pod, workload.container, workload.job_name
