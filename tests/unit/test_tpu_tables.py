"""The TPU tables against the device plugin's source, tpu-info's names and the public dashboards."""

from __future__ import annotations

from pathlib import Path

import pytest

import collectors
from collectors.base import NODE, Device, Labels
from collectors.tpu import table
from collectors.tpu.table import ALARMS, HISTOGRAM, PER_DEVICE, PER_NODE
from exporter.assemble import assemble
from exporter.catalogue import Catalogue, load
from exporter.config import CollectorConfig, Config
from exporter.detection import PciDevice, present
from exporter.model import Key
from exporter.normalize import holds, make_plan
from exporter.registry import Found

FOLDER = Path(collectors.__path__[0]) / "tpu"

CHIP = ["duty_cycle", "memory_total", "memory_used", "tensorcore_utilization", "memory_bandwidth_utilization"]
COUNTERS = [
    "grpc_tcp_packets_sent_count", "grpc_tcp_packets_retransmitted_count",
    "grpc_tcp_packets_spurious_retransmitted_count", "grpc_tcp_recurring_retransmits_count",
    "grpc_tcp_bytes_sent_count", "grpc_tcp_bytes_retransmitted_count", "grpc_tcp_syscall_writes_count",
    "grpc_tcp_syscall_reads_count", "bamm2_bits_sent_count", "bamm2_bits_received_count", "bamm2_bits_read_count",
    "bamm2_bits_written_count", "bamm2_bits_written_with_imm_count",
]  # fmt: skip
WORKLOAD = ("namespace", "pod", "container", "make", "model", "tpu_topology")
HISTOGRAMS = {
    "dcn_transfer_latencies_microsecond": ("buffer_size", "type"),
    "dcn_inbound_transfer_latencies_microsecond": ("buffer_size", "type"),
    "compute_latencies_microsecond": ("buffer_size",),
    "grpc_client_call_latencies_microsecond": ("buffer_size",),
    "grpc_server_call_latencies_microsecond": ("buffer_size",),
    "host_to_device_transfer_latencies_microsecond": ("buffer_size",),
    "device_to_host_transfer_latencies_microsecond": ("buffer_size",),
    "collective_end_to_end_latencies_microsecond": ("input_size", "collective_type"),
    "grpc_tcp_min_round_trip_times_microsecond": (),
    "grpc_tcp_delivery_rates_Mbps": (),
    "grpc_tcp_write_sizes_bytes": (),
    "grpc_tcp_read_sizes_bytes": (),
    "grpc_tcp_sender_latencies_microsecond": (),
    "grpc_tcp_transfer_latencies_microsecond": ("transfer_size",),
    "dcn_inbound_transfer_sizes_bytes": ("type",),
    "dcn_transfer_sizes_bytes": ("type",),
    "collective_input_sizes_bytes": ("collective_type", "execution_type"),
    "mxla_compute_operand_sizes_bytes": (),
    "device_to_host_transfer_sizes_bytes": (),
    "host_to_device_transfer_sizes_bytes": (),
}


@pytest.fixture(scope="module")
def tpu() -> Catalogue:
    return load(FOLDER, "collectors.tpu")


def common(catalogue: Catalogue, rows: list[tuple[str, float, Labels]]) -> dict[tuple[str, ...], float]:
    """What the raw series of one chip become: metric and label values → value."""
    layout = tuple(Key(name, 0, labels) for name, _, labels in rows)
    plan = make_plan(catalogue, [Device(uuid="1-0", index="0")], {"normal": layout})
    values = [value for _, value, _ in rows]
    return {(out.id.metric, *(value for _, value in out.id.labels)): out.evaluate(values) for out in plan.outputs}


def test_the_series_are_the_plugins_and_some_that_are_plainly_ours(tpu: Catalogue) -> None:
    histograms = {f"{name}_{end}" for name in HISTOGRAMS for end in ("bucket", "sum", "count")}
    theirs = {*CHIP, *(f"{name}_node" for name in CHIP), *COUNTERS, *histograms, "accelerator_request"}
    own = {series.name for series in tpu.series.values() if series.own}
    assert set(tpu.series) - own == theirs | {"node_token_broker_status"}
    assert all(name.startswith(("libtpu_", "tpu_")) for name in own)
    assert {series.name for series in tpu.series.values() if series.default} == theirs


