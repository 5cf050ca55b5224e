"""What the agent remembers of devices: bounded, and right when clocks jump and sensors lie."""

from __future__ import annotations

import msgspec
import pytest

from collectors.base import Fault
from exporter import derived, faults
from exporter.allocated import AllocatedTime
from exporter.energy import EnergyMeter
from exporter.model import Workload
from exporter.publisher import CollectorStatus
from tests.acme import catalogue, device, sample, series, snapshot
from tests.unit.test_publisher import Bench, of, one

OWNER = ("acme", "ACME-0", "")


def faulty(bench: Bench, number: int) -> None:
    """One publication with a device that was never there before, and a fault of it."""
    index = f"{number}"
    found = snapshot([device(index)], {"normal": sample([("acme_power_mw", 0, 5)], at=100.0 + number)}, number)
    event = Fault(0, "acme:1", 1.0)
    bench.book.record(catalogue(), found.devices, [event], now=2.0, monotonic=100.0)
    key = (f"ACME-{number}", "")
    bench.publish(found, at=100.0 + number, allocation={key: (Workload(namespace="n", pod="p"),)})


def test_what_is_remembered_of_devices_that_come_and_go_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(derived, "MAX_GONE", 20)
    bench = Bench()
    for number in range(30):
        faulty(bench, number)
    book = bench.book
    owners = [("acme", f"ACME-{number}", "") for number in range(30)]
    # The last one is there; the twenty before it have gone.
    assert [book.faults.total(owner) for owner in owners] == [0] * 9 + [1] * 21
    assert [book.last_sample("acme", owner) is None for owner in owners] == [True] * 9 + [False] * 21
    sizes = (book.energy._meters, book.allocated._spans, book._last_sample, book._seen, book.faults._devices)
    assert {len(each) for each in sizes} == {21}


def test_devices_that_are_there_are_never_forgotten_however_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(derived, "MAX_GONE", 20)
    bench = Bench()
    many = [device(f"{number}") for number in range(60)]
    bench.book.record(catalogue(), many, [Fault(place, "acme:1", 1.0) for place in range(60)], now=2.0, monotonic=100.0)
    for at in (200.0, 201.0):
        rows = [("acme_power_mw", place, 5) for place in range(60)]
        found = bench.publish(snapshot(many, {"normal": sample(rows, at=at)}), at=at)
    assert list(of(found, "accel_faults_total").values()) == [1] * 60


def test_a_device_that_comes_back_soon_keeps_its_counts() -> None:
    bench = Bench()
    faulty(bench, 0)
    for number in range(1, 100):
        faulty(bench, number)
    found = bench.publish(one(("acme_power_mw", 0, 5), at=300.0), at=300.0)
    assert list(of(found, "accel_faults_total").values()) == [1]


def test_labels_that_are_never_the_same_again_are_forgotten() -> None:
    bench = Bench(links="each")
    for number in range(30):
        rows = [("acme_link_bytes", 0, 1, (("link", f"{number}-{place}"),)) for place in range(1000)]
        bench.publish(one(*rows, at=100.0 + number), at=100.0 + number)
    shape = bench.view._shape
    assert shape is not None
    assert len(shape.plan.sources) <= 12_000


def dated(bench: Bench, metric: str, *, unix: float, monotonic: float) -> list[float]:
    """The times that a publication shows; its sample was taken just now, by both clocks."""
    found = one(("acme_load_percent", 0, 5), at=monotonic)
    groups = {"normal": msgspec.structs.replace(found.groups["normal"], taken_at=unix)}
    status = CollectorStatus(name="acme", view=bench.view, snapshot=msgspec.structs.replace(found, groups=groups))
    publication = bench.publisher.publish([status], None, now=unix, monotonic=monotonic)
    return [float(value) for value in of(series(publication), metric).values()]


def test_times_of_samples_follow_a_clock_that_is_put_back() -> None:
    bench, metric = Bench(), "accel_sample_timestamp_seconds"
    assert dated(bench, metric, unix=9_000_000.0, monotonic=100.0) == [9_000_000.0]
    assert dated(bench, metric, unix=1_000_005.0, monotonic=105.0) == [1_000_005.0]


