"""The agent on TPU hosts, scraped by a real Prometheus: what public dashboards ask has an answer, and the right one."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.bridge_sources import PageServer
from tests.e2e.agent import Agent
from tests.fakes.tpu.host import Host, add_chips, make_host
from tests.fakes.tpu.page import Board, Node, text
from tests.fakes.tpu.service import Buckets, Runtime, Value, usual
from tests.prometheus import Prometheus, prometheus
from tests.tpu_rig import GIB, NOWHERE, V6E_TOTAL, workload

pytestmark = [pytest.mark.prometheus]

INSTANCE = "1234567890123456789"
NORMAL = 0.3
TPU = 'make="cloud-tpu"'

Panels = list[tuple[str, str, tuple[float, ...]]]

# What the dashboards show, chip by chip, in the order of the chips.
DUTY = (90.0, 91.0, 92.0, 93.0)
TENSORCORE = (24.0, 25.0, 26.0, 27.0)
BANDWIDTH = (40.0, 41.0, 42.0, 43.0)
USED = tuple((n + 1) * 4 * GIB for n in range(4))

SERVING: Panels = [
    ("Duty cycle", f"duty_cycle{{{TPU}}}", DUTY),
    ("Average duty cycle", f"avg(duty_cycle{{{TPU}}})", (91.5,)),
    ("TensorCore utilization", f"tensorcore_utilization{{{TPU}}}", TENSORCORE),
    ("Memory bandwidth utilization", f"memory_bandwidth_utilization{{{TPU}}}", BANDWIDTH),
    ("Memory used", f"memory_used{{{TPU}}}", USED),
    ("Memory total", f"memory_total{{{TPU}}}", (V6E_TOTAL,) * 4),
    ("Memory in use, percent", f"100 * memory_used{{{TPU}}} / memory_total{{{TPU}}}",
     tuple(100 * used / V6E_TOTAL for used in USED)),
    ("Scaling by duty cycle", "avg by (model) (duty_cycle)", (91.5,)),
]  # fmt: skip
"""Panels of llm-d's TPU dashboards and metrics that autoscalers follow."""
NODE_SERIES: Panels = [
    ("TensorCore utilization of nodes", f"avg(tensorcore_utilization_node{{{TPU}}})", (25.5,)),
    ("Memory bandwidth utilization of nodes", f"avg(memory_bandwidth_utilization_node{{{TPU}}})", (41.5,)),
    ("Duty cycle of nodes", f"avg(duty_cycle_node{{{TPU}}})", (91.5,)),
    ("Memory used of nodes", f"sum(memory_used_node{{{TPU}}})", (sum(USED),)),
    ("Memory total of nodes", f"sum(memory_total_node{{{TPU}}})", (4 * V6E_TOTAL,)),
    ("Chips asked for", 'sum(accelerator_request{resource_name="google.com/tpu"})', (4,)),
]
"""Cluster monitoring that keeps the node's series."""
OF_THE_PLUGIN = ("tensorcore", "bandwidth", "accelerator_request")
"""Quantities that no runtime tells."""


def config(host: Host, url: str) -> dict[str, Any]:
    return {
        "node": "node-a",
        "intervals": {"normal": NORMAL, "fast": NORMAL, "slow": 2 * NORMAL},
        "collection": {"retry_unavailable": 1, "backoff_min": 0.1, "backoff_max": 0.2, "deadline": 8},
        "paths": {"root": str(host.root)},
        "collectors": {"tpu": {"options": {"plugin_url": url, "instance_id": INSTANCE, "topology": "4x4"}}},
    }


@contextlib.contextmanager
def scraped(folder: Path, host: Host, url: str) -> Iterator[tuple[Agent, Prometheus]]:
    """The agent on this host, and a Prometheus that scrapes it as the documentation says."""
    with Agent.start(folder, os.environ, config(host, url)) as agent:
        jobs = [
            {
                "job_name": schema,
                "honor_labels": True,
                "params": {"schema": [schema]},
                "static_configs": [{"targets": [agent.address]}],
            }
            for schema in ("common", "raw")
        ]
        with prometheus(folder, jobs) as server:
            yield agent, server


def values(server: Prometheus, query: str) -> tuple[float, ...]:
    found = sorted(server.query(query), key=lambda sample: sample.labels.get("accelerator_id", ""))
    return tuple(sample.value for sample in found)


