"""docs/metrics.md: the common schema, what feeds it, and the agent's own metrics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Final

from prometheus_client.metrics import MetricWrapperBase

from exporter.allocated import MAX_STEP
from exporter.catalogue import Catalogue, Feed, Series
from exporter.docs.text import GENERATED, code, codes, link, page, prose, table
from exporter.energy import MAX_GAP
from exporter.faults import MAX_CODES
from exporter.http.limits import REASONS
from exporter.mapping import how, labels_text
from exporter.schema import METRICS, WORKLOAD, Metric
from exporter.selfmetrics import DROP_REASONS, ERROR_KINDS, OTLP_RESULTS, RESTART_CAUSES, STATES, SelfMetrics
from exporter.units import factor

INTRODUCTION: Final = f"""\
# Metrics

What `/metrics` serves under names that begin with `accel_`: the common schema, in the order of exposition, and the
[agent's own metrics](#the-agent-itself). The vendors' own series stand in the [pages of the vendors](index.md#vendors).

A metric that a device's vendor does not tell is absent: not zero, and not copied from something that looks alike.
Everything is in base units: celsius, watts, joules, bytes, hertz, seconds, ratios from 0 to 1.

**Labels.** Every series of a device has `vendor`, `device` (the index that people type) and `uuid` (the identity that
stays). `partition` stands on series of a part of a device only, and `node` unless `labels.node` is false. A metric
that *carries the workload*, that is, which a workload causes or feels, also has
{codes(WORKLOAD)}. They are empty while no workload, or more than one, has the device.

**One level.** A quantity is given by a device's parts where the vendor gives it for them, else by the whole, never by
both: a sum over devices is right with and without partitions.

**Stability.** *Stable*: name, type, unit, meaning and labels stay; a label may get further values.
*Experimental*: may change in any minor release, with a line in the [changelog](../CHANGELOG.md).

**Sources.** Of several raw series that feed the same common series, the first in the table that the device has at
discovery is its source until the next discovery. *Exact*: the vendor's number for just this quantity. *Approximate*:
close to it; the vendor's page says why. *Derived*: computed by the agent from another metric. *Estimated*: a share of a
number that covers more than the device. At run time `accel_metric_source_info` tells the same.
"""

AGENT_MADE: Final[Mapping[str, str]] = {
    "accel_info": (
        "From what the collector finds at discovery, for wholes and parts. A fact that the device does not tell is "
        "left out, label and all. `device_class` comes from the rules in `device_classes`; `simulated` is true for "
        "devices that do not exist."
    ),
    "accel_health_state": (
        "For whole devices, the worst of: failed while the device does not answer; the vendor's health rules while "
        "they hold; failed or degraded for `health.fault_hold` seconds after a fault of severity fatal or degraded on "
        "the device or a part of it. Unknown if none of these speaks and there is no fresh sample."
    ),
    "accel_devices_present": (
        "Counted on the PCI bus by the vendor's detection rules, without virtual functions. Absent where the host "
        "shows no bus or the vendor has no PCI rule."
    ),
    "accel_devices_reporting": (
        "Whole devices, by themselves or through a part. `accel_devices_expected` minus this is what is missing."
    ),
    "accel_devices_expected": (
        "`expected_devices` in the collector's configuration, else the most seen since the agent started."
    ),
    "accel_sample_timestamp_seconds": (
        "When the newest sample of the device or part was taken; `time()` minus this is its age. It stays when the "
        "values have vanished."
    ),
    "accel_energy_joules_total": (
        "Where the vendor counts no energy: `accel_power_watts` over time by the trapezoid rule, from 0 at the agent's "
        f"start. A gap of more than {MAX_GAP:g} seconds between two samples adds nothing. The source is then "
        "`accel_power_watts`, derived."
    ),
    "accel_faults_total": (
        "Counted by the agent, so that a worker's death loses none; from 0 on for each device of a vendor that has a "
        "fault table."
    ),
    "accel_fault_code_total": (
        "As `accel_faults_total`, by code. Class, severity and action are those of the vendor's fault table; a code "
        f"that it has not is of class unknown and severity info. Beyond {MAX_CODES} codes of a device the rest is "
        "`other`."
    ),
    "accel_fault_last_timestamp_seconds": "The vendor's time of the event; one in the future is taken as now.",
    "accel_recovery_action": (
        "Where the vendor does not tell: the actions of the faults of the last `health.fault_hold` seconds, of which "
        "several can be 1; without any `none` for a healthy device, and nothing for one that is not."
    ),
    "accel_allocation_info": (
        "One for each workload of a device or part, where a source of attribution says whose it is: `share` is shared "
        "where it has several, and `replicas` into how many the device was cut. More labels by "
        "`attribution.pod_labels`, as `label_…`."
    ),
    "accel_allocated": (
        "Where any source of attribution is on: of parts where a device has any, else of the whole. 0: nobody's."
    ),
    "accel_allocated_seconds_total": (
        f"`accel_allocated` over time, from 0 at the agent's start. A gap of more than {MAX_STEP:g} seconds adds "
        "nothing."
    ),
    "accel_container_memory_used_bytes": (
        "Of devices that several containers share, where the vendor tells its processes, and all of a container's "
        "tell their memory."
    ),
    "accel_container_utilization_ratio": (
        "The sum over a container's processes, at most 1, where the vendor tells it of all of them."
    ),
    "accel_metric_source_info": "One for each metric, source and exactness that the vendor has on this node.",
}
"""Common metrics that exporter/derived.py and exporter/publisher.py make, and how."""

_FIXED: Final[Mapping[tuple[str, str], Sequence[str]]] = {
    ("accel_exporter_collector_state", "state"): STATES,
    ("accel_exporter_collector_restarts_total", "cause"): RESTART_CAUSES,
    ("accel_exporter_collector_errors_total", "kind"): ERROR_KINDS,
    ("accel_exporter_series_dropped_total", "reason"): DROP_REASONS,
    ("accel_exporter_http_requests_rejected_total", "reason"): REASONS,
    ("accel_exporter_otlp_exports_total", "result"): OTLP_RESULTS,
}
"""(metric, label) of the agent itself → values."""


def metrics_page(catalogues: Mapping[str, Catalogue]) -> str:
    """The whole page."""
    sections = groupby(METRICS.values(), key=lambda metric: metric.section)
    return page(
        GENERATED.format(source="exporter/schema.py, exporter/selfmetrics.py and the vendors' tables") + INTRODUCTION,
        *(part for title, metrics in sections for part in _section(title, list(metrics), catalogues)),
        *_own(),
    )


def _section(title: str, metrics: Sequence[Metric], catalogues: Mapping[str, Catalogue]) -> Iterable[str]:
    yield f"## {title}"
    yield table(
        ("metric", "type", "unit", "meaning"),
        [(link(code(m.name), f"#{m.name}"), m.type, m.unit, prose(m.help)) for m in metrics],
    )
    for metric in metrics:
        yield f"### {metric.name}"
        yield from _details(metric, catalogues)


def _details(metric: Metric, catalogues: Mapping[str, Catalogue]) -> Iterable[str]:
    owner = {"device": "", "vendor": " One for each vendor.", "agent": " One for the agent."}[metric.scope]
    workload = " Carries the workload." if metric.workload else ""
    yield f"{metric.stability.capitalize()}.{owner}{workload}"
    yield _labels(metric)
    sources = table(
        ("collector", "raw series", "gives", "exactness", "conversion"),
        [row for name, catalogue in catalogues.items() for row in _sources(metric, name, catalogue)],
    )
    if metric.name in AGENT_MADE:
        yield f"Made by the agent. {AGENT_MADE[metric.name]}"
    elif not sources:
        yield "Absent: nothing gives it yet."
    yield sources


def _labels(metric: Metric) -> str:
    fixed = [f"- {code(name)}: {codes(allowed)}\n" for name, allowed in metric.labels.items() if allowed]
    free = [name for name, allowed in metric.labels.items() if not allowed]
    return "".join([*fixed, f"- any value: {codes(free)}\n" if free else ""])


def _sources(metric: Metric, name: str, catalogue: Catalogue) -> Iterable[tuple[str, ...]]:
    for series in catalogue.series.values():
        for feed in series.feeds:
            if feed.metric == metric.name:
                yield (
                    link(name, f"vendors/{name}.md"),
                    code(series.name),
                    code(labels_text(feed.labels)),
                    feed.exactness,
                    prose(conversion(series, feed)),
                )


def conversion(series: Series, feed: Feed) -> str:
    """What is done to a raw value, in words; empty where it is taken as it is."""
    steps = [how(feed)]
    if feed.bits is None and feed.equals is None:
        steps.insert(0, _scale(factor(series.unit, METRICS[feed.metric].unit)))
    steps += [f"by {label} with links: each" for label in feed.each]
    return ", ".join(filter(None, steps))


def _scale(by: float) -> str:
    if by == 1:
        return ""
    if by < 1 and (1 / by) == round(1 / by):
        return f"÷ {round(1 / by)}"
    return f"× {by:.10g}"


def _own() -> Iterable[str]:
    yield "## The agent itself"
    yield (
        "Served with the common schema. Beside these there is what the reference client tells of the process "
        "(`process_cpu_seconds_total`, `process_resident_memory_bytes`, `process_open_fds` and others)."
    )
    yield table(
        ("metric", "type", "labels", "meaning"),
        [
            (code(name), kind, "<br>".join(_own_label(name, label) for label in labels), prose(help_))
            for name, kind, labels, help_ in own_metrics()
        ],
    )


def own_metrics() -> Iterable[tuple[str, str, tuple[str, ...], str]]:
    """Name, type, labels and meaning of each of the agent's own metrics."""
    # The client offers names of labels on series alone, and most of these appear with their first event.
    metrics = SelfMetrics()
    metrics.otlp()
    metrics.web().certificate(0, 0)
    for collector in metrics.registry._collector_to_names:
        if isinstance(collector, MetricWrapperBase):
            (family,) = collector.describe()
            name = family.name + ("_total" if family.type == "counter" else "")
            yield name, family.type, tuple(collector._labelnames), family.documentation


def _own_label(metric: str, label: str) -> str:
    values = _FIXED.get((metric, label))
    return f"{code(label)}: {', '.join(values)}" if values else code(label)
