"""The vendor's Gaudi exporter, read through the bridge with our tables: the same common values as native reading."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from collectors.base import NODE, Collector, Device, Reading, Settings
from collectors.bridge import open_collector
from exporter.model import Key
from exporter.normalize import make_plan
from exporter.tables import tables
from tests.bridge_sources import PageServer
from tests.fakes.gaudi import gaudi2, install, make_host
from tests.fakes.gaudi.cards import DRIVER, EXTERNAL, MIB, PORTS, serial, uuid
from tests.integration.gaudi_rig import CATALOGUE, NATIVE, rig

CARDS = 2
Values = Mapping[tuple[str, str, tuple[tuple[str, str], ...]], float]


def line(name: str, i: int, value: float, **more: str) -> str:
    """A sample as the exporter writes it: labels sorted by name, pod labels empty on a free card."""
    labels = {
        "Serial": serial(i),
        "UUID": uuid(i),
        "device": serial(i),
        "driver": DRIVER,
        "fit": f"U-Boot fw-{50 + i}",
        "id": str(i),
        "pod_name": "train-0" if i == 0 else "",
        "pod_namespace": "ml" if i == 0 else "",
        "spi": "Linux gaudi2 5.10",
        **more,
    }
    text = ",".join(f'{key}="{found}"' for key, found in sorted(labels.items()))
    return f"{name}{{{text}}} {value:g}" if value < 1e6 else f"{name}{{{text}}} {value:.17g}"


def page() -> str:
    """The cards of the fake library, in the exporter's words."""
    lines = [
        "# HELP go_goroutines Number of goroutines that currently exist.",
        "# TYPE go_goroutines gauge",
        "go_goroutines 12",
        "# HELP habanalabs_kube_info kubernetes info",
        "# TYPE habanalabs_kube_info gauge",
        'habanalabs_kube_info{hostname="node-a",namespace="monitoring",node="node-a",podIP="192.0.2.1",podName="e"} 1',
    ]
    for i in range(CARDS):
        values = {
            "device_config": 1,
            "clock_soc_mhz": 1650 - 5 * i,
            "clock_soc_max_mhz": 1800,
            "utilization": 40 + i,
            "memory_total_bytes": 98304 * MIB,
            "memory_used_bytes": (768 + 1024 * i) * MIB,
            "memory_free_bytes": (98304 - 768 - 1024 * i) * MIB,
            "power_mW": 96_000 + 1000 * i,
            "power_default_limit_mW": 600_000,
            "energy": 1_000_000_000 * (i + 1),
            "temperature_onchip": 45 + i,
            "temperature_onboard": 35 + i,
            "temperature_threshold_shutdown": 90,
            "temperature_threshold_slowdown": 89,
            "temperature_threshold_memory": 88,
            "temperature_threshold_gpu": 87,
            "ecc_feature_mode": 1,
            "pcie_rx": 2000 + i,
            "pcie_receive_throughput": 2000 + i,
            "pcie_tx": 1000 + i,
            "pcie_transmit_throughput": 1000 + i,
            "pcie_replay_count": 7 + i,
            "pci_link_speed": 16,
            "pci_link_width": 0,  # the exporter gives 0 where HLML has none, as on Gaudi2
            "pending_rows_with_single_bit_ecc_errors": i,
            "pending_rows_with_double_bit_ecc_errors": 2 * i,
            "pending_rows_state": 0,
        }
        lines += [line(f"habanalabs_{name}", i, value) for name, value in values.items()]
        lines += [
            line("habanalabs_nic_port_status", i, 1, port=str(port), port_type=kind)
            for port in range(PORTS)
            for kind in ["external" if port in EXTERNAL else "internal"]
        ]
        lines += [
            line("accelerator_power_usage_watts", i, 96_000 + 1000 * i),
            line("accelerator_memory_clock_hertz", i, 18_000_000),
        ]
    return "\n".join(lines) + "\n"


@pytest.fixture
def server() -> Iterator[PageServer]:
    with PageServer(page()).serving() as running:
        yield running


def bridge(server: PageServer) -> Collector:
    options = {**tables(CATALOGUE), "url": server.url}
    return open_collector(Settings(wanted={"normal": frozenset(CATALOGUE.series)}, options=options))


