"""Raw readings of the vendor that does not exist become common ones."""

from __future__ import annotations

import pytest

from collectors.base import Device
from exporter.model import GroupSample, Key, Number, SeriesId
from exporter.normalize import Plan, holds, make_plan, scale
from tests.acme import catalogue, device, sample


def values(plan: Plan, samples: dict[str, GroupSample]) -> dict[tuple[str, str, str], Number]:
    return {
        (
            output.id.metric.removeprefix("accel_"),
            output.id.partition or output.id.uuid,
            ",".join(text for _, text in output.id.labels),
        ): output.evaluate(samples[output.group].values)
        for output in plan.outputs
    }


def normalized(devices: list[Device], **samples: GroupSample) -> dict[tuple[str, str, str], Number]:
    plan = make_plan(catalogue(), devices, {g: s.layout for g, s in samples.items()})  # type: ignore[misc]
    return values(plan, dict(samples))


def test_units_become_base_units() -> None:
    found = normalized(
        [device("0")],
        normal=sample(
            [
                ("acme_load_percent", 0, 57),
                ("acme_memory_used_mib", 0, 3),
                ("acme_temperature", 0, 61),
                ("acme_power_mw", 0, 310_500),
            ]
        ),
        slow=sample([("acme_memory_size_mib", 0, 65_536)]),
    )
    assert found == {
        ("utilization_ratio", "ACME-0", ""): 0.57,
        ("memory_used_bytes", "ACME-0", "device"): 3 * 1024 * 1024,
        ("temperature_celsius", "ACME-0", "die"): 61,
        ("power_watts", "ACME-0", ""): 310.5,
        ("capacity_memory_bytes", "ACME-0", ""): 64 * 1024**3,
    }


@pytest.mark.parametrize(
    ("bits", "power_cap", "thermal"), [(0, 0, 0), (1, 1, 0), (2, 0, 1), (4, 0, 1), (7, 1, 1), (8, 0, 0)]
)
def test_a_bit_mask_becomes_one_series_a_reason(bits: int, power_cap: int, thermal: int) -> None:
    found = normalized([device("0")], normal=sample([("acme_state_bits", 0, bits)]))
    assert found == {
        ("throttle_active", "ACME-0", "power_cap"): power_cap,
        ("throttle_active", "ACME-0", "thermal"): thermal,
    }


def test_an_enumeration_becomes_one_series_a_state() -> None:
    found = normalized([device("0")], normal=sample([("acme_fabric", 0, 2)]))
    assert found == {
        ("fabric_state", "ACME-0", "in_progress"): 0,
        ("fabric_state", "ACME-0", "completed"): 1,
    }


LINKS = sample([("acme_link_bytes", 0, 10, (("link", "0"),)), ("acme_link_bytes", 0, 32, (("link", "1"),))])


def test_links_are_summed() -> None:
    assert normalized([device("0")], normal=LINKS) == {
        ("interconnect_received_bytes_total", "ACME-0", "acmelink"): 42 * 1024
    }


def test_links_are_given_each_where_that_is_asked() -> None:
    plan = make_plan(catalogue(), [device("0")], {"normal": LINKS.layout}, links="each")
    assert values(plan, {"normal": LINKS}) == {
        ("interconnect_received_bytes_total", "ACME-0", "acmelink,0"): 10 * 1024,
        ("interconnect_received_bytes_total", "ACME-0", "acmelink,1"): 32 * 1024,
    }


def test_a_label_that_the_raw_series_does_not_tell_is_left_out() -> None:
    whole = sample([("acme_link_bytes", 0, 10)])
    plan = make_plan(catalogue(), [device("0")], {"normal": whole.layout}, links="each")
    assert [output.id.labels for output in plan.outputs] == [(("fabric", "acmelink"),)]


def test_the_first_source_in_the_table_wins() -> None:
    found = normalized([device("0")], normal=sample([("acme_duty_permille", 0, 400), ("acme_load_percent", 0, 50)]))
    assert found == {("utilization_ratio", "ACME-0", ""): 0.5}


def test_another_source_stands_in_where_the_first_is_not_offered() -> None:
    found = normalized([device("0")], normal=sample([("acme_duty_permille", 0, 400)]))
    assert found == {("utilization_ratio", "ACME-0", ""): 0.4}


