"""``accel-exporter serve``: the agent until a signal ends it."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
import time
from collections.abc import Coroutine
from typing import Final

from exporter import __version__, http
from exporter.agent import Agent
from exporter.catalogue import CatalogueError
from exporter.config import ConfigError
from exporter.exposition import Exposition
from exporter.negotiation import Format
from exporter.program import Program, Source, read
from exporter.selfmetrics import SelfMetrics
from exporter.status import Monitor, routes

log = logging.getLogger(__name__)

NOT_RELOADED: Final = ("listen", "http", "log")
"""Parts of the configuration that only a restart changes."""


def run(source: Source, program: Program) -> int:
    """Serve until SIGTERM or SIGINT. Returns the exit code; 2 where an address cannot be bound."""
    return asyncio.run(_Service(source, program).run())


class _Service:
    """The agent, its server and what signals do to them."""

    def __init__(self, source: Source, program: Program) -> None:
        self._source, self._program = source, program
        self._metrics = SelfMetrics()
        self._agent = Agent(program.config, program.members, self._metrics)
        self._monitor = Monitor(self._agent, lambda: self._program)
        self._stop = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> int:
        config = self._program.config
        self._reloaded()
        exposition = Exposition(
            lambda format_: self._metrics.text(openmetrics=format_ is Format.OPENMETRICS),
            observe=self._metrics.render_duration.observe,
        )
        served = http.Served(
            publication=lambda: self._agent.publication,
            exposition=exposition,
            metrics=self._metrics,
            ready=self._ready,
            alive=self._alive,
            pages=routes(self._monitor),
            release=self._agent.release if config.admin.release else None,
        )
        self._handle_signals()
        self._agent.start()
        self._spawn(self._monitor.record())
        try:
            server = await http.serve(served, listen_on=config.listen, http=config.http, admin=config.admin)
        except OSError as error:
            print(f"accel-exporter: {error}", file=sys.stderr)
            await self._agent.stop()
            return 2
        try:
            self._greet(server.addresses)
            await self._stop.wait()
        finally:
            log.info("stopping")
            await server.close(1.0)
            await self._agent.stop()
        return 0

    def _handle_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        loop.add_signal_handler(signal.SIGHUP, lambda: self._spawn(self._reload()))
        loop.add_signal_handler(signal.SIGUSR1, self._on_release)

    def _spawn(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _on_release(self) -> None:
        admin = self._program.config.admin
        if admin.release:
            self._spawn(self._agent.release(admin.release_seconds))
        else:
            log.warning("SIGUSR1 asks for a release, which is switched off: set admin.release to true to allow it")

    async def _reload(self) -> None:
        """Read the configuration again. On an error the old one stays in force."""
        try:
            program = await asyncio.to_thread(read, self._source)
        except (ConfigError, CatalogueError) as error:
            self._metrics.reload_success.set(0)
            log.error("the configuration was not reloaded, the old one stays in force: %s", error)
            return
        for warning in program.warnings:
            log.warning(warning)
        for name in NOT_RELOADED:
            if getattr(program.config, name) != getattr(self._program.config, name):
                log.warning("a change of %s needs a restart of the agent", name)
        await self._agent.reload(program.config, program.members)
        self._program = program
        self._reloaded()
        log.info("configuration reloaded")

    def _reloaded(self) -> None:
        self._metrics.reload_success.set(1)
        self._metrics.reload_time.set(time.time())

    def _ready(self) -> tuple[bool, str]:
        return self._agent.started, "" if self._agent.started else "the first samples are being taken"

    def _alive(self) -> tuple[bool, str]:
        return not self._agent.trouble, self._agent.trouble

    def _greet(self, addresses: tuple[str, ...]) -> None:
        """Tell a person where to look; the log tells the machine."""
        log.info("serving", extra={"addresses": " ".join(addresses), "version": __version__})
        lines = [f"accel-exporter {__version__} on node {self._program.config.node}"]
        if self._program.simulated:
            counts = ", ".join(f"{count} × {name}" for name, count in self._program.config.simulate.devices.items())
            lines.append(f"SIMULATED: no real accelerator is read; the numbers are made up ({counts}).")
        for address in addresses:
            lines += [f"  http://{address}/         status", f"  http://{address}/metrics  for Prometheus"]
        print("\n".join(lines), flush=True)
