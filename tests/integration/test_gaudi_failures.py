"""Gaudi cards in trouble: resets, losses, missing cards, events, libraries that do not fit."""

from __future__ import annotations

from pathlib import Path

import pytest

from collectors.base import Unavailable
from tests.fakes.gaudi import Host, Library, gaudi2, install, install_smi, make_host
from tests.fakes.gaudi.cards import PORTS, bdf, minor, serial, uuid
from tests.integration.gaudi_rig import Answer, rig

pytestmark = pytest.mark.gcc
STATE = "habanalabs_x_device_state"


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return make_host(tmp_path, 4)


@pytest.fixture
def library(tmp_path: Path) -> Library:
    return install(tmp_path / "hlml", gaudi2(4))


def state(answer: Answer, device: int) -> str:
    found = [dict(r.labels)["state"] for r in answer.readings(STATE, device) if r.value == 1]
    assert len(found) == 1, found
    return found[0]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("In reset", "in_reset"),
        ("in reset after device release", "in_reset_after_device_release"),
        ("disabled", "disabled"),
        ("needs reset", "needs_reset"),
        ("zapped", "other"),
    ],
)
def test_a_card_that_is_not_operational_tells_its_state_and_nothing_else(
    host: Host, library: Library, text: str, name: str
) -> None:
    with rig(host, library) as gaudi:
        gaudi.discover()
        host.set(2, "status", text)
        library.forget_calls()
        answer = gaudi.sample()
        assert state(answer, 2) == name
        assert answer.series(2) == {STATE}
        assert "2" not in {device for _, device in library.calls()}
        assert "habanalabs_power_mW" in answer.series(1)
        assert answer.sample.lost == []
        host.set(2, "status", "operational")
        assert "habanalabs_power_mW" in gaudi.sample().series(2)


def test_without_sysfs_hlml_tells_the_state(tmp_path: Path) -> None:
    host = make_host(tmp_path, 0)
    scenario = gaudi2(2).with_keys("device 1", {"oper_status": "in reset"})
    with rig(host, install(tmp_path / "hlml", scenario)) as gaudi:
        gaudi.discover()
        answer = gaudi.sample()
    assert state(answer, 0) == "operational"
    assert state(answer, 1) == "in_reset"
    assert "habanalabs_power_mW" not in answer.series(1)


def test_a_lost_card_costs_the_others_nothing_and_comes_back(host: Host, library: Library) -> None:
    with rig(host, library) as gaudi:
        before = gaudi.discover()
        library.apply(gaudi2(4).with_keys("device 1", {"rc": 15}))
        answer = gaudi.sample()
        assert answer.sample.lost == [1]
        assert answer.series(1) == {STATE}
        assert "habanalabs_power_mW" in answer.series(2)
        assert "hlml_device_get_power_usage" not in _later_calls(library, gaudi.sample, "1")

        # The library lists the card no more, sysfs and the bus do: it keeps its identity, and is lost.
        devices = gaudi.discover()
        assert sorted(device.uuid for device in devices) == sorted(device.uuid for device in before)
        position = [device.uuid for device in devices].index(uuid(1))
        assert gaudi.sample().sample.lost == [position]

        library.apply(gaudi2(4))
        assert [device.uuid for device in gaudi.discover()] == [uuid(i) for i in range(4)]
        recovered = gaudi.sample()
        assert recovered.sample.lost == []
        assert recovered.value("habanalabs_power_mW", 1) == 97_000


def _later_calls(library: Library, sample: object, device: str) -> set[str]:
    library.forget_calls()
    assert callable(sample)
    sample()
    return {function for function, where in library.calls() if where == device}


def test_a_card_that_the_driver_could_not_start_is_lost(host: Host, tmp_path: Path) -> None:
    """Half of a board has been seen to fail at boot: the library then counts fewer cards than the bus has."""
    host.give_up(3)
    with rig(host, install(tmp_path / "hlml", gaudi2(3))) as gaudi:
        devices = gaudi.discover()
        answer = gaudi.sample()
    assert [device.uuid for device in devices] == [uuid(0), uuid(1), uuid(2), bdf(3)]
    assert (devices[3].model, devices[3].pci_bus_id, devices[3].index) == ("Gaudi2", bdf(3), "")
    assert answer.sample.lost == [3]
    assert (3, "lost", f"{bdf(3)} is on the PCI bus and the driver does not give it") in answer.errors


