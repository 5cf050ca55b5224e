"""Which device an id means: the vendors' tables tell the forms, the devices tell their names."""

from __future__ import annotations

import fnmatch
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from collectors.base import Device
from exporter.attribution.claims import Claim
from exporter.attribution.table import Attribution

SHARE = "share"
PCI = re.compile(
    r"(?:(?P<domain>[0-9a-fA-F]{1,8})[:-])?(?P<bus>[0-9a-fA-F]{2})[:-](?P<slot>[0-9a-fA-F]{2})(?:[.-](?P<f>[0-7]))?"
)
DeviceKey = tuple[str, str]
"""uuid, partition"""
_Form = tuple[re.Pattern[str], bool]


class Match(msgspec.Struct, frozen=True):
    """A device that an id means, and which share of it."""

    vendor: str
    key: DeviceKey
    share: str = ""
    hint: bool = False
    """It is this device or another one of the vendor's: only an annotation can tell."""


class VendorDevices(msgspec.Struct, frozen=True):
    """A vendor's tables and its devices as they were discovered last."""

    vendor: str
    table: Attribution
    devices: tuple[Device, ...]


def names(device: Device) -> dict[str, str]:
    """All names of a device that an id could hold, in one spelling."""
    facts = {
        "uuid": device.uuid,
        "index": device.index,
        "serial": device.serial,
        "pci_bus_id": device.pci_bus_id,
        "partition_uuid": device.partition_uuid,
        "partition": device.partition,
        **device.ids,
    }
    return {name: spelled(name, value) for name, value in facts.items() if value}


def spelled(name: str, value: str) -> str:
    """One spelling for all: PCI addresses with four digits of domain, everything in lower case."""
    if name.startswith("pci"):
        found = PCI.fullmatch(value)
        if found is not None:
            return f"{int(found['domain'] or '0', 16):04x}:{found['bus']}:{found['slot']}.{found['f'] or '0'}".lower()
    return value.lower()


class Matcher:
    """Finds devices by what claims say. Made anew for each join, since devices and resources change.

    There may be a hundred thousand ids: what follows from a resource is worked out once, and devices are looked up.
    """

    def __init__(self, vendors: Sequence[VendorDevices]) -> None:
        names_of = {
            (vendor.vendor, device.uuid, device.partition): names(device)
            for vendor in vendors
            for device in vendor.devices
        }
        self._vendors = [
            _Known(vendor, [names_of[vendor.vendor, device.uuid, device.partition] for device in vendor.devices])
            for vendor in vendors
        ]
        self._forms: dict[str, Sequence[tuple[_Known, Sequence[_Form]]]] = {}

    def knows(self, resource: str) -> bool:
        """Whether a resource, or a DRA driver, hands out devices of any vendor that is here."""
        return bool(self._of(resource)) or any(
            rule.driver == resource for known in self._vendors for rule in known.of.table.dra
        )

    def find(self, claim: Claim) -> tuple[Match, ...]:
        """The devices that a claim means; none if no form fits or no device has the names."""
        if claim.names or claim.everything:
            return tuple(
                match
                for known in self._vendors
                if claim.vendor in ("", known.of.vendor)
                for match in known.named(claim.names, claim.share, everything=claim.everything)
            )
        for known, forms in self._of(claim.resource):
            for pattern, hint in forms:
                groups = pattern.fullmatch(claim.device_id)
                if groups is None:
                    continue
                told = {name: value for name, value in groups.groupdict().items() if value is not None}
                share = told.pop(SHARE, "")
                # A form without names, such as the word "all", means every device.
                everything = pattern.groupindex.keys() <= {SHARE}
                matches = tuple(known.named(told, share, everything=everything, hint=hint))
                if matches:
                    return matches
        return ()

    def _of(self, resource: str) -> Sequence[tuple[_Known, Sequence[_Form]]]:
        """The vendors whose devices a resource hands out, each with the forms of its ids."""
        found = self._forms.get(resource)
        if found is None:
            found = self._forms[resource] = [
                (known, _forms(known.of.table, resource))
                for known in self._vendors
                if concerns(known.of.table, resource)
            ]
        return found


class _Known:
    """One vendor's devices by their names."""

    def __init__(self, of: VendorDevices, known: Sequence[Mapping[str, str]]) -> None:
        """``known``: the names of each of the devices."""
        self.of, self._names = of, known
        self._by_name: dict[tuple[str, str], list[int]] = defaultdict(list)
        for position, told in enumerate(known):
            for name, value in told.items():
                self._by_name[name, value].append(position)
            # A part may be called by its own uuid where others are by the whole's.
            own = told.get("partition_uuid")
            if own is not None and own != told.get("uuid"):
                self._by_name["uuid", own].append(position)

    def named(
        self, told: Mapping[str, str], share: str, *, everything: bool = False, hint: bool = False
    ) -> Iterable[Match]:
        """Devices that have all names; wholes before parts, unless the names are those of parts."""
        wanted = [(name, spelled(name, value)) for name, value in told.items()]
        if not wanted and not everything:
            return
        positions: Iterable[int] = self._by_name.get(wanted[0], ()) if wanted else range(len(self._names))
        found = [
            self.of.devices[position]
            for position in positions
            if all(_has(self._names[position], name, value) for name, value in wanted[1:])
        ]
        wholes = [device for device in found if not device.partition]
        for device in wholes or found:
            yield Match(self.of.vendor, (device.uuid, device.partition), share, hint)


def _forms(table: Attribution, resource: str) -> Sequence[_Form]:
    """The forms of a resource's ids, in order, and whether they are hints."""
    forms = [form for form in table.ids if not form.resources or _any(resource, form.resources)]
    return [(re.compile(form.pattern), form.hint) for form in forms]


def concerns(table: Attribution, resource: str) -> bool:
    """Whether a resource hands out the vendor's devices."""
    return _any(resource, table.resources) and not _any(resource, table.ignore)


def _has(known: Mapping[str, str], name: str, value: str) -> bool:
    return known.get(name) == value or (name == "uuid" and known.get("partition_uuid") == value)


def _any(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
