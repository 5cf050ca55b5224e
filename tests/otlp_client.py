"""Sends one request over HTTP, as a test of a single answer wants it."""

from __future__ import annotations

from typing import Any

from exporter.config.otlp import OtlpEndpoint
from exporter.otlp.answer import Outcome
from exporter.otlp.http import HttpSender

BODY = b"\x0a\x00" * 500


async def sent(endpoint: OtlpEndpoint, body: bytes = BODY, times: int = 1) -> Outcome:
    """What becomes of a request."""
    sender = HttpSender(endpoint)
    try:
        for _ in range(times):
            outcome = await sender.send(sender.pack(body))
        return outcome
    finally:
        await sender.close()


def to(url: str, **settings: Any) -> OtlpEndpoint:
    return OtlpEndpoint(**{"endpoint": url, "timeout": 10.0, **settings})
