"""The JSON API, version 1: what each answer holds. Units are the common schema's: ratios 0 to 1, bytes, watts, celsius.

A quantity that a device does not tell, or whose sample is too old, is left out of its object: it is never 0 instead.
Fields may be added; none is removed, renamed or given another meaning before ``/api/v2``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from exporter.model import CollectorState, Exactness, Number

Health = Literal["healthy", "degraded", "failed", "unknown"]
Severity = Literal["info", "degraded", "fatal"]
UnixSeconds = Annotated[float, Meta(description="Unix time in seconds.")]
Ratio = Annotated[float, Meta(description="A share, where 1 is all of it.")]

QUANTITIES: Final = (
    "utilization_ratio",
    "compute_active_ratio",
    "memory_used_bytes",
    "temperature_celsius",
    "power_watts",
)
"""Fields of a device of which a history is kept."""


class Workload(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A container or a batch job that holds a device or part. What is not known is left out."""

    namespace: str = ""
    pod: str = ""
    container: str = ""
    job_name: str = ""
    job_kind: str = ""
    tenant: str = ""
    queue: str = ""
    served_model: str = ""
    resource: Annotated[str, Meta(description="What was asked of the scheduler.")] = ""
    share: Annotated[str, Meta(description="exclusive or shared")] = ""
    replicas: Annotated[str, Meta(description="How many shares of the device it has.")] = ""
    labels: Annotated[Mapping[str, str], Meta(description="The pod's labels that the configuration chose.")] = {}


class FaultCode(msgspec.Struct, frozen=True, kw_only=True):
    """Events of one fault code since the agent started."""

    code: Annotated[str, Meta(description="As the vendor codes it.")]
    name: Annotated[str, Meta(description="In words, where the vendor's table has any.")]
    fault_class: Annotated[str, Meta(description="memory, interconnect, compute, thermal, …")] = msgspec.field(
        name="class"
    )
    severity: Severity
    action: str
    count: int
    last: UnixSeconds


