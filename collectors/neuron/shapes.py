"""neuron-monitor's JSON as it comes: only what is used, everything optional. Keys are those of its User Guide.

Groups stay undecoded at first, so that one of a strange shape costs no other.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

NOTHING: Final = msgspec.Raw()
"""What is not there."""


class Outer(msgspec.Struct):
    neuron_runtime_data: list[msgspec.Raw] | msgspec.UnsetType | None = msgspec.UNSET
    runtime_data: list[msgspec.Raw] | msgspec.UnsetType | None = msgspec.UNSET
    system_data: dict[str, msgspec.Raw] | msgspec.UnsetType | None = msgspec.UNSET
    instance_info: msgspec.Raw = NOTHING
    instance_data: msgspec.Raw = NOTHING
    neuron_hardware_info: msgspec.Raw = NOTHING


class RuntimeIn(msgspec.Struct):
    pid: int = 0
    neuron_runtime_tag: str | int | None = None
    address: str | None = None
    error: str | None = None
    report: dict[str, msgspec.Raw] | None = None


class Group(msgspec.Struct):
    """What every group has: anything but "" says that it could not be read."""

    error: str | None = None


class CoreIn(msgspec.Struct):
    neuroncore_utilization: float | None = None
    flops: float | None = None
    effective_flops: float | None = None
    v3d: dict[str, dict[str, Any] | None] | None = None


class CoresIn(Group):
    neuroncores_in_use: dict[str, CoreIn | None] | None = None
    neuron_cores: dict[str, CoreIn | None] | None = None


class LatencyIn(msgspec.Struct):
    total_latency: dict[str, float | None] | None = None


class ExecutionIn(Group):
    error_summary: dict[str, float | None] | None = None
    execution_summary: dict[str, float | None] | None = None
    inference_summary: dict[str, float | None] | None = None
    latency_stats: LatencyIn | None = None


class BreakdownIn(msgspec.Struct):
    neuroncore_memory_usage: dict[str, dict[str, float | None] | None] | None = None


class UsedIn(msgspec.Struct):
    host: float | None = None
    neuron_device: float | None = None
    usage_breakdown: BreakdownIn | None = None


class MemoryIn(Group):
    # loaded_models, most of the report, is skipped unread.
    neuron_runtime_used_bytes: UsedIn | None = None


class RuntimeCpuIn(Group):
    vcpu_usage: dict[str, float | None] | None = None


class DeviceEccIn(msgspec.Struct):
    neuron_device_index: int | None = None
    device_index: int | None = None
    mem_ecc_corrected: int | None = None
    mem_ecc_uncorrected: int | None = None
    sram_ecc_corrected: int | None = None
    sram_ecc_uncorrected: int | None = None


class EccIn(Group):
    neuron_devices: list[DeviceEccIn] | None = None


class CpuIn(Group):
    average_usage: dict[str, float | None] | None = None
    usage_data: dict[str, msgspec.Raw] | None = None


class HostMemoryIn(Group):
    memory_total_bytes: int | None = None
    memory_used_bytes: int | None = None
    swap_total_bytes: int | None = None
    swap_used_bytes: int | None = None


class HardwareIn(Group):
    neuron_device_count: int | None = None
    neuroncore_per_device_count: int | None = None
    neuron_device_memory_size: int | None = None
    logical_neuroncore_config: int | None = None
    neuron_device_type: str | None = None
