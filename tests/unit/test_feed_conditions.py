"""A feed that holds for some values of a label only, and what a simulated model counts or has not."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest

from collectors.tables import Tables
from exporter.catalogue import Catalogue, CatalogueError, load
from exporter.mapping import how
from exporter.normalize import make_plan
from exporter.tables import tables
from tests.acme import FOLDER, device, sample
from tests.simulated_rig import HANDMADE, Rig

CLOCKS = """
[[series]]
name = "acme_clock"
type = "gauge"
unit = "megahertz"
help = "Clock."
native = "clock()"
labels = ["domain"]
feeds = [
  { metric = "accel_clock_hertz", labels = { domain = "core" }, where = { domain = ["shader", "sm"] } },
  { metric = "accel_clock_hertz", labels = { domain = "memory" }, where = { DOMAIN = ["dram"] } },
]
"""


def folder(tmp_path: Path, text: str) -> Path:
    copy = tmp_path / "acme"
    shutil.copytree(FOLDER, copy)
    with (copy / "series.toml").open("a") as file:
        file.write(text)
    return copy


@pytest.fixture
def catalogue(tmp_path: Path) -> Catalogue:
    return load(folder(tmp_path, CLOCKS.replace("DOMAIN", "domain")), "acme")


def test_a_feed_takes_the_series_whose_label_fits(catalogue: Catalogue) -> None:
    clocks = {"shader": 1980, "dram": 2619, "bus": 7}
    rows = sample([("acme_clock", 0, value, (("domain", name),)) for name, value in clocks.items()])
    plan = make_plan(catalogue, [device("0")], {"normal": rows.layout})
    found = {output.id.labels: output.evaluate(rows.values) for output in plan.outputs}
    assert found == {(("domain", "core"),): 1_980_000_000, (("domain", "memory"),): 2_619_000_000}


def test_a_series_without_the_label_feeds_nothing(catalogue: Catalogue) -> None:
    rows = sample([("acme_clock", 0, 1980)])
    assert make_plan(catalogue, [device("0")], {"normal": rows.layout}).outputs == ()


def test_the_condition_is_told_to_readers_and_to_workers(catalogue: Catalogue) -> None:
    assert [how(feed) for feed in catalogue.series["acme_clock"].feeds] == [
        "where domain is shader or sm",
        "where domain is dram",
    ]
    [series] = [one for one in msgspec.convert(tables(catalogue), Tables).series if one.name == "acme_clock"]
    assert [dict(feed.where) for feed in series.feeds] == [{"domain": ("shader", "sm")}, {"domain": ("dram",)}]


def test_a_condition_on_a_label_that_the_series_has_not_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(CatalogueError, match="'DOMAIN'"):
        load(folder(tmp_path, CLOCKS), "acme")


@pytest.mark.parametrize(("parts", "units"), [(0, 3), (1, 6)])
def test_a_simulated_model_counts_its_devices_and_lacks_what_it_has_not(parts: int, units: int) -> None:
    values = {"chassis": {"quantity": "devices"}, "link_up": {"quantity": "none"}}
    rig = Rig({**msgspec.to_builtins(HANDMADE), "simulation": {"values": values}}, devices=3, parts=parts, links="each")
    found = {name: value for (name, _, _), value in rig.at(0)[0].items()}
    assert found["chassis"] == units
    assert "link_up" not in found
