"""Who a GPU is: facts of it, its uuid, and the labels by which AMD's exporter names it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from collectors.amd import cards, files
from collectors.amd.cards import Card, Part
from collectors.amd.kfd import Node
from collectors.base import Device, Labels, Settings

CARD_VENDOR: Final = "Advanced Micro Devices, Inc. [AMD/ATI]"
"""The name of PCI vendor 0x1002."""
_WHOLE: Final = 0xFF
_HEX: Final = re.compile(r"(?:0x)?([0-9a-fA-F]{1,16})")
_NOTHING: Final = frozenset(("", "n/a", "na", "none", "null", "unknown"))


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What a card tells of itself. What it does not tell is empty."""

    unique_id: str = ""
    """16 hexadecimal digits: the chip's own number."""
    device_id: str = ""
    """Four hexadecimal digits."""
    model: str = ""
    """Number of the board, such as 102-G30211-00."""
    series: str = ""
    """Name on the market."""
    vendor: str = CARD_VENDOR
    serial: str = ""
    driver_version: str = ""
    vbios_version: str = ""
    compute_partition: str = ""
    memory_partition: str = ""
    deployment_mode: str = ""


class Logical(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU as AMD counts them: a card, or a partition of one."""

    bdf: str
    """PCI address of the card."""
    partition: int
    facts: Facts
    uuid: str = ""
    """The library's, if it tells one."""
    node: Node | None = None
    handle: Any = None


class Inventory(msgspec.Struct, frozen=True, kw_only=True):
    """What a discovery found. ``cards`` are those that can be read; ``devices`` has the lost ones, too."""

    devices: tuple[Device, ...] = ()
    cards: tuple[Card, ...] = ()
    lost: tuple[int, ...] = ()
    count: int = 0
    """Logical GPUs."""


def plain(text: object) -> str:
    """A text that may be a placeholder, or a bare number where a name should be."""
    found = str(text).strip()
    return "" if found.lower() in _NOTHING or re.fullmatch(r"0x[0-9a-fA-F]+", found) else found


def hexadecimal(text: object, digits: int) -> str:
    """Digits of a number, in lower case and with leading zeros; empty for none and for zero."""
    match = _HEX.fullmatch(str(text).strip())
    if match is None or not int(match[1], 16):
        return ""
    return match[1].lower().rjust(digits, "0")


def uuid(unique_id: str, device_id: str, function: int = _WHOLE) -> str:
    """The uuid that amdsmi makes of the chip's number; ``function`` is 255 for the whole card.

    Versions of amdsmi differ in whether they put the partition there: the card's identity always takes the whole's.
    """
    if not unique_id or not device_id:
        return ""
    return f"{unique_id[:2]}{function:02x}{device_id}-0000-1000-80{unique_id[2:4]}-{unique_id[4:]}"


def facts(sys: str, bdf: str) -> Facts:
    """What sysfs tells of a card."""
    folder = Path(sys, "bus/pci/devices", bdf)

    def told(name: str) -> str:
        return plain(files.fact(folder / name))

    return Facts(
        unique_id=hexadecimal(files.fact(folder / "unique_id"), 16),
        device_id=hexadecimal(files.fact(folder / "device"), 4),
        model=told("product_number"),
        series=told("product_name"),
        vendor=told("manufacturer") or CARD_VENDOR,
        serial=told("serial_number"),
        driver_version=plain(files.fact(Path(sys, "module/amdgpu/version"))),
        vbios_version=told("vbios_version"),
        compute_partition=told("current_compute_partition"),
        memory_partition=told("current_memory_partition"),
    )


def arrange(settings: Settings, found: Sequence[Logical], known: Inventory) -> Inventory:
    """Make cards and devices of what was found, a card before its parts. Those that are missing keep their place."""
    devices: list[Device] = []
    cards_found: list[Card] = []
    taken: set[str] = set()
    by_card: dict[str, list[tuple[int, Logical]]] = {}
    for index, logical in enumerate(found):
        by_card.setdefault(logical.bdf, []).append((index, logical))
    for bdf, members in by_card.items():
        card, own = _card(settings, bdf, members, len(devices), taken)
        taken.add(card.uuid)
        cards_found.append(card)
        devices.extend(own)
    lost = [device for device in known.devices if not device.partition and device.uuid not in taken]
    lost = [device for device in lost if not _elsewhere(settings.paths.sys, device.pci_bus_id)]
    first = len(devices)
    devices.extend(lost)
    return Inventory(
        devices=tuple(devices),
        cards=tuple(cards_found),
        lost=tuple(range(first, len(devices))),
        count=len(found),
    )


def _elsewhere(sys: str, bdf: str) -> bool:
    """Whether another driver has it now, as before it is passed through to a guest."""
    try:
        return Path(sys, "bus/pci/devices", bdf, "driver").readlink().name != cards.DRIVER
    except OSError:
        return False


def _card(
    settings: Settings, bdf: str, members: Sequence[tuple[int, Logical]], position: int, taken: set[str]
) -> tuple[Card, list[Device]]:
    sys = settings.paths.sys
    first_index, first = members[0]
    told = first.facts
    own = uuid(told.unique_id, told.device_id) or told.serial or bdf
    if own in taken:
        # Two dies of one board can share its serial, virtual functions a number that is none.
        own = bdf
    cut = len(members) > 1
    first_uuid = first.uuid or (uuid(told.unique_id, told.device_id, first.partition) if cut else "") or own
    whole = Device(
        uuid=own,
        index=str(first_index),
        model=told.series or told.model,
        serial=told.serial,
        pci_bus_id=bdf,
        driver_version=told.driver_version,
        firmware_version=told.vbios_version,
        numa_node=_numa_node(sys, bdf),
        # What is of the whole card stands on its first partition in AMD's exporter.
        raw_labels=raw_labels(settings, first_index, first, first_uuid),
    )
    if not cut:
        part = Part(position=position, partition=0, node=first.node, handle=first.handle)
        device = msgspec.structs.replace(whole, ids=_ids(sys, first_index, first, own))
        return cards.describe(sys, bdf, position, [part], own), [device]
    devices, parts = [whole], []
    profile = "_".join(filter(None, (told.compute_partition, told.memory_partition))).lower()
    for index, logical in members:
        part_uuid = logical.uuid or uuid(told.unique_id, told.device_id, logical.partition)
        parts.append(
            Part(
                position=position + len(devices),
                partition=logical.partition,
                node=logical.node,
                handle=logical.handle,
            )
        )
        devices.append(
            msgspec.structs.replace(
                whole,
                index=str(index),
                partition=str(logical.partition),
                partition_uuid=part_uuid,
                partition_profile=profile,
                raw_labels=raw_labels(settings, index, logical, part_uuid or own),
                ids=_ids(sys, index, logical, part_uuid),
            )
        )
    return cards.describe(sys, bdf, position, parts, own), devices


def raw_labels(settings: Settings, index: int, logical: Logical, own: str) -> Labels:
    """The identity labels of AMD's exporter. What a GPU does not tell is left out, never written as null."""
    told = logical.facts
    labels = (
        ("gpu_id", str(index)),
        ("gpu_uuid", own),
        ("card_model", told.model or told.series),
        ("card_series", told.series),
        ("card_vendor", told.vendor),
        ("serial_number", told.serial),
        ("driver_version", told.driver_version),
        ("vbios_version", told.vbios_version),
        ("gpu_partition_id", str(logical.partition)),
        ("gpu_compute_partition_type", told.compute_partition.lower()),
        ("gpu_memory_partition_type", told.memory_partition.lower()),
        ("deployment_mode", told.deployment_mode),
        ("hostname", settings.node),
        ("cluster_name", str(settings.options.get("cluster_name", ""))),
    )
    return tuple((name, value) for name, value in labels if value)


def _ids(sys: str, index: int, logical: Logical, own: str) -> dict[str, str]:
    """What a kubelet and a scheduler call the GPU: its address for a card and for a first partition, else xcp_N."""
    ids = {"index": str(index), "uuid": own}
    if logical.partition == 0:
        ids["bdf"] = logical.bdf
    folder = Path(sys, "bus/pci/devices", logical.bdf, "drm")
    render = str(logical.node.render) if logical.node and logical.node.render else _minor(folder, "renderD")
    if logical.partition and (name := _platform_name(sys, render)):
        ids["device_name"] = name
        folder = Path(sys, "devices/platform", name, "drm")
    if render:
        ids["render"] = render
        if card := _minor(folder, "card"):
            ids["dra"] = f"gpu-{card}-{render}"
    return ids


def _minor(folder: Path, kind: str) -> str:
    return next((name.removeprefix(kind) for name in files.names(folder) if name.startswith(kind)), "")


def _platform_name(sys: str, render: str) -> str:
    """The platform device behind a partition's render node: ``amdgpu_xcp_N``."""
    root = Path(sys, "devices/platform")
    return next(
        (
            name
            for name in files.names(root)
            if name.startswith("amdgpu_xcp_") and f"renderD{render}" in files.names(root / name / "drm")
        ),
        "",
    )


def _numa_node(sys: str, bdf: str) -> str:
    """The node that sysfs tells; -1 means that there is none."""
    node = files.fact(Path(sys, "bus/pci/devices", bdf, "numa_node"))
    return node if node.isdigit() else ""
