"""All vendors on one node, and none of them."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from exporter.negotiation import Format
from exporter.registry import catalogues
from tests.e2e.agent import OPENMETRICS, TEXT, Agent, children, parse

VENDORS = sorted(catalogues())


def quiet_host(folder: Path) -> dict[str, str]:
    """Directories of a host that has nothing."""
    paths = {}
    for name in ("proc", "sys", "dev", "run", "var_lib", "etc", "opt"):
        (folder / "host" / name).mkdir(parents=True)
        paths[name] = str(folder / "host" / name)
    return paths


@pytest.mark.prometheus
def test_a_node_with_every_vendor_serves_one_valid_exposition(tmp_path: Path) -> None:
    config = {
        "simulate": {"devices": dict.fromkeys(VENDORS, 4), "scenario": "mix"},
        "schema": {"raw": "all"},
        "intervals": {"fast": 0.3, "normal": 0.3, "slow": 1.0},
        "paths": quiet_host(tmp_path),
    }
    with Agent.start(tmp_path, os.environ, config) as agent:
        agent.wait_for(lambda seen: len(seen.all("accel_utilization_ratio")) >= 2 * len(VENDORS))
        for accept, format_ in ((TEXT, Format.TEXT), (OPENMETRICS, Format.OPENMETRICS)):
            seen = parse(agent.get("/metrics", accept=accept).body, format_)
            devices = Counter(
                sample.labels["vendor"] for sample in seen.all("accel_info") if "partition" not in sample.labels
            )
            wanted = {catalogue.collector.vendor for _, catalogue in catalogues().values()}
            assert set(devices) == wanted
            assert set(devices.values()) == {4}
            assert all(sample.labels["simulated"] == "true" for sample in seen.all("accel_info"))
            states = {
                sample.labels["collector"]: sample.labels["state"]
                for sample in seen.all("accel_exporter_collector_state")
                if sample.value == 1
            }
            assert states == dict.fromkeys(VENDORS, "running")
        common = agent.get("/metrics?schema=common", accept=TEXT).body
    checked = subprocess.run(
        [str(shutil.which("promtool")), "check", "metrics"], input=common, capture_output=True, check=False
    )
    assert (checked.returncode, checked.stdout.decode(), checked.stderr.decode()) == (0, "", "")


def test_vendors_that_are_absent_cost_no_process_and_one_state_each(tmp_path: Path) -> None:
    with Agent.start(tmp_path, os.environ, {"paths": quiet_host(tmp_path)}) as agent:
        seen = agent.scrape()
        assert children(agent.process.pid) == []
        states = seen.all("accel_exporter_collector_state")
        assert {(sample.labels["collector"], sample.labels["state"], sample.value) for sample in states} == {
            (name, "no_device", 1.0) for name in VENDORS
        }
        assert not any(name.startswith("accel_") and not name.startswith("accel_exporter_") for name in seen.names)
        maps = Path(f"/proc/{agent.process.pid}/maps").read_text()
        assert not any(word in maps for word in ("nvidia-ml", "amd_smi", "libhlml", "libdcgm", "grpc"))
