"""What happens when the driver, its library or a GPU is not there, and what each return code leads to."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.fakes.nvml import Scenario, install, scenarios
from tests.integration.collector_child import Answer, RefusedError
from tests.integration.nvml_child import Child, settings

pytestmark = pytest.mark.gcc

DEV = "DCGM_FI_DEV_"


@pytest.mark.parametrize(
    ("scenario", "state", "restart"),
    [
        (scenarios.no_driver(), "no_driver", False),
        (scenarios.version_skew(), "version_mismatch", True),
        (scenarios.zero_gpus(), "no_device", False),
        (scenarios.no_permission(scenarios.h100(2)), "no_permission", False),
        (scenarios.fails(scenarios.zero_gpus(), "system", "nvmlInitWithFlags", 4), "no_permission", False),
        (scenarios.fails(scenarios.zero_gpus(), "system", "nvmlInitWithFlags", 999), "no_driver", False),
        (scenarios.lost(scenarios.h100(1), 0), "no_driver", False),
    ],
    ids=["no driver", "skew", "no GPU", "all nodes closed", "control node closed", "unknown error", "only GPU lost"],
)
def test_what_cannot_be_read_says_why(scenario: Scenario, state: str, restart: bool, tmp_path: Path) -> None:
    with Child(install(tmp_path, scenario), settings()) as child, pytest.raises(RefusedError) as caught:
        child.discover()
    refused = caught.value.refused
    assert (refused.state, refused.restart) == (state, restart)
    assert len(refused.hint) > 20


def test_a_missing_library_says_so(tmp_path: Path) -> None:
    installation = install(tmp_path, scenarios.h100(1))
    environment = installation.environment() | {"LD_LIBRARY_PATH": str(tmp_path)}
    with Child(installation, settings(), environment) as child, pytest.raises(RefusedError) as caught:
        child.discover()
    assert caught.value.refused.state == "no_library"
    assert "libnvidia-ml.so.1" in caught.value.refused.hint


def test_a_driver_that_comes_later_is_found(tmp_path: Path) -> None:
    scenario = scenarios.h100(1)
    installation = install(tmp_path, scenarios.fails(scenario, "system", "nvmlInitWithFlags", 9))
    with Child(installation, settings()) as child:
        with pytest.raises(RefusedError):
            child.discover()
        installation.apply(scenario)
        assert len(child.discover()) == 1
        assert child.sample().value(DEV + "GPU_TEMP") == 50


def test_a_driver_that_goes_away_ends_the_session_and_comes_back(tmp_path: Path) -> None:
    scenario = scenarios.h100(1)
    installation = install(tmp_path, scenario)
    with Child(installation, settings()) as child:
        child.discover()
        installation.apply(scenarios.fails(scenario, "gpu 0", "nvmlDeviceGetClockInfo", 9))
        with pytest.raises(RefusedError) as caught:
            child.sample()
        assert caught.value.refused.state == "no_driver"
        assert "nvmlShutdown" in [call.function for call in installation.calls()]
        installation.apply(scenario)
        assert len(child.discover()) == 1
        assert child.sample().value(DEV + "GPU_TEMP") == 50


def test_gpus_that_may_not_be_opened_are_reported_and_the_others_read(tmp_path: Path) -> None:
    scenario = scenarios.no_permission(scenarios.h100(3), 1)
    with Child(install(tmp_path, scenario), settings()) as child:
        devices = child.discover()
        assert [device.index for device in devices] == ["0", "2"]
        answer = child.sample()
        [error] = answer.sample.errors
        assert (error.device, error.kind) == (-1, "permission")
        assert "GPU 1" in error.detail
        assert answer.value(DEV + "GPU_TEMP", 1) == 52
        assert child.sample().sample.errors == []


TOLD_BY_EVENTS = {DEV + "XID_ERRORS", "DCGM_EXP_XID_ERRORS_COUNT"}
"""Of a lost GPU only this is left: it needs no answer from the GPU."""


def series_of(answer: Answer, device: int) -> set[str]:
    return {one.series for one in answer.sample.readings if one.device == device}


def test_a_gpu_that_is_lost_midway_costs_the_others_nothing(tmp_path: Path) -> None:
    scenario = scenarios.h100(4)
    installation = install(tmp_path, scenario)
    with Child(installation, settings()) as child:
        child.discover()
        child.sample()
        installation.apply(scenarios.lost(scenario, 2))
        answer = child.sample()
        assert answer.sample.lost == [2]
        assert series_of(answer, 2) <= TOLD_BY_EVENTS
        assert all(DEV + "GPU_TEMP" in series_of(answer, device) for device in (0, 1, 3))
        assert answer.value(DEV + "GPU_TEMP", 3) == 53
        # A discovery keeps what is known of it; one that answers again is read again.
        devices = child.discover()
        [position] = [place for place, device in enumerate(devices) if device.index == "2"]
        assert child.sample().sample.lost == [position]
        installation.apply(scenario)
        assert [device.index for device in child.discover()] == ["0", "1", "2", "3"]
        answer = child.sample()
        assert answer.sample.lost == []
        assert answer.value(DEV + "GPU_TEMP", 2) == 52


@pytest.mark.parametrize("code", [15, 999])
def test_a_gpu_that_does_not_answer_at_first_is_looked_for_again(code: int, tmp_path: Path) -> None:
    scenario = scenarios.h100(2)
    installation = install(tmp_path, scenarios.fails(scenario, "gpu 1", "nvmlDeviceGetUUID", code))
    with Child(installation, settings({"normal": [DEV + "GPU_TEMP"]}), lost_every=0.3) as child:
        assert [device.index for device in child.discover()] == ["0"]
        assert [error.kind for error in child.sample().sample.errors] == ["lost"]
        installation.apply(scenario)
        deadline = time.monotonic() + 5
        while not child.sample().sample.rediscover:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert [device.index for device in child.discover()] == ["0", "1"]
        assert child.sample().value(DEV + "GPU_TEMP", 1) == 51
        time.sleep(0.4)
        assert not child.sample().sample.rediscover


def test_a_lost_gpu_that_another_driver_took_is_forgotten(tmp_path: Path) -> None:
    scenario = scenarios.h100(2)
    installation = install(tmp_path / "nvml", scenario)
    pci = tmp_path / "sys/bus/pci/devices/0000:3b:00.0"
    pci.mkdir(parents=True)
    with Child(installation, settings(sys=tmp_path / "sys")) as child:
        child.discover()
        installation.apply(scenarios.lost(scenario, 1))
        assert child.sample().sample.lost == [1]
        assert len(child.discover()) == 2
        (pci / "driver").symlink_to("../../../bus/pci/drivers/vfio-pci")
        assert [device.index for device in child.discover()] == ["0"]


@pytest.mark.parametrize("code", [3, 13, 25, 26])
def test_what_a_device_does_not_support_is_asked_once_and_is_no_error(code: int, tmp_path: Path) -> None:
    scenario = scenarios.fails(scenarios.h100(2), "gpu 0", "nvmlDeviceGetPowerUsage", code)
    installation = install(tmp_path, scenario)
    with Child(installation, settings({"normal": [DEV + "POWER_USAGE"]})) as child:
        child.discover()
        for _ in range(3):
            answer = child.sample()
            assert answer.values(DEV + "POWER_USAGE", 0) == []
            assert answer.value(DEV + "POWER_USAGE", 1) == 311.0
            assert answer.sample.errors == []
        calls = [call.device for call in installation.calls() if call.function == "nvmlDeviceGetPowerUsage"]
        assert calls.count("0") == 1
        # A new discovery asks again: the driver may be another.
        child.discover()
        child.sample()
    calls = [call.device for call in installation.calls() if call.function == "nvmlDeviceGetPowerUsage"]
    assert calls.count("0") == 2


def test_a_refused_quantity_is_reported_once(tmp_path: Path) -> None:
    scenario = scenarios.fails(scenarios.h100(1), "gpu 0", "nvmlDeviceGetPowerUsage", 4)
    with Child(install(tmp_path, scenario), settings({"normal": [DEV + "POWER_USAGE", DEV + "GPU_TEMP"]})) as child:
        child.discover()
        answer = child.sample()
        assert [(error.device, error.kind) for error in answer.sample.errors] == [(0, "permission")]
        assert answer.value(DEV + "GPU_TEMP") == 50
        assert child.sample().sample.errors == []


@pytest.mark.parametrize("code", [21, 27, 6])
def test_a_value_that_is_not_there_now_is_no_error_and_asked_again(code: int, tmp_path: Path) -> None:
    scenario = scenarios.h100(1)
    installation = install(tmp_path, scenarios.fails(scenario, "gpu 0", "nvmlDeviceGetPowerUsage", code))
    with Child(installation, settings({"normal": [DEV + "POWER_USAGE"]})) as child:
        child.discover()
        answer = child.sample()
        assert (answer.sample.readings, answer.sample.errors) == ([], [])
        installation.apply(scenario)
        assert child.sample().value(DEV + "POWER_USAGE") == 310.0


@pytest.mark.parametrize("code", [10, 20, 999])
def test_a_passing_failure_is_counted_each_time(code: int, tmp_path: Path) -> None:
    scenario = scenarios.h100(1)
    installation = install(tmp_path, scenarios.fails(scenario, "gpu 0", "nvmlDeviceGetPowerUsage", code))
    with Child(installation, settings({"normal": [DEV + "POWER_USAGE", DEV + "GPU_TEMP"]})) as child:
        child.discover()
        for _ in range(2):
            answer = child.sample()
            assert [(error.device, error.kind) for error in answer.sample.errors] == [(0, "transient")]
            assert answer.value(DEV + "GPU_TEMP") == 50
        installation.apply(scenario)
        assert child.sample().value(DEV + "POWER_USAGE") == 310.0


@pytest.mark.parametrize("code", [15, 16])
def test_a_gpu_that_must_be_reset_is_lost(code: int, tmp_path: Path) -> None:
    scenario = scenarios.fails(scenarios.h100(2), "gpu 1", "nvmlDeviceGetPowerUsage", code)
    with Child(install(tmp_path, scenario), settings()) as child:
        child.discover()
        answer = child.sample()
        assert answer.sample.lost == [1]
        assert series_of(answer, 1) <= TOLD_BY_EVENTS
        assert DEV + "GPU_TEMP" in series_of(answer, 0)


def test_values_that_mean_nothing_are_left_out(tmp_path: Path) -> None:
    odd: dict[str, str | int | float] = {
        "clock.sm": 0xFFFFFFFF,
        "power_mw": 0xFFFFFFFF,
        "temperature": 255,
        "energy_mj": 0xFFFFFFFFFFFFFFFF,
        # A type that is wrong on some drivers; the number is in the first word.
        "field.82": "ui:61;as=d",
        # ECC off: success without a value.
        "field.3": "d:0;ts=0",
        "gpm.1": "nan",
        "pstate": 32,
    }
    scenario = scenarios.h100(1).with_keys("gpu 0", odd)
    with Child(install(tmp_path, scenario), settings()) as child:
        child.discover()
        time.sleep(0.12)
        answer = child.sample()
    given = {one.series for one in answer.sample.readings}
    left_out = {"SM_CLOCK", "POWER_USAGE", "GPU_TEMP", "TOTAL_ENERGY_CONSUMPTION", "ECC_SBE_VOL_TOTAL", "PSTATE"}
    assert not given & {DEV + name for name in left_out}
    assert "DCGM_FI_PROF_GR_ENGINE_ACTIVE" not in given
    assert answer.value("DCGM_FI_PROF_SM_ACTIVE") == 0.7
    assert answer.value(DEV + "MEMORY_TEMP") == 61
    assert answer.sample.errors == []


def test_a_type_that_the_driver_leaves_unset_costs_no_number(tmp_path: Path) -> None:
    # R545 and the memory's temperature; older drivers and ECC counts. Unset reads as double.
    unset = {"field.82": "ui:61;as=d;ts=0", "field.4": "ull:7;as=d", "field.5": "ull:0;as=d"}
    wanted = {DEV + "MEMORY_TEMP": 61, DEV + "ECC_DBE_VOL_TOTAL": 7, DEV + "ECC_SBE_AGG_TOTAL": 0}
    scenario = scenarios.h100(1).with_keys("gpu 0", unset)
    with Child(install(tmp_path, scenario), settings({"normal": list(wanted)})) as child:
        child.discover()
        answer = child.sample()
    assert {series: answer.value(series) for series in wanted} == wanted


def test_fields_that_may_not_be_read_are_told_once(tmp_path: Path) -> None:
    scenario = scenarios.fails(scenarios.h100(1), "gpu 0", "nvmlDeviceGetFieldValues", 4)
    wanted = {"normal": [DEV + "MEMORY_TEMP", DEV + "POWER_VIOLATION", DEV + "GPU_TEMP"]}
    with Child(install(tmp_path, scenario), settings(wanted)) as child:
        child.discover()
        assert [error.kind for error in child.sample().sample.errors] == ["permission"]
        again = child.sample()
    assert again.sample.errors == []
    assert [reading.series for reading in again.sample.readings] == [DEV + "GPU_TEMP"]


def test_a_board_without_memory_sensor_gives_no_zero(tmp_path: Path) -> None:
    scenario = scenarios.h100(1).with_keys("gpu 0", {"field.82": "ui:0"})
    with Child(install(tmp_path, scenario), settings({"normal": [DEV + "MEMORY_TEMP"]})) as child:
        child.discover()
        assert child.sample().sample.readings == []


def test_a_name_that_is_no_utf8_costs_nothing_else(tmp_path: Path) -> None:
    installation = install(tmp_path, scenarios.h100(2))
    text = installation.scenario_file.read_bytes()
    installation.scenario_file.write_bytes(text.replace(b"name=NVIDIA H100 80GB HBM3", b"name=NVIDIA \xff\xfe100", 1))
    with Child(installation, settings()) as child:
        devices = child.discover()
        assert [device.model for device in devices] == ["NVIDIA \ufffd\ufffd100", "NVIDIA H100 80GB HBM3"]
        assert child.sample().value(DEV + "GPU_TEMP") == 50


def test_profiling_begins_anew_after_nothing_but_blanks(tmp_path: Path) -> None:
    scenario = scenarios.h100(1)
    wanted = ["DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_PROF_SM_ACTIVE"]
    installation = install(tmp_path, scenario.with_keys("gpu 0", {"gpm.1": "nan", "gpm.2": "nan"}))
    with Child(installation, settings({"normal": wanted})) as child:
        child.discover()
        time.sleep(0.12)
        assert child.sample().sample.readings == []
        installation.apply(scenario)
        freed = [call.function for call in installation.calls()].count("nvmlGpmSampleFree")
        assert freed == 2
        time.sleep(0.12)
        assert child.sample().sample.readings == []
        time.sleep(0.12)
        assert {one.series for one in child.sample().sample.readings} == set(wanted)


def test_two_reads_in_quick_succession_do_not_wait_for_profiling(tmp_path: Path) -> None:
    with Child(install(tmp_path, scenarios.h100(1)), settings({"normal": ["DCGM_FI_PROF_SM_ACTIVE"]})) as child:
        child.discover()
        time.sleep(0.12)
        assert child.sample().value("DCGM_FI_PROF_SM_ACTIVE") == 0.7
        assert child.sample().sample.readings == []
        time.sleep(0.12)
        assert child.sample().value("DCGM_FI_PROF_SM_ACTIVE") == 0.7


def test_closing_gives_everything_back_in_order(tmp_path: Path) -> None:
    installation = install(tmp_path, scenarios.h100(2))
    with Child(installation, settings()) as child:
        child.discover()
        time.sleep(0.12)
        child.sample()
        child.close()
    functions = [call.function for call in installation.calls()]
    assert functions[-1] == "nvmlShutdown"
    assert functions.count("nvmlShutdown") == functions.count("nvmlInitWithFlags") == 1
    assert functions.count("nvmlGpmSampleAlloc") == functions.count("nvmlGpmSampleFree") == 4
    assert functions.count("nvmlEventSetCreate") == functions.count("nvmlEventSetFree") == 1


def test_identity_follows_the_driver_and_the_profile(tmp_path: Path) -> None:
    numa = tmp_path / "sys/bus/pci/devices/0000:3b:00.0/numa_node"
    numa.parent.mkdir(parents=True)
    numa.write_text("1\n")
    configuration = settings(profile="hostname-lowercase", sys=tmp_path / "sys")
    with Child(install(tmp_path / "nvml", scenarios.h100(2)), configuration) as child:
        first, second = child.discover()
    assert dict(first.raw_labels)["hostname"] == "node-a"
    assert [name for name, _ in first.raw_labels] == [
        "gpu",
        "UUID",
        "pci_bus_id",
        "device",
        "modelName",
        "hostname",
        "DCGM_FI_DRIVER_VERSION",
    ]
    assert (first.numa_node, second.numa_node) == ("", "1")
    assert second.serial == "1650000000101"
    assert second.firmware_version == "96.00.A5.00.01"
    assert second.driver_version == "580.95.05"
    assert second.ids["dra"] == "gpu-1"
