"""The simulation of every vendor whose tables are in this repository: whole, in range, and fast."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import collectors
from exporter.catalogue import Catalogue, load
from exporter.tables import simulation, tables
from exporter.units import UNITS
from tests.simulated_rig import GROUPS, Key, Rig

FOLDERS = sorted(path.parent for path in Path(collectors.__path__[0]).glob("*/series.toml"))


@pytest.fixture(scope="module", params=FOLDERS, ids=lambda folder: folder.name)
def catalogue(request: pytest.FixtureRequest) -> Catalogue:
    return load(request.param, f"collectors.{request.param.name}")


def modelled(catalogue: Catalogue) -> set[str]:
    """The series that the vendor's simulated model has."""
    values = simulation(Path(collectors.__path__[0]) / catalogue.name).get("values", {})
    assert isinstance(values, dict)
    return set(catalogue.series) - {name for name, fixed in values.items() if fixed.get("quantity") == "none"}


def vendor(catalogue: Catalogue, **options: Any) -> Rig:
    folder = Path(collectors.__path__[0]) / catalogue.name
    # As a worker gets them: through MessagePack.
    data = msgspec.msgpack.decode(msgspec.msgpack.encode({**tables(catalogue), "simulation": simulation(folder)}))
    return Rig(data, **options)


def test_every_series_of_a_vendor_has_a_finite_value_in_the_range_of_its_unit(catalogue: Catalogue) -> None:
    rig = vendor(catalogue, devices=4, parts=1, links="each")
    seen: set[str] = set()
    for now in (0, 45, 333, 505):
        for (name, _, labels), value in rig.at(now)[0].items():
            series = catalogue.series[name]
            seen.add(name)
            assert math.isfinite(value), name
            assert value not in series.absent
            assert set(dict(labels)) <= set(series.labels)
            base, scale = UNITS[series.unit]
            if base == "ratio":
                assert 0 <= value * scale <= 1.0001, name
            if base == "celsius":
                assert 0 <= value * scale < 120, name
            assert value >= 0 or base == "celsius", name
    assert seen == modelled(catalogue)


def test_counters_of_a_vendor_never_fall(catalogue: Catalogue) -> None:
    rig = vendor(catalogue, devices=4, cycle_seconds=300)
    counters = {
        series.name
        for series in catalogue.series.values()
        if (series.type == "counter" or series.cumulative)
        and not UNITS[series.unit][0].endswith("_per_second")
        and series.name in modelled(catalogue)
    }
    last: dict[Key, float] = {}
    for now in range(0, 700, 5):
        for key, value in rig.at(now)[0].items():
            if key[0] in counters:
                assert value >= last.get(key, 0), key
                last[key] = value
    assert {name for name, _, _ in last} == counters


def test_memory_of_a_vendor_adds_up_in_its_own_units(catalogue: Catalogue) -> None:
    rig = vendor(catalogue, devices=4, parts=1)
    feeds: dict[str, list[str]] = {}
    for series in catalogue.series.values():
        for feed in series.feeds:
            if feed.labels.get("memory") == "device":
                feeds.setdefault(feed.metric, []).append(series.name)
    found, _ = rig.at(200)

    def amount(what: str, position: int, pick: Callable[..., float]) -> float:
        values = [
            found[name, position, ()] * UNITS[catalogue.series[name].unit][1]
            for name in feeds.get(f"accel_memory_{what}_bytes", [])
            if (name, position, ()) in found
        ]
        return pick(values, default=0.0)

    for position in range(len(rig.devices)):
        total = amount("total", position, max)
        if total:
            spoken_for = sum(amount(what, position, min) for what in ("used", "free", "reserved"))
            assert 0 < spoken_for <= total


def test_benchmark_values_are_nearly_all_different(catalogue: Catalogue) -> None:
    rig = vendor(catalogue, devices=16, distinct=True)
    found, _ = rig.at(100)
    switched = {
        series.name
        for series in catalogue.series.values()
        if any(feed.bits is not None or feed.equals is not None for feed in series.feeds)
    }
    values = [value for (name, _, _), value in found.items() if name not in switched]
    assert len(set(values)) > 0.9 * len(values)


def test_five_thousand_readings_take_less_than_fifty_milliseconds(catalogue: Catalogue) -> None:
    rig = vendor(catalogue, devices=8)
    per_device = len(rig.at(0)[0]) / 8
    rig = vendor(catalogue, devices=min(4000, math.ceil(5000 / per_device)))
    rig.at(0)
    best = math.inf
    for step in range(1, 8):
        rig.now = 5.0 * step
        started = time.perf_counter()
        count = sum(len(rig.collector.sample(group).readings) for group in GROUPS)
        best = min(best, (time.perf_counter() - started) * 5000 / count)
    assert best < 0.05
