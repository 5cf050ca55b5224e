"""A vendor from outside the tree: an installed package is all that it takes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from exporter.registry import catalogues
from tests.e2e.agent import Agent, until
from tests.e2e.host import make_host

PACKAGE = Path(__file__).parents[1] / "fakes" / "acme"
WORLD = {
    "devices": [{"uuid": "ACME-0", "index": "0", "kind": "npu", "model": "A1"}],
    "readings": {
        "normal": [
            ["acme_temperature", 0, 51, []],
            ["acme_memory_used_mib", 0, 7, []],
            ["acme_power_mw", 0, 90_500, []],
        ]
    },
    "faults": [],
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory in which the package is installed, built from its own pyproject.toml."""
    folder = tmp_path_factory.mktemp("site")
    # Built from a copy: a build may leave files beside its sources.
    source = shutil.copytree(PACKAGE, folder / "source", ignore=shutil.ignore_patterns("__pycache__"))
    target = folder / "packages"
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check"]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, "--target", target, source], check=True)
    return target


def python_path(site: Path) -> str:
    return os.pathsep.join(filter(None, (str(site), os.environ.get("PYTHONPATH", ""))))


def test_the_package_is_no_part_of_ours() -> None:
    assert "acme" not in catalogues()


def test_an_installed_package_is_found_read_and_served(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = make_host(tmp_path)
    (host.root / "dev/acme0").touch()
    world = tmp_path / "world.json"
    world.write_text(json.dumps(WORLD))
    monkeypatch.setenv("PYTHONPATH", python_path(site))
    config = {
        "paths": {"root": str(host.root)},
        "intervals": {"normal": 0.2},
        "collectors": {"acme": {"options": {"world": str(world)}}},
    }
    with Agent.start(tmp_path, dict(os.environ), config) as agent:
        seen = agent.wait_for(lambda seen: seen.has("acme_temperature"))
        [raw] = seen.all("acme_temperature")
        assert (raw.labels, raw.value) == ({"slot": "0", "UUID": "ACME-0"}, 51)
        assert seen.value("accel_temperature_celsius", vendor="acme", uuid="ACME-0", sensor="die") == 51
        assert seen.value("accel_memory_used_bytes", vendor="acme", memory="device") == 7 * 2**20
        assert seen.value("accel_power_watts", vendor="acme") == 90.5
        assert seen.value("accel_info", vendor="acme", kind="npu", model="A1") == 1
        assert seen.state("acme") == "running"

        # What happens on its device is counted and classified by the package's own table.
        world.write_text(json.dumps({**WORLD, "faults": [[0, "acme:7", 1000.0]]}))
        agent.wait_for(lambda seen: seen.has("accel_fault_code_total", code="acme:7"))
        world.write_text(json.dumps(WORLD))
        seen = agent.scrape()
        assert seen.value("accel_fault_code_total", **{"code": "acme:7", "class": "compute", "severity": "fatal"}) >= 1
        assert seen.value("accel_health_state", vendor="acme", state="failed") == 1
        assert seen.value("accel_recovery_action", vendor="acme", action="reset_device") == 1
    until(lambda: Path(f"{world}.closed").exists(), "the collector was not closed")


def test_the_options_of_a_foreign_package_are_checked(site: Path, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("collectors: {acme: {options: {wrld: x}}}\n")
    result = subprocess.run(
        [sys.executable, "-m", "exporter", "check-config", "--config", config],
        env={**os.environ, "PYTHONPATH": python_path(site)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 2
    assert "wrld" in result.stderr
    assert "world" in result.stderr
