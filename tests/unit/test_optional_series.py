"""Raw series behind an option, and feeds that are cut at the whole."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from collectors.base import Device
from exporter.assemble import assemble
from exporter.catalogue import CatalogueError, load
from exporter.config import CollectorConfig, Config
from exporter.model import Key
from exporter.normalize import make_plan
from exporter.registry import Found

COLLECTOR = 'vendor = "acme"\ntitle = "Acme"\n[options.extra]\ntype = "bool"\ndefault = false\nhelp = "More names."\n'
SERIES = """
identity = ["UUID"]
series = [
  { name = "load", type = "gauge", unit = "percent", help = "Load.", native = "x", default = true, feeds = [
    { metric = "accel_utilization_ratio", at_most = 1 },
  ] },
  { name = "alias", type = "gauge", help = "Alias.", native = "x", default = true, option = "extra" },
]
"""


def folder(tmp_path: Path, series: str = SERIES) -> Path:
    (tmp_path / "collector.toml").write_text(COLLECTOR)
    (tmp_path / "series.toml").write_text(series)
    return tmp_path


def exposed(place: Path, raw: Any, options: Mapping[str, Any]) -> frozenset[str]:
    config = Config(collectors={"acme": CollectorConfig(raw=raw, options=options)})
    catalogue = load(place, "acme")
    [member] = assemble(config, {"acme": (Found("acme", "acme", place), catalogue)})
    return member.view.raw


@pytest.mark.parametrize("raw", ["default", "all", ["*"], ["load", "alias"]])
def test_a_series_behind_an_option_is_exposed_only_with_it(tmp_path: Path, raw: Any) -> None:
    place = folder(tmp_path)
    assert exposed(place, raw, {}) == {"load"}
    assert exposed(place, raw, {"extra": True}) == {"load", "alias"}


def test_the_option_alone_exposes_nothing_that_was_not_asked_for(tmp_path: Path) -> None:
    assert exposed(folder(tmp_path), ["load"], {"extra": True}) == {"load"}


def test_an_option_that_there_is_not_is_an_error_of_the_table(tmp_path: Path) -> None:
    place = folder(tmp_path, SERIES.replace('"extra"', '"extras"'))
    with pytest.raises(CatalogueError, match=r"alias.*'extras'"):
        load(place, "acme")


@pytest.mark.parametrize(("percent", "ratio"), [(0, 0), (57, 0.57), (100, 1), (250, 1)])
def test_a_feed_can_be_cut_at_the_whole(tmp_path: Path, percent: int, ratio: float) -> None:
    catalogue = load(folder(tmp_path), "acme")
    plan = make_plan(catalogue, (Device(uuid="a", index="0"),), {"normal": (Key("load", 0),)})
    assert [output.evaluate((percent,)) for output in plan.outputs] == [ratio]