def test_types_and_labels_are_the_plugins(tpu: Catalogue) -> None:
    assert tpu.identity == ("make", "accelerator_id", "model", "tpu_topology")
    for name in CHIP:
        for series in (tpu.series[name], tpu.series[f"{name}_node"]):
            assert (series.type, series.level, series.labels) == ("gauge", "device", ())
    for name in COUNTERS:
        assert (tpu.series[name].type, tpu.series[name].level, tpu.series[name].labels) == ("counter", "node", WORKLOAD)
    for name, labels in HISTOGRAMS.items():
        assert {tpu.series[f"{name}_{end}"].type for end in ("bucket", "sum", "count")} == {"counter"}
        assert tpu.series[f"{name}_bucket"].labels == (*WORKLOAD, *labels, "le")
        assert {tpu.series[f"{name}_{end}"].labels for end in ("sum", "count")} == {(*WORKLOAD, *labels)}
    assert tpu.series["accelerator_request"].labels == ("namespace", "pod", "container", "resource_name")


def test_no_series_of_our_own_has_a_label_that_targets_use(tpu: Catalogue) -> None:
    reserved = {"type", "instance", "job", "service", "endpoint", "stage"}
    assert not [series.name for series in tpu.series.values() if series.own and reserved & set(series.labels)]


def test_the_texts_are_the_plugins(tpu: Catalogue) -> None:
    for name, text in {
        "duty_cycle": "Percent of time when the TPU was actively processing",
        "duty_cycle_node": "Percent of time when the TPU was actively processing",
        "tensorcore_utilization_node": "Tensorcore percent utilization of the TPU device per node",
        "memory_used": "Allocated TPU memory in bytes",
        "memory_total": "Total memory available on the TPU in bytes",
        "memory_bandwidth_utilization": "Memory bandwidth utilization of the TPU device",
        "memory_bandwidth_utilization_node": "Memory bandwidth utilization of the TPU device per node",
    }.items():
        assert tpu.series[name].help == text


@pytest.mark.parametrize(
    "names",
    [
        "duty_cycle tensorcore_utilization memory_bandwidth_utilization memory_used memory_total",
        "duty_cycle_node tensorcore_utilization_node memory_bandwidth_utilization_node memory_used_node"
        " memory_total_node",
    ],
    ids=["serving dashboards, autoscaling, Ray", "node series of cluster monitoring"],
)
def test_what_public_dashboards_and_autoscalers_query_is_exposed_by_default(tpu: Catalogue, names: str) -> None:
    assert all(tpu.series[name].default for name in names.split())


def test_the_code_reads_what_the_table_says_and_all_of_it(tpu: Catalogue) -> None:
    read = {series: item.metric for item in PER_DEVICE for series in item.series}
    read |= {alarm.series: alarm.metric for alarm in ALARMS}
    for item in PER_NODE:
        for end in HISTOGRAM if item.statistic == "histogram" else ("",):
            read[item.series + end] = item.metric
    assert {name: tpu.series[name].native for name in read} == read
    from_libtpu = {
        name
        for name, series in tpu.series.items()
        if series.native.startswith(("tpu.", "megascale.", "hlo.", "slice.", "bamm2"))
        or ".cumulative." in series.native
    }
    assert from_libtpu == set(read) | {table.FREE_SERIES}
    for alarm in ALARMS:
        assert tpu.series[alarm.series].labels == tuple(alarm.labels.values())
    for item in PER_NODE:
        labels = tpu.series[item.series + ("_sum" if item.statistic == "histogram" else "")].labels
        assert labels == ((*WORKLOAD, *item.labels) if item.identified else item.labels)


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (("duty_cycle", 87.5), {("accel_utilization_ratio",): 0.875, ("accel_compute_active_ratio",): 0.875}),
        (("duty_cycle", 100.3), {("accel_utilization_ratio",): 1, ("accel_compute_active_ratio",): 1}),
        (("tensorcore_utilization", 24.8), {("accel_matrix_active_ratio",): 0.248}),
        (("memory_bandwidth_utilization", 42.5), {("accel_memory_bandwidth_active_ratio",): 0.425}),
        (("memory_used", 19_810_000_000), {("accel_memory_used_bytes", "device"): 19_810_000_000}),
        (("memory_total", 203_465_670_656), {("accel_memory_total_bytes", "device"): 203_465_670_656}),
        (("tpu_model_hbm_bytes", 32 * 2**30), {("accel_capacity_memory_bytes",): 32 * 2**30}),
        (("libtpu_tensorcore_idle_duration_seconds", 12.0), {}),
        (("libtpu_metric_service_up", 0), {}),
    ],
)
def test_a_number_becomes_base_units(
    tpu: Catalogue, row: tuple[str, float], expected: dict[tuple[str, ...], float]
) -> None:
    for name in (row[0], f"{row[0]}_node"):
        if name in tpu.series:
            assert common(tpu, [(name, row[1], ())]) == pytest.approx(expected)


