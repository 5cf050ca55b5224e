"""What is sent over OTLP says the same as /metrics, value by value."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Mapping

import pytest
from google.protobuf import json_format

from benchmarks.pipeline import Node
from exporter.exposition_text import render
from exporter.families import Family, Publication
from exporter.negotiation import Format
from exporter.otlp import json as otlp_json
from exporter.otlp.adapt import HEALTH
from exporter.otlp.encode import Selection, run
from tests.exposition_readers import family, read
from tests.otlp import Point, one, parse, points, prometheus_label, prometheus_name
from tests.otlp_rig import START, Rig, common, labels, publication, seconds

DEVICES = 6
Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture(scope="module")
def node() -> Node:
    """Simulated devices of the largest catalogue."""
    return Node(DEVICES, distinct=True)


def scraped(published: Publication, schema: str = "") -> Series:
    """The series of /metrics, by the reference client's parser. Its own rule for counters is undone."""
    families = [one for one in published.families if schema in ("", one.schema)]
    names = {one.name for one in families}
    found: Series = {}
    for sample in read(render(families, Format.TEXT, b""), Format.TEXT):
        name = sample.name if sample.name in names else sample.name.removesuffix("_total")
        found[name, frozenset(sample.labels)] = float(sample.value)
    return found


def received(found: list[Point]) -> Series:
    """The series that Prometheus makes of points."""
    result: Series = {}
    for point in found:
        key = (
            prometheus_name(point.name, point.unit, point.kind),
            frozenset((prometheus_label(name), value) for name, value in point.attributes.items()),
        )
        assert key not in result, f"{key} is there twice"
        assert point.value is not None
        result[key] = float(point.value)
    return result


def test_under_prometheus_names_every_common_series_arrives_as_metrics_serves_it(node: Node) -> None:
    published = node.publish()
    found = Rig(Selection("common", "prometheus")).export(published)
    assert received(found) == scraped(published, "common")
    assert len(found) > 300


def test_every_raw_series_arrives_under_its_own_name_and_labels(node: Node) -> None:
    published = node.publish()
    found = Rig(Selection("raw")).export(published)
    expected = {
        (name + "_total" * (kinds[name] == "counter" and not name.endswith("_total")), labels_): value
        for kinds in [{one.name: one.type for one in published.families}]
        for (name, labels_), value in scraped(published, "raw").items()
    }
    assert received(found) == expected
    assert {point.unit for point in found} == {""}


def test_the_second_export_has_the_second_values(node: Node) -> None:
    rig = Rig(Selection("common", "prometheus"))
    rig.export(node.publish())
    node.take("normal")
    published = node.publish()
    assert received(rig.export(published)) == scraped(published, "common")


def test_under_the_conventions_no_series_is_lost_but_unknown_states(node: Node) -> None:
    published = node.publish()
    plain = Rig(Selection("common", "prometheus")).export(published)
    found = Rig(Selection("common")).export(published)
    states = sum(point.name == "accel.health_state" and point.attributes["state"] == "unknown" for point in plain)
    shares = sum(point.name == "hw.gpu.memory.utilization" for point in found)
    assert states == shares == DEVICES
    assert len(found) == len(plain) - states + shares
    assert sorted(str(p.value) for p in found if p.name != "hw.gpu.memory.utilization") == sorted(
        str(p.value) for p in plain if p.attributes.get("state") != "unknown" or p.name != "accel.health_state"
    )


def test_a_point_has_the_time_of_its_sample_and_the_agents_own_that_of_the_publication() -> None:
    sampled = common("accel_power_watts", (labels(), 5.5), taken_at=START + 1.25)
    own = common("accel_ecc_enabled", (labels(), 1), taken_at=0)
    found = Rig().export(publication(sampled, own, at=START + 3))
    assert seconds(one(found, "hw.power").time) == START + 1.25
    assert seconds(one(found, "accel.ecc_enabled").time) == START + 3


