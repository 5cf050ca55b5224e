"""The running agent: collectors, publications, reload and release."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from collectors.base import Device, Fault
from exporter.assemble import Member, timing
from exporter.attribution.service import Attribution
from exporter.catalogue import Catalogue
from exporter.config import Config
from exporter.derived import Book
from exporter.detection import Bus
from exporter.families import Publication
from exporter.publisher import CollectorStatus, Publisher
from exporter.selfmetrics import SelfMetrics
from exporter.services import Services
from exporter.supervisor import Runner
from exporter.view import View

log = logging.getLogger(__name__)

SLACK: Final = 0.05
"""Seconds behind the moment at which a sample becomes stale, for a timer may come early."""
PAUSE: Final = 0.1
"""Seconds between two publications, or as long as one takes: a storm of events leaves half of the time to scrapes."""


class _Live(msgspec.Struct, frozen=True, eq=False):
    """A collector that runs."""

    runner: Runner
    view: View
    task: asyncio.Task[None]


class Agent:
    """Runs collectors and makes a new publication whenever one has something new, or something becomes stale."""

    def __init__(self, config: Config, members: Sequence[Member], metrics: SelfMetrics) -> None:
        self.metrics = metrics
        self._publication = Publication(0)
        self._expires = math.inf
        """Monotonic seconds at which something in the publication becomes stale."""
        self.started = False
        """Every collector has been tried."""
        self.published: Callable[[Publication], None] = lambda _: None
        """Called with each publication."""
        self._config = config
        self._members = list(members)
        self._live: dict[str, _Live] = {}
        self._book = Book(config.health.fault_hold, config.device_classes)
        self._publisher = Publisher(self._book, lambda reason, count: metrics.dropped.labels(reason).inc(count))
        self._bus = Bus(config.paths.host.sys)
        self._released_until = 0.0
        self._pending = False
        self._soon: asyncio.TimerHandle | None = None
        self._not_before = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._dead: str = ""
        self._broken: str = ""
        self._settled = asyncio.Event()
        self.attribution = self._attribution()
        self._services = Services([member.spec for member in self._members])
        self._services_task: asyncio.Task[None] | None = None

    @property
    def publication(self) -> Publication:
        """The newest. Nothing in it is stale: if the process stood still, one is made anew before anyone sees it."""
        if time.monotonic() >= self._expires:
            self._publish()
        return self._publication

    def start(self) -> None:
        """Start all collectors."""
        for member in self._members:
            self._start(member)
        self.attribution.start()
        self._services_task = asyncio.create_task(self._services.start())
        self._changed()

    async def stop(self) -> None:
        """Stop all collectors; each lets go of its driver within the grace time."""
        for timer in (self._timer, self._soon):
            if timer is not None:
                timer.cancel()
        for live in self._live.values():
            live.task.cancel()
        await self.attribution.stop()
        if self._services_task is not None:
            await self._services_task
        await self._services.stop()
        await asyncio.gather(*(live.task for live in self._live.values()), return_exceptions=True)

    async def settled(self) -> None:
        """Wait until every collector has been tried once."""
        await self._settled.wait()

    async def release(self, seconds: float) -> None:
        """Close all drivers' handles for a time."""
        log.warning("releasing all devices", extra={"seconds": seconds})
        # For those that a new configuration brings meanwhile, too.
        self._released_until = time.monotonic() + seconds
        await asyncio.gather(*(live.runner.release(seconds) for live in self._live.values()))
        # Who is told that the devices are released finds it so in the next scrape, too.
        self._publish()

    async def reload(self, config: Config, members: Sequence[Member]) -> None:
        """Go on with another configuration. Collectors that it does not touch go on undisturbed."""
        old = {member.spec.name: member for member in self._members}
        new = {member.spec.name: member for member in members}
        same_timing = timing(config) == timing(self._config)
        touched = [
            name for name in self._live if not same_timing or new.get(name) is None or new[name].spec != old[name].spec
        ]
        other_sources = (
            config.attribution != self._config.attribution
            or config.paths != self._config.paths
            or _tables(members) != _tables(self._members)
        )
        self._config, self._members = config, list(members)
        if other_sources:
            await self.attribution.stop()
            self.attribution = self._attribution()
            self.attribution.start()
        await self._serve_vendors()
        self._book.configure(config.health.fault_hold, config.device_classes)
        await self._stop(touched)
        for name, member in new.items():
            live = self._live.get(name)
            if live is None:
                self._start(member)
            elif live.view.options != member.view:
                view = View(member.spec.catalogue, member.view)
                self._live[name] = _Live(live.runner, view, live.task)
        self._changed()

    @property
    def found(self) -> list[tuple[str, Device]]:
        """(vendor, device) of all devices and parts in the newest snapshots."""
        snapshots = [runner.snapshot for runner in self.runners if runner.snapshot is not None]
        return [(snapshot.vendor, device) for snapshot in snapshots for device in snapshot.devices]

    @property
    def runners(self) -> list[Runner]:
        """In the order of the collectors' names."""
        return [self._live[name].runner for name in sorted(self._live)]

    @property
    def without_series(self) -> Mapping[str, str]:
        """Collectors that give samples of which no series can be made → why."""
        return self._publisher.broken

    @property
    def trouble(self) -> str:
        """Why the agent itself is broken and should be restarted; empty if it is not."""
        return self._dead or self._broken

    async def _serve_vendors(self) -> None:
        """Offer what vendors' other programs ask for, with the members' present options."""
        await self._services.stop()
        self._services = Services([member.spec for member in self._members])
        await self._services.start()

    def _attribution(self) -> Attribution:
        catalogues = {member.spec.catalogue.name: member.spec.catalogue for member in self._members}
        return Attribution(self._config, catalogues, self.metrics, self._changed)

    def _start(self, member: Member) -> None:
        name = member.spec.name
        runner = Runner(
            member.spec,
            timing(self._config),
            self.metrics,
            self._bus,
            changed=self._changed,
            faulted=self._faulted,
            released_until=self._released_until,
        )
        task = asyncio.create_task(runner.run(), name=f"collector {name}")
        task.add_done_callback(self._ended)
        self._live[name] = _Live(runner, View(member.spec.catalogue, member.view), task)

    async def _stop(self, names: Sequence[str]) -> None:
        stopping = [self._live.pop(name) for name in names]
        for live in stopping:
            live.task.cancel()
        await asyncio.gather(*(live.task for live in stopping), return_exceptions=True)
        for live in stopping:
            self.metrics.forget(live.runner.spec.name)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            return
        self._dead = f"{task.get_name()} ended: {task.exception()!r}"
        log.critical(self._dead, exc_info=task.exception())
        # Who waits for the first samples must not wait for ever.
        self._settled.set()

    def _faulted(self, catalogue: Catalogue, devices: Sequence[Device], faults: Sequence[Fault]) -> None:
        self._book.record(catalogue, devices, faults, now=time.time(), monotonic=time.monotonic())

    def _changed(self) -> None:
        """Publish soon: at once, or where a publication has just been made after a pause, once for all changes."""
        if not self._pending:
            self._pending = True
            delay = max(0.0, self._not_before - time.monotonic())
            self._soon = asyncio.get_running_loop().call_later(delay, self._publish)

    def _publish(self) -> None:
        self._pending = False
        if self._soon is not None:
            self._soon.cancel()
        monotonic = time.monotonic()
        # The agent's own metrics are written with a publication: without samples they must move on, too.
        self._set_timer(monotonic + self._config.intervals.period("normal"))
        try:
            self._publish_now(time.time(), monotonic)
            self._broken = ""
            # Not a reason to restart the agent, which would take the other vendors' series, too.
            for name, live in self._live.items():
                up = live.runner.state == "running" and name not in self.without_series
                self.metrics.up.labels(name).set(int(up))
        except Exception as error:
            # Frozen numbers would be the worst answer: show none, and let whoever watches /healthz know.
            if not self._broken:
                log.exception("no publication could be made: this is a fault of the agent, please report it")
            self._broken = f"no publication could be made: {error!r}"
            self._publication, self._expires = Publication(self._publication.version + 1), math.inf
        ended = time.monotonic()
        self._not_before = ended + max(PAUSE, ended - monotonic)
        self.published(self._publication)

    def _publish_now(self, now: float, monotonic: float) -> None:
        statuses = [
            CollectorStatus(
                name=name,
                view=live.view,
                snapshot=live.runner.snapshot,
                present=live.runner.present,
                expected=live.runner.spec.expected,
            )
            for name, live in sorted(self._live.items())
        ]
        snapshots = [status.snapshot for status in statuses if status.snapshot is not None]
        attributed = self.attribution.attributed(snapshots)
        self._publication = self._publisher.publish(statuses, attributed, now=now, monotonic=monotonic)
        if self._services.any:
            self._services.show(
                self._publication, self.found, attributed.allocation if attributed is not None else None
            )
        if not self.started and all(live.runner.state != "starting" for live in self._live.values()):
            self.started = True
            self._settled.set()
        expiry = _next_expiry(statuses, monotonic)
        self._expires = math.inf if expiry is None else expiry + SLACK
        self._set_timer(min(monotonic + self._config.intervals.period("normal"), self._expires - SLACK))

    def _set_timer(self, moment: float) -> None:
        """Publish again then, even if no sample arrives before."""
        if self._timer is not None:
            self._timer.cancel()
        delay = max(0.0, moment - time.monotonic()) + SLACK
        self._timer = asyncio.get_running_loop().call_later(delay, self._changed)


def _tables(members: Sequence[Member]) -> set[tuple[str, str]]:
    """Which vendors' tables there are: they say whose devices attribution may look for."""
    return {(member.spec.catalogue.name, member.spec.catalogue.digest) for member in members}


def _next_expiry(statuses: Sequence[CollectorStatus], monotonic: float) -> float | None:
    """When the first sample that is fresh now becomes stale."""
    return min(
        (
            sample.taken_monotonic + status.view.options.max_age[group]
            for status in statuses
            if status.snapshot is not None
            for group, sample in status.snapshot.groups.items()
            if status.view.fresh(group, sample, monotonic)
        ),
        default=None,
    )
