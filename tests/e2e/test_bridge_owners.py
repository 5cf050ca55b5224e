"""The agent reads a vendor's exporter that knows the pods, on a host where it cannot ask anybody else."""

from __future__ import annotations

import os
from pathlib import Path

from tests.bridge_sources import PageServer
from tests.e2e.agent import Agent
from tests.e2e.host import make_host

UUID = "GPU-0f0e0d0c-1111-2222-3333-44445555aaaa"
LABELS = f'gpu="0",UUID="{UUID}",modelName="NVIDIA H100 80GB HBM3"'
POD = 'container="train",namespace="team-a",pod="job-0"'


def test_pods_of_the_exporter_stand_on_the_series_as_they_come_and_go(tmp_path: Path) -> None:
    root = make_host(tmp_path, 1).root
    free = f"DCGM_FI_DEV_POWER_USAGE{{{LABELS}}} 500.5\n"
    with PageServer(free).serving() as page:
        config = {
            "paths": {"root": str(root)},
            "intervals": {"normal": 0.3, "fast": 0.3, "slow": 1},
            "collectors": {"nvidia": {"source": "bridge", "url": page.url, "passthrough": True}},
            "attribution": {"kubernetes": {"enabled": False}},
        }
        with Agent.start(tmp_path, os.environ, config) as agent:
            agent.wait_for(lambda seen: seen.has("accel_power_watts", pod=""))
            assert not agent.scrape().has("accel_allocated")
            page.body = f"DCGM_FI_DEV_POWER_USAGE{{{LABELS},{POD}}} 500.5\n"
            owner = {"namespace": "team-a", "pod": "job-0", "container": "train"}
            seen = agent.wait_for(lambda seen: seen.has("accel_allocation_info", **owner))
            assert seen.value("accel_power_watts", pod="job-0", namespace="team-a", tenant="team-a") == 500.5
            assert seen.value("DCGM_FI_DEV_POWER_USAGE", pod="job-0", container="train") == 500.5
            assert seen.value("accel_exporter_attribution_up", source="bridge") == 1
            page.body = free
            seen = agent.wait_for(lambda seen: not seen.has("accel_allocation_info"))
            assert seen.value("accel_allocated") == 0
