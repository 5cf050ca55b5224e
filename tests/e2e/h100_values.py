"""What the agent has to say of GPU i of the H100 world: by the world's formulas and the documents on the series."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from tests.e2e.worlds import NODE
from tests.fakes.nvml import gpus
from tests.fakes.nvml.gpus import GPM_RATIOS, MIB

DRIVER: Final = "580.95.05"
LINKS: Final = gpus.NVLINKS
ENERGY: Final = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"
BANDWIDTH: Final = "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL"

Labels = tuple[tuple[str, str], ...]


def uuid(i: int) -> str:
    return gpus.uuid(0x48100000, i)


def raw_labels(i: int) -> dict[str, str]:
    """The labels that dcgm-exporter gives a GPU's series."""
    return {
        "gpu": str(i),
        "UUID": uuid(i),
        "pci_bus_id": gpus.pci(i),
        "device": f"nvidia{i}",
        "modelName": "NVIDIA H100 80GB HBM3",
        "Hostname": NODE,
        "DCGM_FI_DRIVER_VERSION": DRIVER,
    }


def raw_default(i: int) -> dict[str, float]:
    """The 25 series that dcgm-exporter's default counters file switches on, but for the two that move."""
    used_mib = 10_000 + 100 * i
    return {
        "DCGM_FI_DEV_SM_CLOCK": 1980 - 15 * i,
        "DCGM_FI_DEV_MEM_CLOCK": 2619,
        "DCGM_FI_DEV_MEMORY_TEMP": 60 + i,
        "DCGM_FI_DEV_GPU_TEMP": 50 + i,
        "DCGM_FI_DEV_POWER_USAGE": 310 + i,
        "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": 9 + i,
        "DCGM_FI_DEV_GPU_UTIL": 90 + i,
        "DCGM_FI_DEV_MEM_COPY_UTIL": 40 + i,
        "DCGM_FI_DEV_ENC_UTIL": i,
        "DCGM_FI_DEV_DEC_UTIL": 10 + i,
        "DCGM_FI_DEV_XID_ERRORS": 0,
        # Half a MiB more is in use; both sides are rounded down.
        "DCGM_FI_DEV_FB_USED": used_mib,
        "DCGM_FI_DEV_FB_FREE": 81559 - 479 - used_mib - 1,
        "DCGM_FI_DEV_FB_RESERVED": 479,
        "DCGM_FI_DEV_VGPU_LICENSE_STATUS": 0,
        "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": 0,
        "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS": i,
        "DCGM_FI_DEV_ROW_REMAP_FAILURE": 0,
        "DCGM_FI_PROF_GR_ENGINE_ACTIVE": (GPM_RATIOS[1] + i) / 100,
        "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": (GPM_RATIOS[5] + i) / 100,
        "DCGM_FI_PROF_DRAM_ACTIVE": (GPM_RATIOS[10] + i) / 100,
        "DCGM_FI_PROF_PCIE_TX_BYTES": (1000 + i) * MIB,
        "DCGM_FI_PROF_PCIE_RX_BYTES": (2000 + i) * MIB,
    }


def energy_millijoules(i: int, seconds: float) -> float:
    """The energy counter so long after the scenario's epoch."""
    return 1_000_000_000_000 + 1_000_000_000 * i + (310_000 + 1_000 * i) * seconds


def link_bandwidth() -> float:
    """Both directions of all links in what DCGM calls MB/s: link n sends n+1 and receives 2(n+1) MiB/s."""
    kib_per_second = sum(3 * (n + 1) * 1024 for n in range(LINKS))
    return kib_per_second / 1000


def link_bytes(i: int, direction: int, seconds: float) -> float:
    """Bytes that all links have sent (0) or received (1) so long after the epoch."""
    start = sum(gpus.nvlink_kib(i, n)[direction] for n in range(LINKS))
    return 1024 * (start + (direction + 1) * sum(n + 1 for n in range(LINKS)) * 1024 * seconds)


def common_labels(i: int) -> dict[str, str]:
    return {"vendor": "nvidia", "device": str(i), "uuid": uuid(i), "node": NODE}


_WORKLOAD: Final = frozenset(
    f"accel_{name}"
    for name in (
        "temperature_celsius", "power_watts", "energy_joules_total", "memory_used_bytes", "throttle_active",
        "memory_bandwidth_active_ratio", "utilization_ratio", "compute_active_ratio", "compute_occupancy_ratio",
        "matrix_active_ratio", "pipe_active_ratio", "media_utilization_ratio", "memory_errors_total", "faults_total",
    )
)  # fmt: skip
"""The metrics that say who works on the device: empty where nobody does."""


def workload_labels(metric: str) -> dict[str, str]:
    return dict.fromkeys(("namespace", "pod", "container", "job_name", "tenant"), "") if metric in _WORKLOAD else {}


Series = tuple[tuple[str, Labels], float]


def common(i: int) -> Mapping[tuple[str, Labels], float]:
    """The series of the common schema, by name and further labels, but for those that move."""
    return dict((*_state(i), *_activity(i), *_links_and_errors(i)))


def _series(metric: str, value: float, **labels: str) -> Series:
    return (f"accel_{metric}", tuple(sorted(labels.items()))), value


