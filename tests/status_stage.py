"""An agent with its server and its status page, on the vendor that does not exist, for as long as a test wants."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from collectors.base import HostPaths
from exporter.agent import Agent
from exporter.assemble import Member
from exporter.config import Admin, Config, Http, Intervals, Paths
from exporter.config.attribution import Attribution, StaticOwner
from exporter.exposition import Exposition
from exporter.http import Served, Server, serve
from exporter.negotiation import Format
from exporter.program import Program
from exporter.registry import Found
from exporter.selfmetrics import SelfMetrics
from exporter.spec import CollectorSpec
from exporter.status import Monitor, routes
from exporter.status.model import OtlpEndpoint
from exporter.view import ViewOptions
from exporter.web.keeper import Keeper
from tests.acme import FOLDER, catalogue
from tests.browser import NoBrowser, Page, browser, cannot

PATIENCE: Final = 20.0
World = dict[str, Any]
Story = Callable[["Scene", Page], Coroutine[Any, Any, None]]
SHOWN: Final = "!document.getElementById('app').hidden"
"""The page has had its first answers."""
ROWS: Final = "#device-table tbody tr:not(.details)"


def world(count: int = 2, **more: Any) -> World:
    """Devices at work, each with its own numbers."""
    rows: list[list[Any]] = []
    for number in range(count):
        rows += [
            ["acme_load_percent", number, 40 + number, []],
            ["acme_memory_used_mib", number, 1024 * (number + 1), []],
            ["acme_memory_size_mib", number, 65536, []],
            ["acme_temperature", number, 50 + number, []],
            ["acme_power_mw", number, 250_000 + 1000 * number, []],
        ]
    devices = [{"uuid": f"ACME-{number}", "index": str(number), "model": "A1"} for number in range(count)]
    readings: dict[str, list[list[Any]]] = {"fast": [], "normal": [], "slow": []}
    tables = catalogue()
    for row in rows:
        readings[tables.series[row[0]].group].append(row)
    return {"devices": devices, "readings": readings, **more}


def hanging(what: World) -> World:
    """The same devices, behind a driver that hangs."""
    return {**what, "do": "hang"}


@dataclass(frozen=True, slots=True)
class Scene:
    agent: Agent
    monitor: Monitor
    server: Server
    folder: Path

    @property
    def url(self) -> str:
        return f"http://{self.server.addresses[0]}"

    def set(self, what: World) -> None:
        """From the next call on, the devices do this."""
        fresh = self.folder / "world.new"
        fresh.write_text(json.dumps(what))
        fresh.replace(self.folder / "world.json")


@asynccontextmanager
async def scene(
    folder: Path,
    what: World,
    *,
    owners: Sequence[StaticOwner] = (),
    period: float = 0.2,
    max_age_periods: float = 100.0,
    deadline: float = 15.0,
    node: str = "node-7",
    changes: Mapping[str, Any] = {},
    port: int = 0,
    settle: bool = True,
    otlp: Callable[[], Sequence[OtlpEndpoint]] = tuple,
    keeper: Keeper | None = None,
) -> AsyncIterator[Scene]:
    """``changes``: of the configuration. The agent has read its devices once when this begins, if ``settle``.

    On a machine that is busy nothing is late or stale, unless a test shortens ``max_age_periods`` and ``deadline``.
    """
    for name in ("sys", "dev", "proc"):
        (folder / name).mkdir(exist_ok=True)
    config = msgspec.structs.replace(
        Config(
            node=node,
            intervals=Intervals(fast=period, normal=period, slow=10.0),
            attribution=Attribution(static=tuple(owners)),
            paths=Paths(sys=str(folder / "sys"), dev=str(folder / "dev"), proc=str(folder / "proc")),
        ),
        **changes,
    )
    config = msgspec.structs.replace(
        config,
        collection=msgspec.structs.replace(
            config.collection, max_age_periods=max_age_periods, deadline=deadline, backoff_max=1.0
        ),
    )
    tables = catalogue()
    metrics = SelfMetrics()
    program = Program(
        config=config,
        catalogues={"acme": (Found("acme", "acme_accel", FOLDER), tables)},
        members=(_member(folder, config),),
        simulated=False,
    )
    agent = Agent(config, program.members, metrics)
    monitor = Monitor(agent, lambda: program, otlp)
    served = Served(
        publication=lambda: agent.publication,
        exposition=Exposition(lambda format_: metrics.text(openmetrics=format_ is Format.OPENMETRICS)),
        metrics=metrics,
        ready=lambda: (agent.started, ""),
        alive=lambda: (not agent.trouble, agent.trouble),
        pages=routes(monitor),
    )
    server = await serve(served, listen_on=(f"127.0.0.1:{port}",), http=Http(), admin=Admin(), keeper=keeper)
    here = Scene(agent, monitor, server, folder)
    here.set(what)
    agent.start()
    recording = asyncio.create_task(monitor.record())
    try:
        if settle:
            await asyncio.wait_for(agent.settled(), PATIENCE)
        yield here
    finally:
        recording.cancel()
        await server.close(0.1)
        await agent.stop()


def _member(folder: Path, config: Config) -> Member:
    tables = catalogue()
    periods = config.collection.max_age_periods
    return Member(
        spec=CollectorSpec(
            name="acme",
            catalogue=tables,
            module="acme_accel",
            tables=str(FOLDER),
            wanted=tables.wanted(frozenset(tables.series), common=True),
            paths=HostPaths(**{name: str(folder / name) for name in ("sys", "dev", "proc")}),
            options={"world": str(folder / "world.json")},
            environ={"PYTHONPATH": str(FOLDER.parent)},
            detect=False,
        ),
        view=ViewOptions(
            raw=frozenset(tables.series),
            max_age={group: config.intervals.period(group) * periods for group in ("fast", "normal", "slow")},
        ),
    )


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition."""
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.02)


def play(folder: Path, what: dict[str, Any], story: Story, *, quiet: bool = True, **options: Any) -> None:
    """Tell a story with an agent and the page that shows it. The page asks only the agent, and complains of nothing."""

    async def run() -> None:
        async with scene(folder, what, **options) as here, browser() as page:
            await page.size(1400, 1000)
            await page.open(here.url + "/")
            await page.until(SHOWN)
            await story(here, page)
            outside = [url for url in page.requests if not url.startswith(here.url + "/")]
            assert outside == []
            if quiet:
                assert page.complaints == []

    try:
        asyncio.run(asyncio.wait_for(run(), 150))
    except NoBrowser as error:
        cannot(error)