def test_a_source_that_fails_leaves_a_gap_until_the_next_discovery() -> None:
    both = sample([("acme_load_percent", 0, 50), ("acme_duty_permille", 0, 400)])
    only_second = sample([("acme_duty_permille", 0, 400)])
    first = make_plan(catalogue(), [device("0")], {"normal": both.layout})
    gap = make_plan(catalogue(), [device("0")], {"normal": only_second.layout}, sources=first.sources)
    assert gap.outputs == ()
    again = make_plan(catalogue(), [device("0")], {"normal": only_second.layout})
    assert values(again, {"normal": only_second}) == {("utilization_ratio", "ACME-0", ""): 0.4}


def test_a_quantity_stands_at_one_level() -> None:
    devices = [device("0"), device("0", "1g/1"), device("0", "1g/2")]
    found = normalized(
        devices,
        normal=sample(
            [
                ("acme_memory_used_mib", 0, 30),
                ("acme_memory_used_mib", 1, 10),
                ("acme_memory_used_mib", 2, 20),
            ]
        ),
    )
    assert found == {
        ("memory_used_bytes", "1g/1", "device"): 10 * 1024 * 1024,
        ("memory_used_bytes", "1g/2", "device"): 20 * 1024 * 1024,
    }


def test_a_fact_of_the_whole_that_its_parts_repeat_counts_once() -> None:
    devices = [device("0"), device("0", "1g/1"), device("0", "1g/2")]
    found = normalized(devices, normal=sample([("acme_power_mw", 1, 5000), ("acme_power_mw", 2, 5000)]))
    assert found == {("power_watts", "ACME-0", ""): 5}


def test_a_lost_device_and_its_parts_have_no_values() -> None:
    devices = [device("0"), device("0", "1g/1"), device("1")]
    rows = sample([("acme_power_mw", 0, 5000), ("acme_load_percent", 1, 3), ("acme_power_mw", 2, 7000)])
    plan = make_plan(catalogue(), devices, {"normal": rows.layout}, lost=frozenset({0}))
    assert values(plan, {"normal": rows}) == {("power_watts", "ACME-1", ""): 7}


def test_a_series_that_another_collector_gives_is_left_to_it() -> None:
    rows = sample([("acme_power_mw", 0, 5000), ("acme_temperature", 0, 60)])
    taken = frozenset({SeriesId("accel_power_watts", "ACME-0", "")})
    plan = make_plan(catalogue(), [device("0")], {"normal": rows.layout}, taken=taken)
    assert [output.id.metric for output in plan.outputs] == ["accel_temperature_celsius"]


def test_series_of_the_node_and_unknown_series_feed_nothing() -> None:
    layout = (Key("acme_node_driver_restarts", -1), Key("acme_of_tomorrow", 0))
    assert make_plan(catalogue(), [device("0")], {"normal": layout}).outputs == ()


@pytest.mark.parametrize(
    ("by", "value", "expected"),
    [(1e-3, 68_412, 68.412), (0.01, 29, 0.29), (1024.0, 3, 3072), (1e6, 1980, 1_980_000_000)],
)
def test_scaling_gives_the_nearest_number_and_keeps_integers(by: float, value: int, expected: Number) -> None:
    convert = scale(by)
    assert convert is not None
    assert convert(value) == expected
    assert isinstance(convert(value), type(expected))


def test_health_rules() -> None:
    rules = {rule.series: rule for rule in catalogue().collector.health}
    assert holds(rules["acme_repair_failed"], 1)
    assert not holds(rules["acme_repair_failed"], 0)
    assert holds(rules["acme_load_percent"], 151)
    assert not holds(rules["acme_load_percent"], 150)


def test_a_rate_is_given_only_where_nothing_is_counted() -> None:
    rate = ("acme_link_rate", 0, 7)
    with_counter = normalized([device("0")], normal=sample([("acme_link_bytes", 0, 10, (("link", "0"),)), rate]))
    assert with_counter == {("interconnect_received_bytes_total", "ACME-0", "acmelink"): 10 * 1024}
    assert normalized([device("0")], normal=sample([rate])) == {
        ("interconnect_received_bytes_per_second", "ACME-0", "acmelink"): 7 * 1024
    }
