"""Files that change, fail or lie: unknown layouts, lost cards, other partitions, counters of something else."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from collectors.amd import collector as collector_module
from collectors.base import Unavailable
from tests.fakes.amd import Board, Tree, blobs, build, worlds
from tests.integration.amd_host import Open, opening, series_of, values


@pytest.fixture
def open_host(tmp_path: Path) -> Iterator[Open]:
    with opening(tmp_path) as make:
        yield make


def test_an_unknown_layout_leaves_what_other_files_tell(open_host: Open) -> None:
    host = open_host(worlds.mi300x(1))
    host.tree.put("0000:05:00.0", "gpu_metrics", blobs.foreign(1, 9, 4000))
    answer = host.sample()
    expected = {
        "gpu_package_power": 255,
        "gpu_power_usage": 255,
        "gpu_junction_temperature": 50,
        "gpu_memory_temperature": 40,
        "gpu_gfx_activity": 99,
        "pcie_speed": 32,
        "pcie_replay_count": 77,
    }
    assert values(answer, 0, expected) == expected
    assert answer.value("gpu_clock", clock_type="system") == 2100
    assert answer.value("gpu_clock", clock_type="memory") == 1300
    assert not {"amdsmi_energy_joules_total", "gpu_xgmi_link_rx", "gpu_average_package_power"} & series_of(answer)
    assert answer.sample.errors == ()


def test_half_a_table_is_an_error_and_the_rest_is_read(open_host: Open) -> None:
    host = open_host(worlds.mi300x(2))
    host.tree.put("0000:05:00.0", "gpu_metrics", blobs.table((1, 7), {})[:1000])
    answer = host.sample()
    assert [(error.device, error.kind) for error in answer.sample.errors] == [(0, "parse")]
    assert "gpu_metrics v1.7" in answer.sample.errors[0].detail
    assert answer.value("gpu_used_vram", 0) == 1000
    assert answer.value("gpu_power_usage", 1) == 256
    assert answer.sample.lost == []


def test_ten_megabytes_in_place_of_a_number_are_cut(open_host: Open) -> None:
    host = open_host(worlds.mi300x(1))
    for name in ("gpu_metrics", "mem_info_vram_used", "ras/umc_err_count", "pp_dpm_sclk", "current_link_speed"):
        host.tree.put("0000:05:00.0", name, b"7" * 10_000_000)
    began = time.monotonic()
    answer = host.sample()
    assert time.monotonic() - began < 5
    assert "gpu_used_vram" not in series_of(answer)
    assert answer.value("gpu_ecc_correct_gfx") == 0


def test_a_block_that_does_not_answer_leaves_no_total(open_host: Open) -> None:
    host = open_host(worlds.mi300x(1))
    host.tree.put("0000:05:00.0", "ras/gfx_err_count", "Query currently inaccessible\n")
    answer = host.sample()
    assert "gpu_ecc_correct_gfx" not in series_of(answer)
    assert "gpu_ecc_correct_total" not in series_of(answer)
    assert answer.value("gpu_ecc_correct_umc") == 3
    host.tree.put("0000:05:00.0", "ras/gfx_err_count", "ue: 0\nce: 0\n")
    assert host.sample().value("gpu_ecc_correct_total") == 14


def test_a_zero_at_first_is_not_for_ever(open_host: Open) -> None:
    host = open_host(worlds.mi300x(1))
    fields = {**worlds.mi300x_fields(0), "current_socket_power": 0}
    host.tree.put("0000:05:00.0", "gpu_metrics", blobs.table((1, 7), fields))
    assert "gpu_power_usage" not in series_of(host.sample())
    host.tree.put("0000:05:00.0", "gpu_metrics", blobs.table((1, 7), worlds.mi300x_fields(0)))
    assert host.sample().value("gpu_power_usage") == 255


@pytest.mark.parametrize("way", ["off the bus", "ENXIO"])
def test_a_lost_card_is_reported_and_costs_the_others_nothing(open_host: Open, way: str) -> None:
    host = open_host(worlds.mi300x(3))
    host.sample()
    if way == "off the bus":
        host.tree.remove("0000:26:00.0")
    else:
        host.tree.refuse("0000:26:00.0", "gpu_metrics")
    answer = host.sample()
    assert answer.sample.lost == [1]
    assert series_of(answer, 1) == set()
    assert [answer.value("gpu_power_usage", device) for device in (0, 2)] == [255, 257]


def test_a_lost_card_keeps_its_identity_and_comes_back(open_host: Open) -> None:
    host = open_host(worlds.mi300x(2))
    before = {device.uuid for device in host.devices}
    host.tree.remove("0000:05:00.0")
    host.sample()
    devices = host.collector.discover()
    assert {device.uuid for device in devices} == before
    answer = host.sample()
    lost = [devices[position].pci_bus_id for position in answer.sample.lost]
    assert lost == ["0000:05:00.0"]
    _restore(host.tree, worlds.mi300x(2)[0])
    devices = host.collector.discover()
    answer = host.sample()
    assert answer.sample.lost == []
    assert [device.pci_bus_id for device in devices] == ["0000:05:00.0", "0000:26:00.0"]


def _restore(tree: Tree, board: Board) -> None:
    spare = build(tree.root / "spare", [board])
    spare.folder(board.bdf).rename(tree.folder(board.bdf))


def test_a_card_that_was_given_to_another_driver_is_not_lost(open_host: Open) -> None:
    host = open_host(worlds.mi300x(2))
    host.tree.rebind("0000:05:00.0", "vfio-pci")
    devices = host.collector.discover()
    assert [device.pci_bus_id for device in devices] == ["0000:26:00.0"]
    assert host.sample().sample.lost == []


def test_another_partitioning_is_noticed(open_host: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collector_module, "_LAYOUT_EVERY", 0.0)
    host = open_host(worlds.mi300x(1))
    assert not host.raw().rediscover
    host.tree.put("0000:05:00.0", "current_compute_partition", "CPX\n")
    assert host.raw().rediscover
    host.collector.discover()
    assert not host.raw().rediscover


def test_an_energy_counter_that_counts_something_else_is_given_up(
    open_host: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = open_host(worlds.mi300x(1))
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    for step in range(8):
        fields = {**worlds.mi300x_fields(0), "energy_accumulator": (1000 + step) << 16}
        host.tree.put("0000:05:00.0", "gpu_metrics", blobs.table((1, 7), fields))
        sample = host.raw()
        now[0] += 5
        if sample.errors:
            break
    # 1 J in 5 s at 255 W.
    assert [error.kind for error in sample.errors] == ["parse"]
    assert "energy" in sample.errors[0].detail
    assert sample.rediscover
    host.collector.discover()
    given = series_of(host.sample())
    assert not {"amdsmi_energy_joules_total", "gpu_energy_consumed"} & given
    assert "gpu_power_usage" in given


def test_a_host_without_amd_gpus_has_none(open_host: Open) -> None:
    with pytest.raises(Unavailable) as refused:
        open_host([worlds.bmc()])
    assert refused.value.state == "no_device"
