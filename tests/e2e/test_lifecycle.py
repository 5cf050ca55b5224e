"""Signals: the end, the release of the devices, another configuration."""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.e2e.agent import Agent, until
from tests.e2e.worlds import NODE, Place, place
from tests.fakes.kubelet.server import Kubelet, hanging
from tests.fakes.nvml import scenarios
from tests.fakes.nvml.build import Call

pytestmark = pytest.mark.gcc

HEALTHY = scenarios.h100(2)
SHUTDOWN = "nvmlShutdown"
INIT = "nvmlInitWithFlags"
RELOADED = "accel_exporter_config_reload_success"


def sessions(calls: Sequence[Call]) -> list[str]:
    """The beginnings and ends of NVML, in order."""
    return [call.function for call in calls if call.function in (INIT, SHUTDOWN)]


@pytest.fixture
def here(tmp_path: Path) -> Place:
    return place(tmp_path, HEALTHY)


def test_sigterm_lets_go_of_the_driver_and_ends_soon(here: Place, tmp_path: Path) -> None:
    with Agent.start(tmp_path, here.environ, here.config()) as agent:
        agent.wait_for(lambda seen: seen.state() == "running")
        assert agent.stop() < 2
        assert sessions(here.nvml.calls()) == [INIT, SHUTDOWN]
        assert here.nvml.calls()[-1].function == SHUTDOWN


def test_sigterm_during_a_reading_waits_for_its_end(here: Place, tmp_path: Path) -> None:
    """A client that is killed inside a call has frozen GPUs."""
    with Agent.start(tmp_path, here.environ, here.config()) as agent:
        agent.wait_for(lambda seen: seen.state() == "running")
        here.nvml.apply(scenarios.slow(HEALTHY, "gpu 0", "nvmlDeviceGetPowerUsage", 1500))
        before = len(here.nvml.calls())
        until(
            lambda: any(call.function == "nvmlDeviceGetPowerUsage" for call in here.nvml.calls()[before:]),
            "no reading begins",
        )
        agent.stop()
        assert sessions(here.nvml.calls()) == [INIT, SHUTDOWN]


def test_sigterm_during_a_hang_ends_all_the_same(here: Place, tmp_path: Path) -> None:
    config = here.config(collection={"deadline": 60, "stop_grace": 0.5})
    with Agent.start(tmp_path, here.environ, config) as agent:
        agent.wait_for(lambda seen: seen.state() == "running")
        here.nvml.apply(scenarios.hangs(HEALTHY, "gpu 0", "nvmlDeviceGetPowerUsage"))
        agent.wait_for(lambda seen: not seen.has("accel_power_watts"))
        assert agent.stop() < 4


def test_sigterm_while_the_kubelet_hangs_ends_all_the_same(here: Place, tmp_path: Path) -> None:
    with Kubelet(tmp_path / "kubelet.sock") as kubelet:
        kubelet.script = hanging(kubelet)
        kubernetes = {"enabled": True, "pod_resources_socket": str(kubelet.socket)}
        with Agent.start(tmp_path, here.environ, here.config(attribution={"kubernetes": kubernetes})) as agent:
            until(lambda: kubelet.questions, "the kubelet is not asked")
            assert agent.stop() < 4
            assert kubelet.answers == 0


def test_sigint_is_an_end_as_well(here: Place, tmp_path: Path) -> None:
    with Agent.start(tmp_path, here.environ, here.config()) as agent:
        agent.signal(signal.SIGINT)
        assert agent.process.wait(10) == 0


def test_release_closes_the_handles_and_comes_back(here: Place, tmp_path: Path) -> None:
    with Agent.start(tmp_path, here.environ, here.config(admin={"release": True})) as agent:
        agent.wait_for(lambda seen: seen.has("accel_power_watts"))
        answer = agent.get("/-/release?seconds=3", method="POST")
        assert (answer.status, answer.body) == (200, b"released: nothing is read for 3 seconds\n")
        # The answer comes when the handles are closed.
        assert sessions(here.nvml.calls()) == [INIT, SHUTDOWN]
        released = agent.scrape()
        assert released.state() == "released"
        until(lambda: not agent.scrape().has("accel_power_watts"), "values stay")
        assert sessions(here.nvml.calls()) == [INIT, SHUTDOWN]
        seen = agent.wait_for(lambda seen: seen.state() == "running" and seen.has("accel_power_watts"))
        assert seen.value("accel_exporter_collector_restarts_total", cause="failed") == 0
        assert sessions(here.nvml.calls()) == [INIT, SHUTDOWN, INIT]


