"""MIG as DCGM tells it, with the uuids that only NVML knows."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from collectors.nvidia.dcgm import abi, codes
from collectors.nvidia.dcgm.codes import DcgmFailure
from collectors.nvidia.dcgm.engine import Engine
from collectors.nvidia.dcgm.values import Reader
from collectors.nvidia.partitions import Compute, Instance, profile_by_size, profile_of

_MOST: Final = 448
_ENTRY: Final = struct.Struct("=iIiI128sIIIII")
"""Entity, parent, the GPU's uuid, NVML's index, instance, compute instance and profile, slices."""
_FIRST: Final = 8
_NAME: Final = 50
_FB_TOTAL: Final = 250


class Node(msgspec.Struct, frozen=True):
    """A GPU instance, or a compute instance."""

    entity: abi.Entity
    parent: abi.Entity
    gi: int
    ci: int
    slices: int


Layout = tuple[Node, ...]


class Cut(msgspec.Struct, frozen=True):
    """A GPU instance under both its names: DCGM's entity, and NVML's instance."""

    entity: int
    instance: Instance


def read_layout(engine: Engine) -> Layout:
    """Every instance of every GPU in MIG mode. Raises DcgmFailure when the engine does not answer."""
    buffer = abi.structure(abi.HIERARCHY)
    try:
        engine.call("dcgmGetGpuInstanceHierarchy", buffer)
    except DcgmFailure as failure:
        if codes.judge(failure.code) in ("gone", "timeout"):
            raise
        return ()
    count = min(struct.unpack_from("=I", buffer, 4)[0], _MOST)
    return tuple(
        Node((group, entity), (above, parent), gi, ci, slices)
        for group, entity, above, parent, _, _, gi, ci, _, slices in (
            _ENTRY.unpack_from(buffer, _FIRST + place * _ENTRY.size) for place in range(count)
        )
    )


def instances(reader: Reader, layout: Layout, gpu: int, uuid: str) -> Iterator[Cut]:
    """The GPU instances of a GPU that have a compute instance, by NVML's id. Raises DcgmFailure."""
    wholes = [node for node in layout if node.entity[0] == abi.GPU_I and node.parent == (abi.GPU, gpu)]
    if not wholes:
        return
    profiles = _profiles(reader, wholes)
    known = _by_nvml(uuid)
    for whole in sorted(wholes, key=lambda node: node.gi):
        parts = [node for node in layout if node.entity[0] == abi.GPU_CI and node.parent == whole.entity]
        if parts:
            yield Cut(whole.entity[1], _instance(whole, parts, profiles, known))


def _instance(
    whole: Node, parts: Sequence[Node], profiles: Mapping[abi.Entity, str], known: Mapping[int, Instance]
) -> Instance:
    told = known.get(whole.gi)
    uuids = {compute.ci: compute.uuid for compute in told.computes} if told else {}
    profile = profiles.get(whole.entity) or (told.profile if told else "unknown")
    return Instance(
        gi=whole.gi,
        profile=profile,
        profile_id=told.profile_id if told else None,
        placement=told.placement if told else None,
        computes=tuple(
            Compute(
                handle=part.entity,
                ci=part.ci,
                uuid=uuids.get(part.ci, ""),
                profile=profile if part.slices == whole.slices else f"{part.slices}c.{profile}",
            )
            for part in sorted(parts, key=lambda part: part.ci)
        ),
    )


def _profiles(reader: Reader, wholes: Sequence[Node]) -> dict[abi.Entity, str]:
    """``1g.10gb``: the name of an instance, else made from slices and memory."""
    slices = {node.entity: node.slices for node in wholes}
    found: dict[abi.Entity, str] = {}
    sizes: dict[abi.Entity, str] = {}
    for value in reader.read(list(slices), [_NAME, _FB_TOTAL], live=True):
        if value.status != codes.OK or value.value is None or abi.blank(value.value):
            continue
        if isinstance(value.value, str) and (named := profile_of(value.value)):
            found[value.entity] = named[1]
        elif isinstance(value.value, int):
            sizes[value.entity] = profile_by_size(slices[value.entity], value.value)
    return {**sizes, **found}


def _by_nvml(uuid: str) -> Mapping[int, Instance]:
    """Instance id → what NVML says of it: uuids, by which a kubelet calls the parts, and placements.

    DCGM tells neither. Without the binding, the driver's library or the right they stay unknown.
    """
    with contextlib.suppress(ImportError):
        from collectors.nvidia import mig
        from collectors.nvidia.binding import NvmlFailure, call

        with contextlib.suppress(NvmlFailure):
            call("nvmlInit")
            try:
                return {found.gi: found for found in mig.instances(call("nvmlDeviceGetHandleByUUID", uuid))}
            finally:
                with contextlib.suppress(NvmlFailure):
                    call("nvmlShutdown")
    return {}
