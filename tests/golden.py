"""Texts that are compared as a whole with a file under tests/golden/.

``UPDATE_GOLDEN=1`` rewrites the files: read the difference before you commit it, for it is what users will see.
"""

from __future__ import annotations

import difflib
import os
import re
from pathlib import Path

FOLDER = Path(__file__).with_name("golden")
VOLATILE = re.compile(
    r"(process_\w+|python_\w+|accel_(sample|fault_last)_timestamp_seconds|"
    r"accel_exporter_(build_info|\w*_seconds(_bucket|_sum|_count|_total)?))(\{.*\})? .*"
)
"""Samples that differ from run to run or from machine to machine: skipped on both sides."""


def assert_golden(name: str, text: str) -> None:
    """Fail with a difference unless ``text`` is what ``tests/golden/<name>`` holds, volatile lines apart."""
    path = FOLDER / name
    lines = _steady(text)
    if os.environ.get("UPDATE_GOLDEN") == "1":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes("".join(lines).encode())
        return
    if not path.exists():
        raise AssertionError(f"tests/golden/{name} is missing: write it by hand, or run once with UPDATE_GOLDEN=1")
    expected = _steady(path.read_bytes().decode())
    if lines != expected:
        difference = "".join(difflib.unified_diff(expected, lines, f"tests/golden/{name}", "now"))
        raise AssertionError(f"differs from its golden text (UPDATE_GOLDEN=1 takes it over):\n{difference}")


def _steady(text: str) -> list[str]:
    return [line + "\n" for line in text.removesuffix("\n").split("\n") if not VOLATILE.fullmatch(line)]