def test_times_of_faults_follow_a_clock_that_is_put_back() -> None:
    bench, metric = Bench(), "accel_fault_last_timestamp_seconds"
    bench.book.record(catalogue(), [device("0")], [Fault(0, "acme:1", 9e6)], now=9_000_000.0, monotonic=100.0)
    assert dated(bench, metric, unix=9_000_010.0, monotonic=110.0) == [9_000_000.0]
    assert dated(bench, metric, unix=1_000_030.0, monotonic=130.0) == [1_000_000.0]
    assert dated(bench, metric, unix=1_000_040.0, monotonic=140.0) == [1_000_000.0]


@pytest.mark.parametrize("timestamp", [float("nan"), float("inf"), -1e300, 0.0])
def test_a_fault_with_a_time_that_is_none_is_dated_now(timestamp: float) -> None:
    bench = Bench()
    bench.book.record(catalogue(), [device("0")], [Fault(0, "acme:1", timestamp)], now=1_000_100.0, monotonic=100.0)
    times = of(bench.publish(one(("acme_load_percent", 0, 50))), "accel_fault_last_timestamp_seconds")
    assert list(times.values()) == [1_000_100.0]


def test_a_code_without_end_is_counted_as_other() -> None:
    bench = Bench()
    bench.book.record(catalogue(), [device("0")], [Fault(0, "x" * 1_000_000, 1.0)], now=2.0, monotonic=100.0)
    [text] = of(bench.publish(one(("acme_load_percent", 0, 50))), "accel_fault_code_total")
    assert 'code="other"' in text


def test_codes_of_all_devices_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faults, "MAX_IN_ALL", 100)
    bench, many = Bench(), [device(f"{place}") for place in range(20)]

    def record(first: int) -> dict[str, float]:
        events = [Fault(place, f"acme:{first + code}", 1.0) for place in range(20) for code in range(50)]
        bench.book.record(catalogue(), many, events, now=2.0, monotonic=100.0)
        rows = [("acme_power_mw", place, 5) for place in range(20)]
        found = bench.publish(snapshot(many, {"normal": sample(rows)}))
        assert sum(of(found, "accel_faults_total").values()) == 20 * 50
        return {text: float(value) for text, value in of(found, "accel_fault_code_total").items()}

    # A device beyond the bound has one code: other.
    assert len(record(1000)) == 100 + 18
    for found in many:
        bench.book.faults.forget(("acme", found.uuid, ""))
    assert len(record(2000)) == 100 + 18


@pytest.mark.parametrize("nonsense", [-5.0, 1e300, float("inf"), float("nan")])
def test_power_that_cannot_be_leaves_a_gap_in_energy(nonsense: float) -> None:
    meter = EnergyMeter()
    sums = [meter.add(OWNER, watts, at) for at, watts in enumerate((100.0, 100.0, nonsense, 100.0, 100.0))]
    assert sums == [0.0, 100.0, 100.0, 100.0, 200.0]


def test_energy_is_counted_however_rarely_power_is_read() -> None:
    meter = EnergyMeter()
    meter.add(OWNER, 100.0, 0.0, max_age=180.0)
    assert meter.add(OWNER, 100.0, 60.1, max_age=180.0) == pytest.approx(6010.0)


def test_allocated_time_is_counted_however_rarely_publications_are_made() -> None:
    time = AllocatedTime()
    time.add(OWNER, held=True, monotonic=0.0, max_age=180.0)
    assert time.add(OWNER, held=True, monotonic=60.1, max_age=180.0) == pytest.approx(60.1)


def test_a_device_of_rare_samples_is_counted_through_a_publication() -> None:
    bench = Bench(max_age={"fast": 180.0, "normal": 180.0, "slow": 180.0})
    held = {("ACME-0", ""): (Workload(namespace="n", pod="p"),)}
    for at in (100.0, 160.1):
        found = bench.publish(one(("acme_power_mw", 0, 100_000), at=at), at=at, allocation=held)
    assert list(of(found, "accel_energy_joules_total").values()) == pytest.approx([6010.0])
    assert list(of(found, "accel_allocated_seconds_total").values()) == pytest.approx([60.1])
