"""AMD's tables against the names of its exporter, its documents and the public dashboards and rules."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

import collectors
from collectors.base import Device, Labels
from exporter.assemble import renamed
from exporter.catalogue import Catalogue, load
from exporter.derived import Book
from exporter.model import Key
from exporter.normalize import Links, holds, make_plan
from exporter.publisher import CollectorStatus, Publisher
from exporter.view import View, ViewOptions
from tests.acme import MAX_AGE, device, sample, series, snapshot

FOLDER = Path(collectors.__file__).parent / "amd"


def names(text: str) -> list[str]:
    return text.split()


# The enumeration of the exporter's fields, in lower case.
BLOCKS = names("sdma gfx mmhub athub bif hdp xgmi_wafl df smn sem mp0 mp1 fuse umc mca vcn jpeg ih mpio")
ECC = [f"gpu_ecc_{kind}_{block}" for kind in ("correct", "uncorrect", "deferred") for block in (*BLOCKS, "total")]
XGMI = [
    *(f"gpu_xgmi_nbr_{n}_{what}_tx" for n in (0, 1) for what in ("nop", "req", "resp", "beats")),
    *(f"gpu_xgmi_nbr_{n}_tx_thrput" for n in range(6)),
    "gpu_xgmi_link_rx",
    "gpu_xgmi_link_tx",
]
RESIDENCIES = names("processor_hot ppt socket_thermal vr_thermal hbm_thermal")
DIES = names(
    "gfx_clock_below_host_limit_power gfx_clock_below_host_limit_thermal low_utilization"
    " gfx_clock_below_host_limit_total"
)
VIOLATIONS = [
    "gpu_violation_current_accumulated_counter",
    *(f"gpu_violation_{name}_residency_{kind}" for name in RESIDENCIES for kind in ("accumulated", "percentage")),
    *(f"gpu_violation_{name}_{kind}" for name in DIES for kind in ("accumulated", "percentage")),
]
OTHERS = names(
    """
    gpu_nodes_total gpu_package_power gpu_average_package_power gpu_edge_temperature gpu_junction_temperature
    gpu_memory_temperature gpu_hbm_temperature gpu_gfx_activity gpu_umc_activity gpu_mma_activity gpu_vcn_activity
    gpu_jpeg_activity gpu_voltage gpu_gfx_voltage gpu_memory_voltage pcie_speed pcie_max_speed pcie_bandwidth
    gpu_energy_consumed pcie_replay_count pcie_recovery_count pcie_replay_rollover_count pcie_nack_sent_count
    pcie_nack_received_count gpu_clock gpu_power_usage gpu_total_vram gpu_used_vram gpu_free_vram
    gpu_total_visible_vram gpu_used_visible_vram gpu_free_visible_vram gpu_total_gtt gpu_used_gtt gpu_free_gtt
    gpu_health gpu_gfx_busy_instantaneous gpu_vcn_busy_instantaneous gpu_jpeg_busy_instantaneous pcie_rx pcie_tx
    pcie_bidirectional_bandwidth gpu_afid_errors gpu_max_clock gpu_min_clock gpu_process_cu_occupancy
    gpu_vram_max_bandwidth
    """
)
PROFILER = [
    f"gpu_prof_{name}"
    for name in names(
        """
        grbm_gui_active sq_waves grbm_count fetch_size write_size total_16_ops total_32_ops total_64_ops
        gui_util_percent occupancy_percent tensor_active_percent valu_pipe_issue_util sm_active occupancy_elapsed
        occupancy_per_active_cu occupancy_per_cu simd_utilization
        cpc_cpc_stat_busy cpc_cpc_stat_idle cpc_cpc_stat_stall cpc_cpc_tciu_busy cpc_cpc_tciu_idle
        cpc_cpc_utcl2iu_busy cpc_cpc_utcl2iu_idle cpc_cpc_utcl2iu_stall cpc_me1_busy_for_packet_decode
        cpc_me1_dc0_spi_busy cpc_utcl1_stall_on_translation cpc_always_count cpc_adc_valid_chunk_not_avail
        cpc_adc_dispatch_alloc_done cpc_adc_valid_chunk_end cpc_sync_fifo_full_level cpc_sync_fifo_full cpc_gd_busy
        cpc_tg_send cpc_walk_next_chunk cpc_stalled_by_se0_spi cpc_stalled_by_se1_spi cpc_stalled_by_se2_spi
        cpc_stalled_by_se3_spi cpc_lte_all cpc_sync_wrreq_fifo_busy cpc_cane_busy cpc_cane_stall
        cpf_cmp_utcl1_stall_on_translation cpf_cpf_stat_busy cpf_cpf_stat_idle cpf_cpf_stat_stall cpf_cpf_tciu_busy
        cpf_cpf_tciu_idle cpf_cpf_tciu_stall
        """
    )
]
VENDORS = [*ECC, *XGMI, *VIOLATIONS, *OTHERS, *PROFILER]

QUERIED = names(
    """
    gpu_package_power gpu_average_package_power gpu_junction_temperature gpu_edge_temperature gpu_memory_temperature
    gpu_hbm_temperature gpu_gfx_activity gpu_gfx_busy_instantaneous gpu_used_vram gpu_total_vram gpu_energy_consumed
    pcie_bandwidth pcie_max_speed pcie_replay_count pcie_recovery_count pcie_replay_rollover_count
    pcie_nack_sent_count pcie_nack_received_count gpu_ecc_correct_total gpu_ecc_uncorrect_total gpu_health
    gpu_prof_sm_active gpu_prof_tensor_active_percent gpu_prof_gui_util_percent gpu_prof_occupancy_per_cu
    gpu_prof_occupancy_per_active_cu gpu_prof_simd_utilization gpu_nodes_total
    """
)
RECORDED = names("gpu_gfx_activity gpu_used_vram gpu_total_vram gpu_power_usage gpu_junction_temperature gpu_clock")
"""What the operator's recording rules match by the end of the name: no other name may end so."""

