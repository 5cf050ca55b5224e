"""The driver's binary table: tables are built in the order of the kernel's header and read by offset."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.amd.gpu_metrics import GpuMetrics, MetricsError, decode, from_amdsmi
from collectors.amd.layouts import ARRAYS, LAYOUTS
from tests.fakes.amd import blobs, worlds

REVISIONS = sorted(blobs.FORMATS)
SIZES = {
    (1, 1): 96, (1, 2): 104, (1, 3): 120, (1, 4): 288, (1, 5): 360, (1, 6): 1664, (1, 7): 2208, (1, 8): 3872,
}  # fmt: skip
"""What the kernel's structures measure."""
PERCENTAGES = ("activity", "busy")
ANY_REVISION = pytest.mark.parametrize("revision", REVISIONS, ids=lambda revision: f"v{revision[0]}.{revision[1]}")


def told(metrics: GpuMetrics, name: str) -> list[int | None]:
    return list(metrics.array(name)) if name in ARRAYS else [metrics.number(name)]


@ANY_REVISION
def test_a_table_has_the_kernels_size(revision: tuple[int, int]) -> None:
    assert len(blobs.table(revision, {})) == SIZES[revision] == LAYOUTS[revision].size


@ANY_REVISION
def test_each_field_is_found_where_it_was_written(revision: tuple[int, int]) -> None:
    names = blobs.names(revision)
    fields: dict[str, blobs.Value] = {}
    for place, name in enumerate(names):
        fields[name] = [place + n for n in range(4)] if name in ARRAYS else place + 3
    metrics = decode(blobs.table(revision, fields))
    read = set(LAYOUTS[revision].fields)
    assert read <= set(names)
    for place, name in enumerate(names):
        if name in read:
            expected = [place + n for n in range(4)] if name in ARRAYS else [place + 3]
            assert told(metrics, name)[: len(expected)] == expected, name
            assert set(told(metrics, name)[len(expected) :]) <= {None}, name


@ANY_REVISION
def test_all_ones_are_no_reading(revision: tuple[int, int]) -> None:
    metrics = decode(blobs.table(revision, {}))
    assert metrics.revision == revision
    assert not any(told(metrics, name) != [None] for name in LAYOUTS[revision].fields if name not in ARRAYS)
    assert {value for name in LAYOUTS[revision].fields if name in ARRAYS for value in metrics.array(name)} <= {None}


@pytest.mark.parametrize("watts", [0, 1, 254, 255, 256, 65534])
def test_a_plausible_number_is_never_taken_for_a_sentinel(watts: int) -> None:
    assert decode(blobs.table((1, 7), {"current_socket_power": watts})).number("current_socket_power") == watts
    assert decode(blobs.table((1, 3), {"average_socket_power": watts})).number("average_socket_power") == watts


def test_a_share_above_a_hundred_is_no_reading() -> None:
    part = {"gfx_busy_inst": [100, 101, 4096, 0], "vcn_busy": [7, 200]}
    metrics = decode(blobs.table((1, 7), {"average_gfx_activity": 101, "average_umc_activity": 100}, [part]))
    assert metrics.number("average_gfx_activity") is None
    assert metrics.number("average_umc_activity") == 100
    assert metrics.part("gfx_busy_inst", 0) == (100, None, None, 0, None, None, None, None)
    assert metrics.part("vcn_busy", 0) == (7, None, None, None)


@pytest.mark.parametrize("revision", [(1, 6), (1, 7), (1, 8)])
def test_each_partition_has_its_own_statistics(revision: tuple[int, int]) -> None:
    parts = [{"gfx_busy_inst": [n], "jpeg_busy": [n + 10], "vcn_busy": [n + 20]} for n in range(8)]
    metrics = decode(blobs.table(revision, {}, parts))
    for n in range(8):
        assert metrics.part("gfx_busy_inst", n)[0] == n
        assert metrics.part("jpeg_busy", n)[0] == n + 10
        assert metrics.part("vcn_busy", n)[0] == n + 20
    assert metrics.part("gfx_busy_inst", 8) == ()


def test_the_reasons_of_a_low_clock_come_with_layout_1_8() -> None:
    part = {"gfx_below_host_limit_ppt_acc": [11, 12], "gfx_low_utilization_acc": [21]}
    metrics = decode(blobs.table((1, 8), {}, [{}, part]))
    assert metrics.part("gfx_below_host_limit_ppt_acc", 1)[:3] == (11, 12, None)
    assert metrics.part("gfx_low_utilization_acc", 1)[0] == 21
    assert decode(blobs.table((1, 7), {})).part("gfx_low_utilization_acc", 1) == ()