def test_a_card_given_to_a_virtual_machine_is_not_missed(host: Host, tmp_path: Path) -> None:
    host.pass_through(3)
    with rig(host, install(tmp_path / "hlml", gaudi2(3))) as gaudi:
        assert len(gaudi.discover()) == 3
        assert gaudi.sample().sample.lost == []


def test_a_handle_that_cannot_be_had_costs_one_card(host: Host, tmp_path: Path) -> None:
    scenario = gaudi2(4).with_keys("device 0", {"rc.hlml_device_get_handle_by_index": 49})
    with rig(host, install(tmp_path / "hlml", scenario)) as gaudi:
        devices = gaudi.discover()
        answer = gaudi.sample()
    assert [device.uuid for device in devices] == [uuid(1), uuid(2), uuid(3), bdf(0)]
    assert [device.index for device in devices] == ["1", "2", "3", ""]
    assert answer.sample.lost == [3]
    assert any("device 0" in detail and "(49)" in detail for _, _, detail in answer.errors)


def test_a_call_that_fails_for_now_is_told_and_costs_its_quantity_alone(host: Host, library: Library) -> None:
    with rig(host, library) as gaudi:
        gaudi.discover()
        library.apply(gaudi2(4).with_keys("device 0", {"rc.hlml_device_get_total_energy_consumption": 49}))
        answer = gaudi.sample()
        assert "habanalabs_energy" not in answer.series(0)
        assert "habanalabs_power_mW" in answer.series(0)
        [error] = answer.errors
        assert error[:2] == (0, "transient")
        assert "hlml_device_get_total_energy_consumption" in error[2]
        library.apply(gaudi2(4))
        assert "habanalabs_energy" in gaudi.sample().series(0)


def test_cards_without_uuid_or_serial_are_told_apart(host: Host, tmp_path: Path) -> None:
    scenario = gaudi2(4).with_keys("device 0", {"uuid": "na"})
    scenario = scenario.without_keys("device 1", ["uuid", "serial"])
    scenario = scenario.with_keys("device 3", {"uuid": uuid(2)})
    with rig(host, install(tmp_path / "hlml", scenario)) as gaudi:
        devices = gaudi.discover()
    assert [device.uuid for device in devices] == [serial(0), bdf(1), uuid(2), serial(3)]


def test_a_library_without_addresses_is_joined_by_minor_number(host: Host, tmp_path: Path) -> None:
    scenario = gaudi2(4)
    for i in range(4):
        scenario = scenario.without_keys(f"device {i}", ["bus_id"])
    with rig(host, install(tmp_path / "hlml", scenario)) as gaudi:
        devices = gaudi.discover()
    assert [device.pci_bus_id for device in devices] == [bdf(i) for i in range(4)]
    assert [device.ids["minor"] for device in devices] == [str(minor(i)) for i in range(4)]


def test_events_are_faults_by_their_bits_and_come_once(host: Host, library: Library) -> None:
    with rig(host, library) as gaudi:
        gaudi.discover()
        assert gaudi.sample().sample.faults == []
        library.apply(
            gaudi2(4)
            .with_keys("event 0", {"device": 2, "type": 0b1010})
            .with_keys("event 1", {"device": 0, "type": 0b100000})
        )
        found = [(fault.device, fault.code) for fault in gaudi.sample().sample.faults]
        assert sorted(found) == [
            (0, "habanalabs:dram_serr"),
            (2, "habanalabs:critical"),
            (2, "habanalabs:dram_derr"),
        ]
        assert gaudi.sample().sample.faults == []


def test_without_the_option_no_event_is_asked_for(host: Host, library: Library) -> None:
    with rig(host, library, options={"events": False}) as gaudi:
        gaudi.discover()
        gaudi.sample()
    assert not {function for function, _ in library.calls() if "event" in function}


