from __future__ import annotations

from enum import IntEnum
from math import inf, nan

import pytest

from exporter.exposition_text import SLICE, Texts, number, own_families, render
from exporter.families import Block, Family, prefix
from exporter.model import MetricType, Number
from exporter.negotiation import Format
from exporter.schema import METRICS
from tests.exposition_readers import Read, documentation, family, read
from tests.golden import assert_golden
from tests.handmade import PUBLICATION, agent_text

TEXT, OPENMETRICS = Format.TEXT, Format.OPENMETRICS
FILES = {TEXT: "exposition.txt", OPENMETRICS: "exposition.openmetrics.txt"}


class Level(IntEnum):
    HIGH = 3


@pytest.mark.parametrize("format_", Format)
def test_a_publication_is_written_as_the_format_rules_want_it(format_: Format) -> None:
    body = render(PUBLICATION.families, format_, agent_text(format_))

    assert_golden(FILES[format_], body.decode())


@pytest.mark.parametrize("format_", Format)
def test_the_parser_reads_every_value_of_the_publication_back(format_: Format) -> None:
    found = read(render(PUBLICATION.families, format_, agent_text(format_)), format_)

    values = {sample.name: sample.value for sample in found if not sample.name.startswith("vendor_limit")}
    assert values["accel_temperature_celsius"] == "58.5"
    assert values["accel_energy_joules_total"] == "1234567.25"
    assert values["vendor_writes_total"] == "1.8446744073709552e+19"
    assert [sample.value for sample in found if sample.name == "vendor_limit"] == [
        "inf", "-inf", "-0.0", "1e+16", "1e-05", "-40.0",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        (0, "gauge", "0"),
        (-7, "gauge", "-7"),
        (2**64 - 1, "counter", "18446744073709551615"),
        (10**308, "gauge", str(10**308)),
        (10**400, "gauge", None),
        (-(10**400), "gauge", None),
        (1.0, "gauge", "1.0"),
        (0.1, "gauge", "0.1"),
        (1 / 3, "gauge", "0.3333333333333333"),
        (5e-324, "gauge", "5e-324"),
        (-0.0, "counter", "-0.0"),
        (inf, "gauge", "+Inf"),
        (-inf, "gauge", "-Inf"),
        (inf, "counter", "+Inf"),
        (nan, "gauge", None),
        (nan, "counter", None),
        (-1, "counter", None),
        (-0.5, "counter", None),
        (-inf, "counter", None),
        (True, "gauge", "1"),
        (Level.HIGH, "gauge", "3"),
    ],
)
def test_a_value_is_written_in_the_syntax_of_the_formats_or_left_out(
    value: Number, kind: MetricType, expected: str | None
) -> None:
    assert number(value, kind) == expected
    # The same alone, and beside values that would take the fast way.
    for others in ([], [1, 2.5]):
        values = [*others, value]
        samples = [((("at", str(position)),), other) for position, other in enumerate(values)]
        last = render([family("x", kind, samples)], TEXT, b"").decode().split("\n")[-2]
        line = f'x{{at="{len(others)}"}} '
        if expected is None:
            assert not last.startswith(line)
        else:
            assert last == line + expected


@pytest.mark.parametrize("format_", Format)
@pytest.mark.parametrize("values", [(), (nan, nan)])
def test_a_family_without_samples_has_no_header_either(format_: Format, values: tuple[float, ...]) -> None:
    idle = family("x", "gauge", [((("n", str(n)),), value) for n, value in enumerate(values)])

    assert b"x" not in render([idle, family("y", "gauge", [((), 1)])], format_, b"")


def test_an_exposition_without_any_series_is_not_an_empty_body() -> None:
    assert read(render([], TEXT, b""), TEXT) == []
    assert render([], TEXT, b"").startswith(b"# ")
    assert render([], OPENMETRICS, b"") == b"# EOF\n"


@pytest.mark.parametrize("agent", [b"", b"# EOF\n", b"# TYPE own gauge\nown 1\n", b"# TYPE own gauge\nown 1\n# EOF\n"])
def test_openmetrics_ends_once_whatever_the_agents_own_text_ends_with(agent: bytes) -> None:
    body = render([family("x", "gauge", [((), 1)])], OPENMETRICS, agent)

    assert body.count(b"# EOF") == 1
    assert body.endswith(b"\n# EOF\n")


def test_the_agents_own_text_may_lack_its_last_newline() -> None:
    assert render([], TEXT, b"# TYPE own gauge\nown 1") == b"# TYPE own gauge\nown 1\n"


# Names in OpenMetrics


