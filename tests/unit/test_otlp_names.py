"""Names, units and attributes over OTLP, and what Prometheus makes of them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from itertools import product

import pytest

from exporter.families import Family
from exporter.otlp.names import CONVENTIONAL, PLAIN, Instrument, conventional, plain, raw
from exporter.schema import METRICS, WORKLOAD, Metric
from tests.otlp import prometheus_name

EVERY = [*PLAIN.values(), *CONVENTIONAL.values()]

# What the conventions for hardware and Prometheus' rules make of each other.
TRANSLATED = {
    "hw.status": "hw_status",
    "hw.temperature": "hw_temperature_celsius",
    "hw.temperature.limit": "hw_temperature_limit_celsius",
    "hw.power": "hw_power_watts",
    "hw.power.limit": "hw_power_limit_watts",
    "hw.energy": "hw_energy_joules_total",
    "hw.fan.speed": "hw_fan_speed_rpm",
    "hw.fan.speed_ratio": "hw_fan_speed_ratio",
    "hw.voltage": "hw_voltage_volts",
    "hw.gpu.info": "hw_gpu_info",
    "hw.gpu.memory.usage": "hw_gpu_memory_usage_bytes",
    "hw.gpu.memory.limit": "hw_gpu_memory_limit_bytes",
    "hw.gpu.memory.utilization": "hw_gpu_memory_utilization_ratio",
    "hw.gpu.utilization": "hw_gpu_utilization_ratio",
    "hw.gpu.io": "hw_gpu_io_bytes_total",
    "hw.gpu.io.rate": "hw_gpu_io_rate_bytes_per_second",
    "hw.frequency": "hw_frequency_hertz",
    "hw.frequency.limit": "hw_frequency_limit_hertz",
    "hw.errors": "hw_errors_total",
}
# Unit and instrument, as the conventions ask for.
CONVENTIONS = {
    "hw.status": ("1", "sum"),
    "hw.temperature": ("Cel", "gauge"),
    "hw.temperature.limit": ("Cel", "gauge"),
    "hw.power": ("W", "gauge"),
    "hw.energy": ("J", "counter"),
    "hw.fan.speed": ("rpm", "gauge"),
    "hw.fan.speed_ratio": ("1", "gauge"),
    "hw.voltage": ("V", "gauge"),
    "hw.gpu.memory.usage": ("By", "sum"),
    "hw.gpu.memory.limit": ("By", "sum"),
    "hw.gpu.memory.utilization": ("1", "gauge"),
    "hw.gpu.utilization": ("1", "gauge"),
    "hw.gpu.io": ("By", "counter"),
    "hw.errors": ("{error}", "counter"),
}


def translated(instrument: Instrument) -> str:
    return prometheus_name(instrument.name, instrument.unit, instrument.kind)


@pytest.mark.parametrize("name", METRICS)
def test_prometheus_makes_the_name_of_the_schema_out_of_every_plain_one(name: str) -> None:
    assert translated(PLAIN[name]) == name


def test_every_convention_comes_out_under_the_name_that_others_give_it() -> None:
    assert {name: translated(instrument) for name, instrument in CONVENTIONAL.items()} == TRANSLATED


@pytest.mark.parametrize("name", CONVENTIONS)
def test_a_convention_has_the_unit_and_instrument_that_it_asks_for(name: str) -> None:
    assert (CONVENTIONAL[name].unit, CONVENTIONAL[name].kind) == CONVENTIONS[name]


def test_no_two_metrics_share_a_name_over_otlp_or_in_prometheus() -> None:
    names = Counter(instrument.name for instrument in EVERY)
    assert [name for name, count in names.items() if count > 1] == []
    results = Counter(map(translated, EVERY))
    assert [name for name, count in results.items() if count > 1] == []


@pytest.mark.parametrize("instrument", EVERY, ids=lambda instrument: instrument.name)
def test_no_word_of_a_unit_stands_in_a_translated_name_twice(instrument: Instrument) -> None:
    words = Counter(translated(instrument).split("_"))
    assert [word for word, count in words.items() if count > 1] == []


@pytest.mark.parametrize("instrument", EVERY, ids=lambda instrument: instrument.name)
def test_names_are_what_an_instrument_may_be_called(instrument: Instrument) -> None:
    assert re.fullmatch(r"[A-Za-z][A-Za-z0-9_./-]{0,254}", instrument.name)
    assert len(instrument.unit) <= 63
    assert instrument.description


@pytest.mark.parametrize("metric", [m for m in METRICS.values() if not m.unit], ids=lambda m: m.name)
def test_a_pure_number_is_no_gauge_of_unit_one(metric: Metric) -> None:
    # Prometheus would call it a ratio.
    assert (PLAIN[metric.name].unit, PLAIN[metric.name].kind) != ("1", "gauge")


def test_counters_are_monotonic_capacities_and_states_are_not_and_the_rest_are_gauges() -> None:
    kinds = {metric.name: PLAIN[metric.name].kind for metric in METRICS.values()}
    assert {name for name, kind in kinds.items() if kind == "counter"} == {n for n in METRICS if n.endswith("_total")}
    for name in ("accel_memory_used_bytes", "accel_capacity_memory_bytes", "accel_devices_present", "accel_info"):
        assert kinds[name] == "sum"
    for name in ("accel_temperature_celsius", "accel_power_watts", "accel_utilization_ratio", "accel_clock_hertz"):
        assert kinds[name] == "gauge"
    assert kinds["accel_pcie_link_generation"] == "gauge", "generations do not add up"


HARDWARE = {"hw.id": "U0", "hw.name": "0", "hw.vendor": "acme"}
IDENTITY = {"vendor": "acme", "device": "0", "uuid": "U0"}


@pytest.mark.parametrize(
    ("metric", "labels", "name", "attributes"),
    [
        ("accel_temperature_celsius", {"sensor": "hotspot"}, "hw.temperature", {"hw.sensor_location": "hotspot"}),
        (
            "accel_temperature_limit_celsius",
            {"sensor": "die", "limit": "slowdown"},
            "hw.temperature.limit",
            {"hw.sensor_location": "die", "hw.limit_type": "throttled"},
        ),
        ("accel_power_watts", {}, "hw.power", {"hw.type": "gpu"}),
        ("accel_energy_joules_total", {}, "hw.energy", {"hw.type": "gpu"}),
        ("accel_utilization_ratio", {}, "hw.gpu.utilization", {"hw.gpu.task": "general"}),
        ("accel_media_utilization_ratio", {"engine": "encoder"}, "hw.gpu.utilization", {"hw.gpu.task": "encoder"}),
        ("accel_memory_used_bytes", {"memory": "device"}, "hw.gpu.memory.usage", {}),
        ("accel_memory_total_bytes", {"memory": "device"}, "hw.gpu.memory.limit", {}),
        ("accel_pcie_received_bytes_total", {}, "hw.gpu.io", {"network.io.direction": "receive"}),
        ("accel_pcie_sent_bytes_total", {}, "hw.gpu.io", {"network.io.direction": "transmit"}),
        (
            "accel_memory_errors_total",
            {"correctable": "false", "location": "hbm"},
            "hw.errors",
            {"hw.type": "gpu", "error.type": "uncorrected", "location": "hbm"},
        ),
        ("accel_health_state", {"state": "healthy"}, "hw.status", {"hw.type": "gpu", "hw.state": "ok"}),
        ("accel_health_state", {"state": "failed"}, "hw.status", {"hw.type": "gpu", "hw.state": "failed"}),
        ("accel_clock_hertz", {"domain": "core"}, "hw.frequency", {"hw.frequency.domain": "gpu"}),
        ("accel_info", {"model": "A1", "serial": "7", "kind": "npu"}, "hw.gpu.info",
         {"hw.model": "A1", "hw.serial_number": "7", "kind": "npu"}),
    ],
)  # fmt: skip
def test_a_convention_has_its_own_attributes(
    metric: str, labels: Mapping[str, str], name: str, attributes: Mapping[str, str]
) -> None:
    point = conventional(METRICS[metric], {**IDENTITY, "node": "n", **labels})
    assert point is not None
    assert point.instrument is CONVENTIONAL[name]
    assert dict(point.attributes) == {**HARDWARE, **attributes}


@pytest.mark.parametrize(
    ("metric", "labels", "name"),
    [
        ("accel_memory_used_bytes", {"memory": "host"}, "accel.memory_used"),
        ("accel_media_utilization_ratio", {"engine": "jpeg"}, "accel.media_utilization"),
    ],
)
def test_what_a_convention_has_no_word_for_goes_out_under_our_own_name(
    metric: str, labels: Mapping[str, str], name: str
) -> None:
    point = conventional(METRICS[metric], {**IDENTITY, **labels})
    assert point is not None
    assert point.instrument.name == name
    assert dict(point.attributes) == {"hw.id": "U0", **IDENTITY, **labels}


def test_a_state_that_is_not_known_is_no_point() -> None:
    assert conventional(METRICS["accel_health_state"], {**IDENTITY, "state": "unknown"}) is None


def test_a_part_is_named_by_its_device_and_its_own_id() -> None:
    point = conventional(METRICS["accel_power_watts"], {**IDENTITY, "partition": "1g.10gb/7"})
    assert point is not None
    assert dict(point.attributes)["hw.id"] == "U0/1g.10gb/7"
    assert dict(point.attributes)["hw.parent"] == "U0"


def test_a_metric_of_a_vendor_has_no_hardware_id() -> None:
    point = conventional(METRICS["accel_devices_present"], {"vendor": "acme"})
    assert point is not None
    assert point.attributes == (("vendor", "acme"),)


def test_the_workload_is_the_resources_and_stands_on_points_only_where_it_is_what_the_metric_is_about() -> None:
    workload = dict.fromkeys(WORKLOAD, "x")
    for metric, names in (
        ("accel_power_watts", ()),
        ("accel_matrix_active_ratio", ()),
        ("accel_allocation_info", WORKLOAD),
    ):
        point = conventional(METRICS[metric], {**IDENTITY, **workload})
        assert point is not None
        assert [name for name, _ in point.attributes if name in WORKLOAD] == list(names)


def test_names_for_prometheus_keep_all_labels() -> None:
    labels = {**IDENTITY, "node": "n", "namespace": "", "sensor": "die"}
    point = plain(METRICS["accel_temperature_celsius"], labels)
    assert point.instrument.name == "accel.temperature"
    assert dict(point.attributes) == labels


def test_no_series_of_a_metric_under_the_conventions_meets_another_one() -> None:
    found: dict[tuple[str, tuple[tuple[str, str], ...]], str] = {}
    for metric in METRICS.values():
        known = [(label, values) for label, values in metric.labels.items() if values]
        for chosen in product(*(values for _, values in known)):
            labels = dict(zip((label for label, _ in known), chosen, strict=True))
            point = conventional(metric, {**IDENTITY, **labels})
            if point is not None:
                key = (point.instrument.name, tuple(sorted(point.attributes)))
                assert key not in found, f"{metric.name}{labels} and {found[key]} are the same point"
                found[key] = f"{metric.name}{labels}"


def test_a_vendors_series_keeps_its_name() -> None:
    # A unit would be appended to it on the way to Prometheus.
    instrument = raw(Family("ACME_POWER_mW", "gauge", "Power (in mW).", "raw", ()))
    assert translated(instrument) == "ACME_POWER_mW"
    counter = raw(Family("acme_replays", "counter", "Replays.", "raw", ()))
    assert (counter.name, counter.kind) == ("acme_replays", "counter")
