"""The agent's log: whatever is said to it, it does not fill a disk, forge lines or steer a terminal."""

from __future__ import annotations

import json
import logging

import pytest

from exporter.logs import FOREIGN_LINES, OWN_LINES, Flood, JsonFormatter, TextFormatter


def record(name: str, text: str = "x", level: int = logging.ERROR) -> logging.LogRecord:
    return logging.LogRecord(name, level, __file__, 1, text, (), None)


@pytest.mark.parametrize(
    ("name", "most"), [("asyncio", FOREIGN_LINES), ("aiohttp.server", FOREIGN_LINES), ("exporter.agent", OWN_LINES)]
)
def test_a_flood_of_one_module_is_cut_and_told_in_the_next_minute(name: str, most: int) -> None:
    now = 100.0
    flood = Flood(lambda: now)
    passed = sum(flood.filter(record(name)) for _ in range(5000))
    assert passed == most
    assert flood.filter(record("exporter.process"))
    now = 160.0
    first, second = record(name), record(name)
    assert flood.filter(first)
    assert flood.filter(second)
    assert json.loads(JsonFormatter().format(first))["left_out"] == 5000 - most
    assert "left_out" not in json.loads(JsonFormatter().format(second))


def test_what_is_critical_passes_any_flood() -> None:
    flood = Flood(lambda: 100.0)
    for _ in range(5000):
        flood.filter(record("exporter.agent"))
    assert flood.filter(record("exporter.agent", level=logging.CRITICAL))


def test_a_message_cannot_forge_a_line_or_steer_a_terminal() -> None:
    line = TextFormatter().format(record("exporter", "a\nb\r\x1b[2Jc\x9b31m\0"))
    assert line.endswith(r"a\nb\x0d\x1b[2Jc\x9b31m\x00")
