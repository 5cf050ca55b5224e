"""docs/opentelemetry.md and the example for a Collector say what is true."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from exporter.config import otel
from exporter.config.load import load
from exporter.config.otlp import Otlp, receivers
from exporter.otlp.names import CONVENTIONAL
from exporter.selfmetrics import SelfMetrics
from tests.otlp_programs import COLLECTOR, collector_components

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/opentelemetry.md").read_text()
EXAMPLE = ROOT / "deploy/otel/collector.yaml"


def test_the_page_names_every_standard_variable_and_its_key() -> None:
    # Two of them are written as their ends.
    named = PAGE.replace("`…_CLIENT", "`OTEL_EXPORTER_OTLP_CLIENT")
    for variable in otel.VARIABLES:
        assert variable.name in named or variable.name.startswith(otel.SIGNAL), variable.name
        assert re.search(rf"`(otlp\.)?{variable.key}`", PAGE), variable.key
    of_the_resource = "OTEL_RESOURCE_ATTRIBUTES", "OTEL_SERVICE_NAME", "OTEL_EXPERIMENTAL_RESOURCE_DETECTORS"
    for name in (*of_the_resource, "OTEL_SDK_DISABLED", "OTEL_METRICS_EXPORTER"):
        assert name in PAGE


@pytest.mark.parametrize("name", CONVENTIONAL)
def test_the_page_names_every_convention(name: str) -> None:
    assert f"`{name}`" in PAGE


def test_the_page_names_the_agents_own_metrics_of_the_push() -> None:
    metrics = SelfMetrics()
    metrics.otlp()
    names = set(
        re.findall(r"^# TYPE (accel_exporter_otlp_\w+)", metrics.text(openmetrics=False).decode(), re.MULTILINE)
    )
    assert len(names) == 4
    assert {name for name in names if f"`{name}`" not in PAGE} == set()


def test_the_configurations_on_the_page_are_right(tmp_path: Path) -> None:
    blocks = re.findall(r"^```yaml\n(otlp:\n  endpoint.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)
    assert len(blocks) == 2
    for number, block in enumerate(blocks):
        file = tmp_path / f"{number}.yaml"
        file.write_text(block)
        assert len(receivers(load(file, {}, {}, {}).otlp)) == number + 1


def example() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(EXAMPLE.read_text())
    return found


def test_the_collectors_example_joins_what_it_has() -> None:
    config = example()
    used: dict[str, set[str]] = {"receivers": set(), "processors": set(), "exporters": set()}
    for pipeline in config["service"]["pipelines"].values():
        for kind, names in used.items():
            names.update(pipeline[kind])
    assert used == {kind: set(config[kind]) for kind in used}
    assert {names["receivers"][0] for names in config["service"]["pipelines"].values()} == {"otlp", "prometheus"}


def test_the_collectors_example_takes_requests_as_large_as_the_agent_sends() -> None:
    grpc = example()["receivers"]["otlp"]["protocols"]["grpc"]
    assert Otlp().request_bytes < grpc["max_recv_msg_size_mib"] * 1024 * 1024


def test_the_collectors_example_scrapes_as_the_one_for_prometheus_does() -> None:
    theirs = yaml.safe_load((ROOT / "deploy/prometheus/kubernetes.yaml").read_text())["scrape_configs"][0]
    (ours,) = example()["receivers"]["prometheus"]["config"]["scrape_configs"]
    for key in ("job_name", "honor_labels", "params", "kubernetes_sd_configs", "relabel_configs"):
        assert ours[key] == theirs[key]


@pytest.mark.skipif(
    not {"prometheus", "memory_limiter", "batch"} <= collector_components(),
    reason="no OpenTelemetry Collector (otelcol) with all components of the example is on PATH",
)
def test_a_collector_accepts_the_example() -> None:
    program = shutil.which(COLLECTOR)
    assert program is not None
    done = subprocess.run(
        [program, "validate", "--config", str(EXAMPLE)], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
