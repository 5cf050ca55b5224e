"""How the parts of a GPU are named: GPU instances of MIG, and compute instances where one has several."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from collectors.base import Device, Labels

_PROFILE: Final = re.compile(r"(?:^|\bMIG )(?:(\d+c)\.)?(\d+g\.\S+)")
"""A profile by itself, or at the end of a MIG device's name: ``… MIG 1g.10gb``, ``… MIG 1c.3g.40gb``."""


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


def profile_of(name: str) -> tuple[str, str] | None:
    """Compute slice (``1c``, or empty when it is the whole instance) and instance profile that a name tells."""
    match = _PROFILE.search(name)
    return (match[1] or "", match[2]) if match else None


def profile_by_size(slices: int, mebibytes: int) -> str:
    """The profile's name as nvidia-smi makes it, for names that do not tell it."""
    return f"{slices}g.{(mebibytes + 1023) // 1024}gb"


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
        ids = ids | {"ci": str(compute.ci), "mig_legacy": f"MIG-{whole.uuid}/{ids['gi']}/{compute.ci}"}
        if compute.uuid:
            ids["mig_uuid"] = compute.uuid
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
