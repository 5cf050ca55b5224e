"""MIG: instances that come and go, and sums that are right with MIG on and off."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.e2e.agent import Agent
from tests.e2e.worlds import NODE, place
from tests.fakes.nvml import Scenario, boards, scenarios
from tests.fakes.nvml.gpus import MIB
from tests.prometheus import Prometheus, prometheus

pytestmark = [pytest.mark.gcc, pytest.mark.prometheus]

USED = f'sum by(node)(accel_memory_used_bytes{{memory="device", node="{NODE}"}})'
WHOLE = 10_000 * MIB
"""What the whole GPU has in use (and half a MiB, which is not told)."""


def layout_changed(scenario: Scenario) -> Scenario:
    """What the driver tells its listeners when instances are made or removed."""
    return scenarios.event(scenario, 0, scenarios.MIG_CONFIG_EVENT, 0)


def other_layout() -> Scenario:
    """The instance in slot 2 is gone, there is one in slot 3; the one in slot 0 is another of the same shape."""
    before = scenarios.h100_mig()
    anew = boards.mig_1g_5gb(0, 3) | {"name": "NVIDIA H100 80GB HBM3 MIG 1g.10gb", "gi": 11, "profile_id": 19}
    return (
        before.without_section("mig 0.2")
        .with_keys("mig 0.0", {"uuid": "MIG-48100000-0000-5000-8000-0000000000aa"})
        .with_keys("mig 0.3", {**anew, "uuid": "MIG-48100000-0000-5000-8000-000000000003"})
    )


def scraped(agent: Agent) -> list[dict[str, Any]]:
    return [{"job_name": "agent", "honor_labels": True, "static_configs": [{"targets": [agent.address]}]}]


def wait_for_sum(server: Prometheus, expected: int) -> None:
    server.wait_for(f"{USED} == {expected}")


def test_memory_adds_up_while_the_layout_changes(tmp_path: Path) -> None:
    """Slot s has 3+s MiB in use."""
    off = scenarios.h100(1)
    here = place(tmp_path, off)
    with (
        Agent.start(tmp_path, here.environ, here.config()) as agent,
        prometheus(tmp_path, scraped(agent)) as server,
    ):
        wait_for_sum(server, WHOLE)
        assert not agent.scrape().has("accel_compute_units")

        on = layout_changed(scenarios.h100_mig())
        here.nvml.apply(on)
        wait_for_sum(server, (3 + 5) * MIB)
        seen = agent.scrape()
        used = {sample.labels["partition"]: sample.value for sample in seen.all("accel_memory_used_bytes")}
        assert used == {"3g.40gb/2": 3 * MIB, "1g.10gb/9": 5 * MIB}
        assert seen.value("accel_capacity_memory_bytes") == 81559 * MIB
        assert seen.value("accel_power_watts") == 310
        assert {sample.labels.get("partition", "") for sample in seen.all("accel_info")} == {"", *used}
        raw = {sample.labels["GPU_I_ID"]: sample.value for sample in seen.all("DCGM_FI_DEV_FB_USED")}
        assert raw == {"2": 3, "9": 5}
        # dcgm-exporter repeats what is the whole GPU's on each of its instances.
        assert [sample.value for sample in seen.all("DCGM_FI_DEV_POWER_USAGE")] == [310, 310]

        here.nvml.apply(layout_changed(layout_changed(other_layout())))
        wait_for_sum(server, (3 + 6) * MIB)
        seen = agent.scrape()
        assert {sample.labels["partition"] for sample in seen.all("accel_memory_used_bytes")} == {
            "3g.40gb/2",
            "1g.10gb/11",
        }
        renewed = seen.all("accel_info", partition="3g.40gb/2")
        assert [sample.labels["partition_uuid"] for sample in renewed] == ["MIG-48100000-0000-5000-8000-0000000000aa"]

        gone = layout_changed(layout_changed(layout_changed(off)))
        here.nvml.apply(gone)
        wait_for_sum(server, WHOLE)
        seen = agent.scrape()
        assert not [sample for sample in seen.samples if "partition" in sample.labels]
        assert not [sample for sample in seen.samples if "GPU_I_ID" in sample.labels]
        assert seen.state() == "running"
        assert seen.value("accel_exporter_collector_restarts_total", collector="nvidia", cause="failed") == 0


def test_a_node_with_whole_and_cut_gpus_adds_up(tmp_path: Path) -> None:
    here = place(tmp_path, scenarios.a100_mig())
    with Agent.start(tmp_path, here.environ, here.config()) as agent:
        seen = agent.wait_for(lambda seen: seen.has("accel_memory_used_bytes", device="1"))
        parts = sum(3 + slot for slot in range(7))
        whole = 5000 + 100
        assert sum(sample.value for sample in seen.all("accel_memory_used_bytes")) == (parts + whole) * MIB
        assert sum(sample.value for sample in seen.all("accel_capacity_memory_bytes")) == 2 * 40960 * MIB
        assert sum(sample.value for sample in seen.all("accel_power_watts")) == pytest.approx(67.03 + 68.03)
        assert seen.value("accel_devices_reporting") == 2
