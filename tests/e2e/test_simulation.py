"""The simulated node: for those who have no accelerator at hand, and never to be mistaken for a real one."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.e2e.agent import Agent
from tests.e2e.conftest import Tell
from tests.e2e.host import make_host

GPUS = 8
SOON = 5.0
"""Seconds from the process's start to its first devices. 2 are promised; a busy machine gets more."""


def test_a_simulated_node_serves_soon_and_says_what_it_is(tmp_path: Path, tell: Tell) -> None:
    began = time.monotonic()
    with Agent.start(tmp_path, dict(os.environ), {}, "--simulate", f"nvidia={GPUS}", ready=False) as agent:
        seen = agent.wait_for(lambda seen: seen.has("accel_power_watts", device=str(GPUS - 1)))
        seconds = time.monotonic() - began
        tell(f"from the start to the first simulated devices: {seconds:.2f} s")
        assert seconds < SOON
        infos = seen.all("accel_info", vendor="nvidia")
        assert {sample.labels["device"] for sample in infos} == {str(i) for i in range(GPUS)}
        assert {sample.labels["simulated"] for sample in infos} == {"true"}
        assert len(seen.all("DCGM_FI_DEV_GPU_TEMP")) == GPUS
        assert "SIMULATED" in agent.output
        assert f"{GPUS} × nvidia" in agent.output
        assert "SIMULATED" in agent.get("/").body.decode()


def test_a_host_with_accelerators_is_not_simulated(tmp_path: Path) -> None:
    host = make_host(tmp_path, gpus=1)
    with Agent.start(tmp_path, dict(os.environ), {"paths": {"root": str(host.root)}}, "--demo") as agent:
        assert "SIMULATED" not in agent.output
        assert not agent.scrape().has("accel_info", simulated="true")


def test_a_host_without_accelerators_is_simulated_on_demand_alone(tmp_path: Path) -> None:
    host = make_host(tmp_path)
    config = {"paths": {"root": str(host.root)}}
    (tmp_path / "plain").mkdir()
    with Agent.start(tmp_path / "plain", dict(os.environ), config) as agent:
        seen = agent.scrape()
        assert "SIMULATED" not in agent.output
        assert seen.state() == "no_device"
        assert not seen.has("accel_info")
    with Agent.start(tmp_path, dict(os.environ), config, "--demo") as agent:
        assert "SIMULATED" in agent.output
        assert agent.wait_for(lambda seen: seen.has("accel_info")).has("accel_info", simulated="true")


@pytest.mark.parametrize("text", ["nvidia", "nvidia=0", "nvidia=x", "acme=1"])
def test_a_wrong_simulation_is_refused(text: str) -> None:
    result = subprocess.run(
        [sys.executable, "-m", "exporter", "serve", "--simulate", text, "--listen", "127.0.0.1:0"],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert result.returncode == 2
    assert "simulate" in result.stderr
    assert "Traceback" not in result.stderr