Raw = tuple[str, float, Labels]
WHOLE = Device(uuid="9fff74a1-0000-1000-8044-0a1b2c3d4e5f", index="0")
CUT = [WHOLE, *(Device(uuid=WHOLE.uuid, index=str(n), partition=str(n)) for n in range(8))]


@pytest.fixture(scope="module")
def amd() -> Catalogue:
    return load(FOLDER, "collectors.amd")


def common(
    catalogue: Catalogue, rows: Sequence[tuple[int, Raw]], devices: Sequence[Device] = (WHOLE,), links: Links = "sum"
) -> dict[tuple[str, ...], float]:
    """What the raw series become: metric, partition and label values → value."""
    layout = tuple(Key(name, device, labels) for device, (name, _, labels) in rows)
    plan = make_plan(catalogue, devices, {"normal": layout}, links=links)
    values = [value for _, (_, value, _) in rows]
    return {
        (out.id.metric.removeprefix("accel_"), out.id.partition, *(value for _, value in out.id.labels)): out.evaluate(
            values
        )
        for out in plan.outputs
    }


def one(*rows: Raw) -> list[tuple[int, Raw]]:
    return [(0, row) for row in rows]


def test_every_series_of_the_exporter_is_there_and_is_a_gauge(amd: Catalogue) -> None:
    assert len(VENDORS) == len(set(VENDORS)) == 194
    vendors = {series.name: series.type for series in amd.series.values() if not series.own}
    assert vendors == dict.fromkeys(VENDORS, "gauge")


def test_all_are_on_by_default_but_the_profilers(amd: Catalogue) -> None:
    defaults = {series.name for series in amd.series.values() if series.default}
    assert defaults == set(VENDORS) - set(PROFILER)


def test_names_of_ours_are_plainly_ours(amd: Catalogue) -> None:
    own = [series.name for series in amd.series.values() if series.own]
    assert own
    assert [name for name in own if not name.startswith("amdsmi_")] == []
    assert [name for name in own for other in RECORDED if name.endswith(other)] == []


def test_each_of_the_vendors_series_has_the_name_with_the_operators_prefix(amd: Catalogue) -> None:
    headers = renamed(amd, "amd-prefix")
    assert {name: header.name for name, header in headers.items()} == {name: f"amd_{name}" for name in VENDORS}
    assert renamed(amd, "default") == {}


@pytest.mark.parametrize(
    ("old", "name"),
    [
        ("pcie_nac_received_count", "pcie_nack_received_count"),
        ("xgmi_neighbor_0_request_tx", "gpu_xgmi_nbr_0_req_tx"),
        ("xgmi_neighbor_1_response_tx", "gpu_xgmi_nbr_1_resp_tx"),
        ("xgmi_neighbor_5_tx_throughput", "gpu_xgmi_nbr_5_tx_thrput"),
        ("gpu_violation_vr_thermal_tracking_accumulated", "gpu_violation_vr_thermal_residency_accumulated"),
        ("amd_pcie_nac_received_count", "pcie_nack_received_count"),
    ],
)
def test_names_from_before_v1_4_are_known(amd: Catalogue, old: str, name: str) -> None:
    assert amd.aliases[old] == name


