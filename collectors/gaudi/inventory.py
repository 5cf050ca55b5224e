"""Who the devices are: what the source lists, matched with what sysfs and the PCI bus show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from collectors.base import Device, HostPaths, Labels
from collectors.gaudi import hwmon, sysfs
from collectors.gaudi.source import Found, Listing
from collectors.gaudi.sysfs import Card
from collectors.gaudi.units import Unit

_PLACEHOLDERS = frozenset(("", "na", "n/a", "[n/a]", "unknown", "none", "-"))


class Inventory(msgspec.Struct, frozen=True, kw_only=True):
    """What a discovery found. ``units`` are those that can be read; ``devices`` has the missing cards, too."""

    devices: tuple[Device, ...] = ()
    units: tuple[Unit, ...] = ()
    missing: Mapping[int, Card] = {}
    """Position → a card that is on the bus and that the source does not list."""
    failed: tuple[str, ...] = ()
    nodes: frozenset[str] = frozenset()
    """Device nodes and addresses of all cards: when they change there is something to discover."""


def take(listing: Listing, paths: HostPaths, known: Mapping[str, Device]) -> Inventory:
    """Match a listing with the host. ``known``: devices of earlier discoveries by PCI address."""
    cards = sysfs.cards(paths.sys)
    chips = hwmon.configuration(paths.etc)
    driver = sysfs.module_version(paths.sys)
    devices: list[Device] = []
    units: list[Unit] = []
    seen: set[str] = set()
    for found in listing.found:
        card = _card(found, cards)
        device = _device(found, card, found.driver_version or driver, seen)
        seen.add(device.uuid)
        units.append(
            Unit(
                position=len(devices),
                key=found.key,
                card=card,
                sensors=hwmon.channels(card, chips) if card else {},
                power_file=hwmon.power_file(card) if card else "",
            )
        )
        devices.append(device)
    taken = {device.pci_bus_id for device in devices}
    missing: dict[int, Card] = {}
    # A device without an address may be any of the cards.
    for bdf, card in cards.items() if "" not in taken else ():
        if bdf not in taken:
            device = known.get(bdf) or _unlisted(card, driver)
            if device.uuid not in seen:
                missing[len(devices)] = card
                devices.append(device)
    return Inventory(
        devices=tuple(devices),
        units=tuple(units),
        missing=missing,
        failed=listing.failed,
        nodes=names(cards),
    )


def names(cards: Mapping[str, Card]) -> frozenset[str]:
    """What changes when a card comes or goes, or the driver takes it or gives it up."""
    return frozenset(f"{card.bdf} {card.node}" for card in cards.values())


def _card(found: Found, cards: Mapping[str, Card]) -> Card | None:
    """By the address; by the minor number where a library has no address. Never by HLML's index."""
    if found.bdf:
        return cards.get(found.bdf)
    return next((card for card in cards.values() if card.minor and card.minor == found.minor), None)


def _told(text: str) -> str:
    return "" if text.strip().lower() in _PLACEHOLDERS else text


def _device(found: Found, card: Card | None, driver: str, seen: set[str]) -> Device:
    bdf = found.bdf or (card.bdf if card else "")
    serial = _told(found.serial)
    uuid = next(
        (name for name in (_told(found.uuid), serial, bdf, f"index-{found.index}") if name and name not in seen),
        f"index-{found.index}",
    )
    firmware = sysfs.fact(card.attributes, "uboot_ver") if card else ""
    spi = sysfs.fact(card.attributes, "armcp_kernel_ver") if card else ""
    return Device(
        uuid=uuid,
        index=found.index,
        kind="hpu",
        model=_told(found.model) or (sysfs.MODELS.get(card.pci_id, "") if card else ""),
        serial=serial,
        pci_bus_id=bdf,
        driver_version=driver,
        firmware_version=firmware,
        numa_node=sysfs.numa_node(card) if card else "",
        raw_labels=_raw_labels(serial, uuid, found.index, firmware, spi, driver),
        ids=_ids(found, card, bdf),
    )


def _raw_labels(serial: str, uuid: str, index: str, fit: str, spi: str, driver: str) -> Labels:
    """The identity labels of the vendor's exporter, in its order; it tells the serial number twice."""
    return (
        ("Serial", serial),
        ("UUID", uuid),
        ("device", serial),
        ("id", index),
        ("fit", fit),
        ("spi", spi),
        ("driver", driver),
    )


def _ids(found: Found, card: Card | None, bdf: str) -> dict[str, str]:
    """Index, minor number and module id are three spaces of numbers: containers are given either of the latter."""
    ids = {"index": found.index}
    minor = card.minor if card else found.minor
    if minor:
        ids |= {"minor": minor, "accel": f"accel{minor}"}
    if found.module_id or card:
        ids["module_id"] = found.module_id or sysfs.fact(card.attributes if card else "", "module_id")
    if bdf and card and card.pci_id:
        # How the DRA driver gaudi.intel.com names a device.
        ids["dra"] = f"{bdf.replace(':', '-').replace('.', '-')}-{card.pci_id}"
    return {name: value for name, value in ids.items() if value}


def _unlisted(card: Card, driver: str) -> Device:
    """A card that was never seen alive: the bus alone tells of it."""
    return Device(
        uuid=card.bdf,
        index="",
        kind="hpu",
        model=sysfs.MODELS.get(card.pci_id, ""),
        pci_bus_id=card.bdf,
        driver_version=driver,
        numa_node=sysfs.numa_node(card),
        raw_labels=_raw_labels("", card.bdf, "", "", "", driver),
    )


def remembered(known: Mapping[str, Device], devices: Sequence[Device]) -> dict[str, Device]:
    """Devices by PCI address, the newest word on each; one without an address cannot be found again."""
    return {**known, **{device.pci_bus_id: device for device in devices if device.pci_bus_id and device.serial}}
