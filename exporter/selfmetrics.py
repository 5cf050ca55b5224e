"""Metrics of the agent itself. Few, so the reference client keeps and renders them."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from functools import partial
from typing import Final, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, disable_created_metrics
from prometheus_client import exposition as text_format
from prometheus_client.openmetrics import exposition as openmetrics_format

from exporter import __version__
from exporter.model import CollectorState

STATES: Final[tuple[str, ...]] = get_args(CollectorState)
ERROR_KINDS: Final = ("permission", "transient", "parse", "lost", "timeout", "library", "unknown_series")
RESTART_CAUSES: Final = ("timeout", "crashed", "failed", "version_mismatch", "memory")
DROP_REASONS: Final = ("duplicate",)
OTLP_RESULTS: Final = ("success", "partial", "retry", "refused")
DURATIONS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
P: Final = "accel_exporter_"


class OtlpMetrics:
    """Metrics of the push over OTLP, summed over all receivers: there where a receiver is configured."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.exports = Counter(
            P + "otlp_exports",
            "Requests sent to OTLP receivers, by what became of them; one that is sent again counts each time.",
            ["result"],
            registry=registry,
        )
        for result in OTLP_RESULTS:
            self.exports.labels(result)
        self.rejected = Counter(
            P + "otlp_points_rejected", "Points that receivers rejected out of requests they took.", registry=registry
        )
        self.queue_length = Gauge(P + "otlp_queue_length", "Requests that wait to be sent.", registry=registry)
        self.dropped = Counter(
            P + "otlp_dropped",
            "Points that no receiver took: refused, too long on their way, or one too many in the queue.",
            registry=registry,
        )


class WebMetrics:
    """Metrics of the web configuration file: there where one is configured."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._validity: tuple[Gauge, Gauge] | None = None
        self.reload_success = Gauge(
            P + "web_config_reload_success",
            "1 if the last reading of the web configuration file, its certificates and users succeeded.",
            registry=registry,
        )

    def certificate(self, not_before: float, not_after: float) -> None:
        """Show when the server's certificate is valid; without TLS there are no such series."""
        if self._validity is None:
            name, registry = P + "web_certificate_not_{}_timestamp_seconds", self._registry
            self._validity = (
                Gauge(
                    name.format("before"),
                    "Unix time from which on the certificate of the agent's own port is valid.",
                    registry=registry,
                ),
                Gauge(
                    name.format("after"),
                    "Unix time at which the certificate of the agent's own port expires.",
                    registry=registry,
                ),
            )
        for gauge, time in zip(self._validity, (not_before, not_after), strict=True):
            gauge.set(time)


