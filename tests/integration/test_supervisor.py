"""Rows of the failure table, with a real worker process."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from collectors.base import HostPaths
from exporter.detection import Bus
from exporter.model import Snapshot
from exporter.selfmetrics import SelfMetrics
from exporter.spec import CollectorSpec, Timing
from exporter.supervisor import Runner
from tests.acme import FOLDER, catalogue

DEVICES = [{"uuid": "ACME-0", "index": "0"}, {"uuid": "ACME-1", "index": "1"}]
GOOD: dict[str, Any] = {
    "devices": DEVICES,
    "readings": {"normal": [["acme_power_mw", 0, 5000, []], ["acme_power_mw", 1, 7000, []]]},
}


class World:
    """A runner on the collector whose devices do what a file says."""

    def __init__(self, folder: Path, **timing: Any) -> None:
        self.path = folder / "world.json"
        self.sys, self.dev = folder / "sys", folder / "dev"
        (self.sys / "bus/pci/devices").mkdir(parents=True)
        self.dev.mkdir()
        (self.dev / "acme0").touch()
        self.set(GOOD)
        self.metrics = SelfMetrics()
        self.faults: list[str] = []
        tables = catalogue()
        settings: dict[str, Any] = {
            "periods": {"fast": 0.1, "normal": 0.1, "slow": 30.0},
            "deadline": 0.5,
            "startup_deadline": 5.0,
            "backoff_min": 0.05,
            "backoff_max": 0.2,
            "retry_unavailable": 0.2,
            "stop_grace": 3.0,
        }
        self.runner = Runner(
            CollectorSpec(
                name="acme",
                catalogue=tables,
                module="acme_accel",
                tables=str(FOLDER),
                wanted=tables.wanted(frozenset(tables.series), common=True),
                paths=HostPaths(sys=str(self.sys), dev=str(self.dev)),
                options={"world": str(self.path)},
                environ={"PYTHONPATH": str(FOLDER.parent)},
            ),
            Timing(**{**settings, **timing}),
            self.metrics,
            Bus(str(self.sys), max_age=0.05),
            changed=lambda: None,
            faulted=lambda _, __, faults: self.faults.extend(fault.code for fault in faults),
        )

    def set(self, world: dict[str, Any]) -> None:
        fresh = self.path.with_suffix(".new")
        fresh.write_text(json.dumps(world))
        fresh.replace(self.path)

    def metric(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(f"accel_exporter_{name}", {"collector": "acme", **labels}) or 0.0

    @property
    def snapshot(self) -> Snapshot:
        assert self.runner.snapshot is not None
        return self.runner.snapshot

    def power(self) -> list[float]:
        group = self.snapshot.groups["normal"]
        return [v for key, v in zip(group.layout, group.values, strict=True) if key.series == "acme_power_mw"]

    def closed(self) -> list[int]:
        path = Path(f"{self.path}.closed")
        return [int(line) for line in path.read_text().split()] if path.exists() else []


async def until(condition: Callable[[], bool], limit: float = 10.0) -> None:
    end = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < end, "it did not come to pass"
        await asyncio.sleep(0.01)


def live(world: World, story: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    async def tell() -> None:
        task = asyncio.create_task(world.runner.run())
        try:
            await story(world)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(tell())


async def running(world: World) -> None:
    await until(lambda: world.runner.state == "running")


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_samples_arrive_and_the_driver_is_let_go_at_the_end(world: World) -> None:
    async def story(world: World) -> None:
        await running(world)
        assert world.power() == [5000, 7000]
        world.set({**GOOD, "readings": {"normal": [["acme_power_mw", 0, 6000, []]]}})
        await until(lambda: world.power() == [6000])
        assert world.closed() == []

    live(world, story)
    assert len(world.closed()) == 1
    assert world.metric("collector_up") == 1


def test_a_vendor_without_any_sign_costs_no_process(world: World) -> None:
    (world.dev / "acme0").unlink()

    async def story(world: World) -> None:
        await until(lambda: world.runner.state == "no_device")
        (world.dev / "acme0").touch()
        await running(world)

    live(world, story)


def test_a_hanging_call_is_killed_and_reading_goes_on(world: World) -> None:
    async def story(world: World) -> None:
        await running(world)
        world.set({**GOOD, "do_sample": "hang"})
        began = time.monotonic()
        worst = 0.0
        while world.runner.state != "timeout":
            assert time.monotonic() - began < 10
            turn = time.monotonic()
            await asyncio.sleep(0.005)
            worst = max(worst, time.monotonic() - turn)
        assert worst < 0.5, "the event loop stood still"
        assert world.power() == [5000, 7000], "the last snapshot stays until it is stale"
        world.set(GOOD)
        await running(world)
        assert world.metric("collector_restarts_total", cause="timeout") >= 1

    live(world, story)


def test_a_crash_in_the_library_is_named_by_its_signal(world: World) -> None:
    async def story(world: World) -> None:
        await running(world)
        world.set({**GOOD, "do_sample": "crash"})
        await until(lambda: world.runner.state == "crashed")
        assert "SIGSEGV" in world.runner.hint
        world.set(GOOD)
        await running(world)
        assert world.metric("collector_crash_signals_total", signal="SIGSEGV") >= 1

    live(world, story)


@pytest.mark.parametrize(("what", "state"), [("exit", "crashed"), ("raise", "failed")])
def test_other_ends_restart_with_a_growing_pause(world: World, what: str, state: str) -> None:
    async def story(world: World) -> None:
        world.set({**GOOD, "do_discover": what})
        await until(lambda: world.metric("collector_restarts_total", cause=state) >= 3)
        assert world.runner.state == state
        world.set(GOOD)
        await running(world)

    live(world, story)


def test_what_a_library_prints_does_not_break_the_protocol(world: World) -> None:
    async def story(world: World) -> None:
        world.set({**GOOD, "do": "print"})
        await running(world)
        world.set({**GOOD, "do": "flood", "readings": {"normal": [["acme_power_mw", 0, 1, []]]}})
        await until(lambda: world.power() == [1])
        assert world.metric("collector_restarts_total", cause="crashed") == 0

    live(world, story)


def test_a_child_that_keeps_the_pipe_open_is_killed_with_its_worker(world: World) -> None:
    async def story(world: World) -> None:
        await running(world)
        world.set({**GOOD, "do_sample": "orphan"})
        await asyncio.sleep(0.3)
        world.set({**GOOD, "do_sample": "hang"})
        await until(lambda: world.runner.state == "timeout")
        world.set(GOOD)
        await running(world)

    live(world, story)
    assert not _children_named("sleep 300"), "a process was left behind"


def _children_named(text: str) -> list[str]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
            parent_session = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if command == text and parent_session[0] != "Z":
            found.append(folder.name)
    return found


def test_a_vendor_that_cannot_be_read_says_why_and_is_tried_again(world: World) -> None:
    async def story(world: World) -> None:
        world.set({"unavailable": ["no_driver", "load the driver"]})
        await until(lambda: world.runner.state == "no_driver")
        assert world.runner.hint == "load the driver"
        assert world.metric("collector_restarts_total", cause="crashed") == 0
        world.set(GOOD)
        await running(world)

    live(world, story)


def test_one_lost_device_leaves_the_others(world: World) -> None:
    async def story(world: World) -> None:
        await running(world)
        world.set({**GOOD, "lost": [1], "readings": {"normal": [["acme_power_mw", 0, 1, []]]}})
        await until(lambda: world.snapshot.lost == {1})
        assert world.power() == [1]
        assert len(world.snapshot.devices) == 2
        generation = world.snapshot.generation
        await until(lambda: world.snapshot.generation > generation)
        world.set(GOOD)
        await until(lambda: not world.snapshot.lost)

    live(world, story)


def test_a_changed_layout_is_discovered_without_a_restart(world: World) -> None:
    async def story(world: World) -> None:
        await running(world)
        parts = [*DEVICES, {"uuid": "ACME-0", "index": "0", "partition": "1g/1"}]
        world.set({**GOOD, "devices": parts, "rediscover": True})
        await until(lambda: len(world.snapshot.devices) == 3)
        assert world.metric("collector_restarts_total", cause="crashed") == 0
        assert world.closed() == []

    live(world, story)


def test_a_card_that_is_plugged_in_opens_the_library_anew(world: World) -> None:
    async def story(world: World) -> None:
        await running(world)
        folder = world.sys / "bus/pci/devices/0000:1a:00.0"
        folder.mkdir()
        for name, text in (("vendor", "0xacce"), ("device", "0x0001"), ("class", "0x030200")):
            (folder / name).write_text(text + "\n")
        await until(lambda: len(world.closed()) == 1)
        await running(world)

    live(world, story)


def test_faults_arrive_once(world: World) -> None:
    async def story(world: World) -> None:
        world.set({**GOOD, "faults": [[0, "acme:7", 1.0]]})
        await until(lambda: bool(world.faults))
        world.set(GOOD)
        await asyncio.sleep(0.3)

    live(world, story)
    assert set(world.faults) == {"acme:7"}


def test_garbage_from_a_collector_is_dropped_and_counted(world: World) -> None:
    rows = [
        ["acme_power_mw", 0, 5000, []],
        ["acme_power_mw", 0, 9999, []],
        ["acme_power_mw", 99, 1, []],
        ["acme_temperature", 0, float("nan"), []],
        ["acme_temperature", 1, float("inf"), []],
        ["acme_of_tomorrow", 0, 1, []],
        ["acme_link_bytes", 0, 2**70, [["link", "0"]]],
    ]

    async def story(world: World) -> None:
        world.set({**GOOD, "readings": {"normal": rows}, "unwanted": True})
        await running(world)
        group = world.snapshot.groups["normal"]
        assert dict(zip([(k.series, k.device) for k in group.layout], group.values, strict=True)) == {
            ("acme_power_mw", 0): 5000,
            ("acme_link_bytes", 0): float(2**70),
        }
        assert world.metric("collector_errors_total", kind="unknown_series") >= 2
        assert world.metric("collector_errors_total", kind="library") >= 1

    live(world, story)


def test_release_closes_the_driver_for_a_time(world: World) -> None:
    async def story(world: World) -> None:
        await running(world)
        await world.runner.release(0.5)
        assert len(world.closed()) == 1, "the handles are closed when release returns"
        assert world.runner.state == "released"
        await asyncio.sleep(0.2)
        assert len(world.closed()) == 1
        await running(world)

    live(world, story)


def test_a_release_during_a_hang_ends_the_hang(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        await running(world)
        world.set({**GOOD, "do_sample": "hang"})
        await asyncio.sleep(0.2)
        await world.runner.release(0.3)
        assert world.runner.state == "released"
        world.set(GOOD)
        await running(world)

    live(World(tmp_path, stop_grace=0.2), story)


def test_a_worker_whose_library_keeps_memory_is_started_anew(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        world.set({**GOOD, "do_sample": "leak"})
        await until(lambda: world.metric("collector_restarts_total", cause="memory") == 1)
        assert "MiB" in world.runner.hint
        world.set(GOOD)
        await running(world)
        await until(lambda: 0 < world.metric("collector_resident_memory_bytes") < 40 << 20)

    world = World(tmp_path, memory=40 << 20)
    live(world, story)
    assert len(world.closed()) == 2


def test_a_library_that_is_big_from_the_beginning_is_no_leak(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        await running(world)
        first = world.snapshot.groups["normal"]
        await until(lambda: world.metric("collector_resident_memory_bytes") > 40 << 20)
        await until(lambda: world.snapshot.groups["normal"] is not first)
        assert world.metric("collector_restarts_total", cause="memory") == 0

    world = World(tmp_path, memory=40 << 20)
    world.set({**GOOD, "do_open": "leak"})
    live(world, story)