def test_sigusr1_releases_as_well(here: Place, tmp_path: Path) -> None:
    with Agent.start(tmp_path, here.environ, here.config(admin={"release": True, "release_seconds": 30})) as agent:
        agent.wait_for(lambda seen: seen.state() == "running")
        agent.signal(signal.SIGUSR1)
        agent.wait_for(lambda seen: seen.state() == "released")
        assert sessions(here.nvml.calls()) == [INIT, SHUTDOWN]
        # It ends in this state, too.
        assert agent.stop() < 2


def test_nobody_can_release_unless_it_is_switched_on(here: Place, tmp_path: Path) -> None:
    with Agent.start(tmp_path, here.environ, here.config()) as agent:
        agent.wait_for(lambda seen: seen.state() == "running")
        answer = agent.get("/-/release", method="POST")
        assert answer.status == 403
        assert b"admin.release" in answer.body
        agent.signal(signal.SIGUSR1)
        until(lambda: "admin.release" in agent.log_text, "SIGUSR1 is not answered in the log")
        assert agent.scrape().state() == "running"
        assert sessions(here.nvml.calls()) == [INIT]


def test_another_configuration_changes_the_series(here: Place, tmp_path: Path) -> None:
    with Agent.start(tmp_path, here.environ, here.config()) as agent:
        first = agent.wait_for(lambda seen: seen.has("DCGM_FI_DEV_GPU_TEMP", gpu="0"))
        assert first.value(RELOADED) == 1
        began = time.time()
        agent.reload(here.config(schema={"raw": ["DCGM_FI_DEV_PSTATE"]}, labels={"node": False}))
        seen = agent.wait_for(lambda seen: seen.has("DCGM_FI_DEV_PSTATE", gpu="0"))
        assert {name for name in seen.names if name.startswith("DCGM_")} == {"DCGM_FI_DEV_PSTATE"}
        assert not [sample for sample in seen.all("accel_power_watts") if "node" in sample.labels]
        assert seen.value(RELOADED) == 1
        assert seen.value("accel_exporter_config_reload_timestamp_seconds") >= began
        # The driver was let go of in order.
        assert sessions(here.nvml.calls()) == [INIT, SHUTDOWN, INIT]


def test_what_a_new_configuration_does_not_touch_goes_on(here: Place, tmp_path: Path) -> None:
    with Agent.start(tmp_path, here.environ, here.config()) as agent:
        agent.wait_for(lambda seen: seen.has("accel_power_watts", node=NODE))
        agent.reload(here.config(labels={"node": False}))
        agent.wait_for(lambda seen: seen.has("accel_power_watts") and not seen.has("accel_power_watts", node=NODE))
        assert sessions(here.nvml.calls()) == [INIT]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("intervals: {normal: -1}", "intervals.normal"),
        ("intervalls: {normal: 1}", "intervalls"),
        ("intervals: [", "config.yaml"),
    ],
    ids=["value", "key", "no YAML"],
)
def test_a_wrong_configuration_leaves_the_old_one_in_force(here: Place, tmp_path: Path, text: str, told: str) -> None:
    good = here.config()
    with Agent.start(tmp_path, here.environ, good) as agent:
        agent.wait_for(lambda seen: seen.has("DCGM_FI_DEV_GPU_TEMP", gpu="0"))
        agent.reload(text)
        seen = agent.wait_for(lambda seen: seen.value(RELOADED) == 0)
        assert seen.has("DCGM_FI_DEV_GPU_TEMP", gpu="0")
        errors = [event for event in agent.log if event["level"] == "error"]
        assert len(errors) == 1
        assert told in errors[0]["message"]
        assert str(agent.config_file) in errors[0]["message"]
        agent.reload(good)
        agent.wait_for(lambda seen: seen.value(RELOADED) == 1)
        assert sessions(here.nvml.calls()) == [INIT]
