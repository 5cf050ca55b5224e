"""Xids: from NVML's events and from the kernel's log, each once."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e import h100_values as h100
from tests.e2e.agent import Agent, Seen
from tests.e2e.worlds import Place, place
from tests.fakes.nvml import scenarios
from tests.fakes.nvml.gpus import PCI_BUSES

pytestmark = pytest.mark.gcc

HEALTHY = scenarios.h100(4)
GPU = 2
SAMPLES = "accel_exporter_collector_duration_seconds_count"
FALLEN = "GPU has fallen off the bus"


def raise_event(here: Place) -> None:
    here.nvml.apply(scenarios.xid(HEALTHY, GPU, 79))


def log_to_kernel(here: Place) -> None:
    here.host.log_xid(PCI_BUSES[GPU], 79, f"pid=4321, name=train, {FALLEN}.")


def some_samples_later(agent: Agent, count: int = 6) -> Seen:
    """A scrape after as many more readings."""
    before = agent.scrape().value(SAMPLES)
    return agent.wait_for(lambda seen: seen.value(SAMPLES) >= before + count)


@pytest.mark.parametrize(
    ("first", "second"),
    [(raise_event, log_to_kernel), (log_to_kernel, raise_event)],
    ids=["event first", "kernel log first"],
)
def test_an_xid_that_both_sources_tell_counts_once(
    tmp_path: Path, first: Callable[[Place], None], second: Callable[[Place], None]
) -> None:
    here = place(tmp_path, HEALTHY)
    with Agent.start(tmp_path, here.environ, here.config(schema={"raw": "all"})) as agent:
        seen = agent.wait_for(lambda seen: seen.has("DCGM_FI_DEV_XID_ERRORS"))
        for i in range(4):
            [sample] = seen.all("DCGM_FI_DEV_XID_ERRORS", gpu=str(i))
            assert sample.value == 0
            assert sample.labels == {**h100.raw_labels(i), "err_code": "0", "err_msg": "No Error"}
            assert seen.value("accel_faults_total", device=str(i)) == 0
        assert not seen.has("accel_fault_code_total")
        assert seen.value("DCGM_EXP_XID_ERRORS_COUNT", gpu="2") == 0

        began = time.time()
        first(here)
        agent.wait_for(lambda seen: seen.value("accel_faults_total", device="2") == 1)
        second(here)
        seen = some_samples_later(agent)
        assert seen.value("accel_faults_total", device="2") == 1

        [code] = seen.all("accel_fault_code_total")
        assert code.value == 1
        told = {name: code.labels[name] for name in ("device", "code", "class", "severity", "action")}
        assert told == {
            "device": "2",
            "code": "xid:79",
            "class": "interconnect",
            "severity": "fatal",
            "action": "reboot_node",
        }
        assert began - 1 <= seen.value("accel_fault_last_timestamp_seconds", device="2", code="xid:79") <= time.time()
        assert seen.value("accel_health_state", device="2", state="failed") == 1
        assert seen.value("accel_health_state", device="1", state="healthy") == 1
        [last] = seen.all("DCGM_FI_DEV_XID_ERRORS", gpu="2")
        assert last.value == 79
        assert (last.labels["err_code"], last.labels["err_msg"]) == ("79", FALLEN)
        [count] = seen.all("DCGM_EXP_XID_ERRORS_COUNT", gpu="2")
        assert count.value == 1
        assert (count.labels["xid"], count.labels["window_size_in_ms"]) == ("79", "300000")
        assert seen.value("DCGM_FI_DEV_XID_ERRORS", gpu="1") == 0
        # The values of a GPU that still answers go on.
        assert seen.value("accel_temperature_celsius", device="2", sensor="die") == 52


def test_two_xids_of_one_source_are_two(tmp_path: Path) -> None:
    here = place(tmp_path, HEALTHY)
    with Agent.start(tmp_path, here.environ, here.config()) as agent:
        agent.wait_for(lambda seen: seen.has("DCGM_FI_DEV_XID_ERRORS"))
        once = scenarios.xid(HEALTHY, GPU, 31)
        here.nvml.apply(scenarios.xid(once, GPU, 31))
        agent.wait_for(lambda seen: seen.has("accel_fault_code_total", device="2", code="xid:31"))
        # NVML does not deliver all Xids: 62 comes through the kernel's log alone.
        here.host.log_xid(PCI_BUSES[GPU], 62)
        seen = agent.wait_for(lambda seen: seen.has("accel_fault_code_total", device="2", code="xid:62"))
        assert seen.value("accel_fault_code_total", device="2", code="xid:31") == 2
        assert seen.value("accel_fault_code_total", device="2", code="xid:62") == 1
        assert seen.value("accel_faults_total", device="2") == 3
        assert seen.value("DCGM_FI_DEV_XID_ERRORS", gpu="2") == 62
        # An error of the program itself is not held against the GPU; a halted micro-controller is.
        assert seen.value("accel_fault_code_total", code="xid:31", severity="info", action="restart_workload") == 2
        assert seen.value("accel_health_state", device="2", state="failed") == 1


def test_old_lines_of_the_kernel_log_are_not_news(tmp_path: Path) -> None:
    here = place(tmp_path, HEALTHY)
    here.host.log_xid(PCI_BUSES[0], 79)
    with Agent.start(tmp_path, here.environ, here.config()) as agent:
        agent.wait_for(lambda seen: seen.has("accel_faults_total"))
        assert some_samples_later(agent).value("accel_faults_total", device="0") == 0


def test_counts_outlive_the_worker(tmp_path: Path) -> None:
    here = place(tmp_path, HEALTHY)
    with Agent.start(tmp_path, here.environ, here.config()) as agent:
        agent.wait_for(lambda seen: seen.has("accel_faults_total"))
        here.host.log_xid(PCI_BUSES[GPU], 94)
        agent.wait_for(lambda seen: seen.value("accel_faults_total", device="2") == 1)
        here.nvml.apply(scenarios.crashes(HEALTHY, "gpu 0", "nvmlDeviceGetPowerUsage"))
        agent.wait_for(lambda seen: seen.state() == "crashed")
        here.nvml.apply(HEALTHY)
        seen = agent.wait_for(lambda seen: seen.state() == "running" and seen.has("accel_power_watts", device="2"))
        assert seen.value("accel_faults_total", device="2") == 1
        assert seen.value("accel_fault_code_total", device="2", code="xid:94") == 1
        assert seen.value("accel_health_state", device="2", state="degraded") == 1
