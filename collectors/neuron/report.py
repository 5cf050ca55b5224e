"""One report of neuron-monitor: what it says, group by group.

Every group can be missing, null, in error or of another shape in some version of the tool: then it is None here, and
the others are taken. Names are those of the Neuron Monitor User Guide; older spellings (Neuron tools before 2.5.16) are
accepted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, TypeVar

import msgspec

from collectors.base import Labels
from collectors.neuron import shapes

T = TypeVar("T")

CATEGORIES: Final[tuple[str, ...]] = ("constants", "model_code", "model_shared_scratchpad", "runtime_memory", "tensors")
ECC_EVENTS: Final[tuple[str, ...]] = (
    "mem_ecc_corrected",
    "mem_ecc_uncorrected",
    "sram_ecc_corrected",
    "sram_ecc_uncorrected",
)
_PERCENTILE: Final = re.compile(r"p[0-9]{1,3}")
_WORD: Final = re.compile(r"[a-z0-9_]{1,48}")
_INDEX: Final = re.compile(r"[0-9]{1,4}")
_PHYSICAL: Final = re.compile(r"nc_v[0-9]+[a-z]?\.([0-9]{1,4})")
_MOST: Final = 64
"""Entries of a mapping whose keys the tool makes up: kinds of errors, percentiles."""
_MOST_RUNTIMES: Final = 1024
_MOST_PROBLEMS: Final = 8
_LONGEST: Final = 255
"""Characters of a label's value: what NEURON_PROCESS_TAG may have."""

Number = int | float


class Use(msgspec.Struct, frozen=True, gc=False):
    """What a runtime does on one NeuronCore. Percent and operations a second; None: not told."""

    utilization: float
    flops: float | None = None
    effective_flops: float | None = None
    physical: Mapping[int, float] = {}
    """Node-wide index of the physical core → percent, where a logical one has several behind it."""


class Memory(msgspec.Struct, frozen=True):
    """Bytes that a runtime uses."""

    host: int
    device: int
    """On all devices together."""
    cores: Mapping[int, Mapping[str, int]]
    """NeuronCore → category → bytes."""


class Runtime(msgspec.Struct, frozen=True, kw_only=True):
    """One process that uses Neuron devices. A group that gave nothing is None."""

    pid: int
    tag: str
    cores: Mapping[int, Use] | None = None
    memory: Memory | None = None
    errors: Mapping[str, int] | None = None
    statuses: Mapping[str, int] | None = None
    latency: Mapping[str, float] | None = None
    """Percentile → seconds; empty: nothing was executed."""
    vcpu: Mapping[str, float] | None = None
    """user, system → percent."""


class Hardware(msgspec.Struct, frozen=True, kw_only=True):
    """neuron_hardware_info. 0: not told."""

    devices: int
    cores_per_device: int
    """Logical ones, where the tool knows logical ones."""
    memory_bytes: int = 0
    """Of one device."""
    lnc: int = 0
    """Physical cores behind a logical one."""
    device_type: str = ""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """All of it."""

    runtimes: tuple[Runtime, ...] = ()
    cores_known: bool = False
    """Whether each runtime told what it does: a core that none names is idle then."""
    ecc: Mapping[int, Mapping[str, int]] | None = None
    """Device → event type → count; None: not told."""
    blind: bool = False
    """neuron-monitor may not open the devices: that it names no runtime does not mean that there is none."""
    vcpus: int | None = None
    vcpu: Mapping[str, float] | None = None
    host_memory: Mapping[str, int] | None = None
    instance: Labels | None = None
    """The labels that the script puts on every series."""
    hardware: Hardware | None = None
    problems: tuple[str, ...] = ()


_OUTER: Final = msgspec.json.Decoder(shapes.Outer)
_SPELLINGS: Final[Mapping[str, str]] = {
    "nc_counters": "neuroncore_counters",
    "inference_stats": "execution_stats",
    "runtime_cpu_usage": "neuron_runtime_vcpu_usage",
    "hw_counters": "neuron_hw_counters",
    "cpu_usage": "vcpu_usage",
}
"""Groups of old tools → what they are called now."""


