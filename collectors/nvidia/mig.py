"""MIG: GPU instances, their compute instances, and how they are named."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from collectors.base import Device, Labels
from collectors.nvidia import codes
from collectors.nvidia.binding import NvmlFailure, call, number, text

_PROFILE: Final = re.compile(r"\bMIG (?:(\d+c)\.)?(\d+g\.\S+)")
"""The end of a MIG device's name: ``… MIG 1g.10gb``, ``… MIG 1c.3g.40gb``."""


class Compute(msgspec.Struct, frozen=True, kw_only=True):
    """A compute instance: what NVML calls a MIG device."""

    handle: Any
    ci: int
    uuid: str
    profile: str


class Instance(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU instance with its compute instances, at least one."""

    gi: int
    profile: str
    profile_id: int | None
    placement: int | None
    computes: tuple[Compute, ...]


class Partition(msgspec.Struct, frozen=True, kw_only=True):
    """A device of the list that is a part."""

    device: Device
    handle: Any
    ci: int | None


def mode(handle: Any) -> int | None:
    """1 with MIG on, 0 with MIG off, None on a GPU without MIG."""
    try:
        return int(call("nvmlDeviceGetMigMode", handle)[0])
    except NvmlFailure as failure:
        if codes.judge(failure.code) in ("lost", "gone"):
            raise
        return None


def handles(gpu: Any) -> list[Any]:
    """The handles of the MIG devices. Their numbers have holes; a GPU with MIG off has none."""
    if mode(gpu) != 1:
        return []
    found = []
    for index in range(number("nvmlDeviceGetMaxMigDeviceCount", gpu) or 0):
        try:
            found.append(call("nvmlDeviceGetMigDeviceHandleByIndex", gpu, index))
        except NvmlFailure as failure:
            if codes.judge(failure.code) in ("lost", "gone"):
                raise
    return found


def layout(gpu: Any) -> tuple[str, ...]:
    """The uuids of the MIG devices: they change with each new layout, even one of the same shape."""
    return tuple(text("nvmlDeviceGetUUID", handle) for handle in handles(gpu))


def instances(gpu: Any) -> list[Instance]:
    """The GPU instances that have a compute instance, by id. Raises NvmlFailure when the GPU is lost."""
    computes: dict[int, list[Compute]] = {}
    profiles: dict[int, str] = {}
    for handle in handles(gpu):
        gi = number("nvmlDeviceGetGpuInstanceId", handle)
        ci = number("nvmlDeviceGetComputeInstanceId", handle)
        if gi is None or ci is None:
            continue
        slice_, profile = _profile(handle)
        profiles.setdefault(gi, profile)
        uuid = text("nvmlDeviceGetUUID", handle)
        name = f"{slice_}.{profile}" if slice_ else profile
        computes.setdefault(gi, []).append(Compute(handle=handle, ci=ci, uuid=uuid, profile=name))
    return [_instance(gpu, gi, profiles[gi], found) for gi, found in sorted(computes.items())]


def _instance(gpu: Any, gi: int, profile: str, computes: list[Compute]) -> Instance:
    profile_id = placement = None
    try:
        info = call("nvmlGpuInstanceGetInfo", call("nvmlDeviceGetGpuInstanceById", gpu, gi))
        profile_id, placement = int(info.profileId), int(info.placement.start)
    except NvmlFailure as failure:
        # Unprivileged processes may see the MIG devices and not the instances; only the DRA name needs this.
        if codes.judge(failure.code) in ("lost", "gone"):
            raise
    computes.sort(key=lambda compute: compute.ci)
    return Instance(gi=gi, profile=profile, profile_id=profile_id, placement=placement, computes=tuple(computes))


def _profile(handle: Any) -> tuple[str, str]:
    """Compute slice (``1c``, or empty when it is the whole instance) and instance profile of a MIG device.

    The device's name tells both. A driver whose names do not is asked for slices and memory, from which the
    profile's name is made as nvidia-smi makes it.
    """
    match = _PROFILE.search(text("nvmlDeviceGetName", handle))
    if match:
        return match[1] or "", match[2]
    try:
        attributes = call("nvmlDeviceGetAttributes", handle)
    except NvmlFailure as failure:
        if codes.judge(failure.code) in ("lost", "gone"):
            raise
        return "", "unknown"
    slices, computes = int(attributes.gpuInstanceSliceCount), int(attributes.computeInstanceSliceCount)
    gigabytes = (int(attributes.memorySizeMB) + 1023) // 1024
    return f"{computes}c" if computes != slices else "", f"{slices}g.{gigabytes}gb"


def partitions(instance: Instance, whole: Device, minor: int | None, labels: Labels) -> list[Partition]:
    """The devices of a GPU instance: itself, and each compute instance where there are several.

    NVML tells memory and activity of the instance only, so with several compute instances the numbers stand on the
    instance, once, and the compute instances carry no readings of their own.
    """
    only = instance.computes[0] if len(instance.computes) == 1 else None
    ids = {"index": whole.index, "gi": str(instance.gi)}
    if minor is not None:
        ids |= {"minor": str(minor), "device_name": f"nvidia{minor}/gi{instance.gi}"}
        if instance.profile_id is not None and instance.placement is not None:
            ids["dra"] = dra_name(minor, instance)
    found = [
        Partition(
            device=_device(whole, f"{instance.profile}/{instance.gi}", instance.profile, only, ids, labels),
            handle=instance.computes[0].handle,
            ci=None,
        )
    ]
    if only is None:
        found += [
            Partition(
                device=_device(
                    whole,
                    f"{compute.profile}/{instance.gi}/{compute.ci}",
                    compute.profile,
                    compute,
                    {"index": whole.index, "gi": str(instance.gi)},
                    labels,
                ),
                handle=compute.handle,
                ci=compute.ci,
            )
            for compute in instance.computes
        ]
    return found


def _device(
    whole: Device, partition: str, profile: str, compute: Compute | None, ids: dict[str, str], labels: Labels
) -> Device:
    if compute is not None:
        # The second is how drivers before R470 spelled the uuid.
        ids = ids | {
            "ci": str(compute.ci),
            "mig_uuid": compute.uuid,
            "mig_legacy": f"MIG-{whole.uuid}/{ids['gi']}/{compute.ci}",
        }
    return msgspec.structs.replace(
        whole,
        partition=partition,
        partition_profile=profile,
        partition_uuid=compute.uuid if compute else "",
        raw_labels=labels,
        ids=ids,
    )


def dra_name(minor: int, instance: Instance) -> str:
    """The name that NVIDIA's DRA driver gives the instance: ``gpu-1-mig-2g47gb-14-0``."""
    profile = re.sub(r"[^a-z0-9-]", "-", instance.profile.lower().replace(".", ""))
    return f"gpu-{minor}-mig-{profile}-{instance.profile_id}-{instance.placement}"