class Device(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A device, or a part of one. Each quantity stands at one level: on the parts where these have it."""

    vendor: Annotated[str, Meta(description="As in the label `vendor`.")]
    device: Annotated[str, Meta(description="The index that people type.")]
    uuid: Annotated[str, Meta(description="Stable identity of the physical device; a part has that of its whole.")]
    partition: Annotated[str, Meta(description="The part's id inside its device; left out for a whole device.")] = ""
    kind: str = ""
    model: str = ""
    serial: str = ""
    pci_bus_id: str = ""
    driver_version: str = ""
    firmware_version: str = ""
    numa_node: str = ""
    partition_uuid: str = ""
    partition_profile: str = ""
    device_class: Annotated[str, Meta(description="The operator's own name for this kind of device.")] = ""
    simulated: bool = False
    collector: Annotated[str, Meta(description="Which collector took the newest sample.")] = ""
    sampled_at: Annotated[UnixSeconds | None, Meta(description="When the newest sample was taken.")] = None
    stale: Annotated[
        bool, Meta(description="The newest sample is older than it may be: its values have been withdrawn.")
    ] = False
    health: Annotated[Health | None, Meta(description="Of whole devices alone.")] = None
    reasons: Annotated[tuple[str, ...], Meta(description="Why the device is not healthy, in words.")] = ()
    recovery_actions: Annotated[tuple[str, ...], Meta(description="What the device needs, other than nothing.")] = ()
    throttling: Annotated[tuple[str, ...], Meta(description="What slows the device down now.")] = ()
    faults: tuple[FaultCode, ...] = ()
    utilization_ratio: Annotated[Ratio | None, Meta(description="Share of time in which anything ran.")] = None
    compute_active_ratio: Annotated[Ratio | None, Meta(description="Share of compute units at work.")] = None
    matrix_active_ratio: Annotated[Ratio | None, Meta(description="Share of matrix engine cycles at work.")] = None
    memory_bandwidth_active_ratio: Annotated[
        Ratio | None, Meta(description="Share of time or cycles in which device memory moved data.")
    ] = None
    memory_used_bytes: Number | None = None
    memory_total_bytes: Number | None = None
    temperature_celsius: Number | None = None
    temperature_sensor: Annotated[str, Meta(description="Which sensor `temperature_celsius` is from.")] = ""
    temperature_limit_celsius: Annotated[
        Number | None, Meta(description="The same sensor's limit, above which the device slows down.")
    ] = None
    power_watts: Number | None = None
    power_limit_watts: Annotated[Number | None, Meta(description="The limit in force.")] = None
    allocated: Annotated[bool | None, Meta(description="Left out where no source tells who works on devices.")] = None
    workloads: tuple[Workload, ...] = ()
    parts: tuple[Device, ...] = ()


class MetricSource(msgspec.Struct, frozen=True, kw_only=True):
    """Where a vendor's devices have a metric from; several where its devices differ."""

    vendor: str
    metric: str
    source: Annotated[str, Meta(description="The raw series or native field.")]
    exactness: Exactness


class Count(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Devices of one vendor on this node."""

    vendor: str
    present: Annotated[int | None, Meta(description="On the bus; left out where the bus does not tell.")] = None
    reporting: Annotated[int | None, Meta(description="That gave a sample which is not stale.")] = None
    expected: Annotated[int | None, Meta(description="As configured, else the most seen since the start.")] = None


class Devices(msgspec.Struct, frozen=True, kw_only=True):
    """``GET /api/v1/devices``"""

    now: Annotated[UnixSeconds, Meta(description="When this was answered, by the agent's clock.")]
    version: Annotated[int, Meta(description="Number of the publication; it grows while the agent works.")]
    devices: tuple[Device, ...]
    counts: tuple[Count, ...]
    sources: tuple[MetricSource, ...]


class DeviceHistory(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Values of one device or part, one for each time of the answer; null where there was none."""

    vendor: str
    uuid: str
    partition: str = ""
    utilization_ratio: tuple[float | None, ...] = ()
    compute_active_ratio: tuple[float | None, ...] = ()
    memory_used_bytes: tuple[float | None, ...] = ()
    temperature_celsius: tuple[float | None, ...] = ()
    power_watts: tuple[float | None, ...] = ()


class History(msgspec.Struct, frozen=True, kw_only=True):
    """``GET /api/v1/history``: the agent's short memory, for the small curves of the page. It is no database."""

    started_at: Annotated[UnixSeconds, Meta(description="When the agent started: another one remembers nothing.")]
    period: Annotated[float, Meta(description="Seconds between two points.")]
    points: Annotated[int, Meta(description="The most that are kept.")]
    times: tuple[UnixSeconds, ...]
    devices: tuple[DeviceHistory, ...]


class Collector(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How one collector is."""

    name: str
    title: str
    vendor: str
    state: CollectorState
    hint: Annotated[str, Meta(description="What to do about the state; left out where nothing is to be done.")] = ""
    devices: Annotated[int, Meta(description="Devices and parts that were found.")] = 0
    series: Annotated[int, Meta(description="Raw series in its newest samples.")] = 0
    sampled_at: UnixSeconds | None = None
    age: Annotated[float | None, Meta(description="Seconds since the newest sample, by a clock that never jumps.")] = (
        None
    )
    stale: Annotated[
        tuple[str, ...], Meta(description="Groups of readings that are too old: their series have been withdrawn.")
    ] = ()
    source: Annotated[str, Meta(description="Which of the vendor's own ways to read is in use.")] = ""
    bridged: Annotated[bool, Meta(description="Read from the vendor's own exporter.")] = False
    simulated: bool = False
    errors: Annotated[tuple[str, ...], Meta(description="What could not be read in the newest samples.")] = ()


class AttributionSource(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a source that tells who works on a device is."""

    name: str
    up: bool
    last_success: UnixSeconds | None = None
    hint: str = ""


class Attribution(msgspec.Struct, frozen=True, kw_only=True):
    """Who tells which workload holds a device, and what could not be told."""

    active: Annotated[bool, Meta(description="Whether there is any source.")]
    sources: tuple[AttributionSource, ...] = ()
    unattributed: Annotated[Mapping[str, int], Meta(description="Reason → devices and parts without a workload.")] = {}
    unmatched: Annotated[Mapping[str, int], Meta(description="Resource → ids that no collector knows.")] = {}
    contradictions: Annotated[int, Meta(description="Devices for which two sources name different workloads.")] = 0


class OtlpEndpoint(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How one target of OTLP push is."""

    name: Annotated[str, Meta(description="Without credentials.")]
    up: Annotated[bool | None, Meta(description="Whether it took the last request; left out before the first.")] = None
    last_success: UnixSeconds | None = None
    hint: str = ""
    queued: Annotated[int, Meta(description="Requests that wait.")] = 0
    dropped: Annotated[int, Meta(description="Points given up since the start.")] = 0


class Status(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """``GET /api/v1/status``"""

    agent_version: str
    node: str
    now: Annotated[UnixSeconds, Meta(description="When this was answered, by the agent's clock.")]
    started_at: UnixSeconds
    ready: Annotated[bool, Meta(description="Whether every collector has been tried.")]
    healthy: Annotated[bool, Meta(description="Whether the agent itself works.")]
    simulated: bool = False
    trouble: Annotated[str, Meta(description="Why the agent itself does not work.")] = ""
    common_schema: Annotated[bool, Meta(description="Without the common schema no device can be shown.")] = True
    collectors: tuple[Collector, ...] = ()
    attribution: Attribution = Attribution(active=False)
    otlp: tuple[OtlpEndpoint, ...] = ()


class Feed(msgspec.Struct, frozen=True, kw_only=True):
    """One raw series, and one common metric that it feeds."""

    collector: str
    raw: str
    type: str
    unit: str
    native: Annotated[str, Meta(description="What it is read from; empty where only the vendor's exporter has it.")]
    common: Annotated[str, Meta(description="The common metric with its labels; empty where it feeds none.")]
    exactness: Annotated[str, Meta(description="exact, approximate, derived, estimated; empty where it feeds none.")]
    how: Annotated[str, Meta(description="The conversion beyond that of units, in words.")]


class Mapped(msgspec.Struct, frozen=True, kw_only=True):
    """``GET /api/v1/mapping``"""

    mapping: tuple[Feed, ...]


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """One key of the configuration."""

    key: str
    value: Annotated[object, Meta(description="As in the file, but for what is hidden.")]
    default: Annotated[bool, Meta(description="Whether it is what it would be without any configuration.")]
    hidden: Annotated[bool, Meta(description="Whether `value` leaves out a secret or the place of a file.")]


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """``GET /api/v1/config``: the configuration in force."""

    settings: tuple[Setting, ...]