class SelfMetrics:
    """The agent's own registry. Series of fixed reasons exist from the start, with 0."""

    def __init__(self, revision: str = "") -> None:
        # Times of creation would double the number of counters.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry(auto_describe=False)
        self._otlp: OtlpMetrics | None = None
        self._web: WebMetrics | None = None
        gauge = partial(Gauge, registry=self.registry)
        counter = partial(Counter, registry=self.registry)
        histogram = partial(Histogram, buckets=DURATIONS, registry=self.registry)
        ProcessCollector(registry=self.registry)
        build = gauge(
            P + "build_info", "Version of the agent; the value is 1.", ["version", "revision", "python_version"]
        )
        build.labels(__version__, revision, platform.python_version()).set(1)
        one = ["collector"]
        self.up = gauge(P + "collector_up", "1 if the collector gives fresh samples.", one)
        self.state = gauge(
            P + "collector_state",
            "1 for the state that the collector is in, 0 for the others; of a vendor that is absent only the 1.",
            ["collector", "state"],
        )
        self.duration = histogram(P + "collector_duration_seconds", "Time that reading one group of series took.", one)
        self.last_success = gauge(P + "collector_last_success_timestamp_seconds", "Unix time of the last sample.", one)
        self.restarts = counter(P + "collector_restarts", "Restarts of the worker, by cause.", ["collector", "cause"])
        self.signals = counter(P + "collector_crash_signals", "Signals that ended the worker.", ["collector", "signal"])
        self.stuck = gauge(P + "collector_stuck_workers", "Killed workers that the kernel could not end yet.", one)
        self.memory = gauge(P + "collector_resident_memory_bytes", "Memory that the worker holds.", one)
        self.errors = counter(
            P + "collector_errors", "Quantities that could not be read, by kind.", ["collector", "kind"]
        )
        self.devices = gauge(P + "collector_devices", "Devices and parts that were found.", one)
        self.series = gauge(P + "collector_series", "Raw series in the collector's newest samples.", one)
        self.dropped = counter(P + "series_dropped", "Samples left out of expositions, by reason.", ["reason"])
        for reason in DROP_REASONS:
            self.dropped.labels(reason)
        self.attribution_up = gauge(P + "attribution_up", "1 if the source of attribution answers.", ["source"])
        self.attribution_last_success = gauge(
            P + "attribution_last_success_timestamp_seconds", "Unix time of its last good answer.", ["source"]
        )
        self.attribution_errors = counter(
            P + "attribution_errors", "Troubles with the source, by kind.", ["source", "kind"]
        )
        self.unattributed = gauge(
            P + "unattributed_devices", "Devices and parts without a workload, by reason.", ["reason"]
        )
        self.unmatched = gauge(
            P + "unmatched_device_ids",
            "Ids that a kubelet or scheduler hands out and no collector knows, by resource.",
            ["resource"],
        )
        self.reload_success = gauge(
            P + "config_reload_success", "1 if the last reading of the configuration succeeded."
        )
        self.reload_time = gauge(P + "config_reload_timestamp_seconds", "Unix time of the last successful reading.")
        self.http_duration = histogram(
            P + "http_request_duration_seconds", "Time to answer HTTP requests, by route and status.", ["route", "code"]
        )
        self.http_rejected = counter(
            P + "http_requests_rejected", "HTTP requests refused by a limit, by reason.", ["reason"]
        )
        self.render_duration = histogram(P + "render_duration_seconds", "Time to render an exposition.")

    def otlp(self) -> OtlpMetrics:
        """Those of the push, which begin to exist with the first call."""
        if self._otlp is None:
            self._otlp = OtlpMetrics(self.registry)
        return self._otlp

    def web(self) -> WebMetrics:
        """Those of the web configuration file, which begin to exist with the first call."""
        if self._web is None:
            self._web = WebMetrics(self.registry)
        return self._web

    def collector(self, name: str, state: str, *, absent: bool) -> None:
        """Show the state of a collector. Of one that was never here only this state and up=0 are shown."""
        self.up.labels(name).set(int(state == "running"))
        for other in STATES:
            if other == state or not absent:
                self.state.labels(name, other).set(int(other == state))
            elif (name, other) in self.state._metrics:
                self.state.remove(name, other)
        if not absent:
            for kind in ERROR_KINDS:
                self.errors.labels(name, kind)
            for cause in RESTART_CAUSES:
                self.restarts.labels(name, cause)
            self.stuck.labels(name)

    def no_worker(self, name: str) -> None:
        """Drop what is told of a worker while it is there."""
        self.memory.remove_by_labels({"collector": name})

    def forget(self, name: str) -> None:
        """Drop the gauges of a collector that does not run any more; its counters stay."""
        for gauge in (self.up, self.last_success, self.stuck, self.memory, self.devices, self.series):
            gauge.remove_by_labels({"collector": name})
        self.state.remove_by_labels({"collector": name})

    @staticmethod
    def set_counts(gauge: Gauge, counts: Mapping[str, int]) -> None:
        """Show these values of the one label and no others."""
        gauge.clear()
        for value, count in counts.items():
            gauge.labels(value).set(count)

    def text(self, *, openmetrics: bool) -> bytes:
        """All of them, in one of the two formats."""
        if openmetrics:
            rendered: bytes = openmetrics_format.generate_latest(self.registry)  # type: ignore[no-untyped-call]
            return rendered
        return text_format.generate_latest(self.registry)
