"""Runs the sources of attribution and joins them with devices, beside collection and never in its way."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Final

import msgspec

from exporter.attribution.bridged import BridgeSource
from exporter.attribution.claims import Claim, ClaimSource, SourceName, Status
from exporter.attribution.identity import identifier
from exporter.attribution.join import SLICE, Joined, joining
from exporter.attribution.match import VendorDevices
from exporter.attribution.processes import ProcessSource, Running
from exporter.attribution.setup import Parts, Task, build
from exporter.attribution.table import Attribution as Table
from exporter.catalogue import Catalogue
from exporter.config import Config
from exporter.model import Attributed, ContainerKey, Snapshot, Usage
from exporter.selfmetrics import SelfMetrics

log = logging.getLogger(__name__)

FAULT: Final = "devices could not be attributed: this is a fault of the agent, please report it"
BROKE: Final = "a source of attribution broke: this is a fault of the agent, please report it"
RESTART: Final = 30.0
"""Seconds until a source that broke begins again."""
REFRESH: Final = 10.0
"""Seconds between two looks at the processes of the devices."""


class Attribution:
    """All sources of one configuration. ``changed`` is called when a publication would look different."""

    def __init__(
        self,
        config: Config,
        catalogues: Mapping[str, Catalogue],
        metrics: SelfMetrics,
        changed: Callable[[], None],
    ) -> None:
        self._metrics, self._changed = metrics, changed
        self._catalogues = {catalogue.collector.vendor: catalogue for catalogue in catalogues.values()}
        self._running: tuple[Running, ...] = ()
        self._parts: Parts = build(
            config,
            list(catalogues.values()),
            changed=self._dirty_now,
            failed=lambda source, kind: metrics.attribution_errors.labels(source, kind).inc(),
            running=lambda: self._running,
        )
        self._config = config.attribution
        self._devices: tuple[VendorDevices, ...] = ()
        self._joined: Joined | None = None
        self._attributed: Attributed | None = None
        self._is_dirty = True
        self._long: asyncio.Task[None] | None = None
        """Joins more claims than can be joined at once."""
        self._tasks: list[asyncio.Task[None]] = []
        self._warned: dict[str, str] = {}

    @property
    def active(self) -> bool:
        """Whether there is any source: without one nothing is said about who works on a device."""
        return bool(self._sources)

    @property
    def _sources(self) -> Sequence[ClaimSource]:
        quiet = (ProcessSource, BridgeSource)
        return [source for source in self._parts.sources if not isinstance(source, quiet) or source.awake]

    @property
    def joined(self) -> Joined | None:
        """The newest result, for the doctor."""
        return self._joined

    def statuses(self) -> dict[SourceName, Status]:
        """How each source is."""
        found = {source.name: source.status for source in self._sources}
        return {**found, **{name: status() for name, status in self._parts.others.items()}}

    def start(self) -> None:
        work: list[Task] = [*self._parts.tasks]
        processes = next((s for s in self._parts.sources if isinstance(s, ProcessSource)), None)
        if processes is not None:
            work.append(functools.partial(self._refresh, processes))
        self._tasks = [asyncio.create_task(_kept_up(each)) for each in work]

    async def stop(self) -> None:
        tasks = [*self._tasks, *([self._long] if self._long is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        # It may have been cancelled before it began.
        self._long = None
        await self._parts.close()

    def attributed(self, snapshots: Sequence[Snapshot]) -> Attributed | None:
        """Who works on the devices of these snapshots; None without any source."""
        self._running = tuple(process for snapshot in snapshots for process in _running(snapshot))
        bridge = next((s for s in self._parts.sources if isinstance(s, BridgeSource)), None)
        if bridge is not None and bridge.take(snapshots):
            self._is_dirty = True
        if not self.active:
            return None
        devices = tuple(self._vendor(snapshot) for snapshot in snapshots)
        news = devices != self._devices or self._is_dirty or self._attributed is None
        if news and self._long is None:
            self._devices, self._is_dirty = devices, False
            try:
                self._join()
            except Exception:
                # Whoever works on a device, its numbers go on.
                log.exception(FAULT)
        self._show()
        return self._attributed

    def _vendor(self, snapshot: Snapshot) -> VendorDevices:
        catalogue = self._catalogues.get(snapshot.vendor)
        # None: of a vendor that a new configuration has switched off, and whose collector has not ended yet.
        table = catalogue.collector.attribution if catalogue is not None else Table()
        return VendorDevices(snapshot.vendor, table, snapshot.devices)

    def _join(self) -> None:
        """At once, or where there are very many claims in slices, while what was known before stays."""
        claims: list[Claim] = []
        for source in self._sources:
            claims += source.claims()
        up = any(source.status.up for source in self._sources if source.name != "annotations")
        processes = next((s for s in self._parts.sources if isinstance(s, ProcessSource)), None)
        usage = processes.usage() if processes is not None else {}
        work = joining(
            self._devices,
            claims,
            self._parts.pods(),
            # Labels of all namespaces are gathered once for all workloads, if anybody asks.
            identifier(self._config, functools.cache(self._parts.namespaces)),
            excluded=self._parts.excluded,
            reason_if_free="free" if up else "attribution_down",
        )
        if len(claims) <= SLICE:
            while not self._is_joined(work, usage):
                pass
        else:
            self._long = asyncio.create_task(self._join_in_slices(work, usage))

    def _is_joined(self, work: Generator[None, None, Joined], usage: Mapping[ContainerKey, Usage]) -> bool:
        """Whether the next slice was the last."""
        try:
            next(work)
        except StopIteration as end:
            joined: Joined = end.value
        else:
            return False
        before = self._attributed.allocation if self._attributed is not None else None
        allocation = before if before == joined.allocation and before is not None else joined.allocation
        self._joined = joined
        self._attributed = Attributed(allocation, usage, joined.unsure)
        return True

    async def _join_in_slices(self, work: Generator[None, None, Joined], usage: Mapping[ContainerKey, Usage]) -> None:
        try:
            while not self._is_joined(work, usage):  # noqa: ASYNC110 - others have their turn
                await asyncio.sleep(0)
            self._changed()
        except Exception:
            log.exception(FAULT)
        finally:
            self._long = None

    def _show(self) -> None:
        metrics, joined = self._metrics, self._joined
        for name, status in self.statuses().items():
            metrics.attribution_up.labels(name).set(int(status.up))
            metrics.attribution_last_success.labels(name).set(status.last_success)
            if self._warned.get(name, "") != status.hint and not status.waiting:
                self._warned[name] = status.hint
                if not status.up and status.hint:
                    log.warning("attribution: %s", status.hint, extra={"source": name})
        if joined is not None:
            metrics.set_counts(metrics.unattributed, joined.unattributed)
            metrics.set_counts(metrics.unmatched, joined.unmatched)

    def _dirty_now(self) -> None:
        self._is_dirty = True
        self._changed()

    async def _refresh(self, processes: ProcessSource) -> None:
        seen: object = None
        while True:
            await asyncio.to_thread(processes.refresh)
            # Compared with what was joined last: which processes there are changes with each sample, meanwhile.
            now = processes.awake, processes.claims()
            if now != seen:
                seen = now
                self._dirty_now()
            elif self._attributed is not None and self._attributed.usage != (usage := processes.usage()):
                self._attributed = msgspec.structs.replace(self._attributed, usage=usage)
                self._changed()
            await asyncio.sleep(REFRESH)


def _running(snapshot: Snapshot) -> list[Running]:
    """The processes of a collector's devices, of whichever group tells them."""
    return [
        Running(
            vendor=snapshot.vendor,
            uuid=snapshot.devices[process.device].uuid,
            partition=snapshot.devices[process.device].partition,
            pid=process.pid,
            memory=process.memory,
            utilization=process.utilization,
        )
        for sample in snapshot.groups.values()
        for process in sample.processes or ()
    ]


async def _kept_up(source: Task) -> None:
    """A source that breaks begins again: a host on which no thread can be started has one again later."""
    while True:
        try:
            await source()
        except Exception:
            log.exception(BROKE)
        await asyncio.sleep(RESTART)
