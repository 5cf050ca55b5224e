"""The agent on nodes with AMD GPUs, scraped by a real Prometheus: the public dashboards have data, and it is right."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from tests.e2e.agent import Agent
from tests.fakes.amd import Tree, blobs, build, smi_worlds, worlds
from tests.fakes.amd.library import install
from tests.fakes.amd.wheels import VERSIONS, wheel
from tests.fakes.amd.worlds import MIB
from tests.prometheus import Prometheus, prometheus

pytestmark = [pytest.mark.gcc, pytest.mark.prometheus]

CARDS: Final = 2
NORMAL: Final = 0.3
NODE: Final = "node-a"

# Which models show which quantity: AMD's dashboards tell generations apart by the board's number.
MI200: Final = "102-D65208-0C|102-D67305-00|102-D65209-0C"
MI300: Final = (
    "102-G30211-00|102-G30211-0C|102-G30211-4C|102-G30212-0C|102-G30213-00|102-G30213-0C|102-G39205-00|102-G36220-0C"
    "|102-G36221-0C|102-G39206-00"
)
# Panel of ROCm/device-metrics-exporter's dashboard_gpu and dashboard_overview → its queries; one with data will do,
# since each generation has its own. GPU, HOST and CLUSTER stand for the matchers that the dashboards' variables make.
GPU_PANELS: Final[Mapping[str, Sequence[str]]] = {
    "GPU Power Usage": ["gpu_average_package_power{HOST}", "gpu_package_power{HOST}"],
    "PCIe Max Speed": ["pcie_max_speed{GPU}"],
    "PCIe Counts": [
        f"delta(pcie_{name}_count{{GPU}}[1m])"
        for name in ("recovery", "replay", "replay_rollover", "nack_received", "nack_sent")
    ],
    "Health": ["gpu_health{GPU}"],
    "PCIe Bandwidth": ["pcie_bandwidth{GPU}"],
    "VRAM Usage": ["sum(gpu_used_vram{GPU}) / sum(gpu_total_vram{GPU})"],
    "Total Correctable ECC": ["sum(delta(gpu_ecc_correct_total{GPU}[1m]))"],
    "Total Uncorrectable ECC": ["sum(delta(gpu_ecc_uncorrect_total{GPU}[1m]))"],
    "Energy Consumed": ["delta(gpu_energy_consumed{GPU}[1m])"],
    "GPU Usage": [
        f'gpu_gfx_activity{{GPU,card_model=~"{MI200}"}}',
        f'avg(gpu_gfx_busy_instantaneous{{GPU,card_model!~"{MI200}"}})',
    ],
    "Used VRAM": ["gpu_used_vram{GPU} / clamp_min(gpu_total_vram{GPU}, 1)"],
    "GPU Package Power": [
        f'gpu_package_power{{GPU,card_model=~"{MI300}"}}',
        f'gpu_average_package_power{{GPU,card_model!~"{MI300}"}}',
    ],
    "GPU Temperature": [
        f'gpu_edge_temperature{{GPU,card_model!~"{MI300}"}}',
        f'gpu_junction_temperature{{GPU,card_model=~"{MI300}"}}',
    ],
    "Memory Temperature": ["gpu_memory_temperature{GPU}"],
    "Temperature Sensors": ["gpu_hbm_temperature{GPU}", "gpu_junction_temperature{GPU}"],
    "GPU Errors": ['{__name__=~".*ecc.*",GPU}'],
    "GPU Compute Core Usage": [
        f'gpu_gfx_busy_instantaneous{{GPU,card_model!~"{MI200}"}}',
        f'gpu_gfx_activity{{GPU,card_model=~"{MI200}"}}',
    ],
}
OVERVIEW_PANELS: Final[Mapping[str, Sequence[str]]] = {
    "GPUs": ["sum(gpu_nodes_total{CLUSTER})"],
    "Jobs": [
        f'sum(group by(job_id) (gpu_gfx_activity{{CLUSTER,job_id!="",card_model=~"{MI200}"}}))',
        f'sum(group by(job_id) (gpu_gfx_busy_instantaneous{{CLUSTER,job_id!="",card_model!~"{MI200}"}}))',
    ],
    "Allocated GPUs": [
        f'sum(group by(gpu_uuid) (gpu_gfx_activity{{CLUSTER,job_id!="",card_model=~"{MI200}"}}))',
        f'sum(group by(gpu_uuid) (gpu_gfx_busy_instantaneous{{CLUSTER,job_id!="",card_model!~"{MI200}"}}))',
    ],
    "Total Power Usage": ["sum(gpu_average_package_power{CLUSTER})", "sum(gpu_package_power{CLUSTER})"],
    "PCIe Max Speed": ['count_values("count", pcie_max_speed{CLUSTER})'],
    "PCIe Counts": ["sum(delta(pcie_replay_count{CLUSTER}[1m]))"],
    "Top 5 GPU Usage": [
        f'topk(5, gpu_gfx_activity{{CLUSTER,card_model=~"{MI200}"}})',
        f'topk(5, gpu_gfx_busy_instantaneous{{CLUSTER,card_model!~"{MI200}"}})',
    ],
    "Top 5 Used VRAM": ["topk(5, gpu_used_vram{CLUSTER})"],
    "Current Total PCIe Bandwidth": ["sum(pcie_bandwidth{CLUSTER})"],
    "Memory Usage": ["sum(gpu_used_vram{CLUSTER}) / sum(gpu_total_vram{CLUSTER})"],
    "Energy Consumed": ["sum(delta(gpu_energy_consumed{CLUSTER}[1m]))"],
    "Average GPU Power": [
        f'avg(gpu_package_power{{CLUSTER,card_model=~"{MI300}"}})',
        f'avg(gpu_average_package_power{{CLUSTER,card_model!~"{MI300}"}})',
    ],
    "Average Memory Usage of Allocated GPUs": ['sum(gpu_used_vram{CLUSTER,job_id!=""})'],
    "Average Sensor Temperatures": ["avg(gpu_hbm_temperature{CLUSTER})", "avg(gpu_junction_temperature{CLUSTER})"],
    "Average GPU Temperature": [
        f'avg(gpu_edge_temperature{{CLUSTER,card_model!~"{MI300}"}})',
        f'avg(gpu_junction_temperature{{CLUSTER,card_model=~"{MI300}"}})',
    ],
    "Average Memory Temperature": ["avg(gpu_memory_temperature{CLUSTER})"],
    "All GPUs": ["gpu_health{CLUSTER}"],
}
LACKING: Final = {"mi250": {"PCIe Bandwidth", "Current Total PCIe Bandwidth"}}
"""What this generation does not tell: AMD's exporter leaves these panels empty, too."""


