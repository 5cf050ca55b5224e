"""What the AMD collector reads of the driver's files alone; expected values follow from the world and AMD's units."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from collectors import base
from tests.fakes.amd import blobs, worlds
from tests.fakes.amd.tree import Process
from tests.fakes.amd.worlds import GIB, MIB
from tests.integration.amd_host import Open, opening, series_of, values


@pytest.fixture
def open_host(tmp_path: Path) -> Iterator[Open]:
    with opening(tmp_path) as make:
        yield make


def test_mi300x_gives_each_quantity_in_the_unit_of_amds_exporter(open_host: Open) -> None:
    host = open_host([worlds.bmc(), *worlds.mi300x(8)])
    assert len(host.devices) == 8
    answer = host.sample()
    for i in range(8):
        expected = {
            "gpu_power_usage": 255 + i,
            "gpu_package_power": 255 + i,
            "amdsmi_energy_joules_total": 1000 + i,
            "gpu_energy_consumed": int((1000 + i) * 65536 * 15.3),
            "gpu_junction_temperature": 50 + i,
            "gpu_memory_temperature": 40 + i,
            "gpu_gfx_activity": 90 + i,
            "gpu_umc_activity": 30 + i,
            "gpu_total_vram": 196592,
            # Half a MiB more is in use.
            "gpu_used_vram": 1000 + 100 * i,
            "gpu_free_vram": 196592 - 1000 - 100 * i,
            "gpu_total_visible_vram": 196592,
            "gpu_used_gtt": 20 + i,
            "gpu_total_gtt": 512 * 1024,
            "amdsmi_memory_capacity_bytes": 196592 * MIB,
            "gpu_vram_max_bandwidth": 5325,
            "pcie_speed": 32,
            "pcie_max_speed": 32,
            "amdsmi_pcie_link_generation": 5,
            "amdsmi_pcie_link_max_generation": 5,
            "amdsmi_pcie_link_width": 16,
            "pcie_bandwidth": 18 + i,
            "pcie_bidirectional_bandwidth": 90_000 + i,
            # The table's count, not the file's 77.
            "pcie_replay_count": 2 + i,
            "pcie_recovery_count": 1,
            "pcie_replay_rollover_count": 3,
            "pcie_nack_sent_count": 4,
            "pcie_nack_received_count": 5,
            "gpu_ecc_correct_umc": 3 + i,
            "gpu_ecc_deferred_umc": 1,
            "gpu_ecc_correct_gfx": 2 * i,
            "gpu_ecc_correct_bif": 4,
            "gpu_ecc_correct_xgmi_wafl": 7 + i,
            "gpu_ecc_correct_total": 3 + i + 2 * i + 7 + i + 4,
            "gpu_ecc_uncorrect_total": 0,
            "gpu_health": 1,
            "amdsmi_bad_pages_retired": 2,
            "amdsmi_bad_pages_pending": 0,
            "gpu_violation_current_accumulated_counter": 1_000_000,
            "gpu_violation_ppt_residency_accumulated": 5000 + i,
            "amdsmi_thermal_residency_milliseconds": 300 + i,
            "amdsmi_xgmi_links": 7,
            "amdsmi_xgmi_links_up": 6,
            "amdsmi_compute_units": 304,
            "amdsmi_compute_units_capacity": 304,
            "amdsmi_processes": 0,
        }
        assert values(answer, i, expected) == expected
        assert answer.value("gpu_gfx_busy_instantaneous", i, xcc_index="0") == 80 + i
        assert answer.value("gpu_gfx_busy_instantaneous", i, xcc_index="7") == 40 + i
        assert answer.value("gpu_xgmi_link_rx", i, link_index="6") == 7000 + i
        assert answer.value("gpu_xgmi_link_tx", i, link_index="0") == 2000 + i
        assert len(answer.values("gpu_xgmi_link_rx", i)) == 7
        for limit, watts in (("enforced", 650), ("default", 750), ("min", 0), ("max", 750)):
            assert answer.value("amdsmi_power_limit_watts", i, limit=limit) == watts
        clocks = {
            tuple(dict(r.labels).values()): r.value
            for r in answer.sample.readings
            if (r.series, r.device) == ("gpu_clock", i)
        }
        assert [clocks[str(n), "system"] for n in range(8)] == [2100 - 10 * i + n for n in range(8)]
        assert clocks["8", "memory"] == 1300
        assert clocks["9", "video"] == 29
        assert clocks["13", "data"] == 22
        assert clocks["17", "fabric"] == 2000
        assert clocks["19", "soc"] == 1200
        absent = {"gpu_average_package_power", "gpu_edge_temperature", "gpu_hbm_temperature", "gpu_mma_activity"}
        assert not absent & series_of(answer, i)
    assert answer.value("gpu_nodes_total", -1, hostname="node-a") == 8
    assert answer.sample.errors == ()
    assert answer.sample.lost == []


def test_a_device_is_named_as_amds_exporter_and_library_name_it(open_host: Open) -> None:
    host = open_host(worlds.mi300x(1), options={"cluster_name": "c1"})
    [device] = host.devices
    assert device.uuid == "9fff74a1-0000-1000-8044-0a1b2c3d4e00"
    assert (device.index, device.partition, device.pci_bus_id) == ("0", "", "0000:05:00.0")
    assert (device.model, device.serial, device.numa_node) == ("AMD Instinct MI300X OAM", "692300000000", "0")
    assert dict(device.raw_labels) == {
        "gpu_id": "0",
        "gpu_uuid": "9fff74a1-0000-1000-8044-0a1b2c3d4e00",
        "card_model": "102-G30211-0C",
        "card_series": "AMD Instinct MI300X OAM",
        "card_vendor": "AMD",
        "serial_number": "692300000000",
        "driver_version": "6.12.12",
        "vbios_version": "113-M3000100-102",
        "gpu_partition_id": "0",
        "gpu_compute_partition_type": "spx",
        "gpu_memory_partition_type": "nps1",
        "hostname": "node-a",
        "cluster_name": "c1",
    }
    assert device.ids == {"index": "0", "uuid": device.uuid, "bdf": "0000:05:00.0", "render": "128", "dra": "gpu-1-128"}
    assert host.sample().value("gpu_nodes_total", -1, cluster_name="c1") == 1


def test_a_card_that_is_cut_has_parts_and_each_quantity_where_it_belongs(open_host: Open) -> None:
    host = open_host(worlds.mi300x_cpx(2))
    assert [(d.index, d.partition) for d in host.devices] == [
        ("0", ""), *((str(n), str(n)) for n in range(8)), ("8", ""), *((str(8 + n), str(n)) for n in range(8)),
    ]  # fmt: skip
    assert len({device.uuid for device in host.devices}) == 2
    assert {device.partition_profile for device in host.devices if device.partition} == {"cpx_nps4"}
    assert host.devices[4].partition_uuid == "9f0374a1-0000-1000-8044-0a1b2c3d4e00"
    assert host.devices[1].ids["bdf"] == "0000:05:00.0"
    assert "bdf" not in host.devices[0].ids
    assert host.devices[4].ids["device_name"] == "amdgpu_xcp_2"
    assert host.devices[13].ids["device_name"] == "amdgpu_xcp_9"
    assert host.devices[13].ids["dra"] == "gpu-12-139"
    # A whole's raw labels are those of its first partition, on which AMD's exporter has what is of the whole.
    assert host.devices[0].raw_labels == host.devices[1].raw_labels
    answer = host.sample()
    for i, whole in enumerate((0, 9)):
        assert answer.value("gpu_power_usage", whole) == 255 + i
        assert answer.value("gpu_gfx_activity", whole) == 90 + i
        assert answer.value("amdsmi_compute_units_capacity", whole) == 304
        assert answer.value("amdsmi_memory_capacity_bytes", whole) == 196592 * MIB
        for n in range(8):
            part = whole + 1 + n
            assert answer.value("gpu_total_vram", part) == 24574
            assert answer.value("gpu_used_vram", part) == 100 * (n + 1) + i
            assert answer.value("gpu_gfx_busy_instantaneous", part) == 40 + i
            assert answer.value("amdsmi_compute_units", part) == 38
            assert "gpu_power_usage" not in series_of(answer, part)
        assert not {"gpu_used_vram", "gpu_gfx_busy_instantaneous"} & series_of(answer, whole)
    assert answer.value("gpu_nodes_total", -1) == 16


def test_memory_that_every_partition_tells_in_whole_stays_with_the_card(open_host: Open) -> None:
    boards = worlds.mi300x_cpx()
    nodes = [worlds.cpx_node(0, n) for n in range(8)]
    whole = [type(node)(**{**_fields(node), "memory": worlds.MI300X_VRAM}) for node in nodes]
    answer = open_host([type(boards[0])(**{**_fields(boards[0]), "nodes": whole})]).sample()
    assert answer.value("gpu_used_vram", 0) == 1000
    assert all("gpu_used_vram" not in series_of(answer, part) for part in range(1, 9))


def _fields(item: Any) -> dict[str, Any]:
    return {name: getattr(item, name) for name in item.__slots__}


def test_mi210_has_edge_and_hbm_temperatures_and_the_drivers_throttle_bits(open_host: Open) -> None:
    answer = open_host(worlds.mi210(2)).sample()
    for i in range(2):
        expected = {
            "gpu_average_package_power": 300 + i,
            "gpu_power_usage": 300 + i,
            "amdsmi_energy_joules_total": 5000 + i,
            "gpu_edge_temperature": 40 + i,
            "gpu_junction_temperature": 48 + i,
            "pcie_speed": 16,
            "amdsmi_pcie_link_generation": 4,
            "pcie_replay_count": 6 + i,
            "gpu_gfx_activity": 70 + i,
        }
        assert values(answer, i, expected) == expected
        stacks = [answer.value("gpu_hbm_temperature", i, hbm_index=str(n)) for n in range(4)]
        assert stacks == [50 + i, 51 + i, 52 + i, 49 + i]
        reasons = {
            name: answer.value("amdsmi_throttle_active", i, reason=name) for name in ("power_cap", "thermal", "other")
        }
        assert reasons == {"power_cap": 1, "thermal": 1, "other": 0}
        unknown = {"gpu_package_power", "gpu_gfx_busy_instantaneous", "pcie_bandwidth", "amdsmi_power_share_watts"}
        assert not unknown & series_of(answer, i)
        assert answer.values("amdsmi_power_limit_watts", i) == [300]


def test_two_dies_of_a_board_get_half_of_its_power_and_energy_each(open_host: Open) -> None:
    answer = open_host(worlds.mi250()).sample()
    for die in (0, 1):
        assert answer.value("amdsmi_power_share_watts", die) == 150
        assert answer.value("amdsmi_energy_share_joules_total", die) == 2500
        assert answer.value("amdsmi_power_limit_share_watts", die, limit="enforced") == 280
    # The raw series stay as AMD's exporter has them: the first die has all, the second none.
    assert answer.value("gpu_average_package_power", 0) == 300
    nothing = {"gpu_power_usage", "gpu_average_package_power", "gpu_energy_consumed", "amdsmi_power_limit_watts"}
    assert not nothing & series_of(answer, 1)
    assert answer.value("gpu_junction_temperature", 1) == 49


def test_mi300a_has_no_pcie_figures_of_its_table(open_host: Open) -> None:
    host = open_host(worlds.mi300a())
    answer = host.sample()
    assert not {name for name in series_of(answer) if "pcie" in name}
    assert answer.value("gpu_power_usage") == 255
    assert len(answer.values("gpu_gfx_busy_instantaneous")) == 6
    assert answer.value("gpu_total_vram") == 128 * 1024
    assert "serial_number" not in dict(host.devices[0].raw_labels)


def test_a_radeon_has_a_fan_and_no_energy(open_host: Open) -> None:
    host = open_host(worlds.rx7900())
    answer = host.sample()
    expected = {
        "gpu_power_usage": 61,
        "gpu_average_package_power": 61,
        "gpu_gfx_voltage": 712,
        "gpu_mma_activity": 9,
        "amdsmi_fan_speed_rpm": 1210,
        "amdsmi_fan_speed_ratio": 0.2,
        "amdsmi_compute_units": 96,
    }
    assert values(answer, 0, expected) == expected
    assert not {"gpu_energy_consumed", "amdsmi_energy_joules_total", "gpu_health"} & series_of(answer)
    labels = dict(host.devices[0].raw_labels)
    assert labels["gpu_id"] == "0"
    assert "null" not in labels.values()
    assert {"card_series", "card_model", "serial_number"}.isdisjoint(labels)


def test_a_card_that_sleeps_is_not_woken(open_host: Open) -> None:
    host = open_host(worlds.rx7900())
    host.tree.put("0000:0a:00.0", "power/runtime_status", "suspended\n")
    # Whoever opened this now would be told that the card is gone.
    host.tree.refuse("0000:0a:00.0", "gpu_metrics")
    answer = host.sample()
    assert series_of(answer) == {"amdsmi_runtime_suspended"}
    assert answer.value("amdsmi_runtime_suspended") == 1
    assert answer.sample.lost == []
    assert answer.sample.errors == ()


@pytest.mark.parametrize("revision", [(1, 4), (1, 5), (1, 6), (1, 7)])
def test_each_layout_of_mi300s_table_is_read(open_host: Open, revision: tuple[int, int]) -> None:
    answer = open_host(worlds.mi300x(1, revision)).sample()
    assert answer.value("gpu_package_power") == 255
    assert answer.value("gpu_xgmi_link_tx", link_index="6") == 14000
    has = {
        "gpu_gfx_busy_instantaneous": revision >= (1, 6),
        "gpu_violation_ppt_residency_accumulated": revision >= (1, 6),
        "gpu_vram_max_bandwidth": revision >= (1, 7),
        "amdsmi_xgmi_links": revision >= (1, 7),
        "pcie_nack_sent_count": revision >= (1, 5),
        "amdsmi_throttle_active": False,
    }
    assert {name: name in series_of(answer) for name in has} == has


@pytest.mark.parametrize(("threshold", "health"), [(0, 0), (1, 0), (2, 1)])
def test_uncorrectable_errors_make_a_gpu_unhealthy(open_host: Open, threshold: int, health: int) -> None:
    host = open_host(worlds.mi300x(1), options={"ecc_threshold": threshold})
    host.tree.put("0000:05:00.0", "ras/umc_err_count", "ue: 2\nce: 0\n")
    assert host.sample().value("gpu_health") == health


def test_shares_of_throttling_are_those_between_two_samples(open_host: Open) -> None:
    host = open_host(worlds.mi300x(1))
    host.sample()
    table = blobs.table((1, 7), worlds.mi300x_fields(0, tick=4))
    host.tree.put("0000:05:00.0", "gpu_metrics", table)
    answer = host.sample()
    assert answer.value("gpu_violation_ppt_residency_percentage") == 25
    assert answer.value("gpu_violation_hbm_thermal_residency_percentage") == 0
    assert answer.value("amdsmi_throttle_active", reason="power_cap") == 1
    assert answer.value("amdsmi_throttle_active", reason="thermal") == 0


def test_processes_tell_how_much_of_a_gpu_they_occupy(open_host: Open) -> None:
    host = open_host(worlds.mi300x(1), options={"processes": True})
    host.tree.processes(
        [
            Process(pid=700, memory={10_000: 5 * GIB}, units={10_000: 76}),
            Process(pid=701, memory={10_000: GIB}, units={10_000: 152}),
            Process(pid=702, memory={10_001: GIB}),
        ]
    )
    answer = host.sample()
    assert answer.value("amdsmi_processes") == 2
    assert answer.value("gpu_process_cu_occupancy", process_id="701") == 152
    assert answer.value("amdsmi_process_memory_bytes", pid="700") == 5 * GIB
    assert answer.value("amdsmi_cu_occupancy_ratio") == (76 + 152) / 304


def test_attribution_is_told_which_process_uses_which_partition(open_host: Open) -> None:
    host = open_host(worlds.mi300x_cpx(1), processes=True)
    host.tree.processes([Process(pid=700, memory={20_003: GIB, 20_004: 2 * GIB}), Process(pid=701, memory={20_003: 5})])
    # Partition 3 is the fifth of the devices, after the whole card.
    expected = [base.Process(4, 700, GIB), base.Process(4, 701, 5), base.Process(5, 700, 2 * GIB)]
    assert host.raw().processes == expected
    assert open_host(worlds.mi300x(1)).raw().processes is None


def test_what_needs_an_option_is_left_out_without_it(open_host: Open) -> None:
    host = open_host(worlds.mi210(1))
    host.tree.processes([Process(pid=700, memory={30_000: GIB})])
    given = series_of(host.sample())
    assert not {"amdsmi_process_memory_bytes", "amdsmi_xgmi_link_up", "pcie_rx", "pcie_tx", "gpu_afid_errors"} & given
    assert "amdsmi_processes" in given


def test_the_state_of_each_link_comes_with_its_option(open_host: Open) -> None:
    answer = open_host(worlds.mi300x(1), links="each").sample()
    states = {dict(r.labels)["link"]: r.value for r in answer.readings("amdsmi_xgmi_link_up")}
    assert states == {**{str(n): 1 for n in range(6)}, "6": 0}


def test_pcie_traffic_is_read_beside_the_sampling(open_host: Open) -> None:
    host = open_host(worlds.mi210(2), options={"pcie_throughput": True})
    end = time.monotonic() + 10
    while "pcie_rx" not in series_of(answer := host.sample(), 1):
        assert time.monotonic() < end
        time.sleep(0.01)
    for i in range(2):
        # The driver's file has packets received, packets sent, and the most bytes of one.
        assert answer.value("pcie_rx", i) == (1000 + i) * 256
        assert answer.value("pcie_tx", i) == (2000 + i) * 256


@pytest.mark.parametrize(("version", "expected"), [("6.12.12", "6.12.12"), ("", "")])
def test_the_kernels_own_driver_has_no_version(open_host: Open, version: str, expected: str) -> None:
    assert open_host(worlds.mi300x(1), version=version).devices[0].driver_version == expected


def test_only_what_is_wanted_is_read(open_host: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    host = open_host(worlds.mi300x(1), wanted={"normal": ["gpu_power_usage"], "slow": ["gpu_ecc_correct_umc"]})
    opened: list[str] = []
    real = Path.open

    def spy(path: Path, *arguments: Any, **more: Any) -> Any:
        opened.append(path.name)
        return real(path, *arguments, **more)

    monkeypatch.setattr(Path, "open", spy)
    answer = host.sample()
    assert [reading.series for reading in answer.sample.readings] == ["gpu_power_usage"]
    assert set(opened) <= {"gpu_metrics", "runtime_status"}
