"""Shapes of instance types, and the numbers that their driver and neuron-monitor tell, by formula."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

Layout = Literal["exit_counts", "live_counts", "moved", "strange"]
GIB: Final = 2**30
MIB: Final = 2**20
CATEGORIES: Final = ("constants", "model_code", "model_shared_scratchpad", "runtime_memory", "tensors")
STATUSES: Final = (
    "success", "failure", "timeout", "exec_bad_input", "hw_error", "execute_completed_with_error",
    "execute_completed_with_num_error", "generic_error", "resource_error", "resource_nc_error",
    "execute_failed_to_queue", "invalid_error", "unsupported_neff_version", "oob_error", "hw_collectives_error",
    "hw_hbm_ue_error", "hw_nc_ue_error", "hw_dma_abort_error", "execute_sw_nq_overflow", "execute_sw_semaphore_error",
    "execute_sw_event_error", "execute_sw_psum_collision", "execute_sw_sequencer_fatal", "hw_repairable_hbm_ue_error",
)  # fmt: skip
RUNTIME_STATUSES: Final = (
    "completed", "completed_with_err", "completed_with_num_err", "timed_out", "incorrect_input", "failed_to_queue",
)  # fmt: skip
ERROR_KINDS: Final = ("generic", "numerical", "transient", "model", "runtime", "hardware")
OTHER_INFO: Final = (
    "model_load_count", "reset_req_count", "reset_fail_count", "inference_count", "flop_count", "nc_time_in_use",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Machine:
    """An instance type. Names are those that driver and tools of its generation use."""

    instance_type: str
    devices: int
    physical: int
    """Physical NeuronCores of a device."""
    memory_bytes: int
    device_name: str
    arch: str
    core_arch: str
    device_type: str
    pci_id: str
    driver: str
    lnc: int = 1
    layout: Layout = "exit_counts"
    ecc: bool = True
    serials: bool = True
    tells_lnc: bool = False

    @property
    def cores(self) -> int:
        """Logical NeuronCores of a device."""
        return self.physical // self.lnc

    def serial(self, device: int) -> str:
        return f"19fcda00f5ff{0x6E00 + device:04x}"

    def bdf(self, device: int) -> str:
        return f"{0xA0 + device // 4 * 16:02x}:{0x1B + device % 4:02x}.0"


MACHINES: Final[Mapping[str, Machine]] = {
    "inf1": Machine(
        "inf1.6xlarge", 4, 4, 8 * GIB, "Inferentia", "NDv1", "NCv1", "inferentia", "0x7064", "2.24.13.0",
        ecc=False, serials=False,
    ),
    "inf2": Machine("inf2.8xlarge", 1, 2, 32 * GIB, "Inferentia2", "NDv3", "NCv2", "inferentia2", "0x7264", "2.24.7.0"),
    "trn1": Machine("trn1.32xlarge", 16, 2, 32 * GIB, "Trainium1", "NDv2", "NCv2", "trainium", "0x7164", "2.28.4.0"),
    "trn2": Machine(
        "trn2.48xlarge", 2, 8, 96 * GIB, "Trainium2", "NDv3", "NCv3", "trainium2", "0x7364", "2.30.2.0",
        lnc=2, layout="live_counts", tells_lnc=True,
    ),
    "trn2_lnc1": Machine(
        "trn2.48xlarge", 2, 8, 96 * GIB, "Trainium2", "NDv3", "NCv3", "trainium2", "0x7364", "2.30.2.0",
        layout="live_counts", tells_lnc=True,
    ),
    "trn3": Machine(
        "trn3.48xlarge", 2, 8, 144 * GIB, "Trainium3", "NDv4", "NCv4", "trainium3", "0x7464", "2.31.7.0",
        lnc=2, layout="moved", tells_lnc=True,
    ),
}  # fmt: skip
"""Trainium3's PCI id, sysfs layout and names are not published: these stand for any that are new."""


# What the driver tells


def device_memory(device: int, core: int) -> int:
    """Bytes in use of a physical core."""
    return (device + 1) * GIB + core * MIB


def category_memory(device: int, core: int, place: int) -> int:
    """Bytes of the category at this place of the list."""
    return (device + 1) * MIB + core * 4096 + place


def ecc_events(machine: Machine) -> Mapping[str, int]:
    """What device d says is d more."""
    if not machine.ecc:
        return {}
    found = {"mem_ecc_uncorrected": 3, "mem_ecc_repairable_uncorrected": 0, "sram_ecc_uncorrected": 1}
    if machine.layout != "exit_counts":
        found |= {"mem_ecc_repairable_uncorrected": 2, "mem_ecc_corrected": 70, "sram_ecc_corrected": 7}
    return found


def status_count(device: int, core: int, name: str) -> int:
    return 0 if name.startswith("hw_") else 100 * device + 10 * core + STATUSES.index(name)


def other_count(device: int, core: int, name: str) -> int:
    return 1000 * (device + 1) + 100 * core + OTHER_INFO.index(name)


def pe_text(matmul: int, weights: int, idle: int) -> str:
    """pe_cntrs with the same numbers in each of the four groups of rows."""
    rows = "".join(f"{row},{matmul},{weights},{idle}\n" for row in range(4))
    return f"xrow_grp,mm_active,wl_active,idle\n{rows}"


# What neuron-monitor tells