def _state(i: int) -> Iterator[Series]:
    yield _series(
        "info", 1, kind="gpu", model="NVIDIA H100 80GB HBM3", serial=str(1650000000100 + i), pci_bus_id=gpus.pci(i),
        driver_version=DRIVER, firmware_version=f"96.00.A5.00.{i:02X}", numa_node=str(i // 4),
    )  # fmt: skip
    for state in ("healthy", "degraded", "failed", "unknown"):
        yield _series("health_state", int(state == "healthy"), state=state)
    yield _series("ecc_enabled", 1)
    yield _series("temperature_celsius", 50 + i, sensor="die")
    yield _series("temperature_celsius", 60 + i, sensor="memory")
    yield _series("power_watts", 310 + i)
    for limit, watts in (("enforced", 680), ("default", 695), ("min", 200), ("max", 700)):
        yield _series("power_limit_watts", watts, limit=limit)
    used = (10_000 + 100 * i) * MIB
    yield _series("capacity_memory_bytes", 81559 * MIB)
    yield _series("memory_total_bytes", 81559 * MIB, memory="device")
    yield _series("memory_used_bytes", used, memory="device")
    yield _series("memory_free_bytes", (81559 - 479 - 1) * MIB - used, memory="device")
    yield _series("memory_reserved_bytes", 479 * MIB, memory="device")
    for domain, mhz in (("core", 1980 - 15 * i), ("memory", 2619), ("media", 1500 + i)):
        yield _series("clock_hertz", mhz * 1e6, domain=domain)
    for domain, limit, mhz in (
        ("core", "max", 1980), ("memory", "max", 2619), ("media", "max", 1545),
        ("core", "application", 1950), ("memory", "application", 2618),
    ):  # fmt: skip
        yield _series("clock_limit_hertz", mhz * 1e6, domain=domain, limit=limit)
    for reason in ("power_cap", "thermal", "power_brake", "sync_boost", "other"):
        yield _series("throttle_active", i % 2 if reason == "power_cap" else 0, reason=reason)
    # Field n of NVML is (n - 73) s + i ns: 74 power, 75 thermal, 76 sync boost, 79 reliability; 271 is n s + i ns.
    for reason, seconds in (
        ("power_cap", 1),
        ("thermal", 2),
        ("sync_boost", 3),
        ("reliability", 6),
        ("power_brake", 271),
    ):
        yield _series("throttle_seconds_total", seconds + i / 1e9, reason=reason)
    yield _series("processes", 1)


def _activity(i: int) -> Iterator[Series]:
    yield _series("utilization_ratio", (90 + i) / 100)
    yield _series("compute_active_ratio", (GPM_RATIOS[2] + i) / 100)
    yield _series("compute_occupancy_ratio", (GPM_RATIOS[3] + i) / 100)
    yield _series("matrix_active_ratio", (GPM_RATIOS[5] + i) / 100)
    yield _series("memory_bandwidth_active_ratio", (GPM_RATIOS[10] + i) / 100)
    for pipe, metric in (("int", 4), ("fp64", 11), ("fp32", 12), ("fp16", 13)):
        yield _series("pipe_active_ratio", (GPM_RATIOS[metric] + i) / 100, pipe=pipe)
    for place, engine in enumerate(("encoder", "decoder", "jpeg", "ofa")):
        yield _series("media_utilization_ratio", (10 * place + i) / 100, engine=engine)


def _links_and_errors(i: int) -> Iterator[Series]:
    yield _series("pcie_sent_bytes_per_second", (1000 + i) * MIB)
    yield _series("pcie_received_bytes_per_second", (2000 + i) * MIB)
    yield _series("pcie_errors_total", 3 + i, severity="correctable")
    yield _series("pcie_replays_total", 9 + i)
    yield _series("pcie_link_width", 16)
    yield _series("pcie_link_max_width", 16)
    yield _series("pcie_link_generation", 4)
    yield _series("pcie_link_max_generation", 5)
    replays = sum(range(LINKS))
    for error, count in (("replay", replays), ("recovery", 0), ("crc", replays + LINKS * i), ("crc_data", 0)):
        yield _series("interconnect_errors_total", count, fabric="nvlink", error=error)
    yield _series("interconnect_links", LINKS, fabric="nvlink")
    yield _series("interconnect_links_up", LINKS, fabric="nvlink")
    for state in ("not_started", "in_progress", "completed", "failed"):
        yield _series("fabric_state", int(state == "completed"), state=state)
    for correctable, since_load, lifetime in (("true", i, 100 + i), ("false", 0, 0)):
        yield _series("memory_errors_total", since_load, correctable=correctable, location="unknown")
        yield _series("memory_errors_lifetime_total", lifetime, correctable=correctable, location="unknown")
    yield _series("memory_repairs", i, kind="remapped_row", cause="correctable")
    yield _series("memory_repairs", 0, kind="remapped_row", cause="uncorrectable")
    yield _series("memory_repair_pending", 0, kind="remapped_row")
    yield _series("memory_repair_failed", 0, kind="remapped_row")
    for availability, banks in (("max", 640 - i), ("high", i), ("partial", 0), ("low", 0), ("none", 0)):
        yield _series("memory_repair_banks", banks, availability=availability)
    yield _series("faults_total", 0)
    for action in ("none", "reset_device", "reboot_node", "drain", "recover_fabric"):
        yield _series("recovery_action", int(action == "none"), action=action)


MOVING: Final = frozenset(
    f"accel_{name}"
    for name in (
        "energy_joules_total", "interconnect_sent_bytes_total", "interconnect_received_bytes_total",
        "sample_timestamp_seconds",
    )
)  # fmt: skip
"""Metrics of a device that ``common`` leaves out."""
