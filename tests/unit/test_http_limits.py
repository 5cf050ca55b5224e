from __future__ import annotations

import pytest

from exporter.http.limits import oversized

LINE = b"GET /metrics HTTP/1.1"


@pytest.mark.parametrize(
    ("head", "limit", "reason"),
    [
        (LINE, len(LINE), None),
        (LINE, len(LINE) - 1, "line_size"),
        (LINE + b"\r\n\r\n", len(LINE), None),
        (LINE + b"\r\n\r\n", len(LINE) - 1, "line_size"),
        (LINE + b"\n" + b"A: b\n" * 5, 25, None),
        (LINE + b"\n" + b"A: b\n" * 5, 24, "header_size"),
        (LINE + b"\r\n" + b"A" * 25, 25, None),
        (LINE + b"\r\n" + b"A" * 26, 25, "header_size"),
        (b"", 1, None),
    ],
)
def test_the_request_line_and_the_headers_each_have_the_limit(head: bytes, limit: int, reason: str | None) -> None:
    assert oversized(head, limit) == reason
    assert oversized(bytearray(head), limit) == reason