INSTANCE: Final[Mapping[str, str]] = {
    "instance_name": "",
    "instance_id": "i-0a1b2c3d4e5f60718",
    "instance_availability_zone": "us-east-1b",
    "instance_availability_zone_id": "use1-az2",
    "instance_region": "us-east-1",
    "ami_id": "ami-0123456789abcdef0",
    "subnet_id": "subnet-1a2b3c4d",
}
"""instance_name is empty where aws-cli is not there, as on most nodes."""


@dataclass(frozen=True, slots=True)
class RuntimeData:
    """A process. It lists every core of the machine, and uses some."""

    pid: int
    tag: str
    cores: Mapping[int, float]
    """Logical core, through the node → percent."""
    completed: int = 100
    errors: Mapping[str, int] = field(default_factory=dict)
    latency: Mapping[str, float] | None = None
    effective_flops: float | None = None
    physical: Mapping[int, Mapping[int, float]] = field(default_factory=dict)
    """Logical core → physical core, through the node → percent."""
    broken: Mapping[str, str] = field(default_factory=dict)
    """Group → its error."""


def runtime_memory(core: int) -> Mapping[str, int]:
    """Bytes by category of a core that a runtime uses."""
    return {name: (core + 1) * MIB + place for place, name in enumerate(CATEGORIES)}


def report(
    machine: Machine,
    runtimes: Sequence[RuntimeData] = (),
    *,
    ecc: Mapping[int, Mapping[str, int]] | None = None,
    ultraserver: str = "",
) -> dict[str, Any]:
    """One report, as the tool gives it when it is asked for every group."""
    hardware: dict[str, Any] = {
        "neuron_device_type": machine.device_type,
        "neuron_device_count": machine.devices,
        "neuron_device_memory_size": machine.memory_bytes,
        "neuroncore_per_device_count": machine.cores,
        "error": "",
    }
    if machine.tells_lnc:
        hardware["logical_neuroncore_config"] = machine.lnc
    instance = {**INSTANCE, "instance_type": machine.instance_type, "error": ""}
    if ultraserver:
        instance["ultraserver_id"] = ultraserver
    return {
        "neuron_runtime_data": [_runtime(machine, runtime) for runtime in runtimes],
        "system_data": _system(machine, ecc or {}),
        "instance_info": instance,
        "neuron_hardware_info": hardware,
    }


def _runtime(machine: Machine, data: RuntimeData) -> dict[str, Any]:
    cores: dict[str, Any] = {}
    for index in range(machine.devices * machine.cores):
        cores[str(index)] = {"neuroncore_utilization": data.cores.get(index, 0), "flops": 0}
        if data.effective_flops is not None:
            cores[str(index)]["effective_flops"] = data.effective_flops if index in data.cores else 0
        if index in data.physical:
            behind = {f"nc_v3.{n}": {"neuroncore_utilization": used} for n, used in data.physical[index].items()}
            cores[str(index)]["v3d"] = behind
    memory = {str(index): dict(runtime_memory(index)) for index in data.cores}
    total = sum(sum(categories.values()) for categories in memory.values())
    groups: dict[str, dict[str, Any]] = {
        "neuroncore_counters": {"period": 5.0, "neuroncores_in_use": cores},
        "execution_stats": {
            "period": 5.0,
            "error_summary": {kind: data.errors.get(kind, 0) for kind in ERROR_KINDS},
            "execution_summary": {kind: data.completed if kind == "completed" else 0 for kind in RUNTIME_STATUSES},
            "latency_stats": {"total_latency": data.latency, "device_latency": None},
        },
        "memory_used": {
            "period": 5.0,
            "neuron_runtime_used_bytes": {
                "host": 6997643264,
                "neuron_device": total,
                "usage_breakdown": {
                    "host": {"application_memory": 6997643264, "constants": 0, "dma_buffers": 0, "tensors": 0},
                    "neuroncore_memory_usage": memory,
                },
            },
            "loaded_models": [{"name": "m.neff", "model_id": 10005, "subgraphs": {"sg_00": {"neuroncore_index": 0}}}],
        },
        "neuron_runtime_vcpu_usage": {"period": 5.0, "vcpu_usage": {"user": 42.5, "system": 12.25}},
    }
    for name, group in groups.items():
        group["error"] = data.broken.get(name, "")
    return {"pid": data.pid, "address": "", "neuron_runtime_tag": data.tag, "error": "", "report": groups}


def _system(machine: Machine, ecc: Mapping[int, Mapping[str, int]]) -> dict[str, Any]:
    events = ("mem_ecc_corrected", "mem_ecc_uncorrected", "sram_ecc_corrected", "sram_ecc_uncorrected")
    devices = [
        {"neuron_device_index": index, **{event: ecc.get(index, {}).get(event, 0) for event in events}}
        for index in range(machine.devices)
    ]
    usage = {"user": 30.5, "nice": 0.5, "system": 10, "idle": 50, "io_wait": 2.0, "irq": 0, "soft_irq": 0.5}
    return {
        "neuron_hw_counters": {"period": 5.0, "neuron_devices": devices, "error": ""},
        "vcpu_usage": {
            "period": 5.0,
            "average_usage": usage,
            "usage_data": {str(cpu): {"user": 0.5} for cpu in range(8)},
            "context_switch_count": 123456,
            "error": "",
        },
        "memory_info": {
            "period": 5.0,
            "memory_total_bytes": 64 * GIB,
            "memory_used_bytes": 16 * GIB,
            "swap_total_bytes": 0,
            "swap_used_bytes": 0,
            "error": "",
        },
    }
