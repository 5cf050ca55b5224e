"""One run of scripts/chart.py brings the chart and the plain manifests up to date, whatever has changed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.charts import helm

ROOT: Final = Path(__file__).resolve().parents[2]
MADE_OF: Final = ("alerts", "dashboards", "deploy", "scripts", "exporter/__init__.py")

pytestmark = pytest.mark.helm


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name in MADE_OF:
        source, copy = ROOT / name, tmp_path / name
        if source.is_dir():
            shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, copy)
    return tmp_path


def chart(checkout: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(checkout / "scripts/chart.py"), "--helm", helm(), *flags]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_new_version_is_everywhere_after_one_run(checkout: Path) -> None:
    version = checkout / "exporter/__init__.py"
    version.write_text(version.read_text().replace('__version__ = "0.', '__version__ = "9.'))
    assert chart(checkout).returncode == 0
    again = chart(checkout, "--check")
    assert (again.returncode, again.stdout) == (0, "")
    assert "accel-exporter:9." in (checkout / "deploy/manifests/auto.yaml").read_text()


def test_the_check_tells_of_manifests_that_a_change_would_change(checkout: Path) -> None:
    values = checkout / "deploy/helm/accel-exporter/values.yaml"
    values.write_text(values.read_text().replace("port: 9859", "port: 9860", 1))
    told = chart(checkout, "--check")
    assert told.returncode == 1
    assert "deploy/manifests/auto.yaml" in told.stdout
