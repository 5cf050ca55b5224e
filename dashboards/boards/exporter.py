"""The agents themselves: do they see, how long does it take, what do they cost."""

from __future__ import annotations

from typing import Final

from dashboards.board import AGENTS, OF_AGENTS, Board, Row
from dashboards.panels import TO_EXPORTER, TO_FLEET, TO_HEALTH, TO_NODE, TO_WORKLOAD, Q, graph, number, rows, states
from dashboards.promql import RATE

A: Final = AGENTS
ONE: Final = "{{instance}} {{collector}}"


def of(name: str, more: str = "") -> str:
    return A.of(f"accel_exporter_{name}", more)


def rate(name: str, more: str = "") -> str:
    return f"rate({of(name, more)}[{RATE}])"


def increase(name: str, more: str = "") -> str:
    return f"increase({of(name, more)}[{RATE}])"


def quantile(share: float, name: str, labels: str) -> str:
    return f"histogram_quantile ({share}, sum by (le, {labels}) ({rate(f'{name}_bucket')}))"


NOW: Final = Row(
    "Now",
    (
        number("Agents", "Agents that Prometheus reaches.", "none", [Q(f"count ({of('build_info')})")], TO_FLEET),
        number(
            "Collectors up", "Collectors that give fresh samples.", "none", [Q(f"sum ({of('collector_up')})")],
            TO_FLEET,
        ),
        number("Devices", "Devices and parts that were found.", "none", [Q(f"sum ({of('collector_devices')})")],
        TO_FLEET),
        number(
            "Raw series", "In the collectors' newest samples.", "none", [Q(f"sum ({of('collector_series')})")],
            TO_FLEET,
        ),
        number(
            "Attribution", "Sources of attribution that answer, by source.", "none",
            [Q(f"sum by (source) ({of('attribution_up')})", "{{source}}")], TO_WORKLOAD,
        ),
        number(
            "Configuration", "Agents whose last reading of their configuration failed: the old one stays in force.",
            "none", [Q(f"sum (1 - {of('config_reload_success')})")], TO_EXPORTER, bad=1,
        ),
    ),
)  # fmt: skip

COLLECTORS: Final = Row(
    "Collectors",
    (
        states(
            "States", "When each collector was in which state. Of a vendor that is not there only the state is shown.",
            [Q(f"max by (instance, collector, state) ({of('collector_state')})", f"{ONE} {{{{state}}}}")], TO_HEALTH,
        ),
        graph(
            "Time since the last sample", "By collector.", "s",
            [Q(f"time() - {of('collector_last_success_timestamp_seconds')}", ONE)], TO_HEALTH,
        ),
        graph(
            "Time that reading takes", "Nine of ten readings of a group of series took no longer.", "s",
            [Q(quantile(0.9, "collector_duration_seconds", "instance, collector"), ONE)], TO_NODE,
        ),
        graph(
            "Errors", "Quantities that could not be read, by kind.", "none",
            [Q(f"sum by (collector, kind) ({increase('collector_errors_total')})", "{{collector}} {{kind}}")],
            TO_HEALTH,
        ),
        graph(
            "Restarts", "Of workers, by cause.", "none",
            [Q(f"sum by (instance, collector, cause) ({increase('collector_restarts_total')})",
            f"{ONE} {{{{cause}}}}")],
            TO_HEALTH,
        ),
        graph(
            "Crashes and stuck workers", "Signals that ended workers; and killed workers that the kernel cannot end.",
            "none",
            [
                Q(
                    f"sum by (instance, collector, signal) ({increase('collector_crash_signals_total')})",
                    f"{ONE} {{{{signal}}}}",
                ),
                Q(f"sum by (instance, collector) ({of('collector_stuck_workers')})", f"{ONE} stuck"),
            ],
            TO_HEALTH, steps=True,
        ),
        rows(
            "Versions", "Of the agents.", "none",
            [Q(f"max by (cluster, instance, version, revision, python_version) ({of('build_info')})", "is")], TO_FLEET,
            hide=("is",),
        ),
    ),
)  # fmt: skip

