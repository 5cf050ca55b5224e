"""The Gaudi collector: which way to read, what a sample consists of, what is lost."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Mapping, Sequence
from typing import Final, NoReturn

from collectors.base import NODE, Device, Fault, Group, ReadError, Reading, Sample, Settings, Unavailable
from collectors.gaudi import processes, specials, sysfs
from collectors.gaudi.failure import DRIVER_NOT_LOADED, Failure, HlmlFailure
from collectors.gaudi.hlml import HlmlSource, unavailable
from collectors.gaudi.inventory import Inventory, names, remembered, take
from collectors.gaudi.questions import DRAM_ECC, ECC, TABLE
from collectors.gaudi.smi import SmiSource
from collectors.gaudi.source import Listing, Source
from collectors.gaudi.specials import PortPlan
from collectors.gaudi.units import Asker, Unit

OPERATIONAL: Final = "operational"
HARD_RESETS: Final = "hard_reset_cnt"
HARD_RESET_CODE: Final = "habanalabs:hard_reset"
_TOPOLOGY_EVERY: Final = 10.0
"""Seconds between two looks whether cards have come or gone."""
_PORT_SERIES: Final = frozenset((specials.PORT_STATUS, specials.PORT_UP))
_COUNTER_SERIES: Final = frozenset((specials.RECEIVED, specials.SENT))
_ECC_SERIES: Final = frozenset(each.name for each in ECC) | frozenset(DRAM_ECC)
_FALLS_BACK: Final = frozenset(("no_library", "version_mismatch"))
"""States of HLML in which hl-smi may still work."""


class GaudiCollector:
    """Reads the node's Gaudi cards."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._plan = PortPlan(
            counters=str(settings.options.get("port_counters", "off")),
            each=settings.links == "each",
            budget=float(settings.options.get("port_counters_budget", 5.0)),
        )
        self._sees_processes = False
        self._source: Source | None = None
        self._asker = Asker({})
        self._inventory = Inventory()
        self._known: Mapping[str, Device] = {}
        self._resets: dict[str, int] = {}
        self._lost: set[int] = set()
        self._notices: list[ReadError] = []
        self._looked_at = 0.0

    @property
    def source(self) -> str:
        """Which way is in use: hlml or hl-smi."""
        return self._source.name if self._source is not None else ""

    def discover(self) -> Sequence[Device]:
        """List the cards. Raises Unavailable."""
        if self._source is not None and self._lost:
            # A card that was reset or replugged shows up in a new session only.
            self.close()
        try:
            self._source, listing = self._listed()
        except Unavailable:
            self.close()
            raise
        source = self._source
        inventory = take(listing, self._settings.paths, self._known)
        if not inventory.units:
            self._refuse(inventory)
        self._inventory = inventory
        self._known = remembered(self._known, inventory.devices)
        self._lost = set(inventory.missing)
        self._notices = _notices(inventory)
        self._asker = Asker(source.answers)
        self._sees_processes = bool(self._settings.options.get("processes", False))
        self._looked_at = time.monotonic()
        try:
            source.watch(inventory.units)
        except Failure as failure:
            self._gone(failure)
        for unit in inventory.units:
            # The count of a card that is known stays: a reset that led to this discovery is told with the next sample.
            if unit.card is not None and unit.card.bdf not in self._resets:
                self._reset_happened(unit)
        return inventory.devices

    def _listed(self) -> tuple[Source, Listing]:
        """The source that works, the one in use first. Raises Unavailable: that of HLML, which says more."""
        if self._source is not None:
            return self._source, self._source.discover()
        asked = self._settings.source
        first: Source = SmiSource(self._settings) if asked == "hl-smi" else HlmlSource(self._settings)
        try:
            return first, _open(first)
        except Unavailable as error:
            first.close()
            if asked != "auto" or error.state not in _FALLS_BACK:
                raise
            second = SmiSource(self._settings)
            try:
                return second, _open(second)
            except Unavailable as other:
                raise Unavailable(error.state, f"{error.hint}; {other.hint}", restart=error.restart) from None

    def sample(self, group: Group) -> Sample:
        """Read a group. Raises Unavailable when the driver went away."""
        source = self._source
        if source is None:
            raise Unavailable("no_driver", "the devices have not been discovered")
        try:
            return self._sample(source, self._settings.wanted.get(group, frozenset()))
        except Failure as failure:
            self._gone(failure)

    def close(self) -> None:
        """Let go of library and driver."""
        source, self._source = self._source, None
        if source is not None:
            source.close()

    def _sample(self, source: Source, wanted: frozenset[str]) -> Sample:
        self._asker.begin()
        readings: list[Reading] = []
        faults = self._faults(source)
        source.begin(wanted, self._inventory.units, self._asker)
        until = time.monotonic() + self._plan.budget
        for unit in self._inventory.units:
            try:
                self._read(source, unit, wanted, until, readings)
            except Failure as failure:
                if failure.verdict != "lost":
                    raise
                self._lost.add(unit.position)
        for position, card in self._inventory.missing.items():
            if specials.STATE in wanted:
                readings += specials.states(position, sysfs.fact(card.attributes, "status"))
        readings += self._read_processes(wanted)
        if "habanalabs_kube_info" in wanted and "KUBERNETES_SERVICE_PORT" in os.environ:
            readings.append(_kube_info(self._settings.node))
        notices, self._notices = self._notices, []
        return Sample(
            readings=readings,
            errors=(*notices, *self._asker.take_errors()),
            faults=faults,
            lost=sorted(self._lost),
            rediscover=self._changed(),
        )

    def _read(self, source: Source, unit: Unit, wanted: frozenset[str], until: float, readings: list[Reading]) -> None:
        """All of one device. Only its state, while it is not operational: then the driver refuses all else."""
        text = sysfs.fact(unit.card.attributes, "status") if unit.card else ""
        if not text and unit.position not in self._lost:
            text = source.state(unit)
        if specials.STATE in wanted:
            readings += specials.states(unit.position, text)
        if unit.position in self._lost or (text and sysfs.state(text) != OPERATIONAL):
            return
        asker, start = self._asker, len(readings)
        try:
            if "habanalabs_device_config" in wanted:
                readings.append(Reading("habanalabs_device_config", unit.position, 1))
            for series in sorted(wanted & TABLE.keys()):
                value = asker.value(unit, TABLE[series])
                if value is not None:
                    readings.append(Reading(series, unit.position, value))
            if specials.VIOLATION in wanted:
                readings += specials.violations(unit, asker)
            if wanted & _ECC_SERIES:
                readings += specials.memory_errors(unit, wanted, asker)
            self._read_ports(source, unit, wanted, until, readings)
        except Failure:
            del readings[start:]
            raise

    def _read_ports(
        self, source: Source, unit: Unit, wanted: frozenset[str], until: float, readings: list[Reading]
    ) -> None:
        counting = self._plan.counters != "off" and bool(wanted & _COUNTER_SERIES)
        if not counting and not wanted & _PORT_SERIES:
            return
        ports = source.ports(unit, self._asker)
        readings += specials.port_states(unit, ports, wanted, self._plan)
        if counting:
            found = specials.port_counters(unit, ports, source, self._asker, self._plan, until)
            readings += [reading for reading in found if reading.series in wanted]

    def _read_processes(self, wanted: frozenset[str]) -> list[Reading]:
        """Nothing, and one error until the next discovery, where not all processes can be seen."""
        if not self._sees_processes:
            return []
        try:
            return processes.readings(self._inventory.units, wanted, self._settings.paths.proc)
        except Failure as failure:
            self._sees_processes = False
            self._asker.report(NODE, failure.verdict, failure.detail)
            return []

    def _faults(self, source: Source) -> list[Fault]:
        """New events, and resets that the driver has counted."""
        now = time.time()
        positions = {unit.key: unit.position for unit in self._inventory.units}
        found = [Fault(positions[event.key], event.code, now) for event in source.events() if event.key in positions]
        found += [
            Fault(unit.position, HARD_RESET_CODE, now) for unit in self._inventory.units if self._reset_happened(unit)
        ]
        return found

    def _reset_happened(self, unit: Unit) -> bool:
        """Whether the driver has reset the card since the last look. A count that falls: the driver was reloaded."""
        if unit.card is None:
            return False
        count = sysfs.whole(sysfs.fact(unit.card.attributes, HARD_RESETS))
        if count is None:
            return False
        before = self._resets.get(unit.card.bdf)
        self._resets[unit.card.bdf] = count
        return before is not None and count > before

    def _changed(self) -> bool:
        """Whether cards have come or gone, or the driver has taken one or given one up."""
        if time.monotonic() - self._looked_at < _TOPOLOGY_EVERY:
            return False
        self._looked_at = time.monotonic()
        if names(sysfs.cards(self._settings.paths.sys)) == self._inventory.nodes:
            return False
        # Only a new session of the library sees what has changed.
        self.close()
        return True

    def _refuse(self, inventory: Inventory) -> NoReturn:
        self.close()
        if inventory.failed:
            raise Unavailable(
                "no_driver", f"no device answers: {inventory.failed[0]}; see the kernel's log for habanalabs"
            )
        if inventory.missing:
            raise Unavailable(
                "no_driver",
                f"{len(inventory.missing)} cards are on the PCI bus and the driver gives none: see the kernel's log "
                "for habanalabs, and whether this container has /dev/accel",
            )
        raise Unavailable("no_device", "the driver is loaded and finds no device")

    def _gone(self, failure: Failure) -> NoReturn:
        """Raises Unavailable for a driver that does not answer any more."""
        self.close()
        error = failure if isinstance(failure, HlmlFailure) else HlmlFailure(DRIVER_NOT_LOADED, failure.detail)
        raise unavailable(error, self._settings.paths.sys, self._settings.paths.dev) from None


def _open(source: Source) -> Listing:
    """Raises Unavailable, also where every device has a layout that is not known."""
    source.open()
    listing = source.discover()
    if not listing.found and any("no PCI address" in reason for reason in listing.failed):
        raise Unavailable(
            "version_mismatch", f"{listing.failed[0]}: this release of libhlml.so is not known", restart=True
        )
    return listing


def _notices(inventory: Inventory) -> list[ReadError]:
    """What was wrong at discovery, told with the next sample."""
    found = [ReadError(NODE, "library", text) for text in inventory.failed]
    found += [
        ReadError(position, "lost", f"{card.bdf} is on the PCI bus and the driver does not give it")
        for position, card in inventory.missing.items()
    ]
    return found


def _kube_info(node: str) -> Reading:
    """The pod and the node of this agent, as the vendor's exporter tells its own."""
    labels = {
        "podName": os.environ.get("POD_NAME", ""),
        "namespace": os.environ.get("POD_NAMESPACE", ""),
        "podIP": os.environ.get("POD_IP", ""),
        "node": node,
        "hostname": platform.node(),
    }
    return Reading("habanalabs_kube_info", NODE, 1, tuple(labels.items()))
