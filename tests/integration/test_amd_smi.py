"""What the AMD collector reads through the real package amdsmi, of ROCm 6.4 and 7.0, over a library in C."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from collectors.base import Fault, ReadError
from tests.fakes.amd import Tree, build, smi_worlds, worlds
from tests.fakes.amd.library import Installation, Scenario, install, number
from tests.fakes.amd.smi_worlds import handle
from tests.fakes.amd.wheels import VERSIONS, Wheel, wheel
from tests.integration.amd_child import Child, settings
from tests.integration.collector_child import Answer

pytestmark = pytest.mark.gcc

# The structures' sizes in bytes, and offsets of fields, as AMD's header has them.
SIZES = {
    "6.4.4": {"gpu_metrics": 2368, "power_info": 40, "proc_info": 704, "asic_info": 896, "board_info": 1536,
              "vram_info": 64, "vbios_info": 1056, "driver_info": 768},
    "7.0.2": {"gpu_metrics": 4544, "power_info": 192, "proc_info": 704, "asic_info": 896, "board_info": 1792,
              "vram_info": 584, "vbios_info": 1568, "driver_info": 768},
}  # fmt: skip
UNCHANGED = {"pcie_info": 512, "error_count": 64, "power_cap_info": 64, "clk_info": 32, "kfd_info": 64}
POWER = {
    "6.4.4": {"current_socket_power": (8, 4), "average_socket_power": (12, 4), "gfx_voltage": (16, 4)},
    "7.0.2": {"gfx_voltage": (16, 8), "soc_voltage": (24, 8), "mem_voltage": (32, 8), "power_limit": (40, 4)},
}


class Place(NamedTuple):
    tree: Tree
    wheel: Wheel
    scenario: Scenario
    installation: Installation

    def child(self, **more: Any) -> Child:
        return Child(settings(self.tree, **more), self.installation)


Make = Callable[..., Place]


ANY_VERSION = pytest.mark.parametrize("version", VERSIONS)


@pytest.fixture
def place(tmp_path: Path) -> Make:
    def make(cards: int = 1, *, cut: bool = False, version: str = VERSIONS[-1]) -> Place:
        package = wheel(version)
        tree = build(tmp_path / "host", worlds.mi300x_cpx() if cut else worlds.mi300x(cards))
        scenario = smi_worlds.mi300x_cpx(package) if cut else smi_worlds.mi300x(package, cards)
        return Place(tree, package, scenario, install(tmp_path / "smi", package, scenario))

    return make


def series_of(answer: Answer, device: int = 0) -> set[str]:
    return {reading.series for reading in answer.sample.readings if reading.device == device}


@ANY_VERSION
def test_the_packages_structures_are_those_of_the_header(version: str) -> None:
    package = wheel(version)
    found = package.layout.structures
    expected = {**SIZES[package.version], **UNCHANGED}
    assert {name: found[f"amdsmi_{name}_t"]["size"] for name in expected} == expected
    power = {field["name"]: (field["offset"], field["one"]) for field in found["amdsmi_power_info_t"]["fields"]}
    assert POWER[package.version].items() <= power.items()


@ANY_VERSION
def test_each_quantity_comes_from_the_library(place: Make, version: str) -> None:
    here = place(2, version=version)
    with here.child(links="each") as child:
        found = child.found()
        answer = child.sample()
    assert found.source == "amdsmi"
    assert [device.pci_bus_id for device in found.devices] == [worlds.mi300x_bdf(i) for i in range(2)]
    for i in range(2):
        expected = {
            "gpu_power_usage": 255 + i,
            "gpu_package_power": 255 + i,
            "amdsmi_energy_joules_total": 1000 + i,
            # The library's, not the table's 50 and 40.
            "gpu_junction_temperature": 60 + i,
            "gpu_memory_temperature": 55 + i,
            "gpu_gfx_activity": 90 + i,
            # The library's, not sysfs' 1000.
            "gpu_used_vram": 2000 + 100 * i,
            "gpu_free_vram": 196592 - 2000 - 100 * i,
            "gpu_vram_max_bandwidth": 5300,
            # No sentinel: an error count is as wide as it is.
            "gpu_ecc_correct_umc": 65535,
            "gpu_ecc_correct_gfx": 2 * i,
            "gpu_ecc_deferred_umc": 3,
            "gpu_ecc_correct_total": 65535 + 3 * i + 1,
            "gpu_health": 1,
            "amdsmi_bad_pages_retired": 2,
            "amdsmi_bad_pages_pending": 1,
            "amdsmi_bad_pages_unreservable": 0,
            "amdsmi_xgmi_links": 7,
            "amdsmi_xgmi_links_up": 6,
            "gpu_violation_ppt_residency_accumulated": 5000 + i,
            "pcie_replay_count": 2 + i,
            "amdsmi_pcie_link_generation": 5,
            # What the library does not support, sysfs tells.
            "gpu_ecc_correct_bif": 4,
            "gpu_total_gtt": 512 * 1024,
        }
        assert {series: answer.value(series, i) for series in expected} == expected
        assert answer.value("gpu_gfx_busy_instantaneous", i, xcc_index="7") == 40 + i
        assert answer.value("amdsmi_power_limit_watts", i, limit="enforced") == 700
        assert answer.value("amdsmi_temperature_critical_celsius", i, sensor="hotspot") == 100
        assert answer.value("gpu_clock", i, clock_type="fabric") == 1900
        assert answer.value("gpu_clock", i, clock_index="7") == 2107 - 10 * i
        assert answer.value("gpu_max_clock", i, clock_type="system") == 2100
        assert answer.value("gpu_xgmi_link_rx", i, link_index="6") == 7000 + i
        assert answer.value("amdsmi_xgmi_link_up", i, link="7") == 0
        assert "gpu_edge_temperature" not in series_of(answer, i)
    assert answer.value("gpu_nodes_total", -1) == 2
    assert answer.sample.errors == []


@ANY_VERSION
def test_facts_and_labels_come_from_the_library(place: Make, version: str) -> None:
    with place(2, version=version).child() as child:
        device, other = child.discover()
    assert device.uuid == "9fff74a1-0000-1000-8044-0a1b2c3d4e00"
    assert (device.model, device.driver_version) == ("AMD Instinct MI300X OAM", "6.14.14")
    assert device.firmware_version == "022.040.003.043.000001"
    labels = dict(device.raw_labels)
    assert labels["card_model"] == "102-G30211-00"
    # As AMD's exporter prints them of an MI300X; where the board tells a number, the chip's vendor stands in.
    assert (labels["card_series"], labels["card_vendor"]) == ("AMD Instinct MI300X OAM", "AMD")
    assert dict(other.raw_labels)["card_vendor"] == "Advanced Micro Devices Inc. [AMD/ATI]"
    assert labels["deployment_mode"] == "baremetal"
    assert labels["gpu_compute_partition_type"] == "spx"
    assert "0x1002" not in {**labels, **dict(other.raw_labels)}.values()


@ANY_VERSION
def test_a_card_that_is_cut_has_parts(place: Make, version: str) -> None:
    with place(cut=True, version=version).child() as child:
        devices = child.discover()
        answer = child.sample()
    assert [(device.index, device.partition) for device in devices] == [
        ("0", ""),
        *((str(n), str(n)) for n in range(8)),
    ]
    assert {device.uuid for device in devices} == {"9fff74a1-0000-1000-8044-0a1b2c3d4e00"}
    assert devices[3].partition_uuid == "9f0274a1-0000-1000-8044-0a1b2c3d4e00"
    assert {device.pci_bus_id for device in devices} == {"0000:05:00.0"}
    assert answer.value("gpu_power_usage", 0) == 255
    for n in range(8):
        assert answer.value("gpu_used_vram", 1 + n) == 200 + n
        assert answer.value("gpu_gfx_busy_instantaneous", 1 + n) == 40
        assert "gpu_power_usage" not in series_of(answer, 1 + n)


def test_both_ways_to_read_give_a_device_the_same_identity(place: Make) -> None:
    here = place(2)
    with here.child(source="amdsmi") as child:
        by_library = {device.uuid: device.pci_bus_id for device in child.discover()}
    with here.child(source="sysfs") as child:
        found = child.found()
    assert found.source == "sysfs"
    assert {device.uuid: device.pci_bus_id for device in found.devices} == by_library


def test_a_power_of_255_watts_is_told_whatever_power_info_makes_of_it(place: Make) -> None:
    here = place()
    with here.child(wanted={"normal": ["gpu_package_power"]}) as child:
        child.discover()
        assert child.sample().value("gpu_package_power") == 255


@ANY_VERSION
def test_where_there_is_no_table_power_info_and_activity_are_asked(place: Make, version: str) -> None:
    here = place(version=version)
    here.tree.drop(worlds.mi300x_bdf(0), "gpu_metrics")
    here.scenario.answer("amdsmi_get_gpu_metrics_info", handle(0), result=2)
    smi_worlds.power(here.scenario, handle(0), current_socket_power=321, soc_voltage=800)
    here.scenario.gives(
        "amdsmi_get_gpu_activity",
        handle(0),
        argument=1,
        structure="amdsmi_engine_usage_t",
        values={"gfx_activity": 77, "umc_activity": 12},
    )
    here.installation.apply(here.scenario)
    with here.child() as child:
        child.discover()
        answer = child.sample()
    expected = {"gpu_package_power": 321, "gpu_power_usage": 321, "gpu_gfx_activity": 77, "gpu_umc_activity": 12}
    assert {series: answer.value(series) for series in expected} == expected
    assert answer.value("gpu_voltage") == 800
    # All ones in each of its widths: 32 and 64 bits.
    assert not {"gpu_average_package_power", "gpu_gfx_voltage", "gpu_mma_activity"} & series_of(answer)


def test_what_a_gpu_does_not_support_is_asked_once(place: Make) -> None:
    here = place()
    with here.child(wanted={"normal": ["gpu_edge_temperature", "gpu_vram_max_bandwidth"]}) as child:
        child.discover()
        before = len(here.installation.calls())
        for _ in range(3):
            answer = child.sample()
    assert answer.sample.errors == []
    calls = here.installation.calls()[before:]
    assert calls.count("amdsmi_get_gpu_vram_info") == 3
    assert calls.count("amdsmi_get_temp_metric") == 1


def test_only_what_is_wanted_is_asked(place: Make) -> None:
    here = place(2)
    with here.child(wanted={"normal": ["gpu_power_usage"], "slow": ["gpu_ecc_correct_umc"]}) as child:
        child.discover()
        before = len(here.installation.calls())
        child.sample()
        assert here.installation.calls()[before:] == ["amdsmi_get_gpu_metrics_info"] * 2


def test_slow_functions_are_never_called(place: Make) -> None:
    here = place(2)
    with here.child(options={"pcie_throughput": True, "processes": True}) as child:
        child.discover()
        child.sample()
        child.sample()
    slow = {"amdsmi_get_violation_status", "amdsmi_get_gpu_pci_throughput", "amdsmi_get_gpu_process_list"}
    assert not slow & set(here.installation.calls())
    assert "amdsmi_get_pcie_info" not in here.installation.calls()


@pytest.mark.parametrize(
    ("code", "kind", "told"),
    [(2, None, 0), (3, None, 0), (40, None, 0), (8, "transient", 2), (30, "transient", 2), (10, "permission", 1),
     (12, "library", 2)],
)  # fmt: skip
def test_a_status_code_means_what_amds_header_says(place: Make, code: int, kind: str | None, told: int) -> None:
    here = place()
    here.scenario.answer("amdsmi_get_gpu_bad_page_info", handle(0), result=code)
    here.installation.apply(here.scenario)
    here.tree.drop(worlds.mi300x_bdf(0), "ras/gpu_vram_bad_pages")
    errors: list[ReadError] = []
    with here.child(wanted={"normal": ["amdsmi_bad_pages_retired", "gpu_power_usage"]}) as child:
        child.discover()
        for _ in range(2):
            answer = child.sample()
            errors += answer.sample.errors
            assert answer.value("gpu_power_usage") == 255
    assert [(error.device, error.kind) for error in errors] == [(0, kind)] * told


def test_a_library_that_is_too_old_for_the_drivers_table_costs_nothing(place: Make) -> None:
    here = place()
    here.scenario.answer("amdsmi_get_gpu_metrics_info", handle(0), result=43)
    here.installation.apply(here.scenario)
    with here.child() as child:
        child.discover()
        answer = child.sample()
    assert answer.value("gpu_power_usage") == 255
    assert answer.value("gpu_xgmi_link_rx", link_index="0") == 1000
    assert {error.kind for error in answer.sample.errors} == {"library"}


def test_the_library_is_closed_in_the_end_and_before_each_discovery(place: Make) -> None:
    here = place()
    with here.child() as child:
        child.discover()
        child.discover()
        child.close()
    calls = [call for call in here.installation.calls() if call in ("amdsmi_init", "amdsmi_shut_down")]
    # Each discovery tries in a process of its own first.
    assert calls == ["amdsmi_init", "amdsmi_shut_down"] * 4


def test_workers_stay_light(place: Make) -> None:
    with place().child() as child:
        child.discover()
        modules = set(child.close())
    assert not {"asyncio", "aiohttp", "prometheus_client", "grpc"} & modules


def test_what_the_library_prints_does_not_get_between(place: Make) -> None:
    here = place()
    here.scenario.answer("amdsmi_get_gpu_bad_page_info", handle(0), actions=["say=chatter", number(1, 0, 4)])
    here.installation.apply(here.scenario)
    with here.child() as child:
        child.discover()
        assert child.sample().value("amdsmi_bad_pages_retired") == 0


@ANY_VERSION
def test_error_records_become_faults_once_and_the_last_is_shown(place: Make, version: str) -> None:
    here = place(version=version)
    smi_worlds.records(here.scenario, handle(0), [("non_fatal_corrected", [24])])
    here.installation.apply(here.scenario)
    wanted = {"normal": ["gpu_afid_errors", "gpu_health"]}
    with here.child(wanted=wanted, options={"cper": True}) as child:
        child.discover()
        first = child.sample()
        assert first.sample.faults == []
        assert first.value("gpu_afid_errors", severity="non_fatal_corrected", afid_index="0") == 24
        assert first.value("gpu_health") == 1
        smi_worlds.records(here.scenario, handle(0), [("fatal", [30, 25])], cursor=1)
        here.installation.apply(here.scenario)
        second = child.sample()
        # 2026-01-02 03:04:05 UTC
        assert second.sample.faults == [Fault(0, "afid:30", 1767323045.0), Fault(0, "afid:25", 1767323045.0)]
        assert [second.value("gpu_afid_errors", severity="fatal", afid_index=str(n)) for n in (0, 1)] == [30, 25]
        assert second.value("gpu_health") == 0
        smi_worlds.records(here.scenario, handle(0), [], cursor=2)
        here.installation.apply(here.scenario)
        third = child.sample()
        assert third.sample.faults == []
        assert third.value("gpu_afid_errors", afid_index="0") == 30


def test_without_the_right_to_error_records_it_is_said_once(place: Make) -> None:
    here = place()
    here.scenario.answer("amdsmi_get_gpu_cper_entries", handle(0), result=10)
    here.installation.apply(here.scenario)
    errors: list[ReadError] = []
    with here.child(wanted={"normal": ["gpu_afid_errors"]}, options={"cper": True}) as child:
        child.discover()
        for _ in range(3):
            errors += child.sample().sample.errors
    assert [error.kind for error in errors] == ["permission"]
    assert here.installation.calls().count("amdsmi_get_gpu_cper_entries") == 1