@pytest.fixture(scope="module")
def on_gke(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """The second host of a slice, whose plugin calls the chips 4 to 7 here and 0 to 3 there."""
    folder = tmp_path_factory.mktemp("gke")
    host = make_host(folder)
    add_chips(host, "v6e", 4)
    boards = [
        Board(
            number=place + 4,
            duty=DUTY[place],
            used=USED[place],
            total=V6E_TOTAL,
            tensorcore=TENSORCORE[place],
            bandwidth=BANDWIDTH[place],
        )
        for place in range(4)
    ]
    with (
        PageServer(text(Node(chips=boards, instance=INSTANCE))).serving() as page,
        scraped(folder, host, page.url) as (_, server),
    ):
        server.wait_for("count(duty_cycle) == 4")
        server.wait_for("count(accel_utilization_ratio) == 4")
        yield server


@pytest.mark.parametrize(("panel", "query", "expected"), SERVING + NODE_SERIES, ids=lambda value: str(value)[:40])
def test_every_panel_has_the_right_data_on_gke(
    on_gke: Prometheus, panel: str, query: str, expected: tuple[float, ...]
) -> None:
    assert values(on_gke, query) == pytest.approx(expected), panel


def test_instance_and_chip_can_be_read_from_the_label(on_gke: Prometheus) -> None:
    """Ray takes both out of it by this pattern."""
    query = 'count by (index) (label_replace(duty_cycle, "index", "$2", "accelerator_id", "([0-9]+)-([0-9]+)"))'
    assert {sample.labels["index"] for sample in on_gke.query(query)} == {"0", "1", "2", "3"}


def test_the_common_schema_has_one_device_for_each_chip(on_gke: Prometheus) -> None:
    assert values(on_gke, 'sum(accel_memory_used_bytes{vendor="google"})') == (sum(USED),)
    assert values(on_gke, "count(accel_info)") == (4,)
    for metric, shown in (
        ("accel_utilization_ratio", DUTY),
        ("accel_matrix_active_ratio", TENSORCORE),
        ("accel_memory_bandwidth_active_ratio", BANDWIDTH),
    ):
        found = {sample.labels["device"]: sample.value for sample in on_gke.query(metric)}
        assert found == pytest.approx({str(place): percent / 100 for place, percent in enumerate(shown)})
    assert {sample.labels["uuid"] for sample in on_gke.query("accel_info")} == {f"{INSTANCE}-{n}" for n in range(4)}
    assert values(on_gke, 'sum(accel_health_state{state="healthy"})') == (4,)
    assert values(on_gke, "accel_devices_present") == (4,)
    assert on_gke.query('accel_exporter_collector_up{collector="tpu"}')[0].value == 1


def test_without_the_plugin_the_runtime_fills_the_panels_that_it_can(tmp_path: Path) -> None:
    host = make_host(tmp_path)
    nodes = add_chips(host, "v6e", 4)
    told = {number: (DUTY[place], USED[place], V6E_TOTAL) for place, number in enumerate((8, 9, 12, 13))}
    latencies = Buckets(1500.0, [0, 10, 10, 0], {"explicit_buckets": {"bounds": [1000.0, 2000.0, 4000.0]}})
    multislice = {
        "megascale.dcn_transfer_latencies.microsecond.cumulative.distribution": [
            Value(latencies, {"buffer_size": "8MB+", "type": "ALL_REDUCE"})
        ],
        "megascale.grpc_tcp_bytes_sent.cumulative.count": [Value(4711, counter=True)],
    }
    with (
        workload(host, nodes, Runtime({**usual(told), **multislice})),
        scraped(tmp_path, host, NOWHERE) as (agent, server),
    ):
        server.wait_for("count(duty_cycle) == 4")
        server.wait_for("count(accel_utilization_ratio) == 4")
        for panel, query, expected in SERVING + NODE_SERIES:
            told_here = not any(word in query for word in OF_THE_PLUGIN)
            assert values(server, query) == pytest.approx(expected if told_here else ()), panel
        labels = server.query("duty_cycle")[0].labels
        assert (labels["model"], labels["tpu_topology"]) == ("tpu-v6e-slice", "4x4")
        assert values(server, "accel_processes") == (1, 1, 1, 1)
        name = "dcn_transfer_latencies_microsecond"
        quantile = f"histogram_quantile(0.5, sum by (le, buffer_size) ({name}_bucket))"
        assert [(sample.labels, sample.value) for sample in server.query(quantile)] == [({"buffer_size": "8MB+"}, 2000)]
        assert values(server, f"{name}_sum / {name}_count") == (1500,)
        assert values(server, "grpc_tcp_bytes_sent_count") == (4711,)
        assert agent.scrape().state("tpu") == "running"


def test_an_idle_7x_host_counts_its_chips_once(tmp_path: Path) -> None:
    host = make_host(tmp_path)
    add_chips(host, "7x", 4)
    with Agent.start(tmp_path, os.environ, config(host, NOWHERE)) as agent:
        seen = agent.wait_for(lambda seen: seen.has("accel_utilization_ratio"))
        assert len(seen.all("accel_info")) == 4
        assert seen.value("accel_devices_present") == seen.value("accel_devices_reporting") == 4
        assert [sample.value for sample in seen.all("accel_utilization_ratio")] == [0, 0, 0, 0]
        assert {sample.value for sample in seen.all("accel_capacity_memory_bytes")} == {192 * GIB}
        assert not seen.has("accel_memory_used_bytes")
        assert {sample.value for sample in seen.all("accel_health_state", state="healthy")} == {1}
        lines = [entry for entry in agent.log if entry.get("level") in ("warning", "error")]
        assert lines == []
