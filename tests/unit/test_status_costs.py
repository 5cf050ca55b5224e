"""What anyone may ask for again and again costs the agent once."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest

from exporter.agent import Agent
from exporter.config import Config
from exporter.families import Block, Family, Publication
from exporter.program import Program
from exporter.registry import Found
from exporter.selfmetrics import SelfMetrics
from exporter.status import Monitor, service
from exporter.status.history import History
from exporter.status.model import DeviceHistory
from tests.acme import FOLDER, catalogue
from tests.serving import run


class Stage:
    """A monitor of an agent that does not run, and how often each of its costly parts was done."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.counts = {"load": 0, "rows": 0}
        for name in self.counts:
            monkeypatch.setattr(service, name, self._counted(name, getattr(service, name)))
        self.program = self.with_node("one")
        self.monitor = Monitor(Agent(self.program.config, (), SelfMetrics()), lambda: self.program)

    def _counted(self, name: str, function: Any) -> Any:
        def counted(*arguments: Any) -> Any:
            self.counts[name] += 1
            return function(*arguments)

        return counted

    def with_node(self, name: str) -> Program:
        found: Mapping[str, Any] = {"acme": (Found("acme", "acme_accel", FOLDER), catalogue())}
        return Program(config=Config(node=name), catalogues=found, members=(), simulated=False)

    def node(self) -> object:
        return next(each.value for each in self.monitor.config().settings if each.key == "node")


def test_the_configuration_is_described_once_until_another_is_in_force(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(monkeypatch)
    assert [stage.node() for _ in range(5)] == ["one"] * 5
    assert stage.counts["load"] == 1
    stage.program = stage.with_node("two")
    assert [stage.node() for _ in range(5)] == ["two"] * 5
    assert stage.counts["load"] == 2


def test_the_mapping_is_made_once_for_each_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(monkeypatch)
    first = stage.monitor.mapping()
    assert all(stage.monitor.mapping() == first == stage.monitor.mapping("acme") for _ in range(5))
    assert stage.counts["rows"] == 2
    for _ in range(3):
        with pytest.raises(KeyError):
            stage.monitor.mapping("nobody")
    stage.program = stage.with_node("two")
    assert stage.monitor.mapping() == first
    assert stage.counts["rows"] == 3


def powers(number: int, devices: int) -> Publication:
    """Each device draws so many watts as the publication has for a number."""
    texts = tuple(f'accel_power_watts{{vendor="acme",uuid="U{device}"}} ' for device in range(devices))
    block = Block(texts, (number,) * devices)
    return Publication(number, (Family("accel_power_watts", "gauge", "Power.", "common", (block,)),))


def test_the_same_history_is_written_once_for_all_who_ask_and_others_have_their_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = Stage(monkeypatch)
    written: list[DeviceHistory] = []
    turns: list[int] = []
    devices = History.devices

    def counted(self: History, since: float = 0.0) -> Any:
        for each in devices(self, since):
            written.append(each)
            yield each

    monkeypatch.setattr(History, "devices", counted)

    async def others() -> None:
        while True:
            turns.append(len(written))
            await asyncio.sleep(0)

    async def test() -> None:
        stage.monitor.recorded.record(powers(1, 30), 1.0)
        other = asyncio.create_task(others())
        answers = await asyncio.gather(*[stage.monitor.history() for _ in range(8)])
        other.cancel()
        assert len(written) == 30
        # Between any two devices.
        assert set(turns) >= set(range(1, 30))
        assert {each.times for each in answers} == {(1.0,)}
        stage.monitor.recorded.record(powers(2, 30), 2.0)
        whole, newest = await stage.monitor.history(), await stage.monitor.history(1.0)
        assert (whole.times, newest.times) == ((1.0, 2.0), (2.0,))
        assert whole.devices[0].power_watts == (1.0, 2.0)
        assert newest.devices[0].power_watts == (2.0,)

    run(test)


def test_a_change_of_the_period_is_told_though_the_points_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(monkeypatch)

    async def test() -> Sequence[float]:
        stage.monitor.recorded.record(powers(1, 1), 1.0)
        before = (await stage.monitor.history()).period
        intervals = msgspec.structs.replace(stage.program.config.intervals, normal=9.0)
        config = msgspec.structs.replace(stage.program.config, intervals=intervals)
        stage.program = msgspec.structs.replace(stage.program, config=config)
        return before, (await stage.monitor.history()).period

    before, after = run(test)
    assert (before == 9.0, after) == (False, 9.0)
