"""What stands in deploy/ for those without Helm: the systemd unit, Slurm's scripts, Prometheus' configuration."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from exporter.attribution.claims import Claim
from exporter.attribution.slurm import SlurmSource
from exporter.cli import main
from exporter.program import Source, read
from tests.attribution_rig import Heard, in_loop, running, until

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
SCRIPTS = sorted((DEPLOY / "slurm").glob("*.sh"))


def test_the_unit_starts_a_command_that_exists() -> None:
    unit = (DEPLOY / "systemd/accel-exporter.service").read_text()
    (line,) = re.findall(r"^ExecStart=(.*)$", unit, flags=re.MULTILINE)
    program, command, *flags = line.split()
    # Where the documentation installs it.
    assert program == "/opt/accel-exporter/bin/accel-exporter"
    assert f"python3 -m venv {program.rsplit('/', 2)[0]}" in (ROOT / "docs/install.md").read_text()
    shown = subprocess.run(
        [sys.executable, "-m", "exporter", command, "--help"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert all(flag.partition("=")[0] in shown for flag in flags)


def test_the_unit_does_not_repeat_a_start_with_a_wrong_configuration(tmp_path: Path) -> None:
    unit = (DEPLOY / "systemd/accel-exporter.service").read_text()
    (tmp_path / "config.yaml").write_text("intervalls: {}\n")
    code = main(["check-config", "--config", str(tmp_path / "config.yaml")])
    assert f"RestartPreventExitStatus={code}" in unit.splitlines()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    text = (DEPLOY / "systemd/accel-exporter.service").read_text()
    # It looks whether the program is there.
    unit = tmp_path / "accel-exporter.service"
    unit.write_text(text.replace("/opt/accel-exporter/bin/accel-exporter", shutil.which("true") or "/bin/true"))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False, timeout=60
    )
    assert [line for line in (done.stdout + done.stderr).splitlines() if "accel-exporter" in line] == []


# Slurm


def slurm(script: str, jobs: Path, **variables: str) -> None:
    """Run a prolog or epilog as slurmd does. It must never fail: that would drain the node."""
    environ = {"PATH": os.environ["PATH"], "ACCEL_EXPORTER_JOBS": str(jobs), **variables}
    done = subprocess.run(
        [str(DEPLOY / "slurm" / script)], env=environ, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr


def held(jobs: Path) -> dict[str, list[str]]:
    """Device → the jobs that hold it, as the agent reads the files."""
    config = read(
        Source(DEPLOY / "slurm/accel-exporter.yaml", {}), {"ACCEL_EXPORTER_ATTRIBUTION__SLURM__DETAILS": "none"}
    )
    heard = Heard()
    found: list[Claim] = []

    @in_loop
    async def look() -> None:
        source = SlurmSource(
            config.config.attribution.slurm,
            [str(jobs)],
            [],
            "/proc",
            changed=heard.changed,
            failed=heard.failed,
        )
        async with running(source.run()):
            await until(
                lambda: source.status.last_success or source.status.hint != "the directories have not been read yet"
            )
            assert source.status.up, source.status.hint
            found.extend(source.claims())

    look()
    devices: dict[str, list[str]] = {}
    for claim in found:
        devices.setdefault(claim.names["index"], []).append(claim.job_name)
    return devices


def test_a_job_holds_its_devices_from_prolog_to_epilog(tmp_path: Path) -> None:
    jobs = tmp_path / "run/jobs"
    slurm("prolog.sh", jobs, SLURM_JOB_ID="4711", SLURM_JOB_GPUS="0,2-4")
    assert held(jobs) == {"0": ["4711"], "2": ["4711"], "3": ["4711"], "4": ["4711"]}
    slurm("epilog.sh", jobs, SLURM_JOB_ID="4711")
    assert held(jobs) == {}


def test_jobs_that_share_a_device_are_all_there(tmp_path: Path) -> None:
    slurm("prolog.sh", tmp_path, SLURM_JOB_ID="1", SLURM_JOB_GPUS="0")
    for _ in range(2):
        # A requeued job's prolog runs again.
        slurm("prolog.sh", tmp_path, SLURM_JOB_ID="21", SLURM_JOB_GPUS="0")
    assert held(tmp_path) == {"0": ["1", "21"]}
    slurm("epilog.sh", tmp_path, SLURM_JOB_ID="1")
    assert held(tmp_path) == {"0": ["21"]}


@pytest.mark.parametrize(
    "variables",
    [
        {"CUDA_VISIBLE_DEVICES": "0"},
        {"SLURM_JOB_GPUS": "", "CUDA_VISIBLE_DEVICES": "0"},
        {"CUDA_VISIBLE_DEVICES": "", "SLURM_JOB_GPUS": "0"},
        {"ROCR_VISIBLE_DEVICES": "0"},
    ],
    ids=str,
)
def test_the_devices_are_found_in_whichever_variable_has_them(variables: dict[str, str], tmp_path: Path) -> None:
    slurm("prolog.sh", tmp_path, SLURM_JOB_ID="1", **variables)
    assert held(tmp_path) == {"0": ["1"]}


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"SLURM_JOB_ID": "1"},
        {"SLURM_JOB_GPUS": "0"},
        {"SLURM_JOB_ID": "1", "SLURM_JOB_GPUS": "NoDevFiles"},
        # Instances are numbered through the node: their numbers are no GPUs'.
        {"SLURM_JOB_ID": "1", "SLURM_JOB_GPUS": "3", "CUDA_VISIBLE_DEVICES": "MIG-a1b2"},
    ],
    ids=str,
)
def test_what_is_not_known_is_not_written(variables: dict[str, str], tmp_path: Path) -> None:
    slurm("prolog.sh", tmp_path, **variables)
    assert held(tmp_path) == {}


def test_a_place_that_cannot_be_written_to_drains_no_node(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for script in ("prolog.sh", "epilog.sh"):
        slurm(script, tmp_path / "file/jobs", SLURM_JOB_ID="1", SLURM_JOB_GPUS="0")


def test_the_configuration_of_a_compute_node_is_right(capsys: pytest.CaptureFixture[str]) -> None:
    path = DEPLOY / "slurm/accel-exporter.yaml"
    assert main(["check-config", "--config", str(path)]) == 0, capsys.readouterr().err
    # Where the scripts write.
    config = read(Source(path, {}), {}).config
    for script in SCRIPTS:
        assert f"${{ACCEL_EXPORTER_JOBS:-{config.attribution.slurm.job_directories[0]}}}" in script.read_text()


# Prometheus


def scrape_configs() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = yaml.safe_load((DEPLOY / "prometheus/kubernetes.yaml").read_text())["scrape_configs"]
    return found


@pytest.mark.prometheus
def test_prometheus_takes_the_scrape_configuration(tmp_path: Path) -> None:
    jobs = scrape_configs()
    for job in jobs:
        # Debian's Prometheus is built without Kubernetes.
        job["static_configs"] = [{"targets": ["node-7:9859"]}]
        assert job.pop("kubernetes_sd_configs") == [{"role": "pod"}]
    (tmp_path / "prometheus.yaml").write_text(yaml.safe_dump({"scrape_configs": jobs}))
    done = subprocess.run(
        ["promtool", "check", "config", str(tmp_path / "prometheus.yaml")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_scrape_configuration_gives_no_workload_label_to_the_common_job() -> None:
    common, raw = scrape_configs()
    targets = [{rule.get("target_label") for rule in job["relabel_configs"]} - {None} for job in (common, raw)]
    assert (common["honor_labels"], raw.get("honor_labels", False)) == (True, False)
    assert targets == [{"node", "instance"}, {"node", "instance", "namespace", "pod", "container"}]
    assert [job["params"] for job in (common, raw)] == [{"schema": ["common"]}, {"schema": ["raw"]}]