def common(devices: Sequence[Device], readings: Sequence[Reading]) -> Values:
    layout = tuple(Key(reading.series, reading.device, reading.labels) for reading in readings)
    plan = make_plan(CATALOGUE, devices, {"normal": layout})
    values = [reading.value for reading in readings]
    return {(out.id.metric, out.id.uuid, out.id.labels): out.evaluate(values) for out in plan.outputs}


@pytest.mark.gcc
def test_bridged_and_native_cards_have_the_same_common_values(server: PageServer, tmp_path: Path) -> None:
    collector = bridge(server)
    devices = collector.discover()
    bridged = common(devices, collector.sample("normal").readings)
    scenario = gaudi2(CARDS)
    scenario = scenario.with_keys("device 0", {"energy_mj": 1_000_000_000})
    scenario = scenario.with_keys("device 1", {"energy_mj": 2_000_000_000})
    with rig(make_host(tmp_path, CARDS), install(tmp_path / "hlml", scenario)) as gaudi:
        native_devices = gaudi.discover()
        native = common(native_devices, gaudi.sample().sample.readings)
    assert [(d.uuid, d.index, d.serial, d.driver_version, d.firmware_version) for d in devices] == [
        (d.uuid, d.index, d.serial, d.driver_version, d.firmware_version) for d in native_devices
    ]
    assert {key: native[key] for key in bridged} == bridged
    only_native = {metric for metric, _, _ in native.keys() - bridged.keys()}
    assert only_native == {
        "accel_pcie_link_width",
        "accel_pcie_link_max_width",
        "accel_pcie_link_generation",
        "accel_pcie_link_max_generation",
        "accel_power_limit_watts",  # default comes both ways; enforced, min and max natively alone
        "accel_temperature_celsius",  # memory and vr
        "accel_throttle_active",
        "accel_throttle_seconds_total",
        "accel_memory_errors_total",
        "accel_memory_errors_lifetime_total",
    }


def test_the_common_values_are_those_of_the_text(server: PageServer) -> None:
    collector = bridge(server)
    devices = collector.discover()
    found = common(devices, collector.sample("normal").readings)
    device: tuple[tuple[str, str], ...] = (("memory", "device"),)
    assert found["accel_power_watts", uuid(1), ()] == 97
    assert found["accel_energy_joules_total", uuid(1), ()] == 2_000_000
    assert found["accel_utilization_ratio", uuid(1), ()] == 0.41
    assert found["accel_memory_used_bytes", uuid(1), device] == 1792 * MIB
    assert found["accel_pcie_received_bytes_per_second", uuid(1), ()] == 2_001_000
    assert found["accel_interconnect_links", uuid(1), (("fabric", "roce"),)] == PORTS


def test_the_nodes_own_series_and_its_labels_come_through(server: PageServer) -> None:
    collector = bridge(server)
    collector.discover()
    readings = collector.sample("normal").readings
    [info] = [reading for reading in readings if reading.device == NODE]
    assert info.series == "habanalabs_kube_info"
    assert dict(info.labels)["node"] == "node-a"
    names = {reading.series for reading in readings}
    assert names <= NATIVE  # the constant that is no reading is left out
    assert "accelerator_power_usage_watts" in names


def test_zeros_of_failed_calls_are_no_readings(server: PageServer) -> None:
    """Of a card whose calls fail the exporter gives 0 for all, and na for its uuid."""
    failed = ["power_mW", "temperature_onchip", "energy", "memory_total_bytes", "memory_used_bytes", "clock_soc_mhz"]
    server.body += "".join(line(f"habanalabs_{name}", 2, 0, UUID="na") + "\n" for name in failed)
    collector = bridge(server)
    devices = collector.discover()
    assert [device.uuid for device in devices] == [uuid(0), uuid(1), serial(2)]
    assert [reading for reading in collector.sample("normal").readings if reading.device == 2] == []


def test_the_exporters_rate_limit_is_told_and_the_next_answer_counts(server: PageServer) -> None:
    collector = bridge(server)
    collector.discover()
    collector.sample("normal")
    server.status = 429
    sample = collector.sample("normal")
    assert sample.readings == ()
    assert len(sample.errors) == 1
    server.status = 200
    assert collector.sample("normal").readings != ()
