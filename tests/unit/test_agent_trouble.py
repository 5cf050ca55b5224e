"""A fault of the agent itself: nobody waits for ever, and Kubernetes is told."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from exporter.agent import Agent
from exporter.program import Source, read
from exporter.selfmetrics import SelfMetrics
from exporter.supervisor import Runner


def test_a_collector_that_ends_unexpectedly_is_trouble_and_no_hang(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(_: Runner) -> None:
        raise ZeroDivisionError("a fault of the agent")

    async def live() -> str:
        program = read(Source(None, {"root": str(tmp_path)}), {})
        agent = Agent(program.config, program.members, SelfMetrics())
        agent.start()
        await asyncio.wait_for(agent.settled(), 10)
        await agent.stop()
        return agent.trouble

    monkeypatch.setattr(Runner, "run", broken)
    assert "ZeroDivisionError" in asyncio.run(live())
    assert "a fault of the agent" in caplog.text
