"""A node with Trainium devices as a real Prometheus sees it: AWS's dashboards, the common schema, a hardware error."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from tests.e2e.agent import Agent, children
from tests.fakes.neuron import MACHINES, NeuronHost, RuntimeData, machines, make_host, report
from tests.prometheus import Prometheus, prometheus

pytestmark = [pytest.mark.prometheus]

PERIOD: Final = 0.25
NODE: Final = "trn-node"
TRN2: Final = MACHINES["trn2"]
LATENCY: Final = {"p0": 0.011, "p50": 0.0125, "p99": 0.0190, "p100": 0.02}
RUNTIMES: Final = (
    RuntimeData(4711, "4711", {0: 25.0, 1: 75.0}, completed=10, latency=LATENCY),
    RuntimeData(4712, "job-9", {4: 50.0}, completed=30, latency=LATENCY),
)
CORES: Final = TRN2.devices * TRN2.cores

# Panel → query and value, None where it moves: AWS's Grafana dashboard of neuron-monitor (aws-neuron-sdk) and those
# after it. Averages of utilization have the zeros in them that a runtime gives for the other's cores: AWS's own, too.
PANELS: Final[tuple[tuple[str, str, float | None], ...]] = (
    ("instance info", "instance_info", 1),
    ("instances", "count(instance_info)", 1),
    ("vCPUs", "sum(system_vcpu_count)", 8),
    ("vCPU utilization", "avg(sum by (instance_id) (system_vcpu_usage_ratio))", 0.31 + 0.125),
    ("host memory", "avg(system_memory_used_bytes / system_memory_total_bytes)", 0.25),
    ("host memory in bytes", "avg(system_memory_used_bytes)", 16 * 2**30),
    ("cores in use", "count(neuroncore_utilization_ratio > 0)", 3),
    ("core utilization", "avg(neuroncore_utilization_ratio)", (0.25 + 0.75 + 0.5) / (2 * CORES)),
    ("executions", 'sum(rate(execution_status_total{status_type="completed"}[1m]))', None),
    ("executions that failed", 'sum(rate(execution_status_total{status_type!="completed"}[1m]))', 0),
    ("latency", 'avg by (percentile) (execution_latency_seconds{percentile="p50"})', 0.0125),
    ("utilization of core 1", 'avg by (neuroncore) (neuroncore_utilization_ratio{neuroncore="1"})', 0.375),
    ("runtime vCPU", 'avg by (usage_type) (neuron_runtime_vcpu_usage_ratio{usage_type="user"})', 0.425),
    (
        "runtime memory",
        "avg by (memory_location) (sum by (instance_id, memory_location)"
        ' (neuron_runtime_memory_used_bytes{memory_location="host"}))',
        2 * 6997643264,
    ),
    ("host vCPU by use", 'avg by (usage_type) (system_vcpu_usage_ratio{usage_type="system"})', 0.125),
    ("execution errors", "sum(rate(execution_errors_total[1m]))", 0),
    ("memory of a core", 'sum(neuroncore_memory_usage_tensors{neuroncore="4"})', 5 * 2**20 + 4),
    ("ECC events", 'sum(hardware_ecc_events_total{event_type="mem_ecc_uncorrected"})', 0),
)


def config(host: NeuronHost) -> dict[str, Any]:
    return {
        "node": NODE,
        "intervals": {"normal": PERIOD, "fast": PERIOD, "slow": 2 * PERIOD},
        "collection": {"retry_unavailable": 1, "backoff_min": 0.1, "backoff_max": 0.2, "deadline": 10},
        "paths": {"root": str(host.root)},
        "collectors": {"neuron": {"options": {"period": PERIOD, "host_metrics": "on"}}},
    }


class Scene(NamedTuple):
    host: NeuronHost
    agent: Agent
    server: Prometheus


@contextmanager
def scene(folder: Path) -> Iterator[Scene]:
    """A trn2 node with two runtimes, the agent, and a Prometheus that has scraped it."""
    host = make_host(folder / "host", TRN2)
    host.scenario(report(TRN2, RUNTIMES))
    with Agent.start(folder, os.environ, config(host)) as agent:
        target = [{"targets": [agent.address]}]
        with prometheus(folder, [{"job_name": "agent", "static_configs": target}]) as server:
            server.wait_for("rate(execution_status_total[1m])")
            server.wait_for("accel_memory_errors_total")
            yield Scene(host, agent, server)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """A scene that no test changes."""
    with scene(tmp_path_factory.mktemp("neuron")) as found:
        yield found


@pytest.mark.parametrize(("panel", "query", "expected"), PANELS, ids=[panel for panel, _, _ in PANELS])
def test_every_panel_of_the_public_dashboards_has_its_value(
    running: Scene, panel: str, query: str, expected: float | None
) -> None:
    [sample] = running.server.query(query)
    if expected is None:
        # 40 executions are reported each period.
        assert 0 < sample.value <= 40 / PERIOD * 1.5
    else:
        assert sample.value == pytest.approx(expected)


def test_the_common_schema_has_each_core_once(running: Scene) -> None:
    query = running.server.query
    found = {sample.labels["partition"]: sample for sample in query("accel_utilization_ratio")}
    assert {core: sample.value for core, sample in found.items()} == {
        str(core): {0: 0.25, 1: 0.75, 4: 0.5}.get(core, 0.0) for core in range(CORES)
    }
    assert {(sample.labels["vendor"], sample.labels["node"]) for sample in found.values()} == {("aws", NODE)}
    assert found["5"].labels["uuid"] == TRN2.serial(1)
    used = sum(machines.device_memory(d, c) for d in range(TRN2.devices) for c in range(TRN2.physical))
    assert query("sum(accel_memory_used_bytes)")[0].value == used
    assert query("sum(accel_capacity_memory_bytes)")[0].value == TRN2.devices * TRN2.memory_bytes
    assert query('accel_memory_errors_total{device="1",correctable="false",location="hbm"}')[0].value == 7
    assert query('accel_execution_latency_seconds{device="1",percentile="p50"}')[0].value == 0.0125
    [info] = query('accel_info{partition="5"}')
    facts = {name: info.labels[name] for name in ("kind", "model", "partition_profile", "pci_bus_id", "driver_version")}
    assert facts == {
        "kind": "npu",
        "model": "Trainium2",
        "partition_profile": "lnc2",
        "pci_bus_id": f"0000:{TRN2.bdf(1)}",
        "driver_version": "2.30.2.0",
    }
    assert query('accel_health_state{state="healthy"} == 1')
    assert query('accel_devices_present{vendor="aws"}')[0].value == TRN2.devices
    assert query("accel_power_watts") == []
    assert query("accel_temperature_celsius") == []


def test_one_neuron_monitor_runs_and_its_memory_is_limited(running: Scene) -> None:
    [start] = running.host.starts
    assert start["GOMEMLIMIT"] == "160MiB"
    [worker] = children(running.agent.process.pid)
    assert children(worker) == [start["pid"]]


def test_a_hardware_error_in_the_kernels_log_fails_the_device(tmp_path: Path) -> None:
    with scene(tmp_path) as (host, _agent, server):
        host.log(f"NEURON_HW_ERR=HBM_UNCORRECTABLE_ERROR nd-id=1 nc-id=0 serial-num={TRN2.serial(1)} action=TERMINATE_INSTANCE")  # fmt: skip # noqa: E501
        server.wait_for('accel_health_state{device="1", state="failed"} == 1')
        [fault] = server.query("accel_fault_code_total")
        assert (fault.labels["device"], fault.labels["code"], fault.value) == ("1", "neuron:HBM_UNCORRECTABLE_ERROR", 1)
        assert (fault.labels["severity"], fault.labels["action"]) == ("fatal", "replace")
        assert server.query('accel_health_state{device="0", state="healthy"} == 1')
        assert server.query('accel_recovery_action{device="1", action="replace"} == 1')


def test_the_driver_can_be_unloaded_once_the_agent_has_let_go(tmp_path: Path) -> None:
    host = make_host(tmp_path / "host", TRN2)
    with Agent.start(tmp_path, os.environ, config(host)) as agent:
        agent.wait_for(lambda seen: seen.has("accel_utilization_ratio"))
        [start] = host.starts
        host.unload_driver()
        host.scenario([], first=[{"exit": 1}])
        (host.tools / "ls.json").unlink()
        seen = agent.wait_for(lambda seen: seen.state("neuron") == "no_driver")
        assert not (Path("/proc") / str(start["pid"])).exists()
        assert not seen.has("neuroncore_utilization_ratio")


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "exporter", *arguments, "--config", str(folder / "config.yaml")]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_doctor_says_what_is_there_and_what_is_missing(tmp_path: Path) -> None:
    host = make_host(tmp_path / "host", TRN2)
    (tmp_path / "config.yaml").write_text(json.dumps(config(host)))
    told = run(tmp_path, "doctor")
    assert "AWS Neuron (Inferentia, Trainium) (neuron): running, 10 devices and parts" in told.stdout, told.stderr
    (host.tools / "neuron-monitor").unlink()
    told = run(tmp_path, "doctor")
    assert "neuron-monitor is missing" in told.stdout
    assert "aws-neuronx-tools" in told.stdout
    assert told.returncode == 0  # sysfs is read
