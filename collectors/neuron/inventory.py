"""Devices and their NeuronCores, from the driver's files, neuron-ls and neuron-monitor's hardware information.

A part is a logical NeuronCore, as AWS's tools, the kubelet and NEURON_RT_VISIBLE_CORES count them: through the node.
Behind it are one or more physical cores, which the driver's files count within their device.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from collectors.base import Device, Labels
from collectors.neuron import formats, sysfs
from collectors.neuron.neuron_ls import Entry
from collectors.neuron.report import Hardware
from collectors.neuron.sysfs import Tree

NO_ENTRY = Entry()


class Core(msgspec.Struct, frozen=True):
    """A logical NeuronCore."""

    position: int
    index: int
    """Node-wide."""
    physical: tuple[int, ...]
    """Its physical cores within the device; empty if that is not known."""


class Chip(msgspec.Struct, frozen=True, kw_only=True):
    """A device."""

    position: int
    index: int
    cores: tuple[Core, ...]
    tree: Tree | None
    """None: the driver's files are not in sight."""
    bdf: str = ""
    memory_bytes: int = 0
    physical_cores: int = 0
    lnc: int = 0
    """0: not told."""
    neighbours: int | None = None


class Inventory(msgspec.Struct, frozen=True, kw_only=True):
    """All of them. Positions are those of ``devices``."""

    devices: tuple[Device, ...] = ()
    chips: tuple[Chip, ...] = ()
    cores: Mapping[int, tuple[Chip, Core]] = {}
    """By node-wide index."""
    by_index: Mapping[int, Chip] = {}
    labels: Labels = ()
    """The instance's labels, which stand on every raw series."""


class Sources(msgspec.Struct, frozen=True, kw_only=True):
    """What the inventory is made from."""

    trees: Mapping[int, Tree]
    entries: Mapping[int, Entry] = {}
    hardware: Hardware | None = None
    labels: Labels = ()
    driver: str = ""
    sys_path: str = "/sys"


def build(sources: Sources) -> Inventory:
    """Put everything together. No devices: none of the sources knows one."""
    indexes = sorted(sources.trees.keys() | sources.entries.keys())
    if not indexes and sources.hardware is not None:
        indexes = list(range(min(sources.hardware.devices, 64)))
    devices: list[Device] = []
    chips: list[Chip] = []
    taken: set[str] = set()
    names: set[int] = set()
    for index in indexes:
        whole = _device(index, sources, taken)
        position = len(devices)
        devices.append(whole)
        physical, logical, lnc = _shape(index, sources)
        cores = []
        for place, core_index in enumerate(_core_ids(index, logical, sources, names)):
            names.add(core_index)
            core = Core(len(devices), core_index, _behind(place, physical, logical))
            cores.append(core)
            devices.append(_part(whole, core_index, lnc))
        entry = sources.entries.get(index, NO_ENTRY)
        memory = (sources.hardware.memory_bytes if sources.hardware else 0) or entry.memory_bytes
        chip = Chip(
            position=position,
            index=index,
            cores=tuple(cores),
            tree=sources.trees.get(index),
            bdf=entry.bdf,
            memory_bytes=memory,
            physical_cores=physical or logical * max(1, lnc),
            lnc=lnc,
            neighbours=entry.neighbours,
        )
        chips.append(chip)
    return Inventory(
        devices=tuple(devices),
        chips=tuple(chips),
        cores={core.index: (chip, core) for chip in chips for core in chip.cores},
        by_index={chip.index: chip for chip in chips},
        labels=sources.labels,
    )


def _device(index: int, sources: Sources, taken: set[str]) -> Device:
    tree, entry = sources.trees.get(index), sources.entries.get(index, NO_ENTRY)
    serial = formats.serial(tree.facts.get("serial_number", "")) if tree is not None else ""
    model = tree.facts.get("device_name", "") if tree is not None else ""
    if not model and sources.hardware is not None:
        model = sources.hardware.device_type
    return Device(
        uuid=_uuid(index, serial, entry.bdf, sources.labels, taken),
        index=str(index),
        kind="npu",
        model=model,
        serial=serial,
        pci_bus_id=entry.bdf,
        driver_version=sources.driver,
        numa_node=entry.numa_node or _numa_node(sources.sys_path, entry.bdf),
        raw_labels=sources.labels,
        ids={"neuron_device": str(index)},
    )


def _uuid(index: int, serial: str, bdf: str, labels: Labels, taken: set[str]) -> str:
    """The serial number; Inf1 has none, and there the instance's id with the index tells devices of all nodes apart."""
    instance = dict(labels).get("instance_id", "")
    name = f"neuron{index}"
    found = serial or (f"{instance}-{name}" if instance else "") or bdf or name
    if found in taken:
        found = f"{found}-{name}"
    taken.add(found)
    return found


def _part(whole: Device, core: int, lnc: int) -> Device:
    return msgspec.structs.replace(
        whole,
        partition=str(core),
        partition_profile=f"lnc{lnc}" if lnc else "",
        ids={"neuroncore": str(core)},
    )


def _shape(index: int, sources: Sources) -> tuple[int, int, int]:
    """(physical cores, logical cores, LNC) of a device; 0 for what is not known.

    LNC can differ between devices of a node and change between two claims: it never follows from the instance's type.
    Where no tool tells, the parts are the physical cores.
    """
    tree, entry, hardware = sources.trees.get(index), sources.entries.get(index, NO_ENTRY), sources.hardware
    physical = 0
    if tree is not None:
        physical = formats.count(tree.facts.get("core_count", "")) or len(tree.cores)
    logical = entry.cores or (hardware.cores_per_device if hardware is not None else 0)
    lnc = entry.lnc or (hardware.lnc if hardware is not None else 0)
    if not logical:
        return physical, physical, 0
    if physical and physical % logical == 0 and lnc not in (0, physical // logical):
        lnc = physical // logical
    return physical, logical, lnc


def _core_ids(index: int, logical: int, sources: Sources, names: set[int]) -> tuple[int, ...]:
    """Node-wide indexes of a device's cores."""
    told = sources.entries.get(index, NO_ENTRY).core_ids
    if len(told) == logical and not names & set(told):
        return told
    counted = range(index * logical, (index + 1) * logical)
    if names & set(counted):
        # Devices of different LNC: their cores are counted on.
        counted = range(max(names) + 1, max(names) + 1 + logical)
    return tuple(counted)


def _behind(place: int, physical: int, logical: int) -> tuple[int, ...]:
    """Physical cores of the device's core at this place."""
    if not physical or physical % logical:
        return ()
    each = physical // logical
    return tuple(range(place * each, (place + 1) * each))


def _numa_node(sys_path: str, bdf: str) -> str:
    if not bdf:
        return ""
    try:
        text = sysfs.read(str(Path(sys_path) / "bus/pci/devices" / bdf / "numa_node")).strip()
    except OSError:
        return ""
    return text if text.isdecimal() else ""
