"""MIG as NVML tells it: GPU instances and their compute instances."""

from __future__ import annotations

from typing import Any

from collectors.nvidia import codes
from collectors.nvidia.binding import NvmlFailure, call, number, text
from collectors.nvidia.partitions import Compute, Instance, profile_by_size, profile_of


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
    """The mode and the uuids of the MIG devices: these change with each new layout, even one of the same shape.

    With the mode changes what the GPU as a whole tells, whether or not it has been cut.
    """
    return (str(mode(gpu)), *(text("nvmlDeviceGetUUID", handle) for handle in handles(gpu)))


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
    found = profile_of(text("nvmlDeviceGetName", handle))
    if found is not None:
        return found
    try:
        attributes = call("nvmlDeviceGetAttributes", handle)
    except NvmlFailure as failure:
        if codes.judge(failure.code) in ("lost", "gone"):
            raise
        return "", "unknown"
    slices, computes = int(attributes.gpuInstanceSliceCount), int(attributes.computeInstanceSliceCount)
    return f"{computes}c" if computes != slices else "", profile_by_size(slices, int(attributes.memorySizeMB))