def test_every_name_that_public_dashboards_and_rules_query_exists(amd: Catalogue) -> None:
    assert [name for name in (*QUERIED, *RECORDED) if name not in amd.series] == []


def test_the_identity_has_every_label_that_public_dashboards_use(amd: Catalogue) -> None:
    used = names(
        "cluster_name hostname gpu_id gpu_uuid gpu_partition_id card_model card_series card_vendor serial_number"
        " vbios_version driver_version"
    )
    assert set(used) <= set(amd.identity)
    assert {"gpu_compute_partition_type", "gpu_memory_partition_type", "deployment_mode"} <= set(amd.identity)


@pytest.mark.parametrize(
    ("name", "unit", "labels", "level"),
    [
        ("gpu_power_usage", "watts", (), "device"),
        ("gpu_energy_consumed", "microjoules", (), "device"),
        ("gpu_hbm_temperature", "celsius", ("hbm_index",), "device"),
        ("gpu_gfx_activity", "percent", (), "device"),
        ("gpu_gfx_busy_instantaneous", "percent", ("xcc_index",), "part"),
        ("gpu_used_vram", "mebibytes", (), "part"),
        ("gpu_used_gtt", "mebibytes", (), "device"),
        ("gpu_vram_max_bandwidth", "gigabytes_per_second", (), "device"),
        ("gpu_voltage", "millivolts", (), "device"),
        ("gpu_clock", "megahertz", ("clock_index", "clock_type"), "device"),
        ("gpu_xgmi_link_rx", "kibibytes", ("link_index",), "device"),
        ("pcie_bandwidth", "megabits_per_second", (), "device"),
        ("gpu_violation_low_utilization_accumulated", "milliseconds", ("xcc_index",), "part"),
        ("gpu_afid_errors", "", ("severity", "afid_index"), "device"),
        ("gpu_process_cu_occupancy", "", ("process_id",), "part"),
        ("gpu_prof_sm_active", "percent", (), "part"),
        ("gpu_nodes_total", "", ("hostname", "cluster_name"), "node"),
    ],
)
def test_a_series_has_its_unit_labels_and_level(
    amd: Catalogue, name: str, unit: str, labels: tuple[str, ...], level: str
) -> None:
    series = amd.series[name]
    assert (series.unit, series.labels, series.level) == (unit, labels, level)


def test_only_the_exporter_has_the_profilers_and_the_link_counters_of_mi200(amd: Catalogue) -> None:
    foreign = {series.name for series in amd.series.values() if not series.native}
    assert foreign == {*PROFILER, *(name for name in XGMI if "_nbr_" in name)}


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (("gpu_power_usage", 561, ()), {("power_watts", ""): 561}),
        (("gpu_energy_consumed", 1_002_700_800, ()), {("energy_joules_total", ""): 1002.7008}),
        (("gpu_used_vram", 4384, ()), {("memory_used_bytes", "", "device"): 4_596_957_184}),
        (("gpu_used_gtt", 20, ()), {("memory_used_bytes", "", "host"): 20_971_520}),
        (("gpu_gfx_activity", 57, ()), {("utilization_ratio", ""): 0.57}),
        (("gpu_umc_activity", 41, ()), {("memory_bandwidth_active_ratio", ""): 0.41}),
        (("gpu_gfx_voltage", 712, ()), {("voltage_volts", "", "gfx"): 0.712}),
        (("gpu_violation_ppt_residency_accumulated", 1500, ()), {("throttle_seconds_total", "", "power_cap"): 1.5}),
        (("amdsmi_fan_speed_ratio", 0.2, (("fan", "0"),)), {("fan_speed_ratio", "", "0"): 0.2}),
        (("gpu_prof_sm_active", 33.5, ()), {("compute_active_ratio", ""): 0.335}),
        (("gpu_ecc_uncorrect_umc", 2, ()), {("memory_errors_total", "", "false", "hbm"): 2}),
        (("amdsmi_bad_pages_pending", 3, ()), {("memory_repair_pending", "", "retired_page"): 1}),
        (("amdsmi_bad_pages_pending", 0, ()), {("memory_repair_pending", "", "retired_page"): 0}),
    ],
)
def test_a_number_becomes_base_units(amd: Catalogue, row: Raw, expected: Mapping[tuple[str, ...], float]) -> None:
    assert common(amd, one(row)) == pytest.approx(expected)


