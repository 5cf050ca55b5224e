"""The agent as a whole, without its server, on the vendor that does not exist."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from collectors.base import HostPaths
from exporter.agent import Agent
from exporter.assemble import Member
from exporter.config import Config, Intervals, Paths
from exporter.config.attribution import Attribution, StaticOwner
from exporter.model import Number
from exporter.publisher import Publisher
from exporter.selfmetrics import SelfMetrics
from exporter.spec import CollectorSpec
from exporter.status.live import collectors
from exporter.view import ViewOptions
from tests.acme import FOLDER, catalogue, series

WORLD = {
    "devices": [{"uuid": "ACME-0", "index": "0"}],
    "readings": {"normal": [["acme_power_mw", 0, 5000, []]]},
}


class Stage:
    """An agent with one collector whose devices do what a file says."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "world.json"
        self.set(WORLD)
        for name in ("sys", "dev", "proc", "run"):
            (folder / name).mkdir()
        paths = HostPaths(**{name: str(folder / name) for name in ("sys", "dev", "proc", "run")})
        tables = catalogue()
        self.member = Member(
            spec=CollectorSpec(
                name="acme",
                catalogue=tables,
                module="acme_accel",
                tables=str(FOLDER),
                wanted=tables.wanted(frozenset(tables.series), common=True),
                paths=paths,
                options={"world": str(self.path)},
                environ={"PYTHONPATH": str(FOLDER.parent)},
                detect=False,
            ),
            view=ViewOptions(raw=frozenset(tables.series), max_age={"fast": 1.0, "normal": 1.0, "slow": 60.0}),
        )
        self.config = Config(
            node="n",
            intervals=Intervals(fast=0.1, normal=0.1, slow=10.0),
            paths=Paths(sys=str(folder / "sys"), dev=str(folder / "dev"), proc=str(folder / "proc")),
        )

    def set(self, world: dict[str, Any]) -> None:
        fresh = self.path.with_suffix(".new")
        fresh.write_text(json.dumps(world))
        fresh.replace(self.path)

    def play(self, story: Callable[[Agent], Coroutine[Any, Any, None]], config: Config | None = None) -> None:
        async def run() -> None:
            agent = Agent(config or self.config, [self.member], SelfMetrics())
            agent.start()
            try:
                await asyncio.wait_for(agent.settled(), 10)
                await story(agent)
            finally:
                await agent.stop()

        asyncio.run(run())


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


@pytest.fixture
def importable(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The vendor's package can be imported by the agent itself, and nothing of it stays for the next test."""
    monkeypatch.syspath_prepend(FOLDER.parent)
    yield
    for name in [name for name in sys.modules if name.split(".")[0] == FOLDER.name]:
        del sys.modules[name]


def power(agent: Agent) -> list[Number]:
    return [value for text, value in series(agent.publication).items() if text.startswith("accel_power_watts{")]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.01)


def test_publications_follow_samples_and_go_on_without_them(stage: Stage) -> None:
    async def story(agent: Agent) -> None:
        assert power(agent) == [5]
        stage.set({**WORLD, "do_sample": "hang"})
        await until(lambda: power(agent) == [])
        version = agent.publication.version
        await until(lambda: agent.publication.version > version + 2)

    stage.play(story)


def test_a_fault_of_the_agent_shows_no_frozen_number_and_is_seen_from_outside(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(agent: Agent) -> None:
        publish = agent._publisher.publish

        def broken(*_: Any, **__: Any) -> Any:
            raise ZeroDivisionError

        monkeypatch.setattr(agent._publisher, "publish", broken)
        await until(lambda: "ZeroDivisionError" in agent.trouble)
        assert agent.publication.families == ()
        monkeypatch.setattr(agent._publisher, "publish", publish)
        await until(lambda: power(agent) == [5])
        assert agent.trouble == ""

    stage.play(story)


def test_a_collector_whose_series_cannot_be_made_is_down_and_the_agent_is_not(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(agent: Agent) -> None:
        def up() -> float | None:
            return agent.metrics.registry.get_sample_value("accel_exporter_collector_up", {"collector": "acme"})

        await until(lambda: up() == 1)
        made = Publisher._made

        def broken(*_: Any, **__: Any) -> Any:
            raise ZeroDivisionError

        monkeypatch.setattr(Publisher, "_made", broken)
        await until(lambda: up() == 0)
        assert agent.trouble == ""
        assert power(agent) == []
        [told] = collectors(agent.runners, {"fast": 9.0, "normal": 9.0, "slow": 9.0}, agent.without_series)
        assert (told.state, "ZeroDivisionError" in told.hint) == ("failed", True)
        monkeypatch.setattr(Publisher, "_made", made)
        await until(lambda: up() == 1 and power(agent) == [5])

    stage.play(story)


def test_attribution_that_fails_takes_nothing_with_it(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise KeyError("x")

    monkeypatch.setattr("exporter.attribution.join.settle", broken)
    attribution = Attribution(static=(StaticOwner(devices=("0",), tenant="lab"),))

    async def story(agent: Agent) -> None:
        assert power(agent) == [5]
        assert agent.trouble == ""

    stage.play(story, msgspec.structs.replace(stage.config, attribution=attribution))


def test_a_reload_touches_only_what_it_changes(stage: Stage) -> None:
    async def story(agent: Agent) -> None:
        [runner] = agent.runners
        owner = StaticOwner(devices=("0",), tenant="lab", job_name="j")
        config = msgspec.structs.replace(stage.config, attribution=Attribution(static=(owner,)))
        view = msgspec.structs.replace(stage.member.view, node="other")
        await agent.reload(config, [msgspec.structs.replace(stage.member, view=view)])
        await until(
            lambda: any('node="other"' in text and 'tenant="lab"' in text for text in series(agent.publication))
        )
        assert agent.runners == [runner]
        await agent.reload(config, [])
        await until(lambda: agent.publication.families == ())
        assert Path(f"{stage.path}.closed").exists()

    stage.play(story)


@pytest.mark.usefixtures("importable")
def test_a_service_that_a_vendors_programs_ask_is_offered_where_it_is_wanted(stage: Stage) -> None:
    told = Path(stage.member.spec.paths.run) / "told"
    plain = stage.member
    options = {**plain.spec.options, "ask": True}
    stage.member = msgspec.structs.replace(plain, spec=msgspec.structs.replace(plain.spec, options=options))

    async def story(agent: Agent) -> None:
        await until(lambda: told.exists() and told.read_text() == "ACME-0=healthy")
        await agent.reload(stage.config, [plain])
        assert told.read_text() == "stopped"

    stage.play(story)


@pytest.mark.usefixtures("importable")
def test_a_service_that_cannot_be_offered_leaves_the_rest_alone(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    Path(stage.member.spec.paths.run).rmdir()
    options = {**stage.member.spec.options, "ask": True}
    spec = msgspec.structs.replace(stage.member.spec, options=options)
    stage.member = msgspec.structs.replace(stage.member, spec=spec)

    async def story(agent: Agent) -> None:
        assert power(agent) == [5]
        await until(lambda: "a service is not offered" in caplog.text)

    stage.play(story)
