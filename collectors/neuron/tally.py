"""neuron-monitor's reports → readings: the script's series as it has them, and those by NeuronCore and device.

The script's counters add up what each report counts. Unlike the script, which clears everything while no runtime is
there, they go on: to ``rate()`` it is the same. A runtime's series end with it, as the script's do since SDK 2.25.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from collectors.base import NODE, Labels, Process, Reading
from collectors.neuron.inventory import Chip, Inventory
from collectors.neuron.report import CATEGORIES, Number, Report, Runtime

Counts = dict[tuple[str, str], int]
Out = dict[tuple[str, int, Labels], Number]
"""Series, position, labels → value. Two runtimes can have the same tag: of a gauge the last one counts."""


class Tally:
    """What must be remembered from report to report."""

    def __init__(self) -> None:
        self.errors: Counts = {}
        """(runtime tag, kind) → how many so far."""
        self.statuses: Counts = {}
        self.ecc: dict[tuple[int, str], int] = {}
        """(device, event) → sum of all reports' numbers: the script's counter."""
        self.certain_ecc: dict[tuple[int, str], int] = {}
        """The same with only rises counted: right for totals, and for counts by period the least that there were."""
        self.ecc_repeats = 0
        """Nonzero numbers that came twice in a row, which counts by period hardly do."""
        self._last_ecc: dict[tuple[int, str], int] = {}

    def add(self, report: Report) -> None:
        """Count a report. Each must be added once, in order."""
        tags = {runtime.tag for runtime in report.runtimes}
        for counts in (self.errors, self.statuses):
            for key in [key for key in counts if key[0] not in tags]:
                del counts[key]
        for runtime in report.runtimes:
            _add(self.errors, runtime.tag, runtime.errors)
            _add(self.statuses, runtime.tag, runtime.statuses)
        for device, events in (report.ecc or {}).items():
            for event, number in events.items():
                self._ecc_event((device, event), number)

    def _ecc_event(self, key: tuple[int, str], number: int) -> None:
        last = self._last_ecc.get(key, 0)
        self.ecc_repeats += bool(number) and number == last
        self.ecc[key] = self.ecc.get(key, 0) + number
        self.certain_ecc[key] = self.certain_ecc.get(key, 0) + max(0, number - last)
        self._last_ecc[key] = number


def _add(counts: Counts, tag: str, more: Mapping[str, int] | None) -> None:
    for kind, number in (more or {}).items():
        counts[tag, kind] = counts.get((tag, kind), 0) + number


class View:
    """One report seen through an inventory."""

    def __init__(self, report: Report, tally: Tally, inventory: Inventory) -> None:
        self.report = report
        self.tally = tally
        self.inventory = inventory
        self.unknown_cores = False
        """The report names a NeuronCore that the inventory has not."""
        self._out: Out = {}

    def readings(self, wanted: frozenset[str]) -> list[Reading]:
        """Every wanted series that the report tells of."""
        self._out = {}
        for fill, series in _FILLERS:
            if not wanted.isdisjoint(series):
                fill(self)
        return [
            Reading(name, position, value, labels)
            for (name, position, labels), value in self._out.items()
            if name in wanted
        ]

    def processes(self) -> list[Process]:
        """The processes on each NeuronCore. Process ids are the host's, whatever namespace a process lives in."""
        found = []
        for runtime in self.report.runtimes:
            for index in sorted(_held(runtime)) if runtime.pid > 0 else ():
                if index in self.inventory.cores:
                    position = self.inventory.cores[index][1].position
                    memory = sum(runtime.memory.cores.get(index, {}).values()) if runtime.memory is not None else None
                    use = (runtime.cores or {}).get(index)
                    share = min(1.0, use.utilization / 100) if use is not None else None
                    found.append(Process(position, runtime.pid, memory, share))
        return found

    def put(self, series: str, position: int, value: Number, labels: Labels) -> None:
        self._out[series, position, labels] = value

    def node(self, series: str, value: Number, *labels: tuple[str, str]) -> None:
        """A series that belongs to no device. The script has the instance's labels on it."""
        self.put(series, NODE, value, (*self.inventory.labels, *labels))

    def core(self, series: str, index: int, value: Number, labels: Labels) -> None:
        """A series of a NeuronCore; of the node, if the core is not known (yet)."""
        found = self.inventory.cores.get(index)
        if found is None:
            self.unknown_cores = True
            self.node(series, value, *labels)
        else:
            self.put(series, found[1].position, value, labels)

    def chip(self, series: str, chip: Chip, value: Number, *labels: tuple[str, str]) -> None:
        """A series of a device."""
        self.put(series, chip.position, value, (("neuron_device_index", str(chip.index)), *labels))

    def all_cores(self) -> Iterator[int]:
        """Those of which it is certain that a core which no runtime names is idle: all or none."""
        return iter(() if self.report.blind or not self.report.cores_known else self.inventory.cores)

    def chips_of(self, runtime: Runtime) -> list[Chip]:
        """The devices on which a runtime holds memory or executes."""
        found = {self.inventory.cores[index][0].index for index in _held(runtime) if index in self.inventory.cores}
        return [self.inventory.by_index[index] for index in sorted(found)]