JOIN: Final = Row(
    "Attribution and OTLP",
    (
        graph(
            "Sources of attribution", "Time since the last good answer.", "s",
            [Q(f"time() - {of('attribution_last_success_timestamp_seconds')}", "{{instance}} {{source}}")], TO_WORKLOAD,
        ),
        graph(
            "Troubles of attribution", "By source and kind.", "none",
            [Q(f"sum by (source, kind) ({increase('attribution_errors_total')})", "{{source}} {{kind}}")], TO_WORKLOAD,
        ),
        graph(
            "Devices without a workload", "By reason.", "none",
            [Q(f"sum by (reason) ({of('unattributed_devices')})", "{{reason}}")], TO_WORKLOAD, stacked=True,
        ),
        graph(
            "Unknown device ids", "Ids that a kubelet or scheduler hands out and no collector knows.", "none",
            [Q(f"sum by (resource) ({of('unmatched_device_ids')})", "{{resource}}")], TO_WORKLOAD,
        ),
        graph(
            "OTLP exports", "By result.", "none",
            [Q(f"sum by (result) ({increase('otlp_exports_total')})", "{{result}}")], TO_EXPORTER,
        ),
        graph(
            "OTLP queue and losses", "Length of the queue; points dropped here and rejected by the receiver.", "none",
            [
                Q(f"sum ({of('otlp_queue_length')})", "queue"),
                Q(f"sum ({increase('otlp_dropped_total')})", "dropped"),
                Q(f"sum ({increase('otlp_points_rejected_total')})", "rejected"),
            ],
            TO_EXPORTER,
        ),
    ),
)  # fmt: skip

COST: Final = Row(
    "What it costs",
    (
        graph(
            "Processor", "Cores that the agent's main process uses; the workers are processes of their own.", "none",
            [Q(f"rate({A.of('process_cpu_seconds_total')}[{RATE}]) and on (instance) {of('build_info')}",
            "{{instance}}")],
            TO_EXPORTER,
        ),
        graph(
            "Memory", "Resident memory of the agent's main process.", "bytes",
            [Q(f"{A.of('process_resident_memory_bytes')} and on (instance) {of('build_info')}", "{{instance}}")],
            TO_EXPORTER,
        ),
        graph(
            "Open files", "Of the agent's main process.", "none",
            [Q(f"{A.of('process_open_fds')} and on (instance) {of('build_info')}", "{{instance}}")], TO_EXPORTER,
        ),
        graph(
            "Rendering", "Nine of ten expositions took no longer.", "s",
            [Q(quantile(0.9, "render_duration_seconds", "instance"), "{{instance}}")], TO_EXPORTER,
        ),
        graph(
            "Requests", "By route and status, per second.", "reqps",
            [
                Q(
                    f"sum by (route, code) ({rate('http_request_duration_seconds_count')})",
                    "{{route}} {{code}}",
                )
            ],
            TO_EXPORTER,
        ),
        graph(
            "Refused requests and dropped series", "By reason.", "none",
            [
                Q(f"sum by (reason) ({increase('http_requests_rejected_total')})", "request: {{reason}}"),
                Q(f"sum by (reason) ({increase('series_dropped_total')})", "series: {{reason}}"),
            ],
            TO_EXPORTER,
        ),
        graph(
            "Scrapes", "How long Prometheus waits for an agent.", "s",
            [Q(f"{A.of('scrape_duration_seconds')} and on (instance) {of('build_info')}", "{{instance}}")], TO_EXPORTER,
        ),
        graph(
            "Series", "Samples of each scrape.", "none",
            [Q(f"{A.of('scrape_samples_scraped')} and on (instance) {of('build_info')}", "{{instance}}")], TO_EXPORTER,
        ),
    ),
)  # fmt: skip

BOARD: Final = Board(
    name="exporter",
    title="Accelerators: the agents",
    description="Whether the agents see their devices, how long that takes, who they know, and what they cost.",
    variables=OF_AGENTS,
    rows=(NOW, COLLECTORS, JOIN, COST),
)
