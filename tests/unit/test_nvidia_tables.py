"""NVIDIA's tables against dcgm-exporter's CSV file, DCGM's and NVML's headers and the public dashboards."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping

import pytest

from exporter.catalogue import Catalogue, load
from exporter.normalize import holds
from tests.nvidia_rows import FOLDER


def names(text: str) -> list[str]:
    return text.split()


DEFAULT_GAUGES = names(
    """
    DCGM_FI_DEV_SM_CLOCK DCGM_FI_DEV_MEM_CLOCK DCGM_FI_DEV_MEMORY_TEMP DCGM_FI_DEV_GPU_TEMP DCGM_FI_DEV_POWER_USAGE
    DCGM_FI_DEV_GPU_UTIL DCGM_FI_DEV_MEM_COPY_UTIL DCGM_FI_DEV_ENC_UTIL DCGM_FI_DEV_DEC_UTIL DCGM_FI_DEV_XID_ERRORS
    DCGM_FI_DEV_FB_FREE DCGM_FI_DEV_FB_USED DCGM_FI_DEV_FB_RESERVED DCGM_FI_DEV_VGPU_LICENSE_STATUS
    DCGM_FI_DEV_ROW_REMAP_FAILURE DCGM_FI_PROF_GR_ENGINE_ACTIVE DCGM_FI_PROF_PIPE_TENSOR_ACTIVE DCGM_FI_PROF_DRAM_ACTIVE
    DCGM_FI_PROF_PCIE_TX_BYTES DCGM_FI_PROF_PCIE_RX_BYTES
    """
)
DEFAULT_COUNTERS = names(
    """
    DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION DCGM_FI_DEV_PCIE_REPLAY_COUNTER DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL
    DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS
    """
)
COMMENTED_COUNTERS = names(
    """
    DCGM_FI_DEV_POWER_VIOLATION DCGM_FI_DEV_THERMAL_VIOLATION DCGM_FI_DEV_SYNC_BOOST_VIOLATION
    DCGM_FI_DEV_BOARD_LIMIT_VIOLATION DCGM_FI_DEV_LOW_UTIL_VIOLATION DCGM_FI_DEV_RELIABILITY_VIOLATION
    DCGM_EXP_CLOCK_EVENTS_COUNT DCGM_EXP_XID_ERRORS_COUNT DCGM_EXP_GPU_HEALTH_STATUS DCGM_EXP_P2P_STATUS
    DCGM_FI_DEV_ECC_SBE_VOL_TOTAL DCGM_FI_DEV_ECC_DBE_VOL_TOTAL DCGM_FI_DEV_ECC_SBE_AGG_TOTAL
    DCGM_FI_DEV_ECC_DBE_AGG_TOTAL
    DCGM_FI_DEV_RETIRED_SBE DCGM_FI_DEV_RETIRED_DBE DCGM_FI_DEV_RETIRED_PENDING
    DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL
    DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL
    DCGM_FI_DEV_NVLINK_BANDWIDTH_L0
    """
)
COMMENTED_GAUGES = names(
    """
    DCGM_FI_PROF_SM_ACTIVE DCGM_FI_PROF_SM_OCCUPANCY DCGM_FI_PROF_PIPE_FP64_ACTIVE DCGM_FI_PROF_PIPE_FP32_ACTIVE
    DCGM_FI_PROF_PIPE_FP16_ACTIVE
    """
)

QUERIED = names(
    """
    DCGM_FI_DEV_GPU_TEMP DCGM_FI_DEV_POWER_USAGE DCGM_FI_DEV_SM_CLOCK DCGM_FI_DEV_GPU_UTIL DCGM_FI_DEV_FB_USED
    DCGM_FI_PROF_PIPE_TENSOR_ACTIVE DCGM_FI_DEV_FB_FREE DCGM_FI_DEV_MEMORY_TEMP DCGM_FI_DEV_MEM_CLOCK
    DCGM_FI_PROF_GR_ENGINE_ACTIVE DCGM_FI_PROF_PCIE_RX_BYTES DCGM_FI_PROF_PCIE_TX_BYTES DCGM_FI_DEV_FB_TOTAL
    DCGM_FI_DEV_MEM_COPY_UTIL DCGM_FI_DEV_ECC_DBE_AGG_TOTAL DCGM_FI_DEV_ECC_DBE_VOL_TOTAL
    DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL
    DCGM_FI_DEV_THERMAL_VIOLATION
    DCGM_FI_DEV_POWER_VIOLATION DCGM_FI_DEV_XID_ERRORS DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION DCGM_FI_PROF_SM_ACTIVE
    DCGM_FI_PROF_SM_OCCUPANCY DCGM_FI_PROF_PIPE_FP64_ACTIVE DCGM_FI_PROF_PIPE_FP32_ACTIVE DCGM_FI_PROF_PIPE_FP16_ACTIVE
    DCGM_FI_PROF_DRAM_ACTIVE DCGM_FI_PROF_NVLINK_TX_BYTES DCGM_FI_PROF_NVLINK_RX_BYTES
    DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL
    DCGM_FI_DEV_POWER_MGMT_LIMIT_MAX DCGM_FI_DEV_MAX_SM_CLOCK DCGM_FI_DEV_MAX_MEM_CLOCK DCGM_FI_DEV_ENC_UTIL
    DCGM_FI_DEV_DEC_UTIL DCGM_FI_DEV_MEM_MAX_OP_TEMP DCGM_FI_DEV_GPU_MAX_OP_TEMP DCGM_FI_DEV_FAN_SPEED
    DCGM_FI_DEV_FB_USED_PERCENT DCGM_EXP_XID_ERRORS_COUNT DCGM_FI_DEV_CLOCK_THROTTLE_REASONS dcgm_gpu_temp
    dcgm_gpu_utilization dcgm_fb_used dcgm_power_usage dcgm_xid_errors
    """
)


@pytest.fixture(scope="module")
def nvidia() -> Catalogue:
    return load(FOLDER, "collectors.nvidia")


def feeders(catalogue: Catalogue, metric: str, **labels: str) -> list[str]:
    """The series that feed a common series, the preferred one first."""
    return [
        series.name
        for series in catalogue.series.values()
        for feed in series.feeds
        if feed.metric == metric and feed.labels == labels
    ]


def test_the_default_series_are_the_25_of_dcgm_exporter(nvidia: Catalogue) -> None:
    defaults = {series.name: series.type for series in nvidia.series.values() if series.default}
    assert len(defaults) == 25
    assert defaults == {**dict.fromkeys(DEFAULT_GAUGES, "gauge"), **dict.fromkeys(DEFAULT_COUNTERS, "counter")}


def test_the_series_that_dcgm_exporter_ships_switched_off_exist_with_their_declared_type(nvidia: Catalogue) -> None:
    assert {nvidia.series[name].type for name in COMMENTED_COUNTERS} == {"counter"}
    assert {nvidia.series[name].type for name in COMMENTED_GAUGES} == {"gauge"}
    assert not any(nvidia.series[name].default for name in COMMENTED_COUNTERS + COMMENTED_GAUGES)


def test_every_name_that_public_dashboards_query_exists(nvidia: Catalogue) -> None:
    assert [name for name in QUERIED if name not in nvidia.series and name not in nvidia.aliases] == []


def test_the_identity_is_dcgm_exporters_in_its_order(nvidia: Catalogue) -> None:
    order = "gpu UUID pci_bus_id device modelName GPU_I_PROFILE GPU_I_ID Hostname"
    fields = "BRAND ECC_INFOROM_VER INFOROM_IMAGE_VER OEM_INFOROM_VER POWER_INFOROM_VER SERIAL VBIOS_VERSION"
    labels = [*(f"DCGM_FI_DEV_{field}" for field in fields.split()), "DCGM_FI_DRIVER_VERSION", "DCGM_FI_NVML_VERSION"]
    assert nvidia.identity == (*order.split(), *labels)


@pytest.mark.parametrize(
    ("name", "field", "unit", "level"),
    [
        ("DCGM_FI_DEV_SM_CLOCK", 100, "megahertz", "device"),
        ("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", 112, "", "device"),
        ("DCGM_FI_DEV_MEMORY_TEMP", 140, "celsius", "device"),
        ("DCGM_FI_DEV_POWER_USAGE", 155, "watts", "device"),
        ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", 156, "millijoules", "device"),
        ("DCGM_FI_DEV_ENFORCED_POWER_LIMIT", 164, "watts", "device"),
        ("DCGM_FI_DEV_GPU_UTIL", 203, "percent", "device"),
        ("DCGM_FI_DEV_XID_ERRORS", 230, "", "part"),
        ("DCGM_FI_DEV_THERMAL_VIOLATION", 241, "nanoseconds", "device"),
        ("DCGM_FI_DEV_FB_USED", 252, "mebibytes", "part"),
        ("DCGM_FI_DEV_FB_USED_PERCENT", 254, "ratio", "part"),
        ("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", 311, "", "device"),
        ("DCGM_FI_DEV_ECC_DBE_AGG_SRM", 345, "", "device"),
        ("DCGM_FI_DEV_THRESHOLD_SRM", 346, "", "device"),
        ("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", 393, "", "device"),
        ("DCGM_FI_DEV_ROW_REMAP_PENDING", 396, "", "device"),
        ("DCGM_FI_DEV_VGPU_LICENSE_STATUS", 526, "", "device"),
        ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", 1001, "ratio", "part"),
        ("DCGM_FI_PROF_DRAM_ACTIVE", 1005, "ratio", "part"),
        ("DCGM_FI_PROF_PCIE_TX_BYTES", 1009, "bytes_per_second", "device"),
        ("DCGM_FI_PROF_HOSTMEM_CACHE_HIT", 1080, "percent", "device"),
        ("DCGM_FI_DEV_NVLINK_COUNT_TX_BYTES", 1201, "bytes", "device"),
        ("DCGM_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN_NS", 1424, "nanoseconds", "device"),
        ("DCGM_FI_DEV_PCIE_COUNT_CORRECTABLE_ERRORS", 1501, "", "device"),
        ("DCGM_FI_DEV_GET_GPU_RECOVERY_ACTION", 1523, "", "device"),
    ],
)
def test_a_series_has_dcgms_field_and_unit(nvidia: Catalogue, name: str, field: int, unit: str, level: str) -> None:
    series = nvidia.series[name]
    assert (series.id, series.unit, series.level) == (field, unit, level)


def test_the_fields_by_link_and_engine_are_complete(nvidia: Catalogue) -> None:
    bandwidth = [*range(440, 446), *range(475, 481), *range(446, 449), *range(494, 497)]
    for link in range(18):
        assert nvidia.series[f"DCGM_FI_DEV_NVLINK_BANDWIDTH_L{link}"].id == bandwidth[link]
        assert nvidia.series[f"DCGM_FI_DEV_NVLINK_TX_BANDWIDTH_L{link}"].id == 825 + link
        assert nvidia.series[f"DCGM_FI_DEV_NVLINK_RX_BANDWIDTH_L{link}"].id == 879 + link
        sent, received = (nvidia.series[f"DCGM_FI_PROF_NVLINK_L{link}_{way}_BYTES"] for way in ("TX", "RX"))
        assert (sent.id, sent.native) == (1040 + 2 * link, f"GPM#{63 + 2 * link}")
        assert (received.id, received.native) == (1041 + 2 * link, f"GPM#{62 + 2 * link}")
    for engine, field, metric, count in (("NVDEC", 1017, 30, 8), ("NVJPG", 1025, 40, 8), ("NVOFA", 1033, 50, 2)):
        for number in range(count):
            series = nvidia.series[f"DCGM_FI_PROF_{engine}{number}_ACTIVE"]
            assert (series.id, series.native) == (field + number, f"GPM#{metric + number}")
    ecc = sorted(series.id or 0 for name, series in nvidia.series.items() if name.startswith("DCGM_FI_DEV_ECC_"))
    assert ecc == [300, 301, *range(310, 346)]


@pytest.mark.parametrize(
    ("metric", "labels", "order"),
    [
        ("accel_power_watts", {}, "DCGM_FI_DEV_POWER_USAGE DCGM_FI_DEV_POWER_USAGE_INSTANT"),
        (
            "accel_power_limit_watts",
            {"limit": "enforced"},
            "DCGM_FI_DEV_ENFORCED_POWER_LIMIT DCGM_FI_DEV_POWER_MGMT_LIMIT",
        ),
        ("accel_utilization_ratio", {}, "DCGM_FI_DEV_GPU_UTIL DCGM_FI_PROF_GR_ENGINE_ACTIVE"),
        ("accel_memory_bandwidth_active_ratio", {}, "DCGM_FI_PROF_DRAM_ACTIVE DCGM_FI_DEV_MEM_COPY_UTIL"),
        (
            "accel_memory_total_bytes",
            {"memory": "device"},
            "nvml_memory_total_bytes DCGM_FI_DEV_FB_TOTAL DCGM_FI_DEV_FB_USED DCGM_FI_DEV_FB_USED",
        ),
        (
            "accel_throttle_seconds_total",
            {"reason": "thermal"},
            "DCGM_FI_DEV_THERMAL_VIOLATION DCGM_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN_NS",
        ),
        (
            "accel_pcie_sent_bytes_per_second",
            {},
            "nvml_pcie_tx_bytes_per_second DCGM_FI_PROF_PCIE_TX_BYTES DCGM_FI_DEV_PCIE_TX_THROUGHPUT",
        ),
        (
            "accel_interconnect_sent_bytes_total",
            {"fabric": "nvlink"},
            "nvml_nvlink_sent_kibibytes_total DCGM_FI_DEV_NVLINK_COUNT_TX_BYTES",
        ),
        (
            "accel_interconnect_errors_total",
            {"fabric": "nvlink", "error": "recovery"},
            "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL DCGM_FI_DEV_NVLINK_ERROR_DL_RECOVERY"
            " DCGM_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_EVENTS",
        ),
    ],
)
def test_the_preferred_source_comes_first(
    nvidia: Catalogue, metric: str, labels: Mapping[str, str], order: str
) -> None:
    assert feeders(nvidia, metric, **labels) == order.split()


def test_stand_ins_that_mean_something_else_are_called_approximate(nvidia: Catalogue) -> None:
    stand_ins = ("MEM_COPY_UTIL", "POWER_MGMT_LIMIT", "PCIE_TX_THROUGHPUT", "FAN_SPEED")
    own = ("nvml_pcie_tx_bytes_per_second", "nvml_pcie_rx_bytes_per_second")
    for name in (*(f"DCGM_FI_DEV_{name}" for name in stand_ins), "DCGM_FI_PROF_GR_ENGINE_ACTIVE", *own):
        assert {feed.exactness for feed in nvidia.series[name].feeds} == {"approximate"}


def test_the_utilization_of_grace_is_told_by_core(nvidia: Catalogue) -> None:
    assert nvidia.series["DCGM_FI_DEV_CPU_UTIL_USER"].labels == ("cpucore", "cpu", "Hostname")
    assert nvidia.series["DCGM_FI_DEV_CPU_POWER_UTIL_CURRENT"].labels == ("cpu", "Hostname")


def test_no_series_of_ours_has_a_label_that_says_nothing(nvidia: Catalogue) -> None:
    assert not [series.name for series in nvidia.series.values() if series.own and "type" in series.labels]


def test_xids_feed_no_common_metric(nvidia: Catalogue) -> None:
    assert not nvidia.series["DCGM_FI_DEV_XID_ERRORS"].feeds
    assert not nvidia.series["DCGM_EXP_XID_ERRORS_COUNT"].feeds
    assert nvidia.series["DCGM_FI_DEV_XID_ERRORS"].labels == ("err_code", "err_msg")


def test_a_memory_temperature_of_0_is_no_reading(nvidia: Catalogue) -> None:
    assert nvidia.series["DCGM_FI_DEV_MEMORY_TEMP"].absent == (0,)
    assert nvidia.series["DCGM_FI_DEV_GPU_TEMP"].absent == ()


@pytest.mark.parametrize(
    ("name", "spelling"),
    [
        ("DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_GPU_TEMP_CELSIUS"),
        ("DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_BOARD_POWER_WATTS"),
        ("DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_GPU_UTIL_RATIO"),
        ("DCGM_FI_DEV_XID_ERRORS", "DCGM_FI_DEV_XID_ERROR"),
        ("DCGM_FI_DEV_RETIRED_PENDING", "DCGM_FI_DEV_PAGE_RETIRED_PENDING"),
        ("DCGM_FI_DEV_ROW_REMAP_FAILURE", "DCGM_FI_DEV_ROW_REMAP_FAILED"),
        ("DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", "DCGM_FI_DEV_NVLINK_THROUGHPUT_TOTAL"),
        ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO"),
        ("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "DCGM_FI_PROF_TENSOR_UTIL_RATIO"),
        ("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", "dcgm_ecc_sbe_volatile_total"),
        ("DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", "dcgm_nvlink_flit_crc_error_count_total"),
    ],
)
def test_other_versions_names_lead_to_the_series(nvidia: Catalogue, name: str, spelling: str) -> None:
    assert nvidia.aliases[spelling] == name


def test_a_series_has_at_most_one_name_of_dcgm_4_6_and_it_comes_first(nvidia: Catalogue) -> None:
    for series in nvidia.series.values():
        assert all(not alias.startswith("DCGM_") for alias in series.aliases[1:]), series.name


@pytest.mark.parametrize(
    ("series", "value", "state"),
    [
        ("DCGM_FI_DEV_ROW_REMAP_FAILURE", 1, "failed"),
        ("DCGM_FI_DEV_ROW_REMAP_FAILURE", 0, None),
        ("DCGM_FI_DEV_MEMORY_UNREPAIRABLE_FLAG", 1, "failed"),
        ("DCGM_FI_DEV_ROW_REMAP_PENDING", 1, "degraded"),
        ("DCGM_FI_DEV_RETIRED_PENDING", 1, "degraded"),
        ("DCGM_FI_DEV_THRESHOLD_SRM", 1, "degraded"),
        ("DCGM_FI_DEV_GET_GPU_RECOVERY_ACTION", 1, "failed"),
        ("DCGM_FI_DEV_GET_GPU_RECOVERY_ACTION", 2, "failed"),
        ("DCGM_FI_DEV_GET_GPU_RECOVERY_ACTION", 4, "degraded"),
        ("DCGM_FI_DEV_GET_GPU_RECOVERY_ACTION", 5, "degraded"),
        ("DCGM_FI_DEV_FABRIC_MANAGER_STATUS", 3, None),
        ("DCGM_FI_DEV_FABRIC_MANAGER_STATUS", 4, "degraded"),
        ("DCGM_FI_DEV_FABRIC_HEALTH_SUMMARY", 2, "degraded"),
        ("DCGM_EXP_GPU_HEALTH_STATUS", 10, "degraded"),
        ("DCGM_EXP_GPU_HEALTH_STATUS", 20, "failed"),
    ],
)
def test_health_follows_what_the_driver_says(nvidia: Catalogue, series: str, value: int, state: str | None) -> None:
    rules = [rule for rule in nvidia.collector.health if rule.series == series]
    assert rules
    assert {rule.state for rule in rules if holds(rule, value)} == ({state} if state else set())


def test_xids_have_the_severity_of_nvidias_own_tools(nvidia: Catalogue) -> None:
    def severity(*numbers: int) -> set[str]:
        return {nvidia.faults[f"xid:{number}"].severity for number in numbers}

    assert severity(13, 31, 43, 45, 68, 109, 63, 92) == {"info"}
    assert severity(48, 62, 64, 74, 79, 95, 119, 120, 140) == {"fatal"}
    assert severity(94, 32, 38, 39, 42, 54, 56, 57, 58, 60, 61, 67, 73, 78, 121, 137, 145, 149) == {"degraded"}


def test_xids_have_the_action_that_ends_them(nvidia: Catalogue) -> None:
    actions = {code: fault.action for code, fault in nvidia.faults.items()}
    assert {actions[f"xid:{number}"] for number in (13, 31, 43, 94)} == {"restart_workload"}
    assert {actions[f"xid:{number}"] for number in (95, 119, 120, 145, 149)} == {"reset_device"}
    assert actions["xid:79"] == "reboot_node"
    assert actions["xid:63"] == actions["xid:154"] == "none"


def test_xids_have_the_texts_of_dcgm_exporter(nvidia: Catalogue) -> None:
    assert nvidia.faults["xid:79"].name == "GPU has fallen off the bus"
    assert nvidia.faults["xid:64"].name == "ECC page retirement or row remapper recording failure"
    assert nvidia.faults["xid:149"].name == "NVLINK: NETIR Error"
    assert set(nvidia.faults) == {f"xid:{number}" for number in range(1, 173)}


def test_dcgms_blanks_are_no_values_to_the_bridge(nvidia: Catalogue) -> None:
    bridge = nvidia.collector.bridge
    assert bridge is not None
    for base in (0x7FFFFFF0, 0x7FFFFFFFFFFFFFF0):
        assert set(range(base, base + 4)) <= set(bridge.sentinels)
    assert {140737488355328.0 + kind for kind in range(4)} <= set(bridge.sentinels)


def test_the_bridge_knows_the_labels_of_every_version(nvidia: Catalogue) -> None:
    bridge = nvidia.collector.bridge
    assert bridge is not None
    assert set(bridge.labels.uuid) == {"UUID", "uuid", "gpu_uuid"}
    assert set(bridge.labels.model) == {"modelName", "model_name"}
    assert set(bridge.labels.node) == {"Hostname", "hostname"}
    assert {"pod", "pod_name", "exported_pod"} == set(bridge.labels.workload["pod"])
    assert bridge.labels.workload["job_name"] == ("hpc_job",)


def test_what_one_way_gives_alone_says_so(nvidia: Catalogue) -> None:
    assert nvidia.collector.sources == ("nvml", "dcgm")
    by_dcgm = {series.name for series in nvidia.series.values() if series.sources == ("dcgm",)}
    by_nvml = {series.name for series in nvidia.series.values() if series.sources == ("nvml",)}
    assert {"DCGM_EXP_GPU_HEALTH_STATUS", "DCGM_FI_IMEX_DAEMON_STATUS", "DCGM_FI_DEV_CPU_UTIL_TOTAL"} <= by_dcgm
    assert {nvidia.series[name].level for name in by_dcgm if "NVSWITCH" in name or "_CPU_" in name} == {"node"}
    assert by_nvml == {name for name in nvidia.series if name.startswith("nvml_")} | {"DCGM_EXP_P2P_STATUS"}
    # Of those that both give DCGM needs the number.
    both = [series for series in nvidia.series.values() if series.native and not series.sources]
    made = {"DCGM_EXP_XID_ERRORS_COUNT", "DCGM_EXP_CLOCK_EVENTS_COUNT"}
    assert {series.name for series in both if series.id is None} == made
    assert not (by_dcgm | by_nvml) & set(DEFAULT_GAUGES + DEFAULT_COUNTERS + COMMENTED_GAUGES)
    for name in by_dcgm:
        if nvidia.series[name].native.startswith("DCGM#"):
            assert nvidia.series[name].native == f"DCGM#{nvidia.series[name].id}"


def test_only_what_dcgm_gave_up_has_no_native_source(nvidia: Catalogue) -> None:
    bridged = {series.name for series in nvidia.series.values() if not series.native}
    assert bridged == {"DCGM_FI_DEV_PCIE_TX_THROUGHPUT", "DCGM_FI_DEV_PCIE_RX_THROUGHPUT"}


def test_the_simulations_labels_are_the_identity(nvidia: Catalogue) -> None:
    simulation = tomllib.loads((FOLDER / "simulation.toml").read_text())
    assert tuple(simulation["raw_labels"]) == nvidia.identity
    assert set(simulation["values"]) <= set(nvidia.series)
