"""The AMD collector."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from collectors.amd import boards, cards, host_probes, identity, kfd, sysfs_probes
from collectors.amd.cards import Card, Part
from collectors.amd.cper import Records
from collectors.amd.files import FileError
from collectors.amd.gpu_metrics import NOTHING, GpuMetrics
from collectors.amd.health import HealthRule
from collectors.amd.identity import Inventory, Logical
from collectors.amd.plausibility import EnergyCheck
from collectors.amd.reader import CardLostError, Reader, from_file
from collectors.amd.smi import Smi, SmiFailure, logicals
from collectors.amd.smi_load import LoadError, check_version, load, places
from collectors.amd.smi_probe import ask
from collectors.amd.smi_probes import DriverGoneError, SmiProbes
from collectors.amd.throughput import Throughput
from collectors.base import (
    NODE,
    Device,
    Fault,
    Group,
    Process,
    ReadError,
    Reading,
    Sample,
    Settings,
    Unavailable,
    UnavailableState,
)

_LAYOUT_EVERY: Final = 10.0
"""Seconds between two looks whether cards or partitions have come or gone."""
_LOST_EVERY: Final = 60.0
"""Seconds between two discoveries while a card is lost."""
_OFTEN: Final[tuple[Group, ...]] = ("fast", "normal", "slow")

_HINTS: Final[Mapping[str, tuple[UnavailableState, str]]] = {
    "no_library": ("no_library", "install amd-smi-lib of ROCm, or set source to sysfs"),
    "version_mismatch": ("version_mismatch", "use the package amdsmi of the same ROCm as the library, or source sysfs"),
    "no_permission": ("no_permission", "give the process access to /dev/dri (group render), or set source to sysfs"),
    "no_device": ("no_device", "the library finds no GPU"),
    "no_driver": ("no_driver", "see the kernel's log"),
    "hangs": ("no_driver", "see the kernel's log; source sysfs reads without the library"),
    "crashes": ("no_library", "report it with the library's version; source sysfs reads without the library"),
}


class AmdCollector:
    """Reads the node's AMD GPUs with amdsmi, or from sysfs where that cannot be."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._wanted = wanted(settings)
        self.source = ""
        """The way in use."""
        self._smi: Smi | None = None
        self._handles: list[Any] = []
        self._inventory = Inventory()
        self._reader: Reader | None = None
        self._records: Records | None = None
        self._throughput: Throughput | None = None
        self._health = HealthRule(
            int(settings.options.get("ecc_threshold", 0)), float(settings.options.get("cper_max_age", 0.0))
        )
        self._energy = EnergyCheck()
        self._lost: set[int] = set()
        self._notices: list[ReadError] = []
        self._layout: tuple[object, ...] = ()
        self._looked_at = self._discovered_at = 0.0

    def discover(self) -> Sequence[Device]:
        """List cards and partitions. Raises Unavailable."""
        self._release()
        sys = self._settings.paths.sys
        present = cards.addresses(sys)
        if not present and not self._inventory.devices:
            raise Unavailable("no_device", "the driver amdgpu has no GPU")
        self._layout = cards.layout(sys)
        found = self._found(present)
        inventory = identity.arrange(self._settings, found, self._inventory)
        if not inventory.devices:
            raise Unavailable("no_device", "no GPU can be identified; see the kernel's log")
        self._inventory = inventory
        self._lost = set(inventory.lost)
        self._reader = self._new_reader(inventory)
        if self._settings.options.get("pcie_throughput"):
            self._throughput = Throughput(inventory.cards)
        self._discovered_at = self._looked_at = time.monotonic()
        self._prime()
        return inventory.devices

    def sample(self, group: Group) -> Sample:
        """Read a group. Raises Unavailable when the driver went away."""
        reader = self._reader
        if reader is None:
            raise Unavailable("no_driver", "the GPUs have not been discovered")
        reader.begin(group)
        readings, faults = self._node_readings(reader), list[Fault]()
        try:
            for card in self._inventory.cards:
                if card.position not in self._lost:
                    self._read(reader, card, readings, faults)
        except DriverGoneError as error:
            self._release()
            raise Unavailable("no_driver", f"the driver went away ({error}); load it: modprobe amdgpu") from None
        if self._throughput is not None:
            readings += [one for one in self._throughput.readings() if one.series in reader.wanted]
        notices, self._notices = self._notices, []
        doubted, self._energy.news = self._energy.news, []
        notices += [
            ReadError(card.position, "parse", "its energy counter does not count energy: it is left out")
            for card in doubted
        ]
        return Sample(
            readings=readings,
            errors=(*notices, *reader.take_errors()),
            faults=faults,
            lost=sorted(self._lost),
            processes=self._processes(group),
            rediscover=bool(doubted) or self._changed(),
        )

    def close(self) -> None:
        """Let go of the library and its files."""
        self._release()

    def _read(self, reader: Reader, card: Card, readings: list[Reading], faults: list[Fault]) -> None:
        """One card that is lost must not cost the others their readings."""
        if cards.gone(card):
            self._lost.update(card.positions)
            return
        tells = "amdsmi_runtime_suspended" in reader.wanted and card.has(cards.RUNTIME_STATUS)
        if cards.suspended(card):
            readings += [Reading("amdsmi_runtime_suspended", card.position, 1)] if tells else []
            return
        try:
            if self._records is not None and "gpu_afid_errors" in reader.wanted:
                found, events = self._records.sample(reader, card)
                readings += found
                faults += events
            readings += reader.read(card)
            readings += [Reading("amdsmi_runtime_suspended", card.position, 0)] if tells else []
        except CardLostError:
            self._lost.update(card.positions)

    def _processes(self, group: Group) -> list[Process] | None:
        """Who uses which GPU or partition, by KFD; told with the group that is read most often."""
        if not self._settings.processes or group != next((g for g in _OFTEN if self._wanted.get(g)), ""):
            return None
        found: list[Process] = []
        for card in self._inventory.cards:
            if card.position in self._lost:
                continue
            for part in card.parts:
                try:
                    found += _of(self._settings.paths.sys, part)
                except FileError as error:
                    self._notices.append(ReadError(part.position, "permission", str(error)))
        return found

    def _node_readings(self, reader: Reader) -> list[Reading]:
        if "gpu_nodes_total" not in reader.wanted:
            return []
        names = (
            ("hostname", self._settings.node),
            ("cluster_name", str(self._settings.options.get("cluster_name", ""))),
        )
        labels = tuple((name, value) for name, value in names if value)
        return [Reading("gpu_nodes_total", NODE, self._inventory.count, labels)]

    def _found(self, present: Sequence[str]) -> list[Logical]:
        """The logical GPUs, by the best way that works. Raises Unavailable if only one way may be used and does not."""
        self.source = "sysfs"
        if self._settings.source != "sysfs" and present:
            trouble = self._open()
            if trouble is None and self._smi is not None:
                try:
                    found = list(logicals(self._smi, self._settings.paths.sys, self._handles))
                except SmiFailure as failure:
                    trouble = ("no_driver", str(failure))
                else:
                    if found:
                        self.source = "amdsmi"
                        return found
                    trouble = ("no_device", "amdsmi lists no GPU")
                self._close_library()
            state, detail = trouble or ("no_library", "amdsmi is not installed")
            if self._settings.source == "amdsmi":
                reason, advice = _HINTS[state]
                raise Unavailable(reason, f"{detail}: {advice}", restart=state == "version_mismatch")
            if state not in ("no_library", "no_permission"):
                self._notices.append(ReadError(NODE, "library", f"read from sysfs instead: {detail}"))
        return _by_sysfs(self._settings.paths.sys, present)

    def _open(self) -> tuple[str, str] | None:
        """Open the first amdsmi that works. Returns what is wrong with the one that was nearest to it."""
        worst: tuple[str, str] | None = None
        for place in places(self._settings):
            verdict = ask(place)
            if verdict.state == "ok":
                try:
                    module = load(place)
                    check_version(module)
                    self._smi = Smi(module)
                    self._handles = self._smi.open()
                except LoadError as error:
                    worst = (error.state, str(error))
                except SmiFailure as failure:
                    worst = ("no_driver", str(failure))
                else:
                    return None
                self._smi = None
            elif worst is None or verdict.state != "no_library":
                worst = (verdict.state, verdict.detail)
            if verdict.state == "hangs":
                # The next one would hang as well.
                break
        return worst or ("no_library", "amdsmi is not installed")

    def _new_reader(self, inventory: Inventory) -> Reader:
        pairs = self._pairs(inventory)
        sys = self._settings.paths.sys
        if self._smi is None:
            probes = (*sysfs_probes.PROBES, *host_probes.PROBES)
            return Reader(sys, probes, self._wanted, from_file, self._energy, self._health, pairs)
        own = SmiProbes(self._smi)
        if self._settings.options.get("cper"):
            self._records = Records(self._smi, self._health)
        return Reader(sys, own.probes, self._wanted, own.metrics, self._energy, self._health, pairs)

    def _pairs(self, inventory: Inventory) -> dict[int, Card]:
        """Dies of one board, by the driver's own tables."""
        reader = Reader(self._settings.paths.sys, (), {}, from_file, self._energy, self._health, {})

        def table(card: Card) -> GpuMetrics:
            try:
                return NOTHING if cards.suspended(card) else reader.metrics(card)
            except CardLostError:
                self._lost.update(card.positions)
                return NOTHING

        def same(one: Card, other: Card) -> bool:
            return inventory.devices[one.position].model == inventory.devices[other.position].model

        return boards.pairs(inventory.cards, table, same)

    def _prime(self) -> None:
        """Take the first counters, so that the first sample has something to compare with."""
        reader = self._reader
        for group in self._wanted:
            if reader is not None and self._wanted[group] & sysfs_probes.THROTTLING:
                reader.begin(group)
                for card in self._inventory.cards:
                    self._prime_card(reader, card)

    def _prime_card(self, reader: Reader, card: Card) -> None:
        if card.position in self._lost or cards.suspended(card):
            return
        try:
            list(sysfs_probes.throttling(reader, card))
        except CardLostError:
            self._lost.update(card.positions)

    def _changed(self) -> bool:
        """Whether to discover again: other cards or partitions, or one that is lost may have come back."""
        now = time.monotonic()
        if self._lost and now - self._discovered_at >= _LOST_EVERY:
            return True
        if now - self._looked_at < _LAYOUT_EVERY:
            return False
        self._looked_at = now
        return cards.layout(self._settings.paths.sys) != self._layout

    def _close_library(self) -> None:
        smi, self._smi = self._smi, None
        if smi is not None:
            smi.close()

    def _release(self) -> None:
        """Let go of the library, which sees changes only when it is opened again, and of the thread."""
        throughput, self._throughput = self._throughput, None
        if throughput is not None:
            throughput.close()
        self._reader = self._records = None
        self._close_library()


