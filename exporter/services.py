"""Services that other programs of a vendor expect of its exporter, offered where an option asks for them."""

from __future__ import annotations

import asyncio
import importlib
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from collectors.base import Device, DeviceState, HostPaths, ServiceUnavailable
from exporter.allocated import bearers
from exporter.families import Publication, parse_labels
from exporter.model import Allocation
from exporter.spec import CollectorSpec

log = logging.getLogger(__name__)

HEALTH: Final = "accel_health_state"


class Running(Protocol):
    """A service that has been started."""

    def stop(self) -> None: ...


class Services:
    """The services of all collectors that run. A module is imported only where its option is set."""

    def __init__(self, specs: Sequence[CollectorSpec]) -> None:
        self._wanted = [
            (spec, service.module)
            for spec in specs
            for service in spec.catalogue.collector.services.values()
            if spec.options.get(service.option) is True
        ]
        self._running: list[Running] = []
        self._states: Mapping[str, tuple[DeviceState, ...]] = {}

    @property
    def any(self) -> bool:
        return bool(self._wanted)

    async def start(self) -> None:
        """Start them. One that cannot be offered is told in the log; the agent goes on."""
        for spec, module in self._wanted:
            try:
                self._running.append(await asyncio.to_thread(self._open, spec, module))
            except ServiceUnavailable as error:
                log.error("a service is not offered: %s", error, extra={"collector": spec.name})

    async def stop(self) -> None:
        stopping, self._running = self._running, []
        for running in stopping:
            await asyncio.to_thread(running.stop)

    def show(
        self, publication: Publication, found: Sequence[tuple[str, Device]], allocation: Allocation | None
    ) -> None:
        """Take the newest states. Services read them from other threads: they are replaced whole."""
        if self._wanted:
            health = health_states(publication)
            vendors = {vendor for vendor, _ in found}
            self._states = {
                vendor: tuple(
                    _state(device, health.get(device.uuid, "unknown"), allocation or {})
                    for device in bearers([device for owner, device in found if owner == vendor])
                )
                for vendor in vendors
            }

    def _open(self, spec: CollectorSpec, module: str) -> Running:
        start_service: Callable[[Callable[[], Sequence[DeviceState]], HostPaths], Running]
        start_service = importlib.import_module(module).start_service
        vendor = spec.catalogue.collector.vendor
        return start_service(lambda: self._states.get(vendor, ()), spec.paths)


def health_states(publication: Publication) -> dict[str, str]:
    """uuid → the state that its health is in."""
    return {
        labels["uuid"]: labels["state"]
        for family in publication.families
        if family.name == HEALTH
        for block in family.blocks
        for text, value in zip(block.prefixes, block.values, strict=True)
        if value == 1
        for labels in (parse_labels(text),)
    }


def _state(device: Device, health: str, allocation: Allocation) -> DeviceState:
    workloads = allocation.get((device.uuid, device.partition), ())
    return DeviceState(device, health, tuple(f"{workload.namespace}/{workload.pod}" for workload in workloads))
