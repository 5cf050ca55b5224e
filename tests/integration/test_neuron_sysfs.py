"""The driver's files in each of their layouts, and what becomes of devices that go."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from collectors.base import Unavailable
from collectors.neuron import open_collector, sysfs
from collectors.neuron.sysfs import STATUSES
from tests.fakes.neuron import MACHINES, NeuronHost, RuntimeData, machines, make_host, report
from tests.fakes.neuron.machines import CATEGORIES, device_memory, pe_text
from tests.integration.neuron_rig import Rig, rig, settings


def busy(host: NeuronHost, *runtimes: RuntimeData) -> None:
    host.scenario(report(host.machine, runtimes))


@pytest.mark.parametrize("name", ["inf1", "inf2", "trn2", "trn3"])
def test_memory_of_a_core_is_what_the_driver_has_handed_out(tmp_path: Path, name: str) -> None:
    machine = MACHINES[name]
    with rig(make_host(tmp_path / "host", machine)) as found:
        common = found.common()
        for core in range(machine.devices * machine.cores):
            device, place = divmod(core, machine.cores)
            behind = range(place * machine.lnc, (place + 1) * machine.lnc)
            expected = sum(device_memory(device, physical) for physical in behind)
            assert common["accel_memory_used_bytes", str(device), str(core), "device"] == expected
        physical_total = sum(device_memory(0, core) for core in range(machine.physical))
        used = [value for key, value in common.items() if key[:2] == ("accel_memory_used_bytes", "0")]
        assert sum(used) == physical_total
        tensors = sum(machines.category_memory(0, core, CATEGORIES.index("tensors")) for core in range(machine.lnc))
        assert common["accel_memory_category_bytes", "0", "0", "device", "tensors"] == tensors
        assert ("accel_memory_category_bytes", "0", "0", "device", "driver_memory") in common


@pytest.mark.parametrize(
    ("name", "layout"), [("inf2", "exit_counts"), ("trn1", "exit_counts"), ("trn2", "live_counts"), ("trn3", "moved")]
)
def test_ecc_events_of_each_layout(tmp_path: Path, name: str, layout: str) -> None:
    machine = MACHINES[name]
    with rig(make_host(tmp_path / "host", machine)) as found:
        common = found.common()
        last = machine.devices - 1
        files = {event: number + last for event, number in machines.ecc_events(machine).items()}
        uncorrected = files["mem_ecc_uncorrected"] + files["mem_ecc_repairable_uncorrected"]
        metric = "accel_memory_errors_total"
        assert common[metric, str(last), "", "false", "hbm"] == uncorrected
        assert common[metric, str(last), "", "false", "sram"] == files["sram_ecc_uncorrected"]
        # Where the driver has no such file, neuron-monitor says 0.
        assert common[metric, str(last), "", "true", "hbm"] == files.get("mem_ecc_corrected", 0)
        layouts = ("exit_counts", "live_counts", "moved", "unknown")
        told = {key: found.value("neuron_sysfs_layout", layout=key) for key in layouts}
        assert told == {key: int(key == layout) for key in told}
        timeouts = sum(machines.status_count(last, core, "timeout") for core in range(machine.physical))
        errors = {key: value for key, value in common.items() if key[0] == "accel_execution_errors_total"}
        told_timeouts = [value for key, value in errors.items() if key[1] == str(last) and key[3] == "timeout"]
        assert sum(told_timeouts) == timeouts
        kinds = {key[3] for key in errors}
        assert kinds == STATUSES - {"success", "failure"}


def test_inf1_has_neither_ecc_files_nor_a_tensor_engine(tmp_path: Path) -> None:
    with rig(make_host(tmp_path / "host", MACHINES["inf1"])) as found:
        assert found.values("neuron_sysfs_ecc_events_total") == []
        assert found.values("neuron_sysfs_core_tensor_engine_cycles_total") == []
        assert found.common()["accel_memory_errors_total", "0", "", "true", "hbm"] == 0


def test_a_layout_that_nobody_knows_is_told_and_neuron_monitor_is_still_read(tmp_path: Path) -> None:
    host = make_host(tmp_path / "host", replace(MACHINES["trn2"], layout="strange"))
    busy(host, RuntimeData(4711, "4711", {5: 42.5}))
    with rig(host) as found:
        [(kind, text)] = found.errors
        assert kind == "parse"
        assert "no layout that is known" in text
        assert found.value("neuron_sysfs_layout", layout="unknown") == 1
        assert found.common()["accel_utilization_ratio", "1", "5"] == 0.425


def test_the_tensor_engines_share_is_over_the_cores_behind_a_logical_one(tmp_path: Path) -> None:
    host = make_host(tmp_path / "host", MACHINES["trn2"])
    with rig(host) as found:
        assert found.values("neuron_core_matrix_active_ratio") == []  # one look tells no share
        host.write(0, "neuron_core2/stats/tensor_engine/pe_cntrs", pe_text(300, 100, 600))
        host.write(0, "neuron_core3/stats/tensor_engine/pe_cntrs", pe_text(100, 0, 900))
        found.sample()
        assert found.common()["accel_matrix_active_ratio", "0", "1"] == pytest.approx(400 / 2000)
        where = {"neuron_device_index": "0", "neuron_core": "2", "xrow_grp": "3"}
        assert found.value("neuron_sysfs_core_tensor_engine_cycles_total", **where, activity="mm") == 300
        host.write(0, "neuron_core2/stats/tensor_engine/pe_cntrs", pe_text(0, 0, 0))
        found.sample()
        assert ("accel_matrix_active_ratio", "0", "1") not in found.common()


def test_power_is_a_share_of_an_unknown_maximum_and_no_watts(tmp_path: Path) -> None:
    host = make_host(tmp_path / "host", MACHINES["trn2"])
    with rig(host) as found:
        series = "neuron_sysfs_power_utilization_percent"
        assert found.values(series) == []
        host.write(1, "stats/power/utilization", f"POWER_STATUS_VALID,{int(time.time())},3.10,41.27,22.54\n")
        found.sample()
        told = {name: found.value(series, neuron_device_index="1", statistic=name) for name in ("min", "max", "avg")}
        assert told == {"min": 3.1, "max": 41.27, "avg": 22.54}
        assert not any("watts" in key[0] or "joules" in key[0] for key in found.common())
        host.write(1, "stats/power/utilization", f"POWER_STATUS_VALID,{int(time.time()) - 300},3.10,41.27,22.54\n")
        found.sample()
        assert found.values(series) == []


def test_an_unhealthy_component_is_told(tmp_path: Path) -> None:
    host = make_host(tmp_path / "host", MACHINES["trn2"])
    with rig(host) as found:
        series = "neuron_sysfs_health_component_unhealthy"
        assert set(found.values(series)) == {0}
        assert len(found.values(series, neuron_device_index="0")) == 10
        host.write(1, "stats/hardware/health_status/unhealthy_components", "hbm,link_efa,brand_new\n")
        found.sample()
        ill = {dict(key[2])["component"] for key, value in found.readings.items() if key[0] == series and value}
        assert ill == {"hbm", "link_efa", "brand_new"}


def test_a_register_that_cannot_be_read_for_a_moment_does_not_count_its_events_again(tmp_path: Path) -> None:
    """The driver shows 0 then: taken as a reset, all events would be new ones afterwards."""
    host = make_host(tmp_path / "host", MACHINES["trn2"])
    key = ("accel_memory_errors_total", "0", "", "false", "hbm")
    path = "stats/hardware/mem_ecc_uncorrected"
    with rig(host) as found:

        def told(event: str) -> list[float]:
            return found.values("neuron_sysfs_ecc_events_total", neuron_device_index="0", event_type=event)

        assert found.common()[key] == 5
        host.write(0, path, "0\n")
        found.sample()
        assert told("mem_ecc_uncorrected") == []
        assert told("sram_ecc_uncorrected") == [1]
        host.write(0, path, "4\n")
        found.sample()
        assert found.common()[key] == 6
        # A repair moves the events to the other file.
        host.write(0, path, "0\n")
        host.write(0, "stats/hardware/mem_ecc_repairable_uncorrected", "6\n")
        found.sample()
        assert found.common()[key] == 6
        # After a reset the registers stay low.
        host.write(0, "stats/hardware/mem_ecc_repairable_uncorrected", "0\n")
        found.until(lambda: told("mem_ecc_uncorrected") == [0])


def test_links_and_neighbours(tmp_path: Path) -> None:
    with rig(make_host(tmp_path / "host", MACHINES["trn1"])) as found:
        common = found.common()
        assert common["accel_pcie_link_width", "0", ""] == 8
        assert common["accel_pcie_link_max_width", "0", ""] == 16
        assert common["accel_pcie_link_generation", "0", ""] == 4
        assert common["accel_pcie_link_max_generation", "0", ""] == 5
        assert found.value("neuron_sysfs_connected_devices", neuron_device_index="0") == 4


def test_nothing_is_written_into_the_drivers_files(tmp_path: Path) -> None:
    host = make_host(tmp_path / "host", MACHINES["trn2"])

    def state() -> dict[str, tuple[str, int]]:
        files = [path for path in host.device(0).rglob("*") if path.is_file() and not path.is_symlink()]
        return {str(path): (path.read_text(), path.stat().st_mtime_ns) for path in files}

    before = state()
    with rig(host) as found:
        found.sample()
        found.discover()
    assert state() == before


def test_files_that_may_not_be_read_are_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = sysfs.read
    denied = "stats/power/utilization"

    def guarded(path: str) -> str:
        if path.endswith((denied, "core_count", "connected_devices")):
            raise PermissionError(13, "Permission denied", path)
        return read(path)

    monkeypatch.setattr(sysfs, "read", guarded)
    with rig(make_host(tmp_path / "host", MACHINES["inf2"])) as found:
        assert found.common()["accel_capacity_compute_units", "0", ""] == 2
        assert [kind for kind, _ in found.errors] == ["permission"]
        found.sample()
        assert found.errors == []


def test_an_old_driver_is_read_every_15_seconds_at_most(tmp_path: Path) -> None:
    host = make_host(tmp_path / "host", MACHINES["inf2"])  # driver 2.24
    path = "neuron_core0/stats/memory_usage/device_mem/total"
    with rig(host) as found:
        before = found.common()["accel_memory_used_bytes", "0", "0", "device"]
        host.write(0, path, "12345\n")
        found.sample()
        assert found.common()["accel_memory_used_bytes", "0", "0", "device"] == before
    (tmp_path / "newer").mkdir()
    host = make_host(tmp_path / "newer/host", MACHINES["trn2"])
    with rig(host) as found:
        host.write(0, path, "12345\n")
        found.sample()
        assert found.common()["accel_memory_used_bytes", "0", "0", "device"] == 12345 + device_memory(0, 1)


def refused(found: Rig) -> tuple[str, str]:
    with pytest.raises(Unavailable) as caught:
        found.discover()
    found.collector.close()
    return caught.value.state, caught.value.hint


def test_a_driver_that_is_still_starting_is_left_alone(tmp_path: Path) -> None:
    host = make_host(tmp_path / "host", MACHINES["inf2"], tools=False)  # driver 2.24: its sysfs files come too early
    (host.root / "dev/neuron0").unlink()
    state, hint = refused(Rig(open_collector(settings(host))))
    assert state == "no_driver"
    assert "/dev/neuron" in hint


def test_the_driver_that_is_unloaded_ends_everything(tmp_path: Path) -> None:
    host = make_host(tmp_path / "host", MACHINES["inf2"])
    with rig(host) as found:
        host.unload_driver()
        with pytest.raises(Unavailable, match="unloaded"):
            found.sample()


def test_a_device_that_falls_off_is_lost_and_the_others_go_on(tmp_path: Path) -> None:
    host = make_host(tmp_path / "host", MACHINES["trn1"])
    with rig(host) as found:
        host.remove_device(3)
        found.sample()
        lost = found.samples["normal"].lost
        names = {(found.devices[one].index, found.devices[one].partition) for one in lost}
        assert names == {("3", ""), ("3", "6"), ("3", "7")}
        assert ("accel_memory_used_bytes", "3", "6", "device") not in found.common()
        assert ("accel_memory_used_bytes", "4", "8", "device") in found.common()
        uuid = found.devices[found.position(3)].uuid
        found.discover()
        found.sample()
        assert found.devices[found.position(3)].uuid == uuid
        assert found.position(3) in found.samples["normal"].lost