def test_whole_numbers_are_sent_as_such_where_the_quantity_is_one() -> None:
    families = (
        common("accel_memory_free_bytes", (labels(memory="device"), 2**53 + 1)),
        common("accel_temperature_celsius", (labels(sensor="die"), 61)),
        common("accel_memory_total_bytes", (labels(memory="device"), 1.5), (labels(memory="host"), 3)),
    )
    found = Rig().export(publication(*families))
    exact, temperature = one(found, "accel.memory_free").value, one(found, "hw.temperature").value
    assert (exact, type(exact)) == (2**53 + 1, int)
    assert (temperature, type(temperature)) == (61.0, float)
    assert one(found, "hw.gpu.memory.limit").value == 1.5


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("gauge", math.nan), ("gauge", math.inf), ("gauge", -math.inf), ("gauge", -3), ("gauge", 2**64 - 1),
        ("gauge", 2**63), ("gauge", -(2**63)), ("gauge", 10**400), ("gauge", 0.1), ("counter", math.nan),
        ("counter", -1), ("counter", 0), ("counter", 2**64 - 1), ("counter", 1e300), ("counter", 10**400),
    ],
)  # fmt: skip
def test_a_value_is_sent_just_if_metrics_shows_it(kind: str, value: float) -> None:
    for beside in ([], [(("n", "1"),)]):
        rows = [((("n", "0"),), value), *[(label, 7) for label in beside]]
        shown = family("acme_value", kind, rows)  # type: ignore[arg-type]
        scraped_values = [sample.value for sample in read(render([shown], Format.TEXT, b""), Format.TEXT)]
        found = Rig(Selection("raw")).export(publication(shown))
        assert [repr(float(point.value or 0)) for point in found] == scraped_values


def test_large_bytes_that_no_integer_of_a_point_holds_are_sent_as_double() -> None:
    found = Rig().export(publication(common("accel_memory_free_bytes", (labels(memory="device"), 2**64 - 1))))
    assert one(found, "accel.memory_free").value == float(2**64 - 1)


def test_labels_that_metrics_escapes_arrive_as_they_are() -> None:
    model = 'Big "X" \\ 1\nrev é'
    found = Rig().export(publication(common("accel_info", (labels(model=model, kind="npu"), 1))))
    assert one(found, "hw.gpu.info").attributes["hw.model"] == model


def test_a_series_that_stands_there_twice_is_sent_once() -> None:
    twice = common("accel_power_watts", (labels(), 1.0), (labels(), 2.0))
    assert [point.value for point in Rig().export(publication(twice))] == [1.0]


# What the conventions have otherwise


def health(unknown: str) -> Family:
    rows = [
        (labels(uuid, state=state), int(state == ("unknown" if uuid == unknown else "degraded")))
        for uuid in ("U0", "U1")
        for state in ("healthy", "degraded", "failed", "unknown")
    ]
    return common(HEALTH, *rows, taken_at=0)


def test_a_device_whose_state_is_not_known_sends_no_status() -> None:
    rig = Rig()
    states = [(p.attributes["hw.id"], p.attributes["hw.state"], p.value) for p in rig.export(publication(health("U1")))]
    assert states == [("U0", "ok", 0), ("U0", "degraded", 1), ("U0", "failed", 0)]
    # Now the other one: what was told of it ends at once.
    later = rig.export(publication(health("U0"), at=START + 60))
    ended = [p.attributes["hw.state"] for p in later if p.attributes["hw.id"] == "U0" and p.value is None]
    assert sorted(ended) == ["degraded", "failed", "ok"]
    assert [p.value for p in later if p.attributes["hw.id"] == "U1"] == [0, 1, 0]


def test_the_share_of_memory_is_used_over_total_of_the_same_device_or_part() -> None:
    used = common(
        "accel_memory_used_bytes",
        (labels("U1", memory="device"), 10),
        (labels("U0", partition="p1", memory="device"), 30),
        (labels("U2", memory="device"), 5),
        (labels("U1", memory="host"), 9),
        taken_at=START + 2,
    )
    total = common(
        "accel_memory_total_bytes",
        (labels("U0", partition="p1", memory="device"), 40),
        (labels("U1", memory="device"), 80),
        (labels("U2", memory="device"), 0),
        (labels("U1", memory="host"), 10),
    )
    found = [p for p in Rig().export(publication(used, total)) if p.name == "hw.gpu.memory.utilization"]
    assert {p.attributes["hw.id"]: p.value for p in found} == {"U1": 10 / 80, "U0/p1": 30 / 40}
    assert {seconds(p.time) for p in found} == {START + 2}
    assert not [p for p in Rig().export(publication(used)) if p.name == "hw.gpu.memory.utilization"]


# Series that end


def devices(*uuids: str, at: float) -> Publication:
    power = common("accel_power_watts", *((labels(uuid), 1.0) for uuid in uuids), taken_at=at)
    return publication(power, at=at)


