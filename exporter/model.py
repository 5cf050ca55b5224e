"""The data that flows from a worker to the exposition. Everything here is immutable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from collectors.base import Device, Fault, Group, Holder, HostPaths, Labels, Process, ReadError

Number = int | float
Exactness = Literal["exact", "approximate", "derived", "estimated"]
MetricType = Literal["gauge", "counter"]
CollectorState = Literal[
    "starting",
    "running",
    "no_device",
    "no_library",
    "no_driver",
    "no_permission",
    "version_mismatch",
    "released",
    "timeout",
    "crashed",
    "stuck",
    "failed",
]


class Key(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A reading without its value: which series of which device (a position in ``Snapshot.devices``, or NODE)."""

    series: str
    device: int
    labels: Labels = ()


Layout = tuple[Key, ...]
"""The keys of a group's readings: the same object as long as they are the same, so what depends on it is made once."""


class GroupSample(msgspec.Struct, frozen=True, kw_only=True):
    """One group of readings, taken together."""

    layout: Layout
    values: tuple[Number, ...]
    taken_at: float
    """Unix seconds: shown to people. Never used to tell an age, since clocks jump."""
    taken_monotonic: float
    """When it was asked for, on this process's monotonic clock, in seconds: ages are told from it."""
    duration: float
    """Seconds that reading took."""
    errors: tuple[ReadError, ...] = ()
    lost: frozenset[int] = frozenset()
    """Devices that did not answer."""
    processes: tuple[Process, ...] | None = None
    holders: tuple[Holder, ...] = ()
    """Whose devices are, as an exporter that is bridged says it."""


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The newest of everything that one collector has read. Replaced whole at each sample."""

    collector: str
    vendor: str
    generation: int
    """Counts discoveries: sources of common series may change with it, and only with it."""
    devices: tuple[Device, ...]
    groups: Mapping[Group, GroupSample]
    lost: frozenset[int] = frozenset()
    source: str = ""
    """Which of the vendor's own ways to read is in use, where there are several."""
    simulated: bool = False
    bridged: bool = False
    """Read from the vendor's own exporter."""


class SeriesId(msgspec.Struct, frozen=True, gc=False):
    """The identity of a common series: metric, device and the labels beyond the device's."""

    metric: str
    uuid: str
    partition: str
    labels: Labels = ()


# The worker protocol. Every message is one MessagePack value behind a length of four bytes, network order.


class Configure(msgspec.Struct, frozen=True, tag="configure", kw_only=True):
    module: str
    """The package that offers ``open_collector``."""
    tables: str
    """The folder of the vendor's tables."""
    digest: str
    """What ``exporter.digest`` makes of the agent's: a worker that finds other tables does not serve them."""
    call_limit: float
    """Seconds after which a call is certainly hung: the worker ends itself even if the agent is gone."""
    wanted: Mapping[Group, frozenset[str]]
    paths: HostPaths
    node: str
    links: Literal["sum", "each"]
    processes: bool
    source: str
    profile: str
    options: Mapping[str, object]


class Discover(msgspec.Struct, frozen=True, tag="discover"):
    pass


class Read(msgspec.Struct, frozen=True, tag="read"):
    group: Group


class Close(msgspec.Struct, frozen=True, tag="close"):
    pass


Request = Configure | Discover | Read | Close


class Configured(msgspec.Struct, frozen=True, tag="configured"):
    pass


class Discovered(msgspec.Struct, frozen=True, tag="discovered"):
    devices: tuple[Device, ...]
    source: str = ""


class ReadDone(msgspec.Struct, frozen=True, tag="read_done", kw_only=True):
    """``layout`` is sent only when it differs from the one that the group had before."""

    layout: Layout | None
    values: tuple[Number, ...]
    errors: tuple[ReadError, ...]
    faults: tuple[Fault, ...]
    lost: tuple[int, ...]
    rediscover: bool
    processes: tuple[Process, ...] | None
    taken_at: float
    """Unix seconds."""
    duration: float
    """Seconds that reading took."""
    holders: tuple[Holder, ...] = ()
    unknown: tuple[str, ...] = ()
    """Series that the collector gave and the catalogue does not know: dropped, and counted."""


class Closed(msgspec.Struct, frozen=True, tag="closed"):
    pass


class NotAvailable(msgspec.Struct, frozen=True, tag="not_available", kw_only=True):
    state: str
    hint: str
    restart: bool = False


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """The collector raised what it should not have; ``detail`` is its traceback, for the log."""

    detail: str


Reply = Configured | Discovered | ReadDone | Closed | NotAvailable | Failed


# What attribution tells of a device or part (exporter/attribution fills it).


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """One container, or one batch job, that works on a device. What is not known stays empty."""

    namespace: str = ""
    pod: str = ""
    container: str = ""
    job_name: str = ""
    tenant: str = ""
    pod_uid: str = ""
    job_kind: str = ""
    queue: str = ""
    served_model: str = ""
    resource: str = ""
    share: str = ""
    """Which share of a shared device (the replica's number, a share id)."""
    replicas: int = 0
    """How many shares of the device it has; 0: not told."""
    raw: Mapping[str, str] = {}
    """Labels that the vendor's own exporter would add (hpc_job, …)."""
    labels: Labels = ()
    """Chosen labels of the pod, ready to be exposed."""


Allocation = Mapping[tuple[str, str], Sequence[Workload]]
"""(uuid, partition) → its workloads. One workload: exclusive. Several: shared."""


ContainerKey = tuple[str, str, str, str, str]
"""uuid, partition, namespace, pod, container"""


class Usage(msgspec.Struct, frozen=True):
    """What the processes of one container use of a device; None where not all of them tell."""

    memory: int | None = None
    """Bytes."""
    utilization: float | None = None
    """Share of the device's time, 0 to 1."""


class Attributed(msgspec.Struct, frozen=True, eq=False):
    """What attribution knows now. The allocation is the same object as long as it is the same."""

    allocation: Allocation
    usage: Mapping[ContainerKey, Usage] = {}
    unsure: frozenset[str] = frozenset()
    """Vendors of whose devices one without a workload may have one: nobody tells which."""
