"""Who a sample is about: from the labels of a foreign exporter to devices and their parts.

Exporters name the same device in several ways, some series with fewer labels than others. Whatever agrees and does not
contradict is one device; a sample that could belong to two belongs to none.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from collectors.base import Device, Labels
from collectors.tables import Bridge, BridgeLabels

MAX_DEVICES: Final = 1024
"""Devices and parts of one node, in all. A source that names more is broken or hostile."""

_PLACEHOLDERS: Final = frozenset(("", "na", "n/a", "[n/a]", "none", "null", "nil", "unknown", "<unknown>"))
_FIELDS: Final = tuple(name for name in BridgeLabels.__struct_fields__ if name not in ("node", "workload"))
_MATCHED: Final = ("serial", "index", "pci_bus_id")
_FACTS: Final = ("index", "model", "serial", "pci_bus_id", "driver_version", "firmware_version")


class TooManyDevices(Exception):
    """The source names more devices and parts than MAX_DEVICES."""


class Named(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What the labels of one sample say about its device. What they do not say is empty."""

    uuid: str = ""
    index: str = ""
    model: str = ""
    serial: str = ""
    pci_bus_id: str = ""
    driver_version: str = ""
    firmware_version: str = ""
    partition: str = ""
    partition_profile: str = ""
    partition_uuid: str = ""
    partition_index: str = ""
    raw_labels: Labels = ()
    """The labels that name the device, as they were read."""
    whole_labels: Labels = ()
    """The same without those that name its part."""

    def anonymous(self) -> bool:
        return not (self.uuid or self.serial or self.pci_bus_id or self.index)