class Scene(NamedTuple):
    world: str
    tree: Tree
    agent: Agent
    server: Prometheus


def config(tree: Tree, **amd: Any) -> dict[str, Any]:
    return {
        "node": NODE,
        "intervals": {"normal": NORMAL, "fast": NORMAL, "slow": 2 * NORMAL},
        "collection": {"retry_unavailable": 1, "backoff_min": 0.1, "backoff_max": 0.2, "deadline": 5},
        "paths": {"root": str(tree.root)},
        "collectors": {"amd": {"options": {"cluster_name": "c1"}, **amd}},
    }


def scrape_jobs(agent: Agent) -> list[dict[str, Any]]:
    return [
        {
            "job_name": schema,
            "honor_labels": schema == "common",
            "params": {"schema": [schema]},
            "static_configs": [{"targets": [agent.address]}],
        }
        for schema in ("common", "raw")
    ]


def slurm_file(tree: Tree, index: int) -> None:
    """What AMD's prolog writes when a job starts on a GPU."""
    folder = tree.root / "run/exporter"
    folder.mkdir(parents=True)
    job = {
        "SLURM_JOB_ID": "4711",
        "SLURM_JOB_USER": "alice",
        "SLURM_JOB_PARTITION": "mi300",
        "SLURM_CLUSTER_NAME": "c1",
        "SLURM_JOB_GPUS": str(index),
        "CUDA_VISIBLE_DEVICES": "",
    }
    (folder / str(index)).write_text(json.dumps(job) + "\n")