@pytest.mark.parametrize("spelling", ["{}", "GPU_CLOCK_TYPE_{}"])
def test_clocks_go_by_their_type_in_either_spelling(amd: Catalogue, spelling: str) -> None:
    def kind(name: str) -> str:
        return name if spelling == "{}" else spelling.format(name.upper())

    rows: list[Raw] = [
        ("gpu_clock", mhz, (("clock_index", str(index)), ("clock_type", kind(name))))
        for index, name, mhz in (
            (0, "system", 2000), (1, "system", 2100), (8, "memory", 1300), (9, "video", 30), (13, "data", 22),
            (17, "fabric", 1900), (19, "soc", 1200),
        )
    ]  # fmt: skip
    assert common(amd, one(*rows)) == {
        ("clock_hertz", "", "core"): 2_050_000_000,
        ("clock_hertz", "", "memory"): 1_300_000_000,
        ("clock_hertz", "", "media"): 30_000_000,
        ("clock_hertz", "", "fabric"): 1_900_000_000,
    }


def test_a_sum_over_memory_errors_counts_each_once(amd: Catalogue) -> None:
    rows: list[Raw] = [(f"gpu_ecc_{kind}_{block}", 5, ()) for kind in ("correct", "deferred") for block in BLOCKS]
    rows += [("gpu_ecc_correct_total", 95, ()), ("gpu_ecc_deferred_total", 95, ())]
    found = common(amd, one(*rows))
    assert found == {
        ("memory_errors_total", "", "true", "hbm"): 5,
        ("interconnect_errors_total", "", "xgmi", "corrected"): 5,
    }


def test_what_the_two_dies_of_a_board_share_comes_before_what_the_first_says(amd: Catalogue) -> None:
    rows = one(("gpu_power_usage", 300, ()), ("amdsmi_power_share_watts", 150, ()))
    assert common(amd, rows) == {("power_watts", ""): 150}
    assert {feed.exactness for feed in amd.series["amdsmi_power_share_watts"].feeds} == {"estimated"}


def test_the_exact_energy_comes_before_the_exporters(amd: Catalogue) -> None:
    rows = one(("gpu_energy_consumed", 1_002_700_800, ()), ("amdsmi_energy_joules_total", 1000.0, ()))
    assert common(amd, rows) == {("energy_joules_total", ""): 1000.0}
    assert {feed.exactness for feed in amd.series["gpu_energy_consumed"].feeds} == {"approximate"}


def test_of_a_card_that_is_cut_each_quantity_stands_at_one_level(amd: Catalogue) -> None:
    rows: list[tuple[int, Raw]] = [(0, ("gpu_gfx_activity", 90, ())), (0, ("gpu_power_usage", 500, ()))]
    for part in range(1, 9):
        rows += [
            (part, ("gpu_gfx_busy_instantaneous", 10 * part, (("xcc_index", "0"),))),
            (part, ("gpu_used_vram", part, ())),
        ]
    found = common(amd, rows, CUT)
    assert found[("power_watts", "")] == 500
    assert {key[1]: value for key, value in found.items() if key[0] == "utilization_ratio"} == {
        str(n): (n + 1) / 10 for n in range(8)
    }
    assert ("memory_used_bytes", "", "device") not in found
    used = sum(value for key, value in found.items() if key[0] == "memory_used_bytes")
    assert used == sum(range(1, 9)) * 2**20


def test_of_a_card_that_is_not_cut_the_average_is_taken_and_not_the_moment(amd: Catalogue) -> None:
    busy: list[Raw] = [
        ("gpu_gfx_busy_instantaneous", value, (("xcc_index", str(n)),)) for n, value in enumerate((80, 40))
    ]
    assert common(amd, one(*busy)) == {("utilization_ratio", ""): pytest.approx(0.6)}
    assert common(amd, one(("gpu_gfx_activity", 90, ()), *busy)) == {("utilization_ratio", ""): 0.9}


@pytest.mark.parametrize(
    ("links", "expected"),
    [
        ("sum", {("interconnect_received_bytes_total", "", "xgmi"): 3 * 1024}),
        (
            "each",
            {
                ("interconnect_received_bytes_total", "", "xgmi", "0"): 1024,
                ("interconnect_received_bytes_total", "", "xgmi", "1"): 2048,
            },
        ),
    ],
)
def test_xgmi_traffic_is_summed_or_by_link(
    amd: Catalogue, links: Links, expected: Mapping[tuple[str, ...], float]
) -> None:
    rows = one(*(("gpu_xgmi_link_rx", n + 1, (("link_index", str(n)),)) for n in range(2)))
    assert common(amd, rows, links=links) == expected