class _Problems:
    """What could not be used; bounded, since each runtime can have the same trouble."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def add(self, text: str) -> None:
        text = text[:200]
        if len(self.found) < _MOST_PROBLEMS and text not in self.found:
            self.found.append(text)


def decode(text: bytes) -> Report:
    """Raises msgspec.MsgspecError or ValueError for what is no report at all."""
    outer = _OUTER.decode(text)
    if outer == shapes.Outer():
        raise ValueError("no part of it is known")
    problems = _Problems()
    raw_runtimes = outer.neuron_runtime_data or outer.runtime_data or []
    runtimes = [_runtime(raw, problems) for raw in raw_runtimes[:_MOST_RUNTIMES]]
    groups = {_SPELLINGS.get(name, name): raw for name, raw in (outer.system_data or {}).items()}
    cpu = _group(groups, "vcpu_usage", shapes.CpuIn, problems)
    ecc = _group(groups, "neuron_hw_counters", shapes.EccIn, problems)
    return Report(
        runtimes=tuple(runtime for runtime in runtimes if runtime is not None),
        cores_known=all(runtime is not None and runtime.cores is not None for runtime in runtimes),
        ecc=_ecc(ecc, problems),
        blind=ecc is not None and ecc.neuron_devices is None,
        vcpus=len(cpu.usage_data) if cpu is not None and cpu.usage_data is not None else None,
        vcpu=_cpu(cpu),
        host_memory=_host_memory(_group(groups, "memory_info", shapes.HostMemoryIn, problems)),
        instance=_instance(_given(outer.instance_info) or _given(outer.instance_data), problems),
        hardware=_hardware(_given(outer.neuron_hardware_info), problems),
        problems=tuple(problems.found),
    )


def _given(raw: msgspec.Raw | None) -> msgspec.Raw | None:
    """None for what is not there, and for null."""
    return None if raw is None or bytes(raw) in (b"", b"null") else raw


def _runtime(raw: msgspec.Raw, problems: _Problems) -> Runtime | None:
    try:
        found = msgspec.json.decode(raw, type=shapes.RuntimeIn)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        problems.add(f"a runtime is not understood: {error}")
        return None
    tag = found.neuron_runtime_tag if found.neuron_runtime_tag is not None else found.address or found.pid
    name = f"runtime {tag}"[:80]
    runtime = Runtime(pid=found.pid, tag=str(tag)[:_LONGEST])
    if found.error:
        problems.add(f"{name}: {found.error}")
        return runtime
    groups = {_SPELLINGS.get(key, key): value for key, value in (found.report or {}).items()}
    execution = _group(groups, "execution_stats", shapes.ExecutionIn, problems, name)
    cpu = _group(groups, "neuron_runtime_vcpu_usage", shapes.RuntimeCpuIn, problems)
    latency = execution.latency_stats if execution else None
    summary = (execution.execution_summary or execution.inference_summary) if execution else None
    return msgspec.structs.replace(
        runtime,
        cores=_cores(_group(groups, "neuroncore_counters", shapes.CoresIn, problems, name)),
        memory=_memory(_group(groups, "memory_used", shapes.MemoryIn, problems, name)),
        errors=_counts(execution.error_summary) if execution and execution.error_summary is not None else None,
        statuses=_counts(summary) if summary is not None else None,
        latency=_percentiles(latency.total_latency) if latency is not None else None,
        vcpu=_percents(cpu.vcpu_usage, ("user", "system")) if cpu and cpu.vcpu_usage is not None else None,
    )


def _group(
    groups: Mapping[str, msgspec.Raw], name: str, kind: type[T], problems: _Problems, whose: str = ""
) -> T | None:
    """A group without error. A process of another container has no readable /proc here: that is no problem of ours."""
    raw = _given(groups.get(name))
    if raw is None:
        return None
    try:
        found = msgspec.json.decode(raw, type=kind)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        problems.add(f"{name} is not understood: {error}")
        return None
    trouble = getattr(found, "error", None)
    if trouble:
        if name != "neuron_runtime_vcpu_usage":
            problems.add(f"{whose} {name}: {trouble}".strip())
        return None
    return found


def _cores(group: shapes.CoresIn | None) -> Mapping[int, Use] | None:
    if group is None:
        return None
    found = group.neuroncores_in_use if group.neuroncores_in_use is not None else group.neuron_cores
    if found is None:
        return None
    return {
        int(index): Use(use.neuroncore_utilization, use.flops, use.effective_flops, _physical(use))
        for index, use in found.items()
        if use is not None and use.neuroncore_utilization is not None and _INDEX.fullmatch(index)
    }


def _physical(use: shapes.CoreIn) -> Mapping[int, float]:
    found: dict[int, float] = {}
    for name, counters in (use.v3d or {}).items():
        index = _PHYSICAL.fullmatch(name)
        value = (counters or {}).get("neuroncore_utilization")
        if index is not None and isinstance(value, int | float):
            found[int(index[1])] = float(value)
    return found


def _memory(group: shapes.MemoryIn | None) -> Memory | None:
    used = group.neuron_runtime_used_bytes if group is not None else None
    if used is None or used.host is None or used.neuron_device is None:
        return None
    by_core = (used.usage_breakdown.neuroncore_memory_usage if used.usage_breakdown else None) or {}
    cores = {
        int(index): {name: int(categories.get(name) or 0) for name in CATEGORIES if name in categories}
        for index, categories in by_core.items()
        if categories is not None and _INDEX.fullmatch(index)
    }
    return Memory(int(used.host), int(used.neuron_device), cores)


def _counts(summary: Mapping[str, float | None]) -> Mapping[str, int]:
    found = {name: int(value) for name, value in summary.items() if value is not None and _WORD.fullmatch(name)}
    return {name: value for name, value in list(found.items())[:_MOST] if value >= 0}


def _percentiles(latency: Mapping[str, float | None] | None) -> Mapping[str, float]:
    told = ((name, value) for name, value in (latency or {}).items() if value is not None)
    return {name: value for name, value in told if value >= 0 and _PERCENTILE.fullmatch(name)}


def _percents(usage: Mapping[str, float | None], names: tuple[str, ...]) -> Mapping[str, float]:
    return {name: value for name in names if (value := usage.get(name)) is not None}


def _ecc(group: shapes.EccIn | None, problems: _Problems) -> Mapping[int, Mapping[str, int]] | None:
    if group is None:
        return None
    if group.neuron_devices is None:
        problems.add("neuron-monitor has no access to the devices: give it /dev/neuron* (run the container privileged)")
        return None
    found: dict[int, Mapping[str, int]] = {}
    for device in group.neuron_devices:
        index = device.neuron_device_index if device.neuron_device_index is not None else device.device_index
        if index is not None:
            values = {name: getattr(device, name) for name in ECC_EVENTS}
            found[index] = {name: value for name, value in values.items() if value is not None and value >= 0}
    return found


def _cpu(group: shapes.CpuIn | None) -> Mapping[str, float] | None:
    """The script's two kinds of use, in percent; at most 100 each."""
    if group is None or group.average_usage is None:
        return None
    usage = group.average_usage
    kinds = {"user": ("user", "nice"), "system": ("system", "io_wait", "irq", "soft_irq")}
    return {kind: min(100.0, sum(usage.get(name) or 0.0 for name in names)) for kind, names in kinds.items()}


