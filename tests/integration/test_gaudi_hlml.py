"""What the Gaudi collector reads through HLML; expected values follow from the fake's formulas."""

from __future__ import annotations

import os
import time
from pathlib import Path
from unittest import mock

import pytest

from tests.fakes.gaudi import Host, gaudi2, install, make_host
from tests.fakes.gaudi.cards import DOWN, DRIVER, EXTERNAL, MIB, PORTS, bdf, energy_mj, minor, module_id, serial, uuid
from tests.integration.gaudi_rig import CATALOGUE, NATIVE, Answer, rig

pytestmark = pytest.mark.gcc
CARDS = 8
OPTIONAL = {series.name for series in CATALOGUE.series.values() if "(option" in series.help}
SMI_ONLY = {name for name in NATIVE if "_dram_" in name}


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return make_host(tmp_path, CARDS)


def card_values(i: int) -> dict[str, int | float]:
    """What the vendor's exporter would say of card i, and ours in the same units."""
    return {
        "habanalabs_device_config": 1,
        "habanalabs_clock_soc_mhz": 1650 - 5 * i,
        "habanalabs_clock_soc_max_mhz": 1800,
        "habanalabs_utilization": 40 + i,
        "habanalabs_memory_total_bytes": 98304 * MIB,
        "habanalabs_memory_used_bytes": (768 + 1024 * i) * MIB,
        "habanalabs_memory_free_bytes": (98304 - 768 - 1024 * i) * MIB,
        "habanalabs_power_mW": 96_000 + 1000 * i,
        "habanalabs_power_default_limit_mW": 600_000,
        "habanalabs_x_power_limit_mW": 550_000,
        "habanalabs_x_power_limit_min_mW": 450_000,
        "habanalabs_x_power_limit_max_mW": 600_000,
        "habanalabs_temperature_onchip": 45 + i,
        "habanalabs_temperature_onboard": 35 + i,
        "habanalabs_x_temperature_hbm": 50 + i,
        "habanalabs_temperature_threshold_shutdown": 90,
        "habanalabs_temperature_threshold_slowdown": 89,
        "habanalabs_temperature_threshold_memory": 88,
        "habanalabs_temperature_threshold_gpu": 87,
        "habanalabs_ecc_feature_mode": 1,
        "habanalabs_pcie_rx": 2000 + i,
        "habanalabs_pcie_receive_throughput": 2000 + i,
        "habanalabs_pcie_tx": 1000 + i,
        "habanalabs_pcie_transmit_throughput": 1000 + i,
        "habanalabs_pcie_replay_count": 7 + i,
        "habanalabs_pci_link_speed": 16,
        "habanalabs_pci_link_width": 16,
        "habanalabs_x_pcie_link_generation": 4,
        "habanalabs_x_pcie_link_max_generation": 5,
        "habanalabs_x_pcie_link_max_width": 16,
        "habanalabs_pending_rows_with_single_bit_ecc_errors": i,
        "habanalabs_pending_rows_with_double_bit_ecc_errors": 2 * i,
        "habanalabs_pending_rows_state": 0,
        "habanalabs_x_clocks_throttle_reasons": i % 4,
        "habanalabs_x_hard_resets_total": i,
        "accelerator_gpu_utilization": 40 + i,
        "accelerator_memory_total_bytes": 98304 * MIB,
        "accelerator_memory_used_bytes": (768 + 1024 * i) * MIB,
        "accelerator_power_usage_watts": 96_000 + 1000 * i,
        "accelerator_temperature_celcius": 45 + i,
        "accelerator_sm_clock_hertz": 1650 - 5 * i,
    }


def assert_cards(answer: Answer) -> None:
    for i in range(CARDS):
        assert {series: answer.value(series, i) for series in card_values(i)} == card_values(i)


def test_gaudi2_gives_each_quantity_in_the_unit_of_the_vendors_exporter(host: Host, tmp_path: Path) -> None:
    scenario = gaudi2(CARDS)
    with rig(host, install(tmp_path / "hlml", scenario)) as gaudi:
        gaudi.discover()
        answer = gaudi.sample()
    assert_cards(answer)
    for i in range(CARDS):
        assert answer.value("habanalabs_x_temperature_vrm", i) == 60.5 + i  # hwmon alone has it on Gaudi2
        states = {dict(r.labels)["state"]: r.value for r in answer.readings("habanalabs_x_device_state", i)}
        assert states["operational"] == 1
        assert sum(states.values()) == 1
        violations = {
            dict(r.labels)["policy"]: r.value for r in answer.readings("habanalabs_x_violation_nanoseconds_total", i)
        }
        assert violations == {"power": 1_500_000_000 + i, "thermal": 250_000_000 + i}
    assert answer.errors == []
    assert answer.sample.lost == []
    assert not answer.sample.rediscover


