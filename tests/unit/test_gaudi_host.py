"""What sysfs, lm-sensors' configuration and /proc say of Gaudi cards."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.gaudi import hwmon, processes, sysfs
from collectors.gaudi.failure import Failure, HlmlFailure
from collectors.gaudi.units import Unit
from tests.fakes.gaudi import Host, make_host
from tests.fakes.gaudi.cards import bdf, minor
from tests.fakes.gaudi.host import SENSORS


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return make_host(tmp_path, 4)


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("operational", "operational"),
        ("Operational", "operational"),
        ("in reset", "in_reset"),
        ("In reset", "in_reset"),
        ("In reset after device release", "in_reset_after_device_release"),
        ("in device creation", "in_device_creation"),
        ("needs reset", "needs_reset"),
        ("Disabled", "disabled"),
        ("Malfunction", "malfunction"),
        ("something new", "other"),
        ("other", "other"),
    ],
)
def test_states_are_those_of_the_driver_in_one_spelling(text: str, state: str) -> None:
    assert sysfs.state(text) == state


@pytest.mark.parametrize(
    ("text", "whole", "generation"),
    [
        ("2.5 GT/s PCIe", 2, 1),
        ("5.0 GT/s PCIe", 5, 2),
        ("8.0 GT/s PCIe", 8, 3),
        ("16.0 GT/s PCIe", 16, 4),
        ("32.0 GT/s PCIe", 32, 5),
        ("16 GT/s", 16, 4),
        ("Unknown", None, None),
        ("", None, None),
        ("3.0 GT/s PCIe", 3, None),
    ],
)
def test_a_link_speed_is_whole_gigatransfers_and_a_generation(
    text: str, whole: int | None, generation: int | None
) -> None:
    assert (sysfs.speed(text), sysfs.generation(text)) == (whole, generation)


@pytest.mark.parametrize(
    ("text", "width"), [("16", 16), ("8", 8), ("0", None), ("63", None), ("255", None), ("x", None)]
)
def test_a_width_that_no_link_has_is_no_reading(text: str, width: int | None) -> None:
    assert sysfs.width(text) == width


def test_cards_are_found_by_vendor_with_their_minor_numbers(host: Host) -> None:
    cards = sysfs.cards(host.paths.sys)
    assert list(cards) == [bdf(i) for i in range(4)]
    assert [card.node for card in cards.values()] == ["accel0", "accel1", "accel3", "accel4"]
    assert [card.minor for card in cards.values()] == [str(minor(i)) for i in range(4)]
    assert {card.pci_id for card in cards.values()} == {"0x1020"}


def test_a_card_without_a_node_is_still_a_card(host: Host) -> None:
    host.give_up(1)
    card = sysfs.cards(host.paths.sys)[bdf(1)]
    assert (card.node, card.attributes, card.pci_id) == ("", "", "0x1020")


def test_a_card_of_a_virtual_machine_is_none(host: Host) -> None:
    host.pass_through(1)
    assert bdf(1) not in sysfs.cards(host.paths.sys)


def test_the_class_of_old_drivers_is_known(tmp_path: Path) -> None:
    pci = tmp_path / "bus/pci/devices/0000:19:00.0"
    pci.mkdir(parents=True)
    (pci / "vendor").write_text("0x1da3\n")
    (pci / "device").write_text("0x1000\n")
    node = tmp_path / "class/habanalabs/hl3"
    node.mkdir(parents=True)
    (node / "pci_addr").write_text("0000:19:00.0\n")
    (node / "status").write_text("Malfunction\n")
    card = sysfs.cards(str(tmp_path))["0000:19:00.0"]
    assert (card.node, card.minor, card.pci_id) == ("hl3", "3", "0x1000")
    assert sysfs.state(sysfs.fact(card.attributes, "status")) == "malfunction"


def test_a_host_without_cards_has_none(tmp_path: Path) -> None:
    assert sysfs.cards(str(tmp_path)) == {}


def test_channels_are_sorted_by_their_labels(host: Host) -> None:
    chips = hwmon.parse(SENSORS)
    found = hwmon.channels(sysfs.cards(host.paths.sys)[bdf(2)], chips)
    names = {kind: [path.rpartition("/")[2] for path in files] for kind, files in found.items()}
    assert names == {
        "onchip": ["temp1_input", "temp2_input"],
        "onboard": ["temp4_input"],
        "hbm": ["temp5_input", "temp6_input"],
        "vrm": ["temp8_input"],
    }
    # Channels 1 and 2 read 44 and 45 °C plus the card's index, in millidegrees.
    assert hwmon.hottest(found["onchip"]) == 47
    assert hwmon.hottest(found["hbm"]) == 52
    assert hwmon.hottest(found["vrm"]) == 62.5


def test_another_chips_labels_do_not_count(host: Host) -> None:
    chips = hwmon.parse(SENSORS.replace("HL225", "HL325"))
    assert hwmon.channels(sysfs.cards(host.paths.sys)[bdf(0)], chips) == {}


def test_a_pattern_with_an_address_is_matched(host: Host) -> None:
    # Bus 33, device 0, function 0: lm-sensors writes 0x3300.
    chips = hwmon.parse('chip "HL225-pci-3300"\nlabel temp1 "On Chip 0"\n')
    cards = sysfs.cards(host.paths.sys)
    assert hwmon.channels(cards[bdf(0)], chips).keys() == {"onchip"}
    assert hwmon.channels(cards[bdf(1)], chips) == {}


def test_a_channel_that_fails_gives_no_hottest_of_the_rest(host: Host) -> None:
    files = hwmon.channels(sysfs.cards(host.paths.sys)[bdf(0)], hwmon.parse(SENSORS))["onchip"]
    Path(files[1]).write_text("")
    with pytest.raises(Failure) as raised:
        hwmon.hottest(files)
    assert raised.value.verdict == "transient"


def test_the_draw_is_read_in_milliwatts(host: Host) -> None:
    file = hwmon.power_file(sysfs.cards(host.paths.sys)[bdf(1)])
    assert hwmon.milliwatts(file) == 97_000


@given(st.text(max_size=400))
def test_no_configuration_makes_the_parser_fail(text: str) -> None:
    for chip in hwmon.parse('chip "HL225-pci-*"\n' + text):
        assert set(chip.channels.values()) <= {"onchip", "onboard", "hbm", "vrm"}


@pytest.mark.parametrize(
    ("code", "verdict"),
    [
        (1, "gone"),
        (2, "unsupported"),
        (3, "unsupported"),
        (6, "nothing"),
        (9, "gone"),
        (10, "timeout"),
        (15, "lost"),
        (20, "transient"),
        (21, "nothing"),
        (49, "transient"),
        (77, "transient"),
    ],
)
def test_a_return_code_means_what_hlml_says(code: int, verdict: str) -> None:
    failure = HlmlFailure(code, "hlml_device_get_name")
    assert failure.verdict == verdict
    assert str(failure).startswith("hlml_device_get_name: ")
    assert str(failure).endswith(f"({code})")


def units(host: Host) -> list[Unit]:
    cards = sysfs.cards(host.paths.sys)
    return [Unit(position=i, key=i, card=cards[bdf(i)]) for i in range(4)]


BOTH = frozenset((processes.COUNT, processes.MEMORY))


def test_processes_are_counted_by_the_nodes_that_they_hold(host: Host) -> None:
    host.process(100, 0, used=5 << 30)
    host.process(101, 3, used=7 << 30)
    host.process(102, None)
    found = {(r.series, r.device, r.labels): r.value for r in processes.readings(units(host), BOTH, host.paths.proc)}
    assert found == {
        (processes.COUNT, 0, ()): 1,
        (processes.COUNT, 1, ()): 0,
        (processes.COUNT, 2, ()): 0,
        (processes.COUNT, 3, ()): 1,
        (processes.MEMORY, 0, (("pid", "100"),)): 5 << 30,
        (processes.MEMORY, 3, (("pid", "101"),)): 7 << 30,
    }


def test_a_declaration_of_an_unknown_version_is_no_reading(host: Host) -> None:
    host.process(100, 0, used=5 << 30, version=0)
    found = processes.readings(units(host), frozenset((processes.MEMORY,)), host.paths.proc)
    assert found == []


def test_a_container_that_sees_only_itself_counts_nothing(host: Host) -> None:
    namespace = Path(host.paths.proc, "1/ns/pid")
    namespace.unlink()
    namespace.symlink_to("pid:[4026532001]")
    with pytest.raises(Failure, match="hostPID") as raised:
        processes.readings(units(host), BOTH, host.paths.proc)
    assert raised.value.verdict == "permission"


def test_nothing_is_walked_for_series_that_nobody_wants() -> None:
    assert processes.readings([], frozenset(), "/nonexistent") == []