@pytest.mark.parametrize("revision", [(1, 0), (1, 9), (1, 10), (2, 2), (3, 0), (255, 255)])
def test_of_an_unknown_layout_only_the_revision_is_read(revision: tuple[int, int]) -> None:
    metrics = decode(blobs.foreign(*revision))
    assert metrics.revision == revision
    assert not metrics.known
    assert metrics.number("temperature_hotspot") is None


def test_a_constant_zero_of_mi300s_throttle_status_is_not_taken_for_a_state() -> None:
    for revision in ((1, 4), (1, 5)):
        assert decode(blobs.table(revision, {"throttle_status": 0})).number("throttle_status") is None


@ANY_REVISION
def test_a_cut_table_is_an_error(revision: tuple[int, int]) -> None:
    whole = blobs.table(revision, {})
    for length in (0, 3, 4, len(whole) - 1):
        with pytest.raises(MetricsError, match="bytes"):
            decode(whole[:length])


def test_a_header_that_contradicts_its_layout_is_an_error() -> None:
    table = bytearray(blobs.table((1, 7), {}))
    table[:2] = (1664).to_bytes(2, "little")
    with pytest.raises(MetricsError, match=r"v1\.7 should have 2208 bytes"):
        decode(bytes(table))


@given(st.binary(max_size=4000))
def test_no_bytes_break_the_reader(data: bytes) -> None:
    try:
        metrics = decode(data)
    except MetricsError:
        return
    assert metrics.revision is not None


@given(st.sampled_from(REVISIONS), st.data())
def test_random_tables_invent_nothing(revision: tuple[int, int], data: st.DataObject) -> None:
    size = SIZES[revision]
    body = data.draw(st.binary(min_size=size - 4, max_size=size - 4))
    metrics = decode(size.to_bytes(2, "little") + bytes(revision) + body)
    for name, scalar in LAYOUTS[revision].fields.items():
        width = {"H": 2, "I": 4, "Q": 8}[scalar.code]
        for place, value in enumerate(told(metrics, name)):
            start = scalar.offset - 4 + place * width
            raw = int.from_bytes(body[start : start + width], "little")
            limit = 100 if any(word in name for word in PERCENTAGES) and "acc" not in name else (1 << 8 * width) - 2
            assert value == (raw if raw <= limit else None)


# What amdsmi makes of the table


def test_amdsmis_answer_reads_like_the_table() -> None:
    fields = worlds.mi300x_fields(0)
    answer: dict[str, object] = {name: list(v) if not isinstance(v, int) else v for name, v in fields.items()}
    answer |= {
        "common_header.structure_size": 2208,
        "common_header.format_revision": 1,
        "common_header.content_revision": 7,
        "xcp_stats.gfx_busy_inst": [[80, 81, "N/A"], [7]],
    }
    metrics = from_amdsmi(answer)
    assert metrics.revision == (1, 7)
    assert metrics.number("current_socket_power") == 255
    assert metrics.array("current_gfxclks") == tuple(2100 + n for n in range(8))
    assert metrics.part("gfx_busy_inst", 0) == (80, 81, None)
    assert metrics.part("gfx_busy_inst", 1) == (7,)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("current_socket_power", "N/A", None),
        ("current_socket_power", 0xFFFF, None),
        ("current_socket_power", 0xFFFFFFFF, None),
        ("current_socket_power", 0xFFFFFFFFFFFFFFFF, None),
        ("current_socket_power", 255, 255),
        ("prochot_residency_acc", 0xFFFF, 0xFFFF),
        ("prochot_residency_acc", 0xFFFFFFFF, None),
        ("energy_accumulator", 0xFFFFFFFF, 0xFFFFFFFF),
        ("energy_accumulator", 0xFFFFFFFFFFFFFFFF, None),
        ("indep_throttle_status", True, None),
        ("average_gfx_activity", 101, None),
        ("temperature_hotspot", -1, None),
        ("temperature_hotspot", None, None),
        ("temperature_hotspot", 50.5, None),
    ],
)
def test_a_sentinel_is_one_in_the_fields_own_width_or_wider(name: str, value: object, expected: int | None) -> None:
    assert from_amdsmi({name: value}).number(name) == expected


@given(
    st.dictionaries(st.text(max_size=20), st.recursive(st.none() | st.text() | st.integers(), st.lists, max_leaves=9))
)
def test_no_answer_of_amdsmi_breaks_the_reader(answer: dict[str, object]) -> None:
    from_amdsmi(answer)


def test_without_any_reading_amdsmis_answer_is_not_known() -> None:
    header = {"common_header.format_revision": 1, "common_header.content_revision": 9, "temperature_hotspot": "N/A"}
    metrics = from_amdsmi(header)
    assert metrics.revision == (1, 9)
    assert not metrics.known
