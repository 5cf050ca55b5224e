"""Which device an id means: the vendors' tables tell the forms, the devices tell their names."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from collectors.base import Device
from exporter.attribution.claims import Claim
from exporter.catalogue import Attribution

SHARE = "share"
PCI = re.compile(
    r"(?:(?P<domain>[0-9a-fA-F]{1,8})[:-])?(?P<bus>[0-9a-fA-F]{2})[:-](?P<slot>[0-9a-fA-F]{2})(?:[.-](?P<f>[0-7]))?"
)
DeviceKey = tuple[str, str]
"""uuid, partition"""


class Match(msgspec.Struct, frozen=True):
    """A device that an id means, and which share of it."""

    vendor: str
    key: DeviceKey
    share: str = ""


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
    """Finds devices by what claims say. Made anew when devices change."""

    def __init__(self, vendors: Sequence[VendorDevices]) -> None:
        self._vendors = vendors
        self._names = {
            (vendor.vendor, device.uuid, device.partition): names(device)
            for vendor in vendors
            for device in vendor.devices
        }
        self._found: dict[tuple[str, str], tuple[Match, ...]] = {}

    def knows(self, resource: str) -> bool:
        """Whether a resource, or a DRA driver, hands out devices of any vendor that is here."""
        return any(
            concerns(vendor.table, resource) or any(rule.driver == resource for rule in vendor.table.dra)
            for vendor in self._vendors
        )

    def find(self, claim: Claim) -> tuple[Match, ...]:
        """The devices that a claim means; none if no form fits or no device has the names."""
        if claim.names or claim.everything:
            return tuple(
                match
                for vendor in self._vendors
                if claim.vendor in ("", vendor.vendor)
                for match in self._named(vendor, claim.names, claim.share, everything=claim.everything)
            )
        key = (claim.resource, claim.device_id)
        found = self._found.get(key)
        if found is None:
            found = self._found[key] = self._by_id(claim.resource, claim.device_id)
        return found

    def _by_id(self, resource: str, device_id: str) -> tuple[Match, ...]:
        for vendor in self._vendors:
            if not concerns(vendor.table, resource):
                continue
            for form in vendor.table.ids:
                if form.resources and not _any(resource, form.resources):
                    continue
                groups = re.fullmatch(form.pattern, device_id)
                if groups is None:
                    continue
                told = {name: value for name, value in groups.groupdict().items() if value is not None}
                share = told.pop(SHARE, "")
                # A form without names, such as the word "all", means every device.
                everything = groups.re.groupindex.keys() <= {SHARE}
                matches = tuple(self._named(vendor, told, share, everything=everything))
                if matches:
                    return matches
        return ()

    def _named(
        self, vendor: VendorDevices, told: Mapping[str, str], share: str, *, everything: bool = False
    ) -> Iterable[Match]:
        """Devices that have all names; wholes before parts, unless the names are those of parts."""
        wanted = {name: spelled(name, value) for name, value in told.items()}
        if not wanted and not everything:
            return
        found = [
            device
            for device in vendor.devices
            if _has(self._names[vendor.vendor, device.uuid, device.partition], wanted)
        ]
        wholes = [device for device in found if not device.partition]
        for device in wholes or found:
            yield Match(vendor.vendor, (device.uuid, device.partition), share)


def concerns(table: Attribution, resource: str) -> bool:
    """Whether a resource hands out the vendor's devices."""
    return _any(resource, table.resources) and not _any(resource, table.ignore)


def _has(known: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    """Whether a device has all of the names. A part may be called by its own uuid where others are by the whole's."""
    return all(
        known.get(name) == value or (name == "uuid" and known.get("partition_uuid") == value)
        for name, value in wanted.items()
    )


def _any(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