def _held(runtime: Runtime) -> set[int]:
    """NeuronCores that a runtime uses. Those that it only sees are listed, too, with zeros."""
    memory = runtime.memory.cores if runtime.memory is not None else {}
    held = {index for index, categories in memory.items() if any(categories.values())}
    return held | {index for index, use in (runtime.cores or {}).items() if use.utilization > 0}


def _utilization(view: View) -> None:
    highest: dict[int, float] = dict.fromkeys(view.all_cores(), 0.0)
    for runtime in view.report.runtimes:
        for index, use in (runtime.cores or {}).items():
            ratio = use.utilization / 100
            core = ("neuroncore", str(index))
            view.core("neuroncore_utilization_ratio", index, ratio, (core, ("runtime_tag", runtime.tag)))
            highest[index] = max(highest.get(index, 0.0), min(1.0, max(0.0, ratio)))
    for index, ratio in highest.items():
        # Where a runtime did not tell, a zero of the others says nothing: the core may be that one's.
        if ratio or view.report.cores_known:
            view.core("neuron_core_utilization_ratio", index, ratio, (("neuroncore", str(index)),))


def _flops(view: View) -> None:
    for series, field in (
        ("neuron_core_flops_per_second", "flops"),
        ("neuron_core_effective_flops_per_second", "effective_flops"),
    ):
        highest: dict[int, float] = {}
        for runtime in view.report.runtimes:
            for index, use in (runtime.cores or {}).items():
                value = getattr(use, field)
                if value is not None and value >= 0:
                    highest[index] = max(highest.get(index, 0.0), value)
        for index, value in highest.items():
            view.core(series, index, value, (("neuroncore", str(index)),))


def _physical(view: View) -> None:
    highest: dict[tuple[int, int], float] = {}
    for runtime in view.report.runtimes:
        for index, use in (runtime.cores or {}).items():
            for physical, percent in use.physical.items():
                highest[index, physical] = max(highest.get((index, physical), 0.0), percent / 100)
    for (index, physical), ratio in highest.items():
        labels = (("neuroncore", str(index)), ("physical_neuroncore", str(physical)))
        view.core("neuron_physical_core_utilization_ratio", index, ratio, labels)


def _memory(view: View) -> None:
    complete = all(runtime.memory is not None for runtime in view.report.runtimes)
    used: dict[int, int] = dict.fromkeys(view.all_cores(), 0) if complete else {}
    for runtime in view.report.runtimes:
        if runtime.memory is None:
            continue
        tag = ("runtime_tag", runtime.tag)
        for location, amount in (("host", runtime.memory.host), ("neuron_device", runtime.memory.device)):
            view.node("neuron_runtime_memory_used_bytes", amount, ("memory_location", location), tag)
        for index, categories in runtime.memory.cores.items():
            core = ("neuroncore", str(index))
            for category in CATEGORIES:
                if category in categories:
                    # The script leaves None in this label, and so it says None.
                    labels = (("memory_location", "None"), core, tag)
                    view.core(f"neuroncore_memory_usage_{category}", index, categories[category], labels)
            amount = sum(categories.values())
            used[index] = used.get(index, 0) + amount
            if amount and runtime.pid > 0:
                view.core("neuron_process_memory_used_bytes", index, amount, (core, ("pid", str(runtime.pid))))
    for index, amount in used.items():
        view.core("neuron_core_memory_used_bytes", index, amount, (("neuroncore", str(index)),))


def _processes(view: View) -> None:
    counts: dict[int, int] = dict.fromkeys(view.all_cores(), 0)
    for runtime in view.report.runtimes:
        for index in _held(runtime):
            counts[index] = counts.get(index, 0) + 1
    for index, number in counts.items():
        view.core("neuron_core_processes", index, number, (("neuroncore", str(index)),))


