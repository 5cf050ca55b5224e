"""The agent on a node whose GPUs are read through DCGM: what Prometheus has, and what happens when the engine goes."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
import yaml

from tests.e2e.agent import Agent, until
from tests.e2e.host import make_host
from tests.fakes.dcgm import HostEngine, Installation, World, install, worlds
from tests.fakes.dcgm.world import GPU
from tests.fakes.nvml import install as install_nvml
from tests.fakes.nvml import scenarios
from tests.fakes.nvml.gpus import MIB, pci, uuid
from tests.prometheus import Prometheus, prometheus

pytestmark = pytest.mark.gcc

GPUS: Final = 2
NORMAL: Final = 0.4
NODE: Final = "node-a"
FILTER: Final = f'Hostname=~"{NODE}", gpu=~"0|1"'
# Panel of a public dashboard → its query; FILTER stands for the matchers that it makes of its variables.
PANELS: Final[Mapping[str, str]] = {
    "GPU Temperature": "DCGM_FI_DEV_GPU_TEMP{FILTER}",
    "GPU Avg. Temp": "avg by (gpu) (DCGM_FI_DEV_GPU_TEMP{FILTER})",
    "GPU Power Usage": "DCGM_FI_DEV_POWER_USAGE{FILTER}",
    "GPU Power Total": "sum by (gpu) (DCGM_FI_DEV_POWER_USAGE{FILTER})",
    "GPU SM Clocks": "DCGM_FI_DEV_SM_CLOCK{FILTER} * 1000000",
    "GPU Utilization": "DCGM_FI_DEV_GPU_UTIL{FILTER}",
    "GPU Framebuffer Mem Used": "DCGM_FI_DEV_FB_USED{FILTER}",
    "Tensor Core Utilization": "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{FILTER}",
    "GPU Memory Usage, free": "DCGM_FI_DEV_FB_FREE{FILTER} * 1024 * 1024",
    "GPU Temperature, memory": "DCGM_FI_DEV_MEMORY_TEMP{FILTER}",
    "GPU Clock Speeds, memory": "DCGM_FI_DEV_MEM_CLOCK{FILTER} * 1000000",
    "GPU Engine Activity": "DCGM_FI_PROF_GR_ENGINE_ACTIVE{FILTER} * 100",
    "DRAM Active": "DCGM_FI_PROF_DRAM_ACTIVE{FILTER}",
    "PCIe Bandwidth, received": "DCGM_FI_PROF_PCIE_RX_BYTES{FILTER}",
    "PCIe Bandwidth, sent": "DCGM_FI_PROF_PCIE_TX_BYTES{FILTER}",
    "NVLink": "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL{FILTER}",
    "Energy": "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{FILTER}",
    "XID": "DCGM_FI_DEV_XID_ERRORS{FILTER}",
    "Remapped rows": "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS{FILTER}",
}


class Scene(NamedTuple):
    agent: Agent
    engine: HostEngine
    dcgm: Installation


@contextmanager
def scene(folder: Path, world: World, *, nvml: bool = False, **nvidia: Any) -> Iterator[Scene]:
    """A host with two GPUs and an engine; with ``nvml`` a driver's library, too."""
    host = make_host(folder, GPUS)
    base = install_nvml(folder / "nvml", scenarios.h100(GPUS)).environment() if nvml else None
    dcgm = install(folder / "dcgm", world)
    with HostEngine(folder / "engine") as engine:
        options = {"dcgm_address": engine.address, "kmsg": False}
        config = {
            "node": NODE,
            "intervals": {"normal": NORMAL, "fast": NORMAL, "slow": 2 * NORMAL},
            "collection": {"retry_unavailable": 1, "backoff_min": 0.1, "backoff_max": 0.2, "deadline": 3},
            "paths": {"root": str(host.root)},
            "collectors": {"nvidia": {"options": options, **nvidia}},
        }
        environ = dcgm.environment(base) if base else dcgm.environment()
        with Agent.start(folder, environ, config) as agent:
            yield Scene(agent, engine, dcgm)


def by_gpu(server: Prometheus, query: str) -> dict[str, float]:
    return {sample.labels["gpu"]: sample.value for sample in server.query(query.replace("FILTER", FILTER))}


