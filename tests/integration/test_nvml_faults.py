"""Xids from both sources, once each, and the series that tell of them."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.fakes.nvml import Installation, Scenario, install, scenarios
from tests.integration.collector_child import Answer
from tests.integration.nvml_child import Child, settings

pytestmark = pytest.mark.gcc

XID = "DCGM_FI_DEV_XID_ERRORS"
COUNT = "DCGM_EXP_XID_ERRORS_COUNT"
WINDOW = ("window_size_in_ms", "300000")


@pytest.fixture
def kmsg(tmp_path: Path) -> Path:
    path = tmp_path / "kmsg"
    path.write_text("6,1,1000,-;NVRM: Xid (PCI:0000:1a:00): 48, pid=1, before the collector started\n")
    return path


def log(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(f"3,77,{round(time.monotonic() * 1e6)},-;{text}\n")


def raise_xid(installation: Installation, scenario: Scenario, gpu: int, code: int) -> Scenario:
    scenario = scenarios.xid(scenario, gpu, code)
    installation.apply(scenario)
    return scenario


def codes(answer: Answer) -> list[tuple[int, str]]:
    return [(fault.device, fault.code) for fault in answer.sample.faults]


def test_an_xid_of_both_sources_is_one_fault(tmp_path: Path, kmsg: Path) -> None:
    scenario = scenarios.h100(2)
    installation = install(tmp_path / "nvml", scenario)
    with Child(installation, settings(kmsg=kmsg)) as child:
        child.discover()
        assert codes(child.sample()) == []
        began = time.time()
        scenario = raise_xid(installation, scenario, 1, 79)
        log(kmsg, "NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.")
        answer = child.sample()
        assert codes(answer) == [(1, "xid:79")]
        assert began - 1 <= answer.sample.faults[0].timestamp <= time.time() + 1
        assert codes(child.sample()) == []


def test_the_second_source_may_come_one_sample_later(tmp_path: Path, kmsg: Path) -> None:
    scenario = scenarios.h100(1)
    installation = install(tmp_path / "nvml", scenario)
    with Child(installation, settings(kmsg=kmsg)) as child:
        child.discover()
        raise_xid(installation, scenario, 0, 31)
        assert codes(child.sample()) == [(0, "xid:31")]
        log(kmsg, "NVRM: Xid (PCI:0000:1a:00): 31, pid=9, name=python3, Ch 00000008")
        assert codes(child.sample()) == []
        log(kmsg, "NVRM: Xid (PCI:0000:1a:00): 31, pid=9, name=python3, Ch 00000008")
        assert codes(child.sample()) == [(0, "xid:31")]


def test_what_only_the_kernel_tells_counts(tmp_path: Path, kmsg: Path) -> None:
    with Child(install(tmp_path / "nvml", scenarios.h100(2)), settings(kmsg=kmsg)) as child:
        child.discover()
        log(kmsg, "NVRM: Xid (PCI:0000:1a:00): 62, pid=1, 2dcc 2dcc")
        log(kmsg, "NVRM: Xid (PCI:0000:99:00): 62, pid=1, a GPU that is not ours")
        assert codes(child.sample()) == [(0, "xid:62")]


def test_two_events_of_one_source_are_two(tmp_path: Path) -> None:
    scenario = scenarios.h100(1)
    installation = install(tmp_path, scenario)
    with Child(installation, settings()) as child:
        child.discover()
        scenario = scenarios.xid(scenarios.xid(scenario, 0, 13), 0, 13)
        installation.apply(scenario)
        answer = child.sample()
    assert codes(answer) == [(0, "xid:13"), (0, "xid:13")]
    assert [(one.labels, one.value) for one in answer.readings(COUNT)] == [((WINDOW, ("xid", "13")), 2)]


def test_the_last_xid_stays_and_zero_stands_before_the_first(tmp_path: Path) -> None:
    scenario = scenarios.h100(2)
    installation = install(tmp_path, scenario)
    with Child(installation, settings()) as child:
        child.discover()
        before = child.sample()
        for i in range(2):
            assert [(one.value, one.labels) for one in before.readings(XID, i)] == [
                (0, (("err_code", "0"), ("err_msg", "No Error")))
            ]
            assert [(one.value, one.labels) for one in before.readings(COUNT, i)] == [(0, (WINDOW,))]
        scenario = raise_xid(installation, scenario, 1, 48)
        child.sample()
        raise_xid(installation, scenario, 1, 63)
        child.discover()
        answer = child.sample()
    # A discovery registers anew: an event from before it is not delivered, and what was known stays.
    [last] = answer.readings(XID, 1)
    assert (last.value, last.labels) == (48, (("err_code", "48"), ("err_msg", "Double Bit ECC Error")))
    assert answer.value(XID, 0) == 0


def test_an_xid_that_no_table_names_is_told_as_unknown(tmp_path: Path) -> None:
    scenario = scenarios.h100(1)
    installation = install(tmp_path, scenario)
    with Child(installation, settings()) as child:
        child.discover()
        raise_xid(installation, scenario, 0, 9999)
        [last] = child.sample().readings(XID)
    assert last.labels == (("err_code", "9999"), ("err_msg", "Unknown Error"))


def test_counts_leave_the_window(tmp_path: Path) -> None:
    scenario = scenarios.h100(1)
    installation = install(tmp_path, scenario)
    with Child(installation, settings({"normal": [COUNT]}, options={"xid_count_window_ms": 1000})) as child:
        child.discover()
        raise_xid(installation, scenario, 0, 31)
        assert child.sample().value(COUNT, xid="31") == 1
        deadline = time.monotonic() + 10
        while (answer := child.sample()).values(COUNT, xid="31"):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert [(one.value, one.labels) for one in answer.readings(COUNT)] == [(0, (("window_size_in_ms", "1000"),))]


def test_an_xid_of_a_mig_instance_belongs_to_it(tmp_path: Path, kmsg: Path) -> None:
    scenario = scenarios.a100_mig()
    installation = install(tmp_path / "nvml", scenario)
    with Child(installation, settings(kmsg=kmsg)) as child:
        child.discover()
        installation.apply(scenarios.xid(scenario, 0, 94, instance=(9, 0)))
        log(kmsg, "NVRM: Xid (PCI:0000:1a:00 GPU-I:09 GPU-CI:00): 94, pid=7194, Contained: CE User Channel")
        answer = child.sample()
        assert codes(answer) == [(3, "xid:94")]
        assert {position: answer.value(XID, position) for position in range(1, 9)} == {
            position: 94 if position == 3 else 0 for position in range(1, 9)
        }
        assert answer.value(COUNT, 3, xid="94") == 1
        log(kmsg, "NVRM: Xid (PCI:0000:1a:00): 119, pid=1, Timeout after 6s of waiting for RPC response from GPU0 GSP!")
        answer = child.sample()
        assert codes(answer) == [(0, "xid:119")]
        assert {answer.value(XID, position) for position in range(1, 8)} == {119}


def test_without_a_kernel_log_nothing_is_reported_as_wrong(tmp_path: Path) -> None:
    with Child(install(tmp_path, scenarios.h100(1)), settings(kmsg=tmp_path / "absent")) as child:
        child.discover()
        assert child.sample().sample.errors == []


def test_the_kernel_log_can_be_switched_off(tmp_path: Path, kmsg: Path) -> None:
    with Child(install(tmp_path / "nvml", scenarios.h100(1)), settings(kmsg=kmsg, options={"kmsg": False})) as child:
        child.discover()
        log(kmsg, "NVRM: Xid (PCI:0000:1a:00): 62, pid=1")
        assert codes(child.sample()) == []


def test_other_gpus_still_send_events_when_one_is_lost(tmp_path: Path) -> None:
    scenario = scenarios.h100(3)
    installation = install(tmp_path, scenario)
    with Child(installation, settings()) as child:
        child.discover()
        scenario = scenarios.lost(scenario, 1)
        installation.apply(scenario)
        assert child.sample().sample.lost == [1]
        child.sample()
        raise_xid(installation, scenario, 2, 31)
        assert codes(child.sample()) == [(2, "xid:31")]


def test_only_supported_events_are_registered(tmp_path: Path) -> None:
    scenario = scenarios.h100(3).with_keys("gpu 1", {"event_types": 0x17}).with_keys("gpu 2", {"event_types": 0x8})
    installation = install(tmp_path, scenario)
    with Child(installation, settings()) as child:
        child.discover()
    masks = {call.device: call.detail for call in installation.calls() if call.function == "nvmlDeviceRegisterEvents"}
    assert masks == {"0": "0x108", "2": "0x8"}
