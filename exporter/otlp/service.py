"""Pushes publications to all receivers, each at its own pace. Whoever serves /metrics never waits for any of it."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from exporter.config import Config
from exporter.config.otlp import OtlpEndpoint, receivers
from exporter.families import Publication
from exporter.otlp import json, own
from exporter.otlp.batch import Request
from exporter.otlp.connection import Sender, shown
from exporter.otlp.encode import Encoder, Selection
from exporter.otlp.queue import Delivery, Report
from exporter.otlp.resource import Resources, detect
from exporter.selfmetrics import SelfMetrics

log = logging.getLogger(__name__)

FIRST: Final = 5.0
"""Seconds before the first export, at most: until then attribution has usually said who works on the devices."""


def selection(endpoint: OtlpEndpoint) -> Selection:
    """What the receiver is sent."""
    return Selection(endpoint.schema, endpoint.names, endpoint.include, endpoint.exclude)


def sender(endpoint: OtlpEndpoint) -> Sender:
    """Raises ModuleNotFoundError for a protocol whose library is not installed."""
    # Imported where needed: of the two libraries one is optional.
    if endpoint.protocol == "grpc":
        from exporter.otlp.grpc import GrpcSender

        return GrpcSender(endpoint)
    from exporter.otlp.http import HttpSender

    return HttpSender(endpoint)


class _Receiver:
    """One receiver: an encoder, a queue, and the clock that fills it."""

    def __init__(
        self,
        endpoint: OtlpEndpoint,
        config: Config,
        resources: Resources,
        metrics: SelfMetrics,
        publication: Callable[[], Publication],
        began: int,
    ) -> None:
        self.endpoint = endpoint
        self._resources, self._metrics, self._publication = resources, metrics, publication
        self._selection = selection(endpoint)
        self._encoder = Encoder(resources, self._selection, began=began, limit=config.otlp.request_bytes)
        self._delivery = Delivery(
            sender(endpoint),
            shown(endpoint),
            metrics.otlp(),
            queue_bytes=config.otlp.queue_bytes,
            give_up_after=config.otlp.give_up_after,
        )
        self._encoding = asyncio.Lock()
        self._tasks: list[asyncio.Task[None]] = []

    def report(self) -> tuple[str, Report]:
        """The receiver's name without credentials, and how it is."""
        return shown(self.endpoint), self._delivery.report()

    def start(self) -> None:
        self._tasks = [asyncio.create_task(self._delivery.run()), asyncio.create_task(self._tick())]
        for task in self._tasks:
            task.add_done_callback(_ended)

    def observe(self, publication: Publication) -> None:
        self._encoder.observe(publication)

    async def stop(self, seconds: float) -> None:
        """Send what there is once more, within so many seconds."""
        publication = self._publication()
        end = time.monotonic() + seconds
        delivering, ticking = self._tasks
        ticking.cancel()
        with suppress(asyncio.CancelledError):
            await ticking
        try:
            await asyncio.wait_for(self._export(publication), seconds)
        except TimeoutError:
            log.warning("OTLP: no time for a last export", extra={"endpoint": shown(self.endpoint)})
        await self._delivery.flush(max(0.0, end - time.monotonic()))
        delivering.cancel()
        with suppress(asyncio.CancelledError):
            await delivering
        await self._delivery.close()

    async def _tick(self) -> None:
        interval = self.endpoint.interval
        # A fleet that was started at once should not send at once.
        await asyncio.sleep(min(interval, FIRST) * random.uniform(0.5, 1.0))
        due, broken = time.monotonic(), False
        while True:
            try:
                await self._export(self._publication())
                broken = False
            except Exception:
                if not broken:
                    log.exception("OTLP: an export broke: this is a fault of the agent, please report it")
                broken = True
            due = max(due + interval, time.monotonic())
            await asyncio.sleep(due - time.monotonic())

    async def _export(self, publication: Publication) -> None:
        async with self._encoding:
            requests = await encoded(self._encoder, publication, self._resources, self._selection, self._metrics)
            for request in requests:
                await self._delivery.put(request)


