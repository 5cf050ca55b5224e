"""NVIDIA's raw numbers in the common schema: units, bits, states, links, levels."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from exporter.catalogue import Catalogue, load
from exporter.model import Key
from exporter.normalize import make_plan
from tests.nvidia_rows import FOLDER, GPU, MIG, Raw, common


@pytest.fixture(scope="module")
def nvidia() -> Catalogue:
    return load(FOLDER, "collectors.nvidia")


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (("DCGM_FI_DEV_SM_CLOCK", 1980, ()), {("accel_clock_hertz", "core"): 1_980_000_000}),
        (("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", 27151028, ()), {("accel_energy_joules_total",): 27151.028}),
        (("DCGM_FI_DEV_GPU_UTIL", 57, ()), {("accel_utilization_ratio",): 0.57}),
        (("DCGM_FI_DEV_FB_USED", 4384, ()), {("accel_memory_used_bytes", "device"): 4_596_957_184}),
        (("DCGM_FI_DEV_THERMAL_VIOLATION", 1_500_000_000, ()), {("accel_throttle_seconds_total", "thermal"): 1.5}),
        (("DCGM_FI_PROF_PCIE_TX_BYTES", 79221, ()), {("accel_pcie_sent_bytes_per_second",): 79221}),
        (("DCGM_FI_DEV_PCIE_TX_THROUGHPUT", 3, ()), {("accel_pcie_sent_bytes_per_second",): 3000}),
        (("nvml_fan_speed_percent", 102, (("fan", "1"),)), {("accel_fan_speed_ratio", "1"): 1.02}),
        (
            ("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", 2, ()),
            {("accel_memory_errors_total", "false", "unknown"): 2},
        ),
        (
            ("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", 4, ()),
            {("accel_memory_repairs", "remapped_row", "uncorrectable"): 4},
        ),
    ],
)
def test_a_number_becomes_base_units(nvidia: Catalogue, row: Raw, expected: Mapping[tuple[str, ...], float]) -> None:
    assert common(nvidia, [row]) == pytest.approx(expected)


@pytest.mark.parametrize("name", ["DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS"])
@pytest.mark.parametrize(
    ("mask", "active"),
    [
        (0x0, set()),
        (0x1 | 0x2 | 0x100, set()),  # idle, application clocks, display clocks
        (0x4, {"power_cap"}),
        (0x20, {"thermal"}),
        (0x8 | 0x40, {"thermal", "other"}),
        (0x8 | 0x80, {"power_brake", "other"}),
        (0x8, {"other"}),
        (0x10 | 0x4, {"sync_boost", "power_cap"}),
    ],
)
def test_clock_event_bits_become_throttle_reasons(nvidia: Catalogue, name: str, mask: int, active: set[str]) -> None:
    found = common(nvidia, [(name, mask, ())])
    assert {key[1] for key in found} == {"power_cap", "thermal", "power_brake", "sync_boost", "other"}
    assert {key[1] for key, value in found.items() if value} == active


def test_nvlink_bandwidth_is_declared_a_counter_and_feeds_nothing(nvidia: Catalogue) -> None:
    bandwidth = [series for series in nvidia.series.values() if "NVLINK" in series.name and "BANDWIDTH" in series.name]
    assert len(bandwidth) == 3 * 19
    assert all(series.type == "counter" and not series.feeds for series in bandwidth)


def test_a_sum_over_memory_errors_counts_each_once(nvidia: Catalogue) -> None:
    rows = [(f"DCGM_FI_DEV_ECC_SBE_VOL_{place}", 5, ()) for place in ("TOTAL", "DEV", "L2", "SRM", "REG")]
    assert sum(common(nvidia, rows).values()) == 5


def test_a_sum_over_nvlink_errors_counts_each_once(nvidia: Catalogue) -> None:
    kinds = "RX_ERRORS RX_MALFORMED_PACKET_ERRORS RX_BUFFER_OVERRUN_ERRORS RX_REMOTE_ERRORS RX_GENERAL_ERRORS"
    assert sum(common(nvidia, [(f"DCGM_FI_DEV_NVLINK_COUNT_{kind}", 3, ()) for kind in kinds.split()]).values()) == 3
    recoveries = "LINK_RECOVERY_EVENTS LINK_RECOVERY_SUCCESSFUL_EVENTS LINK_RECOVERY_FAILED_EVENTS"
    rows = [(f"DCGM_FI_DEV_NVLINK_COUNT_{kind}", 2, ()) for kind in recoveries.split()]
    assert common(nvidia, rows) == {("accel_interconnect_errors_total", "nvlink", "recovery"): 2}


@pytest.mark.parametrize(
    ("name", "label", "factor"),
    [("nvml_nvlink_sent_kibibytes_total", "link", 1024), ("DCGM_FI_DEV_NVLINK_COUNT_TX_BYTES", "nvlink", 1)],
)
def test_nvlink_traffic_is_summed_or_by_link(nvidia: Catalogue, name: str, label: str, factor: int) -> None:
    rows = [(name, 10, ((label, "0"),)), (name, 5, ((label, "1"),))]
    metric = "accel_interconnect_sent_bytes_total"
    assert common(nvidia, rows) == {(metric, "nvlink"): 15 * factor}
    by_link = {(metric, "nvlink", "0"): 10 * factor, (metric, "nvlink", "1"): 5 * factor}
    assert common(nvidia, rows, links="each") == by_link
    for links in ("sum", "each"):
        assert common(nvidia, [(name, 15, ())], links=links) == {(metric, "nvlink"): 15 * factor}


@pytest.mark.parametrize(
    ("name", "error"),
    [("CRC_FLIT_ERROR_COUNT_TOTAL", "crc"), ("ERROR_DL_RECOVERY", "recovery"), ("COUNT_RX_SYMBOL_ERRORS", "symbol")],
)
def test_nvlink_errors_are_summed_or_by_link(nvidia: Catalogue, name: str, error: str) -> None:
    rows = [
        (f"DCGM_FI_DEV_NVLINK_{name}", 4, (("nvlink", "0"),)),
        (f"DCGM_FI_DEV_NVLINK_{name}", 3, (("nvlink", "1"),)),
    ]
    metric = "accel_interconnect_errors_total"
    assert common(nvidia, rows) == {(metric, "nvlink", error): 7}
    assert common(nvidia, rows, links="each") == {(metric, "nvlink", "0", error): 4, (metric, "nvlink", "1", error): 3}


def test_each_media_engine_is_one_of_the_schemas(nvidia: Catalogue) -> None:
    rows: list[Raw] = [("DCGM_FI_DEV_ENC_UTIL", 1, ()), ("DCGM_FI_DEV_DEC_UTIL", 2, ())]
    rows += [("nvml_jpeg_utilization_percent", 3, ()), ("nvml_ofa_utilization_percent", 4, ())]
    metric = "accel_media_utilization_ratio"
    found = {(metric, "encoder"): 0.01, (metric, "decoder"): 0.02, (metric, "jpeg"): 0.03, (metric, "ofa"): 0.04}
    assert common(nvidia, rows) == found


@pytest.mark.parametrize(
    ("value", "action"),
    [(0, "none"), (1, "reset_device"), (2, "reboot_node"), (3, "drain"), (4, "drain"), (5, "recover_fabric")],
)
def test_the_drivers_recovery_action_is_one_of_ours(nvidia: Catalogue, value: int, action: str) -> None:
    found = common(nvidia, [("DCGM_FI_DEV_GET_GPU_RECOVERY_ACTION", value, ())])
    assert [key[1] for key, is_set in found.items() if is_set] == [action]


@pytest.mark.parametrize(("value", "state"), [(1, "not_started"), (2, "in_progress"), (3, "completed"), (4, "failed")])
def test_the_fabric_state_is_dcgms(nvidia: Catalogue, value: int, state: str) -> None:
    found = common(nvidia, [("DCGM_FI_DEV_FABRIC_MANAGER_STATUS", value, ())])
    assert [key[1] for key, is_set in found.items() if is_set] == [state]
    assert nvidia.series["DCGM_FI_DEV_FABRIC_MANAGER_STATUS"].absent == (0, 5, 6)


def test_power_repeated_on_a_mig_instance_is_the_gpus_and_memory_is_the_instances(nvidia: Catalogue) -> None:
    layout = (Key("DCGM_FI_DEV_POWER_USAGE", 1), Key("DCGM_FI_DEV_FB_USED", 1), Key("nvml_memory_capacity_bytes", 0))
    plan = make_plan(nvidia, (GPU, MIG), {"normal": layout})
    assert {output.id.metric: output.id.partition for output in plan.outputs} == {
        "accel_power_watts": "",
        "accel_memory_used_bytes": "1g.10gb/7",
        "accel_capacity_memory_bytes": "",
    }
