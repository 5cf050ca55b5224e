"""What a real Prometheus makes of a scrape."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.prometheus import Prometheus, prometheus
from tests.serving import run, running


def by_device(server: Prometheus, expression: str) -> dict[tuple[str, str], float]:
    return {(found.labels["vendor"], found.labels["device"]): found.value for found in server.query(expression)}


def check(folder: Path, address: str) -> None:
    targets = [{"targets": [address]}]
    jobs: list[dict[str, Any]] = [
        {"job_name": "all", "static_configs": targets},
        {"job_name": "common", "static_configs": targets, "params": {"schema": ["common"]}, "honor_labels": True},
        {"job_name": "raw", "static_configs": targets, "params": {"schema": ["raw"]}},
        {"job_name": "wrong", "static_configs": targets, "params": {"schema": ["other"]}},
    ]
    with prometheus(folder, jobs) as server:
        server.wait_for("count(up == 1) == 3")
        assert [found.labels["job"] for found in server.wait_for("up == 0")] == ["wrong"]
        # The sample that is NaN is served by nobody: absent, and not stale.
        assert by_device(server, 'accel_temperature_celsius{job="all"}') == {
            ("nvidia", "0"): 61.0,
            ("amd", "0"): 58.5,
        }
        assert by_device(server, 'accel_energy_joules_total{job="common"}') == {("nvidia", "0"): 1234567.25}
        (facts,) = server.query('accel_info{job="common"}')
        assert facts.labels["model"] == 'Big "X" \\ 1\nrev é'
        assert server.query('accel_temperature_celsius{job="raw"}') == []
        assert server.query('vendor_reads{job="common"}') == []
        assert [found.value for found in server.query('vendor_reads{job="raw"}')] == [5.0]
        assert [found.value for found in server.query('DCGM_FI_DEV_PCIE_REPLAY_COUNTER{job="all"}')] == [0.0]
        assert server.query('accel_exporter_build_info{job="raw"}') == []
        assert len(server.query('accel_exporter_build_info{job="all"}')) == 1
        # This Prometheus asks for OpenMetrics, and so knows the unit.
        (known,) = server.api("metadata", metric="accel_temperature_celsius")["accel_temperature_celsius"]
        assert known == {"type": "gauge", "help": "Temperature by sensor.", "unit": "celsius"}


@pytest.mark.prometheus
@pytest.mark.timeout(180)
def test_prometheus_scrapes_every_series_with_its_value(tmp_path: Path) -> None:
    async def test() -> None:
        async with running() as server:
            await asyncio.to_thread(check, tmp_path, server.addresses[0])

    run(test)
