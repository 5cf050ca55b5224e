"""What a scrape sees of a snapshot."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from collectors.base import Device, Fault
from exporter.derived import Book
from exporter.model import Attributed, Number, Snapshot, Workload
from exporter.publisher import CollectorStatus, Publisher
from exporter.view import Header, View, ViewOptions
from tests.acme import MAX_AGE, Row, catalogue, device, sample, series, snapshot

RAW = frozenset({"acme_load_percent", "acme_power_mw", "acme_temperature", "acme_node_driver_restarts"})


class Bench:
    """A publisher with one collector."""

    def __init__(self, **options: Any) -> None:
        self.dropped: dict[str, int] = {}
        self.book = Book(fault_hold=600.0)
        self.publisher = Publisher(self.book, self._drop)
        self.view = View(catalogue(), ViewOptions(**{"raw": RAW, "max_age": MAX_AGE, **options}))

    def _drop(self, reason: str, count: int) -> None:
        self.dropped[reason] = self.dropped.get(reason, 0) + count

    def publish(self, found: Snapshot | None, at: float = 100.0, **more: Any) -> dict[str, Number]:
        status = CollectorStatus(
            name="acme",
            view=self.view,
            snapshot=found,
            present=more.pop("present", None),
            expected=more.pop("expected", None),
        )
        publication = self.publisher.publish(
            [status],
            Attributed(more.pop("allocation")) if "allocation" in more else None,
            now=1_000_000.0 + at,
            monotonic=at,
            **more,
        )
        return series(publication)


def of(found: Mapping[str, Number], metric: str) -> dict[str, Number]:
    """Series of one metric, by the text of their labels."""
    return {
        text.partition("{")[2].rstrip("}"): value for text, value in found.items() if text.partition("{")[0] == metric
    }


def one(*rows: Row, devices: list[Device] | None = None, at: float = 100.0, lost: tuple[int, ...] = ()) -> Snapshot:
    return snapshot(devices or [device("0")], {"normal": sample(rows, at, lost)})


def test_a_raw_series_keeps_the_vendors_name_labels_and_number() -> None:
    found = Bench().publish(one(("acme_power_mw", 0, 310_500), ("acme_node_driver_restarts", -1, 2)))
    assert found['acme_power_mw{slot="0",UUID="ACME-0"}'] == 310_500
    assert found["acme_node_driver_restarts"] == 2


def test_a_raw_series_that_is_not_chosen_feeds_the_common_schema_all_the_same() -> None:
    found = Bench(raw=frozenset()).publish(one(("acme_power_mw", 0, 310_500)))
    assert not any(text.startswith("acme_") for text in found)
    assert (
        found[
            'accel_power_watts{vendor="acme",device="0",uuid="ACME-0",namespace="",pod="",container="",job_name="",tenant=""}'
        ]
        == 310.5
    )


def test_a_raw_series_can_have_another_spelling_and_type() -> None:
    bench = Bench(headers={"acme_power_mw": Header("acme_milliwatts", "counter", "as spelled elsewhere")})
    assert bench.publish(one(("acme_power_mw", 0, 5)))['acme_milliwatts{slot="0",UUID="ACME-0"}'] == 5


def test_without_the_common_schema_only_raw_series_and_counts_are_left() -> None:
    found = Bench(common=False).publish(one(("acme_power_mw", 0, 5)))
    assert {text.partition("{")[0] for text in found} == {
        "acme_power_mw",
        "accel_devices_reporting",
        "accel_devices_expected",
    }


def test_the_node_is_a_label_where_it_is_asked_for() -> None:
    found = of(Bench(node="node-a").publish(one(("acme_power_mw", 0, 5000))), "accel_power_watts")
    assert list(found) == [
        'vendor="acme",device="0",uuid="ACME-0",node="node-a",namespace="",pod="",container="",job_name="",tenant=""'
    ]


def test_an_exclusive_device_carries_its_workload_and_a_shared_one_empty_labels() -> None:
    alone = Workload(namespace="team-a", pod="train-0", container="main", job_name="train", tenant="a")
    devices = [device("0"), device("1")]
    allocation = {("ACME-0", ""): [alone], ("ACME-1", ""): [alone, Workload(namespace="team-b", pod="other")]}
    found = of(
        Bench().publish(
            one(("acme_power_mw", 0, 1000), ("acme_power_mw", 1, 2000), devices=devices), allocation=allocation
        ),
        "accel_power_watts",
    )
    workload = 'namespace="team-a",pod="train-0",container="main",job_name="train",tenant="a"'
    assert found == {
        f'vendor="acme",device="0",uuid="ACME-0",{workload}': 1,
        'vendor="acme",device="1",uuid="ACME-1",namespace="",pod="",container="",job_name="",tenant=""': 2,
    }


def test_a_stale_group_vanishes_and_its_age_stays_visible() -> None:
    bench = Bench()
    found = snapshot(
        [device("0")],
        {
            "normal": sample([("acme_power_mw", 0, 5)], at=100.0),
            "slow": sample([("acme_memory_size_mib", 0, 8)], at=100.0),
        },
    )
    assert of(bench.publish(found, at=115.0), "accel_power_watts")
    stale = bench.publish(found, at=115.1)
    assert not of(stale, "accel_power_watts")
    assert not of(stale, "acme_power_mw")
    assert of(stale, "accel_capacity_memory_bytes")
    assert of(stale, "accel_sample_timestamp_seconds") == {
        'vendor="acme",device="0",uuid="ACME-0",collector="acme"': 1_000_100.0
    }


def health(found: Mapping[str, Number]) -> dict[str, str]:
    states = of(found, "accel_health_state")
    split = {text: dict(part.split("=") for part in text.split(",")) for text in states}
    by_device: dict[str, list[str]] = {}
    for text, value in states.items():
        if value == 1:
            by_device.setdefault(split[text]["device"].strip('"'), []).append(split[text]["state"].strip('"'))
    assert all(len(each) == 1 for each in by_device.values()), "exactly one state is 1"
    assert len(states) == 4 * len(by_device)
    return {index: each[0] for index, each in by_device.items()}


def test_of_what_may_have_a_workload_nothing_is_said() -> None:
    bench, devices = Bench(), [device("0"), device("1")]
    held = {("ACME-0", ""): (Workload(namespace="n", pod="p"),)}
    found = series(
        bench.publisher.publish(
            [CollectorStatus(name="acme", view=bench.view, snapshot=one(devices=devices))],
            Attributed(held, unsure=frozenset({"acme"})),
            now=1_000_100.0,
            monotonic=100.0,
        )
    )
    assert of(found, "accel_allocated") == {'vendor="acme",device="0",uuid="ACME-0"': 1}


def test_of_a_lost_device_only_that_is_shown_which_others_tell() -> None:
    bench = Bench(raw=RAW | {"acme_fabric"})
    found = bench.publish(one(("acme_power_mw", 0, 5), ("acme_fabric", 0, 1), lost=(0,)))
    assert found['acme_fabric{slot="0",UUID="ACME-0"}'] == 1
    assert not of(found, "acme_power_mw")
    assert not of(found, "accel_fabric_state")


def test_health_follows_the_rules_the_lost_and_the_silent() -> None:
    devices = [device("0"), device("1"), device("2"), device("3")]
    found = snapshot(
        devices,
        {
            "normal": sample([("acme_load_percent", 0, 50), ("acme_load_percent", 1, 151)], lost=(2,)),
            "slow": sample([("acme_repair_failed", 0, 0), ("acme_repair_failed", 1, 0)]),
        },
    )
    assert health(Bench().publish(found)) == {"0": "healthy", "1": "degraded", "2": "failed", "3": "unknown"}


def test_the_worst_rule_counts() -> None:
    found = snapshot(
        [device("0")],
        {"normal": sample([("acme_load_percent", 0, 151)]), "slow": sample([("acme_repair_failed", 0, 1)])},
    )
    assert health(Bench().publish(found)) == {"0": "failed"}


def test_a_fault_is_counted_dated_classified_and_held_against_the_device() -> None:
    bench = Bench()
    found = one(("acme_load_percent", 0, 50), at=100.0)
    before = bench.publish(found)
    assert of(before, "accel_faults_total") == {
        'vendor="acme",device="0",uuid="ACME-0",namespace="",pod="",container="",job_name="",tenant=""': 0
    }
    assert not of(before, "accel_fault_code_total")
    event = Fault(0, "acme:7", 1_000_090.0)
    bench.book.record(catalogue(), found.devices, [event, event], now=1_000_100.0, monotonic=100.0)
    after = bench.publish(found)
    labels = (
        'vendor="acme",device="0",uuid="ACME-0",namespace="",pod="",container="",job_name="",tenant="",'
        'code="acme:7",class="compute",severity="fatal",action="reset_device"'
    )
    assert of(after, "accel_fault_code_total") == {labels: 2}
    assert of(after, "accel_fault_last_timestamp_seconds") == {labels: 1_000_090.0}
    assert health(after) == {"0": "failed"}
    wanted = {text.rpartition("action=")[2]: value for text, value in of(after, "accel_recovery_action").items()}
    assert wanted == {
        '"none"': 0, '"restart_workload"': 0, '"reset_device"': 1, '"drain"': 0, '"reboot_node"': 0, '"replace"': 0,
        '"recover_fabric"': 0,
    }  # fmt: skip
    later = bench.publish(one(("acme_load_percent", 0, 50), at=701.0), at=701.0)
    assert health(later) == {"0": "healthy"}
    assert of(later, "accel_fault_code_total") == {labels: 2}


def bridged(code: int, at: float) -> Snapshot:
    return msgspec.structs.replace(one(("acme_last_fault", 0, code), at=at), bridged=True)


def test_through_the_vendors_exporter_a_fault_is_counted_when_the_last_code_changes() -> None:
    bench = Bench()
    assert list(of(bench.publish(bridged(3, 100.0)), "accel_faults_total").values()) == [0]
    found = bench.publish(bridged(7, 105.0), at=105.0)
    assert list(of(found, "accel_faults_total").values()) == [1]
    [(labels, when)] = of(found, "accel_fault_last_timestamp_seconds").items()
    assert 'code="acme:7",class="compute",severity="fatal"' in labels
    assert when == 1_000_105.0
    assert list(of(bench.publish(bridged(7, 110.0), at=110.0), "accel_faults_total").values()) == [1]


def test_a_vendors_exporter_that_tells_no_faults_gives_no_zero() -> None:
    found = Bench().publish(msgspec.structs.replace(one(("acme_power_mw", 0, 5)), bridged=True))
    assert not of(found, "accel_faults_total")
    assert not of(found, "accel_recovery_action")


def test_codes_beyond_the_bound_are_counted_as_other() -> None:
    bench = Bench()
    found = one(("acme_load_percent", 0, 50))
    events = [Fault(0, f"acme:{1000 + number}", 1.0) for number in range(500)]
    bench.book.record(catalogue(), found.devices, events, now=2.0, monotonic=100.0)
    codes = of(bench.publish(found), "accel_fault_code_total")
    assert len(codes) == 65
    assert sum(codes.values()) == 500
    assert [value for text, value in codes.items() if 'code="other"' in text] == [436]


def test_a_fault_from_the_future_is_dated_now() -> None:
    bench = Bench()
    found = one(("acme_load_percent", 0, 50))
    bench.book.record(catalogue(), found.devices, [Fault(0, "acme:1", 9e12)], now=1_000_100.0, monotonic=100.0)
    assert list(of(bench.publish(found), "accel_fault_last_timestamp_seconds").values()) == [1_000_100.0]


def test_energy_is_integrated_from_power_and_says_so() -> None:
    bench = Bench()
    assert list(
        of(bench.publish(one(("acme_power_mw", 0, 100_000), at=100.0)), "accel_energy_joules_total").values()
    ) == [0]
    found = bench.publish(one(("acme_power_mw", 0, 200_000), at=110.0), at=110.0)
    assert list(of(found, "accel_energy_joules_total").values()) == [1500.0]
    again = bench.publish(one(("acme_power_mw", 0, 200_000), at=110.0), at=112.0)
    assert list(of(again, "accel_energy_joules_total").values()) == [1500.0]
    sources = of(found, "accel_metric_source_info")
    assert (
        sources['vendor="acme",metric="accel_energy_joules_total",source="accel_power_watts",exactness="derived"'] == 1
    )


def test_nothing_is_integrated_over_a_gap() -> None:
    bench = Bench()
    bench.publish(one(("acme_power_mw", 0, 100_000), at=100.0))
    found = bench.publish(one(("acme_power_mw", 0, 100_000), at=161.0), at=161.0)
    assert list(of(found, "accel_energy_joules_total").values()) == [0]


def test_devices_are_counted_present_reporting_and_expected() -> None:
    bench = Bench()
    two = one(("acme_power_mw", 0, 5), devices=[device("0"), device("1")], lost=(1,))
    found = bench.publish(two, present=3)
    assert found['accel_devices_present{vendor="acme"}'] == 3
    assert found['accel_devices_reporting{vendor="acme"}'] == 1
    assert found['accel_devices_expected{vendor="acme"}'] == 3
    later = bench.publish(two, present=2)
    assert later['accel_devices_expected{vendor="acme"}'] == 3
    assert bench.publish(two, present=2, expected=8)['accel_devices_expected{vendor="acme"}'] == 8


def test_a_vendor_that_is_absent_has_no_counts() -> None:
    assert Bench().publish(None, present=0) == {}


def test_series_of_one_name_and_labels_are_given_once_and_counted() -> None:
    bench = Bench()
    twin = Device(uuid="ACME-9", index="9", raw_labels=device("0").raw_labels)
    found = bench.publish(one(("acme_power_mw", 0, 5), ("acme_power_mw", 1, 6), devices=[device("0"), twin]))
    assert found['acme_power_mw{slot="0",UUID="ACME-0"}'] == 5
    assert bench.dropped == {"duplicate": 1}


def test_blocks_are_kept_while_their_sample_is_the_same() -> None:
    bench = Bench()
    normal, slow = sample([("acme_power_mw", 0, 5)]), sample([("acme_memory_size_mib", 0, 8)])
    first, _, _ = bench.view.update(snapshot([device("0")], {"normal": normal, "slow": slow}), None, frozenset(), 100.0)
    newer = sample([("acme_power_mw", 0, 6)], at=105.0)
    second, _, _ = bench.view.update(snapshot([device("0")], {"normal": newer, "slow": slow}), None, frozenset(), 105.0)
    assert second["accel_capacity_memory_bytes"][0] is first["accel_capacity_memory_bytes"][0]
    assert second["acme_power_mw"][0] is not first["acme_power_mw"][0]
    assert second["acme_power_mw"][0].prefixes is first["acme_power_mw"][0].prefixes
    assert second["acme_power_mw"][0].values == (6,)


def test_facts_are_labels_and_what_is_not_told_is_no_label() -> None:
    found = of(Bench().publish(one(("acme_power_mw", 0, 5))), "accel_info")
    assert found == {'vendor="acme",device="0",uuid="ACME-0",kind="npu",model="A1"': 1}
