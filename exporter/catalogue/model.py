"""What a vendor's tables can say: collector.toml, series.toml and faults.toml beside the collector's code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from collectors.base import Group
from exporter.attribution.table import Attribution
from exporter.model import Exactness, MetricType


class Feed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which common metric a raw series feeds, and how. Of several feeds of one common series the first is preferred."""

    metric: str
    labels: Mapping[str, str] = {}
    """Labels of the common series; ``$x`` copies the raw label ``x``."""
    where: Mapping[str, tuple[str, ...]] = {}
    """Raw label → its values: only raw series with one of them feed. Empty: all do."""
    exactness: Exactness = "exact"
    bits: int | None = None
    """The common value is 1 if any of these bits is set in the raw one, else 0."""
    equals: tuple[int | float, ...] | None = None
    """The common value is 1 if the raw one is among these, else 0."""
    at_most: float | None = None
    """The common value is never more than this, in the common unit: for vendors whose shares can exceed the whole."""
    aggregate: Literal["sum", "max", "min", "mean"] | None = None
    """How raw series that differ only in labels which the common one has not become one."""
    plus: tuple[str, ...] = ()
    """Other raw series of the same unit and labels: of a device that has all of them the common value is the sum."""
    each: Mapping[str, str] = {}
    """Labels to add under ``links: each``; the aggregate is then not made."""


