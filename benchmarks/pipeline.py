"""The agent's own stages in one process, without pipes and clocks between them: sample, publish, write."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Final

import msgspec

from collectors.base import Group
from exporter.assemble import Member
from exporter.derived import Book
from exporter.exposition import BodyRequest, Exposition
from exporter.families import Publication
from exporter.model import Configure, Discover, Discovered, GroupSample, Read, ReadDone, Snapshot
from exporter.negotiation import Encoding, Format
from exporter.program import Source, read
from exporter.publisher import CollectorStatus, Publisher
from exporter.view import View
from exporter.worker import Session

ACCELERATED: Final = "benchmarks.accelerated"
VENDOR: Final = "nvidia"
"""Whose tables the simulated devices have: the largest catalogue."""


class Node:
    """A simulated node whose worker, supervisor and publisher are called in turn."""

    def __init__(self, devices: int, *, distinct: bool = False) -> None:
        """``distinct``: no two readings of a series are the same number."""
        self.session = Session()
        self.book = Book(600.0)
        self.publisher = Publisher(self.book, lambda reason, count: None)
        self._member = _member(devices)
        self._view = View(self._member.spec.catalogue, self._member.view)
        self._distinct = distinct
        self._tick = 0
        self._monotonic = time.monotonic()
        self.snapshot = self._discover()

    def sample(self, group: Group) -> GroupSample:
        """Ask the worker for one group. Raises RuntimeError when it cannot give it."""
        reply = self.session.answer(Read(group))
        if not isinstance(reply, ReadDone):
            raise RuntimeError(f"the simulation did not give the group {group}: {reply}")
        before = self.snapshot.groups.get(group)
        layout = reply.layout if reply.layout is not None else before.layout if before else ()
        if reply.faults:
            self.book.record(
                self._member.spec.catalogue,
                self.snapshot.devices,
                reply.faults,
                now=reply.taken_at,
                monotonic=self._monotonic,
            )
        return GroupSample(
            layout=layout,
            values=reply.values,
            taken_at=reply.taken_at,
            taken_monotonic=self._monotonic,
            duration=reply.duration,
            lost=frozenset(reply.lost),
        )

    def take(self, *groups: Group) -> None:
        """Read these groups anew."""
        self._tick += 1
        self._monotonic += 5.0
        found: Mapping[Group, GroupSample] = {group: self.sample(group) for group in groups}
        merged = {**self.snapshot.groups, **found}
        lost = frozenset[int]().union(*(sample.lost for sample in merged.values()))
        self.snapshot = msgspec.structs.replace(self.snapshot, groups=merged, lost=lost)

    def publish(self) -> Publication:
        """What a scrape would see now."""
        status = CollectorStatus(
            name=VENDOR, view=self._view, snapshot=self.snapshot, present=len(self.snapshot.devices)
        )
        return self.publisher.publish([status], None, now=time.time(), monotonic=self._monotonic)

    def forget(self) -> None:
        """Forget label strings and plans, as after a change of the devices."""
        self._view = View(self._member.spec.catalogue, self._member.view)

    def _discover(self) -> Snapshot:
        spec = self._member.spec
        # The fields that a request has in common with the specification, and those that differ here.
        shared = {name: getattr(spec, name) for name in Configure.__struct_fields__ if hasattr(spec, name)}
        here = {
            "module": ACCELERATED,
            "digest": spec.catalogue.digest,
            "call_limit": 0.0,
            "options": {**spec.options, "distinct": self._distinct},
        }
        configured = self.session.answer(Configure(**{**shared, **here}))
        reply = self.session.answer(Discover())
        if not isinstance(reply, Discovered):
            raise RuntimeError(f"the simulation does not start: {configured}, {reply}")
        self.snapshot = Snapshot(
            collector=VENDOR, vendor=VENDOR, generation=1, devices=reply.devices, groups={}, simulated=True
        )
        for group, wanted in spec.wanted.items():
            if wanted:
                self.take(group)
        return self.snapshot


def _member(devices: int) -> Member:
    flags = {"simulate": f"{VENDOR}={devices}", "node": "node-1"}
    return read(Source(None, flags), environ={}).members[0]


def count(publication: Publication) -> int:
    """Series in a publication."""
    return sum(len(block.prefixes) for family in publication.families for block in family.blocks)


def devices_for(series: int) -> int:
    """As many simulated devices as make about so many series."""
    few, more = 8, 40
    one, other = (count(Node(devices).publish()) for devices in (few, more))
    each = (other - one) / (more - few)
    return max(1, round(few + (series - one) / each))


class Writer:
    """An exposition whose bodies are written in turn, on an event loop of their own."""

    def __init__(self) -> None:
        self._exposition = Exposition(lambda _: b"")

    def write(self, publication: Publication, format_: Format, encoding: Encoding = "identity") -> tuple[bytes, float]:
        """The body, and the seconds of this thread's processor time that it took."""

        async def timed() -> tuple[bytes, float]:
            began = time.thread_time()
            body = await self._exposition.body(publication, BodyRequest(format=format_, encoding=encoding))
            return body.content, time.thread_time() - began

        # Not asyncio.run, which makes a text of the result to set back a signal.
        loop = asyncio.new_event_loop()
        try:
            return loop.run_until_complete(timed())
        finally:
            loop.run_until_complete(loop.shutdown_default_executor())
            loop.close()
