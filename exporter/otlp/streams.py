"""Start times of counters: since when has the whole value arisen?

The rules (https://opentelemetry.io/docs/specs/otel/metrics/data-model/#resets-and-gaps):

- A counter of the agent's own stood at zero when the agent started, or when the present workload got the device.
- Of a vendor's counter nobody knows when it stood at zero. The first point that a receiver has taken starts at its own
  time, so it says nothing about the past, and the later ones keep that start.
- A counter that falls has begun anew since its last point.
- With another workload a new stream begins: what the device did before is not charged to the newcomer.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence

from exporter.model import Allocation, Workload

Owner = tuple[str, str]
"""uuid, partition"""


class Stream:
    """One counter of one workload. Times in Unix nanoseconds."""

    __slots__ = ("at", "last", "pending", "resource", "start")

    def __init__(self, resource: object, start: int | None) -> None:
        self.resource = resource
        self.start = start
        """None: not known, and no receiver has taken a point yet from which it could be."""
        self.pending = 0
        """The newest start that was sent and not yet taken."""
        self.last = 0.0
        self.at = 0

    def point(self, value: float, time: int) -> int:
        """The start time of the next point."""
        if time < self.at:
            # The clock was set back: a start after the point would make it void.
            self.start = None
        elif value < self.last and self.start is not None:
            self.start = self.at
        self.last, self.at = value, time
        if self.start is not None and self.start <= time:
            return self.start
        self.pending = time
        return time

    def taken(self, time: int) -> None:
        """A receiver has the point of this time. Of several on their way the newest counts, or starts would go back."""
        if self.start is None and self.pending == time:
            self.start = time


class Streams:
    """All counters that one receiver is sent."""

    def __init__(self, began: int) -> None:
        """``began``: when the agent's own counters stood at zero."""
        self._began = began
        self._streams: dict[Hashable, Stream] = {}
        self._own: set[Hashable] = set()
        """Counters of the agent's own that were seen under any workload."""
        self._allocation: Allocation | None = None
        self._workloads: dict[Owner, Sequence[Workload]] = {}
        self._since: dict[Owner, int] = {}

    def allocated(self, allocation: Allocation | None, time: int) -> frozenset[Owner]:
        """Take note of who works on the devices. Returns those that have another workload than before."""
        if allocation is self._allocation:
            return frozenset()
        self._allocation = allocation
        found: Mapping[Owner, Sequence[Workload]] = allocation if allocation is not None else {}
        changed = frozenset(
            owner
            for owner in self._workloads.keys() | found.keys()
            if tuple(found.get(owner, ())) != tuple(self._workloads.get(owner, ()))
        )
        self._since.update(dict.fromkeys(changed, time))
        self._workloads = dict(found)
        return changed

    def get(self, key: Hashable, resource: object, *, owner: Owner | None, own: bool) -> Stream:
        """The counter's stream. ``owner``: the device, if the counter bears its workload; ``own``: the agent's own."""
        stream = self._streams.get(key)
        if stream is not None and stream.resource is resource:
            return stream
        start = None
        if own and key not in self._own:
            # It was not there when the workload got the device, so it stood at zero.
            start = self._since.get(owner, self._began) if owner is not None else self._began
        elif own and owner is None:
            start = self._began
        if own:
            self._own.add(key)
        stream = self._streams[key] = Stream(resource, start)
        return stream

    def observe(self, key: Hashable, resource: object, *, owner: Owner, value: float, time: int) -> None:
        """A counter of the agent's own, at the moment when another workload got the device: what it shows is past."""
        before = self._streams.get(key)
        stream = self.get(key, resource, owner=owner, own=True)
        if stream is not before:
            stream.start = time if value == 0 else None
            stream.last, stream.at = value, time

    def drop(self, key: Hashable, resource: object) -> None:
        """The counter of this workload is gone; if it comes back it begins anew."""
        stream = self._streams.get(key)
        if stream is not None and stream.resource is resource:
            del self._streams[key]


def taken(points: Iterable[tuple[Stream, int]]) -> None:
    """A receiver has these points, each with the time of it."""
    for stream, time in points:
        stream.taken(time)
