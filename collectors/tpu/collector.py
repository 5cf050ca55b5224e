"""The TPU collector: which way to read, and what the devices are."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from collectors.base import Device, Group, Labels, Reading, Sample, Settings, Unavailable
from collectors.dial import dial, parse_address
from collectors.tpu import endpoints, metadata, presence
from collectors.tpu.chips import Chip, find_chips, on_bus
from collectors.tpu.options import TpuOptions
from collectors.tpu.owners import Owners, OwnerWatch
from collectors.tpu.readings import Reader
from collectors.tpu.runtime import Runtimes
from collectors.tpu.table import FREE_SERIES, needed

if TYPE_CHECKING:
    from collectors.bridge.collector import BridgeCollector

_MAKE: Final = "cloud-tpu"
_PLUGIN_PORT: Final = 2112
_KNOCK: Final = 0.3
_LOOK_EVERY: Final = 60.0
"""Seconds between two looks whether the plugin has come, or a chip."""
_KNOCK_AGAIN: Final = 300.0
"""The same after somebody listened at the plugin's port who was not the plugin, or not well."""
_GAP: Final = 1.0
"""Seconds after which a page of the plugin that was caught empty is not any more."""
_METADATA_ATTEMPTS: Final = 3
_UP: Final = "libtpu_metric_service_up"
_IDLE: Final = "duty_cycle_node"


class TpuCollector:
    """Reads the host's TPUs: through GKE's device plugin where it answers, else from the workloads' runtimes."""

    def __init__(self, settings: Settings, options: TpuOptions) -> None:
        self.source = "runtime"
        self._settings = settings
        self._options = options
        self._chips: tuple[Chip, ...] = ()
        self._instance = options.instance_id
        self._watch = OwnerWatch(settings.paths.proc)
        self._runtimes = Runtimes(options.timeout)
        self._reader = Reader((), ())
        self._plugin: BridgeCollector | None = None
        self._positions: list[int] = []
        """Of the plugin's devices among ours."""
        self._look_at = 0.0
        self._knock_at = 0.0

    def discover(self) -> Sequence[Device]:
        """List the chips. Raises Unavailable."""
        self._chips = _remembered(self._chips, find_chips(self._settings.paths))
        self._look_at = time.monotonic() + _LOOK_EVERY
        if self._settings.source == "plugin" or self._plugin_is_there():
            try:
                return self._through_plugin()
            except Unavailable:
                self._plugin = None
                self._knock_at = time.monotonic() + _KNOCK_AGAIN
                if self._settings.source == "plugin":
                    raise
        if not self._chips:
            raise Unavailable(
                "no_device",
                "no TPU that is known is on the PCI bus, and no tpu-device-plugin answers at "
                f"{self._plugin_url()}; on GKE set NODE_IP or the option plugin_url",
            )
        self.source = "runtime"
        if not self._instance:
            self._instance = _instance() or self._settings.node or "unknown"
        self._reader = Reader(self._chips, self._identity(self._chips[0]))
        return [self._device(chip, self._raw_labels(chip)) for chip in self._chips]

    def sample(self, group: Group) -> Sample:
        """Read a group. Raises Unavailable only if the plugin alone may be read and is gone."""
        wanted = self._settings.wanted.get(group, frozenset())
        lost = [chip.index for chip in self._chips if not on_bus(self._settings.paths, chip)]
        owners = self._owners(wanted, group)
        there = [chip for chip in self._chips if chip.index not in lost]
        readings = list(presence.read(self._settings.paths, there, owners, wanted))
        found = self._ask_plugin(group) if self._plugin is not None else self._ask_runtimes(there, owners, wanted)
        return Sample(
            readings=[*readings, *found.readings],
            errors=found.errors,
            faults=found.faults,
            lost=lost,
            processes=presence.processes(there, owners) if self._asked_for_processes(group) else None,
            rediscover=found.rediscover or self._changed(),
        )

    def close(self) -> None:
        """Leave all servers."""
        self._runtimes.close()
        if self._plugin is not None:
            self._plugin.close()

    # The plugin

    def _plugin_url(self) -> str:
        if self._options.plugin_url:
            return self._options.plugin_url
        host = os.environ.get("NODE_IP") or os.environ.get("HOST_IP") or "127.0.0.1"
        return f"http://{f'[{host}]' if ':' in host else host}:{_PLUGIN_PORT}/metrics"

    def _plugin_is_there(self) -> bool:
        """Whether the plugin is to be preferred and somebody listens at its address."""
        return self._settings.source == "auto" and time.monotonic() >= self._knock_at and _listens(self._plugin_url())

    def _through_plugin(self) -> Sequence[Device]:
        """Raises Unavailable."""
        url = self._plugin_url()
        from collectors.tpu.plugin import open_plugin

        if self._plugin is None:
            self._plugin = open_plugin(self._settings, url, self._options.timeout, len(self._chips))
        try:
            told = self._plugin.discover()
        except Unavailable as error:
            if error.state != "no_device":
                raise
            time.sleep(_GAP)
            told = self._plugin.discover()
        self.source = "plugin"
        return self._merged(told)

    def _merged(self, told: Sequence[Device]) -> list[Device]:
        """Our chips and the plugin's devices. A chip that the page leaves out is named like the others."""
        by_index = {device.index: device for device in told}
        instance = told[0].uuid.rpartition("-")[0]
        # The page's own: chips are to be called alike in both schemas.
        self._instance = instance or self._instance
        devices = [
            self._device(chip, by_index[str(chip.index)].raw_labels)
            if str(chip.index) in by_index
            else self._device(chip, _renamed(told[0].raw_labels, f"{instance}-{chip.index}"))
            for chip in self._chips
        ]
        position = {device.index: place for place, device in enumerate(devices)}
        for device in told:
            if device.index not in position:
                # Of a kind that is newer than our table, or hidden from us.
                position[device.index] = len(devices)
                devices.append(msgspec.structs.replace(device, kind="tpu"))
        self._positions = [position[device.index] for device in told]
        return devices

    def _ask_plugin(self, group: Group) -> Sample:
        """Raises Unavailable if no other way may be taken."""
        assert self._plugin is not None
        try:
            sample = self._plugin.sample(group)
        except Unavailable:
            if self._settings.source == "plugin":
                raise
            return Sample(rediscover=True)
        places = self._positions
        readings = [
            found if found.device < 0 else Reading(found.series, places[found.device], found.value, found.labels)
            for found in sample.readings
        ]
        if FREE_SERIES in self._settings.wanted.get(group, ()):
            readings += _free(readings)
        return Sample(readings=readings, errors=sample.errors, rediscover=sample.rediscover)

    # The runtimes

    def _asked_for_processes(self, group: Group) -> bool:
        return self._settings.processes and group == "normal"

    def _owners(self, wanted: frozenset[str], group: Group) -> Owners:
        """Who holds the chips; nobody is looked for where nothing depends on it."""
        nodes = frozenset(node for chip in self._chips for node in chip.nodes)
        of_runtimes = self._plugin is None and bool(wanted)
        depends = of_runtimes or wanted & presence.OWNED or self._asked_for_processes(group)
        return self._watch.look(nodes) if nodes and depends else Owners()

    def _ask_runtimes(self, chips: Sequence[Chip], owners: Owners, wanted: frozenset[str]) -> Sample:
        names = needed(wanted)
        if not names and _UP not in wanted:
            return Sample()
        groups = endpoints.find_groups(self._settings.paths.proc, chips, owners, self._options.runtimes)
        answers = self._runtimes.read(groups, names)
        told = self._reader.read(answers, wanted)
        readings = list(told.readings)
        if _UP in wanted:
            up = {index for answer in answers if answer.up for index in answer.group.chips}
            readings += [Reading(_UP, chip.index, int(chip.index in up)) for chip in chips]
        if _IDLE in wanted:
            # Nobody holds the chip: then, and only then, no work is a fact.
            idle = presence.idle(chips, owners)
            readings += [Reading(_IDLE, chip.index, 0) for chip in idle if chip.index not in told.served]
        return Sample(readings=readings, errors=told.errors, faults=told.faults)

    # Devices

    def _device(self, chip: Chip, raw_labels: Labels) -> Device:
        return Device(
            uuid=f"{self._instance}-{chip.index}",
            index=str(chip.index),
            kind="tpu",
            model=chip.generation.model,
            pci_bus_id=chip.pci_bus_id,
            numa_node=chip.numa_node,
            raw_labels=raw_labels,
            ids={
                name: value
                for name, value in (("device_name", chip.device_name), ("slot", chip.slot))
                if value and (name != "device_name" or chip.generation.name != "7x")
            },
        )

    def _raw_labels(self, chip: Chip) -> Labels:
        """The plugin's, in its form: dashboards tell instance and chip by it."""
        make, *rest = self._identity(chip)
        return (make, ("accelerator_id", f"{self._instance}-{chip.index}"), *rest)

    def _identity(self, chip: Chip) -> Labels:
        model = self._options.model or chip.generation.gke_model
        labels = (("make", _MAKE), ("model", model), ("tpu_topology", self._options.topology))
        return tuple((name, value) for name, value in labels if value)

    def _changed(self) -> bool:
        """Whether the plugin has come, or a chip. Asked seldom."""
        if time.monotonic() < self._look_at:
            return False
        self._look_at = time.monotonic() + _LOOK_EVERY
        known = {chip.slot for chip in self._chips}
        if any(chip.slot not in known for chip in find_chips(self._settings.paths)):
            return True
        return self._plugin is None and self._plugin_is_there()


