"""Runs one collector: starts its worker, asks in time, kills it when it hangs, starts it again, keeps its snapshot."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Final, TypeVar, get_args

import msgspec

from collectors.base import Device, Fault, Group
from exporter.catalogue import Catalogue
from exporter.detection import Bus, PciDevice, present, signs
from exporter.model import (
    CollectorState,
    Configure,
    Configured,
    Discover,
    Discovered,
    Failed,
    GroupSample,
    NotAvailable,
    Read,
    ReadDone,
    Reply,
    Snapshot,
)
from exporter.process import WorkerGone, WorkerProcess, WorkerTimeout
from exporter.selfmetrics import SelfMetrics
from exporter.spec import CollectorSpec, Timing
from exporter.troubles import Troubles

log = logging.getLogger(__name__)

STATES: Final = frozenset(get_args(CollectorState))
ABSENT: Final = ("starting", "no_device", "no_library", "no_driver")
"""States in which a vendor that gave no snapshot yet counts as absent: nothing but the state is shown of it."""
RELEASED: Final = "the devices are released on request; reading goes on by itself"
GROWTH: Final = 2
"""A worker may always grow to so many times what it took after its first readings: a big library is no leak."""


class NotServed(Exception):
    """The worker said that the vendor cannot be read here now."""

    def __init__(self, reply: NotAvailable) -> None:
        super().__init__(reply.hint)
        self.reply = reply


class CollectorFailed(Exception):
    """The collector raised what it should not have."""


class MemoryLeak(Exception):
    """The worker has grown beyond its limit."""


class DevicesChanged(Exception):
    """The bus shows more devices than before: the vendor's library sees them only when it is opened again."""