class Series(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One raw series, as the vendor's own exporter has it."""

    name: str
    type: MetricType
    help: str
    unit: str = ""
    group: Group = "normal"
    default: bool = False
    """Exposed unless the configuration says otherwise."""
    option: str = ""
    """One of collector.toml's options: without it the series is not exposed, however it is asked for."""
    level: Literal["device", "part", "node"] = "device"
    """device: a fact of the whole, even if repeated on its parts. part: of the part itself, where there are parts."""
    labels: tuple[str, ...] = ()
    """Labels beyond the device's identity, in the order of exposition."""
    native: str = ""
    """The call or field of the vendor's library that gives it. Empty: only the vendor's exporter has it (bridge)."""
    sources: tuple[str, ...] = ()
    """Which of collector.toml's ``sources`` give it, where not all that can be asked do."""
    id: int | None = None
    """The vendor's number of the field."""
    aliases: tuple[str, ...] = ()
    """Other spellings of the name, in other versions of the vendor's exporter."""
    absent: tuple[int | float, ...] = ()
    """Values that say 'no reading'."""
    feeds: tuple[Feed, ...] = ()
    cumulative: bool = False
    """Counts up although the vendor declares a gauge: it may feed a counter."""
    survives: bool = False
    """Told by the kernel or by events, and so of a lost device, too."""
    fault: str = ""
    """Its value is the vendor's code of the device's last fault; this is how the fault table writes it (``x:{value}``).

    Of the vendor's exporter that is all that tells faults: one is counted when the value changes.
    """
    own: bool = False
    """The vendor's exporter has no such series: the name is ours."""


class PciRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A function on the PCI bus that is a sign of the vendor. Of what is named below all must fit."""

    vendor: str
    """The PCI vendor's id, such as 0x10de."""
    classes: tuple[str, ...] = ()
    """Prefixes of the class code, such as 0x0302."""
    devices: tuple[str, ...] = ()
    """Device ids, where the class does not tell."""
    drivers: tuple[str, ...] = ()
    """Names of the bound kernel driver, where it must tell."""
    by_slot: bool = False
    """A device shows several functions: those of one slot are counted as one."""


class Detect(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Cheap signs of the vendor, looked for before a worker is started. Any one suffices."""

    pci: tuple[PciRule, ...] = ()
    files: tuple[str, ...] = ()
    """Paths with {proc}, {sys}, {dev}, {opt}, {etc}, {run}; globs are allowed."""
    env: tuple[str, ...] = ()
    """Variables of the agent's environment that are set."""


class HealthRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """While it holds the device is in this state. Raw series, so that it works natively and through the bridge."""

    series: str
    state: Literal["healthy", "degraded", "failed"]
    """healthy: a device of which nothing else can be read is known to be well while it holds."""
    reason: str
    labels: Mapping[str, str] = {}
    equals: tuple[int | float, ...] | None = None
    above: float | None = None
    bits: int | None = None


class DoctorCheck(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Something on the host that the collector needs, or could use."""

    path: str
    access: Literal["exists", "read", "write"] = "exists"
    required: bool = True
    why: str
    fix: str


class Option(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One of the vendor's own settings, ``collectors.<name>.options``."""

    type: Literal["bool", "int", "float", "str", "list"]
    default: bool | int | float | str | list[str]
    help: str
    choices: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None


class Service(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Something that the vendor's other programs ask of its exporter."""

    module: str
    """Offers ``start_service`` (collectors/base.py); imported only where the option is set."""
    option: str
    """The option, of type bool, that asks for it."""


class BridgeLabels(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Where the vendor's exporter tells the device. Each is a list of spellings; the first present counts."""

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
    """namespace, pod, container, job_name → spellings."""


class Bridge(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The vendor's own exporter, as a source."""

    exporter: str
    url: str
    """Its usual address."""
    module: str = ""
    """A collector of the vendor's that reads it, with the bridge's options, where labels alone do not tell devices."""
    labels: BridgeLabels
    partition: str = "{partition_profile}/{partition_id}"
    """How a part is named from the fields above."""
    uncut: tuple[str, ...] = ()
    """Profiles of a device that is not cut into parts, whatever id of a part it tells."""
    own_of_parts: tuple[Literal["uuid", "index"], ...] = ()
    """What on a part names the part and not its whole. The whole is then found by its serial or its PCI address."""
    parts_per_device: tuple[str, ...] = ()
    """Labels, on any series, that tell how many parts a device has, where parts are numbered through the node."""
    uuid: str = ""
    """How a device is named that has no uuid, from the fields above and {node}."""
    sentinels: tuple[int | float, ...] = ()
    """Values that some version leaked for 'no reading'."""


class FaultClass(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What one of the vendor's fault codes means."""

    code: str
    name: str
    fault_class: Literal["memory", "interconnect", "compute", "thermal", "power", "firmware", "software", "unknown"] = (
        msgspec.field(name="class")
    )
    severity: Literal["info", "degraded", "fatal"]
    action: Literal["none", "restart_workload", "reset_device", "drain", "reboot_node", "replace", "recover_fabric"] = (
        "none"
    )


class Collector(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """collector.toml"""

    vendor: str
    title: str
    kind: str = "gpu"
    detect: Detect = Detect()
    health: tuple[HealthRule, ...] = ()
    doctor: tuple[DoctorCheck, ...] = ()
    options: Mapping[str, Option] = {}
    label_option: str = ""
    """The option, of type list, that names fields which become labels of all raw series: what a counters file's type
    ``label`` asks for."""
    services: Mapping[str, Service] = {}
    sources: tuple[str, ...] = ()
    """The vendor's own ways to read, where there are several: what ``collectors.<name>.source`` may ask for."""
    profiles: Mapping[str, str] = msgspec.field(
        default_factory=lambda: {"default": "the names and labels of the vendor's current exporter"}
    )
    """Spellings of raw names and labels → what they are for."""
    renames: Mapping[str, str] = {}
    """Profile → how the names that it exposes begin: a series takes the first of its aliases that does."""
    bridge: Bridge | None = None
    attribution: Attribution = Attribution()


class Catalogue(msgspec.Struct, frozen=True, kw_only=True):
    """All tables of one vendor, checked."""

    name: str
    """The collector's name: its folder's."""
    module: str
    collector: Collector
    identity: tuple[str, ...]
    """Labels that tell the device on raw series, in the order of exposition."""
    series: Mapping[str, Series]
    """By name, in the table's order: the order of preference."""
    aliases: Mapping[str, str]
    """Other spelling → name in ``series``."""
    faults: Mapping[str, FaultClass]
    """By code."""
    digest: str
    """What ``exporter.digest`` makes of the files."""

    def wanted(self, raw: frozenset[str], *, common: bool) -> dict[Group, frozenset[str]]:
        """The series to read, by group: the exposed ones, those that feed the common schema and those health needs."""
        also = {rule.series for rule in self.collector.health}
        also |= {name for series in self.series.values() for feed in series.feeds for name in feed.plus}
        found: dict[Group, set[str]] = {"fast": set(), "normal": set(), "slow": set()}
        for series in self.series.values():
            if series.name in raw or (common and (series.feeds or series.name in also)):
                found[series.group].add(series.name)
        return {group: frozenset(names) for group, names in found.items()}
