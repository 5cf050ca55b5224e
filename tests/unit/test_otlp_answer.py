"""The table of retries, and what receivers say in their answers."""

from __future__ import annotations

import email.utils

import pytest
from google.protobuf.any_pb2 import Any
from google.protobuf.duration_pb2 import Duration
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse

from exporter.otlp.answer import MAX_PAUSE, clean, of_http, retry_after, retry_info
from tests.otlp_answers import partial, status

PROTOBUF = {"Content-Type": "application/x-protobuf"}

# Status → what is done with the request. A redirect is not followed: it would take the headers elsewhere.
TABLE = {
    **dict.fromkeys((200, 202, 204), "success"),
    **dict.fromkeys((301, 302, 307, 308), "refused"),
    **dict.fromkeys((400, 401, 403, 404, 405, 408, 411, 413, 415, 422), "refused"),
    429: "retry",
    **dict.fromkeys((500, 501, 505), "refused"),
    **dict.fromkeys((502, 503, 504), "retry"),
}


@pytest.mark.parametrize("code", TABLE)
def test_only_what_is_temporary_is_sent_again(code: int) -> None:
    assert of_http(code, {}, b"").result == TABLE[code]


@pytest.mark.parametrize("code", [429, 503])
@pytest.mark.parametrize(("header", "pause"), [("7", 7.0), ("0", 0.0), ("", None), ("soon", None), ("-3", None)])
def test_a_receiver_says_how_long_to_wait(code: int, header: str, pause: float | None) -> None:
    assert of_http(code, {"Retry-After": header}, b"").pause == pause


NOW = 1_800_000_000.0


@pytest.mark.parametrize(
    ("header", "pause"),
    [
        (email.utils.formatdate(NOW + 30, usegmt=True), 30.0),
        (email.utils.formatdate(NOW - 30, usegmt=True), 0.0),
        (email.utils.formatdate(NOW + 1e6, usegmt=True), MAX_PAUSE),
        ("99999999999999999999", MAX_PAUSE),
        (" 12 ", 12.0),
        ("1.5", None),
        ("٣", None),
    ],
)
def test_the_wait_is_a_number_of_seconds_or_a_date_and_has_a_bound(header: str, pause: float | None) -> None:
    assert retry_after(header, NOW) == pause


def test_a_request_that_was_taken_in_part_is_not_sent_again_and_its_points_are_counted() -> None:
    outcome = of_http(200, PROTOBUF, partial(7, "too old"))
    assert (outcome.result, outcome.rejected) == ("partial", 7)
    assert "too old" in outcome.message


def test_a_message_without_rejected_points_is_a_warning() -> None:
    outcome = of_http(200, PROTOBUF, partial(0, "slow down"))
    assert (outcome.result, outcome.rejected, outcome.message) == ("success", 0, "slow down")


def test_json_is_understood_too() -> None:
    body = b'{"partialSuccess":{"rejectedDataPoints":"3","errorMessage":"no"}}'
    outcome = of_http(200, {"Content-Type": "application/json; charset=utf-8"}, body)
    assert (outcome.result, outcome.rejected) == ("partial", 3)


def test_an_empty_response_is_success_without_a_word() -> None:
    assert of_http(200, PROTOBUF, ExportMetricsServiceResponse().SerializeToString()).message == ""


def test_a_web_page_has_taken_nothing_whatever_its_status() -> None:
    outcome = of_http(200, {"Content-Type": "text/html; charset=utf-8"}, b"<html>Welcome</html>")
    assert outcome.result == "refused"
    assert "path" in outcome.message


@pytest.mark.parametrize(
    ("content_type", "body"),
    [("text/plain", b"OK"), ("", b"OK"), ("application/x-protobuf", b"\xff\xff"), ("application/json", b"{")],
)
def test_an_answer_that_cannot_be_read_is_success_with_a_warning(content_type: str, body: bytes) -> None:
    outcome = of_http(200, {"Content-Type": content_type}, body)
    assert outcome.result == "success"
    assert outcome.message


def test_what_the_receiver_says_is_told() -> None:
    assert "unknown field" in of_http(400, PROTOBUF, status("unknown field")).message
    assert "bad thing" in of_http(400, {"Content-Type": "text/plain"}, b"bad\nthing").message
    assert "html" not in of_http(502, {"Content-Type": "text/html"}, b"<html>").message
    assert "headers" in of_http(401, {}, b"").message
    assert "http://other/" in of_http(302, {"Location": "http://other/"}, b"").message


def details(*messages: tuple[str, bytes]) -> bytes:
    """A Status of gRPC with these details: code = 1, message = 2, details = 3."""
    found = b"\x08\x08\x12\x02no"
    for url, value in messages:
        packed = Any(type_url=url, value=value).SerializeToString()
        found += b"\x1a" + bytes((len(packed),)) + packed
    return found


def delay(seconds: int, nanos: int = 0) -> bytes:
    packed = Duration(seconds=seconds, nanos=nanos).SerializeToString()
    return b"\x0a" + bytes((len(packed),)) + packed


RETRY_INFO = "type.googleapis.com/google.rpc.RetryInfo"


@pytest.mark.parametrize(
    ("data", "pause"),
    [
        (details((RETRY_INFO, delay(3, 500_000_000))), 3.5),
        (details(("type.googleapis.com/google.rpc.Help", b""), (RETRY_INFO, delay(2))), 2.0),
        (details((RETRY_INFO, b"")), 0.0),
        (details((RETRY_INFO, delay(10**9))), MAX_PAUSE),
        (details((RETRY_INFO, delay(-5))), 0.0),
        (details(("type.googleapis.com/google.rpc.Help", delay(2))), None),
        (details(), None),
        (b"", None),
        (b"\x1a\xff", None),
    ],
)
def test_grpcs_details_say_how_long_to_wait(data: bytes, pause: float | None) -> None:
    assert retry_info(data) == pause


@given(st.integers(100, 599), st.text(max_size=40), st.text(max_size=40), st.binary(max_size=200))
def test_no_answer_breaks_the_sender(code: int, content_type: str, header: str, body: bytes) -> None:
    for kind in (content_type, "application/x-protobuf", "application/json"):
        outcome = of_http(code, {"Content-Type": kind, "Retry-After": header}, body)
        assert outcome.message.isprintable()
        assert len(outcome.message) < 1000
        assert outcome.pause is None or 0 <= outcome.pause <= MAX_PAUSE
        assert outcome.rejected >= 0


@given(st.binary(max_size=200))
def test_no_details_break_the_sender(data: bytes) -> None:
    pause = retry_info(data)
    assert pause is None or 0 <= pause <= MAX_PAUSE


def test_words_for_the_log_are_one_short_printable_line() -> None:
    assert clean("a\r\nb\x1b[31m" + "x" * 1000).startswith("a b\ufffd[31mx")
    assert len(clean("x" * 1000)) < 400
