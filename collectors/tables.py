"""What the bridge and the simulation know of a vendor: its tables, as plain data in ``Settings.options``.

These two collectors serve every vendor, so nothing of a vendor stands in their code. The agent makes this data from the
vendor's folder (``exporter.tables``) and a worker turns it back with ``msgspec.convert``. Fields are what series.toml,
collector.toml and faults.toml call by the same names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from collectors.base import Group


class Feed(msgspec.Struct, frozen=True):
    """One way in which a raw series becomes a common one."""

    metric: str
    labels: Mapping[str, str] = {}
    """Labels of the common series; ``$x`` copies the raw label ``x``."""
    where: Mapping[str, tuple[str, ...]] = {}
    bits: int | None = None
    equals: tuple[int | float, ...] | None = None


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """One raw series."""

    name: str
    type: Literal["gauge", "counter"]
    unit: str = ""
    base: str = ""
    """The base unit of ``unit``."""
    scale: float = 1.0
    """A raw value times this is in the base unit."""
    group: Group = "normal"
    level: Literal["device", "part", "node"] = "device"
    labels: tuple[str, ...] = ()
    """Labels beyond the device's identity, in the order of exposition."""
    aliases: tuple[str, ...] = ()
    absent: tuple[int | float, ...] = ()
    feeds: tuple[Feed, ...] = ()
    cumulative: bool = False


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """One fault code of the vendor."""

    code: str
    name: str
    fault_class: str = "unknown"
    severity: Literal["info", "degraded", "fatal"] = "info"


class BridgeLabels(msgspec.Struct, frozen=True, kw_only=True):
    """Spellings of the labels by which the vendor's exporter names a device; the first that has a value counts."""

    uuid: tuple[str, ...] = ()
    index: tuple[str, ...] = ()
    model: tuple[str, ...] = ()
    serial: tuple[str, ...] = ()
    pci_bus_id: tuple[str, ...] = ()
    driver_version: tuple[str, ...] = ()
    firmware_version: tuple[str, ...] = ()
    partition_profile: tuple[str, ...] = ()
    partition_id: tuple[str, ...] = ()
    node: tuple[str, ...] = ()
    workload: Mapping[str, tuple[str, ...]] = {}


class Bridge(msgspec.Struct, frozen=True, kw_only=True):
    """The vendor's own exporter."""

    exporter: str
    url: str
    labels: BridgeLabels
    partition: str = "{partition_profile}/{partition_id}"
    uncut: tuple[str, ...] = ()
    own_of_parts: tuple[Literal["uuid", "index"], ...] = ()
    parts_per_device: tuple[str, ...] = ()
    uuid: str = ""
    sentinels: tuple[float, ...] = ()


class Tables(msgspec.Struct, frozen=True, kw_only=True):
    """All of it. Further keys of the options belong to the collector that reads them and are ignored here."""

    vendor: str
    title: str = ""
    kind: str = "gpu"
    identity: tuple[str, ...] = ()
    """Labels that tell the device on raw series, in the order of exposition."""
    series: tuple[Series, ...] = ()
    faults: tuple[Fault, ...] = ()
    bridge: Bridge | None = None
