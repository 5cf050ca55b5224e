"""Who uses a GPU, and how much of its time: NVML's samples of processes, each counted once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes.nvml import Scenario, install, scenarios
from tests.fakes.nvml.gpus import MIB
from tests.integration.collector_child import Answer
from tests.integration.nvml_child import Child, settings

pytestmark = pytest.mark.gcc

Told = dict[tuple[int, int], tuple[int | None, float | None]]


def told(answer: Answer) -> Told:
    """(device, pid) → memory in bytes, share of the time."""
    return {(one.device, one.pid): (one.memory, one.utilization) for one in answer.sample.processes or ()}


def at(scenario: Scenario, percent: int, timestamp_us: int, name: str = "process 0.0") -> Scenario:
    return scenario.with_keys(name, {"sm": percent, "timestamp_us": timestamp_us})


def test_each_sample_counts_once_and_who_has_none_had_no_time(tmp_path: Path) -> None:
    two = scenarios.h100(1).with_keys("process 0.1", {"pid": 4999, "memory": 7 * MIB})
    installation = install(tmp_path, at(two, 60, 1_000_000))
    with Child(installation, settings(processes=True)) as child:
        child.discover()
        assert told(child.sample()) == {(0, 4000): (9000 * MIB, 0.6), (0, 4999): (7 * MIB, 0.0)}
        assert told(child.sample()) == {(0, 4000): (9000 * MIB, 0.0), (0, 4999): (7 * MIB, 0.0)}
        installation.apply(at(two, 25, 2_000_000))
        assert told(child.sample())[0, 4000] == (9000 * MIB, 0.25)


def test_more_than_the_whole_is_no_share(tmp_path: Path) -> None:
    with Child(install(tmp_path, at(scenarios.h100(1), 101, 1_000_000)), settings(processes=True)) as child:
        child.discover()
        assert told(child.sample()) == {(0, 4000): (9000 * MIB, 0.0)}


def test_with_mig_the_driver_tells_memory_alone(tmp_path: Path) -> None:
    with Child(install(tmp_path, scenarios.a100_mig()), settings(processes=True)) as child:
        child.discover()
        answer = child.sample()
    assert told(answer) == {(1 + slot, 5000 + slot): ((1 + slot) * MIB, None) for slot in range(7)}
    assert answer.sample.errors == []


def test_an_old_driver_tells_no_shares_and_no_error(tmp_path: Path) -> None:
    with_missing = scenarios.h100(1).with_missing({"nvmlDeviceGetProcessUtilization"})
    with Child(install(tmp_path, with_missing), settings(processes=True)) as child:
        child.discover()
        answer = child.sample()
    assert told(answer) == {(0, 4000): (9000 * MIB, None)}
    assert answer.sample.errors == []
