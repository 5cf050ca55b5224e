"""neuron-monitor's life as the Neuron collector's child, and neuron-ls: what they may do wrong."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from collectors.base import NODE, ReadError
from collectors.neuron import collector, monitor, neuron_ls, open_collector, programs
from collectors.neuron.monitor import Monitor, configuration
from tests.fakes.neuron import MACHINES, NeuronHost, RuntimeData, make_host, report
from tests.integration.neuron_rig import PERIOD, alive, rig, settings, wait_until

INF2 = MACHINES["inf2"]
BUSY = RuntimeData(4711, "4711", {0: 42.5})


@pytest.fixture
def host(tmp_path: Path) -> NeuronHost:
    made = make_host(tmp_path / "host", INF2)
    made.scenario(report(INF2, [BUSY]))
    return made


def configurations() -> set[Path]:
    return set(Path(tempfile.gettempdir()).glob("neuron-monitor-*.conf"))


def test_one_child_serves_all_samples_with_its_own_group_locale_and_memory_limit(host: NeuronHost) -> None:
    with rig(host, memory_limit_mib=320) as found:
        for _ in range(5):
            found.sample()
        [start] = host.starts
        assert (start["GOMEMLIMIT"], start["LC_ALL"]) == ("320MiB", "C")
        assert start["pid"] == start["group"] != os.getpgrp()
        assert start["arguments"][0] == "-c"
        assert start["config"] == {
            "period": "100ms",
            "neuron_runtimes": [
                {
                    "tag_filter": ".*",
                    "metrics": [
                        {"type": "neuroncore_counters"},
                        {"type": "memory_used"},
                        {"type": "execution_stats"},
                        {"type": "neuron_runtime_vcpu_usage"},
                    ],
                }
            ],
            "system_metrics": [{"type": "neuron_hw_counters"}, {"type": "vcpu_usage"}, {"type": "memory_info"}],
        }
        assert found.value("neuron_monitor_restarts_total") == 0
        assert host.ls_starts == 1


def test_the_hosts_processors_and_memory_are_asked_for_where_they_are_right(host: NeuronHost) -> None:
    with rig(host, host_metrics="off") as found:
        [start] = host.starts
        asked = json.dumps(start["config"])
        assert "vcpu" not in asked
        assert "memory_info" not in asked
        assert found.values("system_vcpu_count") == []
        assert found.values("neuroncore_utilization_ratio", neuroncore="0") == [0.425]


@pytest.mark.parametrize(("period", "text"), [(5.0, "5s"), (1.0, "1s"), (0.25, "250ms"), (2.5, "2500ms")])
def test_the_period_is_written_as_go_reads_it(period: float, text: str) -> None:
    assert configuration(frozenset(), period, host=True)["period"] == text


def test_only_the_groups_that_a_series_needs_are_asked_for() -> None:
    asked = configuration(frozenset(("execution_latency_seconds",)), 5.0, host=True)
    assert asked["neuron_runtimes"] == [{"tag_filter": ".*", "metrics": [{"type": "execution_stats"}]}]
    assert asked["system_metrics"] == []


def test_closing_ends_the_child_with_all_that_it_started_and_removes_its_configuration(host: NeuronHost) -> None:
    before = configurations()
    host.scenario(report(INF2), first=[{"child": True}])
    with rig(host) as found:
        [start] = host.starts
        assert len(configurations() - before) == 1
        group = start["group"]
    assert found.devices
    assert configurations() == before
    wait_until(lambda: not alive(start["pid"]), "neuron-monitor lives on")
    wait_until(lambda: not _members(group), "its child lives on")


def _members(group: int) -> list[int]:
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal() and alive(int(folder.name)):
            try:
                if os.getpgid(int(folder.name)) == group:
                    found.append(int(folder.name))
            except ProcessLookupError:
                continue
    return found


def test_the_child_dies_with_a_worker_that_is_killed(host: NeuronHost) -> None:
    """Nobody else could end it, and the driver cannot be unloaded while it runs."""
    code = (
        "import sys, time, msgspec\n"
        "from collectors.base import Settings\n"
        "from collectors.neuron import open_collector\n"
        "found = open_collector(msgspec.json.decode(sys.argv[1], type=Settings))\n"
        "found.discover()\n"
        "print('ready', flush=True)\n"
        "time.sleep(600)\n"
    )
    told = msgspec.json.encode(settings(host)).decode()
    worker = subprocess.Popen([sys.executable, "-c", code, told], stdout=subprocess.PIPE, text=True)
    assert worker.stdout is not None
    with worker.stdout:
        assert worker.stdout.readline() == "ready\n"
        [start] = host.starts
        assert alive(start["pid"])
        worker.send_signal(signal.SIGKILL)
        worker.wait(10)
    wait_until(lambda: not alive(start["pid"]), "neuron-monitor outlives its worker")
    for path in configurations():
        if str(path) in start["arguments"]:
            path.unlink()


def test_a_child_that_ends_is_started_again_after_a_pause(host: NeuronHost) -> None:
    fatal = [{"sleep": 0.5}, {"stderr": "FATA[0000] out of memory"}, {"exit": 2}]
    host.scenario(fatal, first=report(INF2, [BUSY]))
    with rig(host) as found:
        found.until(lambda: found.errors)
        [(kind, text)] = found.errors
        assert kind == "transient"
        assert "exit code 2: FATA[0000] out of memory" in text
        assert len(host.starts) == 1  # not at once
        found.until(lambda: len(host.starts) == 2)
        found.until(lambda: found.value("neuron_monitor_restarts_total") == 1)
        host.scenario(report(INF2, [BUSY]))
        found.until(lambda: len(host.starts) == 3 and found.values("neuroncore_utilization_ratio", neuroncore="0"))
        assert len({start["pid"] for start in host.starts}) == 3


def test_the_pauses_grow(host: NeuronHost, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    host.scenario([], first=[{"exit": 1}])
    child = Monitor(str(host.tools / "neuron-monitor"), configuration(frozenset(), 1.0, host=False), period=1.0, memory_limit_mib=160)  # fmt: skip # noqa: E501
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    pauses: list[float] = []
    for _ in range(9):
        errors: Sequence[ReadError] = ()
        while not errors:
            errors = child.poll().errors
        pauses.append(child._due - now[0])
        assert child.poll() == monitor.Polled()
        now[0] = child._due
    child.close()
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_a_child_that_says_nothing_is_ended_and_its_last_words_are_not_repeated(
    host: NeuronHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(monitor, "_OPENING", 0.5)
    monkeypatch.setattr(monitor, "_LATE", 0.1)
    host.scenario([{"hang": True}], first=report(INF2, [BUSY]))
    with rig(host) as found:
        assert found.values("neuroncore_utilization_ratio", neuroncore="0") == [0.425]
        found.until(lambda: any(kind == "timeout" for kind, _ in found.errors))
        assert found.values("neuroncore_utilization_ratio") == []  # stale is absent
        assert found.values("neuron_sysfs_core_device_memory_used_bytes")
        wait_until(lambda: not alive(host.starts[0]["pid"]), "the silent child lives on")


def test_without_a_first_report_the_devices_are_still_found(host: NeuronHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collector, "_FIRST_REPORT", 0.2)
    host.scenario([{"hang": True}])
    with rig(host) as found:
        assert [device.partition for device in found.devices] == ["", "0", "1"]
        assert found.devices[0].raw_labels == ()


def test_garbage_half_lines_and_ten_megabytes_cost_no_report(host: NeuronHost) -> None:
    good = json.dumps(report(INF2, [BUSY])) + "\n"
    noise = [
        {"text": "INFO starting\n"},
        {"text": good[:100] + "\n"},
        {"text": "x" * 10_000_000 + "\n"},
        {"text": '{"neuron_runtime_data":' + "[" * 5000 + "\n"},
        {"text": "\ud83d\ude00 \u0000\n"},
    ]
    host.scenario(report(INF2, [BUSY]), first=noise)
    with rig(host) as found:
        found.until(lambda: found.values("neuroncore_utilization_ratio", neuroncore="0") == [0.425])
        assert found.value("neuron_monitor_malformed_total") >= 3
        assert len(host.starts) == 1


def test_a_report_in_two_halves_is_one(host: NeuronHost) -> None:
    good = json.dumps(report(INF2, [BUSY])) + "\n"
    host.scenario([{"hang": True}], first=[{"text": good[:500]}, {"sleep": 0.2}, {"text": good[500:]}])
    with rig(host) as found:
        assert found.values("neuroncore_utilization_ratio", neuroncore="0") == [0.425]
        assert found.value("neuron_monitor_malformed_total") == 0


def test_reports_between_two_samples_are_all_counted(host: NeuronHost) -> None:
    many = "".join(json.dumps(report(INF2, [BUSY])) + "\n" for _ in range(40))
    host.scenario([{"hang": True}], first=[{"text": many}])
    with rig(host) as found:
        found.until(lambda: found.values("execution_status_total", status_type="completed") == [4000])


def test_cores_that_are_counted_anew_are_discovered_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A DRA claim can change the logical NeuronCore configuration while the node runs."""
    monkeypatch.setattr(collector, "_REDISCOVER_EVERY", 0.0)
    host = make_host(tmp_path / "host", MACHINES["trn2"])
    with rig(host) as found:
        assert len(found.devices) == 2 * (1 + 4)
        assert not found.samples["normal"].rediscover
        other = NeuronHost(host.root, MACHINES["trn2_lnc1"])
        other.ls()
        other.scenario(report(other.machine, [RuntimeData(1, "1", {15: 50})]))
        found.until(lambda: found.samples["normal"].rediscover)
        # Until then a core that is not known stands on the node, under the script's labels.
        [key] = [key for key in found.readings if key[0] == "neuroncore_utilization_ratio" and ("neuroncore", "15") in key[2]]  # fmt: skip # noqa: E501
        assert key[1] == NODE
        assert dict(key[2])["instance_id"] == "i-0a1b2c3d4e5f60718"
        found.discover()
        found.sample()
        assert [part.partition for part in found.devices if part.partition] == [str(core) for core in range(16)]
        assert {part.partition_profile for part in found.devices if part.partition} == {"lnc1"}
        assert found.common()["accel_utilization_ratio", "1", "15"] == 0.5
        assert not found.samples["normal"].rediscover
        assert len(host.starts) == 1


