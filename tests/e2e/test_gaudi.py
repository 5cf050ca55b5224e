"""The agent on a node with eight Gaudi2, scraped by a real Prometheus: public dashboards have data, and it is right."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.e2e.agent import Agent
from tests.fakes.gaudi import Host, Library, gaudi2, install, make_host
from tests.fakes.gaudi.cards import DOWN, DRIVER, MIB, PORTS, bdf, energy_mj, serial, uuid
from tests.prometheus import Prometheus, prometheus

pytestmark = [pytest.mark.gcc, pytest.mark.prometheus]

CARDS = 8
NORMAL = 0.3
IN_POD = {"KUBERNETES_SERVICE_PORT": "443", "POD_NAME": "agent-0", "POD_NAMESPACE": "monitoring"}

# Panel → query: opea-project/GenAIEval gaudi_grafana and _v2, opea-project/GenAIInfra Dashboard-Gaudi-HW, and queries
# of Red Hat's AI observability. $node is the variable of instances, $hpu that of cards.
PANELS = {
    "variable: instances": "habanalabs_kube_info",
    "variable: cards": 'habanalabs_device_config{instance="$node"}',
    "Driver version": 'habanalabs_device_config{instance="$node", UUID="$hpu"}',
    "Utilization": 'habanalabs_utilization{instance="$node", UUID="$hpu"}/100',
    "Power": 'habanalabs_power_mW{instance="$node", UUID="$hpu"}',
    "PCIe received": 'habanalabs_pcie_receive_throughput{UUID="$hpu", instance="$node"}',
    "PCIe sent": 'habanalabs_pcie_transmit_throughput{UUID="$hpu", instance="$node"}',
    "On-chip temperature": 'habanalabs_temperature_onchip{UUID="$hpu", instance="$node"}',
    "On-board temperature": 'habanalabs_temperature_onboard{UUID="$hpu", instance="$node"}',
    "Clock": 'habanalabs_clock_soc_mhz{UUID="$hpu", instance="$node"}',
    "Memory": 'habanalabs_memory_used_bytes{UUID="$hpu", instance="$node"}',
    "Memory share": (
        'habanalabs_memory_used_bytes{UUID="$hpu", instance="$node"}'
        ' / habanalabs_memory_total_bytes{UUID="$hpu", instance="$node"}'
    ),
    "Free memory": "habanalabs_memory_free_bytes",
    "Mean temperature": "avg(habanalabs_temperature_onchip)",
    "Power in watts": "sum(habanalabs_power_mW) / 1000",
    "Energy": "rate(habanalabs_energy[5m])",
    "Memory threshold": "max(habanalabs_temperature_threshold_memory)",
}
ACCELERATOR = {
    "accelerator_gpu_utilization": 43,
    "accelerator_memory_total_bytes": 98304 * MIB,
    "accelerator_memory_used_bytes": (768 + 3 * 1024) * MIB,
    "accelerator_power_usage_watts": 99_000,
    "accelerator_temperature_celcius": 48,
    "accelerator_sm_clock_hertz": 1635,
}


class Scene(NamedTuple):
    host: Host
    library: Library
    agent: Agent
    server: Prometheus


def config(host: Host, library: Library, **gaudi: Any) -> dict[str, Any]:
    return {
        "node": "node-a",
        "intervals": {"normal": NORMAL, "fast": NORMAL, "slow": 2 * NORMAL},
        "collection": {"retry_unavailable": 1, "backoff_min": 0.1, "backoff_max": 0.2, "deadline": 2},
        "paths": {"root": str(host.root), "libraries": {"gaudi": str(library.path.parent)}},
        "collectors": {"gaudi": gaudi},
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


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("gaudi")
    host, library = make_host(folder, CARDS), install(folder / "hlml", gaudi2(CARDS))
    with (
        Agent.start(folder, {**library.child_environ(), **IN_POD}, config(host, library)) as agent,
        prometheus(folder, scrape_jobs(agent)) as server,
    ):
        server.wait_for(f"count(habanalabs_energy) == {CARDS}")
        server.wait_for(f"count(accel_power_watts) == {CARDS}")
        server.wait_for("rate(habanalabs_energy[5m])")
        yield Scene(host, library, agent, server)


@pytest.mark.parametrize("panel", PANELS)
def test_every_panel_of_the_public_dashboards_has_data(scene: Scene, panel: str) -> None:
    for i in range(CARDS):
        query = PANELS[panel].replace("$node", scene.agent.address).replace("$hpu", uuid(i))
        assert scene.server.query(query), query


def test_the_panels_values_are_the_cards(scene: Scene) -> None:
    def value(query: str) -> float:
        [sample] = scene.server.query(query)
        return sample.value

    for i in range(CARDS):
        card = f'{{UUID="{uuid(i)}"}}'
        assert value(f"habanalabs_power_mW{card}") == 96_000 + 1000 * i
        assert value(f"habanalabs_temperature_onchip{card}") == 45 + i
        assert value(f"habanalabs_utilization{card}") == 40 + i
        used = (768 + 1024 * i) / 98304
        assert value(f"habanalabs_memory_used_bytes{card} / habanalabs_memory_total_bytes{card}") == used
    [sample] = scene.server.query(f'habanalabs_device_config{{UUID="{uuid(3)}"}}')
    labels = {key: found for key, found in sample.labels.items() if key not in ("__name__", "instance", "job")}
    assert labels == {
        "Serial": serial(3),
        "UUID": uuid(3),
        "device": serial(3),
        "id": "3",
        "fit": "U-Boot fw-53",
        "spi": "Linux gaudi2 5.10",
        "driver": DRIVER,
    }


def test_the_common_schema_has_the_same_card_in_base_units(scene: Scene) -> None:
    epoch = float(gaudi2(1).sections["system"]["epoch"])
    for i in range(CARDS):
        found: dict[str, float] = {}
        own = ("__name__", "job", "instance", "vendor", "device", "uuid", "node")
        for sample in scene.server.query(f'{{job="common", uuid="{uuid(i)}"}}'):
            further = ",".join(f"{key}={text}" for key, text in sorted(sample.labels.items()) if key not in own)
            found[f"{sample.labels['__name__']}{{{further}}}"] = sample.value
        expected = {
            "accel_power_watts{}": 96 + i,
            "accel_power_limit_watts{limit=enforced}": 550,
            "accel_power_limit_watts{limit=default}": 600,
            "accel_temperature_celsius{sensor=die}": 45 + i,
            "accel_temperature_celsius{sensor=memory}": 50 + i,
            "accel_temperature_celsius{sensor=board}": 35 + i,
            "accel_memory_used_bytes{memory=device}": (768 + 1024 * i) * MIB,
            "accel_utilization_ratio{}": (40 + i) / 100,
            "accel_clock_hertz{domain=core}": (1650 - 5 * i) * 1e6,
            "accel_throttle_active{reason=power_cap}": i % 2,
            "accel_throttle_seconds_total{reason=power_cap}": (1_500_000_000 + i) / 1e9,
            "accel_memory_errors_total{correctable=false,location=hbm}": 101 + 1000 * i,
            "accel_memory_repairs{cause=uncorrectable,kind=remapped_row}": 2 * i,
            "accel_pcie_link_generation{}": 4,
            "accel_interconnect_links{fabric=roce}": PORTS,
            "accel_interconnect_links_up{fabric=roce}": PORTS - (i == DOWN[0]),
            "accel_health_state{state=healthy}": 1,
            "accel_ecc_enabled{}": 1,
        }
        assert {key: found[key] for key in expected} == pytest.approx(expected)
        energy = found["accel_energy_joules_total{}"] * 1000
        assert energy_mj(i) < energy <= energy_mj(i) + (96_000 + 1000 * i) * (time.time() - epoch + 600)
    assert {sample.value for sample in scene.server.wait_for('accel_devices_present{vendor="intel"}')} == {CARDS}
    [source] = scene.server.query('accel_metric_source_info{metric="accel_utilization_ratio"}')
    assert (source.labels["source"], source.labels["exactness"]) == ("hlml/habanalabs_utilization", "estimated")


def test_the_vendors_misleading_aliases_are_not_there_unasked(scene: Scene) -> None:
    assert scene.server.query('{__name__=~"accelerator_.+"}') == []


def test_the_option_brings_the_aliases_as_the_vendor_has_them(tmp_path: Path) -> None:
    host, library = make_host(tmp_path, CARDS), install(tmp_path / "hlml", gaudi2(CARDS))
    settings = config(host, library, options={"accelerator_names": True})
    with Agent.start(tmp_path, library.child_environ(), settings) as agent:
        seen = agent.wait_for(lambda seen: seen.has("accelerator_gpu_utilization"))
    found = {name: seen.value(name, UUID=uuid(3)) for name in seen.names if name.startswith("accelerator_")}
    assert found == ACCELERATOR


def test_a_reset_a_missing_card_and_an_event_are_seen(tmp_path: Path) -> None:
    host, library = make_host(tmp_path, CARDS), install(tmp_path / "hlml", gaudi2(CARDS - 1))
    host.give_up(7)
    with Agent.start(tmp_path, library.child_environ(), config(host, library)) as agent:
        seen = agent.wait_for(lambda seen: seen.has("accel_power_watts", uuid=uuid(0)))
        assert seen.value("accel_health_state", uuid=bdf(7), state="failed") == 1
        seen = agent.wait_for(lambda seen: seen.has("accel_devices_present", vendor="intel"))
        assert seen.value("accel_devices_present", vendor="intel") == CARDS
        assert seen.value("accel_devices_reporting", vendor="intel") == CARDS - 1

        host.set(2, "status", "in reset")
        host.set(2, "hard_reset_cnt", 99)
        seen = agent.wait_for(lambda seen: seen.value("accel_health_state", uuid=uuid(2), state="degraded") == 1)
        seen = agent.wait_for(lambda seen: not seen.has("accel_power_watts", uuid=uuid(2)))
        assert seen.has("accel_power_watts", uuid=uuid(1))
        agent.wait_for(lambda seen: seen.has("accel_fault_code_total", uuid=uuid(2), code="habanalabs:hard_reset"))

        library.apply(gaudi2(CARDS - 1).with_keys("event 0", {"device": 4, "type": 2}))
        agent.wait_for(lambda seen: seen.has("accel_fault_code_total", uuid=uuid(4), code="habanalabs:critical"))
        agent.wait_for(lambda seen: seen.value("accel_health_state", uuid=uuid(4), state="failed") == 1)


@pytest.mark.parametrize(("trouble", "state"), [("hang", "timeout"), ("crash", "crashed")])
def test_a_library_that_hangs_or_crashes_costs_a_worker(tmp_path: Path, trouble: str, state: str) -> None:
    host, library = make_host(tmp_path, 2), install(tmp_path / "hlml", gaudi2(2))
    with Agent.start(tmp_path, library.child_environ(), config(host, library)) as agent:
        agent.wait_for(lambda seen: seen.has("accel_power_watts", uuid=uuid(1)))
        library.apply(gaudi2(2).with_keys("device 1", {f"{trouble}.hlml_device_get_power_usage": 1}))
        agent.wait_for(lambda seen: seen.state("gaudi") == state)
        assert agent.get("/metrics").seconds < 1
        library.apply(gaudi2(2))
        agent.wait_for(lambda seen: seen.state("gaudi") == "running" and seen.has("accel_power_watts", uuid=uuid(1)))