async def encoded(
    encoder: Encoder, publication: Publication, resources: Resources, chosen: Selection, metrics: SelfMetrics
) -> Sequence[Request]:
    """A publication and the agent's own metrics as requests; gives way to other tasks meanwhile."""
    now = time.time()
    steps = encoder.encode(publication, now)
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            batch = stop.value
            break
        await asyncio.sleep(0)
    if chosen.schema != "raw":
        own.add(batch, metrics.registry, resources.node, chosen, now)
    batch.close()
    requests: Sequence[Request] = batch.requests
    return requests


class Push:
    """All receivers of one configuration. Begins to work when the resource has been detected."""

    def __init__(
        self, config: Config, metrics: SelfMetrics, publication: Callable[[], Publication], *, began: int
    ) -> None:
        """``publication``: gives the newest. ``began``: when the agent started, in Unix nanoseconds."""
        self._config, self._metrics, self._publication = config, metrics, publication
        self._began = began
        self._receivers: list[_Receiver] = []
        self._beginning: asyncio.Task[None] | None = None
        self._broken = False
        metrics.otlp()

    def start(self) -> None:
        """Returns at once: detectors may ask others about this host."""
        self._beginning = asyncio.create_task(self._begin())
        self._beginning.add_done_callback(_ended)

    def observe(self, publication: Publication) -> None:
        """To be called with every publication. Raises nothing: whoever publishes is not to be disturbed."""
        try:
            for receiver in self._receivers:
                receiver.observe(publication)
        except Exception:
            if not self._broken:
                log.exception("OTLP: a publication is not understood: this is a fault of the agent, please report it")
            self._broken = True

    def reports(self) -> list[tuple[str, Report]]:
        """How the receivers are, by their names."""
        return [receiver.report() for receiver in self._receivers]

    async def reload(self, config: Config) -> None:
        """Go on with another configuration; receivers that it does not touch keep their queues and streams."""
        await self._begun()
        same = _common(config) == _common(self._config)
        wanted = receivers(config.otlp)
        keep = [receiver for receiver in self._receivers if same and receiver.endpoint in wanted]
        gone = [receiver for receiver in self._receivers if receiver not in keep]
        seconds = self._config.otlp.stop_timeout
        self._config, self._receivers = config, keep
        await asyncio.gather(*(receiver.stop(seconds) for receiver in gone))
        await self._begin()

    async def stop(self) -> None:
        """One last export to each receiver, within the time that the configuration gives."""
        await self._begun()
        seconds = self._config.otlp.stop_timeout
        await asyncio.gather(*(receiver.stop(seconds) for receiver in self._receivers))
        self._receivers = []

    async def _begun(self) -> None:
        if self._beginning is not None:
            self._beginning.cancel()
            await asyncio.gather(self._beginning, return_exceptions=True)
            self._beginning = None

    async def _begin(self) -> None:
        """Start the receivers that do not run yet."""
        running = [receiver.endpoint for receiver in self._receivers]
        missing = [endpoint for endpoint in receivers(self._config.otlp) if endpoint not in running]
        if not missing:
            return
        node = await asyncio.to_thread(detect, self._config)
        for endpoint in missing:
            receiver = _Receiver(endpoint, self._config, Resources(node), self._metrics, self._publication, self._began)
            receiver.start()
            self._receivers.append(receiver)
            extra = {"endpoint": shown(endpoint), "protocol": endpoint.protocol, "interval": endpoint.interval}
            log.info("OTLP: pushing", extra=extra)


def _common(config: Config) -> tuple[object, ...]:
    """What all receivers depend on."""
    otlp = config.otlp
    bounds = (otlp.queue_bytes, otlp.request_bytes, otlp.give_up_after)
    return (*bounds, otlp.resource_attributes, config.node, config.paths, config.attribution.kubernetes.node_name)


def _ended(task: asyncio.Task[None]) -> None:
    """The agent goes on without the push: what breaks here must not take /metrics along."""
    if not task.cancelled() and task.exception() is not None:
        log.error("OTLP: the push broke: this is a fault of the agent, please report it", exc_info=task.exception())


async def preview(config: Config, metrics: SelfMetrics, publication: Publication, chosen: Selection, began: int) -> str:
    """What would be sent now, as one line of JSON. ``began``: when the agent started, in Unix nanoseconds."""
    resources = Resources(await asyncio.to_thread(detect, config))
    encoder = Encoder(resources, chosen, began=began, limit=1 << 40)
    requests = await encoded(encoder, publication, resources, chosen, metrics)
    return json.line(b"".join(request.body for request in requests))