def test_devices_of_different_lnc_have_each_their_own_cores(tmp_path: Path) -> None:
    host = make_host(tmp_path / "host", MACHINES["trn2"])
    first, second = host.ls_entries()
    second |= {"logical_neuroncore_config": 1, "nc_count": 8, "neuroncore_ids": list(range(4, 12))}
    host.ls([first, second])
    with rig(host) as found:
        parts = [(part.index, part.partition, part.partition_profile) for part in found.devices if part.partition]
        assert parts[:4] == [("0", str(core), "lnc2") for core in range(4)]
        assert parts[4:] == [("1", str(core), "lnc1") for core in range(4, 12)]
        assert found.common()["accel_compute_units", "1", "4"] == 1


@pytest.mark.parametrize(
    "more",
    [
        {"text": "", "exit": 1, "stderr": "FATA[0000] failed to open device"},
        {"text": "+--------+\n| NEURON |\n+--------+\n"},
        {"text": '[{"neuron_device":0,"bdf":'},
        {"text": "[]"},
    ],
    ids=["fails", "prints a table", "half a list", "no device"],
)
def test_without_neuron_ls_the_rest_is_found(host: NeuronHost, more: dict[str, object]) -> None:
    host.ls(**more)
    with rig(host) as found:
        assert [device.partition for device in found.devices] == ["", "0", "1"]
        assert found.devices[0].pci_bus_id == ""
        assert found.devices[0].serial == INF2.serial(0)
        [(kind, text)] = found.errors
        assert kind == "transient"
        assert "neuron-ls" in text
        assert found.common()["accel_memory_total_bytes", "0", "", "device"] == INF2.memory_bytes


