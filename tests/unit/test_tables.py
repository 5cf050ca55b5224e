"""What the agent tells the bridge and the simulation of a vendor."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from collectors.tables import Feed, Tables
from exporter.catalogue import Catalogue, CatalogueError, load
from exporter.tables import simulation, tables

COLLECTOR = """
vendor = "acme"
title = "Acme accelerators"
kind = "npu"
[bridge]
exporter = "acme-exporter"
url = "http://127.0.0.1:9/metrics"
sentinels = [-1]
[bridge.labels]
uuid = ["uuid", "UUID"]
partition_id = ["slice"]
[bridge.labels.workload]
pod = ["pod"]
"""
SERIES = """
identity = ["card", "uuid"]
[[series]]
name = "acme_temp"
type = "gauge"
unit = "decicelsius"
help = "Temperature."
group = "fast"
level = "part"
labels = ["sensor"]
aliases = ["acme_temperature"]
absent = [-2740]
feeds = [{ metric = "accel_temperature_celsius", labels = { sensor = "$sensor" } }]
[[series]]
name = "acme_state"
type = "gauge"
help = "State."
feeds = [
  { metric = "accel_ecc_enabled", equals = [1, 3] },
  { metric = "accel_throttle_active", labels = { reason = "thermal" }, bits = 6 },
]
"""
FAULTS = """
[[fault]]
code = "acme:7"
name = "Burnt"
class = "thermal"
severity = "fatal"
"""


@pytest.fixture
def catalogue(tmp_path: Path) -> Catalogue:
    for name, text in (("collector.toml", COLLECTOR), ("series.toml", SERIES), ("faults.toml", FAULTS)):
        (tmp_path / name).write_text(text)
    return load(tmp_path, "collectors.acme")


def test_a_worker_gets_the_tables_as_they_are(catalogue: Catalogue) -> None:
    sent = msgspec.msgpack.encode(tables(catalogue))
    found = msgspec.convert(msgspec.msgpack.decode(sent), Tables)
    assert (found.vendor, found.title, found.kind, found.identity) == (
        "acme",
        "Acme accelerators",
        "npu",
        ("card", "uuid"),
    )
    temperature, state = found.series
    assert (temperature.name, temperature.type, temperature.group, temperature.level) == (
        "acme_temp",
        "gauge",
        "fast",
        "part",
    )
    assert (temperature.labels, temperature.aliases, temperature.absent) == (
        ("sensor",),
        ("acme_temperature",),
        (-2740,),
    )
    assert (temperature.unit, temperature.base, temperature.scale) == ("decicelsius", "celsius", 0.1)
    assert temperature.feeds == (Feed("accel_temperature_celsius", {"sensor": "$sensor"}),)
    assert state.feeds == (
        Feed("accel_ecc_enabled", equals=(1, 3)),
        Feed("accel_throttle_active", {"reason": "thermal"}, bits=6),
    )
    [fault] = found.faults
    assert (fault.code, fault.name, fault.fault_class, fault.severity) == ("acme:7", "Burnt", "thermal", "fatal")
    assert found.bridge is not None
    assert (found.bridge.exporter, found.bridge.sentinels) == ("acme-exporter", (-1,))
    assert found.bridge.labels.uuid == ("uuid", "UUID")
    assert found.bridge.labels.workload == {"pod": ("pod",)}


def test_a_vendor_without_an_exporter_has_no_bridge(catalogue: Catalogue) -> None:
    bare = msgspec.structs.replace(catalogue, collector=msgspec.structs.replace(catalogue.collector, bridge=None))
    assert msgspec.convert(tables(bare), Tables).bridge is None


def test_a_folder_need_not_say_how_it_is_simulated(tmp_path: Path) -> None:
    assert simulation(tmp_path) == {}
    (tmp_path / "simulation.toml").write_text("[device]\nlinks = 3\n")
    assert simulation(tmp_path) == {"device": {"links": 3}}
    (tmp_path / "simulation.toml").write_text("[device\n")
    with pytest.raises(CatalogueError, match=r"simulation\.toml"):
        simulation(tmp_path)