class Spellings:
    """Reads a device's name out of labels, by the vendor's table."""

    def __init__(self, bridge: Bridge, identity: tuple[str, ...]) -> None:
        self._by_field: Mapping[str, tuple[str, ...]] = {field: getattr(bridge.labels, field) for field in _FIELDS}
        self._parting = frozenset(bridge.labels.partition_profile + bridge.labels.partition_id)
        self._template = _checked("partition", bridge.partition)
        self._uncut = frozenset(bridge.uncut)
        self._own_of_parts = bridge.own_of_parts
        self._counts = bridge.parts_per_device
        self._nodes = bridge.labels.node
        self._uuid = _checked("uuid", bridge.uuid, "node")
        named = {spelling for spellings in self._by_field.values() for spelling in spellings}
        self.names: frozenset[str] = frozenset(named | set(identity) | set(bridge.labels.node))
        """All labels that name a device or its node, in every spelling."""

    def read(self, labels: Labels, declared: tuple[str, ...] = ()) -> Named:
        """``declared``: labels that stand on the series anyway, and so not once more among those of the device."""
        values = {name: value for name, value in labels if not _is_placeholder(value)}
        facts = {field: _first(values, spellings) for field, spellings in self._by_field.items()}
        raw = tuple(pair for pair in labels if pair[0] in self.names and pair[0] not in declared)
        uncut = facts["partition_profile"] in self._uncut
        partition = "" if uncut else self._partition(facts)
        own = dict.fromkeys(self._own_of_parts, "")
        if partition and (facts["serial"] or facts["pci_bus_id"]):
            own = {field: facts[field] for field in own}
            facts |= dict.fromkeys(own, "")
        return Named(
            **{field: facts[field] for field in ("uuid", *_FACTS)},
            partition=partition,
            partition_profile=facts["partition_profile"] if partition else "",
            partition_uuid=own.get("uuid", ""),
            partition_index=own.get("index", ""),
            raw_labels=raw,
            whole_labels=raw if uncut else tuple(pair for pair in raw if pair[0] not in self._parting),
        )

    def parts_per_device(self, labels: Labels) -> int:
        """How many parts a device has, if these labels tell it; else 0."""
        values = (value for name, value in labels if name in self._counts)
        return next((int(value) for value in values if value.isdecimal() and len(value) < 4), 0)

    def complete(self, named: Named, parts: int) -> Named:
        """Add what follows from the rest: the device of a part that is numbered through the node, and a uuid."""
        index = named.index
        if not index and parts and named.partition.isdecimal():
            index = str(int(named.partition) // parts)
        uuid = named.uuid
        if not uuid and self._uuid and index:
            node = _first(dict(named.raw_labels), self._nodes)
            facts = {field: getattr(named, field, "") for field in _FIELDS} | {"index": index, "node": node}
            uuid = self._uuid.format_map(facts).strip("/:-. ")
        if (index, uuid) == (named.index, named.uuid):
            return named
        return msgspec.structs.replace(named, index=index, uuid=uuid)

    def _partition(self, facts: Mapping[str, str]) -> str:
        """The part's name, empty for a whole. Where the table knows ids of parts, a profile alone makes no part."""
        deciding = "partition_id" if self._by_field["partition_id"] else "partition_profile"
        return self._template.format_map(facts).strip("/:-. ") if facts[deciding] else ""


def _checked(what: str, template: str, *more: str) -> str:
    """Raises ValueError unless the template names fields of BridgeLabels, or one of ``more``, and nothing else."""
    known = (*_FIELDS, *more)
    for _, field, spec, conversion in string.Formatter().parse(template):
        if field is not None and (field not in known or spec or conversion):
            raise ValueError(
                f"the {what} template {template!r} is not understood; expected one of {{{'}, {'.join(known)}}}"
            )
    return template


def _is_placeholder(value: str) -> bool:
    return value.lower() in _PLACEHOLDERS or value.startswith("<<<")


def _first(values: Mapping[str, str], spellings: tuple[str, ...]) -> str:
    return next((values[spelling] for spelling in spellings if spelling in values), "")


class _Whole:
    """A device while it is being put together."""

    def __init__(self, named: Named) -> None:
        self.uuid = named.uuid
        self.facts: dict[str, str] = dict.fromkeys(_FACTS, "")
        self.labels: Labels = ()
        self.parts: dict[str, Named] = {}
        self.add(named)

    def add(self, named: Named) -> None:
        for name in _FACTS:
            self.facts[name] = self.facts[name] or getattr(named, name)
        if len(named.whole_labels) > len(self.labels):
            self.labels = named.whole_labels
        if named.partition:
            known = self.parts.get(named.partition)
            if known is None or len(named.raw_labels) > len(known.raw_labels):
                self.parts[named.partition] = named

    def agrees(self, named: Named) -> bool:
        """Something is the same and nothing is different."""
        pairs = [(self.facts[name], getattr(named, name)) for name in _MATCHED]
        both = [(mine, other) for mine, other in pairs if mine and other]
        return bool(both) and all(mine == other for mine, other in both)


class Inventory(msgspec.Struct, frozen=True):
    """The devices of one scrape, a whole before its parts, and where each name belongs."""

    devices: tuple[Device, ...]
    places: Mapping[Named, tuple[int, int]]
    """Name → position of the whole, position of the part (or of the whole again). An ambiguous name has none."""


def inventory(names: Iterable[Named], kind: str) -> Inventory:
    """Put devices together. Raises TooManyDevices."""
    wholes: list[_Whole] = []
    by_uuid: dict[str, _Whole] = {}
    owner: dict[Named, _Whole] = {}
    # Those with a uuid first, those that tell more before those that tell less: the latter find whom they belong to.
    for named in sorted(names, key=_telling, reverse=True):
        if named.uuid:
            candidates = [by_uuid[named.uuid]] if named.uuid in by_uuid else []
        else:
            candidates = [whole for whole in wholes if whole.agrees(named)]
        if len(candidates) > 1:
            continue
        if candidates:
            whole = candidates[0]
            whole.add(named)
        else:
            whole = _Whole(named)
            wholes.append(whole)
            by_uuid[named.uuid] = whole
        owner[named] = whole
        if len(wholes) > MAX_DEVICES or len(whole.parts) > MAX_DEVICES:
            raise TooManyDevices
    return _listed(wholes, owner, kind)


def _telling(named: Named) -> tuple[bool, int]:
    return bool(named.uuid), sum(bool(getattr(named, name)) for name in _MATCHED)


def _listed(wholes: list[_Whole], owner: Mapping[Named, _Whole], kind: str) -> Inventory:
    devices: list[Device] = []
    positions: dict[tuple[int, str], int] = {}
    for whole, uuid in _with_uuids(wholes):
        positions[id(whole), ""] = len(devices)
        facts = whole.facts
        parts = sorted(whole.parts.items(), key=lambda item: _natural(item[0]))
        device = Device(
            uuid=uuid,
            index=_index(whole),
            kind=kind,
            model=facts["model"],
            serial=facts["serial"],
            pci_bus_id=facts["pci_bus_id"],
            driver_version=facts["driver_version"],
            firmware_version=facts["firmware_version"],
            raw_labels=whole.labels,
        )
        devices.append(device)
        for partition, named in parts:
            positions[id(whole), partition] = len(devices)
            devices.append(
                msgspec.structs.replace(
                    device,
                    index=named.partition_index or device.index,
                    partition=partition,
                    partition_profile=named.partition_profile,
                    partition_uuid=named.partition_uuid,
                    raw_labels=named.raw_labels,
                )
            )
    places = {
        named: (positions[id(whole), ""], positions[id(whole), named.partition]) for named, whole in owner.items()
    }
    return Inventory(tuple(devices), places)


def _with_uuids(wholes: list[_Whole]) -> list[tuple[_Whole, str]]:
    """The wholes in the order in which people count them, each with an identity that no other has."""
    ordered = sorted(wholes, key=lambda whole: (_natural(_index(whole)), whole.uuid, whole.facts["pci_bus_id"]))
    found: list[tuple[_Whole, str]] = []
    taken: set[str] = set()
    for whole in ordered:
        facts = whole.facts
        uuid = whole.uuid or facts["serial"] or facts["pci_bus_id"] or facts["index"]
        if uuid in taken:
            # Two chips of one board can share its serial and its address.
            uuid = f"{uuid}#{facts['index']}"
        taken.add(uuid)
        found.append((whole, uuid))
    return found


def _index(whole: _Whole) -> str:
    """Of a whole that only its parts tell of: the lowest of theirs."""
    return whole.facts["index"] or min(
        (named.partition_index for named in whole.parts.values()), key=_natural, default=""
    )


def _natural(text: str) -> tuple[tuple[int, int, str], ...]:
    return tuple((0, int(word), "") if word.isdecimal() else (1, 0, word) for word in re.split(r"([0-9]{1,18})", text))
