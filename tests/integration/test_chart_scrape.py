"""What a real Prometheus makes of an agent with the chart's configuration and the chart's monitor."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, Final

import pytest
import yaml

from tests.charts import MONITORED, NAMESPACE, Json, configurations, merged, of_kind, only, render
from tests.e2e.agent import Agent
from tests.prometheus import Prometheus, prometheus

pytestmark = [pytest.mark.helm, pytest.mark.prometheus]

DISCOVERED: Final = {
    "__meta_kubernetes_namespace": NAMESPACE,
    "__meta_kubernetes_pod_name": "accel-exporter-amd-x7k2p",
    "__meta_kubernetes_pod_container_name": "accel-exporter",
    "__meta_kubernetes_pod_node_name": "node-7",
}
"""What discovery tells of the agent's pod."""
OPERATOR: Final = [
    {"source_labels": ["__meta_kubernetes_namespace"], "target_label": "namespace"},
    {"source_labels": ["__meta_kubernetes_pod_container_name"], "target_label": "container"},
    {"source_labels": ["__meta_kubernetes_pod_name"], "target_label": "pod"},
    {"target_label": "job", "replacement": f"{NAMESPACE}/accel-exporter"},
    {"target_label": "endpoint", "replacement": "metrics"},
]
"""What the Prometheus operator puts before a PodMonitor's own relabelings (its API reference, PodMetricsEndpoint)."""
SPELLINGS: Final = {"sourceLabels": "source_labels", "targetLabel": "target_label"}


def scrape_config(endpoint: Json, address: str) -> Json:
    """What the operator makes of an endpoint of a PodMonitor."""
    own = [{SPELLINGS.get(key, key): value for key, value in rule.items()} for rule in endpoint["relabelings"]]
    return {
        "job_name": f"podMonitor/{endpoint['params']['schema'][0]}",
        "honor_labels": endpoint["honorLabels"],
        "metrics_path": endpoint["path"],
        "params": endpoint["params"],
        "static_configs": [{"targets": [address], "labels": DISCOVERED}],
        "relabel_configs": [*OPERATOR, *own],
    }


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Two GPUs, of which the first works for a pod, the agent, and a Prometheus that has scraped both endpoints."""
    folder = tmp_path_factory.mktemp("scrape")
    owner = {"vendor": "amd", "devices": ["0"], "namespace": "research", "pod": "train-0", "job_name": "train"}
    values = merged(
        only("amd"),
        MONITORED,
        {
            "config": {
                "simulate": {"devices": {"amd": 2}},
                "attribution": {"kubernetes": {"enabled": False}, "static": [owner]},
            },
            "amd": {"config": {"collectors": {"amd": {"options": {"cluster_name": "east"}}}}},
        },
    )
    objects = render(values)
    (monitor,) = of_kind(objects, "PodMonitor")
    config: dict[str, Any] = yaml.safe_load(configurations(objects)["amd"])
    with Agent.start(folder, os.environ, config) as agent:
        jobs = [scrape_config(each, agent.address) for each in monitor["spec"]["podMetricsEndpoints"]]
        with prometheus(folder, jobs) as found:
            found.wait_for('count(accel_power_watts) == 2 and count({job="accel-exporter-raw", gpu_id="0"}) > 0')
            yield found


def test_a_device_bears_the_workload_and_a_free_one_nobody(server: Prometheus) -> None:
    owners = {
        sample.labels["device"]: (sample.labels.get("namespace", ""), sample.labels.get("pod", ""))
        for sample in server.query("accel_power_watts")
    }
    assert owners == {"0": ("research", "train-0"), "1": ("", "")}


def test_no_common_series_bears_the_agents_pod(server: Prometheus) -> None:
    assert server.query(f'{{job="accel-exporter", namespace="{NAMESPACE}"}}') == []
    assert server.query('{job="accel-exporter", pod=~"accel-exporter.*"}') == []


def test_the_vendors_series_have_the_workload_as_public_dashboards_expect_it(server: Prometheus) -> None:
    (sample,) = server.query('{job="accel-exporter-raw", __name__=~"gpu_(average_)?package_power", gpu_id="0"}')
    assert (sample.labels["exported_namespace"], sample.labels["exported_pod"]) == ("research", "train-0")
    assert (sample.labels["namespace"], sample.labels["pod"]) == (NAMESPACE, DISCOVERED["__meta_kubernetes_pod_name"])


def test_each_series_has_the_node_from_discovery_once(server: Prometheus) -> None:
    # The relabeling of MONITORED adds the cluster.
    for sample in (*server.query("accel_info"), *server.query('up{job="accel-exporter"}')):
        assert (sample.labels["node"], sample.labels["instance"], sample.labels["cluster"]) == (
            "node-7",
            "node-7",
            "east",
        )
        assert "exported_node" not in sample.labels
    assert {sample.labels["job"]: sample.value for sample in server.query("up")} == {
        "accel-exporter": 1.0,
        "accel-exporter-raw": 1.0,
    }


def test_the_two_endpoints_share_no_series_of_devices(server: Prometheus) -> None:
    names = "count by (job) ({{__name__=~'{}'}})"
    assert {s.labels["job"] for s in server.query(names.format("accel_power_watts"))} == {"accel-exporter"}
    assert {s.labels["job"] for s in server.query(names.format("gpu_.*"))} == {"accel-exporter-raw"}
