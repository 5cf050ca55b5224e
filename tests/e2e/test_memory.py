"""How much memory the agent and its worker take: told, not judged here. The benchmarks judge it."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.measure import descendants, usage
from tests.e2e.agent import Agent
from tests.e2e.conftest import Tell
from tests.e2e.worlds import place
from tests.fakes.nvml import scenarios

pytestmark = pytest.mark.gcc


def test_memory_of_all_processes_is_told(tmp_path: Path, tell: Tell) -> None:
    here = place(tmp_path, scenarios.h100(8))
    with Agent.start(tmp_path, here.environ, here.config()) as agent:
        agent.wait_for(lambda seen: seen.has("accel_power_watts", device="7"))
        processes = descendants(agent.process.pid)
        found = usage(agent.process.pid)
        tell(f"PSS of the agent and its worker, 8 GPUs: {found.memory.pss / 2**20:.1f} MiB")
        # The agent and one worker: vendors that are not here cost none.
        assert len(processes) == 2
        assert found.memory.pss > 0
