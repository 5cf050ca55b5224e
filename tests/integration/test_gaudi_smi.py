"""What the Gaudi collector reads through hl-smi, and what it makes of a command that misbehaves."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from unittest import mock

import pytest

from collectors.base import Unavailable
from collectors.gaudi.program import ProgramError, Runner
from tests.e2e.agent import until
from tests.fakes.gaudi import Host, Smi, install_smi, make_host
from tests.fakes.gaudi.cards import DOWN, EXTERNAL, MIB, PORTS, bdf, serial, uuid
from tests.fakes.gaudi.smi import fields
from tests.integration.gaudi_rig import Answer, rig

CARDS = 4
NEWER = [name for name in fields(0) if name.startswith(("ecc.", "clocks.", "pcie."))]
"""Fields that a release may not know."""


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return make_host(tmp_path, CARDS)


@pytest.fixture
def smi(tmp_path: Path) -> Smi:
    return install_smi(tmp_path / "smi", CARDS)


def values(i: int) -> dict[str, int | float]:
    return {
        "habanalabs_device_config": 1,
        "habanalabs_utilization": 40 + i,
        "habanalabs_memory_total_bytes": 98304 * MIB,
        "habanalabs_memory_used_bytes": (768 + 1024 * i) * MIB,
        "habanalabs_memory_free_bytes": (98304 - 768 - 1024 * i) * MIB,
        "habanalabs_power_mW": 96_000 + 1000 * i,
        "habanalabs_temperature_onchip": 45 + i,
        "habanalabs_clock_soc_mhz": 1650 - 5 * i,
        "habanalabs_clock_soc_max_mhz": 1800,
        "habanalabs_ecc_feature_mode": 1,
        "habanalabs_pci_link_width": 16,  # sysfs; hl-smi's own column says 8
        "habanalabs_x_pcie_link_generation": 4,
        "habanalabs_x_power_limit_mW": 550_000,
    }


def assert_cards(answer: Answer) -> None:
    for i in range(CARDS):
        assert {series: answer.value(series, i) for series in values(i)} == values(i)


def test_the_table_gives_the_same_numbers_as_the_library(host: Host, smi: Smi) -> None:
    with rig(host, smi=smi) as gaudi:
        devices = gaudi.discover()
        answer = gaudi.sample()
        assert gaudi.collector.source == "hl-smi"
    assert [(d.uuid, d.serial, d.index, d.pci_bus_id, d.model) for d in devices] == [
        (uuid(i), serial(i), str(i), bdf(i), "HL-225") for i in range(CARDS)
    ]
    assert_cards(answer)
    assert answer.errors == []
    assert answer.sample.lost == []


def test_what_hl_smi_does_not_tell_is_absent(host: Host, smi: Smi) -> None:
    with rig(host, smi=smi) as gaudi:
        gaudi.discover()
        found = gaudi.sample().series()
    assert not found & {"habanalabs_energy", "habanalabs_pcie_rx", "habanalabs_x_clocks_throttle_reasons"}


def test_totals_of_memory_errors_have_no_place(host: Host, smi: Smi) -> None:
    with rig(host, smi=smi) as gaudi:
        gaudi.discover()
        answer = gaudi.sample()
    for i in range(CARDS):
        for series, corrected, uncorrected in (("volatile", 1, 201), ("aggregate", 21, 221)):
            found = {r.labels: r.value for r in answer.readings(f"habanalabs_x_ecc_errors_{series}_total", i)}
            assert found == {
                (("correctable", "true"), ("location", "unknown")): corrected + i,
                (("correctable", "false"), ("location", "unknown")): uncorrected + i,
            }
        assert answer.value("habanalabs_x_ecc_dram_errors_volatile_total", i, correctable="false") == 101 + i
        assert answer.value("habanalabs_x_ecc_dram_errors_volatile_total", i, correctable="true") == 11 + i


def test_ports_are_asked_for_by_card(host: Host, smi: Smi) -> None:
    with rig(host, smi=smi) as gaudi:
        gaudi.discover()
        answer = gaudi.sample()
        gaudi.sample()
    for i in range(CARDS):
        found = {
            (dict(r.labels)["port"], dict(r.labels)["port_type"]): r.value
            for r in answer.readings("habanalabs_nic_port_status", i)
        }
        assert found == {
            (str(port), "external" if port in EXTERNAL else "internal"): int((i, port) != DOWN) for port in range(PORTS)
        }
    kinds = [run for run in smi.runs() if run[:2] == ["-n", "ports"]]
    assert sorted(run[3] for run in kinds) == sorted(bdf(i) for i in range(CARDS))  # once, for they do not change


def test_the_command_is_run_once_a_sample_for_all_cards_in_the_c_locale(host: Host, smi: Smi) -> None:
    with (
        mock.patch.dict(os.environ, {"LC_ALL": "de_DE.UTF-8", "LANGUAGE": "de"}),
        rig(host, smi=smi, wanted=["habanalabs_power_mW"]) as gaudi,
    ):
        gaudi.discover()
        before = len(smi.runs())
        answer = gaudi.sample()
    assert smi.runs()[before:] == [["-Q", "index,bus_id,power.draw", "-f", "csv"]]
    assert len(answer.sample.readings) == CARDS
    assert {locale["LC_ALL"] for locale in smi.environments()} == {"C"}
    assert {locale["LANGUAGE"] for locale in smi.environments()} == {"C"}


def test_a_command_that_only_the_path_knows_is_found(host: Host, smi: Smi) -> None:
    path = f"{smi.program.parent}:{os.environ['PATH']}"
    with mock.patch.dict(os.environ, {"PATH": path}), rig(host, options={"hl_smi": "hl-smi"}) as gaudi:
        assert len(gaudi.discover()) == CARDS


@pytest.mark.parametrize("spelling", ["N/A", "[N/A]", "[Not Supported]", "-", ""])
def test_a_cell_without_a_value_is_absent_however_it_is_spelled(host: Host, smi: Smi, spelling: str) -> None:
    lacking = {"memory.used": spelling, "ecc.mode.current": spelling, "utilization.aip": spelling}
    smi.apply(devices=[{**fields(i), **lacking} for i in range(CARDS)])
    with rig(host, smi=smi) as gaudi:
        gaudi.discover()
        answer = gaudi.sample()
    absent = {"habanalabs_memory_used_bytes", "habanalabs_ecc_feature_mode", "habanalabs_utilization"}
    for i in range(CARDS):
        assert not absent & answer.series(i)
        assert answer.value("habanalabs_power_mW", i) == 96_000 + 1000 * i
    assert [error for error in answer.errors if "port" not in error[2]] == []


def test_values_without_units_are_understood_by_the_header(host: Host, smi: Smi) -> None:
    smi.apply(devices=[fields(i) for i in range(CARDS)], nounits=True)
    with rig(host, smi=smi) as gaudi:
        gaudi.discover()
        assert_cards(gaudi.sample())


def test_a_release_that_refuses_newer_fields_is_asked_for_the_old_ones(host: Host, smi: Smi) -> None:
    smi.apply(devices=[fields(i) for i in range(CARDS)], refused=NEWER)
    with rig(host, smi=smi) as gaudi:
        devices = gaudi.discover()
        answer = gaudi.sample()
    assert len(devices) == CARDS
    for i in range(CARDS):
        assert answer.value("habanalabs_power_mW", i) == 96_000 + 1000 * i
        assert answer.value("habanalabs_clock_soc_mhz", i) == 1650 - 5 * i  # sysfs has it, too
        assert "habanalabs_ecc_feature_mode" not in answer.series(i)
    assert not [error for error in answer.errors if "valid field" in error[2]]


def test_missing_columns_cost_their_series_alone(host: Host, smi: Smi) -> None:
    smi.apply(devices=[fields(i) for i in range(CARDS)], missing=["utilization.aip"], extra=["brand.new"])
    with rig(host, smi=smi) as gaudi:
        gaudi.discover()
        answer = gaudi.sample()
    assert "habanalabs_utilization" not in answer.series()
    assert answer.value("habanalabs_power_mW", 1) == 97_000


def test_the_oldest_release_need_not_know_more_facts_than_name_and_uuid(host: Host, smi: Smi) -> None:
    smi.apply(devices=[fields(i) for i in range(CARDS)], refused=[*NEWER, "serial", "module_id", "driver_version"])
    with rig(host, smi=smi, wanted=["habanalabs_power_mW"]) as gaudi:
        devices = gaudi.discover()
        answer = gaudi.sample()
    assert [(d.uuid, d.pci_bus_id, d.model) for d in devices] == [(uuid(i), bdf(i), "HL-225") for i in range(CARDS)]
    assert [answer.value("habanalabs_power_mW", i) for i in range(CARDS)] == [96_000 + 1000 * i for i in range(CARDS)]


def test_an_exit_code_is_told_and_the_table_counts(host: Host, smi: Smi) -> None:
    with rig(host, smi=smi) as gaudi:
        gaudi.discover()
        smi.apply(devices=[fields(i) for i in range(3)], code=17, complaint="Failed to open device 0000:4e:00.0")
        answer = gaudi.sample()
    assert answer.value("habanalabs_power_mW", 1) == 97_000
    assert any(
        kind == "library" and "ended with 17" in detail and "Failed to open" in detail
        for _, kind, detail in answer.errors
    )
    assert any(device == 3 and kind == "transient" for device, kind, _ in answer.errors)


def test_half_a_line_costs_its_card(host: Host, smi: Smi) -> None:
    wanted = ["habanalabs_utilization", "habanalabs_power_mW"]
    with rig(host, smi=smi, wanted=wanted) as gaudi:
        gaudi.discover()
        smi.apply(devices=[fields(i) for i in range(CARDS)], cut=9)
        answer = gaudi.sample()
    assert [answer.values("habanalabs_utilization", i) for i in range(CARDS)] == [[40], [41], [42], []]
    assert answer.value("habanalabs_power_mW", 3) == 99_000  # hwmon has it, too
    assert any(kind == "parse" and "columns" in detail for _, kind, detail in answer.errors)


def test_words_around_the_table_do_not_matter(host: Host, smi: Smi) -> None:
    smi.apply(devices=[fields(i) for i in range(CARDS)], before=["WARNING: driver and tool differ", ""], after=["", ""])
    with rig(host, smi=smi) as gaudi:
        gaudi.discover()
        answer = gaudi.sample()
    assert answer.value("habanalabs_utilization", 2) == 42
    assert any(kind == "parse" and "WARNING" in detail for _, kind, detail in answer.errors)


def test_garbage_three_times_in_a_row_is_no_driver(host: Host, smi: Smi) -> None:
    with rig(host, smi=smi) as gaudi:
        gaudi.discover()
        smi.apply(raw="\x00\x01garbage, garbage\n", times=20)
        for _ in range(2):
            answer = gaudi.sample()
            assert "habanalabs_utilization" not in answer.series()
            assert any(kind == "parse" for _, kind, _ in answer.errors)
        with pytest.raises(Unavailable, match="no table of devices"):
            gaudi.sample()


def test_ten_megabytes_are_refused(host: Host, smi: Smi) -> None:
    with rig(host, smi=smi) as gaudi:
        gaudi.discover()
        smi.apply(raw="index, bus_id\n", times=750_000)
        began = time.monotonic()
        answer = gaudi.sample()
    assert any(kind == "parse" and "more than" in detail for _, kind, detail in answer.errors)
    assert time.monotonic() - began < 5


def test_a_command_that_hangs_is_ended_in_time_with_all_that_it_started(host: Host, smi: Smi, tmp_path: Path) -> None:
    with rig(host, smi=smi, options={"hl_smi_timeout": 1.0}) as gaudi:
        gaudi.discover()
        child = tmp_path / "child"
        smi.apply(devices=[], hang=True, child=str(child))
        began = time.monotonic()
        answer = gaudi.sample()
        assert time.monotonic() - began < 4
        assert any(kind == "timeout" for _, kind, _ in answer.errors)
        assert "habanalabs_power_mW" in answer.series()  # hwmon does not depend on it
        assert "habanalabs_utilization" not in answer.series()
        pid = int(child.read_text())
        until(lambda: not _runs(pid), "what hl-smi started still runs")
        smi.apply(devices=[fields(i) for i in range(CARDS)])
        assert gaudi.sample().value("habanalabs_utilization", 0) == 40


def test_a_child_that_keeps_the_pipe_open_does_not_hold_us_up(host: Host, smi: Smi, tmp_path: Path) -> None:
    child = tmp_path / "child"
    smi.apply(devices=[fields(i) for i in range(CARDS)], child=str(child))
    with rig(host, smi=smi, wanted=["habanalabs_utilization"]) as gaudi:
        gaudi.discover()
        began = time.monotonic()
        answer = gaudi.sample()
        assert time.monotonic() - began < 4
    assert answer.value("habanalabs_utilization", 3) == 43
    until(lambda: not _runs(int(child.read_text())), "what hl-smi started still runs")


def test_a_collector_that_is_killed_leaves_no_command_behind(smi: Smi) -> None:
    smi.apply(devices=[], hang=True)
    code = "import sys; from collectors.gaudi.program import Runner; Runner().run([sys.argv[1], '-Q', 'index'], 60.0)"
    process = subprocess.Popen([sys.executable, "-c", code, str(smi.program)])
    try:
        until(smi.runs, "hl-smi was not started")
    finally:
        process.kill()
        process.wait()
    until(lambda: not _runs(smi.pids()[0]), "hl-smi outlives the collector")


def _runs(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize(
    ("scenario", "state"),
    [
        ({"raw": "hl-smi: cannot connect to driver\n", "code": 9}, "no_driver"),
        ({"raw": "", "code": 0}, "no_driver"),
        ({"hang": True}, "no_driver"),
    ],
)
def test_a_command_that_gives_no_device_at_the_start_says_why(
    host: Host, smi: Smi, scenario: dict[str, object], state: str
) -> None:
    smi.apply(devices=[], **scenario)
    with (
        rig(host, smi=smi, source="hl-smi", options={"hl_smi_timeout": 1.0}) as gaudi,
        pytest.raises(Unavailable) as raised,
    ):
        gaudi.discover()
    assert raised.value.state == state
    assert "hl-smi" in raised.value.hint


def test_a_command_that_may_not_be_run_is_no_permission(tmp_path: Path) -> None:
    with pytest.raises(ProgramError) as raised:
        Runner().run([str(tmp_path)], 1.0)
    assert raised.value.kind == "permission"


def test_cards_that_the_command_does_not_list_are_lost(host: Host, smi: Smi) -> None:
    smi.apply(devices=[fields(i) for i in range(3)])
    with rig(host, smi=smi) as gaudi:
        devices = gaudi.discover()
        assert gaudi.sample().sample.lost == [3]
    assert devices[3].uuid == bdf(3)


def test_the_source_can_be_asked_for(host: Host, smi: Smi) -> None:
    with rig(host, smi=smi, source="hlml") as gaudi, pytest.raises(Unavailable) as raised:
        gaudi.discover()
    assert raised.value.state == "no_library"
    assert smi.runs() == []