def test_a_library_without_events_is_read_all_the_same(host: Host, tmp_path: Path) -> None:
    scenario = gaudi2(1).with_missing(["hlml_event_set_create"])
    with rig(host, install(tmp_path / "hlml", scenario)) as gaudi:
        gaudi.discover()
        assert "habanalabs_power_mW" in gaudi.sample().series()


def test_a_reset_that_the_driver_counts_is_a_fault(host: Host, library: Library) -> None:
    with rig(host, library) as gaudi:
        gaudi.discover()
        assert gaudi.sample().sample.faults == []
        host.set(1, "hard_reset_cnt", 2)
        assert [(f.device, f.code) for f in gaudi.sample().sample.faults] == [(1, "habanalabs:hard_reset")]
        assert gaudi.sample().sample.faults == []
        host.set(1, "hard_reset_cnt", 0)  # the driver was loaded again
        assert gaudi.sample().sample.faults == []


def test_a_reset_between_two_discoveries_is_not_missed(host: Host, library: Library) -> None:
    with rig(host, library) as gaudi:
        gaudi.discover()
        gaudi.sample()
        host.set(1, "hard_reset_cnt", 2)
        gaudi.discover()
        assert [(f.device, f.code) for f in gaudi.sample().sample.faults] == [(1, "habanalabs:hard_reset")]


def test_everything_is_let_go_of_at_the_end(host: Host, library: Library) -> None:
    with rig(host, library) as gaudi:
        gaudi.discover()
        gaudi.sample()
    functions = [function for function, _ in library.calls()]
    assert functions[-2:] == ["hlml_event_set_free", "hlml_shutdown"]
    assert functions.count("hlml_init") == functions.count("hlml_shutdown") == 1


def test_torn_counters_are_read_until_they_fit(tmp_path: Path) -> None:
    """Of every third reading the upper half is wrong: what is told is never off by 2^32."""
    host = make_host(tmp_path, 1)
    scenario = gaudi2(1).with_keys("device 0", {"torn": 3})
    with rig(host, install(tmp_path / "hlml", scenario), options={"port_counters": "all"}) as gaudi:
        gaudi.discover()
        for _ in range(4):
            answer = gaudi.sample()
            for port in range(PORTS):
                received = answer.value("habanalabs_x_port_received_bytes_total", port=str(port))
                assert 10**13 + port <= received < 10**13 + port + (1 << 32)
                assert answer.value("habanalabs_x_port_sent_bytes_total", port=str(port)) == 10**12 + port


def test_summed_ports_are_read_all_or_not_at_all(tmp_path: Path) -> None:
    host = make_host(tmp_path, 1)
    scenario = gaudi2(1).with_keys("device 0", {"torn": 1})  # each reading of the received bytes is off: none is torn
    scenario = scenario.with_keys("device 0", {"rc.hlml_nic_get_statistics": 49})
    library = install(tmp_path / "hlml", scenario)
    with rig(host, library, options={"port_counters": "external"}) as gaudi:
        gaudi.discover()
        assert gaudi.sample().values("habanalabs_x_port_sent_bytes_total") == []
        library.apply(gaudi2(1))
        assert len(gaudi.sample().values("habanalabs_x_port_sent_bytes_total")) == 3


def test_port_counters_end_with_their_budget(tmp_path: Path) -> None:
    host = make_host(tmp_path, 2)
    scenario = gaudi2(2).with_keys("system", {"delay_ms.hlml_nic_get_statistics": 20})
    options = {"port_counters": "external", "port_counters_budget": 0.1}
    with rig(host, install(tmp_path / "hlml", scenario), options=options) as gaudi:
        gaudi.discover()
        answer = gaudi.sample()
    # Three ports a card, each read twice: 120 ms, so the first card's last port is already too late.
    assert answer.values("habanalabs_x_port_sent_bytes_total", 1) == []
    assert "habanalabs_power_mW" in answer.series(1)
    assert (1, "timeout", "no time was left for the port counters: raise port_counters_budget") in answer.errors