@pytest.mark.parametrize(
    ("families", "headers"),
    [
        ([("a_total", "counter")], ["a counter"]),
        ([("a", "counter")], ["a unknown"]),
        ([("_total", "counter")], ["_total unknown"]),
        ([("a_total", "counter"), ("a", "gauge")], ["a_total unknown", "a gauge"]),
        ([("a", "gauge"), ("a_total", "counter")], ["a gauge", "a_total unknown"]),
        ([("a", "counter"), ("a_total", "counter")], ["a unknown", "a_total unknown"]),
        ([("a_created", "gauge"), ("a_total", "counter")], ["a_created gauge", "a_total unknown"]),
        ([("a_created_total", "counter"), ("a_total", "counter")], ["a_created counter", "a_total unknown"]),
        ([("a_total_total", "counter"), ("a_total", "counter")], ["a_total_total unknown", "a counter"]),
        # Endings that belong to other types are no matter for a gauge, as long as nothing else claims the name.
        ([("a_total", "gauge")], ["a_total gauge"]),
        ([("a_count", "gauge"), ("a", "gauge")], ["a_count gauge", "a gauge"]),
        ([("a_bucket", "gauge")], ["a_bucket gauge"]),
        ([("a_sum", "gauge"), ("a_total", "counter")], ["a_sum gauge", "a counter"]),
        ([("a_info", "gauge"), ("a", "gauge")], ["a_info gauge", "a gauge"]),
        ([("a_info_total", "counter")], ["a_info counter"]),
    ],
)
def test_no_two_families_claim_one_name_in_openmetrics(
    families: list[tuple[str, MetricType]], headers: list[str]
) -> None:
    body = render([family(name, kind, [((), 1)]) for name, kind in families], OPENMETRICS, b"")

    lines = body.decode().splitlines()
    assert [line.removeprefix("# TYPE ") for line in lines if line.startswith("# TYPE ")] == headers
    assert [sample.name for sample in read(body, OPENMETRICS)] == [name for name, _ in families]


@pytest.mark.parametrize("format_", Format)
def test_a_name_of_the_agents_own_is_not_given_to_another_family(format_: Format) -> None:
    agent = b"""\
# HELP own How long.
# TYPE own histogram
own_bucket{le="+Inf"} 1.0
own_count 1.0
own_sum 2.5
"""
    claimed = [family(name, "gauge", [((), 9)]) for name in ("own", "own_count", "own_bucket", "owned")]

    found = read(render(claimed, format_, agent), format_)

    assert [(sample.name, sample.value) for sample in found] == [
        ("owned", "9.0"), ("own_bucket", "1.0"), ("own_count", "1.0"), ("own_sum", "2.5"),
    ]  # fmt: skip


@pytest.mark.parametrize("format_", Format)
def test_of_two_families_with_one_name_the_first_stays(format_: Format) -> None:
    body = render([family("x", "gauge", [((), 1)]), family("x", "gauge", [((), 2)])], format_, b"")

    assert read(body, format_) == [Read("gauge", "x", (), "1.0")]


@pytest.mark.parametrize("format_", Format)
def test_of_two_series_with_the_same_labels_the_first_stays(format_: Format) -> None:
    a, b, c = (prefix("x", (("device", letter),)) for letter in "abc")
    doubled = Family("x", "gauge", "Help.", "raw", (Block((a, b, a), (1, 2, 3)), Block((b, c), (4, 5))))

    found = read(render([doubled], format_, b""), format_)

    assert [(sample.labels, sample.value) for sample in found] == [
        ((("device", "a"),), "1.0"), ((("device", "b"),), "2.0"), ((("device", "c"),), "5.0"),
    ]  # fmt: skip


def test_label_values_that_differ_only_in_what_cannot_be_written_do_not_repeat_a_series() -> None:
    strange = family("x", "gauge", [((("name", "\udc80"),), 1), ((("name", "\udc81"),), 2), ((("name", "\0"),), 3)])

    assert render([strange], TEXT, b"").decode().splitlines()[2:] == ['x{name="\ufffd"} 1']


# Headers


def test_help_is_one_line_without_spaces_around_it() -> None:
    body = render([family("x", "gauge", [((), 1)], help_='  a\\b\n"c" \0\udc80\n')], TEXT, b"")

    assert body.decode().splitlines()[0] == '# HELP x a\\\\b\\n"c" \ufffd\ufffd'


@pytest.mark.parametrize("format_", Format)
def test_an_empty_help_is_no_line(format_: Format) -> None:
    body = render([family("x", "gauge", [((), 1)], help_=" ")], format_, b"")

    assert body.startswith(b"# TYPE x gauge\n")
    assert documentation(body, format_) == {"x": ""}


