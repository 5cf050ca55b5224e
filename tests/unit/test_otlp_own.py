"""The agent's own metrics over OTLP."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families as parse_text

from exporter.otlp import own
from exporter.otlp.batch import Batch
from exporter.otlp.encode import Selection
from exporter.otlp.resource import Resources
from exporter.selfmetrics import SelfMetrics
from tests.otlp import parse, points, prometheus_name, value_of
from tests.otlp_rig import NODE


def sent(metrics: SelfMetrics, selection: Selection, now: float = 2e9) -> bytes:
    batch = Batch(1 << 30)
    own.add(batch, metrics.registry, Resources(NODE).node, selection, now)
    batch.close()
    return b"".join(request.body for request in batch.requests)


def filled() -> SelfMetrics:
    metrics = SelfMetrics()
    metrics.otlp()
    metrics.collector("acme", "running", absent=False)
    metrics.restarts.labels("acme", "timeout").inc(3)
    for seconds in (0.0005, 0.003, 0.003, 7, 100):
        metrics.duration.labels("acme").observe(seconds)
    return metrics


def test_every_series_of_the_registry_arrives_under_its_name() -> None:
    metrics = filled()
    expected = {}
    for family in parse_text(metrics.text(openmetrics=False).decode()):
        if family.type != "histogram":
            for sample in family.samples:
                # These two move by themselves.
                if not sample.name.startswith(("process_cpu", "process_open", "process_resident", "process_virtual")):
                    expected[sample.name, frozenset(sample.labels.items())] = sample.value
    found = {
        (prometheus_name(p.name, p.unit, p.kind), frozenset(p.attributes.items())): p.value
        for p in points([sent(metrics, Selection("common", "prometheus"))])
    }
    assert expected.items() <= found.items()
    assert {name for name, _ in found.keys() - expected.keys()} == {
        "process_cpu_seconds_total",
        "process_open_fds",
        "process_resident_memory_bytes",
        "process_virtual_memory_bytes",
    }


def test_histograms_are_sent_with_buckets_that_do_not_overlap() -> None:
    (scope,) = parse(sent(filled(), Selection())).resource_metrics[0].scope_metrics
    (metric,) = [one for one in scope.metrics if one.name == "accel.exporter_collector_duration"]
    assert metric.unit == "s"
    (point,) = metric.histogram.data_points
    assert {pair.key: value_of(pair.value) for pair in point.attributes} == {"collector": "acme"}
    bounds = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10]
    assert list(point.explicit_bounds) == bounds
    assert list(point.bucket_counts) == [1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1]
    assert point.count == 5
    assert point.sum == 0.0005 + 0.003 + 0.003 + 7 + 100
    assert point.start_time_unix_nano < point.time_unix_nano == 2 * 10**18


def test_counters_start_with_the_process_and_the_process_has_the_names_of_its_convention() -> None:
    found = points([sent(filled(), Selection())])
    started = next(p.value for p in found if p.name == "process_start_time")
    assert started is not None
    counters = [p for p in found if p.kind == "counter"]
    assert {round(p.start / 1e9, 2) for p in counters} == {round(started, 2)}
    assert {"process.cpu.time", "process.memory.usage", "process.memory.virtual"} <= {p.name for p in found}
    assert {p.start for p in found if p.kind == "gauge"} == {0}


def test_they_can_be_left_out_by_name() -> None:
    found = points([sent(filled(), Selection(include=("accel_exporter_otlp_*",)))])
    assert {p.name for p in found} == {
        "accel.exporter_otlp_exports",
        "accel.exporter_otlp_points_rejected",
        "accel.exporter_otlp_queue_length",
        "accel.exporter_otlp_dropped",
    }


def test_they_exist_only_where_a_receiver_is_configured() -> None:
    metrics = SelfMetrics()
    assert b"otlp" not in metrics.text(openmetrics=True)
    metrics.otlp()
    metrics.otlp()
    text = metrics.text(openmetrics=False).decode()
    for result in ("success", "partial", "retry", "refused"):
        assert f'accel_exporter_otlp_exports_total{{result="{result}"}} 0.0' in text
