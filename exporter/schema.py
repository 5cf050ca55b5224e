"""The common schema: every metric that means the same for each vendor, in the order of exposition.

If a vendor's number means something else, it does not go here. docs/metrics.md is generated from this table.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from exporter.model import MetricType

Stability = Literal["experimental", "stable", "deprecated"]
Allowed = tuple[str, ...]
FREE: Final[Allowed] = ()
"""A label whose values are not a fixed set."""

IDENTITY: Final = ("vendor", "device", "uuid", "partition")
WORKLOAD: Final = ("namespace", "pod", "container", "job_name", "tenant")

FAULT_LABELS: Final[Mapping[str, Allowed]] = {
    "code": FREE,
    "class": ("memory", "interconnect", "compute", "thermal", "power", "firmware", "software", "unknown"),
    "severity": ("info", "degraded", "fatal"),
    "action": ("none", "restart_workload", "reset_device", "drain", "reboot_node", "replace", "recover_fabric"),
}
THROTTLE_REASONS: Final = ("power_cap", "thermal", "power_brake", "reliability", "sync_boost", "software", "other")
SENSORS: Final = ("die", "hotspot", "memory", "board", "vr", "inlet", "outlet", "edge", "soc")
MEMORIES: Final = ("device", "host", "sram")


class Metric(msgspec.Struct, frozen=True, kw_only=True):
    """One metric of the common schema. ``labels`` are those beyond the device's identity and its workload's."""

    name: str
    type: MetricType
    unit: str
    help: str
    labels: Mapping[str, Allowed] = {}
    scope: Literal["device", "vendor", "agent"] = "device"
    workload: bool = False
    """Carries namespace, pod, container, job_name and tenant: what a workload causes or feels."""
    section: str = ""
    """Where docs/metrics.md has it."""
    stability: Stability = "experimental"
    """stable: name, type, unit, meaning and labels stay; further values of a label may come."""
    otlp: str = ""
    """OpenTelemetry name where a convention exists; elsewhere the name follows from this one (exporter/otlp/names.py)."""


def _metric(
    name: str,
    kind: str,
    unit: str,
    help_: str,
    labels: Mapping[str, Allowed] | None = None,
    scope: Literal["device", "vendor", "agent"] = "device",
    otlp: str = "",
) -> Metric:
    """``kind`` is gauge or counter, with a ``*`` if the series carry the workload, and ``stable`` behind it if they are."""
    type_, _, stable = kind.partition(" ")
    return Metric(
        name="accel_" + name,
        type="counter" if type_.startswith("counter") else "gauge",
        unit=unit,
        help=help_,
        labels=labels or {},
        scope=scope,
        workload=type_.endswith("*"),
        stability="stable" if stable else "experimental",
        otlp=otlp,
    )


_FABRIC: Final[Mapping[str, Allowed]] = {"fabric": FREE, "link": FREE}
_MEMORY: Final[Mapping[str, Allowed]] = {"memory": MEMORIES}
_MEMORY_ERRORS: Final[Mapping[str, Allowed]] = {
    "correctable": ("true", "false"),
    "location": ("hbm", "sram", "l1", "l2", "register_file", "texture", "shared_memory", "cbu", "unknown", "host"),
}
_FABRIC_STATES: Final = ("not_started", "in_progress", "completed", "failed")

_TABLE: Final[Mapping[str, tuple[Metric, ...]]] = {
    "Identity and state": (
        _metric(
            "info", "gauge", "", "Facts of a device or of a part of one; the value is 1.",
            dict.fromkeys(
                (
                    "kind", "model", "serial", "pci_bus_id", "driver_version", "firmware_version", "numa_node",
                    "partition_uuid", "partition_profile", "device_class", "simulated",
                ),
                FREE,
            ),
            otlp="hw.gpu.info",
        ),
        _metric(
            "health_state", "gauge", "", "1 for the state that the device is in, 0 for the others; the rule for each vendor is in its page.",
            {"state": ("healthy", "degraded", "failed", "unknown")}, otlp="hw.status",
        ),
        _metric("devices_present", "gauge stable", "", "Devices on the PCI bus, asked of the kernel and not of the vendor's library.", scope="vendor"),
        _metric("devices_reporting", "gauge stable", "", "Devices that gave a sample which is not stale.", scope="vendor"),
        _metric("devices_expected", "gauge stable", "", "Devices that the configuration expects, else the most seen since the agent started.", scope="vendor"),
        _metric("capacity_memory_bytes", "gauge stable", "bytes", "Device memory of the whole device, whether or not its parts are allocated."),
        _metric("capacity_compute_units", "gauge", "", "Compute units (SM, CU, core) of the whole device, whether or not its parts are allocated."),
        _metric("compute_units", "gauge", "", "Compute units (SM, CU, core) of this device or part: the weight for averages of its ratios."),
        _metric("ecc_enabled", "gauge stable", "", "1 if error correction of the device memory is on."),
        _metric(
            "allocation_info", "gauge", "", "One for each container or job that a device or part is assigned to; the value is 1.",
            {
                "namespace": FREE, "pod": FREE, "pod_uid": FREE, "container": FREE, "job_name": FREE, "job_kind": FREE, "tenant": FREE,
                "queue": FREE, "served_model": FREE, "resource": FREE, "share": ("exclusive", "shared"), "replicas": FREE,
            },
        ),
        _metric("allocated", "gauge", "", "1 if any workload is assigned to the device or part."),
        _metric("allocated_seconds_total", "counter", "seconds", "Time for which a workload has been assigned, since the agent started."),
        _metric(
            "sample_timestamp_seconds", "gauge stable", "seconds", "Unix time of the newest sample; kept while the values are stale.",
            {"collector": FREE},
        ),
    ),
    "Temperature, power, energy": (
        _metric("temperature_celsius", "gauge* stable", "celsius", "Temperature by sensor.", {"sensor": SENSORS}, otlp="hw.temperature"),
        _metric(
            "temperature_limit_celsius", "gauge", "celsius", "The device's own temperature limits.",
            {"sensor": SENSORS, "limit": ("slowdown", "shutdown", "max_operating")}, otlp="hw.temperature.limit",
        ),
        _metric("power_watts", "gauge* stable", "watts", "Power draw of the device; the vendor defines over which time.", otlp="hw.power"),
        _metric(
            "power_limit_watts", "gauge", "watts", "Power limits.",
            {"limit": ("enforced", "default", "min", "max")}, otlp="hw.power.limit",
        ),
        _metric("energy_joules_total", "counter* stable", "joules", "Energy used: the vendor's counter, or integrated from power.", otlp="hw.energy"),
        _metric("fan_speed_ratio", "gauge", "ratio", "Fan speed as a share of its maximum; can exceed 1.", {"fan": FREE}, otlp="hw.fan.speed_ratio"),
        _metric("fan_speed_rpm", "gauge", "rpm", "Fan speed in revolutions per minute.", {"fan": FREE}, otlp="hw.fan.speed"),
        _metric("voltage_volts", "gauge", "volts", "Voltage by rail.", {"rail": FREE}, otlp="hw.voltage"),
    ),
    "Memory": (
        _metric("memory_total_bytes", "gauge stable", "bytes", "Memory of the device or part.", _MEMORY, otlp="hw.gpu.memory.limit"),
        _metric("memory_used_bytes", "gauge* stable", "bytes", "Memory in use.", _MEMORY, otlp="hw.gpu.memory.usage"),
        _metric("memory_free_bytes", "gauge stable", "bytes", "Memory that is free.", _MEMORY),
        _metric("memory_reserved_bytes", "gauge", "bytes", "Memory that driver or firmware keep to themselves.", _MEMORY),
        _metric("memory_category_bytes", "gauge*", "bytes", "Memory in use by what it is used for.", {**_MEMORY, "category": FREE}),
        _metric("memory_bandwidth_active_ratio", "gauge*", "ratio", "Share of cycles, or of time, in which device memory moved data."),
        _metric("memory_read_bytes_total", "counter*", "bytes", "Bytes read from device memory."),
        _metric("memory_written_bytes_total", "counter*", "bytes", "Bytes written to device memory."),
        _metric("memory_read_bytes_per_second", "gauge*", "bytes_per_second", "Rate of reading device memory, where the vendor counts no bytes."),
        _metric("memory_written_bytes_per_second", "gauge*", "bytes_per_second", "Rate of writing device memory, where the vendor counts no bytes."),
    ),
    "Utilization and efficiency": (
        _metric(
            "utilization_ratio", "gauge* stable", "ratio", "Share of time in which anything at all ran: the figure that flatters.",
            otlp="hw.gpu.utilization",
        ),
        _metric("compute_active_ratio", "gauge*", "ratio", "Share of compute units at work, over all units and time (SM efficiency)."),
        _metric("compute_occupancy_ratio", "gauge*", "ratio", "Resident work over the most that could be resident."),
        _metric("matrix_active_ratio", "gauge*", "ratio", "Share of cycles in which the matrix (tensor) engines worked."),
        _metric("pipe_active_ratio", "gauge*", "ratio", "Share of cycles in which an arithmetic pipe worked.", {"pipe": FREE}),
        _metric("media_utilization_ratio", "gauge*", "ratio", "Utilization of media engines.", {"engine": FREE}, otlp="hw.gpu.utilization"),
        _metric("flops_per_second", "gauge*", "flops_per_second", "Achieved floating point operations, where the vendor tells."),
    ),
    "Clocks and throttling": (
        _metric("clock_hertz", "gauge stable", "hertz", "Clock rate.", {"domain": ("core", "memory", "media", "fabric")}, otlp="hw.frequency"),
        _metric(
            "clock_limit_hertz", "gauge", "hertz", "Clock limits.",
            {"domain": ("core", "memory", "media", "fabric"), "limit": ("max", "application")}, otlp="hw.frequency.limit",
        ),
        _metric(
            "throttle_active", "gauge*", "", "1 while the reason slows the device down. Reasons overlap: never sum them.",
            {"reason": THROTTLE_REASONS},
        ),
        _metric("throttle_seconds_total", "counter", "seconds", "Time for which the reason slowed the device down.", {"reason": THROTTLE_REASONS}),
    ),
    "Links": (
        _metric("pcie_received_bytes_total", "counter", "bytes", "Bytes that the device received over PCIe.", otlp="hw.gpu.io"),
        _metric("pcie_sent_bytes_total", "counter", "bytes", "Bytes that the device sent over PCIe.", otlp="hw.gpu.io"),
        _metric(
            "pcie_received_bytes_per_second", "gauge", "bytes_per_second", "PCIe rate towards the device, where the vendor counts no bytes.",
            otlp="hw.gpu.io.rate",
        ),
        _metric(
            "pcie_sent_bytes_per_second", "gauge", "bytes_per_second", "PCIe rate from the device, where the vendor counts no bytes.",
            otlp="hw.gpu.io.rate",
        ),
        _metric("pcie_errors_total", "counter", "", "PCIe errors.", {"severity": ("correctable", "nonfatal", "fatal")}),
        _metric("pcie_replays_total", "counter", "", "PCIe packets sent again."),
        _metric("pcie_link_width", "gauge stable", "", "PCIe lanes in use."),
        _metric("pcie_link_max_width", "gauge stable", "", "PCIe lanes that the link could have."),
        _metric("pcie_link_generation", "gauge stable", "", "PCIe generation in use; drops while idle."),
        _metric("pcie_link_max_generation", "gauge stable", "", "PCIe generation that the link could have."),
        _metric("interconnect_received_bytes_total", "counter", "bytes", "Bytes received over device-to-device links.", _FABRIC),
        _metric("interconnect_sent_bytes_total", "counter", "bytes", "Bytes sent over device-to-device links.", _FABRIC),
        _metric(
            "interconnect_received_bytes_per_second", "gauge", "bytes_per_second",
            "Rate of receiving over device-to-device links, where the vendor counts no bytes.", _FABRIC,
        ),
        _metric(
            "interconnect_sent_bytes_per_second", "gauge", "bytes_per_second",
            "Rate of sending over device-to-device links, where the vendor counts no bytes.", _FABRIC,
        ),
        _metric("interconnect_errors_total", "counter", "", "Errors of device-to-device links.", {**_FABRIC, "error": FREE}),
        _metric("interconnect_links_up", "gauge", "", "Device-to-device links that are up.", {"fabric": FREE}),
        _metric("interconnect_links", "gauge", "", "Device-to-device links that the device has.", {"fabric": FREE}),
        _metric("interconnect_link_up", "gauge", "", "1 if the link is up (with links: each).", _FABRIC),
        _metric("fabric_state", "gauge", "", "1 for the state that the device's fabric is in, 0 for the others.", {"state": _FABRIC_STATES}),
    ),
    "Errors": (
        _metric("memory_errors_total", "counter*", "", "Memory errors since driver load or reset.", _MEMORY_ERRORS, otlp="hw.errors"),
        _metric("memory_errors_lifetime_total", "counter", "", "Memory errors over the device's life.", _MEMORY_ERRORS),
        _metric(
            "memory_repairs", "gauge", "", "Repairs done: pages retired, rows remapped.",
            {"kind": ("retired_page", "remapped_row"), "cause": ("correctable", "uncorrectable", "unknown")},
        ),
        _metric("memory_repair_pending", "gauge", "", "1 if a repair waits for a reset.", {"kind": ("retired_page", "remapped_row")}),
        _metric("memory_repair_failed", "gauge", "", "1 if a repair failed.", {"kind": ("retired_page", "remapped_row")}),
        _metric(
            "memory_repair_banks", "gauge", "", "Memory banks by how many spare rows they have left.",
            {"availability": ("max", "high", "partial", "low", "none")},
        ),
        _metric("faults_total", "counter*", "", "Fault events of the device since the agent started."),
        _metric("fault_code_total", "counter*", "", "Fault events by the vendor's code; appears when a code is first seen.", FAULT_LABELS),
        _metric("fault_last_timestamp_seconds", "gauge*", "seconds", "Unix time of the last event of this code: alert on it.", FAULT_LABELS),
        _metric(
            "recovery_action", "gauge", "", "1 for the action that the device needs, from the vendor or implied by its faults.",
            {"action": FAULT_LABELS["action"]},
        ),
        _metric("execution_errors_total", "counter*", "", "Errors of the runtime that executes work on the device.", {"error": FREE}),
        _metric(
            "execution_latency_seconds", "gauge*", "seconds", "Latency of executions on the device.",
            {"percentile": ("p0", "p1", "p25", "p50", "p75", "p90", "p95", "p99", "p99_9", "p100", "mean"), "phase": FREE},
        ),
    ),
    "Per container and process": (
        _metric(
            "container_memory_used_bytes", "gauge", "bytes", "Device memory in use by one container of a shared device.",
            {"namespace": FREE, "pod": FREE, "container": FREE},
        ),
        _metric(
            "container_utilization_ratio", "gauge", "ratio", "Utilization by one container of a shared device.",
            {"namespace": FREE, "pod": FREE, "container": FREE},
        ),
        _metric("processes", "gauge", "", "Processes that use the device."),
        _metric("process_memory_used_bytes", "gauge", "bytes", "Device memory in use by one process.", {"pid": FREE}),
    ),
    "Provenance": (
        _metric(
            "metric_source_info", "gauge", "", "Which raw series or native field feeds a common metric, and how exactly; the value is 1.",
            {"metric": FREE, "source": FREE, "exactness": ("exact", "approximate", "derived", "estimated")}, scope="vendor",
        ),
    ),
}  # fmt: skip

METRICS: Final[Mapping[str, Metric]] = {
    metric.name: msgspec.structs.replace(metric, section=section)
    for section, table in _TABLE.items()
    for metric in table
}
