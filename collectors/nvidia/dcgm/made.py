"""Series that are no plain value of a field: counted, judged by DCGM, or told by other calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from collectors.base import Reading, Settings
from collectors.nvidia.clockevents import ClockEvents
from collectors.nvidia.dcgm import abi
from collectors.nvidia.dcgm.discovery import capacity, entity_of
from collectors.nvidia.dcgm.engine import Engine
from collectors.nvidia.dcgm.health import Finding, Health
from collectors.nvidia.dcgm.links import Links, read_links
from collectors.nvidia.dcgm.readout import Readout
from collectors.nvidia.inventory import Gpu, Inventory
from collectors.nvidia.readings import emit
from collectors.nvidia.windows import window
from collectors.nvidia.xidbook import XidBook

XIDS: Final = "DCGM_FI_DEV_XID_ERRORS"
XID_COUNTS: Final = "DCGM_EXP_XID_ERRORS_COUNT"
CLOCK_COUNTS: Final = "DCGM_EXP_CLOCK_EVENTS_COUNT"
HEALTH: Final = "DCGM_EXP_GPU_HEALTH_STATUS"
CAPACITY: Final = "dcgm_memory_capacity_mebibytes"
LINKS: Final = "dcgm_nvlink_links"
LINKS_UP: Final = "dcgm_nvlink_links_up"
LINK_UP: Final = "dcgm_nvlink_link_up"
MADE: Final = (XIDS, XID_COUNTS, CLOCK_COUNTS, HEALTH, CAPACITY, LINKS, LINKS_UP, LINK_UP)
OF_LOST: Final = (XIDS, XID_COUNTS)
"""What is told of a GPU that does not answer: alerts on Xid 79 need it when no more is left."""

Incidents = Mapping[abi.Entity, list[Finding]]


class Maker:
    """Keeps what has been seen of clock events over their window."""

    __slots__ = ("_book", "_by_link", "_clock_events")

    def __init__(self, settings: Settings, book: XidBook) -> None:
        self._book = book
        self._clock_events = ClockEvents(window(settings, "clock_count_window_ms"))
        self._by_link = settings.links == "each"

    def make(
        self,
        engine: Engine,
        inventory: Inventory,
        readout: Readout,
        health: Health | None,
        wanted: frozenset[str],
        lost: frozenset[int],
        out: list[Reading],
    ) -> None:
        """Add the wanted ones. Raises DcgmFailure when the engine does not answer."""
        links = Links({}, {})
        if wanted & {LINKS, LINKS_UP, LINK_UP}:
            with readout.tolerating():
                links = read_links(engine)
        incidents: Incidents | None = None
        if health is not None and HEALTH in wanted:
            with readout.tolerating():
                incidents = health.read()
        for gpu in (*inventory.gpus, *_ghosts(inventory)):
            if XIDS in wanted:
                self._book.last_xid(gpu, XIDS, out)
            if XID_COUNTS in wanted:
                self._book.xid_counts(gpu, XID_COUNTS, out)
            if gpu.position in lost:
                continue
            mask = readout.masks.get(gpu.position)
            if CLOCK_COUNTS in wanted and mask is not None:
                self._clock_events.read(gpu, mask, CLOCK_COUNTS, out)
            if CAPACITY in wanted:
                with readout.tolerating(gpu.position):
                    emit(out, CAPACITY, gpu.rows, capacity(engine, entity_of(gpu)[1]))
            if health is not None and incidents is not None:
                _judge(gpu, health.complete(incidents.get(entity_of(gpu), [])), out)
            self._count_links(gpu, links.of_gpus.get(entity_of(gpu)[1], {}), wanted, out)

    def _count_links(self, gpu: Gpu, states: Mapping[int, bool], wanted: frozenset[str], out: list[Reading]) -> None:
        if not states:
            return
        if LINKS in wanted:
            emit(out, LINKS, gpu.rows, len(states))
        if LINKS_UP in wanted:
            emit(out, LINKS_UP, gpu.rows, sum(states.values()))
        if LINK_UP in wanted and self._by_link:
            for link, up in states.items():
                emit(out, LINK_UP, gpu.rows, int(up), (("link", str(link)),))


def _judge(gpu: Gpu, findings: list[Finding], out: list[Reading]) -> None:
    for finding in findings:
        labels = (("health_error_code", finding.error), ("health_watch", finding.watch))
        emit(out, HEALTH, gpu.rows, finding.result, labels)


def _ghosts(inventory: Inventory) -> list[Gpu]:
    """GPUs that were lost before this discovery."""
    devices = inventory.devices
    return [Gpu(position=lost, handle=None, nvml_index=-1, uuid=devices[lost].uuid) for lost in inventory.lost]