def test_energy_is_the_firmwares_counter(host: Host, tmp_path: Path) -> None:
    scenario = gaudi2(2)
    epoch = float(scenario.sections["system"]["epoch"])
    with rig(host, install(tmp_path / "hlml", scenario)) as gaudi:
        gaudi.discover()
        answer = gaudi.sample()
    for i in range(2):
        grown = (96_000 + 1000 * i) * (time.time() - epoch)
        assert energy_mj(i) <= answer.value("habanalabs_energy", i) <= energy_mj(i) + grown


def test_memory_errors_come_by_place_and_never_as_a_total_beside_them(host: Host, tmp_path: Path) -> None:
    scenario = gaudi2(2).with_keys("device 0", {"ecc.0.0.total": 12345, "ecc.0.0.2": 12345})
    with rig(host, install(tmp_path / "hlml", scenario)) as gaudi:
        gaudi.discover()
        answer = gaudi.sample()
    for i in range(2):
        for name, counter in (("volatile", 0), ("aggregate", 1)):
            found = {
                (dict(r.labels)["correctable"], dict(r.labels)["location"]): r.value
                for r in answer.readings(f"habanalabs_x_ecc_errors_{name}_total", i)
            }
            base = 1000 * i + 10 * counter
            assert found == {
                ("true", "sram"): base,
                ("true", "hbm"): base + 1,
                ("false", "sram"): base + 100,
                ("false", "hbm"): base + 101,
            }


def test_where_places_are_not_told_the_total_has_no_place(host: Host, tmp_path: Path) -> None:
    places = [f"ecc.{error}.{counter}.{place}" for error in (0, 1) for counter in (0, 1) for place in (0, 1)]
    scenario = gaudi2(1).without_keys("device 0", places)
    scenario = scenario.with_keys("device 0", {"ecc.0.0.total": 5, "ecc.1.0.total": 6})
    with rig(host, install(tmp_path / "hlml", scenario)) as gaudi:
        gaudi.discover()
        answer = gaudi.sample()
    series = "habanalabs_x_ecc_errors_volatile_total"
    assert [(r.labels, r.value) for r in answer.readings(series)] == [
        ((("correctable", "true"), ("location", "unknown")), 5),
        ((("correctable", "false"), ("location", "unknown")), 6),
    ]
    assert answer.readings("habanalabs_x_ecc_errors_aggregate_total") == []


def test_ports_have_their_kind_and_state(host: Host, tmp_path: Path) -> None:
    with rig(host, install(tmp_path / "hlml", gaudi2(CARDS))) as gaudi:
        gaudi.discover()
        answer = gaudi.sample()
    for i in range(CARDS):
        found = {
            (dict(r.labels)["port"], dict(r.labels)["port_type"]): r.value
            for r in answer.readings("habanalabs_nic_port_status", i)
        }
        assert found == {
            (str(port), "external" if port in EXTERNAL else "internal"): int((i, port) != DOWN) for port in range(PORTS)
        }
        assert answer.readings("habanalabs_x_port_up", i) == []


def test_links_told_apart_have_a_state_each(host: Host, tmp_path: Path) -> None:
    with rig(host, install(tmp_path / "hlml", gaudi2(4)), links="each") as gaudi:
        gaudi.discover()
        answer = gaudi.sample()
    assert answer.value("habanalabs_x_port_up", DOWN[0], port=str(DOWN[1])) == 0
    assert sum(answer.values("habanalabs_x_port_up", DOWN[0])) == PORTS - 1


def test_a_card_that_tells_no_ports_has_none(host: Host, tmp_path: Path) -> None:
    scenario = gaudi2(1).without_keys("device 0", ["ports.mask"])
    library = install(tmp_path / "hlml", scenario)
    with rig(host, library) as gaudi:
        gaudi.discover()
        assert gaudi.sample().readings("habanalabs_nic_port_status") == []
        library.forget_calls()
        gaudi.sample()
    assert ("hlml_get_mac_addr_info", "0") not in library.calls()


