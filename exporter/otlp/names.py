"""What a series is called over OTLP: instrument and attributes.

Where OpenTelemetry's hardware conventions (https://opentelemetry.io/docs/specs/semconv/hardware/) have a name, the
schema tells it; some names extend them as other collectors do (``hw.frequency``, ``hw.gpu.info``, ``hw.power.limit``).
Everything else is ``accel.`` and the name without prefix, unit and ``_total``, so that the rules by which Prometheus
translates OTLP make the very name of ``/metrics`` out of name, unit and type
(https://opentelemetry.io/docs/specs/otel/compatibility/prometheus_and_openmetrics/).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from collectors.base import Labels
from exporter.families import Family
from exporter.schema import IDENTITY, METRICS, WORKLOAD, Metric

Kind = Literal["gauge", "sum", "counter", "histogram"]
"""``sum``: not monotonic, for what adds up over devices and for states and facts, which are 0 or 1."""

PREFIX: Final = "accel_"
UCUM: Final[Mapping[str, str]] = {
    "celsius": "Cel",
    "watts": "W",
    "joules": "J",
    "bytes": "By",
    "bytes_per_second": "By/s",
    "hertz": "Hz",
    "seconds": "s",
    "ratio": "1",
    "volts": "V",
    "rpm": "rpm",
    "flops_per_second": "{flop}/s",
}
"""Unit of the schema → unit of OTLP (https://ucum.org)."""

_COUNTED: Final[Mapping[str, str]] = {
    "accel_devices_present": "{device}",
    "accel_devices_reporting": "{device}",
    "accel_devices_expected": "{device}",
    "accel_capacity_compute_units": "{unit}",
    "accel_compute_units": "{unit}",
    "accel_pcie_errors_total": "{error}",
    "accel_pcie_replays_total": "{packet}",
    "accel_pcie_link_width": "{lane}",
    "accel_pcie_link_max_width": "{lane}",
    "accel_pcie_link_generation": "{generation}",
    "accel_pcie_link_max_generation": "{generation}",
    "accel_interconnect_errors_total": "{error}",
    "accel_interconnect_links_up": "{link}",
    "accel_interconnect_links": "{link}",
    "accel_memory_errors_total": "{error}",
    "accel_memory_errors_lifetime_total": "{error}",
    "accel_memory_repairs": "{repair}",
    "accel_memory_repair_banks": "{bank}",
    "accel_faults_total": "{fault}",
    "accel_fault_code_total": "{fault}",
    "accel_execution_errors_total": "{error}",
    "accel_processes": "{process}",
}
"""What pure numbers count. Those that stand nowhere here are states and facts, 0 or 1."""

_NEVER_ADDED: Final = frozenset({"accel_pcie_link_generation", "accel_pcie_link_max_generation"})


class Instrument(msgspec.Struct, frozen=True, eq=False):
    """A metric of OTLP, without its points."""

    name: str
    unit: str
    kind: Kind
    description: str
    integer: bool = False
    """Its values are whole numbers and sent as such."""


class Point(msgspec.Struct, frozen=True):
    """Which instrument a series belongs to, under which attributes."""

    instrument: Instrument
    attributes: Labels


class _Convention(msgspec.Struct, frozen=True):
    """How the labels of a metric become attributes of its convention."""

    fixed: Labels = ()
    labels: Mapping[str, str] = {}
    """Label → attribute; empty: the name of the metric says it already."""
    values: Mapping[str, Mapping[str, str]] = {}
    """Label → its value → the attribute's. What is not listed has no place in the convention."""


MEMORY_UTILIZATION: Final = Metric(
    name="accel_memory_utilization_ratio",
    type="gauge",
    unit="ratio",
    help="Share of the device memory that is in use.",
    labels={"memory": ("device",)},
    workload=True,
    otlp="hw.gpu.memory.utilization",
)
"""Used over total: the conventions have it beside its parts, /metrics does not."""

_GPU: Final = (("hw.type", "gpu"),)
_RECEIVE: Final = (("network.io.direction", "receive"),)
_TRANSMIT: Final = (("network.io.direction", "transmit"),)
_DEVICE_MEMORY: Final = _Convention(labels={"memory": ""}, values={"memory": {"device": ""}})
_DOMAINS: Final = {"domain": {"core": "gpu", "memory": "memory", "media": "media", "fabric": "fabric"}}
_CONVENTIONS: Final[Mapping[str, _Convention]] = {
    "accel_info": _Convention(
        labels={
            "model": "hw.model",
            "serial": "hw.serial_number",
            "driver_version": "hw.driver_version",
            "firmware_version": "hw.firmware_version",
        }
    ),
    "accel_health_state": _Convention(
        fixed=_GPU,
        labels={"state": "hw.state"},
        values={"state": {"healthy": "ok", "degraded": "degraded", "failed": "failed"}},
    ),
    "accel_temperature_celsius": _Convention(labels={"sensor": "hw.sensor_location"}),
    "accel_temperature_limit_celsius": _Convention(
        labels={"sensor": "hw.sensor_location", "limit": "hw.limit_type"},
        values={"limit": {"slowdown": "throttled", "shutdown": "critical", "max_operating": "max"}},
    ),
    "accel_power_watts": _Convention(fixed=_GPU),
    "accel_power_limit_watts": _Convention(fixed=_GPU, labels={"limit": "hw.limit_type"}),
    "accel_energy_joules_total": _Convention(fixed=_GPU),
    "accel_fan_speed_ratio": _Convention(labels={"fan": "hw.sensor_location"}),
    "accel_fan_speed_rpm": _Convention(labels={"fan": "hw.sensor_location"}),
    "accel_voltage_volts": _Convention(labels={"rail": "hw.sensor_location"}),
    "accel_memory_total_bytes": _DEVICE_MEMORY,
    "accel_memory_used_bytes": _DEVICE_MEMORY,
    MEMORY_UTILIZATION.name: _DEVICE_MEMORY,
    "accel_utilization_ratio": _Convention(fixed=(("hw.gpu.task", "general"),)),
    "accel_media_utilization_ratio": _Convention(
        labels={"engine": "hw.gpu.task"}, values={"engine": {"encoder": "encoder", "decoder": "decoder"}}
    ),
    "accel_clock_hertz": _Convention(labels={"domain": "hw.frequency.domain"}, values=_DOMAINS),
    "accel_clock_limit_hertz": _Convention(
        labels={"domain": "hw.frequency.domain", "limit": "hw.limit_type"}, values=_DOMAINS
    ),
    "accel_pcie_received_bytes_total": _Convention(fixed=_RECEIVE),
    "accel_pcie_sent_bytes_total": _Convention(fixed=_TRANSMIT),
    "accel_pcie_received_bytes_per_second": _Convention(fixed=_RECEIVE),
    "accel_pcie_sent_bytes_per_second": _Convention(fixed=_TRANSMIT),
    "accel_memory_errors_total": _Convention(
        fixed=_GPU,
        labels={"correctable": "error.type"},
        values={"correctable": {"true": "corrected", "false": "uncorrected"}},
    ),
}


def _instrument(metric: Metric, name: str) -> Instrument:
    if metric.type == "counter":
        kind: Kind = "counter"
    else:
        kind = "sum" if metric.unit in ("", "bytes") and metric.name not in _NEVER_ADDED else "gauge"
    unit = UCUM[metric.unit] if metric.unit else _COUNTED.get(metric.name, "1")
    return Instrument(name, unit, kind, metric.help, integer=metric.unit in ("", "bytes"))


def _plain_names() -> dict[str, str]:
    """Two metrics that would have one name keep their units' first words in it, but for the first of them."""
    found: dict[str, str] = {}
    taken: set[str] = set()
    for metric in METRICS.values():
        full = metric.name.removesuffix("_total")
        words = full.removesuffix(f"_{metric.unit}") if metric.unit != "flops_per_second" else PREFIX + "flops"
        if words in taken:
            words += f"_{metric.unit.partition('_per_')[0]}"
        taken.add(words)
        found[metric.name] = "accel." + words.removeprefix(PREFIX)
    return found


PLAIN: Final[Mapping[str, Instrument]] = {
    name: _instrument(METRICS[name], plain) for name, plain in _plain_names().items()
}
"""Metric of the schema → its instrument by the rule."""

CONVENTIONAL: Final[Mapping[str, Instrument]] = {
    metric.otlp: _instrument(metric, metric.otlp)
    for metric in reversed((*METRICS.values(), MEMORY_UTILIZATION))
    if metric.otlp
}
"""Name of a convention → its instrument; where several metrics share it the first describes it."""


def conventional(metric: Metric, labels: Mapping[str, str]) -> Point | None:
    """A common series under the conventions, else as ``accel.*``. None: the conventions have another way to say it."""
    convention = _CONVENTIONS.get(metric.name) if metric.otlp else None
    identity = _hardware(labels)
    if convention is not None:
        attributes = [*identity, *convention.fixed]
        for label in metric.labels:
            if label not in labels:
                continue
            value = labels[label]
            allowed = convention.values.get(label)
            if allowed is not None and value not in allowed:
                break
            if attribute := convention.labels.get(label, label):
                attributes.append((attribute, allowed[value] if allowed is not None else value))
        else:
            return Point(CONVENTIONAL[metric.otlp], tuple(attributes))
        if metric.name == "accel_health_state":
            # Without a word on the state, unknown is what a receiver takes it for.
            return None
    own = tuple((name, value) for name, value in labels.items() if name != "node" and not _is_workload(metric, name))
    return Point(PLAIN[metric.name], identity[:1] + own)


def plain(metric: Metric, labels: Mapping[str, str]) -> Point:
    """A common series with the labels that /metrics has."""
    return Point(PLAIN[metric.name], tuple(labels.items()))


def raw(family: Family) -> Instrument:
    """A vendor's series keeps its name: a unit would be put behind it on the way to Prometheus."""
    return Instrument(family.name, "", "counter" if family.type == "counter" else "gauge", family.help)


def _is_workload(metric: Metric, label: str) -> bool:
    """Whether a label is what the resource says; metrics about workloads have such labels of their own."""
    return label in WORKLOAD and label not in metric.labels


def _hardware(labels: Mapping[str, str]) -> Labels:
    """Who it is, by the conventions. A part's id stands behind that of its device."""
    vendor, device, uuid, partition = (labels.get(name, "") for name in IDENTITY)
    if not uuid:
        return ()
    found = (("hw.id", f"{uuid}/{partition}" if partition else uuid), ("hw.name", device), ("hw.vendor", vendor))
    return (*found, ("hw.parent", uuid)) if partition else found
