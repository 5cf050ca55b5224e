"""What holds for any labels, values, help and names."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from exporter.exposition_text import render
from exporter.families import Block, Family, prefix
from exporter.model import MetricType, Number
from exporter.negotiation import Format
from tests.exposition_readers import Read, carried, documentation, family, read
from tests.handmade import PUBLICATION, agent_text

AWKWARD = '\\"\n\r\0\t {}=,#\x1c\x85\u2028\u2029\udc80\ud800\udfff\ufeffn\N{GRINNING FACE}'
ENDINGS = ("_total", "_created", "_count", "_sum", "_bucket", "_info", "_gcount")
texts = st.text(alphabet=st.sampled_from(AWKWARD) | st.characters(exclude_categories=()))
values: st.SearchStrategy[Number] = st.floats() | st.integers() | st.integers(min_value=-(10**400), max_value=10**400)
kinds: st.SearchStrategy[MetricType] = st.sampled_from(["gauge", "counter"])
formats = st.sampled_from(Format)


def cleaned(text: str) -> str:
    return "".join("\ufffd" if c == "\0" or 0xD800 <= ord(c) <= 0xDFFF else c for c in text)


@given(st.lists(st.tuples(texts, texts, values)), kinds, formats)
def test_any_labels_and_values_come_back_from_the_parser(
    rows: list[tuple[str, str, Number]], kind: MetricType, format_: Format
) -> None:
    samples = [((("pod", pod), ("model", model)), value) for pod, model, value in rows]
    expected: dict[tuple[str, str], Number] = {}
    for pod, model, value in rows:
        expected.setdefault((cleaned(pod), cleaned(model)), value)

    found = read(render([family("x_total", kind, samples)], format_, b""), format_)

    assert found == [
        Read(kind, "x_total", (("pod", pod), ("model", model)), repr(float(value)))
        for (pod, model), value in expected.items()
        if carried(value, kind)
    ]


@given(texts, formats)
def test_any_help_comes_back_without_the_spaces_around_it(help_: str, format_: Format) -> None:
    body = render([family("x", "gauge", [((), 1)], help_=help_)], format_, b"")

    assert documentation(body, format_) == {"x": cleaned(help_).strip()}


@given(
    st.lists(
        st.tuples(
            st.tuples(
                st.sampled_from(["a", "b"]),
                st.lists(st.sampled_from(ENDINGS), max_size=3),
            ).map(lambda parts: parts[0] + "".join(parts[1])),
            kinds,
        ),
        max_size=12,
        unique_by=lambda pair: pair[0],
    ),
    formats,
)
def test_any_names_make_an_exposition_in_which_every_sample_keeps_its_name(
    names: list[tuple[str, MetricType]], format_: Format
) -> None:
    families = [family(name, kind, [((), number)]) for number, (name, kind) in enumerate(names)]
    body = render(families, format_, b"")

    lines = [line for line in body.decode().splitlines() if not line.startswith("#")]
    assert lines == [f"{name} {number}" for number, (name, _) in enumerate(names)]
    # The text parser itself renames counters, so that two may become one: it only has to accept them.
    if format_ is Format.OPENMETRICS:
        assert [sample.name for sample in read(body, format_)] == [name for name, _ in names]
    else:
        assert len(documentation(body, format_)) <= len(names)


@given(st.lists(st.lists(st.integers(0, 5), max_size=4), max_size=4), formats)
def test_however_blocks_overlap_no_series_stands_twice_and_none_is_lost(
    layout: list[list[int]], format_: Format
) -> None:
    blocks = tuple(
        Block(tuple(prefix("x", (("n", str(n)),)) for n in row), tuple(at * 10 + n for n in row))
        for at, row in enumerate(layout)
    )

    found = read(render([Family("x", "gauge", "Help.", "raw", blocks)], format_, b""), format_)

    assert {sample.labels[0][1] for sample in found} == {str(n) for row in layout for n in row}


# Prometheus' own parsers


@pytest.mark.prometheus
def test_promtool_has_nothing_against_the_common_schema_as_text() -> None:
    common = [part for part in PUBLICATION.families if part.schema == "common"]

    done = subprocess.run(
        ["promtool", "check", "metrics"],
        input=render(common, Format.TEXT, agent_text(Format.TEXT)),
        capture_output=True,
        check=False,
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


@pytest.mark.prometheus
def test_promtool_reads_vendors_names_and_only_dislikes_them() -> None:
    done = subprocess.run(
        ["promtool", "check", "metrics"],
        input=render(PUBLICATION.families, Format.TEXT, agent_text(Format.TEXT)),
        capture_output=True,
        check=False,
    )

    # 3: findings about names. 1 would be an exposition that cannot be read.
    assert done.returncode == 3
    assert b"DCGM_FI_DEV_PCIE_REPLAY_COUNTER" in done.stderr


@pytest.mark.prometheus
def test_prometheus_stores_every_sample_of_the_openmetrics_body(tmp_path: Path) -> None:
    body = render(PUBLICATION.families, Format.OPENMETRICS, agent_text(Format.OPENMETRICS))
    # The import wants timestamps, which an exporter never sends.
    lines = [line if line.startswith("#") else f"{line} 1700000000" for line in body.decode().split("\n")[:-1]]
    source, target = tmp_path / "body", tmp_path / "data"
    source.write_text("\n".join(lines) + "\n", encoding="utf-8", newline="")

    subprocess.run(
        ["promtool", "tsdb", "create-blocks-from", "openmetrics", str(source), str(target)],
        check=True,
        capture_output=True,
    )
    # The dump looks for the log of samples that came after the import, and there are none.
    (target / "wal").mkdir()
    dump = subprocess.run(["promtool", "tsdb", "dump", str(target)], check=True, capture_output=True).stdout.decode()

    stored = [line.rsplit(" ", 2) for line in dump.splitlines()]
    found = read(body, Format.OPENMETRICS)
    assert sorted(float(value) for _, value, _ in stored) == sorted(float(sample.value) for sample in found)
    assert sorted(series.split('"')[1] for series, _, _ in stored) == sorted(sample.name for sample in found)


@pytest.mark.prometheus
@settings(max_examples=20, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(texts, values), max_size=20), kinds)
def test_promtool_reads_any_labels_and_values(rows: list[tuple[str, Number]], kind: MetricType) -> None:
    samples = [((("model", model),), value) for model, value in rows]
    body = render([family("accel_things_total", kind, samples)], Format.TEXT, b"")

    done = subprocess.run(["promtool", "check", "metrics"], input=body, capture_output=True, check=False)

    assert b"error" not in done.stderr
    assert done.returncode in ((0,) if kind == "counter" else (0, 3))