def test_every_native_series_is_emitted_by_some_card(host: Host, tmp_path: Path) -> None:
    host.process(100, 0, used=1 << 30)
    library = install(tmp_path / "hlml", gaudi2(1))
    options = {"port_counters": "all", "processes": True}
    with (
        mock.patch.dict(os.environ, {"KUBERNETES_SERVICE_PORT": "443"}),
        rig(host, library, links="each", options=options) as gaudi,
    ):
        gaudi.discover()
        answer = gaudi.sample()
    assert {reading.series for reading in answer.sample.readings} == NATIVE - SMI_ONLY


def test_without_the_options_ports_and_processes_are_left_alone(host: Host, tmp_path: Path) -> None:
    host.process(100, 0, used=1 << 30)
    library = install(tmp_path / "hlml", gaudi2(1))
    with rig(host, library) as gaudi:
        gaudi.discover()
        answer = gaudi.sample()
    assert len(OPTIONAL) == 4
    assert not OPTIONAL & answer.series()
    assert "hlml_nic_get_statistics" not in {function for function, _ in library.calls()}


def test_identity_is_the_vendors_and_no_number_space_stands_for_another(host: Host, tmp_path: Path) -> None:
    with rig(host, install(tmp_path / "hlml", gaudi2(CARDS))) as gaudi:
        devices = gaudi.discover()
        assert gaudi.collector.source == "hlml"
    assert len(devices) == CARDS
    for i, device in enumerate(devices):
        assert (device.uuid, device.serial, device.index, device.pci_bus_id) == (uuid(i), serial(i), str(i), bdf(i))
        assert (device.model, device.kind, device.driver_version, device.numa_node) == (
            "HL-225",
            "hpu",
            DRIVER,
            str(i // 4),
        )
        assert device.ids == {
            "index": str(i),
            "minor": str(minor(i)),
            "accel": f"accel{minor(i)}",
            "module_id": str(module_id(i)),
            "dra": f"0000-{bdf(i)[5:7]}-00-0-0x1020",
        }
        # Firmware is that of the card's own node, not of the node with HLML's index.
        assert device.raw_labels == (
            ("Serial", serial(i)),
            ("UUID", uuid(i)),
            ("device", serial(i)),
            ("id", str(i)),
            ("fit", f"U-Boot fw-{50 + i}"),
            ("spi", "Linux gaudi2 5.10"),
            ("driver", DRIVER),
        )


@pytest.mark.parametrize("release", [10, 14, 18, 19, 22, 24, 30])
def test_every_generation_of_structs_is_read(host: Host, tmp_path: Path, release: int) -> None:
    """30 is none that is known: its structs are larger than any, and none of their new fields is used."""
    with rig(host, install(tmp_path / "hlml", gaudi2(CARDS, release))) as gaudi:
        devices = gaudi.discover()
        answer = gaudi.sample()
    assert [device.pci_bus_id for device in devices] == [bdf(i) for i in range(CARDS)]
    for i in range(CARDS):
        assert answer.value("habanalabs_utilization", i) == 40 + i
        # The power limit has a second way, the limits that can be set have none.
        assert answer.value("habanalabs_x_power_limit_mW", i) == 550_000
        assert answer.values("habanalabs_x_power_limit_min_mW", i) == ([450_000] if release >= 21 else [])
    assert answer.errors == []


def test_what_a_device_does_not_offer_is_absent_and_asked_for_once(host: Host, tmp_path: Path) -> None:
    lacking = ["energy_mj", "throttle", "pcie.replay"]
    library = install(tmp_path / "hlml", gaudi2(CARDS).without_keys("device 0", lacking))
    with rig(host, library) as gaudi:
        gaudi.discover()
        first = gaudi.sample()
        library.forget_calls()
        second = gaudi.sample()
    absent = {"habanalabs_energy", "habanalabs_x_clocks_throttle_reasons", "habanalabs_pcie_replay_count"}
    for answer in (first, second):
        assert not absent & answer.series()
        assert answer.errors == []
    asked = {function for function, device in library.calls() if device == "0"}
    assert "hlml_device_get_total_energy_consumption" not in asked
    assert "hlml_device_get_pcie_replay_counter" not in asked
    assert "hlml_device_get_power_usage" in asked


def test_a_zero_that_says_nothing_is_no_reading(host: Host, tmp_path: Path) -> None:
    zeros = {"energy_mj": 0, "power_default_limit_mw": 0, "threshold.0": 0, "memory.total": 0, "memory.used": 0}
    with rig(host, install(tmp_path / "hlml", gaudi2(1).with_keys("device 0", zeros))) as gaudi:
        gaudi.discover()
        found = gaudi.sample().series()
    assert "habanalabs_power_mW" in found
    assert not found & {
        "habanalabs_energy",
        "habanalabs_power_default_limit_mW",
        "habanalabs_temperature_threshold_shutdown",
        "habanalabs_memory_total_bytes",
        "habanalabs_memory_used_bytes",
        "habanalabs_memory_free_bytes",
    }


def test_one_call_serves_all_series_that_come_from_it(host: Host, tmp_path: Path) -> None:
    library = install(tmp_path / "hlml", gaudi2(1))
    with rig(host, library) as gaudi:
        gaudi.discover()
        library.forget_calls()
        gaudi.sample()
    calls = library.calls()
    assert calls.count(("hlml_device_get_memory_info", "0")) == 1
    assert calls.count(("hlml_device_get_pcie_throughput", "0")) == 2  # one a direction
    assert calls.count(("hlml_device_get_power_usage", "0")) == 1


def test_only_what_is_wanted_is_asked_for(host: Host, tmp_path: Path) -> None:
    library = install(tmp_path / "hlml", gaudi2(2))
    with rig(host, library, wanted=["habanalabs_power_mW"], options={"events": False}) as gaudi:
        gaudi.discover()
        library.forget_calls()
        answer = gaudi.sample()
        calls = library.calls()
    assert [(r.series, r.device, r.value) for r in answer.sample.readings] == [
        ("habanalabs_power_mW", 0, 96_000),
        ("habanalabs_power_mW", 1, 97_000),
    ]
    assert calls == [("hlml_device_get_power_usage", "0"), ("hlml_device_get_power_usage", "1")]


def test_temperatures_of_hwmon_spare_hlml(host: Host, tmp_path: Path) -> None:
    """Some releases of HLML leak memory at each such call."""
    library = install(tmp_path / "hlml", gaudi2(1))
    with rig(host, library) as gaudi:
        gaudi.discover()
        gaudi.sample()
    assert "hlml_device_get_temperature" not in {function for function, _ in library.calls()}


def test_without_labels_of_channels_temperatures_come_from_hlml(tmp_path: Path) -> None:
    host = make_host(tmp_path, CARDS, labels=False)
    with rig(host, install(tmp_path / "hlml", gaudi2(CARDS))) as gaudi:
        gaudi.discover()
        answer = gaudi.sample()
    assert_cards(answer)
    assert answer.readings("habanalabs_x_temperature_vrm") == []


def test_the_nodes_own_series_exists_inside_kubernetes_alone(host: Host, tmp_path: Path) -> None:
    library = install(tmp_path / "hlml", gaudi2(1))
    variables = {"KUBERNETES_SERVICE_PORT": "443", "POD_NAME": "agent-0", "POD_NAMESPACE": "ml", "POD_IP": "192.0.2.7"}
    with rig(host, library) as gaudi:
        gaudi.discover()
        assert "habanalabs_kube_info" not in gaudi.sample().series(-1)
        with mock.patch.dict(os.environ, variables):
            [info] = gaudi.sample().readings("habanalabs_kube_info", -1)
    labels = dict(info.labels)
    assert list(labels) == ["podName", "namespace", "podIP", "node", "hostname"]
    assert labels | {"hostname": ""} == {
        "podName": "agent-0",
        "namespace": "ml",
        "podIP": "192.0.2.7",
        "node": "node-a",
        "hostname": "",
    }
    assert info.value == 1


def test_no_device_node_is_ever_opened(host: Host, tmp_path: Path) -> None:
    """Whoever opens a compute node keeps the card from its workload: here that would fail on a directory."""
    for i in range(CARDS):
        Path(host.paths.dev, f"accel/accel{minor(i)}").mkdir()
    opened: list[str] = []
    real = os.open

    def noting(path: str, *arguments: object, **more: object) -> int:
        opened.append(str(path))
        return real(path, *arguments, **more)  # type: ignore[arg-type]

    with rig(host, install(tmp_path / "hlml", gaudi2(CARDS))) as gaudi, mock.patch("os.open", noting):
        gaudi.discover()
        gaudi.sample()
    assert not [path for path in opened if path.startswith(host.paths.dev)]
