"""``accel-exporter serve``: the agent until a signal ends it."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import time
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from exporter import __version__, healthy, http
from exporter.agent import Agent
from exporter.catalogue import CatalogueError
from exporter.config import Config, ConfigError
from exporter.exposition import Exposition
from exporter.http import descriptors
from exporter.memory import give_back_large_blocks
from exporter.negotiation import Format
from exporter.program import Program, Source, read
from exporter.push import Pusher
from exporter.selfmetrics import SelfMetrics
from exporter.status import Monitor, routes
from exporter.web.keeper import Keeper

log = logging.getLogger(__name__)

NOT_RELOADED: Final = ("listen", "web_config_file", "http", "log")
"""Parts of the configuration that only a restart changes."""
THREADS: Final = 32
LAST_RESORT: Final = 8.0
"""Seconds for the end, beside those that collectors and receivers of OTLP may take."""


def run(source: Source, program: Program) -> int:
    """Serve until SIGTERM or SIGINT. Returns the exit code; 2 where an address cannot be bound."""
    try:
        service = _Service(source, program)
    except ConfigError as error:
        # The web configuration file has changed since the configuration was read.
        print(f"accel-exporter: {error}", file=sys.stderr)
        return 2
    give_back_large_blocks()
    code: int | None = None
    try:
        with asyncio.Runner() as runner:
            # The default is a handful on a small machine, and each dead file system keeps some.
            runner.get_loop().set_default_executor(ThreadPoolExecutor(THREADS))
            code = runner.run(service.run())
    except RuntimeError as error:
        # The loop closes its threads with one more, for which there may be no room.
        if code is None:
            raise
        log.warning("the loop could not be closed in order: %s", error)
    return code


def _end_in_time(config: Config) -> None:
    """End the process for certain: a thread that waits for a dead file system is waited for at the end of the loop."""
    limit = config.collection.stop_grace + config.otlp.stop_timeout + LAST_RESORT

    def end(*_: object) -> None:
        log.error("the end takes longer than %g s: what still waits is left behind", limit)
        os._exit(0)

    signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, limit)


class _Service:
    """The agent, its server and what signals do to them."""

    def __init__(self, source: Source, program: Program) -> None:
        self._source, self._program = source, program
        # Before there is a worker, which takes the limit over.
        self._http = descriptors.bounded(program.config.http, descriptors.own(program.config, len(program.catalogues)))
        self._metrics = SelfMetrics()
        self._agent = Agent(program.config, program.members, self._metrics)
        self._pusher = Pusher(self._agent, self._metrics)
        self._monitor = Monitor(self._agent, lambda: self._program, self._pusher.receivers)
        web = program.config.web_config_file
        self._keeper = Keeper(Path(web), self._metrics.web()) if web else None
        self._stop = asyncio.Event()
        self._reload_wanted = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> int:
        config = self._program.config
        self._reloaded()
        exposition = Exposition(
            lambda format_: self._metrics.text(openmetrics=format_ is Format.OPENMETRICS),
            # Threads of its own: those of the loop may all wait for a file system that does not answer.
            executor=ThreadPoolExecutor(2, thread_name_prefix="compress"),
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
        keeper = self._keeper
        try:
            server = await http.serve(
                served, listen_on=config.listen, http=self._http, admin=config.admin, keeper=keeper
            )
        except OSError as error:
            print(f"accel-exporter: {error.strerror or error}", file=sys.stderr)
            await self._agent.stop()
            return 2
        if keeper is not None:
            self._spawn(keeper.watch())
        teller = await healthy.tell(self._alive, self._ready)
        try:
            await self._pusher.apply(config)
            self._greet(server.addresses)
            await self._stop.wait()
        finally:
            log.info("stopping")
            _end_in_time(config)
            if teller is not None:
                teller.close()
            await server.close(1.0)
            if keeper is not None:
                await keeper.close()
            # What collectors hand over while they stop is no news: both can go on at once.
            await asyncio.gather(self._pusher.stop(), self._agent.stop())
        return 0

    def _handle_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        loop.add_signal_handler(signal.SIGHUP, self._reload_wanted.set)
        self._spawn(self._reload_when_wanted())
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

    async def _reload_when_wanted(self) -> None:
        """One at a time, and one for all signals that come meanwhile: the last state of the file is what counts."""
        while True:
            await self._reload_wanted.wait()
            self._reload_wanted.clear()
            try:
                await self._reload()
            except Exception:
                self._metrics.reload_success.set(0)
                log.exception("the reload broke: this is a fault of the agent, please report it")

    async def _reload(self) -> None:
        """Read the configuration again. On an error the old one stays in force."""
        if self._keeper is not None:
            await self._keeper.refresh()
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
        await self._pusher.apply(program.config)
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
        scheme = "https" if self._keeper is not None and self._keeper.secure else "http"
        for address in addresses:
            if address.startswith("unix:"):
                lines.append(f"  {address}  ({scheme})")
            else:
                lines += [f"  {scheme}://{address}/         status", f"  {scheme}://{address}/metrics  for Prometheus"]
        try:
            print("\n".join(lines), flush=True)
        except OSError as error:
            # What is left of it must not be tried again at the end, and change the exit code.
            log.warning("standard output cannot be written: %s", error)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