def test_every_common_metric_is_valid_in_openmetrics_with_the_unit_that_its_name_ends_in() -> None:
    families = [
        family(metric.name, metric.type, [((), 1)], help_=metric.help, schema="common") for metric in METRICS.values()
    ]

    body = render(families, OPENMETRICS, b"").decode()

    assert [sample.name for sample in read(body.encode(), OPENMETRICS)] == list(METRICS)
    units = {line.split()[2]: line.split()[3] for line in body.splitlines() if line.startswith("# UNIT")}
    assert units["accel_energy_joules"] == "joules"
    assert units["accel_memory_read_bytes_per_second"] == "bytes_per_second"
    assert units["accel_sample_timestamp_seconds"] == "seconds"
    # A pure number has none.
    assert "accel_info" not in units
    assert "accel_pcie_replays" not in units


def test_a_raw_series_has_no_unit_line_even_under_a_common_name() -> None:
    assert b"UNIT" not in render([family("accel_power_watts", "gauge", [((), 1)])], OPENMETRICS, b"")


def test_text_0_0_4_knows_no_types_but_counter_and_gauge() -> None:
    body = render(PUBLICATION.families, TEXT, b"").decode()

    assert {line.split()[3] for line in body.splitlines() if line.startswith("# TYPE")} == {"counter", "gauge"}
    assert "# UNIT" not in body


def test_the_agents_own_text_is_taken_apart_with_every_name_that_it_claims() -> None:
    parts = own_families(agent_text(OPENMETRICS))

    restarts = frozenset({"accel_exporter_collector_restarts" + ending for ending in ("", "_total", "_created")})
    assert [part.names for part in parts] == [
        frozenset({"accel_exporter_collector_up"}), restarts, frozenset({"accel_exporter_build_info"}),
    ]  # fmt: skip
    assert b"".join(part.text for part in parts) + b"# EOF\n" == agent_text(OPENMETRICS)


# Texts of blocks


def _update(texts: Texts, *families: Family) -> tuple[dict[Block, bytes], int]:
    """The texts, and how often the work gave way to other tasks."""
    steps = texts.update(families)
    turns = 0
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            return dict(stop.value), turns
        turns += 1


def _blocks(count: int, size: int) -> Family:
    return Family(
        "x",
        "gauge",
        "Help.",
        "raw",
        tuple(
            Block(tuple(prefix("x", (("at", f"{block}/{n}"),)) for n in range(size)), tuple(range(size)))
            for block in range(count)
        ),
    )


def test_only_blocks_whose_values_changed_are_written_again() -> None:
    texts = Texts()
    before = _blocks(3, 2)
    first, _ = _update(texts, before)
    changed = Block(before.blocks[1].prefixes, (7, 8))
    after = Family("x", "gauge", "Help.", "raw", (before.blocks[0], changed, before.blocks[2]))

    second, _ = _update(texts, after)

    assert second[changed] == b'x{at="1/0"} 7\nx{at="1/1"} 8\n'
    assert all(second[block] is first[block] for block in (before.blocks[0], before.blocks[2]))
    assert before.blocks[1] not in second


def test_a_block_is_written_whole_once_the_series_that_it_repeated_is_gone() -> None:
    texts = Texts()
    line = prefix("x", ())
    first, second = Block((line,), (1,)), Block((line,), (2,))

    together, _ = _update(texts, Family("x", "gauge", "", "raw", (first, second)))
    alone, _ = _update(texts, Family("x", "gauge", "", "raw", (second,)))

    assert together == {first: b"x 1\n", second: b""}
    assert alone == {second: b"x 2\n"}


@pytest.mark.parametrize(("blocks", "size"), [(1, 5 * SLICE), (50, SLICE // 10)])
def test_writing_gives_way_after_every_slice_whether_blocks_are_big_or_small(blocks: int, size: int) -> None:
    texts = Texts()
    all_of_them = _blocks(blocks, size)

    _, turns = _update(texts, all_of_them)
    _, again = _update(texts, all_of_them)

    assert turns == 5
    assert again == 0


def test_a_block_in_several_slices_is_the_same_text_as_in_one() -> None:
    big = _blocks(1, 2 * SLICE + 1)

    lines = render([big], TEXT, b"").decode().splitlines()[2:]

    assert lines == [f'x{{at="0/{n}"}} {n}' for n in range(2 * SLICE + 1)]


def test_a_block_with_more_values_than_series_is_refused() -> None:
    with pytest.raises(ValueError, match="size"):
        render([Family("x", "gauge", "", "raw", (Block(("x ",), (1, 2)),))], TEXT, b"")