def test_a_device_that_vanishes_ends_with_one_point_without_a_value() -> None:
    rig = Rig()
    rig.export(devices("U0", "U1", at=START))
    second = rig.export(devices("U0", at=START + 60))
    third = rig.export(devices("U0", at=START + 120))
    assert [(p.attributes["hw.id"], p.value, seconds(p.time)) for p in second] == [
        ("U1", None, START + 60),
        ("U0", 1.0, START + 60),
    ]
    assert [(p.attributes["hw.id"], p.value) for p in third] == [("U0", 1.0)]


def test_so_does_a_family_that_is_gone_as_a_whole() -> None:
    rig = Rig()
    first = rig.export(devices("U0", at=START))
    last = rig.export(publication(at=START + 60))
    assert [(p.name, p.kind, p.unit, p.attributes, p.value) for p in last] == [
        (p.name, p.kind, p.unit, p.attributes, None) for p in first
    ]
    assert rig.export(publication(at=START + 120)) == []


def test_a_device_that_comes_back_is_sent_again() -> None:
    rig = Rig()
    for uuids in (["U0", "U1"], ["U0"]):
        rig.export(devices(*uuids, at=START))
    assert len(rig.export(devices("U0", "U1", at=START + 120))) == 2


# Which series, and how many in a request


@pytest.mark.parametrize(
    ("selection", "names"),
    [
        (Selection("common"), {"hw.power", "accel.memory_free"}),
        (Selection("raw"), {"acme_power_mw"}),
        (Selection("both"), {"hw.power", "accel.memory_free", "acme_power_mw"}),
        (Selection("both", include=("accel_power_*",)), {"hw.power"}),
        (Selection("both", exclude=("accel_memory_*", "acme_*")), {"hw.power"}),
        (Selection("both", include=("accel_*",), exclude=("*_watts",)), {"accel.memory_free"}),
    ],
)
def test_a_receiver_gets_what_was_chosen_by_the_names_of_metrics(selection: Selection, names: set[str]) -> None:
    found = Rig(selection).export(
        publication(
            common("accel_power_watts", (labels(), 5)),
            common("accel_memory_free_bytes", (labels(memory="device"), 5)),
            family("acme_power_mw", "gauge", [((("slot", "0"),), 5000)]),
        )
    )
    assert {point.name for point in found} == names


def test_large_publications_become_several_requests_with_the_same_points(node: Node) -> None:
    published = node.publish()
    whole, parts = Rig(), Rig(limit=40_000)
    expected = whole.export(published)
    found = parts.export(published)
    assert len(whole.requests) == 1
    assert len(parts.requests) > 2
    assert max(len(request.body) for request in parts.requests) <= 40_000
    assert [request.points for request in parts.requests] == [len(points([r.body])) for r in parts.requests]

    def key(point: Point) -> tuple[object, ...]:
        return (point.name, point.labels, point.value, point.kind, point.unit, point.description)

    assert sorted(map(key, found), key=str) == sorted(map(key, expected), key=str)


def test_encoding_gives_way_to_other_tasks(node: Node) -> None:
    steps = Rig(Selection("common")).encoder.encode(node.publish(), time.time())
    assert next(steps) is None


# JSON


def numbers(found: object) -> Iterator[tuple[str, object]]:
    """Every scalar of a document with its path: the reference writes bounds of integers as it likes."""
    if isinstance(found, Mapping):
        for name, value in found.items():
            yield from ((f"{name}.{path}", scalar) for path, scalar in numbers(value))
    elif isinstance(found, list):
        for index, value in enumerate(found):
            yield from ((f"{index}.{path}", scalar) for path, scalar in numbers(value))
    else:
        yield "", found


def test_the_json_says_what_the_request_says(node: Node) -> None:
    rig = Rig(node={"service.name": "x", "n": 7, "up": True, "share": 0.5, "list": ("a", 2)})
    rig.export(node.publish())
    for request in rig.requests:
        line = otlp_json.line(request.body)
        assert "\n" not in line
        written = json.loads(line)
        expected = json_format.MessageToDict(parse(request.body), use_integers_for_enums=True)
        assert dict(numbers(written)) == dict(numbers(expected))
        assert json_format.ParseDict(written, parse(b"")) == parse(request.body)


def test_nothing_to_send_is_no_request() -> None:
    assert run(Rig().encoder.encode(publication(), START)) == []