@pytest.fixture(scope="module", params=["mi300x", "mi250"])
def scene(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """MI300X through the library, MI250 through sysfs."""
    world: str = request.param
    folder = tmp_path_factory.mktemp(world)
    boards = worlds.mi300x(CARDS) if world == "mi300x" else worlds.mi250()
    tree = build(folder / "host", [worlds.bmc(), *boards])
    (tree.root / "proc").mkdir()
    slurm_file(tree, 0)
    package = wheel(VERSIONS[-1])
    environ = install(folder / "smi", package, smi_worlds.mi300x(package, CARDS)).environ
    source = "amdsmi" if world == "mi300x" else "sysfs"
    with (
        Agent.start(folder, environ, config(tree, source=source)) as agent,
        prometheus(folder, scrape_jobs(agent)) as server,
    ):
        server.wait_for(f"count(gpu_health) == {CARDS}")
        server.wait_for(f"count(accel_power_watts) == {CARDS}")
        server.wait_for('count(gpu_used_vram{job_id="4711"}) == 1')
        server.wait_for("delta(gpu_energy_consumed[1m])")
        server.wait_for("delta(gpu_ecc_correct_total[1m])")
        yield Scene(world, tree, agent, server)


def uuid(world: str, i: int) -> str:
    return f"9fff{'74a1' if world == 'mi300x' else '740c'}-0000-1000-8044-0a1b2c3d4e{i:02x}"


def has_data(scene: Scene, queries: Sequence[str], i: int = 0) -> bool:
    gpu = f'gpu_uuid="{uuid(scene.world, i)}",hostname="{NODE}",gpu_id="{i}"'
    filled = [
        query.replace("GPU}", f"{gpu}}}").replace("GPU,", f"{gpu},")
        .replace("HOST}", f'hostname="{NODE}",gpu_id="{i}"}}')
        .replace("CLUSTER", 'cluster_name="c1"')
        for query in queries
    ]  # fmt: skip
    return any(scene.server.query(query) for query in filled)


@pytest.mark.parametrize("panel", GPU_PANELS)
def test_every_panel_of_the_gpu_dashboard_has_data(scene: Scene, panel: str) -> None:
    # What a board's second die lacks (power, energy), AMD's exporter lacks, too.
    for i in range(CARDS if scene.world == "mi300x" else 1):
        assert has_data(scene, GPU_PANELS[panel], i) == (panel not in LACKING.get(scene.world, set()))


@pytest.mark.parametrize("panel", OVERVIEW_PANELS)
def test_every_panel_of_the_overview_has_data(scene: Scene, panel: str) -> None:
    assert has_data(scene, OVERVIEW_PANELS[panel]) == (panel not in LACKING.get(scene.world, set()))


def value(scene: Scene, query: str) -> float:
    [sample] = scene.server.query(query)
    return sample.value


def test_the_panels_values_are_the_cards(scene: Scene) -> None:
    newer = scene.world == "mi300x"
    for i in range(CARDS):
        card = f'{{gpu_uuid="{uuid(scene.world, i)}"}}'
        if newer:
            assert value(scene, f"gpu_package_power{card}") == 255 + i
            assert value(scene, f"gpu_junction_temperature{card}") == 60 + i
            assert value(scene, f"avg(gpu_gfx_busy_instantaneous{card})") == (7 * (80 + i) + 40 + i) / 8
            assert value(scene, f"gpu_used_vram{card}") == 2000 + 100 * i
        else:
            assert value(scene, f"gpu_gfx_activity{card}") == 70 + i
            assert value(scene, f"gpu_edge_temperature{card}") == 40 + i
            assert value(scene, f"avg(gpu_hbm_temperature{card})") == (50 + 51 + 52 + 49) / 4 + i
            assert value(scene, f"gpu_used_vram{card}") == 500 + i
    assert value(scene, "sum(gpu_nodes_total)") == CARDS
    [sample] = scene.server.query('gpu_used_vram{job_id="4711"}')
    assert {key: sample.labels[key] for key in ("job_user", "job_partition", "gpu_id")} == {
        "job_user": "alice",
        "job_partition": "mi300",
        "gpu_id": "0",
    }


def test_the_common_schema_says_the_same_in_base_units(scene: Scene) -> None:
    newer = scene.world == "mi300x"
    for i in range(CARDS):
        card = f'uuid="{uuid(scene.world, i)}"'
        expected = {
            f"accel_power_watts{{{card}}}": 255 + i if newer else 150,
            f'accel_memory_used_bytes{{{card},memory="device"}}': (2000 + 100 * i if newer else 500 + i) * MIB,
            f"accel_utilization_ratio{{{card}}}": (90 + i if newer else 70 + i) / 100,
            f'accel_temperature_celsius{{{card},sensor="hotspot"}}': (60 if newer else 48) + i,
            f"accel_energy_joules_total{{{card}}}": 1000 + i if newer else 2500,
            # The library tells of a bad page that awaits its retirement.
            f'accel_health_state{{{card},state="{"degraded" if newer else "healthy"}"}}': 1,
            f'accel_power_limit_watts{{{card},limit="enforced"}}': 700 if newer else 280,
            f'accel_memory_errors_total{{{card},correctable="true"}}': 65535 if newer else 0,
        }
        assert {query: value(scene, query) for query in expected} == pytest.approx(expected)
    # A board's power is counted once.
    assert value(scene, "sum(accel_power_watts)") == (511 if newer else 300)
    sources = {
        sample.labels["source"]: sample.labels["exactness"]
        for sample in scene.server.query('accel_metric_source_info{metric="accel_power_watts"}')
    }
    power = ("amdsmi/gpu_power_usage", "exact") if newer else ("sysfs/amdsmi_power_share_watts", "estimated")
    assert sources == dict([power])
    [job] = scene.server.query(f'accel_memory_used_bytes{{uuid="{uuid(scene.world, 0)}",memory="device"}}')
    assert job.labels["job_name"] == "4711"


def test_a_card_that_is_cut_counts_once(tmp_path: Path) -> None:
    tree = build(tmp_path / "host", worlds.mi300x_cpx())
    (tree.root / "proc").mkdir()
    with Agent.start(tmp_path, {}, config(tree, source="sysfs")) as agent:
        seen = agent.wait_for(lambda seen: seen.has("accel_memory_used_bytes"))
    assert seen.value("accel_power_watts") == 255
    assert seen.value("accel_power_watts", vendor="amd") == 255
    used = seen.all("accel_memory_used_bytes", memory="device")
    assert sorted(sample.labels["partition"] for sample in used) == [str(n) for n in range(8)]
    assert sum(sample.value for sample in used) == sum(100 * (n + 1) for n in range(8)) * MIB
    busy = seen.all("accel_utilization_ratio")
    assert {sample.labels["partition"]: sample.value for sample in busy} == {str(n): 0.4 for n in range(8)}
    assert seen.value("accel_capacity_compute_units") == 304
    assert len(seen.all("accel_health_state", state="healthy")) == 1
    # The raw series of the whole card stand on its first partition, as in AMD's exporter.
    assert seen.value("gpu_package_power", gpu_partition_id="0", gpu_id="0") == 255
    assert seen.value("gpu_used_vram", gpu_id="7", gpu_partition_id="7") == 800


def test_uncorrectable_errors_show_in_health_and_a_lost_card_costs_no_other(tmp_path: Path) -> None:
    tree = build(tmp_path / "host", worlds.mi300x(3))
    (tree.root / "proc").mkdir()
    with Agent.start(tmp_path, {}, config(tree, source="sysfs")) as agent:
        agent.wait_for(lambda seen: len(seen.all("accel_health_state", state="healthy")) == 3)
        tree.put(worlds.mi300x_bdf(0), "ras/umc_err_count", "ue: 1\nce: 0\n")
        tree.remove(worlds.mi300x_bdf(1))
        seen = agent.wait_for(
            lambda seen: sum(sample.value for sample in seen.all("accel_health_state", state="failed")) == 2
        )
        assert seen.value("accel_health_state", device="2", state="healthy") == 1
        assert seen.value("accel_memory_errors_total", device="0", correctable="false") == 1
        assert not seen.has("accel_power_watts", device="1")
        assert seen.value("gpu_health", gpu_id="0") == 0
        assert seen.value("accel_power_watts", device="2") == 257


def test_another_partitioning_needs_no_restart(tmp_path: Path) -> None:
    """The supervisor looks for devices anew when the collector sees another layout."""
    tree = build(tmp_path / "host", worlds.mi300x(1))
    (tree.root / "proc").mkdir()
    with Agent.start(tmp_path, {}, config(tree, source="sysfs")) as agent:
        agent.wait_for(lambda seen: seen.has("accel_utilization_ratio"))
        spare = build(tmp_path / "spare", worlds.mi300x_cpx())
        nodes = tree.sys / "class/kfd/kfd/topology/nodes"
        nodes.rename(tmp_path / "nodes")
        (spare.sys / "class/kfd/kfd/topology/nodes").rename(nodes)
        bdf = worlds.mi300x_bdf(0)
        tree.put(bdf, "current_compute_partition", "CPX\n")
        tree.put(
            bdf, "gpu_metrics", blobs.table((1, 7), worlds.mi300x_fields(0), [worlds.busy(0, n, 1) for n in range(8)])
        )
        seen = agent.wait_for(lambda seen: len(seen.all("accel_utilization_ratio")) == 8, patience=30)
    assert seen.all("accel_info", partition="3")[0].labels["partition_profile"] == "cpx_nps1"


def test_names_may_begin_as_amds_operator_has_them(tmp_path: Path) -> None:
    tree = build(tmp_path / "host", worlds.mi300x(1))
    (tree.root / "proc").mkdir()
    with Agent.start(tmp_path, {}, config(tree, source="sysfs", profile="amd-prefix")) as agent:
        seen = agent.wait_for(lambda seen: seen.has("amd_gpu_package_power"))
    assert not {name for name in seen.names if name.startswith(("gpu_", "pcie_"))}
    assert seen.value("amd_pcie_max_speed") == 32
