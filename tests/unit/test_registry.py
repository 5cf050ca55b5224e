"""Collectors of our own and of other packages."""

from __future__ import annotations

import shutil
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from exporter import registry
from exporter.catalogue import CatalogueError
from exporter.registry import survey
from tests.acme import FOLDER


def offer(monkeypatch: pytest.MonkeyPatch, *entries: tuple[str, str]) -> None:
    points = [EntryPoint(name, value, registry.ENTRY_POINTS) for name, value in entries]
    monkeypatch.setattr(registry, "entry_points", lambda group: points if group == registry.ENTRY_POINTS else [])


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    for name in ("acme_accel", "acme_broken"):
        shutil.copytree(FOLDER, tmp_path / name)
    return tmp_path


def test_a_package_brings_a_collector_without_being_imported(packages: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, ("acme", "acme_accel"))
    found = survey()
    item, catalogue = found.collectors["acme"]
    assert (item.module, item.folder, catalogue.collector.vendor) == ("acme_accel", packages / "acme_accel", "acme")
    assert found.broken == {}
    assert "acme_accel" not in sys.modules


def test_a_package_with_a_wrong_table_costs_nobody_else_anything(
    packages: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (packages / "acme_broken/series.toml").write_text('identity = ["slot"]\n[[series]]\nname = "x"\n')
    offer(monkeypatch, ("acme", "acme_accel"), ("bad", "acme_broken"), ("gone", "no_such_package"))
    found = survey()
    assert "acme" in found.collectors
    assert set(found.broken) == {"bad", "gone"}
    assert "series.toml" in found.broken["bad"]
    assert "not installed" in found.broken["gone"]


def test_a_package_cannot_take_the_name_of_a_built_in(packages: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = survey().collectors
    name = next(iter(before))
    offer(monkeypatch, (name, "acme_accel"))
    found = survey()
    assert found.collectors[name][0] == before[name][0]
    assert "another name" in found.broken[name]


def test_a_wrong_table_of_our_own_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(FOLDER, tmp_path / "acme")
    (tmp_path / "acme/series.toml").write_text("identity = 3\n")
    monkeypatch.setattr(registry, "_built_in", lambda: [registry.Found("acme", "collectors.acme", tmp_path / "acme")])
    with pytest.raises(CatalogueError, match=r"series\.toml"):
        survey()