def _execution(view: View) -> None:
    for (tag, kind), number in view.tally.errors.items():
        view.node("execution_errors_total", number, ("error_type", kind), ("runtime_tag", tag))
    for (tag, kind), number in view.tally.statuses.items():
        view.node("execution_status_total", number, ("runtime_tag", tag), ("status_type", kind))
    slowest: dict[tuple[int, str, str], float] = {}
    for runtime in view.report.runtimes:
        for percentile, seconds in (runtime.latency or {}).items():
            labels = (("percentile", percentile), ("runtime_tag", runtime.tag))
            view.node("execution_latency_seconds", seconds, *labels)
            for chip in view.chips_of(runtime):
                key = (chip.index, percentile, runtime.tag)
                slowest[key] = max(slowest.get(key, 0.0), seconds)
    for (index, percentile, tag), seconds in slowest.items():
        chip = view.inventory.by_index[index]
        series = "neuron_device_execution_latency_seconds"
        view.chip(series, chip, seconds, ("percentile", percentile), ("runtime_tag", tag))


def _ecc(view: View) -> None:
    if view.report.ecc is None:
        return
    for (device, event), number in view.tally.ecc.items():
        labels = (("event_type", event), ("neuron_device_index", str(device)))
        chip = view.inventory.by_index.get(device)
        if chip is None:
            view.node("hardware_ecc_events_total", number, *labels)
            continue
        view.put("hardware_ecc_events_total", chip.position, number, labels)
        certain = view.tally.certain_ecc[device, event]
        view.chip("neuron_monitor_ecc_events_total", chip, certain, ("event_type", event))


def _vcpu(view: View) -> None:
    for runtime in view.report.runtimes:
        for kind, percent in (runtime.vcpu or {}).items():
            labels = (("runtime_tag", runtime.tag), ("usage_type", kind))
            view.node("neuron_runtime_vcpu_usage_ratio", percent / 100, *labels)


def _host(view: View) -> None:
    report = view.report
    if report.vcpus is not None:
        view.node("system_vcpu_count", report.vcpus)
    for kind, percent in (report.vcpu or {}).items():
        view.node("system_vcpu_usage_ratio", percent / 100, ("usage_type", kind))
    for name, amount in (report.host_memory or {}).items():
        view.node(f"system_{name}", amount)


def _facts(view: View) -> None:
    if view.report.instance is not None:
        view.node("instance_info", 1)
    hardware = view.report.hardware
    if hardware is not None:
        memory = (("neuron_device_memory_size", str(hardware.memory_bytes)),) if hardware.memory_bytes else ()
        view.node(
            "neuron_hardware_info",
            1,
            ("neuron_device_count", str(hardware.devices)),
            *memory,
            ("neuroncore_per_device_count", str(hardware.cores_per_device)),
        )


_FILLERS: tuple[tuple[Callable[[View], None], frozenset[str]], ...] = (
    (_utilization, frozenset(("neuroncore_utilization_ratio", "neuron_core_utilization_ratio"))),
    (_flops, frozenset(("neuron_core_flops_per_second", "neuron_core_effective_flops_per_second"))),
    (_physical, frozenset(("neuron_physical_core_utilization_ratio",))),
    (
        _memory,
        frozenset(
            (
                "neuron_runtime_memory_used_bytes",
                "neuron_process_memory_used_bytes",
                "neuron_core_memory_used_bytes",
                *(f"neuroncore_memory_usage_{category}" for category in CATEGORIES),
            )
        ),
    ),
    (_processes, frozenset(("neuron_core_processes",))),
    (
        _execution,
        frozenset(
            (
                "execution_errors_total",
                "execution_status_total",
                "execution_latency_seconds",
                "neuron_device_execution_latency_seconds",
            )
        ),
    ),
    (_ecc, frozenset(("hardware_ecc_events_total", "neuron_monitor_ecc_events_total"))),
    (_vcpu, frozenset(("neuron_runtime_vcpu_usage_ratio",))),
    (
        _host,
        frozenset(
            (
                "system_vcpu_count",
                "system_vcpu_usage_ratio",
                "system_memory_total_bytes",
                "system_memory_used_bytes",
                "system_swap_total_bytes",
                "system_swap_used_bytes",
            )
        ),
    ),
    (_facts, frozenset(("instance_info", "neuron_hardware_info"))),
)
"""What fills the readings, and the series that need it."""
SERIES: frozenset[str] = frozenset().union(*(series for _, series in _FILLERS))
