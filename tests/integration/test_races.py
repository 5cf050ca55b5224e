"""What happens at the same moment: releases, ends, new configurations, and an agent that stood still."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from exporter.agent import Agent
from exporter.config.attribution import Attribution, StaticOwner
from exporter.model import Read, Reply, Request
from exporter.process import WorkerProcess
from exporter.selfmetrics import SelfMetrics
from exporter.supervisor import Runner
from exporter.troubles import MAX_TROUBLES
from tests.acme import series
from tests.integration.test_agent import Stage, power
from tests.integration.test_supervisor import World, live, running, until


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def test_a_release_and_an_end_at_the_same_moment_end(world: World) -> None:
    async def tell() -> None:
        task = asyncio.create_task(world.runner.run())
        await running(world)
        release = asyncio.create_task(world.runner.release(60.0))
        await asyncio.sleep(0)
        task.cancel()
        async with asyncio.timeout(10):
            await asyncio.gather(task, release, return_exceptions=True)
        assert task.cancelled()

    asyncio.run(tell())
    assert len(world.closed()) == 1


def test_a_release_while_signs_are_looked_for_opens_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    looking, go_on = asyncio.Event(), asyncio.Event()

    async def devices() -> None:
        looking.set()
        await go_on.wait()

    monkeypatch.setattr(world.runner._bus, "devices", devices)
    started: list[str] = []
    monkeypatch.setattr(WorkerProcess, "start", lambda name, _: started.append(name))

    async def story(world: World) -> None:
        await looking.wait()
        await world.runner.release(60.0)
        go_on.set()
        await asyncio.sleep(0.1)
        assert world.runner.state == "released"
        assert started == []

    live(world, story)


def test_a_release_while_a_worker_starts_opens_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    start = WorkerProcess.start
    there, go_on = asyncio.Event(), asyncio.Event()

    async def slowly(name: str, environ: dict[str, str]) -> WorkerProcess:
        worker = await start(name, environ)
        there.set()
        await go_on.wait()
        return worker

    monkeypatch.setattr(WorkerProcess, "start", slowly)

    async def story(world: World) -> None:
        async with asyncio.timeout(10):
            await there.wait()
            release = asyncio.create_task(world.runner.release(60.0))
            await asyncio.sleep(0.05)
            go_on.set()
            await release
        assert world.runner.state == "released"
        await asyncio.sleep(0.2)
        assert world.runner.snapshot is None

    live(world, story)
    assert world.closed() == []


def test_a_start_that_is_cut_short_leaves_no_process() -> None:
    """At each of the moments in which it can be."""

    def children() -> set[int]:
        return {int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()}

    async def cut(steps: int) -> bool:
        start = asyncio.create_task(WorkerProcess.start("acme", dict(os.environ)))
        for _ in range(steps):
            await asyncio.sleep(0)
        start.cancel()
        try:
            worker = await start
        except asyncio.CancelledError:
            return True
        await worker.end(0)
        await worker.dispose()
        return False

    before = children()
    cuts = []
    for steps in range(1, 20):
        cuts.append(asyncio.run(cut(steps)))
        assert children() == before
    assert (cuts[0], cuts[-1]) == (True, False)


def test_a_worker_that_cannot_be_started_leaves_no_descriptor(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> Any:
        raise BlockingIOError(errno.EAGAIN, "no process is left")

    monkeypatch.setattr(subprocess, "Popen", full)
    before = set(Path("/proc/self/fd").iterdir())

    async def tell() -> None:
        with pytest.raises(BlockingIOError):
            await WorkerProcess.start("acme", {})

    asyncio.run(tell())
    assert set(Path("/proc/self/fd").iterdir()) == before


def test_a_release_holds_for_what_a_new_configuration_brings(stage: Stage) -> None:
    async def story(agent: Agent) -> None:
        await agent.release(60.0)
        other = msgspec.structs.replace(stage.member.spec, node="another")
        await agent.reload(stage.config, [msgspec.structs.replace(stage.member, spec=other)])
        await asyncio.sleep(0.5)
        [runner] = agent.runners
        assert runner.state == "released"
        assert runner.snapshot is None

    stage.play(story)


def test_a_vendor_that_is_switched_on_later_is_shown_with_its_workloads(stage: Stage) -> None:
    owner = StaticOwner(devices=("0",), tenant="lab", job_name="j")
    config = msgspec.structs.replace(stage.config, attribution=Attribution(static=(owner,)))

    async def tell() -> None:
        agent = Agent(config, [], SelfMetrics())
        agent.start()
        try:
            await agent.reload(config, [stage.member])
            await until(lambda: power(agent) == [5])
            assert any('tenant="lab"' in text for text in series(agent.publication))
            assert agent.trouble == ""
        finally:
            await agent.stop()

    asyncio.run(tell())


def test_a_vendor_that_is_switched_off_takes_nothing_with_it(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    owners = [(StaticOwner(tenant=name),) for name in ("lab", "other")]
    config, other = (msgspec.structs.replace(stage.config, attribution=Attribution(static=each)) for each in owners)
    troubles: list[str] = []

    async def story(agent: Agent) -> None:
        async def slowly() -> None:
            # The new tables are in force, and the old collector has not ended.
            agent._changed()
            await asyncio.sleep(0.05)
            troubles.append(agent.trouble)

        monkeypatch.setattr(agent, "_serve_vendors", slowly)
        await agent.reload(other, [])

    stage.play(story, config)
    assert troubles == [""]


def test_a_storm_of_events_is_published_together(stage: Stage) -> None:
    async def story(agent: Agent) -> None:
        before, began = agent.publication.version, time.monotonic()
        while time.monotonic() < began + 1.0:
            agent._changed()
            await asyncio.sleep(0)
        # Ten a second, and those that the standstill of a busy machine adds.
        assert 3 <= agent.publication.version - before <= 15
        assert power(agent) == [5]

    stage.play(story)


def test_after_a_standstill_nothing_stale_is_seen_even_once(stage: Stage) -> None:
    async def story(agent: Agent) -> None:
        assert power(agent) == [5]
        time.sleep(1.5)  # noqa: ASYNC251 - the event loop stands still, as under SIGSTOP
        assert power(agent) == []
        await until(lambda: power(agent) == [5])

    stage.play(story)


def test_an_answer_that_waited_for_the_agent_is_as_old_as_its_question(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = WorkerProcess.ask

    async def late(self: WorkerProcess, request: Request, deadline: float) -> Reply:
        reply = await ask(self, request, deadline)
        if isinstance(request, Read):
            time.sleep(0.3)  # noqa: ASYNC251 - the agent stands still while the answer is there
        return reply

    async def story(world: World) -> None:
        await running(world)
        ages = {group: time.monotonic() - sample.taken_monotonic for group, sample in world.snapshot.groups.items()}
        assert min(ages.values()) >= 0.3

    monkeypatch.setattr(WorkerProcess, "ask", late)
    live(world, story)


def test_a_collector_for_which_there_is_no_thread_is_tried_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    to_thread = asyncio.to_thread

    def no_thread(*_: Any) -> Any:
        raise RuntimeError("can't start new thread")

    async def story(world: World) -> None:
        await until(lambda: world.runner.state == "failed")
        assert "can't start new thread" in world.runner.hint
        assert "limits" in world.runner.hint
        monkeypatch.setattr(asyncio, "to_thread", to_thread)
        await running(world)

    monkeypatch.setattr(asyncio, "to_thread", no_thread)
    live(world, story)


def test_a_flood_of_troubles_is_bounded_in_the_log_and_hides_no_death(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    def told(runner: Runner) -> None:
        for number in range(5000):
            runner.troubles.say(f"transient: {number}", "normal")
        runner._failed("crashed", "SIGSEGV", "report it")

    async def story(world: World) -> None:
        await running(world)
        told(world.runner)

    with caplog.at_level(logging.WARNING):
        live(world, story)
    texts = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert sum(text.startswith("transient: ") for text in texts) == MAX_TROUBLES
    assert "crashed: SIGSEGV" in texts
