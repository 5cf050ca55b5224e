"""Makes the pictures of docs/images anew: ``python -m tests.e2e.screenshots [FOLDER]``. Look at them afterwards."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from exporter.agent import Agent
from exporter.config import Admin, Http
from exporter.config.attribution import Attribution, StaticOwner
from exporter.exposition import Exposition
from exporter.http import Served, serve
from exporter.negotiation import Format
from exporter.program import Program, Source, read
from exporter.selfmetrics import SelfMetrics
from exporter.status import Monitor, routes
from tests.browser import Page, browser
from tests.status_stage import hanging, scene, world

IMAGES: Final = Path(__file__).parents[2] / "docs" / "images"
OWNERS: Final = (
    StaticOwner(devices=("0", "1"), namespace="research", pod="pretrain-worker-0", job_name="pretrain", tenant="lab"),
    StaticOwner(devices=("3",), namespace="search", pod="embedder-7c9f6d-2xkqp", job_name="embedder", tenant="search"),
    StaticOwner(devices=("4", "5"), namespace="research", pod="tuning-worker-3", job_name="tuning", tenant="lab"),
)
PERIOD: Final = 0.5


@asynccontextmanager
async def simulated(flags: Mapping[str, object], cycle: float = 0.0) -> AsyncIterator[str]:
    """The address of an agent on simulated devices. ``cycle``: seconds in which one fails, is lost and comes back."""
    program = read(Source(None, {"set": [f"intervals.normal={PERIOD}", "node=gpu-node-17"], **flags}), {})
    config = msgspec.structs.replace(program.config, attribution=Attribution(static=OWNERS))
    members = tuple(
        msgspec.structs.replace(
            member,
            spec=msgspec.structs.replace(
                member.spec, options={**member.spec.options, **({"cycle_seconds": cycle} if cycle else {})}
            ),
        )
        for member in program.members
    )
    async with _agent(msgspec.structs.replace(program, config=config, members=members)) as url:
        yield url


@asynccontextmanager
async def _agent(program: Program) -> AsyncIterator[str]:
    metrics = SelfMetrics()
    agent = Agent(program.config, program.members, metrics)
    monitor = Monitor(agent, lambda: program)
    served = Served(
        publication=lambda: agent.publication,
        exposition=Exposition(lambda format_: metrics.text(openmetrics=format_ is Format.OPENMETRICS)),
        metrics=metrics,
        ready=lambda: (agent.started, ""),
        alive=lambda: (True, ""),
        pages=routes(monitor),
    )
    server = await serve(served, listen_on=("127.0.0.1:0",), http=Http(), admin=Admin())
    agent.start()
    recording = asyncio.create_task(monitor.record())
    try:
        await asyncio.wait_for(agent.settled(), 60)
        yield f"http://{server.addresses[0]}"
    finally:
        recording.cancel()
        await server.close(0.1)
        await agent.stop()


async def shoot(
    page: Page, url: str, name: Path, width: int, height: int, scheme: str = "light", ready: str = "true"
) -> None:
    await page.size(width, height)
    await page.prefer(prefers_color_scheme=scheme)
    await page.open(url + "/")
    await page.until(f"!document.getElementById('app').hidden && ({ready})")
    await asyncio.sleep(0.5)
    await page.screenshot(name)
    print(name.name, name.stat().st_size)


async def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    flags: dict[str, Any] = {"simulate": "nvidia=8"}
    async with browser() as page:
        async with simulated(flags) as url:
            await asyncio.sleep(60)
            await shoot(page, url, folder / "status-light.png", 1280, 800)
            await shoot(page, url, folder / "status-dark.png", 1280, 800, "dark")
            await shoot(page, url, folder / "status-narrow.png", 400, 1000)
            await page.script("document.querySelector('.toggle').click()")
            await page.size(1280, 700)
            await page.screenshot(folder / "status-details.png")
        async with simulated({"simulate": "nvidia=4"}, cycle=60.0) as url:
            await page.open(url + "/")
            await asyncio.sleep(40)
            lost = "document.getElementById('device-table').innerText.includes('does not answer')"
            await shoot(page, url, folder / "status-lost.png", 1280, 940, ready=lost)
        with tempfile.TemporaryDirectory() as name:
            async with scene(Path(name), world(), node="node-7", max_age_periods=10.0, deadline=1.0) as here:
                await asyncio.sleep(10)
                here.set(hanging(world()))
                stale = "document.querySelector('#collector-table .flag').innerText.startsWith('stale')"
                await shoot(page, here.url, folder / "status-stale.png", 1280, 700, ready=stale)
        with tempfile.TemporaryDirectory() as name:
            places = [f"paths.{place}={name}" for place in ("sys", "proc", "dev", "run", "var_lib", "opt")]
            program = read(Source(None, {"set": [*places, "node=cpu-node-3"]}), {})
            async with _agent(program) as url:
                await shoot(
                    page, url, folder / "status-empty.png", 1280, 620, ready="!document.getElementById('absent').hidden"
                )


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]) if len(sys.argv) > 1 else IMAGES))