def _free(readings: Sequence[Reading]) -> list[Reading]:
    """Total less used, of each chip that has both."""
    total = {found.device: found.value for found in readings if found.series in ("memory_total", "memory_total_node")}
    used = {found.device: found.value for found in readings if found.series in ("memory_used", "memory_used_node")}
    return [
        Reading(FREE_SERIES, device, whole - used[device])
        for device, whole in total.items()
        if whole >= used.get(device, math.inf)
    ]


def _remembered(known: tuple[Chip, ...], found: tuple[Chip, ...]) -> tuple[Chip, ...]:
    """A chip that fell off the bus keeps its place, or the others would change their names."""
    by_slot = {chip.slot: chip for chip in found}
    kept = [
        msgspec.structs.replace(by_slot.pop(chip.slot), index=chip.index) if chip.slot in by_slot else chip
        for chip in known
    ]
    new = [msgspec.structs.replace(chip, index=len(kept) + place) for place, chip in enumerate(by_slot.values())]
    return (*kept, *new)


def _renamed(labels: Labels, accelerator: str) -> Labels:
    return tuple((name, accelerator if name == "accelerator_id" else value) for name, value in labels)


def _listens(url: str) -> bool:
    """Whether anybody does: cheaper than the bridge, where nobody does."""
    place = url.partition("://")[2].partition("/")[0]
    try:
        address = parse_address(place)
    except ValueError:
        # A unix socket, or a port that goes without saying: the bridge is to look.
        return True
    with contextlib.suppress(OSError):
        dial(address, time.monotonic() + _KNOCK).close()
        return True
    return False


def _instance() -> str:
    for _ in range(_METADATA_ATTEMPTS):
        found = metadata.instance_id(1.0)
        if found:
            return found
    return ""
