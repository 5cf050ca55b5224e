"""Gaudi's tables against the vendor's exporter, the driver's interfaces and the public dashboards."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

import collectors
from collectors.base import Device, Labels
from collectors.gaudi import specials, sysfs
from collectors.gaudi.hlml import EVENTS
from collectors.gaudi.processes import COUNT, MEMORY
from collectors.gaudi.questions import DRAM_ECC, ECC, TABLE
from exporter.catalogue import Catalogue, load
from exporter.detection import PciDevice, present
from exporter.model import Key
from exporter.normalize import Links, holds, make_plan

FOLDER = Path(collectors.__file__).parent / "gaudi"


def names(text: str) -> list[str]:
    return text.split()


# What the exporter's source emits for each device: releases 1.23 and 1.24.
EXPORTED = names(
    """
    habanalabs_device_config habanalabs_clock_soc_mhz habanalabs_clock_soc_max_mhz habanalabs_utilization
    habanalabs_memory_total_bytes habanalabs_memory_used_bytes habanalabs_memory_free_bytes
    habanalabs_power_mW habanalabs_power_default_limit_mW habanalabs_energy
    habanalabs_temperature_onchip habanalabs_temperature_onboard
    habanalabs_temperature_threshold_shutdown habanalabs_temperature_threshold_slowdown
    habanalabs_temperature_threshold_memory habanalabs_temperature_threshold_gpu
    habanalabs_ecc_feature_mode
    habanalabs_pcie_rx habanalabs_pcie_receive_throughput habanalabs_pcie_tx habanalabs_pcie_transmit_throughput
    habanalabs_pcie_replay_count habanalabs_pci_link_speed habanalabs_pci_link_width
    habanalabs_pending_rows_with_single_bit_ecc_errors habanalabs_pending_rows_with_double_bit_ecc_errors
    habanalabs_pending_rows_state habanalabs_nic_port_status
    """
)
ACCELERATOR = names(
    """
    accelerator_gpu_utilization accelerator_memory_total_bytes accelerator_memory_used_bytes
    accelerator_power_usage_watts accelerator_temperature_celcius accelerator_sm_clock_hertz
    accelerator_memory_clock_hertz
    """
)
# Grafana dashboards and consoles that query this exporter.
QUERIED = names(
    """
    habanalabs_kube_info habanalabs_device_config habanalabs_utilization habanalabs_power_mW
    habanalabs_pcie_receive_throughput habanalabs_pcie_transmit_throughput habanalabs_temperature_onchip
    habanalabs_temperature_onboard habanalabs_clock_soc_mhz habanalabs_memory_used_bytes habanalabs_memory_total_bytes
    habanalabs_memory_free_bytes habanalabs_energy habanalabs_temperature_threshold_memory
    """
)
IDS = names("1000 1001 1010 1011 1020 1021 1030 1060 1061 1062 1063")

Raw = tuple[str, float, Labels]
CARD = Device(uuid="01P4-1", index="0")


@pytest.fixture(scope="module")
def gaudi() -> Catalogue:
    return load(FOLDER, "collectors.gaudi")


def common(catalogue: Catalogue, rows: Sequence[Raw], links: Links = "sum") -> dict[tuple[str, ...], float]:
    """What the raw series become: metric and label values → value."""
    layout = tuple(Key(name, 0, labels) for name, _, labels in rows)
    plan = make_plan(catalogue, (CARD,), {"normal": layout}, links=links)
    values = [value for _, value, _ in rows]
    return {(out.id.metric, *(value for _, value in out.id.labels)): out.evaluate(values) for out in plan.outputs}


def test_every_series_of_the_vendors_exporter_is_there_as_a_gauge_and_on(gaudi: Catalogue) -> None:
    for name in [*EXPORTED, "habanalabs_kube_info", *ACCELERATOR]:
        series = gaudi.series[name]
        assert (series.type, series.default, series.own) == ("gauge", True, False), name


def test_what_the_vendors_exporter_has_not_bears_a_name_of_ours_and_is_off(gaudi: Catalogue) -> None:
    ours = gaudi.series.keys() - {*EXPORTED, *ACCELERATOR, "habanalabs_kube_info"}
    assert len(gaudi.series) == 29 + 7 + len(ours)
    for name in ours:
        assert name.startswith("habanalabs_x_")
        assert gaudi.series[name].own
        assert not gaudi.series[name].default
    assert not {name for name in gaudi.series if gaudi.series[name].own} - ours


def test_the_vendors_accelerator_names_need_the_option(gaudi: Catalogue) -> None:
    assert {name for name, series in gaudi.series.items() if series.option} == set(ACCELERATOR)
    assert {gaudi.series[name].option for name in ACCELERATOR} == {"accelerator_names"}
    assert gaudi.collector.options["accelerator_names"].default is False
    assert not any(gaudi.series[name].feeds for name in ACCELERATOR)


def test_a_wrongly_scaled_name_keeps_the_unit_that_its_number_has(gaudi: Catalogue) -> None:
    assert gaudi.series["accelerator_power_usage_watts"].unit == "milliwatts"
    assert gaudi.series["accelerator_sm_clock_hertz"].unit == "megahertz"
    assert gaudi.series["accelerator_memory_clock_hertz"].absent == (18_000_000,)
    assert not gaudi.series["accelerator_memory_clock_hertz"].native


def test_every_name_that_public_dashboards_query_exists(gaudi: Catalogue) -> None:
    assert [name for name in QUERIED if name not in gaudi.series] == []


def test_the_labels_are_those_of_the_exporter_in_its_order(gaudi: Catalogue) -> None:
    assert gaudi.identity == ("Serial", "UUID", "device", "id", "fit", "spi", "driver")
    assert gaudi.series["habanalabs_nic_port_status"].labels == ("port", "port_type")
    info = gaudi.series["habanalabs_kube_info"]
    assert (info.level, info.labels) == ("node", ("podName", "namespace", "podIP", "node", "hostname"))
    assert gaudi.collector.attribution.raw_labels == {"namespace": "pod_namespace", "pod": "pod_name"}
    assert gaudi.collector.attribution.raw_empty


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (("habanalabs_clock_soc_mhz", 1650, ()), {("accel_clock_hertz", "core"): 1_650_000_000}),
        (("habanalabs_clock_soc_max_mhz", 1800, ()), {("accel_clock_limit_hertz", "core", "max"): 1_800_000_000}),
        (("habanalabs_power_mW", 96_500, ()), {("accel_power_watts",): 96.5}),
        (("habanalabs_power_default_limit_mW", 600_000, ()), {("accel_power_limit_watts", "default"): 600}),
        (("habanalabs_x_power_limit_mW", 550_000, ()), {("accel_power_limit_watts", "enforced"): 550}),
        (("habanalabs_energy", 1_234_567, ()), {("accel_energy_joules_total",): 1234.567}),
        (("habanalabs_temperature_onchip", 45, ()), {("accel_temperature_celsius", "die"): 45}),
        (("habanalabs_temperature_onboard", 35, ()), {("accel_temperature_celsius", "board"): 35}),
        (("habanalabs_x_temperature_hbm", 50, ()), {("accel_temperature_celsius", "memory"): 50}),
        (
            ("habanalabs_temperature_threshold_memory", 90, ()),
            {("accel_temperature_limit_celsius", "memory", "max_operating"): 90},
        ),
        (
            ("habanalabs_temperature_threshold_gpu", 90, ()),
            {("accel_temperature_limit_celsius", "die", "max_operating"): 90},
        ),
        (
            ("habanalabs_temperature_threshold_shutdown", 90, ()),
            {("accel_temperature_limit_celsius", "die", "shutdown"): 90},
        ),
        (("habanalabs_pcie_rx", 2000, ()), {("accel_pcie_received_bytes_per_second",): 2_000_000}),
        (("habanalabs_pcie_transmit_throughput", 3, ()), {("accel_pcie_sent_bytes_per_second",): 3000}),
        (("habanalabs_pcie_replay_count", 7, ()), {("accel_pcie_replays_total",): 7}),
        (("habanalabs_pci_link_width", 16, ()), {("accel_pcie_link_width",): 16}),
        (("habanalabs_ecc_feature_mode", 1, ()), {("accel_ecc_enabled",): 1}),
        (
            ("habanalabs_pending_rows_with_single_bit_ecc_errors", 3, ()),
            {("accel_memory_repairs", "remapped_row", "correctable"): 3},
        ),
        (
            ("habanalabs_pending_rows_with_double_bit_ecc_errors", 2, ()),
            {("accel_memory_repairs", "remapped_row", "uncorrectable"): 2},
        ),
        (("habanalabs_pending_rows_state", 1, ()), {("accel_memory_repair_pending", "remapped_row"): 1}),
        (
            ("habanalabs_x_violation_nanoseconds_total", 1_500_000_000, (("policy", "power"),)),
            {("accel_throttle_seconds_total", "power_cap"): 1.5},
        ),
        (
            ("habanalabs_x_violation_nanoseconds_total", 250_000_000, (("policy", "thermal"),)),
            {("accel_throttle_seconds_total", "thermal"): 0.25},
        ),
        (
            ("habanalabs_x_ecc_errors_volatile_total", 4, (("correctable", "false"), ("location", "hbm"))),
            {("accel_memory_errors_total", "false", "hbm"): 4},
        ),
        (
            ("habanalabs_x_ecc_errors_aggregate_total", 9, (("correctable", "true"), ("location", "unknown"))),
            {("accel_memory_errors_lifetime_total", "true", "unknown"): 9},
        ),
    ],
)
def test_a_number_becomes_base_units_under_its_true_meaning(
    gaudi: Catalogue, row: Raw, expected: Mapping[tuple[str, ...], float]
) -> None:
    assert common(gaudi, [row]) == pytest.approx(expected)


@pytest.mark.parametrize(("percent", "ratio"), [(0, 0), (57, 0.57), (100, 1), (113, 1)])
def test_utilization_is_an_estimate_that_does_not_exceed_the_whole(
    gaudi: Catalogue, percent: int, ratio: float
) -> None:
    assert common(gaudi, [("habanalabs_utilization", percent, ())]) == {("accel_utilization_ratio",): ratio}
    assert {feed.exactness for feed in gaudi.series["habanalabs_utilization"].feeds} == {"estimated"}


@pytest.mark.parametrize(
    ("name", "exactness"),
    [
        ("habanalabs_pcie_rx", "approximate"),
        ("habanalabs_pcie_tx", "approximate"),
        ("habanalabs_x_violation_nanoseconds_total", "approximate"),
        ("habanalabs_power_mW", "exact"),
        ("habanalabs_energy", "exact"),
    ],
)
def test_what_no_document_settles_is_approximate(gaudi: Catalogue, name: str, exactness: str) -> None:
    assert {feed.exactness for feed in gaudi.series[name].feeds} == {exactness}


def test_power_derived_utilization_is_nothing_else(gaudi: Catalogue) -> None:
    fed = {feed.metric for series in gaudi.series.values() for feed in series.feeds}
    assert not fed & {
        "accel_compute_active_ratio",
        "accel_compute_occupancy_ratio",
        "accel_matrix_active_ratio",
        "accel_memory_bandwidth_active_ratio",
    }


def test_a_link_speed_that_may_be_an_enumeration_feeds_nothing(gaudi: Catalogue) -> None:
    assert gaudi.series["habanalabs_pci_link_speed"].feeds == ()


@pytest.mark.parametrize(
    ("mask", "active"), [(0, set()), (1, {"power_cap"}), (2, {"thermal"}), (3, {"power_cap", "thermal"}), (4, set())]
)
def test_throttle_bits_become_reasons(gaudi: Catalogue, mask: int, active: set[str]) -> None:
    found = common(gaudi, [("habanalabs_x_clocks_throttle_reasons", mask, ())])
    assert {key[1] for key in found} == {"power_cap", "thermal"}
    assert {key[1] for key, value in found.items() if value} == active


def test_ports_become_counts_of_links(gaudi: Catalogue) -> None:
    rows: list[Raw] = [
        ("habanalabs_nic_port_status", up, (("port", str(port)), ("port_type", kind)))
        for port, (up, kind) in enumerate([(1, "internal"), (0, "internal"), (1, "external")])
    ]
    assert common(gaudi, rows) == {
        ("accel_interconnect_links_up", "roce"): 2,
        ("accel_interconnect_links", "roce"): 3,
    }


def test_port_traffic_is_summed_or_by_link(gaudi: Catalogue) -> None:
    rows: list[Raw] = [
        ("habanalabs_x_port_sent_bytes_total", 100 * (port + 1), (("port", str(port)), ("port_type", "internal")))
        for port in range(2)
    ]
    assert common(gaudi, rows) == {("accel_interconnect_sent_bytes_total", "roce"): 300}
    assert common(gaudi, rows, links="each") == {
        ("accel_interconnect_sent_bytes_total", "roce", "0"): 100,
        ("accel_interconnect_sent_bytes_total", "roce", "1"): 200,
    }


def test_zero_is_no_reading_where_a_device_that_runs_cannot_have_it(gaudi: Catalogue) -> None:
    for name in EXPORTED:
        zero_is_real = (
            "device_config|utilization|memory_free|ecc_feature|pcie_|pending_rows|nic_port"  # 0 is a state or a count
        )
        assert gaudi.series[name].absent == (() if re.search(zero_is_real, name) else (0,)), name


def test_only_a_counter_in_disguise_feeds_a_counter(gaudi: Catalogue) -> None:
    disguised = {series.name for series in gaudi.series.values() if series.cumulative}
    assert disguised == {"habanalabs_energy", "habanalabs_pcie_replay_count"}


def test_every_native_series_is_read_and_every_series_that_is_read_is_native(gaudi: Catalogue) -> None:
    read = {
        *TABLE,
        *(each.name for each in ECC),
        *DRAM_ECC,
        specials.STATE,
        specials.VIOLATION,
        specials.PORT_STATUS,
        specials.PORT_UP,
        specials.RECEIVED,
        specials.SENT,
        COUNT,
        MEMORY,
        "habanalabs_device_config",
        "habanalabs_kube_info",
    }
    assert read == {series.name for series in gaudi.series.values() if series.native}


@pytest.mark.parametrize(
    ("series", "label", "value", "state"),
    [
        ("habanalabs_x_device_state", "operational", 1, None),
        ("habanalabs_x_device_state", "in_reset_after_device_release", 1, None),
        ("habanalabs_x_device_state", "in_reset", 1, "degraded"),
        ("habanalabs_x_device_state", "in_device_creation", 1, "degraded"),
        ("habanalabs_x_device_state", "other", 1, "degraded"),
        ("habanalabs_x_device_state", "needs_reset", 1, "failed"),
        ("habanalabs_x_device_state", "disabled", 1, "failed"),
        ("habanalabs_x_device_state", "malfunction", 1, "failed"),
        ("habanalabs_x_device_state", "disabled", 0, None),
        ("habanalabs_pending_rows_state", "", 1, "degraded"),
        ("habanalabs_pending_rows_state", "", 0, None),
    ],
)
def test_health_follows_the_drivers_word(
    gaudi: Catalogue, series: str, label: str, value: int, state: str | None
) -> None:
    rules = [rule for rule in gaudi.collector.health if rule.series == series and rule.labels.get("state", "") == label]
    assert {rule.state for rule in rules if holds(rule, value)} == ({state} if state else set())


def test_every_state_that_the_health_rules_name_is_one_that_is_read(gaudi: Catalogue) -> None:
    named = {rule.labels["state"] for rule in gaudi.collector.health if "state" in rule.labels}
    assert named <= set(sysfs.STATES)


def test_every_event_has_its_meaning(gaudi: Catalogue) -> None:
    assert {*EVENTS.values(), "habanalabs:hard_reset"} == gaudi.faults.keys()
    assert list(EVENTS) == [1 << bit for bit in range(6)]
    severities = {code: fault.severity for code, fault in gaudi.faults.items()}
    assert severities["habanalabs:critical"] == "fatal"
    assert {severities[f"habanalabs:{name}"] for name in ("ecc_derr", "dram_derr", "hard_reset")} == {"degraded"}
    assert {severities[f"habanalabs:{name}"] for name in ("ecc_serr", "dram_serr", "clock_rate")} == {"info"}


def test_cards_are_found_by_their_pci_ids_and_nothing_else_is(gaudi: Catalogue) -> None:
    def seen(vendor: str, device: str) -> int | None:
        found = PciDevice("0000:33:00.0", vendor, device, "0x120000", "habanalabs", virtual=False)
        return present(gaudi.collector.detect, [found])

    assert [seen("0x1da3", f"0x{number}") for number in IDS] == [1] * len(IDS)
    assert set(sysfs.MODELS) == {f"0x{number}" for number in IDS}
    assert seen("0x1da3", "0x0001") == 0
    assert seen("0x17cb", "0xa100") == 0


def test_the_device_plugins_and_the_dra_drivers_ids_are_understood(gaudi: Catalogue) -> None:
    attribution = gaudi.collector.attribution
    assert "habana.ai/gaudi" in attribution.resources
    [form] = attribution.ids
    found = re.fullmatch(form.pattern, "AM10000000")
    assert found is not None
    assert found.groupdict() == {"serial": "AM10000000"}
    [dra] = attribution.dra
    assert dra.driver == "gaudi.intel.com"
    told = [match.groupdict() for name in dra.names if (match := re.fullmatch(name, "0000-a0-00-0-0x1020"))]
    assert told == [{"dra": "0000-a0-00-0-0x1020"}]
    classic = [match.groupdict() for name in dra.names if (match := re.fullmatch(name, "accel3"))]
    assert classic == [{"accel": "accel3"}]


def test_the_simulations_labels_are_the_identity(gaudi: Catalogue) -> None:
    simulation = tomllib.loads((FOLDER / "simulation.toml").read_text())
    assert tuple(simulation["raw_labels"]) == gaudi.identity
    assert set(simulation["values"]) <= set(gaudi.series)