def test_series_of_a_container_and_of_the_node_are_one_quantity(tpu: Catalogue) -> None:
    rows: list[tuple[str, float, Labels]] = [(name, 50, ()) for name in ("duty_cycle", "duty_cycle_node")]
    assert common(tpu, rows) == {("accel_utilization_ratio",): 0.5, ("accel_compute_active_ratio",): 0.5}
    rows = [("libtpu_hbm_utilization_percent", 10, ()), ("memory_bandwidth_utilization_node", 30, ())]
    assert common(tpu, rows) == {("accel_memory_bandwidth_active_ratio",): 0.3}


def test_a_total_of_zero_is_no_reading(tpu: Catalogue) -> None:
    assert tpu.series["memory_total"].absent == tpu.series["memory_total_node"].absent == (0,)


def test_nothing_feeds_what_no_tpu_tells(tpu: Catalogue) -> None:
    fed = {feed.metric for series in tpu.series.values() for feed in series.feeds}
    silent = ("temperature", "power", "energy", "clock", "fan", "voltage", "memory_errors", "interconnect", "throttle")
    assert not [metric for metric in fed for word in silent if word in metric]


def test_what_is_not_the_quantity_itself_says_so(tpu: Catalogue) -> None:
    exactness = {(feed.metric, feed.exactness) for series in tpu.series.values() for feed in series.feeds} - {
        (feed.metric, "exact") for series in tpu.series.values() for feed in series.feeds
    }
    assert exactness == {
        ("accel_compute_active_ratio", "approximate"),
        ("accel_matrix_active_ratio", "approximate"),
        ("accel_memory_free_bytes", "derived"),
        ("accel_capacity_memory_bytes", "derived"),
        ("accel_capacity_compute_units", "derived"),
        ("accel_compute_units", "derived"),
    }


def test_health_falls_with_the_device_node_and_the_slice(tpu: Catalogue) -> None:
    def states(series: str, value: float) -> list[str]:
        return [rule.state for rule in tpu.collector.health if rule.series == series and holds(rule, value)]

    assert states("tpu_device_node_present", 0) == ["failed"]
    assert states("tpu_device_node_present", 1) == []
    assert states("libtpu_slice_error_detected", 1) == ["degraded"]
    assert states("libtpu_slice_error_detected", 0) == []
    assert {fault.severity for code, fault in tpu.faults.items() if code != "libtpu:slice_error"} == {"info"}


def pci(address: str, device: str, vendor: str = "0x1ae0") -> PciDevice:
    return PciDevice(address, vendor, device, "0x120000", "vfio-pci", False)


def test_the_chips_of_a_host_are_counted_and_its_disks_are_not(tpu: Catalogue) -> None:
    detect = tpu.collector.detect
    others = [pci("0000:00:03.0", "0x001f"), pci("0000:00:04.0", "0x0042"), pci("0000:00:05.0", "0xabcd")]
    assert present(detect, others) == 0
    for device in ("0x0027", "0x005e", "0x0063", "0x0062", "0x006f"):
        assert present(detect, [*others, *(pci(f"0000:0{slot}:00.0", device) for slot in range(4))]) == 4
    two_functions = [pci(f"0000:c{slot}:02.{function}", "0x0076") for slot in range(4) for function in (0, 1)]
    assert present(detect, two_functions) == 4
    assert present(detect, [pci("0000:00:05.0", "0x006f", vendor="0x10de")]) == 0


def test_no_series_of_the_node_feeds_a_device(tpu: Catalogue) -> None:
    assert not [name for name, series in tpu.series.items() if series.level == "node" and series.feeds]
    plan = make_plan(tpu, [Device(uuid="1-0", index="0")], {"normal": (Key("accelerator_request", NODE),)})
    assert plan.outputs == ()


def test_the_bridge_reads_the_plugin_by_the_module_that_puts_it_in_order(tpu: Catalogue) -> None:
    config = Config(collectors={"tpu": CollectorConfig(source="bridge")})
    [member] = assemble(config, {"tpu": (Found("tpu", "collectors.tpu", FOLDER), tpu)})
    assert member.spec.module == "collectors.tpu.plugin"
    assert member.spec.options["url"] == "http://127.0.0.1:2112/metrics"
    [member] = assemble(Config(), {"tpu": (Found("tpu", "collectors.tpu", FOLDER), tpu)})
    assert member.spec.module == "collectors.tpu"
