"""What the NVIDIA collector reads of whole GPUs; expected values follow from the scenario and dcgm-exporter's units."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from tests.fakes.nvml import Installation, Scenario, install, scenarios
from tests.integration.nvml_child import Child, second_sample, settings

pytestmark = pytest.mark.gcc

MIB = 1 << 20
DEV = "DCGM_FI_DEV_"
PROF = "DCGM_FI_PROF_"


@pytest.fixture
def fake(tmp_path: Path) -> Callable[[Scenario], Installation]:
    return lambda scenario: install(tmp_path / "nvml", scenario)


def test_hopper_gives_each_quantity_in_the_unit_of_dcgm_exporter(fake: Callable[[Scenario], Installation]) -> None:
    answer = second_sample(fake(scenarios.h100(8)))
    for i in range(8):
        used = (10_000 + 100 * i) * MIB + MIB // 2
        free = (81559 - 479) * MIB - used
        expected: dict[str, int | float] = {
            DEV + "SM_CLOCK": 1980 - 15 * i,
            DEV + "MEM_CLOCK": 2619,
            DEV + "MAX_SM_CLOCK": 1980,
            DEV + "GPU_TEMP": 50 + i,
            DEV + "MEMORY_TEMP": 60 + i,
            DEV + "GPU_TEMP_LIMIT": 37 - i,
            DEV + "POWER_USAGE": 310.0 + i,
            DEV + "POWER_USAGE_INSTANT": 320.0 + i,
            DEV + "ENFORCED_POWER_LIMIT": 680.0,
            DEV + "POWER_MGMT_LIMIT": 690.0,
            DEV + "POWER_MGMT_LIMIT_MIN": 200.0,
            DEV + "POWER_MGMT_LIMIT_MAX": 700.0,
            DEV + "POWER_MGMT_LIMIT_DEF": 695.0,
            DEV + "GPU_UTIL": 90 + i,
            DEV + "MEM_COPY_UTIL": 40 + i,
            DEV + "ENC_UTIL": i,
            DEV + "DEC_UTIL": 10 + i,
            DEV + "PSTATE": 0,
            DEV + "CLOCKS_EVENT_REASONS": 4 if i % 2 else 0,
            DEV + "CLOCK_THROTTLE_REASONS": 4 if i % 2 else 0,
            "nvml_jpeg_utilization_percent": 20 + i,
            "nvml_ofa_utilization_percent": 30 + i,
            DEV + "FB_TOTAL": 81559,
            DEV + "FB_USED": used // MIB,
            DEV + "FB_FREE": free // MIB,
            DEV + "FB_RESERVED": 479,
            DEV + "FB_USED_PERCENT": used / ((81559 - 479) * MIB),
            DEV + "BAR1_TOTAL": 131072,
            DEV + "BAR1_USED": 1 + i,
            DEV + "BAR1_FREE": 131071 - i,
            DEV + "ECC_CURRENT": 1,
            DEV + "ECC_SBE_VOL_TOTAL": i,
            DEV + "ECC_SBE_AGG_TOTAL": 100 + i,
            DEV + "ECC_DBE_VOL_TOTAL": 0,
            DEV + "ECC_SBE_VOL_DEV": i,
            DEV + "ECC_SBE_AGG_SRM": 0,
            DEV + "CORRECTABLE_REMAPPED_ROWS": i,
            DEV + "UNCORRECTABLE_REMAPPED_ROWS": 0,
            DEV + "ROW_REMAP_FAILURE": 0,
            DEV + "BANKS_REMAP_ROWS_AVAIL_MAX": 640 - i,
            DEV + "BANKS_REMAP_ROWS_AVAIL_HIGH": i,
            DEV + "THRESHOLD_SRM": 0,
            DEV + "GET_GPU_RECOVERY_ACTION": 0,
            DEV + "POWER_VIOLATION": 1_000_000_000 + i,
            DEV + "RELIABILITY_VIOLATION": 6_000_000_000 + i,
            DEV + "CLOCKS_EVENT_REASON_SW_POWER_CAP_NS": 1_000_000_000 + i,
            DEV + "CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN_NS": 270_000_000_000 + i,
            DEV + "PCIE_REPLAY_COUNTER": 9 + i,
            DEV + "PCIE_LINK_GEN": 4,
            DEV + "PCIE_MAX_LINK_GEN": 5,
            DEV + "PCIE_LINK_WIDTH": 16,
            DEV + "PCIE_COUNT_CORRECTABLE_ERRORS": 3 + i,
            DEV + "NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL": sum(range(18)) + 18 * i,
            DEV + "NVLINK_REPLAY_ERROR_COUNT_TOTAL": sum(range(18)),
            DEV + "NVLINK_RECOVERY_ERROR_COUNT_TOTAL": 0,
            DEV + "FABRIC_MANAGER_STATUS": 3,
            DEV + "FABRIC_MANAGER_ERROR_CODE": 0,
            DEV + "VGPU_LICENSE_STATUS": 0,
            DEV + "XID_ERRORS": 0,
            PROF + "GR_ENGINE_ACTIVE": (80.0 + i) / 100,
            PROF + "SM_ACTIVE": (70.0 + i) / 100,
            PROF + "SM_OCCUPANCY": (40.5 + i) / 100,
            PROF + "PIPE_TENSOR_ACTIVE": (33.25 + i) / 100,
            PROF + "DRAM_ACTIVE": (45.5 + i) / 100,
            PROF + "PIPE_FP64_ACTIVE": (3.0 + i) / 100,
            PROF + "NVDEC3_ACTIVE": (3 + i) / 100,
            PROF + "PCIE_TX_BYTES": (1000 + i) * MIB,
            PROF + "PCIE_RX_BYTES": (2000 + i) * MIB,
            PROF + "NVLINK_TX_BYTES": sum(20 * (n + 1) + i for n in range(18)) * MIB,
            PROF + "NVLINK_L17_RX_BYTES": (180 + i) * MIB,
            "nvml_memory_total_bytes": 81559 * MIB,
            "nvml_memory_capacity_bytes": 81559 * MIB,
            "nvml_nvlink_links": 18,
            "nvml_nvlink_links_up": 18,
            "nvml_processes": 1,
        }
        found = {series: answer.value(series, i) for series in expected}
        assert found == pytest.approx(expected, rel=1e-12)
        kinds = {series: type(value) for series, value in expected.items()}
        assert {series: type(value) for series, value in found.items()} == kinds
    assert answer.sample.errors == []
    assert answer.sample.lost == []


def test_growing_counters_are_those_of_the_driver(fake: Callable[[Scenario], Installation]) -> None:
    before = time.time()
    scenario = scenarios.h100(2)
    epoch = float(scenario.keys("system")["epoch"])
    answer = second_sample(fake(scenario))
    longest = time.time() - min(before, epoch)
    for i in range(2):
        energy = answer.value(DEV + "TOTAL_ENERGY_CONSUMPTION", i)
        start, draw = 1_000_000_000_000 + 1_000_000_000 * i, 310_000 + 1_000 * i
        assert start < energy <= start + draw * longest
        sent = answer.value("nvml_nvlink_sent_kibibytes_total", i)
        total = sum((i + 1) * 1_000_000_000 + link * 1_000_000 for link in range(18))
        assert total < sent <= total + sum(range(1, 19)) * 1024 * longest


def test_an_old_driver_is_read_by_its_older_symbols(fake: Callable[[Scenario], Installation]) -> None:
    answer = second_sample(fake(scenarios.t4()), options={"processes": True})
    expected: dict[str, int | float] = {
        DEV + "GPU_TEMP": 40,
        DEV + "FB_TOTAL": 15109,
        DEV + "FB_USED": 1032,
        DEV + "FB_FREE": 15109 - 1032,
        DEV + "FB_USED_PERCENT": 1032 / 15109,
        DEV + "CLOCKS_EVENT_REASONS": 0,
        DEV + "RETIRED_SBE": 2,
        DEV + "RETIRED_DBE": 1,
        DEV + "RETIRED_PENDING": 0,
        DEV + "SHUTDOWN_TEMP": 96,
        DEV + "SLOWDOWN_TEMP": 93,
        DEV + "GPU_MAX_OP_TEMP": 85,
        # No GPM and no byte counters: the driver's own measurement, in KB/s.
        PROF + "PCIE_TX_BYTES": 1_000_000,
        PROF + "PCIE_RX_BYTES": 2_000_000,
        "nvml_pcie_tx_bytes_per_second": 1_000_000,
        "nvml_processes": 1,
        "nvml_process_memory_used_bytes": 700 * MIB,
    }
    assert {series: answer.value(series) for series in expected} == pytest.approx(expected)
    given = {reading.series for reading in answer.sample.readings}
    absent = {"FB_RESERVED", "MEMORY_TEMP", "GPU_TEMP_LIMIT", "MEM_MAX_OP_TEMP", "ROW_REMAP_FAILURE", "FAN_SPEED"}
    assert not given & {DEV + name for name in absent}
    assert not {series for series in given if series.startswith(PROF) and "PCIE" not in series}
    assert answer.sample.errors == []


PCIE = {
    PROF + "PCIE_TX_BYTES": 1_000_000,
    PROF + "PCIE_RX_BYTES": 2_000_000,
    "nvml_pcie_tx_bytes_per_second": 1_000_000,
    "nvml_pcie_rx_bytes_per_second": 2_000_000,
}
"""What the driver of the T4 world measures, in bytes per second."""


def test_pcie_traffic_is_taken_from_counters_before_a_measurement_that_blocks(
    fake: Callable[[Scenario], Installation],
) -> None:
    keys = {"field.197": "ull:5000000000+5000000/s", "field.198": "ull:6000000000+7000000/s"}
    installation = fake(scenarios.t4().with_keys("gpu 0", keys))
    with Child(installation, settings({"normal": list(PCIE)})) as child:
        child.discover()
        time.sleep(0.5)
        answer = child.sample()
    for name in (PROF + "PCIE_TX_BYTES", "nvml_pcie_tx_bytes_per_second"):
        assert answer.value(name) == pytest.approx(5_000_000, rel=0.05)
    for name in (PROF + "PCIE_RX_BYTES", "nvml_pcie_rx_bytes_per_second"):
        assert answer.value(name) == pytest.approx(7_000_000, rel=0.05)
    assert "nvmlDeviceGetPcieThroughput" not in {call.function for call in installation.calls()}


def test_a_pcie_counter_that_may_have_32_bits_is_not_trusted(fake: Callable[[Scenario], Installation]) -> None:
    # At 10 GB/s it wraps twice a second: 3 MB more could be 3 MB or 4 GiB and 3 MB.
    keys = {"field.197": "ull:4000000000+3000000/s", "field.198": "ull:4000000000+3000000/s"}
    answer = second_sample(fake(scenarios.t4().with_keys("gpu 0", keys)), wanted={"normal": list(PCIE)})
    assert {name: answer.value(name) for name in PCIE} == PCIE


def test_only_a_gpu_without_gpm_says_that_its_pcie_rates_are_approximate(
    fake: Callable[[Scenario], Installation],
) -> None:
    own = {"nvml_pcie_tx_bytes_per_second", "nvml_pcie_rx_bytes_per_second"}
    hopper = second_sample(fake(scenarios.h100(1)), wanted={"normal": list(PCIE)})
    assert {reading.series for reading in hopper.sample.readings} == set(PCIE) - own


def test_each_group_takes_profiling_samples_of_its_own(fake: Callable[[Scenario], Installation]) -> None:
    wanted = {"fast": [PROF + "SM_ACTIVE"], "normal": [PROF + "DRAM_ACTIVE"]}
    with Child(fake(scenarios.h100(1)), settings(wanted)) as child:
        child.discover()
        time.sleep(0.12)
        fast, normal = child.sample("fast"), child.sample("normal")
    assert fast.value(PROF + "SM_ACTIVE") == 0.7
    assert normal.value(PROF + "DRAM_ACTIVE") == 0.455


def test_unified_memory_has_no_memory_series(fake: Callable[[Scenario], Installation]) -> None:
    answer = second_sample(fake(scenarios.gb10()))
    given = {reading.series for reading in answer.sample.readings}
    assert not {series for series in given if "_FB_" in series or "BAR1" in series or "memory" in series}
    assert DEV + "MEM_CLOCK" not in given
    assert answer.value(DEV + "GPU_UTIL") == 96
    assert answer.value(DEV + "POWER_USAGE") == pytest.approx(11.87)
    assert answer.sample.errors == []


def test_early_r535_process_records_are_read_at_their_real_size(fake: Callable[[Scenario], Installation]) -> None:
    answer = second_sample(fake(scenarios.r535_early()), options={"processes": True})
    memory = {dict(one.labels)["pid"]: one.value for one in answer.readings("nvml_process_memory_used_bytes")}
    assert memory == {str(6000 + n): (100 + n) * MIB for n in range(3)}
    assert answer.value("nvml_processes") == 3


def test_processes_are_left_out_unless_asked_for(fake: Callable[[Scenario], Installation]) -> None:
    installation = fake(scenarios.h100(1))
    assert second_sample(installation).readings("nvml_process_memory_used_bytes") == []
    [reading] = second_sample(installation, options={"processes": True}).readings("nvml_process_memory_used_bytes")
    assert reading.labels == (("pid", "4000"), ("kind", "C"))
    assert reading.value == 9000 * MIB


@pytest.mark.parametrize(("namespace", "given"), [("4026531836", [0]), ("4026532001", [])], ids=["host", "container"])
def test_no_process_is_a_count_only_where_processes_can_be_seen(
    fake: Callable[[Scenario], Installation], tmp_path: Path, namespace: str, given: list[int]
) -> None:
    link = tmp_path / "proc/self/ns/pid"
    link.parent.mkdir(parents=True)
    link.symlink_to(f"pid:[{namespace}]")
    asked = settings({"normal": ["nvml_processes"]})
    asked = msgspec.structs.replace(asked, paths=msgspec.structs.replace(asked.paths, proc=str(tmp_path / "proc")))
    scenario = scenarios.h100(2)
    idle = Scenario({name: keys for name, keys in scenario.sections.items() if name != "process 0.0"}, scenario.missing)
    with Child(fake(idle), asked) as child:
        child.discover()
        answer = child.sample()
    assert answer.values("nvml_processes", 0) == given
    assert answer.values("nvml_processes", 1) == [1]


def test_only_what_is_wanted_is_asked_of_the_driver(fake: Callable[[Scenario], Installation]) -> None:
    installation = fake(scenarios.h100(1))
    with Child(
        installation, settings({"fast": [DEV + "GPU_TEMP"], "slow": [DEV + "FB_USED", DEV + "FB_FREE"]})
    ) as child:
        child.discover()
        known = len(installation.calls())
        fast = child.sample("fast")
        assert [reading.series for reading in fast.sample.readings] == [DEV + "GPU_TEMP"]
        assert [call.function for call in installation.calls()[known:]] == [
            "nvmlEventSetWait_v2",
            "nvmlDeviceGetTemperatureV",
        ]
        known = len(installation.calls())
        slow = child.sample("slow")
        assert {reading.series for reading in slow.sample.readings} == {DEV + "FB_USED", DEV + "FB_FREE"}
        assert [call.function for call in installation.calls()[known:]] == [
            "nvmlEventSetWait_v2",
            "nvmlDeviceGetMemoryInfo_v2",
        ]


def test_a_fan_is_told_with_its_number(fake: Callable[[Scenario], Installation]) -> None:
    scenario = scenarios.t4().with_keys(
        "gpu 0", {"fan_count": 2, "fan_speed.0": 30, "fan_speed.1": 104, "fan_speed": 30}
    )
    scenario = Scenario(scenario.sections, scenario.missing - {"nvmlDeviceGetNumFans"})
    answer = second_sample(fake(scenario))
    assert answer.value(DEV + "FAN_SPEED") == 30
    assert {one.labels: one.value for one in answer.readings("nvml_fan_speed_percent")} == {
        (("fan", "0"),): 30,
        (("fan", "1"),): 104,
    }


def test_clock_events_are_counted_by_sample(fake: Callable[[Scenario], Installation]) -> None:
    scenario = scenarios.h100(2).with_keys("gpu 1", {"throttle_mask": "0x24"})
    with Child(fake(scenario), settings({"normal": ["DCGM_EXP_CLOCK_EVENTS_COUNT"]})) as child:
        child.discover()
        for _ in range(3):
            answer = child.sample()
    series, window = "DCGM_EXP_CLOCK_EVENTS_COUNT", ("window_size_in_ms", "300000")
    assert {one.labels: one.value for one in answer.readings(series, 1)} == {
        (("clock_event", "power_cap"), window): 3,
        (("clock_event", "sw_thermal"), window): 3,
    }
    assert {one.labels: one.value for one in answer.readings(series, 0)} == {(window,): 0}
