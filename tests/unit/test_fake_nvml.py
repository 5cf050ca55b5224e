"""The real binding reads from the fake library what the scenario says, function by function.

Expected numbers are worked out by hand from the formulas of the boards, for the GPU with the index that a row names.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.nvml import Installation, Scenario, install, scenarios
from tests.fakes.nvml.build import exported
from tests.fakes.nvml.probe import Answer, ask

pytestmark = pytest.mark.gcc

MIB = 1 << 20
NONE = 0xFFFFFFFF

OK, NOT_SUPPORTED, NOT_FOUND, INVALID, NO_SYMBOL, VERSION = 0, 3, 6, 2, 13, 25


@dataclass(frozen=True)
class Fails:
    """The return code that a row expects instead of a value."""

    rc: int


Row = tuple[list[Any], Any]

# GPU 3 of the H100 node: i = 3.
H100: list[Row] = [
    (["nvmlSystemGetDriverVersion"], "580.95.05"),
    (["nvmlSystemGetNVMLVersion"], "13.580.95.05"),
    (["nvmlSystemGetCudaDriverVersion"], 13000),
    (["nvmlSystemGetCudaDriverVersion_v2"], 13000),
    (["nvmlSystemGetProcessName", 4003], "/usr/bin/train"),
    (["nvmlSystemGetProcessName", 1], Fails(NOT_FOUND)),
    (["nvmlDeviceGetCount"], 8),
    (["nvmlErrorString", 15], "GPU is lost"),
    (["nvmlErrorString", 12345], "Unknown Error"),
    (["nvmlDeviceGetHandleByIndex", 8], Fails(INVALID)),
    (["index_of", "nvmlDeviceGetHandleByUUID", "GPU-48100000-0000-4000-8000-000000000003"], 3),
    (["nvmlDeviceGetHandleByUUID", "GPU-none"], Fails(NOT_FOUND)),
    (["index_of", "nvmlDeviceGetHandleByPciBusId", "00000000:5D:00.0"], 3),
    (["index_of", "nvmlDeviceGetHandleByPciBusId", "0000:5d:00.0"], 3),
    (["nvmlDeviceGetHandleByPciBusId", "0000:5e:00.0"], Fails(NOT_FOUND)),
    (["nvmlDeviceGetHandleByPciBusId", "gpu three"], Fails(INVALID)),
    (["nvmlDeviceGetName", "garbage"], Fails(INVALID)),
    (["nvmlDeviceGetName", "gpu:3"], "NVIDIA H100 80GB HBM3"),
    (["nvmlDeviceGetUUID", "gpu:3"], "GPU-48100000-0000-4000-8000-000000000003"),
    (["nvmlDeviceGetSerial", "gpu:3"], "1650000000103"),
    (["nvmlDeviceGetVbiosVersion", "gpu:3"], "96.00.A5.00.03"),
    (["nvmlDeviceGetInforomImageVersion", "gpu:3"], "G520.0200.00.05"),
    (["nvmlDeviceGetInforomVersion", "gpu:3", 0], "2.1"),
    (["nvmlDeviceGetInforomVersion", "gpu:3", 1], "7.16"),
    (["nvmlDeviceGetInforomVersion", "gpu:3", 2], Fails(NOT_SUPPORTED)),
    (["nvmlDeviceGetBoardPartNumber", "gpu:3"], "692-2G520-0000-000"),
    # The one text that the binding leaves as bytes; the probe shows bytes in hexadecimal.
    (["nvmlDeviceGetGspFirmwareVersion", "gpu:3"], b"580.95.05".hex()),
    (["nvmlDeviceGetIndex", "gpu:3"], 3),
    (["nvmlDeviceGetMinorNumber", "gpu:3"], 3),
    (["nvmlDeviceGetBrand", "gpu:3"], 14),
    (["nvmlDeviceGetArchitecture", "gpu:3"], 9),
    (["nvmlDeviceGetModuleId", "gpu:3"], 4),
    (["nvmlDeviceGetNumGpuCores", "gpu:3"], 16896),
    (["nvmlDeviceGetMemoryBusWidth", "gpu:3"], 5120),
    (["nvmlDeviceGetCudaComputeCapability", "gpu:3"], [9, 0]),
    (["nvmlDeviceGetMemoryAffinity", "gpu:5", 2, 0], [2, 0]),
    (["nvmlDeviceGetNumaNodeId", "gpu:3"], Fails(NOT_SUPPORTED)),
    (["nvmlDeviceGetPersistenceMode", "gpu:3"], 1),
    (["nvmlDeviceGetComputeMode", "gpu:3"], 0),
    (["nvmlDeviceGetVirtualizationMode", "gpu:3"], 0),
    (
        ["nvmlDeviceGetPciInfo", "gpu:3"],
        {
            "busIdLegacy": "0000:5D:00.0",
            "domain": 0,
            "bus": 0x5D,
            "device": 0,
            "pciDeviceId": 0x233010DE,
            "pciSubSystemId": 0x100310DE,
            "busId": "00000000:5D:00.0",
        },
    ),
    (["nvmlDeviceGetNumFans", "gpu:3"], Fails(NOT_SUPPORTED)),
    (["nvmlDeviceGetFanSpeed", "gpu:3"], Fails(NOT_SUPPORTED)),
    (["nvmlDeviceGetFanSpeed_v2", "gpu:3", 0], Fails(NOT_SUPPORTED)),
    (["nvmlDeviceGetPowerUsage", "gpu:3"], 313_000),
    (["nvmlDeviceGetPowerManagementLimit", "gpu:3"], 690_000),
    (["nvmlDeviceGetPowerManagementDefaultLimit", "gpu:3"], 695_000),
    (["nvmlDeviceGetEnforcedPowerLimit", "gpu:3"], 680_000),
    (["nvmlDeviceGetPowerManagementLimitConstraints", "gpu:3"], [200_000, 700_000]),
    (["nvmlDeviceGetPcieReplayCounter", "gpu:3"], 12),
    (["nvmlDeviceGetCurrPcieLinkGeneration", "gpu:3"], 4),
    (["nvmlDeviceGetMaxPcieLinkGeneration", "gpu:3"], 5),
    (["nvmlDeviceGetCurrPcieLinkWidth", "gpu:3"], 16),
    (["nvmlDeviceGetMaxPcieLinkWidth", "gpu:3"], 16),
    (["nvmlDeviceGetPcieThroughput", "gpu:3", 0], 1003),
    (["nvmlDeviceGetPcieThroughput", "gpu:3", 1], 2003),
    (["nvmlDeviceGetPerformanceState", "gpu:3"], 0),
    (["nvmlDeviceGetClockInfo", "gpu:3", 0], 1935),
    (["nvmlDeviceGetClockInfo", "gpu:3", 1], 1935),
    (["nvmlDeviceGetClockInfo", "gpu:3", 2], 2619),
    (["nvmlDeviceGetClockInfo", "gpu:3", 3], 1503),
    (["nvmlDeviceGetMaxClockInfo", "gpu:3", 3], 1545),
    (["nvmlDeviceGetApplicationsClock", "gpu:3", 0], 1950),
    (["nvmlDeviceGetApplicationsClock", "gpu:3", 2], 2618),
    (["nvmlDeviceGetTemperature", "gpu:3", 0], 53),
    (["nvmlDeviceGetTemperatureV", "gpu:3", 0], 53),
    (["nvmlDeviceGetTemperatureThreshold", "gpu:3", 0], Fails(NOT_SUPPORTED)),
    (["nvmlDeviceGetMarginTemperature", "gpu:3"], 34),
    (["nvmlDeviceGetUtilizationRates", "gpu:3"], {"gpu": 93, "memory": 43}),
    (["nvmlDeviceGetEncoderUtilization", "gpu:3"], [3, 166_666]),
    (["nvmlDeviceGetDecoderUtilization", "gpu:3"], [13, 166_666]),
    (["nvmlDeviceGetJpgUtilization", "gpu:3"], [23, 166_666]),
    (["nvmlDeviceGetOfaUtilization", "gpu:3"], [33, 166_666]),
    (["nvmlDeviceGetCurrentClocksEventReasons", "gpu:3"], 0x4),
    (["nvmlDeviceGetCurrentClocksThrottleReasons", "gpu:2"], 0),
    (
        ["nvmlDeviceGetMemoryInfo", "gpu:3"],
        {
            "total": 81559 * MIB,
            "used": (479 + 10300) * MIB + MIB // 2,
            "free": (81559 - 479 - 10300) * MIB - MIB // 2,
        },
    ),
    (
        ["nvmlDeviceGetMemoryInfo", "gpu:3", 0x02000028],
        {
            "version": 0x02000028,
            "total": 81559 * MIB,
            "reserved": 479 * MIB,
            "used": 10300 * MIB + MIB // 2,
            "free": (81559 - 479 - 10300) * MIB - MIB // 2,
        },
    ),
    (["nvmlDeviceGetMemoryInfo", "gpu:3", 0x01000028], Fails(VERSION)),
    (
        ["nvmlDeviceGetBAR1MemoryInfo", "gpu:3"],
        {"bar1Total": 131072 * MIB, "bar1Used": 4 * MIB, "bar1Free": 131068 * MIB},
    ),
    (["nvmlDeviceGetEccMode", "gpu:3"], [1, 1]),
    (["nvmlDeviceGetTotalEccErrors", "gpu:3", 0, 0], 3),
    (["nvmlDeviceGetTotalEccErrors", "gpu:3", 0, 1], 103),
    (["nvmlDeviceGetMemoryErrorCounter", "gpu:3", 0, 1, 2], 103),
    (["nvmlDeviceGetMemoryErrorCounter", "gpu:3", 1, 0, 7], 0),
    (["nvmlDeviceGetMemoryErrorCounter", "gpu:3", 0, 0, 0], Fails(NOT_SUPPORTED)),
    (["nvmlDeviceGetRetiredPages", "gpu:3", 0], Fails(NOT_SUPPORTED)),
    (["nvmlDeviceGetRetiredPagesPendingStatus", "gpu:3"], Fails(NOT_SUPPORTED)),
    (["nvmlDeviceGetRemappedRows", "gpu:3"], [3, 0, 0, 0]),
    (["nvmlDeviceGetRowRemapperHistogram", "gpu:3"], {"max": 637, "high": 3, "partial": 0, "low": 0, "none": 0}),
    (["nvmlDeviceGetUnrepairableMemoryFlag_v1", "gpu:3"], Fails(NO_SYMBOL)),
    (["nvmlDeviceGetNvLinkState", "gpu:3", 17], 1),
    (["nvmlDeviceGetNvLinkState", "gpu:3", 18], Fails(NOT_SUPPORTED)),
    (["nvmlDeviceGetNvLinkState", "gpu:3", 36], Fails(INVALID)),
    (["nvmlDeviceGetNvLinkVersion", "gpu:3", 17], 4),
    (["nvmlDeviceGetNvLinkRemoteDeviceType", "gpu:3", 17], 2),
    (["nvmlDeviceGetNvLinkErrorCounter", "gpu:3", 5, 0], 5),
    (["nvmlDeviceGetNvLinkErrorCounter", "gpu:3", 5, 2], 8),
    (["nvmlDeviceGetP2PStatus", "gpu:3", "gpu:4", 0], 0),
    (["nvmlDeviceGetP2PStatus", "gpu:3", "gpu:3", 0], Fails(NOT_SUPPORTED)),
    (["nvmlDeviceGetMigMode", "gpu:3"], [0, 0]),
    (["nvmlDeviceGetMaxMigDeviceCount", "gpu:3"], 7),
    (["nvmlDeviceGetMigDeviceHandleByIndex", "gpu:3", 0], Fails(NOT_SUPPORTED)),
    (["nvmlDeviceIsMigDeviceHandle", "gpu:3"], 0),
    (["nvmlDeviceGetSupportedEventTypes", "gpu:3"], 0x11F),
    (["open_events", 0x4000, "gpu:3"], Fails(NOT_SUPPORTED)),
    (["open_events", 0x8, "gpu:3"], None),
    (["wait_event", 1], Fails(10)),
    (["close_events"], None),
    (
        ["nvmlDeviceGetComputeRunningProcesses", "gpu:3"],
        [{"pid": 4003, "usedGpuMemory": 9003 * MIB, "gpuInstanceId": NONE, "computeInstanceId": NONE}],
    ),
    (
        ["nvmlDeviceGetComputeRunningProcesses_v2", "gpu:3"],
        [{"pid": 4003, "usedGpuMemory": 9003 * MIB, "gpuInstanceId": NONE, "computeInstanceId": NONE}],
    ),
    (["processes_v1", "nvmlDeviceGetComputeRunningProcesses", "gpu:3"], [[4003, 9003 * MIB]]),
    (["nvmlDeviceGetGraphicsRunningProcesses", "gpu:3"], []),
    (["nvmlDeviceGetGraphicsRunningProcesses_v2", "gpu:3"], []),
    (["processes_v1", "nvmlDeviceGetGraphicsRunningProcesses", "gpu:3"], []),
    (["nvmlDeviceGetMPSComputeRunningProcesses", "gpu:3"], []),
    (["nvmlDeviceGetMPSComputeRunningProcesses_v2", "gpu:3"], []),
    (["processes_v1", "nvmlDeviceGetMPSComputeRunningProcesses", "gpu:3"], []),
    (
        ["nvmlDeviceGetRunningProcessDetailList", "gpu:3", 0x01000018, 3],
        [
            {
                "pid": 4003,
                "usedGpuMemory": 9003 * MIB,
                "gpuInstanceId": NONE,
                "computeInstanceId": NONE,
                "usedGpuCcProtectedMemory": 0,
            }
        ],
    ),
    (
        ["nvmlDeviceGetConfComputeMemSizeInfo", "gpu:3"],
        {"protectedMemSizeKib": 0, "unprotectedMemSizeKib": 81559 * 1024},
    ),
    (
        ["nvmlDeviceGetProcessUtilization", "gpu:3", 0],
        [{"pid": 4003, "timeStamp": 1_000_003, "smUtil": 63, "memUtil": 33, "encUtil": 0, "decUtil": 0}],
    ),
    (["nvmlDeviceGetProcessUtilization", "gpu:3", 1_000_003], Fails(NOT_FOUND)),
    (["nvmlGpmQueryDeviceSupport", "gpu:3"], {"version": 1, "isSupportedDevice": 1}),
    (["gpm", "gpu:3", [1, 3, 10, 20, 21, 61, 97, 100], 105],
     [[OK, 83.0], [OK, 43.5], [OK, 48.5], [OK, 1003.0], [OK, 2003.0], [OK, 3474.0], [OK, 363.0], [NOT_SUPPORTED, 0.0]]),
    (["gpm_version", 2], Fails(VERSION)),
    (["raw_init"], 0),
]  # fmt: skip

# Slots 2 and 5 are holes; slot 4 holds GPU instance 11 and process 5004.
A100_MIG: list[Row] = [
    (["nvmlDeviceGetMinorNumber", "gpu:0"], 1),
    (["nvmlDeviceGetMigMode", "gpu:0"], [1, 1]),
    (["nvmlDeviceGetMigMode", "gpu:1"], [0, 0]),
    (["nvmlDeviceGetMigDeviceHandleByIndex", "gpu:0", 2], Fails(NOT_FOUND)),
    (["nvmlDeviceGetMigDeviceHandleByIndex", "gpu:0", 5], Fails(NOT_FOUND)),
    (["nvmlDeviceGetMigDeviceHandleByIndex", "gpu:0", 7], Fails(INVALID)),
    (["nvmlDeviceGetName", "mig:0.4"], "NVIDIA A100-SXM4-40GB MIG 1g.5gb"),
    (["nvmlDeviceGetUUID", "mig:0.4"], "MIG-a1000000-0000-5000-8000-000000000004"),
    (["index_of", "nvmlDeviceGetHandleByUUID", "MIG-a1000000-0000-5000-8000-000000000004"], 4),
    (["nvmlDeviceGetIndex", "mig:0.4"], 4),
    (["nvmlDeviceIsMigDeviceHandle", "mig:0.4"], 1),
    (["nvmlDeviceGetGpuInstanceId", "mig:0.4"], 11),
    (["nvmlDeviceGetComputeInstanceId", "mig:0.4"], 0),
    (["nvmlDeviceGetGpuInstanceId", "gpu:0"], Fails(NOT_SUPPORTED)),
    (["index_of", "nvmlDeviceGetDeviceHandleFromMigDeviceHandle", "mig:0.4"], 0),
    (["nvmlDeviceGetDeviceHandleFromMigDeviceHandle", "gpu:0"], Fails(INVALID)),
    (["gi_info", "gpu:0", 11], [0, 11, 19, 4, 1]),
    (["gi_info", "gpu:0", 9], Fails(NOT_FOUND)),
    (["gi_info", "gpu:1", 11], Fails(NOT_SUPPORTED)),
    (
        ["nvmlDeviceGetAttributes", "mig:0.4"],
        {
            "multiprocessorCount": 14,
            "sharedCopyEngineCount": 1,
            "sharedDecoderCount": 0,
            "sharedEncoderCount": 0,
            "sharedJpegCount": 0,
            "sharedOfaCount": 0,
            "gpuInstanceSliceCount": 1,
            "computeInstanceSliceCount": 1,
            "memorySizeMB": 4864,
        },
    ),
    (
        ["nvmlDeviceGetMemoryInfo", "mig:0.4", 0x02000028],
        {"version": 0x02000028, "total": 4864 * MIB, "reserved": 0, "used": 7 * MIB, "free": 4857 * MIB},
    ),
    (["nvmlDeviceGetTemperature", "mig:0.4", 0], Fails(NOT_SUPPORTED)),
    (["nvmlDeviceGetTemperatureThreshold", "gpu:0", 1], 89),
    (["nvmlDeviceGetUtilizationRates", "gpu:0"], Fails(NOT_SUPPORTED)),
    (["nvmlDeviceGetUtilizationRates", "gpu:1"], {"gpu": 91, "memory": 41}),
    (["nvmlDeviceGetEncoderUtilization", "gpu:0"], Fails(NOT_SUPPORTED)),
    (["nvmlDeviceGetRemappedRows", "gpu:0"], Fails(NOT_SUPPORTED)),
    (["nvmlDeviceGetRemappedRows", "gpu:1"], [1, 0, 0, 0]),
    (["nvmlDeviceGetProcessUtilization", "gpu:0", 0], Fails(NOT_SUPPORTED)),
    (
        ["nvmlDeviceGetComputeRunningProcesses", "mig:0.4"],
        [{"pid": 5004, "usedGpuMemory": 5 * MIB, "gpuInstanceId": 11, "computeInstanceId": 0}],
    ),
    (["nvmlDeviceGetComputeRunningProcesses", "gpu:1"], []),
    (["nvmlGpmQueryDeviceSupport", "gpu:1"], {"version": 1, "isSupportedDevice": 0}),
    (["gpm", "gpu:1", [1], 1], Fails(NOT_SUPPORTED)),
    (["nvmlDeviceGetNvLinkState", "gpu:1", 12], Fails(NOT_SUPPORTED)),
]

H100_MIG: list[Row] = [
    (["gpm", "gpu:0", [1, 5], 105, 2], [[OK, 40.0], [OK, 16.625]]),
    (["gpm", "mig:0.2", [1, 5], 105], [[OK, 20.0], [OK, 8.3125]]),
    (["gpm", "gpu:0", [1], 1, 3], Fails(INVALID)),
]

T4: list[Row] = [
    (["nvmlSystemGetCudaDriverVersion_v2"], 11040),
    (["nvmlDeviceGetMemoryInfo", "gpu:0"], {"total": 15109 * MIB, "used": 1032 * MIB, "free": 14077 * MIB}),
    (["nvmlDeviceGetMemoryInfo", "gpu:0", 0x02000028], Fails(NO_SYMBOL)),
    (["nvmlDeviceGetTemperature", "gpu:0", 0], 40),
    (["nvmlDeviceGetTemperatureV", "gpu:0", 0], Fails(NO_SYMBOL)),
    (["nvmlDeviceGetCurrentClocksEventReasons", "gpu:0"], Fails(NO_SYMBOL)),
    (["nvmlDeviceGetCurrentClocksThrottleReasons", "gpu:0"], 0),
    (["nvmlDeviceGetComputeRunningProcesses", "gpu:0"], "NVMLLibraryMismatchError"),
    (
        ["nvmlDeviceGetComputeRunningProcesses_v2", "gpu:0"],
        [{"pid": 3000, "usedGpuMemory": 700 * MIB, "gpuInstanceId": NONE, "computeInstanceId": NONE}],
    ),
    (["nvmlDeviceGetRetiredPages", "gpu:0", 0], [0x1A000, 0x1B000]),
    (["nvmlDeviceGetRetiredPages", "gpu:0", 1], [0x2C000]),
    (["nvmlDeviceGetRetiredPagesPendingStatus", "gpu:0"], 0),
    (["nvmlDeviceGetRemappedRows", "gpu:0"], Fails(NOT_SUPPORTED)),
    (["nvmlDeviceGetMigMode", "gpu:0"], Fails(NOT_SUPPORTED)),
    (["nvmlGpmQueryDeviceSupport", "gpu:0"], Fails(NO_SYMBOL)),
    (["nvmlDeviceGetNvLinkState", "gpu:0", 0], Fails(NOT_SUPPORTED)),
    (["nvmlDeviceGetTotalEccErrors", "gpu:0", 1, 1], 0),
]

B200: list[Row] = [
    (["nvmlDeviceGetUnrepairableMemoryFlag_v1", "gpu:1"], 0),
    (["nvmlDeviceGetNumaNodeId", "gpu:1"], 3),
    (["nvmlDeviceGetNvLinkErrorCounter", "gpu:1", 0, 0], Fails(NOT_SUPPORTED)),
    (["nvmlDeviceGetNvLinkVersion", "gpu:1", 0], 5),
    (["gpm", "gpu:1", [100, 103], 105], [[OK, 1001.0], [OK, 1031.0]]),
    (["filled", "nvmlDeviceGetGpuFabricInfoV", "c_nvmlGpuFabricInfo_v2_t", "gpu:1", 0x04000024], Fails(VERSION)),
    (["filled", "nvmlDeviceGetSramEccErrorStatus", "c_nvmlEccSramErrorStatus_v1_t", "gpu:1", 1], Fails(VERSION)),
    (["filled", "nvmlDeviceGetPlatformInfo", "c_nvmlPlatformInfo_v2_t", "gpu:1", 3], Fails(VERSION)),
]

GB10: list[Row] = [
    (["nvmlDeviceGetMemoryInfo", "gpu:0"], Fails(NOT_SUPPORTED)),
    (["nvmlDeviceGetMemoryInfo", "gpu:0", 0x02000028], Fails(NOT_SUPPORTED)),
    (["nvmlDeviceGetBAR1MemoryInfo", "gpu:0"], Fails(NOT_SUPPORTED)),
    (["nvmlDeviceGetClockInfo", "gpu:0", 2], Fails(NOT_SUPPORTED)),
    (["nvmlDeviceGetEnforcedPowerLimit", "gpu:0"], Fails(NOT_SUPPORTED)),
    (["nvmlDeviceGetEccMode", "gpu:0"], Fails(NOT_SUPPORTED)),
    (["nvmlDeviceGetPowerUsage", "gpu:0"], 11_870),
    (
        ["nvmlDeviceGetComputeRunningProcesses", "gpu:0"],
        [{"pid": 2000, "usedGpuMemory": 512 * MIB, "gpuInstanceId": NONE, "computeInstanceId": NONE}],
    ),
]

TABLES: dict[str, tuple[Scenario, list[Row]]] = {
    "h100": (scenarios.h100(), H100),
    "a100_mig": (scenarios.a100_mig(absent_slots=(2, 5)), A100_MIG),
    "h100_mig": (scenarios.h100_mig(), H100_MIG),
    "t4": (scenarios.t4(), T4),
    "gb200": (scenarios.b200(2, grace=True), B200),
    "gb10": (scenarios.gb10(), GB10),
}

STRUCTS: list[list[Any]] = [
    ["filled", "nvmlDeviceGetGpuFabricInfoV", "c_nvmlGpuFabricInfo_v2_t", "gpu:1"],
    ["filled", "nvmlDeviceGetGpuFabricInfoV", "c_nvmlGpuFabricInfo_v3_t", "gpu:1"],
    ["filled", "nvmlDeviceGetGpuFabricInfo", "c_nvmlGpuFabricInfo_t", "gpu:1"],
    ["filled", "nvmlDeviceGetPlatformInfo", "c_nvmlPlatformInfo_v1_t", "gpu:1"],
    ["filled", "nvmlDeviceGetPlatformInfo", "c_nvmlPlatformInfo_v2_t", "gpu:1"],
    ["filled", "nvmlDeviceGetSramEccErrorStatus", "c_nvmlEccSramErrorStatus_v1_t", "gpu:1"],
    ["nvmlDeviceGetGridLicensableFeatures", "gpu:0"],
    ["nvmlDeviceGetTotalEnergyConsumption", "gpu:1"],
    ["fields", "gpu:1", [82]],
]


@dataclass(frozen=True)
class Run:
    installation: Installation
    answers: list[Answer]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """Each table once through the binding, in one process a scenario."""
    done: dict[str, Run] = {}
    for board, (scenario, rows) in TABLES.items():
        extra = STRUCTS if board == "gb200" else []
        installation = install(tmp_path_factory.mktemp(board), scenario)
        answers = ask(installation, [["nvmlInit"], *(step for step, _ in rows), *extra, ["nvmlShutdown"]])
        done[board] = Run(installation, answers[1:-1])
    return done


CASES = [(board, row) for board, (_, rows) in TABLES.items() for row in range(len(rows))]


@pytest.mark.parametrize(
    ("board", "row"), CASES, ids=[f"{board}-{row}-{TABLES[board][1][row][0][0]}" for board, row in CASES]
)
def test_the_binding_reads_what_the_scenario_says(runs: dict[str, Run], board: str, row: int) -> None:
    expected = TABLES[board][1][row][1]
    answer = runs[board].answers[row]
    if isinstance(expected, Fails):
        assert answer == Answer(rc=expected.rc)
    elif expected == "NVMLLibraryMismatchError":
        assert answer == Answer(error=expected)
    else:
        assert answer == Answer(expected)


def test_every_exported_function_is_called_by_some_row(runs: dict[str, Run]) -> None:
    called = {call.function for run in runs.values() for call in run.installation.calls()}
    # Neither is a call on the machine: the one only names codes, the other hands through to nvmlInitWithFlags.
    called |= {"nvmlErrorString", "nvmlInit_v2"}
    assert exported(runs["gb200"].installation.library) - called == set()


def _structs(runs: dict[str, Run]) -> list[Any]:
    answers = runs["gb200"].answers[len(B200) :]
    assert [answer.rc for answer in answers] == [0] * len(STRUCTS)
    return [answer.value for answer in answers]


def test_fabric_info_has_the_layout_of_the_version_asked_for(runs: dict[str, Run]) -> None:
    v2, v3, first = (bytes.fromhex(text) for text in _structs(runs)[:3])
    cluster = bytes.fromhex("b2000000111142228333444455556666")
    health = 0b01_10_10_10_10  # configuration none wrong, then four times "no"
    assert struct.unpack("<I16siIIIB3x", v3) == (0x03000028, cluster, 0, 7, 3, health, 1)
    assert struct.unpack("<I16siIII", v2) == (0x02000024, cluster, 0, 7, 3, health)
    assert struct.unpack("<16siII", first) == (cluster, 0, 7, 3)


def test_platform_info_tells_rack_or_chassis_by_version(runs: dict[str, Run]) -> None:
    v1, v2 = (bytes.fromhex(text) for text in _structs(runs)[3:5])
    guid = bytes.fromhex("0000000000000001").ljust(16, b"\0")
    assert struct.unpack("<I16s16s5B3x", v1) == (0x0100002C, guid, b"1234567890123".ljust(16, b"\0"), 12, 4, 1, 1, 2)
    assert struct.unpack("<I16s16s5B3x", v2) == (0x0200002C, guid, b"1821925000007".ljust(16, b"\0"), 12, 4, 1, 1, 2)


def test_sram_status_of_a_healthy_gpu_is_all_zero(runs: dict[str, Run]) -> None:
    assert struct.unpack("<I4x11QI4x", bytes.fromhex(_structs(runs)[5])) == (0x01000068, *([0] * 12))


def test_a_bare_metal_gpu_has_no_licensable_feature(runs: dict[str, Run]) -> None:
    features = _structs(runs)[6]
    assert (features["isGridLicenseSupported"], features["licensableFeaturesCount"]) == (0, 0)


def test_a_licensed_vgpu_tells_its_feature(tmp_path: Path) -> None:
    license_keys: dict[str, str | int] = {
        "grid.supported": 1,
        "grid.0.code": 1,
        "grid.0.state": 1,
        "grid.0.enabled": 1,
        "grid.0.product": "NVIDIA Virtual Compute Server",
        "grid.0.info": "Licensed",
    }
    installation = install(tmp_path, scenarios.h100(1).with_keys("gpu 0", license_keys))
    features = ask(installation, [["nvmlInit"], ["nvmlDeviceGetGridLicensableFeatures", "gpu:0"]])[1].value
    assert (features["isGridLicenseSupported"], features["licensableFeaturesCount"]) == (1, 1)
    first = features["gridLicensableFeatures"][0]
    assert (first["featureCode"], first["featureState"], first["featureEnabled"]) == (1, 1, 1)
    assert (first["productName"], first["licenseInfo"]) == ("NVIDIA Virtual Compute Server", "Licensed")