def _by_sysfs(sys: str, present: Sequence[str]) -> list[Logical]:
    """Each card, or its partitions if KFD shows several."""
    by_card: dict[str, list[kfd.Node]] = {}
    for node in kfd.nodes(sys):
        by_card.setdefault(node.bdf, []).append(node)
    found: list[Logical] = []
    for bdf in present:
        told = identity.facts(sys, bdf)
        nodes = by_card.get(bdf, [])
        if not nodes:
            found.append(Logical(bdf=bdf, partition=0, facts=told))
        found += [Logical(bdf=bdf, partition=node.partition, facts=told, node=node) for node in nodes]
    return found


def _of(sys: str, part: Part) -> list[Process]:
    running = kfd.processes(sys, part.node, occupancy=False) if part.node is not None else None
    return [Process(part.position, int(one.pid), one.memory) for one in running or ()]


def wanted(settings: Settings) -> dict[Group, frozenset[str]]:
    """The wanted series without those that an option has to switch on."""
    options = settings.options
    off = {
        "amdsmi_process_memory_bytes": bool(options.get("processes")),
        "amdsmi_xgmi_link_up": settings.links == "each",
        "gpu_afid_errors": bool(options.get("cper")),
        "pcie_rx": bool(options.get("pcie_throughput")),
        "pcie_tx": bool(options.get("pcie_throughput")),
    }
    return {group: frozenset(name for name in names if off.get(name, True)) for group, names in settings.wanted.items()}
