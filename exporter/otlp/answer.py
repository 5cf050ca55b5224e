"""What a receiver's answer means: taken, taken in part, to be sent again, or refused for good.

The rules: https://opentelemetry.io/docs/specs/otlp/#otlphttp-response and #failures. Only what is temporary is sent
again: a request that a receiver cannot read will not be readable a second later.
"""

from __future__ import annotations

import email.utils
import time
from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from collectors.protobuf import Malformed, Value, fields, signed, text

Result = Literal["success", "partial", "retry", "refused"]

MAX_ANSWER: Final = 4 * 1024 * 1024
"""Bytes of an answer that are read."""
MAX_PAUSE: Final = 3600.0
"""Seconds that a receiver may ask to wait; more is taken as so much."""
TEMPORARY: Final = frozenset({429, 502, 503, 504})
_LONGEST: Final = 300
_MOST: Final = 2**63 - 1
"""The largest number of rejected points that OTLP's message can hold."""
_PROTOBUF: Final = "application/x-protobuf"
_JSON: Final = "application/json"


class Outcome(msgspec.Struct, frozen=True):
    """What became of a request. ``partial`` was taken, but for ``rejected`` points, and is not sent again."""

    result: Result
    message: str = ""
    """For the log: short, printable, and without secrets of ours. With success: a warning."""
    rejected: int = 0
    pause: float | None = None
    """Seconds that the receiver asks to wait; None: as the sender sees fit."""


SUCCESS: Final = Outcome("success")


class _JsonPartial(msgspec.Struct, frozen=True, rename="camel"):
    rejected_data_points: int | str = 0
    error_message: str = ""


class _JsonAnswer(msgspec.Struct, frozen=True, rename="camel"):
    partial_success: _JsonPartial = _JsonPartial()


def of_http(status: int, headers: Mapping[str, str], body: bytes, *, whole: bool = True) -> Outcome:
    """``whole``: the body was read to its end."""
    content_type = headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if 200 <= status < 300:
        return _taken(content_type, body, whole=whole)
    words = f"HTTP status {status}"
    if 300 <= status < 400:
        return Outcome("refused", f"{words}: redirected to {clean(headers.get('Location', ''))}; set that as endpoint")
    if detail := _detail(content_type, body):
        words += f": {detail}"
    if status in TEMPORARY:
        return Outcome("retry", words, pause=retry_after(headers.get("Retry-After", ""), time.time()))
    hints = {401: "check the headers", 403: "check the headers", 404: "check the endpoint's path", 405: "no OTLP here?"}
    hint = f" ({hints[status]})" if status in hints else ""
    return Outcome("refused", words + hint)


def _taken(content_type: str, body: bytes, *, whole: bool) -> Outcome:
    if not body:
        return SUCCESS
    if content_type == "text/html":
        # A web page answers everything with 200: the numbers are lost, and nobody would know.
        return Outcome("refused", "a web page answered: check host, port and path of the endpoint")
    if not whole:
        return Outcome("success", f"the answer broke off, or has more than {MAX_ANSWER} bytes, and was not read")
    try:
        if content_type == _JSON:
            partial = msgspec.json.decode(body, type=_JsonAnswer).partial_success
            return _partial(int(partial.rejected_data_points), partial.error_message)
        if content_type == _PROTOBUF:
            return of_response(body)
    except (Malformed, msgspec.MsgspecError, ValueError, RecursionError) as error:
        return Outcome("success", f"the answer cannot be read: {clean(str(error))}")
    return Outcome("success", f"the answer is of type {clean(content_type) or 'nothing'}: is this an OTLP receiver?")


def of_response(body: bytes) -> Outcome:
    """An ExportMetricsServiceResponse (partial_success = 1: rejected_data_points = 1, error_message = 2).

    Raises Malformed.
    """
    rejected, message = 0, ""
    for number, _, value in fields(body):
        if number != 1 or not isinstance(value, bytes):
            continue
        for inner, _, told in fields(value):
            if inner == 1 and isinstance(told, int):
                rejected = signed(told)
            elif inner == 2 and isinstance(told, bytes):
                message = text(told)
    return _partial(rejected, message)


def _partial(rejected: int, message: str) -> Outcome:
    if rejected > 0:
        # JSON has no bound, and a number beyond all floats could not be counted.
        rejected = min(rejected, _MOST)
        return Outcome("partial", f"{rejected} points were rejected: {clean(message)}", rejected=rejected)
    # Without rejected points the message is a warning.
    return Outcome("success", clean(message))


def _detail(content_type: str, body: bytes) -> str:
    """What the receiver says went wrong: a Status (message = 2), else the text."""
    if content_type == _PROTOBUF:
        try:
            return clean(next((text(v) for n, _, v in fields(body) if n == 2 and isinstance(v, bytes)), ""))
        except Malformed:
            return ""
    return "" if content_type == "text/html" else clean(body[: 4 * _LONGEST].decode("utf-8", "replace"))


def retry_after(value: str, now: float) -> float | None:
    """Seconds, from a number of them or an HTTP date; None for neither. ``now`` in Unix seconds."""
    value = value.strip()
    if value.isascii() and value.isdigit():
        return min(float(value[:9]), MAX_PAUSE)
    try:
        moment = email.utils.parsedate_to_datetime(value).timestamp()
    except (ValueError, OverflowError):
        return None
    return min(max(0.0, moment - now), MAX_PAUSE)


def retry_info(details: bytes) -> float | None:
    """The pause that gRPC's status details ask for, in seconds; None where they ask for none.

    Status (details = 3) holds Any (type_url = 1, value = 2), one of them RetryInfo (retry_delay = 1: seconds = 1,
    nanos = 2).
    """
    try:
        for _, _, detail in (found for found in fields(details) if found[0] == 3):
            parts = _parts(detail)
            if text(_bytes(parts.get(1))).endswith(".rpc.RetryInfo"):
                delay = _parts(_parts(parts.get(2)).get(1))
                seconds, nanos = delay.get(1, 0), delay.get(2, 0)
                if isinstance(seconds, int) and isinstance(nanos, int):
                    return min(max(0.0, signed(seconds) + signed(nanos) / 1e9), MAX_PAUSE)
    except Malformed:
        return None
    return None


def _parts(message: Value | None) -> dict[int, Value]:
    return {number: value for number, _, value in fields(_bytes(message))}


def _bytes(value: Value | None) -> bytes:
    return value if isinstance(value, bytes) else b""


def clean(words: str) -> str:
    """One short printable line."""
    line = " ".join(words.split())
    printable = "".join(character if character.isprintable() else "\ufffd" for character in line)
    return printable if len(printable) <= _LONGEST else printable[:_LONGEST] + "…"
