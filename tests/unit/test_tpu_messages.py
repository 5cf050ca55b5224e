"""libtpu's messages, as the real runtime writes them; and rubbish."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.protobuf import Malformed
from collectors.tpu import messages
from collectors.tpu.messages import Distribution, Entry
from tests.fakes.tpu.service import Buckets, Value, _fill, message


def encoded(*values: Value) -> bytes:
    answer = message("MetricResponse")()
    for value in values:
        _fill(answer.metric.metrics.add(), value)
    return bytes(answer.SerializeToString())


def one(value: Value) -> Entry:
    [entry] = messages.entries(encoded(value))
    return entry


def test_the_sample_of_the_documents_is_read() -> None:
    """The text form in tpu-info's description: device 4, 19810000000 bytes."""
    entry = one(Value(19_810_000_000, {"device-id": 4}))
    assert (entry.device, entry.value) == (4, 19_810_000_000)


@pytest.mark.parametrize(
    ("value", "read"), [(12.5, 12.5), (0, 0), (0.0, 0), (-3, -3), (2**40, 2**40), ("text", None), (float("nan"), None)]
)
def test_whichever_form_a_gauge_has_is_read(value: float | str, read: float | None) -> None:
    assert one(Value(value, {"device-id": 1})).value == read


@pytest.mark.parametrize(("value", "read"), [(4711, 4711), (2**63 + 1, 2**63 + 1), (0.5, 0.5), (float("inf"), None)])
@pytest.mark.parametrize("exemplar", [b"", b"\x1a\x02\x08\x01"], ids=["alone", "with an exemplar"])
def test_a_counter_is_read_whatever_stands_beside_its_value(value: float, read: float | None, exemplar: bytes) -> None:
    """A Counter of libtpu has an exemplar in field 3, where a Gauge has its text."""
    answer = message("MetricResponse")()
    _fill(answer.metric.metrics.add(), Value(value, counter=True))
    answer.metric.metrics[0].counter.MergeFromString(exemplar)
    [entry] = messages.entries(answer.SerializeToString())
    assert entry.value == read


@pytest.mark.parametrize(
    "attributes",
    [{"device-id": 5}, {"device_id": 5}, {"device_ordinal": "5"}, {"core_type": "tensorcore", "device_ordinal": "5"}],
)
def test_the_device_is_found_under_any_of_its_names(attributes: dict[str, int | str]) -> None:
    assert one(Value(1, attributes)).device == 5


def test_device_0_whose_number_was_left_out_is_device_0() -> None:
    answer = message("MetricResponse")()
    metric = answer.metric.metrics.add()
    metric.attribute.key = "device-id"
    metric.attribute.value.SetInParent()
    metric.gauge.as_int = 7
    [entry] = messages.entries(answer.SerializeToString())
    assert (entry.device, entry.value) == (0, 7)


def test_without_an_attribute_there_is_no_device() -> None:
    answer = message("MetricResponse")()
    answer.metric.metrics.add().gauge.as_int = 7
    metric = answer.metric.metrics.add()
    metric.attribute.key = "device-id"
    metric.gauge.as_int = 8
    assert [entry.device for entry in messages.entries(answer.SerializeToString())] == [None, None]


def test_hyphens_and_underscores_in_keys_are_alike() -> None:
    entry = one(Value(1, {"buffer-size": "8MB+", "collective_type": "ALL_REDUCE"}))
    assert entry.attributes == {"buffer_size": "8MB+", "collective_type": "ALL_REDUCE"}


@pytest.mark.parametrize(
    ("options", "bounds"),
    [
        ({"exponential_buckets": {"num_finite_buckets": 3, "growth_factor": 2.0, "scale": 10.0}}, (10, 20, 40, 80)),
        ({"linear_buckets": {"num_finite_buckets": 2, "width": 5.0, "offset": 1.0}}, (1, 6, 11)),
        ({"explicit_buckets": {"bounds": [0.5, 2.0, 8.0]}}, (0.5, 2, 8)),
    ],
)
def test_the_bounds_of_each_kind_of_buckets(options: Any, bounds: tuple[float, ...]) -> None:
    distribution = one(Value(Buckets(3.5, [1, 2], options))).distribution
    assert distribution is not None
    assert distribution.bounds == bounds
    assert (distribution.count, distribution.mean) == (3, 3.5)
    # Counts of empty buckets at the end are left out on the wire.
    assert distribution.counts == (1, 2, *[0] * (len(bounds) - 1))


def test_a_distribution_without_buckets_has_its_count_and_mean() -> None:
    assert one(Value(Buckets(2.0, [4], {}))).distribution == Distribution(count=4, mean=2.0)


@pytest.mark.parametrize(
    "found",
    [
        Buckets(1.0, [1, 1, 1], {"explicit_buckets": {"bounds": [1.0]}}),
        Buckets(1.0, [1], {"explicit_buckets": {"bounds": [float(n) for n in range(200)]}}),
        Buckets(1.0, [1], {"linear_buckets": {"num_finite_buckets": 200, "width": 1.0}}),
        Buckets(1.0, [1], {"exponential_buckets": {"num_finite_buckets": 199, "growth_factor": 1e300, "scale": 1.0}}),
        Buckets(1.0, [1], {"explicit_buckets": {"bounds": [2.0, 1.0]}}),
        Buckets(float("inf"), [1], {}),
        Buckets(1.0, [-1, 2], {"explicit_buckets": {"bounds": [1.0]}}),
    ],
    ids=["too many counts", "200 bounds", "200 buckets", "overflow", "falling bounds", "no mean", "negative count"],
)
def test_a_distribution_that_cannot_be_is_refused(found: Buckets) -> None:
    with pytest.raises(Malformed):
        messages.entries(encoded(Value(found)))


def test_fields_that_came_later_are_ignored() -> None:
    newer = b"\x18\x01" + bytes.fromhex("a20603616263")
    assert messages.entries(encoded(Value(1, {"device-id": 2})) + newer)[0].device == 2
    answer = message("ListSupportedMetricsResponse")()
    answer.supported_metric.add().metric_name = "a.b"
    inner = answer.SerializeToString()
    grown = inner[:1] + bytes([inner[1] + 2]) + inner[2:] + b"\x18\x01"
    assert messages.supported(grown) == {"a.b"}


def test_a_request_is_what_the_runtime_writes() -> None:
    assert messages.request("tpu.x") == message("MetricRequest")(metric_name="tpu.x").SerializeToString()


@given(st.binary(max_size=300))
def test_rubbish_raises_nothing_but_malformed_and_gives_no_endless_list(data: bytes) -> None:
    for read in (messages.entries, messages.supported):
        try:
            assert len(read(data)) <= len(data)
        except Malformed:
            continue


@settings(max_examples=200)
@given(st.data())
def test_a_broken_message_gives_nothing_that_was_not_in_it(data: st.DataObject) -> None:
    whole = encoded(*(Value(1000 + device, {"device-id": device}) for device in range(4)))
    cut = data.draw(st.integers(0, len(whole)))
    try:
        found = messages.entries(whole[:cut])
    except Malformed:
        return
    assert {(entry.device, entry.value) for entry in found} <= {(device, 1000 + device) for device in range(4)}
