from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.negotiation import Encoding, Format, Negotiated, encoding, negotiate

TEXT, OPENMETRICS = Format.TEXT, Format.OPENMETRICS
PROMETHEUS_3 = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,"
    "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,"
    "text/plain;version=0.0.4;q=0.3,"
    "*/*;q=0.2"
)
PROMETHEUS_2_42 = (
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)
PROTOBUF = (
    "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;"
    "escaping=allow-utf-8;q=0.7,"
)


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        (PROMETHEUS_3, "application/openmetrics-text; version=1.0.0; charset=utf-8; escaping=underscores"),
        (PROTOBUF + PROMETHEUS_3, "application/openmetrics-text; version=1.0.0; charset=utf-8; escaping=underscores"),
        (PROMETHEUS_2_42, "application/openmetrics-text; version=1.0.0; charset=utf-8"),
        (
            "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.6,text/plain;version=0.0.4;q=0.5,*/*;q=0.2",
            "text/plain; version=0.0.4; charset=utf-8; escaping=underscores",
        ),
        ("text/plain;version=0.0.4;q=0.3", "text/plain; version=0.0.4; charset=utf-8"),
        ("*/*", "text/plain; version=0.0.4; charset=utf-8"),
        (None, "text/plain; version=0.0.4; charset=utf-8"),
    ],
    ids=["prometheus 3", "with native histograms", "prometheus 2.42", "text 1.0.0 first", "text 0.0.4", "curl", "none"],
)
def test_each_scraper_gets_exactly_the_content_type_that_it_can_read(accept: str | None, content_type: str) -> None:
    assert negotiate(accept).content_type == content_type


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        # Versions
        ("application/openmetrics-text", OPENMETRICS),
        ("application/openmetrics-text; version=1.0.0; charset=utf-8", OPENMETRICS),
        ("application/openmetrics-text;version=0.0.1,text/plain;version=0.0.4;q=0.5", OPENMETRICS),
        ('application/openmetrics-text;version="1.0.0"', OPENMETRICS),
        ("Application/OpenMetrics-Text;Version=1.0.0", OPENMETRICS),
        ("application/openmetrics-text;version=2.0.0", TEXT),
        ("application/openmetrics-text;version=2.0.0,text/plain;q=0.1", TEXT),
        ("text/plain;version=1.0.0", TEXT),
        # Qualities
        ("application/openmetrics-text;q=0.3,text/plain;q=0.7", TEXT),
        ("text/plain;q=0.3,application/openmetrics-text;q=0.7", OPENMETRICS),
        ("text/plain;q=0.999,application/openmetrics-text;q=1.000", OPENMETRICS),
        ("application/openmetrics-text;q=0,*/*;q=0.5", TEXT),
        ("text/plain;q=0,*/*;q=0.5", OPENMETRICS),
        ("application/openmetrics-text;q=0", TEXT),
        ("text/plain;q=0.2,*/*;q=0.9", OPENMETRICS),
        # Ties: the more specific, then the first, then text
        ("application/openmetrics-text,text/plain", OPENMETRICS),
        ("text/plain,application/openmetrics-text", TEXT),
        ("text/plain,application/openmetrics-text;version=1.0.0", OPENMETRICS),
        ("*/*,application/openmetrics-text", OPENMETRICS),
        # Wildcards
        ("text/*", TEXT),
        ("application/*", OPENMETRICS),
        ("text/*;q=0.1,application/*;q=0.9", OPENMETRICS),
        # Browsers, and others that know neither format
        ("text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8", TEXT),
        ("text/html, image/gif, image/jpeg, *; q=.2, */*; q=.2", TEXT),
        ("application/json", TEXT),
        # Malformed
        ("", TEXT),
        (",;,", TEXT),
        ("application/openmetrics-text;q=high", TEXT),
        ("application/openmetrics-text;q=1.5", TEXT),
        ("application/openmetrics-text;q=-1", TEXT),
        ("application/openmetrics-text;q=nan", TEXT),
        ("application/openmetrics-text version=1.0.0", TEXT),
        ('application/openmetrics-text;version="1.0.0', OPENMETRICS),
        ("openmetrics", TEXT),
        ("gar bage,application/openmetrics-text;version=1.0.0", OPENMETRICS),
        ('text/plain;note="a,application/openmetrics-text"', TEXT),
    ],
)
def test_the_format_follows_the_accept_header(accept: str, expected: Format) -> None:
    assert negotiate(accept).format is expected


@pytest.mark.parametrize(
    ("accept", "escaping"),
    [
        ("application/openmetrics-text;version=1.0.0;escaping=values,text/plain;q=0.5", True),
        ("application/openmetrics-text;version=1.0.0,text/plain;escaping=values;q=0.5", False),
        ("text/plain;escaping=dots", True),
        ("*/*;escaping=dots", True),
    ],
)
def test_only_an_escaping_parameter_of_the_chosen_type_is_answered(accept: str, escaping: bool) -> None:
    assert negotiate(accept).escaping is escaping


@pytest.mark.parametrize(
    ("accept_encoding", "expected"),
    [
        (None, "identity"),
        ("", "identity"),
        ("gzip", "gzip"),
        ("GZIP", "gzip"),
        ("x-gzip", "gzip"),
        ("gzip, deflate, br, zstd", "gzip"),
        ("gzip;q=0.5", "gzip"),
        ("gzip;q=0", "identity"),
        ("gzip;q=oops", "identity"),
        ("br", "identity"),
        ("*", "gzip"),
        ("*;q=0", "identity"),
        ("gzip;q=0, *", "identity"),
        ("identity", "identity"),
        ("identity, gzip", "gzip"),
        ("identity;q=1, gzip;q=0.5", "identity"),
        ("identity;q=0, gzip;q=0.5", "gzip"),
        ("zstd", "zstd"),
        ("zstd, gzip", "zstd"),
        ("gzip;q=0.8, zstd;q=0.9", "zstd"),
        ("gzip;q=0.9, zstd;q=0.8", "gzip"),
        ("zstd;q=0, *", "gzip"),
    ],
)
def test_the_coding_follows_the_accept_encoding_header(accept_encoding: str | None, expected: Encoding) -> None:
    assert encoding(accept_encoding, ("gzip", "zstd")) == expected


@pytest.mark.parametrize(("asked", "expected"), [("zstd", "identity"), ("zstd, gzip;q=0.1", "gzip")])
def test_zstd_is_not_promised_where_it_is_not_installed(asked: str, expected: Encoding) -> None:
    assert encoding(asked, ("gzip",)) == expected


@given(st.text(alphabet=st.sampled_from('*/,;="\\q 01.atextpln') | st.characters()))
def test_no_header_raises(header: str) -> None:
    assert isinstance(negotiate(header), Negotiated)
    assert encoding(header, ("gzip", "zstd")) in ("identity", "gzip", "zstd")


@pytest.mark.parametrize("unit", ['"', '"\\', '\\"', " ", ";", " ;", ",", "a", "a/", 'a/b;c="', "a/b; ", "a/b;q=1,"])
def test_a_hostile_header_costs_no_more_than_its_length(unit: str) -> None:
    header = "text/plain;a=" + unit * (64_000 // len(unit))
    began = time.process_time()
    negotiate(header)
    # In quadratic time this would be minutes.
    assert time.process_time() - began < 2
