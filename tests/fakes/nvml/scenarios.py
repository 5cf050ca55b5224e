"""The standard worlds of the NVIDIA tests, and the troubles that can be put on each of them."""

from __future__ import annotations

import time
from collections.abc import Collection

from tests.fakes.nvml import boards
from tests.fakes.nvml.gpus import MIB
from tests.fakes.nvml.model import Scenario, Value, system

XID_EVENT = 0x8
MIG_CONFIG_EVENT = 0x100

NOT_BEFORE_NVML_13_1 = frozenset({"nvmlDeviceGetUnrepairableMemoryFlag_v1"})

NOT_IN_NVML_12_2 = NOT_BEFORE_NVML_13_1 | {
    "nvmlDeviceGetGpuFabricInfoV",
    "nvmlDeviceGetMarginTemperature",
    "nvmlDeviceGetNumaNodeId",
    "nvmlDeviceGetPlatformInfo",
    "nvmlDeviceGetSramEccErrorStatus",
    "nvmlDeviceGetTemperatureV",
}
"""By the header of NVML 12.2, the R535 branch."""

NOT_IN_NVML_11_4 = NOT_IN_NVML_12_2 | {
    "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlDeviceGetConfComputeMemSizeInfo",
    "nvmlDeviceGetCurrentClocksEventReasons",
    "nvmlDeviceGetGpuFabricInfo",
    "nvmlDeviceGetGraphicsRunningProcesses_v3",
    "nvmlDeviceGetGspFirmwareVersion",
    "nvmlDeviceGetJpgUtilization",
    "nvmlDeviceGetMPSComputeRunningProcesses_v3",
    "nvmlDeviceGetMemoryBusWidth",
    "nvmlDeviceGetMemoryInfo_v2",
    "nvmlDeviceGetModuleId",
    "nvmlDeviceGetNumFans",
    "nvmlDeviceGetNumGpuCores",
    "nvmlDeviceGetOfaUtilization",
    "nvmlDeviceGetRunningProcessDetailList",
    "nvmlGpmMetricsGet",
    "nvmlGpmMigSampleGet",
    "nvmlGpmQueryDeviceSupport",
    "nvmlGpmSampleAlloc",
    "nvmlGpmSampleFree",
    "nvmlGpmSampleGet",
}
"""By the header of NVML 11.4, the R470 branch."""


def h100(gpus: int = 8) -> Scenario:
    """A Hopper node, driver 580. GPU i runs process 4000+i with 9000+i MiB, 60+i % of the SMs, seen at 1000000+i µs."""
    scenario = system("580.95.05", "13.580.95.05", 13000).with_missing(NOT_BEFORE_NVML_13_1)
    for i in range(gpus):
        scenario = scenario.with_keys(f"gpu {i}", boards.h100(i, gpus))
    for i in range(gpus):
        scenario = scenario.with_keys(
            f"process {i}.0",
            {
                "pid": 4000 + i,
                "memory": (9_000 + i) * MIB,
                "name": "/usr/bin/train",
                "sm": 60 + i,
                "mem": 30 + i,
                "enc": 0,
                "dec": 0,
                "timestamp_us": 1_000_000 + i,
            },
        )
    return scenario


def a100_mig(absent_slots: Collection[int] = ()) -> Scenario:
    """Two A100, driver 580: GPU 0 is cut into 1g.5gb, one in each slot that is not absent; GPU 1 is whole.

    Slot s holds GPU instance 7+s and runs process 5000+s with 1+s MiB.
    """
    scenario = system("580.95.05", "13.580.95.05", 13000).with_missing(NOT_BEFORE_NVML_13_1)
    scenario = scenario.with_keys("gpu 0", boards.a100_without_whole_gpu_utilization(0))
    scenario = scenario.with_keys("gpu 1", boards.a100(1))
    for slot in range(7):
        if slot not in absent_slots:
            scenario = scenario.with_keys(f"mig 0.{slot}", boards.mig_1g_5gb(0, slot))
            process: dict[str, Value] = {"pid": 5000 + slot, "memory": (1 + slot) * MIB, "gi": 7 + slot, "ci": 0}
            scenario = scenario.with_keys(f"process 0.{slot}", process)
    return scenario


def h100_mig() -> Scenario:
    """One H100 in MIG mode, so GPM by GPU instance: slot 0 is 3g.40gb in instance 2, slot 2 is 1g.10gb in instance 9.

    Instance 5 has no compute instance. Metric m of the instances is the whole GPU's divided by 2 and by 4.
    """
    scenario = h100(1)
    whole = scenario.keys("gpu 0")
    metrics = {key: float(value) for key, value in whole.items() if key.startswith("gpm.")}
    gone = [key for key in whole if key.startswith("util.")]
    scenario = scenario.without_keys("gpu 0", gone).with_keys("gpu 0", {"mig_mode": 1, "mig_pending": 1})
    for slot, gi, profile, name, share in ((0, 2, 9, "3g.40gb", 2), (2, 9, 19, "1g.10gb", 4)):
        device = boards.mig_1g_5gb(0, slot) | {
            "name": f"NVIDIA H100 80GB HBM3 MIG {name}",
            "uuid": f"MIG-48100000-0000-5000-8000-{slot:012x}",
            "gi": gi,
            "profile_id": profile,
        }
        scenario = scenario.with_keys(
            f"mig 0.{slot}", {**device, **{key: value / share for key, value in metrics.items()}}
        )
    return scenario.with_keys("gi 0.5", {"profile_id": 14, "placement_start": 4, "placement_size": 2})


