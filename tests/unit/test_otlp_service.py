"""The push as a whole: it goes on after a fault of its own, and its receivers come and go."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from exporter.config import Config, Paths
from exporter.config.otlp import Otlp, OtlpEndpoint
from exporter.families import Block, Family, Publication
from exporter.model import Allocation
from exporter.otlp import service
from exporter.otlp.service import Push
from exporter.selfmetrics import SelfMetrics
from tests.otlp import points
from tests.otlp_rig import OTHER, POD, START, common, labels, publication
from tests.otlp_servers import Server, receiver
from tests.serving import run, until

POWER = publication(common("accel_power_watts", (labels(), 5.0)))
Source = Callable[[], Publication]


def config(tmp_path: Path, *endpoints: str, **otlp: Any) -> Config:
    every = tuple(OtlpEndpoint(endpoint=url, interval=1.0) for url in endpoints)
    return Config(node="node-1", paths=Paths(etc=str(tmp_path)), otlp=Otlp(endpoints=every, stop_timeout=2, **otlp))


def push(settings: Config, source: Source = lambda: POWER) -> Push:
    made = Push(settings, SelfMetrics(), source, began=round(START * 1e9))
    made.start()
    return made


def names(server: Server) -> list[str]:
    return [point.name for point in points(got.body for got in server.got)]


def test_the_first_export_comes_soon_and_the_last_one_when_it_stops(tmp_path: Path) -> None:
    async def test() -> None:
        async with receiver() as server:
            made = push(config(tmp_path, server.url))
            await until(lambda: "hw.power" in names(server))
            count = len(server.got)
            await made.stop()
            assert count < len(server.got) <= count + 2

    run(test)


def test_a_stop_right_after_the_start_is_no_trouble(tmp_path: Path) -> None:
    async def test() -> None:
        await push(config(tmp_path, "http://127.0.0.1:9")).stop()

    run(test)


def test_an_export_that_breaks_is_told_once_and_the_next_one_is_made(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = Family("accel_unheard_of", "gauge", "?", "common", POWER.families[0].blocks)
    served = [publication(wrong)]

    async def test() -> None:
        async with receiver() as server:
            settings = config(tmp_path, server.url)
            made = push(settings, lambda: served[0])
            await until(lambda: "an export broke" in caplog.text)
            served[0] = POWER
            await until(lambda: "hw.power" in names(server))
            await made.stop()

    run(test)
    assert caplog.text.count("an export broke") == 1


def test_a_publication_that_is_not_understood_disturbs_nobody(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    counted = Family("accel_unheard_of_total", "counter", "?", "common", (Block(('a{uuid="U0"} ',), (1,)),))
    allocations: list[Allocation] = [{("U0", ""): (POD,)}, {("U0", ""): (OTHER,)}]

    async def test() -> None:
        async with receiver() as server:
            made = push(config(tmp_path, server.url))
            await until(lambda: bool(server.got))
            for allocation in allocations:
                made.observe(publication(counted, allocation=allocation))
            await made.stop()

    run(test)
    assert caplog.text.count("a publication is not understood") == 1


def test_a_reload_leaves_receivers_alone_that_it_does_not_touch(tmp_path: Path) -> None:
    async def test() -> None:
        async with receiver() as first, receiver() as second:
            made = push(config(tmp_path, first.url))
            await until(lambda: bool(first.got))
            kept = made._receivers[0]
            await made.reload(config(tmp_path, first.url, second.url))
            assert made._receivers[0] is kept
            await until(lambda: bool(second.got))
            await made.reload(config(tmp_path, second.url))
            assert len(made._receivers) == 1
            # What all depend on begins all anew.
            before = made._receivers[0]
            await made.reload(config(tmp_path, second.url, resource_attributes={"team": "a"}))
            assert made._receivers[0] is not before
            count = len(second.got)
            await until(lambda: len(second.got) > count)
            await made.stop()
        assert points([second.got[-1].body])[0].resource["team"] == "a"

    run(test)


def test_a_detector_that_takes_its_time_delays_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()

    def slow(config: Config) -> dict[str, str]:
        assert release.wait(20)
        return {"host.name": "slow"}

    async def test() -> None:
        async with receiver() as server:
            made = push(config(tmp_path, server.url))
            made.observe(POWER)
            # The event loop is free meanwhile: this would not go on otherwise.
            await asyncio.sleep(0.05)
            assert server.got == []
            release.set()
            await until(lambda: bool(server.got))
            await made.stop()
        assert points([server.got[0].body])[0].resource == {"host.name": "slow"}

    monkeypatch.setattr(service, "detect", slow)
    run(test)


def test_settings_of_a_receiver_are_all_it_needs() -> None:
    endpoint = OtlpEndpoint(endpoint="http://c", schema="raw", names="prometheus", include=("a*",), exclude=("ab",))
    chosen = service.selection(endpoint)
    assert msgspec.structs.asdict(chosen) == {
        "schema": "raw",
        "names": "prometheus",
        "include": ("a*",),
        "exclude": ("ab",),
    }
    assert [chosen.takes(name) for name in ("a", "ab", "abc", "b")] == [True, False, True, False]
