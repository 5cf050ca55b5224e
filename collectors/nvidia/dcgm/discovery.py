"""Which GPUs, MIG instances, switches, CPUs and links an engine has."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from collectors.base import Device, Settings
from collectors.nvidia.dcgm import abi, codes
from collectors.nvidia.dcgm.codes import DcgmFailure
from collectors.nvidia.dcgm.cpus import read_cores
from collectors.nvidia.dcgm.engine import Engine
from collectors.nvidia.dcgm.migs import Layout, instances, read_layout
from collectors.nvidia.dcgm.values import Reader
from collectors.nvidia.identity import label_fields, numa_node, pci_address, raw_labels
from collectors.nvidia.inventory import Gpu, Inventory, Part, still_missing
from collectors.nvidia.partitions import partitions

_SIGNS_OF_LIFE: Final = (150, 100, 155)
"""Temperature, SM clock, power: a GPU that answers at all tells one of them."""
_NVML_INDEX: Final = 52
_MINOR: Final = 55
_MIG_MODE: Final = 67
# Offsets in dcgmDeviceAttributes_t.
_IDENTIFIERS: Final = 3120
_BRAND, _NAME, _PCI, _SERIAL, _UUID, _VBIOS, _INFOROM, _DRIVER = (
    _IDENTIFIERS + offset for offset in (4, 260, 516, 772, 1028, 1284, 1540, 1804)
)
_FB_TOTAL: Final = 5184 + 8


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What a GPU tells of itself."""

    model: str
    pci_bus_id: str
    serial: str
    uuid: str
    vbios: str
    driver: str
    brand: str
    inforom: str


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """A discovery: GPUs as with NVML, and what only DCGM knows."""

    inventory: Inventory = Inventory()
    ids: tuple[int, ...] = ()
    """All GPUs that the engine counts."""
    layout: Layout = ()
    blind: bool = False
    """MIG is on, and the engine sees no instance."""
    switches: tuple[int, ...] = ()
    cpus: tuple[int, ...] = ()
    cores: Mapping[int, tuple[int, ...]] = {}
    """By CPU."""


def discover(engine: Engine, reader: Reader, settings: Settings, known: Inventory) -> Node:
    """List everything. A GPU that was known and does not answer keeps its place without being read.

    Raises DcgmFailure when the engine as a whole does not answer.
    """
    ids = gpu_ids(engine)
    layout = read_layout(engine)
    more = _numbers(reader, ids)
    devices: list[Device] = []
    gpus: list[Gpu] = []
    failed: list[str] = []
    for gpu in ids:
        try:
            found, listed = _gpu(engine, reader, settings, gpu, len(devices), more, layout)
        except DcgmFailure as failure:
            if codes.judge(failure.code) in ("gone", "mismatch"):
                raise
            failed.append(f"GPU {gpu}: {failure}")
            continue
        gpus.append(found)
        devices += listed
    lost = still_missing(settings.paths.sys, known, devices)
    first = len(devices)
    devices += lost
    in_mig = any(more.get((gpu, _MIG_MODE)) == 1 for gpu in ids)
    return Node(
        inventory=Inventory(
            devices=tuple(devices),
            gpus=tuple(gpus),
            lost=tuple(range(first, len(devices))),
            failed=tuple(failed),
            count=len(ids),
        ),
        ids=tuple(ids),
        layout=layout,
        blind=in_mig and not layout,
        switches=_entities(engine, abi.SWITCH),
        cpus=_entities(engine, abi.CPU),
        cores=read_cores(engine),
    )


def gpu_ids(engine: Engine) -> list[int]:
    """DCGM's ids of the GPUs, which stay as long as the engine lives. Raises DcgmFailure."""
    ids, count = (ctypes.c_uint * abi.MAX_GPUS)(), ctypes.c_int(0)
    engine.call("dcgmGetAllDevices", ids, ctypes.byref(count))
    return list(ids[: min(max(count.value, 0), abi.MAX_GPUS)])


def facts(engine: Engine, gpu: int) -> Facts:
    """Ask the driver who a GPU is. Raises DcgmFailure."""
    buffer = _attributes(engine, gpu)
    return Facts(
        model=abi.text(buffer, _NAME, 256),
        pci_bus_id=abi.text(buffer, _PCI, 256),
        serial=abi.text(buffer, _SERIAL, 256),
        uuid=abi.text(buffer, _UUID, 256),
        vbios=abi.text(buffer, _VBIOS, 256),
        driver=abi.text(buffer, _DRIVER, 256),
        brand=abi.text(buffer, _BRAND, 256),
        inforom=abi.text(buffer, _INFOROM, 256),
    )


