"""What a body of the exposition holds, in each format, selection and coding."""

from __future__ import annotations

import asyncio
import builtins
import gzip
from typing import Any

import pytest

from exporter import exposition
from exporter.exposition import Body, BodyRequest, Exposition, compress, encodings, render
from exporter.exposition_text import SLICE
from exporter.families import Publication, Schema
from exporter.negotiation import Encoding, Format
from tests.exposition_readers import read
from tests.handmade import COMMON, OWN, PUBLICATION, RAW, agent_text, big, names

TEXT, OPENMETRICS = Format.TEXT, Format.OPENMETRICS


def once(request: BodyRequest, publication: Publication = PUBLICATION) -> Body:
    return asyncio.run(Exposition(agent_text).body(publication, request))


# What a body holds


@pytest.mark.parametrize("format_", Format)
@pytest.mark.parametrize(
    ("schema", "expected"), [(None, COMMON | RAW | OWN), ("common", COMMON | OWN), ("raw", RAW)]
)  # fmt: skip
def test_the_schema_chooses_the_families_and_whether_the_agents_own_stand_beside_them(
    format_: Format, schema: Schema | None, expected: set[str]
) -> None:
    body = once(BodyRequest(format=format_, schema=schema))

    assert names(body) == expected
    # A part of the exposition is valid alone.
    assert len(read(body.content, format_)) == sum(line[:1] != b"#" for line in body.content.splitlines())


def test_the_whole_body_is_what_render_writes() -> None:
    for format_ in Format:
        expected = render(PUBLICATION.families, format_, agent_text(format_))
        assert once(BodyRequest(format=format_)).content == expected


def test_a_family_has_the_same_type_in_every_selection() -> None:
    for wanted in (frozenset[str](), frozenset({"vendor_reads_total"})):
        body = once(BodyRequest(format=OPENMETRICS, schema="raw", names=wanted))
        assert b"# TYPE vendor_reads_total unknown\n" in body.content


@pytest.mark.parametrize("format_", Format)
@pytest.mark.parametrize(
    ("wanted", "schema", "expected"),
    [
        ({"accel_info"}, None, {"accel_info"}),
        ({"accel_energy_joules_total", "vendor_limit"}, None, {"accel_energy_joules_total", "vendor_limit"}),
        ({"accel_energy_joules"}, None, {"accel_energy_joules_total"}),
        ({"accel_info", "vendor_limit"}, "raw", {"vendor_limit"}),
        ({"accel_exporter_collector_up", "vendor_limit"}, "common", {"accel_exporter_collector_up"}),
        ({"accel_exporter_collector_up"}, "raw", set()),
        ({"accel_exporter_collector_restarts_total"}, None, {"accel_exporter_collector_restarts_total"}),
        ({"nothing"}, None, set()),
    ],
)
def test_names_choose_single_families(
    format_: Format, wanted: set[str], schema: Schema | None, expected: set[str]
) -> None:
    body = once(BodyRequest(format=format_, schema=schema, names=frozenset(wanted)))

    assert names(body) == expected
    read(body.content, format_)


def test_no_body_is_empty() -> None:
    nothing = Publication(1)

    assert once(BodyRequest(format=TEXT, schema="raw"), nothing).content
    assert once(BodyRequest(format=OPENMETRICS, schema="raw"), nothing).content == b"# EOF\n"
    assert names(once(BodyRequest(format=TEXT), nothing)) == OWN


@pytest.mark.parametrize(
    ("format_", "escaping", "expected"),
    [
        (TEXT, False, "text/plain; version=0.0.4; charset=utf-8"),
        (TEXT, True, "text/plain; version=0.0.4; charset=utf-8; escaping=underscores"),
        (OPENMETRICS, False, "application/openmetrics-text; version=1.0.0; charset=utf-8"),
        (OPENMETRICS, True, "application/openmetrics-text; version=1.0.0; charset=utf-8; escaping=underscores"),
    ],
)
def test_a_body_knows_its_content_type(format_: Format, escaping: bool, expected: str) -> None:
    assert once(BodyRequest(format=format_, escaping=escaping)).content_type == expected


# Compression


@pytest.mark.parametrize("wanted", [frozenset[str](), frozenset({"big"})])
@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_a_compressed_body_is_the_plain_one_after_decoding(encoding: Encoding, wanted: frozenset[str]) -> None:
    if encoding not in encodings():
        pytest.skip("the extra zstd is not installed")
    # More than one chunk of the compressor.
    publication = big(1, 30 * SLICE)
    plain = once(BodyRequest(format=OPENMETRICS, names=wanted), publication)
    body = once(BodyRequest(format=OPENMETRICS, names=wanted, encoding=encoding), publication)

    assert len(plain.content) > 2 * exposition.CHUNK
    assert (plain.encoding, body.encoding) == ("identity", encoding)
    assert len(body.content) < len(plain.content) / 2
    assert decoded(body.content, encoding) == plain.content


def decoded(content: bytes, encoding: Encoding) -> bytes:
    if encoding == "gzip":
        return gzip.decompress(content)
    import zstandard

    return zstandard.ZstdDecompressor().decompressobj().decompress(content)


def test_compressing_the_same_text_gives_the_same_bytes() -> None:
    assert compress([b"a", b"b"], "gzip") == compress([b"ab"], "gzip")


def test_without_its_module_zstd_is_not_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    genuine = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "zstandard":
            raise ModuleNotFoundError("No module named 'zstandard'", name=name)
        return genuine(name, *args, **kwargs)

    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    monkeypatch.setattr(builtins, "__import__", without)

    assert encodings() == ("gzip",)
    with pytest.raises(ModuleNotFoundError, match="zstandard"):
        compress([b"a"], "zstd")
