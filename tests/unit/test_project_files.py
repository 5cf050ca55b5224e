"""The files that build and document the project: Makefile, scripts and pages agree with each other."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("collectors/**/*.md")])
SCRIPTS = sorted([*ROOT.glob("scripts/*.sh"), ROOT / ".ci/run"])


def targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):.*## \S", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))


def test_make_lists_its_targets() -> None:
    done = subprocess.run(
        ["make", "--no-print-directory"], cwd=ROOT, capture_output=True, text=True, check=True, timeout=20
    )
    listed = {line.split()[1] for line in done.stdout.splitlines()}
    assert listed == targets()
    assert {"run", "test", "lint", "format", "bench", "docs", "lock", "image", "clean", "help"} <= listed


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_make_target_that_a_page_names_exists(page: Path) -> None:
    named = re.findall(r"(?:^ {4}|`)make(?: +(?:[A-Z]+=\S+ +)*([a-z-]+))", page.read_text(), flags=re.MULTILINE)
    assert set(named) <= targets()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text())
    assert [link for link in links if "://" not in link and not (page.parent / link).exists()] == []


def test_every_page_is_listed() -> None:
    index = ROOT / "docs/index.md"
    linked = {(index.parent / link).resolve() for link in re.findall(r"\]\(([^)#\s]+)", index.read_text())}
    pages = {page.resolve() for page in (ROOT / "docs").rglob("*.md") if page != index}
    assert pages - linked == set()


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: str(script.relative_to(ROOT)))
def test_a_script_can_be_run_and_stops_at_the_first_failure(script: Path) -> None:
    assert os.access(script, os.X_OK)
    assert script.read_text().startswith("#!/usr/bin/env bash\n")
    assert "\nset -euo pipefail\n" in script.read_text()
    subprocess.run(["bash", "-n", str(script)], check=True, timeout=20)


def run_program(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "exporter", *arguments],
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "300"},
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )


@pytest.fixture(scope="module")
def flags() -> dict[str, set[str]]:
    """Command → its flags, as --help tells them."""
    commands = re.findall(r"^ {4}([a-z][a-z-]+)(?: |$)", run_program("--help").stdout, flags=re.MULTILINE)
    found = {}
    for command in commands:
        shown = run_program(command, "--help")
        assert shown.returncode == 0, shown.stderr
        found[command] = set(re.findall(r"(?<![\w-])--[a-z-]+", shown.stdout))
    return found


def test_the_readme_names_every_command(flags: dict[str, set[str]]) -> None:
    named = re.findall(r"^\| `accel-exporter ([a-z-]+)`", (ROOT / "README.md").read_text(), flags=re.MULTILINE)
    assert sorted(named) == sorted(flags)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_and_flag_that_a_page_names_exists(page: Path, flags: dict[str, set[str]]) -> None:
    unknown = []
    for line in page.read_text().splitlines():
        match = re.search(r"`?accel-exporter ([a-z]+(?:-[a-z]+)*)\b(.*)", line)
        if match is None or not re.search(r"(^ {4}|`)accel-exporter ", line):
            continue
        command, rest = match.groups()
        if command not in flags:
            unknown.append(command)
        else:
            unknown += sorted(set(re.findall(r"(?<![\w-])--[a-z-]+", rest)) - flags[command])
    assert unknown == []


def yaml_blocks() -> list[str]:
    return re.findall(r"^```yaml\n(.*?)^```", (ROOT / "README.md").read_text(), flags=re.MULTILINE | re.DOTALL)


def test_the_configuration_in_the_readme_is_right(tmp_path: Path) -> None:
    (block,) = [block for block in yaml_blocks() if "scrape_configs" not in block]
    (tmp_path / "config.yaml").write_text(block)
    done = run_program("check-config", "--config", str(tmp_path / "config.yaml"))
    assert done.returncode == 0, done.stderr


@pytest.mark.prometheus
def test_prometheus_accepts_the_scrape_configuration_in_the_readme(tmp_path: Path) -> None:
    (block,) = [block for block in yaml_blocks() if "scrape_configs" in block]
    (tmp_path / "prometheus.yml").write_text(block)
    done = subprocess.run(
        ["promtool", "check", "config", str(tmp_path / "prometheus.yml")],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert done.returncode == 0, done.stdout + done.stderr
