"""Hardware errors of Neuron devices, from the kernel's log and the driver's counters, each told once."""

from __future__ import annotations

import time
from pathlib import Path

from tests.fakes.neuron import MACHINES, make_host
from tests.integration.neuron_rig import Rig, rig

COUNTER = "neuron_core1/stats/status/hw_hbm_ue_error/total"


def events(found: Rig) -> list[tuple[str, str]]:
    """Device and code of each event of the last samples."""
    return [
        (found.devices[fault.device].index, fault.code) for sample in found.samples.values() for fault in sample.faults
    ]


def hbm_line(device: int, serial: str) -> str:
    return (
        f"NEURON_HW_ERR=HBM_UNCORRECTABLE_ERROR instance-id=i-0a1b2c3d4e5f60718 hostname=h nd-id={device} nc-id=1"
        f" serial-num={serial} action=TERMINATE_INSTANCE"
    )


def test_a_line_of_the_kernels_log_is_an_event_of_the_device_with_its_serial_number(tmp_path: Path) -> None:
    """The index in the line can be that of a container, where devices are counted anew."""
    host = make_host(tmp_path / "host", MACHINES["trn2"])
    with rig(host, "sysfs") as found:
        assert events(found) == []
        host.log(hbm_line(0, host.machine.serial(1)))
        before = time.time()
        found.sample()
        assert events(found) == [("1", "neuron:HBM_UNCORRECTABLE_ERROR")]
        [fault] = found.samples["normal"].faults
        assert abs(fault.timestamp - before) < 2
        found.sample()
        assert events(found) == []


def test_what_was_logged_before_is_past(tmp_path: Path) -> None:
    host = make_host(tmp_path / "host", MACHINES["trn2"])
    host.log(hbm_line(0, host.machine.serial(0)))
    with rig(host, "sysfs") as found:
        assert events(found) == []


def test_a_line_that_names_no_device_is_an_error_unless_there_is_one_device(tmp_path: Path) -> None:
    text = "NEURON_HW_ERR=DMA_ERROR affecting neuron devices"
    host = make_host(tmp_path / "one", MACHINES["inf2"])
    with rig(host, "sysfs") as found:
        host.log(text)
        found.sample()
        assert events(found) == [("0", "neuron:DMA_ERROR")]
    host = make_host(tmp_path / "two", MACHINES["trn2"])
    with rig(host, "sysfs") as found:
        host.log(text)
        found.sample()
        assert events(found) == []
        assert any("DMA_ERROR" in detail for _, detail in found.errors)


def test_the_same_error_in_both_sources_counts_once_in_either_order(tmp_path: Path) -> None:
    host = make_host(tmp_path / "host", MACHINES["trn2"])
    code = "neuron:HBM_UNCORRECTABLE_ERROR"
    with rig(host, "sysfs") as found:
        host.log(hbm_line(0, host.machine.serial(0)))
        found.sample()
        assert events(found) == [("0", code)]
        host.write(0, COUNTER, "1\n")  # older drivers count when the process exits
        found.sample()
        assert events(found) == []
        host.write(0, COUNTER, "2\n")
        found.sample()
        assert events(found) == [("0", code)]
        host.log(hbm_line(0, host.machine.serial(0)))
        found.sample()
        assert events(found) == []


def test_the_drivers_counter_alone_is_enough_and_what_it_had_before_is_past(tmp_path: Path) -> None:
    host = make_host(tmp_path / "host", MACHINES["trn2"])
    repairable = "neuron_core0/stats/status/hw_repairable_hbm_ue_error/total"
    host.write(1, repairable, "7\n")
    with rig(host, "sysfs", kmsg=False) as found:
        assert events(found) == []
        host.write(1, repairable, "9\n")
        found.sample()
        assert events(found) == [("1", "nrt:1205")] * 2
        host.write(1, repairable, "0\n")  # the device was reset
        found.sample()
        assert events(found) == []


def test_a_counter_that_leaps_does_not_flood(tmp_path: Path) -> None:
    host = make_host(tmp_path / "host", MACHINES["trn2"])
    with rig(host, "sysfs", kmsg=False) as found:
        host.write(0, COUNTER, "18446744073709551615\n")
        found.sample()
        assert len(events(found)) == 100