class Runner:
    """One collector's life. ``changed`` is called after each new snapshot or state, ``faulted`` with fault events."""

    def __init__(
        self,
        spec: CollectorSpec,
        timing: Timing,
        metrics: SelfMetrics,
        bus: Bus,
        *,
        changed: Callable[[], None],
        faulted: Callable[[Catalogue, Sequence[Device], Sequence[Fault]], None],
        released_until: float = 0.0,
    ) -> None:
        """``released_until``: monotonic seconds before which nothing is opened, for a release that is under way."""
        self.spec = spec
        self.snapshot: Snapshot | None = None
        self.state: CollectorState = "starting"
        self.hint = ""
        self.present: int | None = None
        self.troubles = Troubles(spec.name, metrics)
        self._timing, self._metrics, self._bus = timing, metrics, bus
        self._changed, self._faulted = changed, faulted
        self._session: asyncio.Task[None] | None = None
        self._released_until = released_until
        self._wake = asyncio.Event()
        self._closed = asyncio.Event()
        self._closed.set()
        self._generation = 0
        self._failures = 0
        self._started = 0.0

    async def run(self) -> None:
        """Until cancelled."""
        self._show()
        while True:
            try:
                delay = await self._attempt()
            except Exception as error:  # noqa: BLE001 - no thread or memory left is no reason to give the vendor up
                advice = "the agent could not go on: see its limits of memory, processes and files"
                delay = self._failed("failed", repr(error), advice)
            self._wake.clear()
            try:
                async with asyncio.timeout(delay):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def release(self, seconds: float) -> None:
        """Close the vendor's library for a time. Returns when its handles are closed."""
        self._released_until = time.monotonic() + seconds
        if self._session is not None:
            self._session.cancel()
        self._wake.set()
        await self._closed.wait()
        if self._is_released():
            self._set("released", RELEASED)

    async def _attempt(self) -> float:
        """One life of a worker. Returns the seconds to wait before the next."""
        remaining = self._released_until - time.monotonic()
        if remaining > 0:
            self._set("released", RELEASED)
            return remaining
        bus = await self._bus.devices()
        self.present = self._count_on(bus)
        found = await asyncio.to_thread(list, signs(self.spec.catalogue.collector.detect, self.spec.paths, bus))
        if self.spec.detect and not found:
            self._set("no_device", "no sign of this vendor on the host")
            return self._timing.retry_unavailable
        return await self._guarded()

    async def _guarded(self) -> float:
        """A worker's life with each of its ends."""
        grace = self._timing.stop_grace
        worker: WorkerProcess | None = None
        try:
            if self._is_released():
                return 0.0
            self._closed.clear()
            self._started = time.monotonic()
            worker = await WorkerProcess.start(self.spec.name, {**os.environ, **self.spec.environ})
            if self._is_released():
                return 0.0
            self._session = asyncio.create_task(self._serve(worker))
            await self._session
        except asyncio.CancelledError:
            # A release cancels the session; everything else that cancels ends the runner, even at the same moment.
            task = asyncio.current_task()
            ending = task is None or task.cancelling() > 0
            if ending or self._session is None or not self._session.done() or not self._is_released():
                raise
            return 0.0
        except NotServed as error:
            self._set(_state(error.reply.state), error.reply.hint)
            if error.reply.restart:
                self._metrics.restarts.labels(self.spec.name, "version_mismatch").inc()
            return self._timing.retry_unavailable
        except DevicesChanged:
            return 0.0
        except MemoryLeak as error:
            return self._failed("failed", str(error), "the vendor's library keeps memory: report it", cause="memory")
        except WorkerTimeout as error:
            grace = 0.0
            return self._failed("timeout", str(error), "the driver may hang: look at the kernel's log")
        except CollectorFailed as error:
            return self._failed("failed", str(error), "this is a fault of the collector: please report it")
        except (WorkerGone, OSError) as error:
            # The signal is known when the process has been waited for.
            ended = worker is not None and await worker.wait(1.0)
            signal_name = worker.signal if worker is not None and ended else ""
            if signal_name:
                self._metrics.signals.labels(self.spec.name, signal_name).inc()
            last = worker.last_words if worker is not None else ""
            words = f"{signal_name or error}; its last words: {last or 'none'}"
            return self._failed("crashed", words, "the vendor's library crashed: report it with its version")
        finally:
            await self._end(worker, grace)
        raise AssertionError("a session ends by an exception")

    def _is_released(self) -> bool:
        return self._released_until > time.monotonic()

    async def _end(self, worker: WorkerProcess | None, grace: float) -> None:
        if self._session is not None:
            self._session.cancel()
            await asyncio.gather(self._session, return_exceptions=True)
            self._session = None
        if worker is not None:
            try:
                if not await _to_the_end(worker.end(grace)):
                    await self._left_behind(worker)
            finally:
                await worker.dispose()
                self._metrics.no_worker(self.spec.name)
        self._closed.set()

    async def _left_behind(self, worker: WorkerProcess) -> None:
        """The kernel holds the killed worker in a driver call. A second one would hang, too: wait."""
        self._set("stuck", f"worker {worker.pid} hangs in the driver and cannot be killed: the node may need a reboot")
        self._metrics.stuck.labels(self.spec.name).set(1)
        log.error(self.hint, extra={"collector": self.spec.name})
        try:
            while not await worker.wait(60.0):
                self._show()
        finally:
            self._metrics.stuck.labels(self.spec.name).set(0)

    async def _serve(self, worker: WorkerProcess) -> None:
        """Ask the worker for its groups in time, until something ends it."""
        startup = self._timing.startup_deadline
        configure = Configure(
            module=self.spec.module,
            tables=self.spec.tables,
            digest=self.spec.catalogue.digest,
            call_limit=startup + self._timing.deadline,
            wanted=self.spec.wanted,
            paths=self.spec.paths,
            node=self.spec.node,
            links=self.spec.links,
            processes=self.spec.processes,
            source=self.spec.source,
            profile=self.spec.profile,
            options=self.spec.options,
        )
        _expect(await worker.ask(configure, startup), Configured)
        groups: list[Group] = [group for group in self._timing.periods if self.spec.wanted.get(group)]
        await self._discover(worker, groups)
        discovered_at = time.monotonic()
        allowed = max(self._timing.memory, GROWTH * worker.resident)
        due = {group: time.monotonic() + self._timing.periods[group] for group in groups}
        while due:
            group = min(due, key=lambda name: due[name])
            await asyncio.sleep(max(0.0, due[group] - time.monotonic()))
            snapshot, again = await self._read(worker, group, self._latest())
            self._take(snapshot)
            self._weigh(worker, allowed)
            # A late sample is not made up for: two at once would tell nothing more.
            due[group] = max(due[group] + self._timing.periods[group], time.monotonic())
            since = time.monotonic() - discovered_at
            if again or (since > self._timing.retry_unavailable and await self._looks_different()):
                await self._discover(worker, groups)
                discovered_at = time.monotonic()
        await asyncio.Event().wait()

    def _weigh(self, worker: WorkerProcess, allowed: int) -> None:
        """Raises MemoryLeak."""
        resident = worker.resident
        self._metrics.memory.labels(self.spec.name).set(resident)
        if self._timing.memory and resident > allowed:
            raise MemoryLeak(f"the worker has grown to {resident >> 20} MiB, of {allowed >> 20} MiB allowed")

    async def _discover(self, worker: WorkerProcess, groups: Sequence[Group]) -> None:
        """Find devices, and read all groups before anything is shown: each common series finds its best source."""
        reply = _expect(await worker.ask(Discover(), self._timing.startup_deadline), Discovered)
        self._generation += 1
        self.troubles.clear()
        snapshot = Snapshot(
            collector=self.spec.name,
            vendor=self.spec.catalogue.collector.vendor,
            generation=self._generation,
            devices=reply.devices,
            groups={},
            source=reply.source,
            simulated=self.spec.simulated,
            bridged=self.spec.bridged,
        )
        for group in groups:
            snapshot, _ = await self._read(worker, group, snapshot)
        self._take(snapshot)

    async def _looks_different(self) -> bool:
        """Whether to look for devices again: some are lost, or the bus shows others. Raises DevicesChanged for more."""
        found = self._count_on(await self._bus.devices())
        before, self.present = self.present, found
        if before is not None and found is not None and found > before:
            raise DevicesChanged
        return found != before or bool(self._latest().lost)

    def _count_on(self, bus: list[PciDevice] | None) -> int | None:
        """Devices on the bus. Of simulated ones there are none there, which would look as if all had fallen off."""
        return None if self.spec.simulated else present(self.spec.catalogue.collector.detect, bus)

    async def _read(self, worker: WorkerProcess, group: Group, snapshot: Snapshot) -> tuple[Snapshot, bool]:
        """One group's sample, put into the snapshot; and whether the collector wants to look for devices again."""
        # The answer may have waited for an agent that stood still: the values are as old as the question.
        asked = time.monotonic()
        reply = _expect(await worker.ask(Read(group), self._timing.deadline), ReadDone)
        before = snapshot.groups.get(group)
        if reply.layout is None and before is None:
            raise WorkerGone("the worker refers to a layout that it has not sent")
        layout = reply.layout if reply.layout is not None else before.layout if before is not None else ()
        if len(layout) != len(reply.values):
            raise WorkerGone(f"the worker sent {len(reply.values)} values for {len(layout)} series")
        sample = GroupSample(
            layout=layout,
            values=reply.values,
            taken_at=reply.taken_at,
            taken_monotonic=asked,
            duration=reply.duration,
            errors=reply.errors,
            lost=frozenset(reply.lost),
            processes=reply.processes,
            holders=reply.holders,
        )
        if reply.faults:
            self._faulted(self.spec.catalogue, snapshot.devices, reply.faults)
        self._metrics.duration.labels(self.spec.name).observe(reply.duration)
        self.troubles.count(group, reply)
        groups = {**snapshot.groups, group: sample}
        lost = frozenset().union(*(other.lost for other in groups.values()))
        return msgspec.structs.replace(snapshot, groups=groups, lost=lost), reply.rediscover

    def _latest(self) -> Snapshot:
        if self.snapshot is None:
            raise CollectorFailed("there is no snapshot yet")
        return self.snapshot

    def _take(self, snapshot: Snapshot) -> None:
        """Show a new snapshot."""
        self.snapshot = snapshot
        if time.monotonic() - self._started > self._timing.backoff_max:
            self._failures = 0
        name = self.spec.name
        self._metrics.devices.labels(name).set(len(snapshot.devices))
        self._metrics.series.labels(name).set(sum(len(sample.layout) for sample in snapshot.groups.values()))
        self._metrics.last_success.labels(name).set(max((s.taken_at for s in snapshot.groups.values()), default=0.0))
        if self.state == "running":
            self._changed()
        else:
            self._set("running", "")
            log.info("collector runs", extra={"collector": name, "devices": len(snapshot.devices)})

    def _failed(self, state: CollectorState, detail: str, advice: str, cause: str = "") -> float:
        """Note a worker's bad end. Returns the seconds to wait: longer each time, and never the same on each node."""
        self._metrics.restarts.labels(self.spec.name, cause or state).inc()
        self._failures += 1
        self.troubles.say_death(f"{state}: {detail}"[-2000:])
        self._set(state, f"{detail.strip().splitlines()[-1][:500]}: {advice}")
        longest = min(self._timing.backoff_max, self._timing.backoff_min * 2 ** min(self._failures - 1, 16))
        return random.uniform(longest / 2, longest)

    def _set(self, state: CollectorState, hint: str) -> None:
        self.state, self.hint = state, hint
        self._show()
        self._changed()

    def _show(self) -> None:
        absent = self.snapshot is None and self.state in ABSENT
        self._metrics.collector(self.spec.name, self.state, absent=absent)


def _state(state: str) -> CollectorState:
    return state if state in STATES else "failed"  # type: ignore[return-value]


T = TypeVar("T")


async def _to_the_end(work: Coroutine[object, object, T]) -> T:
    """Finish bounded work even if the caller is cancelled meanwhile: a worker's end must not be left half-way."""
    task = asyncio.create_task(work)
    cancelled = False
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            cancelled = True
    if cancelled:
        raise asyncio.CancelledError
    return task.result()


def _expect(reply: Reply, kind: type[T]) -> T:
    """The reply, if it is what the request asks for. Raises NotServed, CollectorFailed, WorkerGone."""
    if isinstance(reply, kind):
        return reply
    if isinstance(reply, NotAvailable):
        raise NotServed(reply)
    if isinstance(reply, Failed):
        raise CollectorFailed(reply.detail)
    raise WorkerGone(f"the worker answered with {type(reply).__name__}")