def test_what_has_no_meaning_in_the_common_schema_feeds_nothing(amd: Catalogue) -> None:
    silent = ("pcie_bandwidth", "pcie_bidirectional_bandwidth", "pcie_recovery_count", "gpu_prof_fetch_size")
    packets = [name for name in XGMI if name.endswith(("_nop_tx", "_req_tx", "_resp_tx"))]
    assert len(packets) == 6
    assert [name for name in (*silent, *packets) if amd.series[name].feeds] == []


@pytest.mark.parametrize(
    ("series", "value", "state"),
    [
        ("gpu_health", 0, "failed"),
        ("gpu_health", 1, None),
        ("amdsmi_bad_pages_pending", 2, "degraded"),
        ("amdsmi_bad_pages_unreservable", 1, "degraded"),
        ("amdsmi_bad_pages_pending", 0, None),
        ("amdsmi_bad_pages_retired", 40, None),
        ("gpu_ecc_correct_umc", 1000, None),
        ("amdsmi_runtime_suspended", 1, "healthy"),
        ("amdsmi_runtime_suspended", 0, None),
    ],
)
def test_health_follows_amds_rule_and_the_bad_pages(amd: Catalogue, series: str, value: int, state: str | None) -> None:
    states = {rule.state for rule in amd.collector.health if rule.series == series and holds(rule, value)}
    assert states == ({state} if state else set())


def test_a_card_that_sleeps_is_healthy_though_it_tells_nothing_else(amd: Catalogue) -> None:
    """AMD's device plugin takes a GPU out of service that is not: it would never be used, and never wake."""
    view = View(amd, ViewOptions(raw=frozenset(), max_age=MAX_AGE))
    found = snapshot([device("0")], {"normal": sample([("amdsmi_runtime_suspended", 0, 1)])}, name="amd")
    status = CollectorStatus(name="amd", view=view, snapshot=found, present=None, expected=None)
    told = series(Publisher(Book(fault_hold=60.0), lambda *_: None).publish([status], None, now=1e6, monotonic=100.0))
    states = {text.partition('state="')[2]: value for text, value in told.items() if "accel_health_state" in text}
    assert states == {'healthy"}': 1, 'degraded"}': 0, 'failed"}': 0, 'unknown"}': 0}
    assert "amdsmi_runtime_suspended" in amd.wanted(frozenset(), common=True)["normal"]


def test_an_afids_severity_is_that_of_its_name(amd: Catalogue) -> None:
    assert {f"afid:{n}" for n in range(1, 35)} == set(amd.faults)
    for code, fault in amd.faults.items():
        ending = fault.name.rpartition(", ")[2]
        expected = {"corrected": "info", "uncorrected": "degraded", "fatal": "fatal"}.get(ending)
        assert expected in (None, fault.severity), code
    assert {amd.faults[f"afid:{n}"].severity for n in range(1, 13)} == {"fatal"}
    assert amd.faults["afid:19"].action == "replace"
    assert all(fault.severity == "fatal" for fault in amd.faults.values() if fault.action != "none")


@pytest.mark.parametrize(
    ("resource_id", "facts"),
    [
        ("0000:19:00.0", {"bdf": "0000:19:00.0"}),
        ("amdgpu_xcp_7", {"device_name": "amdgpu_xcp_7"}),
    ],
)
def test_a_kubelets_ids_are_understood(amd: Catalogue, resource_id: str, facts: Mapping[str, str]) -> None:
    found = [
        match.groupdict()
        for form in amd.collector.attribution.ids
        if (match := re.fullmatch(form.pattern, resource_id))
    ]
    assert found == [facts]


def test_a_workloads_labels_have_the_exporters_names_and_stand_on_free_gpus_too(amd: Catalogue) -> None:
    attribution = amd.collector.attribution
    told = names("namespace pod container job_id job_user job_partition cluster_name")
    assert attribution.raw_labels == {**{name: name for name in told}, "pod_uid": "pod_uuid"}
    assert attribution.raw_empty


def test_zero_is_no_reading_where_a_gpu_that_runs_cannot_have_it(amd: Catalogue) -> None:
    never_zero = (
        "gpu_(power_usage|(average_)?package_power|energy_consumed|.*_temperature|.*voltage|total_(visible_)?vram|"
        "total_gtt|vram_max_bandwidth)|pcie_(max_)?speed"
    )
    for name in VENDORS:
        assert amd.series[name].absent == ((0,) if re.fullmatch(never_zero, name) else ()), name