def t4() -> Scenario:
    """A Turing node with driver 470: no second memory call, no third process call, no GPM, no event reasons."""
    scenario = system("470.256.02", "11.470.256.02", 11040).with_missing(NOT_IN_NVML_11_4)
    scenario = scenario.with_keys("gpu 0", boards.t4(0))
    return scenario.with_keys("process 0.0", {"pid": 3000, "memory": 700 * MIB})


def b200(gpus: int = 4, grace: bool = False) -> Scenario:
    """A Blackwell node, driver 595; with ``grace`` a GB200 node."""
    scenario = system("595.45.04", "13.595.45.04", 13020)
    for i in range(gpus):
        scenario = scenario.with_keys(f"gpu {i}", boards.b200(i, gpus, grace))
    return scenario


def gb10() -> Scenario:
    """A desktop with unified memory: one process, whose memory is told, and no memory of the device."""
    scenario = system("580.95.05", "13.580.95.05", 13000).with_missing(NOT_BEFORE_NVML_13_1)
    return scenario.with_keys("gpu 0", boards.gb10()).with_keys("process 0.0", {"pid": 2000, "memory": 512 * MIB})


def r535_early() -> Scenario:
    """An early R535 driver: records of 32 bytes under the symbol whose records have 24. GPU 0 runs three processes."""
    lacking = NOT_IN_NVML_12_2 | {"nvmlDeviceGetRunningProcessDetailList"}
    scenario = system("535.43.02", "12.535.43.02", 12020, process_record_bytes=32).with_missing(lacking)
    scenario = scenario.with_keys("gpu 0", boards.a100(0) | {"conf.protected_kib": 0, "conf.unprotected_kib": 41943040})
    for n in range(3):
        scenario = scenario.with_keys(f"process 0.{n}", {"pid": 6000 + n, "memory": (100 + n) * MIB})
    return scenario


def zero_gpus() -> Scenario:
    """The driver is loaded and finds nothing."""
    return system("580.95.05", "13.580.95.05", 13000)


def no_driver() -> Scenario:
    """The library is there, the kernel module is not."""
    return fails(zero_gpus(), "system", "nvmlInitWithFlags", 9)


def version_skew() -> Scenario:
    """The library was upgraded under a running kernel module."""
    return fails(zero_gpus(), "system", "nvmlInitWithFlags", 18)


def no_permission(scenario: Scenario, *indices: int) -> Scenario:
    """The GPUs are counted, but their device nodes may not be opened: those of the indices, or all."""
    for header in scenario.headers("gpu"):
        if not indices or int(header.split(" ")[1]) in indices:
            scenario = scenario.with_keys(
                header, {"rc.nvmlDeviceGetHandleByIndex_v2": 4, "rc.nvmlDeviceGetHandleByUUID": 4}
            )
    return scenario


def fails(scenario: Scenario, section: str, function: str, rc: int) -> Scenario:
    """The function answers this code for the section's device; in ``system`` for all."""
    return scenario.with_keys(section, {f"rc.{function}": rc})


def lost(scenario: Scenario, index: int) -> Scenario:
    """The GPU has fallen off the bus: whatever is asked of it, or of its parts, answers 15."""
    return scenario.with_keys(f"gpu {index}", {"rc": 15})


def hangs(scenario: Scenario, section: str, function: str) -> Scenario:
    """The function does not come back; the thread that called it takes no signal but SIGKILL."""
    return scenario.with_keys(section, {f"hang.{function}": 1})


def crashes(scenario: Scenario, section: str, function: str) -> Scenario:
    """The function ends its process with SIGSEGV."""
    return scenario.with_keys(section, {f"crash.{function}": 1})


def slow(scenario: Scenario, section: str, function: str, milliseconds: int) -> Scenario:
    """The function takes so long more."""
    return scenario.with_keys(section, {f"delay_ms.{function}": milliseconds})


def noisy(scenario: Scenario, text: str = "NVRM: chatter on stdout") -> Scenario:
    """The library writes a line to file descriptor 1 on every call."""
    return scenario.with_keys("system", {"stdout_noise": text})


def xid(scenario: Scenario, gpu: int, code: int, instance: tuple[int, int] | None = None) -> Scenario:
    """The GPU raises this Xid now, for those who have registered before; ``instance`` is GPU and compute instance."""
    return event(scenario, gpu, XID_EVENT, code, instance)


def event(scenario: Scenario, gpu: int, kind: int, data: int, instance: tuple[int, int] | None = None) -> Scenario:
    """One event more, now."""
    number = 1 + max((int(header.split(" ")[1]) for header in scenario.headers("event")), default=-1)
    keys: dict[str, Value] = {"gpu": gpu, "type": kind, "data": data, "at": f"{time.time():.6f}"}
    if instance is not None:
        keys |= {"gi": instance[0], "ci": instance[1]}
    return scenario.with_keys(f"event {number}", keys)
