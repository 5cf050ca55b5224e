"""The fake library's worlds: field values, time, events, trouble, changes under a running process."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.fakes.nvml import Call, Installation, Scenario, install, scenarios
from tests.fakes.nvml.build import DEFAULT_CACHE, build, exported
from tests.fakes.nvml.probe import Answer, Step, ask, start

pytestmark = pytest.mark.gcc

MIB = 1 << 20
NONE = 0xFFFFFFFF
ALL = 0xFFFFFFFF
LINKS = 18

DOUBLE, UINT, ULL, INT = 0, 1, 3, 5
READ_TEMPERATURE = "nvmlDeviceGetTemperature"


def answers(tmp_path: Path, scenario: Scenario, *steps: Step) -> list[Answer]:
    """The answers to the steps after nvmlInit in a world of their own."""
    return ask(install(tmp_path, scenario), [["nvmlInit"], *steps])[1:]


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, "not within 10 s"
        time.sleep(0.01)


def was_called(installation: Installation, function: str, times: int = 1) -> Callable[[], bool]:
    return lambda: sum(call.function == function for call in installation.calls()) >= times


def blocks_sigterm(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    blocked = next(line for line in status.splitlines() if line.startswith("SigBlk:"))
    return bool(int(blocked.split()[1], 16) & 1 << (signal.SIGTERM - 1))


@contextmanager
def running(installation: Installation, *steps: Step) -> Iterator[subprocess.Popen[str]]:
    """A process at work on the steps; it is gone at the end."""
    process = start(installation, [["nvmlInit"], *steps])
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def results(process: subprocess.Popen[str]) -> list[Answer]:
    output, errors = process.communicate(timeout=20)
    assert process.returncode == 0, errors
    return [Answer(**answer) for answer in json.loads(output.splitlines()[-1])][1:]


def test_fields_carry_their_own_type_code_and_scope(tmp_path: Path) -> None:
    scenario = scenarios.h100(2).with_keys("gpu 1", {"field.186.1": "rc:4", "field.230": "us:3"})
    asked = [82, [38, 0], [193, 0], [186, 0], [186, 1], [230, 0], [138, 40], 9999]
    (answer,) = answers(tmp_path, scenario, ["fields", "gpu:1", asked])
    assert [(field["id"], field["rc"], field["type"], field["value"]) for field in answer.value if not field["rc"]] == [
        (82, 0, UINT, 61),
        (38, 0, ULL, 153 + 18),
        (193, 0, INT, -8),
        (186, 0, UINT, 321_000),
        (230, 0, 6, 3),
    ]
    assert [(field["id"], field["scope"], field["rc"]) for field in answer.value if field["rc"]] == [
        (186, 1, 4),
        (138, 40, 3),
        (9999, 0, 3),
    ]


def test_a_field_can_report_a_wrong_type_or_an_old_time_stamp(tmp_path: Path) -> None:
    # r545 reported the memory temperature as a double; with ECC off some drivers answer a double at time 0.
    odd = {"field.82": "ui:66;as=d", "field.3": "d:0;ts=0"}
    before = time.time()
    (answer,) = answers(tmp_path, scenarios.h100(1).with_keys("gpu 0", odd), ["fields", "gpu:0", [82, 3]])
    temperature, ecc = answer.value
    assert (temperature["type"], temperature["uiVal"]) == (DOUBLE, 66)
    assert before * 1e6 <= temperature["timestamp"] <= time.time() * 1e6
    assert (ecc["rc"], ecc["type"], ecc["timestamp"]) == (0, DOUBLE, 0)


def test_the_fields_of_one_call_are_logged_with_their_scopes(tmp_path: Path) -> None:
    installation = install(tmp_path, scenarios.h100(1))
    ask(installation, [["nvmlInit"], ["fields", "gpu:0", [82, [138, ALL]]]])
    assert Call("nvmlDeviceGetFieldValues", "0", f"82,138.{ALL}") in installation.calls()


def test_nvlink_totals_are_the_sums_of_the_links(tmp_path: Path) -> None:
    def read(installation: Installation, ids: tuple[int, ...]) -> list[int]:
        asked = [[field, scope] for field in ids for scope in (*range(LINKS), ALL)]
        return [field["value"] for field in ask(installation, [["nvmlInit"], ["fields", "gpu:1", asked]])[1].value]

    hopper = read(install(tmp_path / "hopper", scenarios.h100(2)), (138, 139))
    # The links grow by (n + 1) MiB a second and are read one after the other.
    for direction, first in enumerate((0, LINKS + 1)):
        links, total = hopper[first : first + LINKS], hopper[first + LINKS]
        assert 0 <= links[5] - 2 * (direction + 1) * 1_000_000_000 - 5_000_000 < 60 * 2 * 6 * 1024
        assert 0 <= total - sum(links) < 60 * 2 * 171 * 1024
    blackwell = read(install(tmp_path / "blackwell", scenarios.b200(2)), (204, 206, 221))
    for first in (0, LINKS + 1, 2 * (LINKS + 1)):
        assert blackwell[first + LINKS] == sum(blackwell[first : first + LINKS])
    assert blackwell[7] == 2 * 10**12 + 204 * 10**9 + 7


def test_blackwell_has_none_of_the_older_nvlink_fields(tmp_path: Path) -> None:
    older = [38, 45, 52, 59, [138, ALL], [139, ALL], 161, 162, 163]
    (answer,) = answers(tmp_path, scenarios.b200(1), ["fields", "gpu:0", older])
    assert [field["rc"] for field in answer.value] == [3] * len(older)


def test_counters_grow_with_the_scenarios_clock_also_after_the_file_changes(tmp_path: Path) -> None:
    scenario = scenarios.h100(4)
    epoch = float(scenario.keys("system")["epoch"])
    installation = install(tmp_path, scenario)
    for change in (scenario, scenario.with_keys("gpu 3", {"temperature": 99})):
        installation.apply(change)
        before = time.time()
        energy = ask(installation, [["nvmlInit"], ["nvmlDeviceGetTotalEnergyConsumption", "gpu:3"]])[1].value
        # GPU 3 draws 313,000 mW: so many mJ a second.
        grown = energy - 1_003_000_000_000
        assert 313_000 * (before - epoch) - 1 <= grown <= 313_000 * (time.time() - epoch) + 1


def test_two_samples_closer_than_100_ms_give_no_data(tmp_path: Path) -> None:
    close, apart = answers(tmp_path, scenarios.h100(1), ["gpm", "gpu:0", [1], 60], ["gpm", "gpu:0", [1], 105])
    assert (close.value[0][0], close.value[0][1] != close.value[0][1]) == (21, True)
    assert apart.value == [[0, 80.0]]


def test_a_metric_can_be_nan_or_fail_beside_others(tmp_path: Path) -> None:
    scenario = scenarios.h100(1).with_keys("gpu 0", {"gpm.5": "nan", "gpm.10": "rc:27"})
    (answer,) = answers(tmp_path, scenario, ["gpm", "gpu:0", [1, 5, 10], 105])
    good, nan, failed = answer.value
    assert good == [0, 80.0]
    assert (nan[0], nan[1] != nan[1]) == (0, True)
    assert failed[0] == 27


def test_a_gpu_instance_without_compute_instance_has_no_metrics(tmp_path: Path) -> None:
    (answer,) = answers(tmp_path, scenarios.h100_mig(), ["gpm", "gpu:0", [1], 105, 5])
    assert (answer.value[0][0], answer.value[0][1] != answer.value[0][1]) == (21, True)


@pytest.mark.parametrize(
    ("layout", "words"), [(8, [0, 0x01000008, 1]), (4, [0, 1, 0])], ids=["version-and-flag", "flag-only"]
)
def test_the_unrepairable_flag_comes_in_either_layout(tmp_path: Path, layout: int, words: list[int]) -> None:
    scenario = scenarios.b200(1).with_keys("gpu 0", {"unrepairable": 1, "unrepairable_bytes": layout})
    (answer,) = answers(tmp_path, scenario, ["unrepairable_word0", "gpu:0"])
    assert answer.value == words


def test_an_older_driver_refuses_the_newer_fabric_struct(tmp_path: Path) -> None:
    scenario = scenarios.h100(1).with_keys("gpu 0", {"fabric.max_version": 2})
    call = "nvmlDeviceGetGpuFabricInfoV"
    newer, older = answers(
        tmp_path,
        scenario,
        ["filled", call, "c_nvmlGpuFabricInfo_v3_t", "gpu:0"],
        ["filled", call, "c_nvmlGpuFabricInfo_v2_t", "gpu:0"],
    )
    assert (newer.rc, older.rc) == (25, 0)


def test_early_r535_records_of_32_bytes_read_as_garbage_pids(tmp_path: Path) -> None:
    steps: list[Step] = [
        ["nvmlDeviceGetComputeRunningProcesses", "gpu:0"],
        ["nvmlDeviceGetConfComputeMemSizeInfo", "gpu:0"],
        ["nvmlDeviceGetRunningProcessDetailList", "gpu:0", 0x01000018, 0],
    ]
    processes, present, absent = answers(tmp_path, scenarios.r535_early(), *steps)
    # Record 1 starts at byte 32, the binding's second at 24: what it takes for a pid is record 0's protected memory.
    assert [(process["pid"], process["usedGpuMemory"]) for process in processes.value] == [
        (6000, 100 * MIB),
        (0, 6001),
        (NONE, 0),
    ]
    assert (present.rc, absent.rc) == (0, 13)


def test_the_processes_of_a_mig_gpu_are_listed_with_their_instances(tmp_path: Path) -> None:
    (answer,) = answers(tmp_path, scenarios.a100_mig(), ["nvmlDeviceGetComputeRunningProcesses", "gpu:0"])
    assert [(p["pid"], p["gpuInstanceId"], p["computeInstanceId"]) for p in answer.value] == [
        (5000 + slot, 7 + slot, 0) for slot in range(7)
    ]


def test_a_process_whose_memory_the_driver_does_not_tell_has_none(tmp_path: Path) -> None:
    scenario = scenarios.h100(1).without_keys("process 0.0", ["memory"])
    (answer,) = answers(tmp_path, scenario, ["nvmlDeviceGetComputeRunningProcesses", "gpu:0"])
    assert answer.value[0]["usedGpuMemory"] is None


@pytest.mark.parametrize(
    ("scenario", "rc"), [(scenarios.no_driver(), 9), (scenarios.version_skew(), 18)], ids=["no-driver", "version-skew"]
)
def test_initialization_fails_with_the_code_of_its_cause(tmp_path: Path, scenario: Scenario, rc: int) -> None:
    init, after = ask(install(tmp_path, scenario), [["nvmlInit"], ["nvmlDeviceGetCount"]])
    assert (init.rc, after.rc) == (rc, 1)


def test_a_node_without_gpus_counts_zero(tmp_path: Path) -> None:
    count, handle = answers(tmp_path, scenarios.zero_gpus(), ["nvmlDeviceGetCount"], [READ_TEMPERATURE, "gpu:0", 0])
    assert (count, handle.rc) == (Answer(0), 2)


def test_a_gpu_that_may_not_be_opened_is_counted_and_refused(tmp_path: Path) -> None:
    scenario = scenarios.no_permission(scenarios.h100(2), 0)
    steps: list[Step] = [["nvmlDeviceGetCount"], [READ_TEMPERATURE, "gpu:0", 0], [READ_TEMPERATURE, "gpu:1", 0]]
    count, refused, other = answers(tmp_path, scenario, *steps)
    assert (count.value, refused.rc, other.value) == (2, 4, 51)


def test_calls_outside_init_and_shutdown_are_refused(tmp_path: Path) -> None:
    installation = install(tmp_path, scenarios.h100(1))
    steps = [["nvmlInit"], ["nvmlInit"], ["nvmlShutdown"], ["nvmlDeviceGetCount"], ["nvmlShutdown"],
             ["nvmlDeviceGetCount"], ["nvmlShutdown"]]  # fmt: skip
    assert [answer.rc for answer in ask(installation, steps)] == [0, 0, 0, 0, 0, 1, 1]
    assert [call.function for call in installation.calls()].count("nvmlShutdown") == 3


def test_one_function_fails_on_one_device_only(tmp_path: Path) -> None:
    scenario = scenarios.fails(scenarios.h100(2), "gpu 1", READ_TEMPERATURE, 999)
    steps: list[Step] = [
        [READ_TEMPERATURE, "gpu:0", 0],
        [READ_TEMPERATURE, "gpu:1", 0],
        ["nvmlDeviceGetPowerUsage", "gpu:1"],
    ]
    assert [answer.rc for answer in answers(tmp_path, scenario, *steps)] == [0, 999, 0]


def test_noise_goes_to_stdout_at_initialization_and_at_each_call(tmp_path: Path) -> None:
    with running(install(tmp_path, scenarios.noisy(scenarios.h100(1), "chatter")), ["nvmlDeviceGetCount"]) as process:
        output, _ = process.communicate(timeout=20)
    assert output.splitlines()[:2] == ["chatter", "chatter"]


def test_a_crash_ends_the_process_with_sigsegv(tmp_path: Path) -> None:
    scenario = scenarios.crashes(scenarios.h100(2), "gpu 1", READ_TEMPERATURE)
    steps = ([READ_TEMPERATURE, "gpu:0", 0], [READ_TEMPERATURE, "gpu:1", 0])
    with running(install(tmp_path, scenario), *steps) as process:
        process.communicate(timeout=20)
    assert process.returncode == -signal.SIGSEGV


def test_a_hang_outlives_sigterm_and_ends_with_sigkill(tmp_path: Path) -> None:
    installation = install(tmp_path, scenarios.hangs(scenarios.h100(1), "gpu 0", READ_TEMPERATURE))
    with running(installation, [READ_TEMPERATURE, "gpu:0", 0]) as process:
        wait_until(lambda: blocks_sigterm(process.pid))
        process.terminate()
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.2)
        process.kill()
        assert process.wait(10) == -signal.SIGKILL


def test_a_slow_call_takes_its_time(tmp_path: Path) -> None:
    scenario = scenarios.slow(scenarios.h100(1), "gpu 0", READ_TEMPERATURE, 150)
    before = time.monotonic()
    assert answers(tmp_path, scenario, [READ_TEMPERATURE, "gpu:0", 0]) == [Answer(50)]
    assert time.monotonic() - before >= 0.15


def test_a_gpu_lost_midway_answers_15_to_everything_and_the_others_go_on(tmp_path: Path) -> None:
    scenario = scenarios.h100(2)
    after = scenarios.lost(scenario, 1)
    installation = install(tmp_path, scenario)
    steps: list[Step] = [
        ["keep", "one", "gpu:1"],
        ["open_events", 0x8, "gpu:0", "gpu:1"],
        ["with_kept", "one", "nvmlDeviceGetPowerUsage"],
        ["write", str(installation.scenario_file), after.text()],
        ["with_kept", "one", "nvmlDeviceGetPowerUsage"],
        ["nvmlDeviceGetName", "gpu:1"],
        ["nvmlDeviceGetPowerUsage", "gpu:0"],
        ["wait_event", 5000],
    ]
    codes = [answer.rc for answer in ask(installation, [["nvmlInit"], *steps])]
    assert codes == [0, 0, 0, 0, 0, 15, 15, 0, 15]


def test_a_mig_handle_goes_stale_when_its_device_is_made_anew(tmp_path: Path) -> None:
    scenario = scenarios.a100_mig()
    recut = scenario.without_section("mig 0.6").with_keys("mig 0.1", {"uuid": "MIG-new"})
    installation = install(tmp_path, scenario)
    steps: list[Step] = [
        ["keep", "recut", "mig:0.1"],
        ["keep", "gone", "mig:0.6"],
        ["keep", "same", "mig:0.2"],
        ["write", str(installation.scenario_file), recut.text()],
        *(["with_kept", name, "nvmlDeviceGetUUID"] for name in ("recut", "gone", "same")),
        ["nvmlDeviceGetUUID", "mig:0.1"],
        ["nvmlDeviceGetUUID", "mig:0.6"],
    ]
    recut_answer, gone, same, fresh, hole = ask(installation, [["nvmlInit"], *steps])[5:]
    assert (recut_answer.rc, gone.rc, hole.rc) == (2, 2, 6)
    assert (same.value, fresh.value) == ("MIG-a1000000-0000-5000-8000-000000000002", "MIG-new")


def test_an_xid_reaches_a_waiting_process_once(tmp_path: Path) -> None:
    scenario = scenarios.xid(scenarios.h100(2), 0, 31)  # before the registration: nobody hears of it
    installation = install(tmp_path, scenario)
    waits: list[Step] = [["open_events", 0x8, "gpu:0", "gpu:1"], *([["wait_event", 10_000]] * 2), ["wait_event", 30]]
    with running(installation, *waits) as process:
        wait_until(was_called(installation, "nvmlEventSetWait_v2"))
        scenario = scenarios.xid(scenario, 1, 79)
        scenario = scenarios.xid(scenarios.event(scenario, 0, 0x100, 0), 0, 94, instance=(9, 0))
        installation.apply(scenario)
        _, first, second, third = results(process)
    assert first.value == {"gpu": 1, "type": 8, "data": 79, "gi": NONE, "ci": NONE}
    assert second.value == {"gpu": 0, "type": 8, "data": 94, "gi": 9, "ci": 0}
    assert third.rc == 10


def test_an_event_can_come_at_once_or_some_time_after_the_registration(tmp_path: Path) -> None:
    scenario = scenarios.h100(1).with_keys("event 0", {"gpu": 0, "type": 8, "data": 13})
    scenario = scenario.with_keys("event 1", {"gpu": 0, "type": 8, "data": 43, "after_ms": 80})
    steps: list[Step] = [["open_events", 8, "gpu:0"], ["wait_event", 0], ["wait_event", 0], ["wait_event", 5000]]
    _, first, early, second = answers(tmp_path, scenario, *steps)
    assert (first.value["data"], early.rc, second.value["data"]) == (13, 10, 43)


def test_a_symbol_left_out_is_not_in_the_library() -> None:
    left_out = {"nvmlDeviceGetMemoryInfo_v2", "nvmlGpmSampleGet"}
    assert exported(build(DEFAULT_CACHE)) - exported(build(DEFAULT_CACHE, left_out)) == left_out


def test_a_name_that_the_library_never_had_cannot_be_left_out() -> None:
    with pytest.raises(RuntimeError, match="nvmlDeviceGetTemprature"):
        build(DEFAULT_CACHE, ["nvmlDeviceGetTemprature"])


def test_a_running_library_cannot_get_a_world_with_other_symbols(tmp_path: Path) -> None:
    installation = install(tmp_path, scenarios.b200(1))
    with pytest.raises(ValueError, match="keeps its symbols"):
        installation.apply(scenarios.t4())


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[system]\n[gpu 0]\ntemprature=54\n", ":3: .*temprature"),
        ("[system]\n[gpu 0]\ntemperature 54\n", ":3: .*temperature 54"),
        ("[system]\n[gpu 0]\nminor=1\nminor=2\n", ":4: .*minor"),
        ("[system]\n[gpu]\n", r":2: .*\[gpu\]"),
        ("[system]\n[tpu 0]\n", r":2: .*\[tpu 0\]"),
        ("[gpu 0]\n[gpu 0]\n", r":2: .*\[gpu 0\]"),
        ("temperature=54\n", ":1: .*temperature=54"),
    ],
    ids=["key", "no-equals", "key-twice", "no-number", "section", "section-twice", "no-section"],
)
def test_a_mistake_in_a_scenario_is_told_and_not_taken_for_absence(tmp_path: Path, text: str, named: str) -> None:
    installation = install(tmp_path, scenarios.zero_gpus())
    installation.scenario_file.write_text(text)
    with running(installation) as process:
        output, errors = process.communicate(timeout=20)
    assert json.loads(output) == [{"rc": 999}]
    assert re.search(f"fake nvml: {re.escape(str(installation.scenario_file))}{named}", errors)


def test_a_value_that_is_no_number_is_told_and_not_taken_for_absence(tmp_path: Path) -> None:
    installation = install(tmp_path, scenarios.h100(1).with_keys("gpu 0", {"temperature": "hot"}))
    with running(installation, [READ_TEMPERATURE, "gpu:0", 0]) as process:
        output, errors = process.communicate(timeout=20)
    assert json.loads(output)[1] == {"rc": 999}
    assert "temperature: not a number of the right size: hot" in errors