@pytest.mark.prometheus
def test_every_panel_has_data_for_each_gpu_and_the_values_are_right(tmp_path: Path) -> None:
    with scene(tmp_path, worlds.h100(GPUS)) as (agent, _, _):
        agent.wait_for(lambda seen: seen.state() == "running")
        jobs = [{"job_name": "raw", "params": {"schema": ["raw"]}, "static_configs": [{"targets": [agent.address]}]}]
        with prometheus(tmp_path, jobs) as server:
            server.wait_for("count(DCGM_FI_DEV_GPU_TEMP) == 2")
            found = {title: by_gpu(server, query) for title, query in PANELS.items()}
    assert {title for title, values in found.items() if values.keys() != {"0", "1"}} == set()
    for i in range(GPUS):
        gpu = str(i)
        assert found["GPU Temperature"][gpu] == 50 + i
        assert found["GPU Power Usage"][gpu] == 310.5 + i
        assert found["GPU SM Clocks"][gpu] == (1980 - 15 * i) * 10**6
        assert found["GPU Framebuffer Mem Used"][gpu] == 10_000 + 100 * i
        assert found["Tensor Core Utilization"][gpu] == pytest.approx(worlds.ratio(1004, i))
        assert found["PCIe Bandwidth, received"][gpu] == 2 * 10**9 + i
        assert found["XID"][gpu] == 0


def test_the_common_schema_is_fed_and_says_by_what(tmp_path: Path) -> None:
    began = time.time()
    world = worlds.h100(GPUS)
    with scene(tmp_path, world) as (agent, _, _):
        seen = agent.wait_for(lambda seen: seen.has("accel_compute_active_ratio", device="1"))
    for i in range(GPUS):
        gpu = {"vendor": "nvidia", "uuid": uuid(worlds.H100, i)}
        assert seen.value("accel_temperature_celsius", sensor="die", **gpu) == 50 + i
        assert seen.value("accel_temperature_celsius", sensor="memory", **gpu) == 60 + i
        assert seen.value("accel_power_watts", **gpu) == 310.5 + i
        assert seen.value("accel_power_limit_watts", limit="enforced", **gpu) == 680
        assert seen.value("accel_memory_used_bytes", memory="device", **gpu) == (10_000 + 100 * i) * MIB
        assert seen.value("accel_memory_total_bytes", memory="device", **gpu) == worlds.TOTAL * MIB
        assert seen.value("accel_capacity_memory_bytes", **gpu) == worlds.TOTAL * MIB
        assert seen.value("accel_utilization_ratio", **gpu) == pytest.approx(0.9 + 0.01 * i)
        assert seen.value("accel_compute_active_ratio", **gpu) == pytest.approx(worlds.ratio(1002, i))
        assert seen.value("accel_memory_bandwidth_active_ratio", **gpu) == pytest.approx(worlds.ratio(1005, i))
        assert seen.value("accel_interconnect_sent_bytes_per_second", fabric="nvlink", **gpu) == 3 * 10**9 + i
        assert seen.value("accel_interconnect_links_up", fabric="nvlink", **gpu) == 18
        assert seen.value("accel_throttle_active", reason="power_cap", **gpu) == 1
        assert seen.value("accel_throttle_seconds_total", reason="power_cap", **gpu) == 1 + i
        assert seen.value("accel_memory_errors_total", correctable="true", **gpu) == 10 + i
        assert seen.value("accel_health_state", state="healthy", **gpu) == 1
        energy = seen.value("accel_energy_joules_total", **gpu)
        start = 10**9 + 10**6 * i
        assert start <= energy <= start + (310.5 + i) * (time.time() - began + 1)
        [info] = seen.all("accel_info", **gpu)
        assert (info.labels["pci_bus_id"], info.labels["driver_version"]) == (pci(i), "580.95.05")
    sources = {sample.labels["metric"]: sample.labels["source"] for sample in seen.all("accel_metric_source_info")}
    assert sources["accel_temperature_celsius"].startswith("dcgm/")
    assert sources["accel_capacity_memory_bytes"] == "dcgm/dcgm_memory_capacity_mebibytes"


def test_an_xid_becomes_a_fault_and_a_failed_gpu(tmp_path: Path) -> None:
    world = worlds.h100(GPUS)
    with scene(tmp_path, world) as (agent, _, dcgm):
        agent.wait_for(lambda seen: seen.has("accel_health_state", device="1", state="healthy"))
        at = time.time()
        dcgm.apply(world.xid((GPU, 1), 79, at))
        seen = agent.wait_for(lambda seen: seen.has("accel_fault_code_total", code="xid:79"))
        assert seen.value("accel_fault_code_total", code="xid:79", device="1", severity="fatal") == 1
        assert seen.value("accel_fault_last_timestamp_seconds", code="xid:79") == pytest.approx(at, abs=0.01)
        agent.wait_for(lambda seen: seen.value("accel_health_state", device="1", state="failed") == 1)
        assert agent.scrape().value("accel_faults_total", device="0") == 0