def test_a_program_that_hangs_is_ended_at_its_deadline(host: NeuronHost) -> None:
    host.ls(sleep=600)
    entries, trouble = neuron_ls.look(str(host.tools / "neuron-ls"), 0.5)
    assert entries == {}
    assert "in time" in trouble


def test_a_program_that_writes_too_much_is_ended(tmp_path: Path) -> None:
    program = tmp_path / "loud"
    program.write_text("#!/bin/sh\nexec yes\n")
    program.chmod(0o755)
    outcome = programs.run([str(program)], 10.0, 1_000_000)
    assert "1000000 bytes" in outcome.trouble
    assert outcome.code == -signal.SIGKILL


def test_a_program_of_which_a_child_keeps_the_pipe_ends_in_time(tmp_path: Path) -> None:
    program = tmp_path / "forks"
    program.write_text("#!/bin/sh\nsleep 600 &\necho $!\n")
    program.chmod(0o755)
    outcome = programs.run([str(program)], 0.5, 1000)
    assert outcome.trouble
    wait_until(lambda: not alive(int(outcome.stdout)), "the program's child lives on")


def test_a_program_is_found_as_configured_below_opt_or_on_the_search_path(
    host: NeuronHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opt = str(host.root / "opt")
    assert programs.find("", "neuron-monitor", opt) == str(host.tools / "neuron-monitor")
    assert programs.find(str(host.tools / "neuron-ls"), "neuron-monitor", opt) == str(host.tools / "neuron-ls")
    monkeypatch.setenv("PATH", str(host.tools))
    assert programs.find("", "neuron-monitor", str(tmp_path)) == str(host.tools / "neuron-monitor")
    assert programs.find(str(tmp_path / "none"), "neuron-monitor", opt) == ""
    monkeypatch.setenv("PATH", "")
    assert programs.find("", "neuron-monitor", str(tmp_path)) == ""


def test_with_a_read_only_root_the_configuration_lies_in_shared_memory(
    host: NeuronHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(host.root / "missing"))
    with rig(host) as found:
        [start] = host.starts
        assert start["arguments"][1].startswith("/dev/shm/")
        assert found.values("neuroncore_utilization_ratio", neuroncore="0") == [0.425]
    assert not Path(start["arguments"][1]).exists()


def test_nothing_is_started_before_discovery(host: NeuronHost) -> None:
    made = open_collector(settings(host))
    made.close()
    assert (host.starts, host.ls_starts, PERIOD) == ([], 0, 0.1)
