"""A driver that hangs, crashes, is not there or does not fit: what is served meanwhile, and that it comes back."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.measure import descriptors
from tests.e2e.agent import Agent, Seen, children, until
from tests.e2e.conftest import Tell
from tests.e2e.worlds import NORMAL, Place, place
from tests.fakes.nvml import Scenario, scenarios

pytestmark = pytest.mark.gcc

HEALTHY = scenarios.h100(2)
MAX_AGE = 3 * NORMAL
SLOW_MAX_AGE = 2 * MAX_AGE
DEADLINE = 2.5
"""Longer than the maximum age: what is stale must vanish before the worker is given up."""
SCRAPES = 50
FAST = 0.05
"""Seconds: the median scrape of a busy machine stays far below."""
TEMPERATURE = "nvmlDeviceGetTemperatureV"


def config(here: Place) -> dict[str, object]:
    return here.config(collection={"deadline": DEADLINE})


def shows_devices(seen: Seen) -> bool:
    return seen.has("accel_temperature_celsius", device="1", sensor="die") and seen.has("DCGM_FI_DEV_GPU_TEMP", gpu="1")


def median_scrape(agent: Agent) -> float:
    return statistics.median(agent.get("/metrics").seconds for _ in range(SCRAPES))


@pytest.mark.parametrize(
    ("trouble", "state"), [(scenarios.hangs, "timeout"), (scenarios.crashes, "crashed")], ids=["hang", "crash"]
)
def test_a_sick_driver_costs_its_values_but_no_scrape(
    tmp_path: Path,
    tell: Tell,
    trouble: Callable[[Scenario, str, str], Scenario],
    state: str,
) -> None:
    here = place(tmp_path, HEALTHY)
    with Agent.start(tmp_path, here.environ, config(here)) as agent:
        agent.wait_for(shows_devices)
        [first_worker] = children(agent.process.pid)
        files = descriptors(agent.process.pid)
        here.nvml.apply(trouble(HEALTHY, "gpu 1", TEMPERATURE))
        began = time.monotonic()

        median = median_scrape(agent)
        tell(f"median of {SCRAPES} scrapes while a call {trouble.__name__}: {median * 1000:.1f} ms")
        assert median < FAST
        gone = agent.wait_for(lambda seen: not shows_devices(seen))
        assert time.monotonic() - began < MAX_AGE + NORMAL + 2
        # Old values of the other GPU are as old as those of the sick one.
        assert not gone.has("accel_temperature_celsius", device="0")
        # What is read seldom may be older, and goes last; it makes no device healthy.
        assert gone.value("accel_devices_reporting") == 0
        gone = agent.wait_for(lambda seen: not seen.has("accel_power_limit_watts"))
        assert time.monotonic() - began < SLOW_MAX_AGE + NORMAL + 2
        assert gone.value("accel_devices_present") == 2
        assert gone.value("accel_health_state", device="0", state="unknown") == 1
        assert gone.has("accel_info", device="0")
        assert gone.has("accel_sample_timestamp_seconds", device="1")

        seen = agent.wait_for(lambda seen: seen.state() == state)
        assert seen.value("accel_exporter_collector_up", collector="nvidia") == 0
        # It is tried again, and fails again.
        seen = agent.wait_for(lambda seen: seen.value("accel_exporter_collector_restarts_total", cause=state) >= 2)
        if state == "crashed":
            assert seen.value("accel_exporter_collector_crash_signals_total", signal="SIGSEGV") >= 2
        assert not shows_devices(seen)
        assert median_scrape(agent) < FAST

        here.nvml.apply(HEALTHY)
        seen = agent.wait_for(shows_devices)
        assert seen.state() == "running"
        assert first_worker not in children(agent.process.pid)
        until(lambda: len(children(agent.process.pid)) == 1, "there are several workers")
        until(lambda: descriptors(agent.process.pid) <= files, "files stay open")


def test_a_slow_call_within_the_deadline_loses_nothing(tmp_path: Path) -> None:
    here = place(tmp_path, scenarios.slow(HEALTHY, "gpu 1", TEMPERATURE, 250))
    with Agent.start(tmp_path, here.environ, config(here)) as agent:
        agent.wait_for(shows_devices)
        assert median_scrape(agent) < FAST
        seen = agent.wait_for(lambda seen: seen.value("accel_exporter_collector_duration_seconds_count") >= 4)
        assert shows_devices(seen)
        assert seen.value("accel_exporter_collector_restarts_total", cause="timeout") == 0


def test_a_driver_that_is_loaded_later_needs_no_restart_of_the_agent(tmp_path: Path) -> None:
    here = place(tmp_path, scenarios.fails(HEALTHY, "system", "nvmlInitWithFlags", 9))
    with Agent.start(tmp_path, here.environ, config(here)) as agent:
        seen = agent.wait_for(lambda seen: seen.state() == "no_driver")
        assert not seen.has("accel_info")
        assert seen.value("accel_devices_present") == 2
        # Of a vendor that is absent only its state is shown.
        assert {sample.name for sample in seen.samples if sample.labels.get("collector") == "nvidia"} == {
            "accel_exporter_collector_up",
            "accel_exporter_collector_state",
        }
        assert len(seen.all("accel_exporter_collector_state", collector="nvidia")) == 1
        assert agent.get("/readyz").status == 200
        assert "modprobe nvidia" in agent.get("/").body.decode()
        here.nvml.apply(HEALTHY)
        assert agent.wait_for(shows_devices).state() == "running"


def test_a_driver_that_is_unloaded_takes_its_series_along(tmp_path: Path) -> None:
    here = place(tmp_path, HEALTHY)
    with Agent.start(tmp_path, here.environ, config(here)) as agent:
        agent.wait_for(shows_devices)
        gone = scenarios.fails(HEALTHY, "system", "nvmlInitWithFlags", 9)
        for gpu in gone.headers("gpu"):
            gone = gone.with_keys(gpu, {"rc": 9})
        here.nvml.apply(gone)
        agent.wait_for(lambda seen: seen.state() == "no_driver" and not shows_devices(seen))
        here.nvml.apply(HEALTHY)
        assert agent.wait_for(shows_devices).state() == "running"


def test_version_skew_is_tried_again_in_a_new_process(tmp_path: Path) -> None:
    """The library stays mapped for the life of a process, so only a new one can load the new."""
    here = place(tmp_path, scenarios.fails(HEALTHY, "system", "nvmlInitWithFlags", 18))
    with Agent.start(tmp_path, here.environ, config(here)) as agent:
        seen = agent.wait_for(lambda seen: seen.state() == "version_mismatch")
        assert not seen.has("accel_info")
        agent.wait_for(
            lambda seen: seen.value("accel_exporter_collector_restarts_total", cause="version_mismatch") >= 2
        )
        here.nvml.apply(HEALTHY)
        assert agent.wait_for(shows_devices).state() == "running"


def test_a_gpu_that_may_not_be_opened_does_not_cost_the_others(tmp_path: Path) -> None:
    here = place(tmp_path, scenarios.no_permission(HEALTHY, 0))
    with Agent.start(tmp_path, here.environ, config(here)) as agent:
        seen = agent.wait_for(lambda seen: seen.has("accel_temperature_celsius", device="1"))
        assert not seen.has("accel_info", device="0")
        assert seen.value("accel_devices_present") == 2
        assert seen.value("accel_devices_reporting") == 1
        assert seen.value("accel_exporter_collector_errors_total", kind="permission") == 1
        told = [event for event in agent.log if "permission" in event["message"]]
        assert len(told) == 1


def test_a_lost_gpu_is_failed_and_the_others_go_on(tmp_path: Path) -> None:
    here = place(tmp_path, HEALTHY)
    with Agent.start(tmp_path, here.environ, config(here)) as agent:
        agent.wait_for(shows_devices)
        here.nvml.apply(scenarios.lost(HEALTHY, 1))
        seen = agent.wait_for(lambda seen: not shows_devices(seen))
        assert seen.value("accel_health_state", device="1", state="failed") == 1
        assert seen.value("accel_health_state", device="0", state="healthy") == 1
        assert seen.value("accel_devices_expected") == 2
        # Nobody knows that it needs nothing.
        assert not seen.has("accel_recovery_action", device="1")


def test_a_library_that_prints_to_standard_output_disturbs_nothing(tmp_path: Path) -> None:
    here = place(tmp_path, scenarios.noisy(HEALTHY))
    with Agent.start(tmp_path, here.environ, config(here)) as agent:
        agent.wait_for(shows_devices)
        samples = "accel_exporter_collector_duration_seconds_count"
        before = agent.scrape().value(samples)
        seen = agent.wait_for(lambda seen: seen.value(samples) >= before + 3)
        assert seen.state() == "running"
        assert "chatter" not in agent.output
        # A library can fill a disk through its log: what passes is bounded.
        assert sum("chatter" in event["message"] for event in agent.log) <= 31
