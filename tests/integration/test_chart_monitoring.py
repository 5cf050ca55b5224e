"""What the chart brings to a monitoring system: dashboards as they are, and rules with links to runbooks."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from alerts.files import with_links
from tests.charts import (
    MONITORED,
    RELEASE,
    ROOT,
    Json,
    of_kind,
    refusal,
    render,
)

pytestmark = pytest.mark.helm


def monitoring(kind: str) -> list[Json]:
    return of_kind(render({"prometheusRule": {"enabled": True}, "dashboards": {"enabled": True}, **MONITORED}), kind)


def test_each_dashboard_is_a_configmap_that_grafanas_sidecar_finds() -> None:
    sources = {path.name for path in (ROOT / "dashboards").rglob("*.json")}
    found = [each for each in monitoring("ConfigMap") if each["metadata"]["labels"].get("grafana_dashboard") == "1"]
    held = {name: text for each in found for name, text in each["data"].items()}
    assert set(held) == sources
    for name, text in held.items():
        (source,) = (ROOT / "dashboards").rglob(name)
        assert json.loads(text) == json.loads(source.read_text())


def groups(text: str) -> dict[str, Any]:
    return {group["name"]: group for group in yaml.safe_load(text)["groups"]}


def test_files_of_rules_are_prometheusrules_as_they_are() -> None:
    found = {each["metadata"]["name"]: each["spec"] for each in monitoring("PrometheusRule")}
    assert set(found) == {f"{RELEASE}-accel-exporter-recording", f"{RELEASE}-accel-exporter-alerts"}
    for name, spec in found.items():
        source = ROOT / "alerts" / f"{name.rpartition('-')[2]}.yaml"
        # Templates of alerts look like Helm's own, and must come through.
        assert {group["name"]: group for group in spec["groups"]} == groups(source.read_text())


@pytest.mark.parametrize("base", ["https://example.com/runbooks/", "https://example.com/runbooks"])
def test_runbooks_become_links(base: str) -> None:
    values = {"prometheusRule": {"enabled": True, "runbookBaseUrl": base}}
    found = {each["metadata"]["name"]: each["spec"] for each in of_kind(render(values), "PrometheusRule")}
    made = groups(with_links("https://example.com/runbooks"))
    assert {group["name"]: group for group in found[f"{RELEASE}-accel-exporter-alerts"]["groups"]} == made
    source = groups((ROOT / "alerts/recording.yaml").read_text())
    assert {group["name"]: group for group in found[f"{RELEASE}-accel-exporter-recording"]["groups"]} == source


@pytest.mark.parametrize(
    "base", ["docs", "ftp://example.com/", "https://", "https://example.com/a b", "https://x/'", "javascript:x"]
)
def test_a_base_that_is_no_address_is_refused(base: str) -> None:
    assert "runbookBaseUrl" in refusal({"prometheusRule": {"enabled": True, "runbookBaseUrl": base}})


@pytest.mark.prometheus
def test_prometheus_takes_the_rules(tmp_path: Path) -> None:
    for number, each in enumerate(monitoring("PrometheusRule")):
        path = tmp_path / f"{number}.yaml"
        path.write_text(yaml.safe_dump(each["spec"]))
        done = subprocess.run(
            ["promtool", "check", "rules", str(path)], capture_output=True, text=True, check=False, timeout=60
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_rules_that_do_not_exist_are_refused() -> None:
    assert "there is no file of rules named alrts" in refusal(
        {"prometheusRule": {"enabled": True, "include": ["alrts"]}}
    )