def _texts(settings: Settings, told: Facts) -> dict[str, str]:
    """The fields that are labels of all series, as far as the attributes tell them."""
    asked = label_fields(settings)
    known = {
        "DCGM_FI_DEV_BRAND": told.brand,
        "DCGM_FI_DEV_SERIAL": told.serial,
        "DCGM_FI_DEV_INFOROM_IMAGE_VER": told.inforom,
        "DCGM_FI_DEV_VBIOS_VERSION": told.vbios,
    }
    return {"DCGM_FI_DRIVER_VERSION": told.driver} | {name: text for name, text in known.items() if name in asked}


def capacity(engine: Engine, gpu: int) -> int | None:
    """Device memory of the whole GPU in MiB, whatever its instances. Raises DcgmFailure."""
    return abi.number(_attributes(engine, gpu), _FB_TOTAL)


def answers(reader: Reader, gpu: int) -> bool:
    """Whether the driver reads anything from a GPU now. Raises DcgmFailure when the engine does not answer."""
    for value in reader.read([(abi.GPU, gpu)], _SIGNS_OF_LIFE, live=True):
        why = abi.blank(value.value) if value.value is not None else "nothing"
        if value.status == codes.OK and why != "nothing":
            return True
        if codes.judge(value.status) in ("unsupported", "permission"):
            return True
    return False


def _attributes(engine: Engine, gpu: int) -> ctypes.Array[ctypes.c_char]:
    buffer = abi.structure(abi.ATTRIBUTES)
    engine.call("dcgmGetDeviceAttributes", gpu, buffer)
    return buffer


def _numbers(reader: Reader, ids: Sequence[int]) -> dict[tuple[int, int], int]:
    """GPU and field → number, of what is no part of the attributes."""
    found = reader.read([(abi.GPU, gpu) for gpu in ids], [_NVML_INDEX, _MINOR, _MIG_MODE], live=True)
    return {
        (value.entity[1], value.field): value.value
        for value in found
        if value.status == codes.OK and isinstance(value.value, int) and not abi.blank(value.value)
    }


def _gpu(
    engine: Engine,
    reader: Reader,
    settings: Settings,
    gpu: int,
    position: int,
    more: Mapping[tuple[int, int], int],
    layout: Layout,
) -> tuple[Gpu, list[Device]]:
    told = facts(engine, gpu)
    if not told.uuid or not answers(reader, gpu):
        raise DcgmFailure(codes.LOST, "dcgmGetDeviceAttributes")
    index = more.get((gpu, _NVML_INDEX), gpu)
    minor = more.get((gpu, _MINOR))
    ids = {"index": str(index), "uuid": told.uuid}
    if minor is not None:
        ids |= {"minor": str(minor), "device_name": f"nvidia{minor}", "dra": f"gpu-{minor}"}
    texts = _texts(settings, told)
    pci = pci_address(told.pci_bus_id)
    whole = Device(
        uuid=told.uuid,
        index=str(index),
        model=told.model,
        serial=told.serial,
        pci_bus_id=told.pci_bus_id,
        driver_version=told.driver,
        firmware_version=told.vbios,
        numa_node=numa_node(settings.paths.sys, pci) if pci else "",
        raw_labels=raw_labels(settings, gpu, told.uuid, told.pci_bus_id, told.model, texts),
        ids=ids,
    )
    devices, parts = [whole], []
    for cut in instances(reader, layout, gpu, told.uuid):
        named = (cut.instance.profile, str(cut.instance.gi))
        labels = raw_labels(settings, gpu, told.uuid, told.pci_bus_id, told.model, texts, named)
        for partition in partitions(cut.instance, whole, minor, labels):
            handle = partition.handle if partition.ci is not None else (abi.GPU_I, cut.entity)
            place = position + len(devices)
            parts.append(Part(position=place, handle=handle, gi=cut.instance.gi, ci=partition.ci))
            devices.append(partition.device)
    capable = (gpu, _MIG_MODE) in more
    found = Gpu(
        position=position,
        handle=(abi.GPU, gpu),
        nvml_index=index,
        uuid=told.uuid,
        mig_capable=capable,
        parts=tuple(parts),
    )
    return found, devices


def _entities(engine: Engine, group: int) -> tuple[int, ...]:
    """The entities of a group; none where the engine has no module for them."""
    room = 64
    while True:
        ids, count = (ctypes.c_uint * room)(), ctypes.c_int(room)
        try:
            engine.call("dcgmGetEntityGroupEntities", group, ids, ctypes.byref(count), 0)
        except DcgmFailure as failure:
            if failure.code == codes.TOO_SMALL and count.value > room:
                room = count.value
                continue
            if codes.judge(failure.code) in ("gone", "mismatch"):
                raise
            return ()
        return tuple(ids[: min(max(count.value, 0), room)])


def entity_of(part: Part | Gpu) -> abi.Entity:
    """What DCGM calls it."""
    group, entity = part.handle
    return int(group), int(entity)
