"""One collector whose series cannot be made, beside another."""

from __future__ import annotations

import logging

import msgspec
import pytest

from exporter.derived import Book
from exporter.publisher import CollectorStatus, Publisher
from exporter.view import View, ViewOptions
from tests.acme import MAX_AGE, catalogue, device, sample, series, snapshot


def status(name: str, *, fault: str = "acme:{value}") -> CollectorStatus:
    """A collector that reads a vendor's exporter, whose table writes fault codes like this."""
    tables = catalogue()
    broken = msgspec.structs.replace(tables.series["acme_last_fault"], fault=fault)
    tables = msgspec.structs.replace(
        tables,
        series={**tables.series, "acme_last_fault": broken},
        collector=msgspec.structs.replace(tables.collector, vendor=name),
    )
    return CollectorStatus(
        name=name, view=View(tables, ViewOptions(raw=frozenset(), max_age=MAX_AGE)), snapshot=None, present=1
    )


def told(found: CollectorStatus, code: int, at: float) -> CollectorStatus:
    rows = [("acme_last_fault", 0, code), ("acme_power_mw", 0, 5000)]
    shown = snapshot([device("0")], {"normal": sample(rows, at=at)}, name=found.name)
    return msgspec.structs.replace(found, snapshot=msgspec.structs.replace(shown, bridged=True, vendor=found.name))


def test_a_broken_table_costs_no_other_vendor_its_series(caplog: pytest.LogCaptureFixture) -> None:
    publisher = Publisher(Book(600.0), lambda reason, count: None)
    pair = (status("bad", fault="acme:{nonsense}"), status("good"))
    with caplog.at_level(logging.ERROR):
        for at, code in ((100.0, 1), (101.0, 2), (102.0, 3)):
            found = series(
                publisher.publish([told(each, code, at) for each in pair], None, now=1_000_000.0 + at, monotonic=at)
            )
    assert [text.partition(",")[0] for text in found if text.startswith("accel_power_watts{")] == [
        'accel_power_watts{vendor="good"'
    ]
    assert not any(text.startswith("accel_info{") and '"bad"' in text for text in found)
    assert publisher.broken.keys() == {"bad"}
    assert "nonsense" in publisher.broken["bad"]
    assert len(caplog.records) == 1


def test_what_works_again_is_shown_again() -> None:
    publisher = Publisher(Book(600.0), lambda reason, count: None)
    bad = status("bad", fault="acme:{nonsense}")
    for at, code in ((100.0, 1), (101.0, 2), (102.0, 2)):
        publication = publisher.publish([told(bad, code, at)], None, now=1_000_000.0 + at, monotonic=at)
    assert publisher.broken == {}
    assert any(text.startswith("accel_power_watts{") for text in series(publication))