@pytest.mark.parametrize(
    ("prepare", "state", "words"),
    [
        ("module", "no_driver", "modprobe habanalabs"),
        ("nodes", "no_permission", "/dev/accel"),
        ("", "no_permission", "privileged"),
    ],
)
def test_driver_not_loaded_says_what_is_missing(tmp_path: Path, prepare: str, state: str, words: str) -> None:
    host = make_host(tmp_path, 2)
    if prepare == "module":
        (host.root / "sys/module/habanalabs/version").unlink()
        (host.root / "sys/module/habanalabs").rmdir()
    elif prepare == "nodes":
        Path(host.paths.dev, "accel").rmdir()
    scenario = gaudi2(2).with_keys("system", {"rc.hlml_init": 9})
    with rig(host, install(tmp_path / "hlml", scenario)) as gaudi, pytest.raises(Unavailable) as raised:
        gaudi.discover()
    assert raised.value.state == state
    assert words in raised.value.hint


def test_a_driver_that_goes_away_ends_the_collectors_work(host: Host, library: Library) -> None:
    with rig(host, library) as gaudi:
        gaudi.discover()
        gaudi.sample()
        library.apply(gaudi2(4).with_keys("system", {"rc": 9}))
        with pytest.raises(Unavailable):
            gaudi.sample()


def test_no_library_and_no_command_name_both(host: Host) -> None:
    with rig(host) as gaudi, pytest.raises(Unavailable) as raised:
        gaudi.discover()
    assert raised.value.state == "no_library"
    assert "libhlml.so" in raised.value.hint
    assert "hl-smi" in raised.value.hint


@pytest.mark.parametrize("trouble", ["no needed symbol", "an address that is none"])
def test_a_library_that_is_not_understood_gives_way_to_hl_smi(host: Host, tmp_path: Path, trouble: str) -> None:
    scenario = gaudi2(4)
    if trouble == "no needed symbol":
        scenario = scenario.with_missing(["hlml_device_get_handle_by_index"])
    else:
        for i in range(4):
            scenario = scenario.with_keys(f"device {i}", {"bus_id": "\x01\x02garbage"})
    library, smi = install(tmp_path / "hlml", scenario), install_smi(tmp_path / "smi", 4)
    with rig(host, library, smi) as gaudi:
        assert [device.uuid for device in gaudi.discover()] == [uuid(i) for i in range(4)]
        assert gaudi.collector.source == "hl-smi"
        assert gaudi.sample().value("habanalabs_power_mW", 1) == 97_000
    with rig(host, library, smi, source="hlml") as gaudi, pytest.raises(Unavailable) as raised:
        gaudi.discover()
    assert raised.value.state == "version_mismatch"
    assert raised.value.restart


def test_no_device_is_said_so(tmp_path: Path) -> None:
    host = make_host(tmp_path, 0)
    with rig(host, install(tmp_path / "hlml", gaudi2(0))) as gaudi, pytest.raises(Unavailable) as raised:
        gaudi.discover()
    assert raised.value.state == "no_device"


def test_all_cards_failing_is_no_driver(host: Host, tmp_path: Path) -> None:
    scenario = gaudi2(4).with_keys("system", {"rc.hlml_device_get_serial": 15})
    with rig(host, install(tmp_path / "hlml", scenario)) as gaudi, pytest.raises(Unavailable) as raised:
        gaudi.discover()
    assert raised.value.state == "no_driver"


def test_processes_that_cannot_be_seen_are_told_once(host: Host, library: Library) -> None:
    namespace = Path(host.paths.proc, "1/ns/pid")
    namespace.unlink()
    namespace.symlink_to("pid:[4026532001]")
    with rig(host, library, options={"processes": True}) as gaudi:
        gaudi.discover()
        first, second = gaudi.sample(), gaudi.sample()
    assert [(device, kind) for device, kind, _ in first.errors] == [(-1, "permission")]
    assert second.errors == []
    assert first.values("habanalabs_x_processes") == []