def _host_memory(group: shapes.HostMemoryIn | None) -> Mapping[str, int] | None:
    if group is None:
        return None
    names = ("memory_total_bytes", "memory_used_bytes", "swap_total_bytes", "swap_used_bytes")
    return {name: value for name in names if (value := getattr(group, name)) is not None}


def _instance(raw: msgspec.Raw | None, problems: _Problems) -> Labels | None:
    """Labels by name. What EC2's metadata service did not tell is empty; ultraserver_id is left out then."""
    if raw is None:
        return None
    try:
        found = msgspec.json.decode(raw, type=dict[str, Any])
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        problems.add(f"instance_info is not understood: {error}")
        return None
    if found.get("error"):
        problems.add(f"instance_info: {found['error']}")
    keys = (
        ("availability_zone", "instance_availability_zone"),
        ("instance_id", "instance_id"),
        ("instance_name", "instance_name"),
        ("instance_type", "instance_type"),
        ("region", "instance_region"),
        ("subnet_id", "subnet_id"),
    )
    labels = tuple((label, str(found.get(key) or "")[:_LONGEST]) for label, key in keys)
    ultraserver = str(found.get("ultraserver_id") or "")[:_LONGEST]
    return (*labels, ("ultraserver_id", ultraserver)) if ultraserver else labels


def _hardware(raw: msgspec.Raw | None, problems: _Problems) -> Hardware | None:
    groups = {} if raw is None else {"neuron_hardware_info": raw}
    found = _group(groups, "neuron_hardware_info", shapes.HardwareIn, problems)
    if found is None or not found.neuron_device_count or not found.neuroncore_per_device_count:
        return None
    return Hardware(
        devices=found.neuron_device_count,
        cores_per_device=found.neuroncore_per_device_count,
        memory_bytes=max(0, found.neuron_device_memory_size or 0),
        lnc=max(0, found.logical_neuroncore_config or 0),
        device_type=(found.neuron_device_type or "")[:_LONGEST],
    )
