"""The Neuron collector."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from collectors.base import NODE, Device, Group, Labels, ReadError, Reading, Sample, Settings, Unavailable
from collectors.neuron import facts, formats, inventory, neuron_ls, programs, sysfs
from collectors.neuron.faults import FaultLog
from collectors.neuron.files import Files, Memory
from collectors.neuron.inventory import Inventory, Sources
from collectors.neuron.monitor import Monitor, Polled, configuration
from collectors.neuron.neuron_ls import Entry
from collectors.neuron.report import Report
from collectors.neuron.sysfs import Tree
from collectors.neuron.tally import Tally, View

_FIRST_REPORT: Final = 10.0
"""Seconds to wait for neuron-monitor at a discovery: its first report comes at once, if it comes."""
_REDISCOVER_EVERY: Final = 30.0
_SETTLED_DRIVER: Final = (2, 28)
"""Older drivers show files in sysfs before they are safe to read: there the device's node must be there first."""


class NeuronCollector:
    """Reads the node's Neuron devices. ``source`` is the way in use: with neuron-monitor, or from sysfs alone."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._paths = settings.paths
        processes = bool(settings.options.get("processes", False))
        hidden = frozenset[str]() if processes else frozenset(("neuron_process_memory_used_bytes",))
        self._wanted: dict[Group, frozenset[str]] = {group: names - hidden for group, names in settings.wanted.items()}
        self._monitor: Monitor | None = None
        self._tally = Tally()
        self._memory = Memory()
        self._faults = FaultLog(self._paths.kmsg if settings.options.get("kmsg", True) else None)
        self._inventory = Inventory()
        self._files: Files | None = None
        self._trees: Mapping[int, Tree] = {}
        self._entries: Mapping[int, Entry] = {}
        self._newest: Report | None = None
        self._built_from: tuple[object, ...] = ()
        self._notices: list[ReadError] = []
        self._discovered_at = 0.0
        self._told_totals = False
        self.source = ""

    def discover(self) -> Sequence[Device]:
        """List devices and NeuronCores. Raises Unavailable."""
        driver = sysfs.driver_version(self._paths.sys)
        trees = self._scan(driver)
        self._start_monitor()
        entries = self._look()
        self._await_report()
        if not (trees or entries or (self._newest is not None and self._newest.hardware is not None)):
            self._refuse(driver)
        # A device that is there no more stays in the list, as lost: it is missed, and not forgotten.
        self._trees = {**self._trees, **trees}
        self._entries = {**self._entries, **entries}
        report = self._newest
        labels = self._inventory.labels
        if report is not None and report.instance is not None and (not labels or _has_id(report.instance)):
            labels = report.instance
        self._inventory = inventory.build(
            Sources(
                trees=self._trees,
                entries=self._entries,
                hardware=report.hardware if report is not None else None,
                labels=labels,
                driver=driver,
                sys_path=self._paths.sys,
            )
        )
        self._files = Files(self._inventory, self._wanted, driver, self._memory)
        self._faults.watch(self._inventory)
        self._built_from = _basis(report)
        self._discovered_at = time.monotonic()
        if trees and all(tree.layout == "unknown" for tree in trees.values()):
            text = "the driver's files have no layout that is known: only what neuron-monitor tells is read"
            self._notices.append(ReadError(NODE, "parse", text))
        return self._inventory.devices

    def sample(self, group: Group) -> Sample:
        """Read a group. Raises Unavailable when the driver went away."""
        files = self._files
        if files is None:
            raise Unavailable("no_driver", "the devices have not been discovered")
        present = sysfs.devices(self._paths.sys)
        if self._trees and not present:
            self._end_monitor()
            raise Unavailable("no_driver", "the neuron kernel module was unloaded: load it again with modprobe neuron")
        errors, self._notices = self._notices, []
        polled = self._monitor.poll() if self._monitor is not None else Polled()
        errors += polled.errors
        wanted = self._wanted.get(group, frozenset())
        readings = self._counted(polled, wanted, errors)
        view = View(polled.newest, self._tally, self._inventory) if polled.newest is not None else None
        if view is not None:
            readings += view.readings(wanted)
        processes = view.processes() if view is not None and group == "normal" and self._settings.processes else None
        taken = files.read(group)
        errors += taken.errors
        readings += taken.readings
        if not wanted.isdisjoint(facts.SERIES):
            readings += facts.readings(self._inventory, wanted, self._paths.sys)
        faults = self._faults.drain(errors) + self._faults.counted(taken.hardware_errors)
        changed = _differs(self._built_from, self._newest) or (view is not None and view.unknown_cores)
        changed |= bool(present.keys() - self._trees.keys())
        return Sample(
            readings=readings,
            errors=errors,
            faults=faults,
            lost=sorted(taken.lost),
            processes=processes,
            rediscover=changed and time.monotonic() - self._discovered_at >= _REDISCOVER_EVERY,
        )

    def close(self) -> None:
        """End neuron-monitor and close the kernel's log."""
        self._end_monitor()
        self._faults.close()

    def _end_monitor(self) -> None:
        """While it runs the driver cannot be unloaded or upgraded."""
        monitor, self._monitor, self._files = self._monitor, None, None
        if monitor is not None:
            monitor.close()

    def _scan(self, driver: str) -> Mapping[int, Tree]:
        folders = sysfs.devices(self._paths.sys)
        if formats.version(driver) < _SETTLED_DRIVER:
            folders = {n: path for n, path in folders.items() if (Path(self._paths.dev) / f"neuron{n}").exists()}
        return {index: sysfs.scan(index, folder) for index, folder in folders.items()}

    def _start_monitor(self) -> None:
        """Make the monitor, once. Raises Unavailable if it is asked for and not there."""
        if self._monitor is not None:
            return
        options = self._settings.options
        program = ""
        if self._settings.source != "sysfs":
            program = programs.find(str(options.get("monitor", "")), "neuron-monitor", self._paths.opt)
        self.source = "monitor" if program else "sysfs"
        if not program and options.get("monitor"):
            text = f"the option monitor names no program that can be run: {options['monitor']}"
            self._notices.append(ReadError(NODE, "library", text))
        if program:
            period = float(options.get("period", 5.0))
            every = frozenset[str]().union(*self._wanted.values())
            host = options.get("host_metrics", "auto")
            self._monitor = Monitor(
                program,
                configuration(every, period, host=host == "on" or (host == "auto" and not _in_container())),
                period=period,
                memory_limit_mib=int(options.get("memory_limit_mib", 160)),
            )
        elif self._settings.source == "monitor":
            raise Unavailable(
                "no_library",
                "neuron-monitor is not found: install aws-neuronx-tools, mount the host's /opt/aws, or set the option"
                " monitor to the program's path",
            )

    def _look(self) -> Mapping[int, Entry]:
        if self._settings.source == "sysfs":
            return {}
        program = programs.find(str(self._settings.options.get("ls", "")), "neuron-ls", self._paths.opt)
        if not program:
            return {}
        entries, trouble = neuron_ls.look(program)
        if trouble:
            self._notices.append(ReadError(NODE, "transient", trouble))
        return entries

    def _await_report(self) -> None:
        """Take reports; if there was none yet, wait for it: it tells the instance's labels and the cores per device."""
        if self._monitor is None:
            return
        until = time.monotonic() + _FIRST_REPORT
        self._take(self._monitor.poll())
        while self._newest is None and not self._monitor.trouble and (left := until - time.monotonic()) > 0:
            self._monitor.wait_for_report(min(left, 0.5))
            self._take(self._monitor.poll())

    def _take(self, polled: Polled) -> None:
        """Count reports that came outside a sample."""
        for report in polled.reports:
            self._tally.add(report)
        self._newest = polled.newest or self._newest
        self._notices += polled.errors

    def _counted(self, polled: Polled, wanted: frozenset[str], errors: list[ReadError]) -> list[Reading]:
        """Take neuron-monitor's reports, and what is to be said of itself."""
        monitor = self._monitor
        if monitor is None:
            return []
        for report in polled.reports:
            self._tally.add(report)
            errors += [ReadError(NODE, "transient", f"neuron-monitor: {problem}") for problem in report.problems]
        if polled.newest is not None:
            self._newest = polled.newest
            self._explain_totals()
        return [
            Reading(series, NODE, number)
            for series, number in (
                ("neuron_monitor_restarts_total", monitor.restarts),
                ("neuron_monitor_malformed_total", monitor.malformed),
            )
            if series in wanted
        ]

    def _explain_totals(self) -> None:
        if self._tally.ecc_repeats and not self._told_totals:
            self._told_totals = True
            print(
                "neuron-monitor gave the same nonzero count of ECC events twice in a row: it seems to give totals, and"
                " then hardware_ecc_events_total, which adds them up as AWS's script does, is too high",
                file=sys.stderr,
            )

    def _refuse(self, driver: str) -> None:
        """There is nothing to read. Raises Unavailable that says why."""
        trouble = self._monitor.trouble if self._monitor is not None else ""
        self._end_monitor()
        if not driver:
            raise Unavailable(
                "no_driver", f"the neuron kernel module is not loaded: modprobe neuron. {trouble}".strip()
            )
        if sysfs.devices(self._paths.sys):
            raise Unavailable("no_driver", f"driver {driver} has not made the device nodes /dev/neuron* (yet)")
        raise Unavailable("no_device", f"driver {driver} is loaded and shows no device. {trouble}".strip())


def _has_id(instance: Labels) -> bool:
    """Whether the instance's metadata were there: they can be out of reach for a while."""
    return bool(dict(instance).get("instance_id"))


def _basis(report: Report | None) -> tuple[object, ...]:
    """What of a report the inventory depends on."""
    if report is None:
        return (None, None)
    return report.hardware, report.instance if report.instance is not None and _has_id(report.instance) else None


def _differs(built_from: tuple[object, ...], report: Report | None) -> bool:
    """Whether a report tells other hardware or another instance than the inventory was made from."""
    return any(now is not None and now != before for before, now in zip(built_from, _basis(report), strict=True))


def _in_container() -> bool:
    """Whether this process runs in one: there the host's processors and memory look wrong to neuron-monitor."""
    markers = ("/.dockerenv", "/run/.containerenv")
    return bool(os.environ.get("KUBERNETES_SERVICE_HOST")) or any(Path(path).exists() for path in markers)