def test_dcgms_own_judgement_counts_for_health(tmp_path: Path) -> None:
    world = worlds.with_incident(worlds.h100(GPUS), 0x10, 20, 81, (GPU, 0))
    with scene(tmp_path, world) as (agent, _, _):
        seen = agent.wait_for(lambda seen: seen.has("accel_health_state", device="1", state="healthy"))
    assert seen.value("accel_health_state", device="0", state="failed") == 1
    assert seen.value("accel_health_state", device="1", state="healthy") == 1


def by(agent: Agent) -> set[str]:
    """The ways by which the common metrics come."""
    return {sample.labels["source"].split("/")[0] for sample in agent.scrape().all("accel_metric_source_info")}


def test_an_engine_that_goes_leaves_nvml_and_one_that_comes_is_used(tmp_path: Path) -> None:
    with scene(tmp_path, worlds.h100(GPUS), nvml=True) as (agent, engine, _):
        until(lambda: by(agent) == {"dcgm"}, "DCGM is not read")
        engine.stop()
        until(lambda: by(agent) == {"nvml"}, "NVML is not read")
        seen = agent.scrape()
        assert seen.state() == "running"
        assert seen.value("accel_temperature_celsius", device="0", sensor="die") == 50
        # No series of one way is left beside the other's.
        names = {sample.name for sample in seen.samples}
        assert "nvml_nvlink_links" not in names or "dcgm_nvlink_links" not in names


def test_with_dcgm_alone_a_lost_engine_is_a_state_and_comes_back(tmp_path: Path) -> None:
    with scene(tmp_path, worlds.h100(GPUS), source="dcgm") as (agent, engine, _):
        agent.wait_for(lambda seen: seen.has("accel_power_watts", device="1"))
        engine.stop()
        seen = agent.wait_for(lambda seen: seen.state() == "no_driver")
        assert not seen.has("accel_power_watts") or agent.wait_for(lambda s: not s.has("accel_power_watts"))
        engine.start()
        agent.wait_for(lambda seen: seen.state() == "running" and seen.has("accel_power_watts", device="1"))


def test_an_engine_that_hangs_is_killed_off_and_scrapes_go_on(tmp_path: Path) -> None:
    world = worlds.h100(GPUS)
    with scene(tmp_path, world, source="dcgm") as (agent, _, dcgm):
        agent.wait_for(lambda seen: seen.has("accel_power_watts", device="1"))
        dcgm.apply(world.hangs("dcgmEntitiesGetLatestValues"))
        agent.wait_for(lambda seen: seen.state() == "timeout")
        assert agent.get("/metrics").seconds < 1
        dcgm.apply(world)
        agent.wait_for(lambda seen: seen.state() == "running", patience=90)


def test_a_library_that_crashes_is_started_again(tmp_path: Path) -> None:
    world = worlds.h100(GPUS)
    with scene(tmp_path, world, source="dcgm") as (agent, _, dcgm):
        agent.wait_for(lambda seen: seen.has("accel_power_watts", device="1"))
        dcgm.apply(world.crashes("dcgmEntitiesGetLatestValues"))
        agent.wait_for(lambda seen: seen.has("accel_exporter_collector_restarts_total", collector="nvidia"))
        dcgm.apply(world)
        agent.wait_for(lambda seen: seen.state() == "running" and seen.has("accel_power_watts", device="1"))


def test_doctor_runs_on_nvml_and_logs_why_the_engine_is_of_no_use(tmp_path: Path) -> None:
    host = make_host(tmp_path, GPUS)
    nvml = install_nvml(tmp_path / "nvml", scenarios.h100(GPUS))
    dcgm = install(tmp_path / "dcgm", worlds.h100(GPUS, engine="4.4.1", library="4.6.0"))
    with HostEngine(tmp_path / "engine") as engine:
        config = tmp_path / "config.yaml"
        nvidia = {"options": {"dcgm_address": engine.address}}
        config.write_text(
            yaml.safe_dump({"node": NODE, "paths": {"root": str(host.root)}, "collectors": {"nvidia": nvidia}})
        )
        result = subprocess.run(
            [sys.executable, "-m", "exporter", "doctor", "--format", "json", "--config", str(config)],
            env=dcgm.environment(nvml.environment()),
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
    [report] = [one for one in json.loads(result.stdout)["collectors"] if one["collector"] == "nvidia"]
    assert (report["state"], report["devices"]) == ("running", GPUS)
    [told] = [line for line in result.stderr.splitlines() if "NVML is read instead of DCGM" in line]
    assert "4.6.0" in told
    assert "4.4.1" in told
