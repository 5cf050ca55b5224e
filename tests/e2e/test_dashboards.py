"""A real Prometheus scrapes a simulated fleet of all vendors: every query of every panel has data."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest

from dashboards.files import BOARDS
from dashboards.board import document
from dashboards.grafana import Document, filled, queries, variables
from tests.prometheus import Prometheus, prometheus
from tests.simulated_fleet import CYCLE, fleet

pytestmark = [pytest.mark.prometheus, pytest.mark.timeout(240)]

DOCUMENTS: Final[Mapping[str, Document]] = {board.name: document(board) for board in BOARDS}
PATIENCE: Final = 4 * CYCLE
"""Seconds: some states last no longer than a moment of each cycle."""
TIMES: Final = {"__rate_interval": "10s", "__range": "60s", "__range_s": "60", "__interval": "5s"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    folder = tmp_path_factory.mktemp("fleet")
    with fleet(folder) as addresses:
        jobs = [{"job_name": "accel-exporter", "honor_labels": True, "static_configs": [{"targets": addresses}]}]
        with prometheus(folder, jobs) as running:
            running.wait_for(f"count(accel_exporter_build_info) == {len(addresses)}")
            yield running
