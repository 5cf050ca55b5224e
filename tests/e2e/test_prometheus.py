"""What a real Prometheus has of the agent on eight H100: values, labels, and what is left after a GPU is lost."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.e2e import h100_values as h100
from tests.e2e.agent import Agent, until
from tests.e2e.worlds import NODE, NORMAL, Place, place
from tests.fakes.nvml import scenarios
from tests.fakes.nvml.gpus import MIB, PCI_BUSES
from tests.prometheus import Prometheus, prometheus

pytestmark = [pytest.mark.gcc, pytest.mark.prometheus]

GPUS = 8
MAX_AGE = 3 * NORMAL


def scrape_jobs(agent: Agent) -> list[dict[str, Any]]:
    """Both endpoints, as the documentation tells to scrape them."""
    target = [{"targets": [agent.address], "labels": {"pod": "agent-0", "namespace": "monitoring"}}]
    return [
        {
            "job_name": schema,
            "honor_labels": schema == "common",
            "params": {"schema": [schema]},
            "static_configs": target,
        }
        for schema in ("common", "raw")
    ]


class Scene(NamedTuple):
    here: Place
    agent: Agent
    server: Prometheus


@contextmanager
def scene(folder: Path) -> Iterator[Scene]:
    """Eight GPUs, the agent, and a Prometheus that has scraped all of them."""
    here = place(folder, scenarios.h100(GPUS))
    with (
        Agent.start(folder, here.environ, here.config()) as agent,
        prometheus(folder, scrape_jobs(agent)) as server,
    ):
        server.wait_for(f"count({h100.BANDWIDTH}) == {GPUS}")
        server.wait_for(f"count(accel_power_watts) == {GPUS}")
        yield Scene(here, agent, server)


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """A scene that no test changes."""
    with scene(tmp_path_factory.mktemp("healthy")) as running:
        yield running


def test_prometheus_has_all_default_series_of_dcgm_exporter(healthy: Scene) -> None:
    for i in range(GPUS):
        found = {
            sample.labels["__name__"]: sample
            for sample in healthy.server.query(f'{{job="raw", gpu="{i}", __name__=~"DCGM_.+"}}')
        }
        expected = h100.raw_default(i)
        assert len(expected) == 23
        assert found.keys() == expected.keys() | {h100.ENERGY, h100.BANDWIDTH}
        assert {name: found[name].value for name in expected} == pytest.approx(expected)
        epoch = healthy.here.epoch
        lowest, highest = (h100.energy_millijoules(i, seconds) for seconds in (0.0, time.time() - epoch))
        assert lowest < found[h100.ENERGY].value <= highest
        assert found[h100.BANDWIDTH].value == pytest.approx(h100.link_bandwidth(), rel=0.1)
        for name, sample in found.items():
            labels = {**h100.raw_labels(i), "job": "raw", "__name__": name, "pod": "agent-0", "namespace": "monitoring"}
            if name == "DCGM_FI_DEV_XID_ERRORS":
                labels |= {"err_code": "0", "err_msg": "No Error"}
            assert {key: value for key, value in sample.labels.items() if key != "instance"} == labels


def test_prometheus_has_the_common_schema_without_the_agents_own_pod(healthy: Scene) -> None:
    for i in range(GPUS):
        found = {}
        for sample in healthy.server.query(f'{{job="common", uuid="{h100.uuid(i)}"}}'):
            name = sample.labels["__name__"]
            own = {key: value for key, value in sample.labels.items() if key not in ("__name__", "job", "instance")}
            # Prometheus drops empty labels: what is left of the target's own is on series that have no such label.
            expected = {key: value for key, value in h100.workload_labels(name).items() if value}
            target = {} if h100.workload_labels(name) else {"pod": "agent-0", "namespace": "monitoring"}
            fixed = {**h100.common_labels(i), **expected, **target}
            assert fixed.items() <= own.items(), sample
            found[name, tuple(sorted(item for item in own.items() if item[0] not in fixed))] = sample.value
        steady = {key: value for key, value in found.items() if key[0] not in h100.MOVING}
        assert steady == pytest.approx(dict(h100.common(i)), rel=1e-12)
        seconds = time.time() - healthy.here.epoch
        for name, start, now in (
            ("energy_joules", h100.energy_millijoules(i, 0) / 1000, h100.energy_millijoules(i, seconds) / 1000),
            ("interconnect_sent_bytes", h100.link_bytes(i, 0, 0), h100.link_bytes(i, 0, seconds)),
            ("interconnect_received_bytes", h100.link_bytes(i, 1, 0), h100.link_bytes(i, 1, seconds)),
        ):
            [value] = [value for key, value in found.items() if key[0] == f"accel_{name}_total"]
            assert start < value <= now


def test_prometheus_knows_the_types(healthy: Scene) -> None:
    """It asks for OpenMetrics, where a counter without _total is of unknown type."""
    types = {name: {entry["type"] for entry in entries} for name, entries in healthy.server.api("metadata").items()}
    expected = {name: {"gauge"} for name in h100.raw_default(0)} | {
        name: {"unknown"}
        for name in (
            h100.ENERGY,
            h100.BANDWIDTH,
            "DCGM_FI_DEV_PCIE_REPLAY_COUNTER",
            "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
            "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS",
        )
    }
    assert {name: types.get(name) for name in expected} == expected
    assert types["accel_power_watts"] == {"gauge"}
    assert types["accel_energy_joules"] == {"counter"}


def test_a_lost_gpu_ends_in_prometheus_and_the_others_go_on(tmp_path: Path) -> None:
    with scene(tmp_path) as (here, agent, server):
        server.wait_for('accel_health_state{device="3", state="healthy"} == 1')
        lost_at = time.time()
        here.nvml.apply(scenarios.lost(scenarios.h100(GPUS), 3))
        here.host.log_xid(PCI_BUSES[3], 79)
        server.wait_for('accel_health_state{device="3", state="failed"} == 1')
        server.wait_for('DCGM_FI_DEV_XID_ERRORS{gpu="3", err_msg="GPU has fallen off the bus"} == 79')
        until(lambda: len(server.query('{gpu="3"}')) == 1, "series of the lost GPU stay")
        assert {sample.labels["__name__"] for sample in server.query('{device="3", vendor="nvidia"}')} == {
            "accel_info",
            "accel_health_state",
            "accel_faults_total",
            "accel_fault_code_total",
            "accel_fault_last_timestamp_seconds",
            "accel_recovery_action",
            "accel_sample_timestamp_seconds",
        }
        [action] = server.query('accel_recovery_action{device="3"} == 1')
        assert action.labels["action"] == "reboot_node"

        # The last samples, staleness marks apart: nothing was repeated after its time.
        for series in ('DCGM_FI_DEV_GPU_TEMP{gpu="3"}', 'accel_temperature_celsius{device="3", sensor="die"}'):
            [row] = server.api("query", query=f"{series}[1m]")["result"]
            assert float(row["values"][-1][0]) <= lost_at + MAX_AGE + 2
        server.wait_for("accel_devices_reporting == 7")
        assert [sample.value for sample in server.query("accel_devices_present")] == [8]
        assert [sample.value for sample in server.query("accel_devices_expected")] == [8]

        now = time.time()
        until(
            lambda: (
                len(server.query(f"timestamp(DCGM_FI_DEV_GPU_TEMP) > {now}")) == GPUS - 1
                and len(server.query(f"timestamp(accel_power_watts) > {now}")) == GPUS - 1
            ),
            "the other GPUs' series do not go on",
        )
        assert {sample.labels["gpu"]: sample.value for sample in server.query("DCGM_FI_DEV_GPU_TEMP")} == {
            str(i): 50 + i for i in range(GPUS) if i != 3
        }
        assert agent.scrape().state() == "running"
        assert server.query(f'sum by(node)(accel_memory_used_bytes{{node="{NODE}"}})')[0].value == sum(
            (10_000 + 100 * i) * MIB for i in range(GPUS) if i != 3
        )
