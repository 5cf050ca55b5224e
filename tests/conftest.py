"""What the tests need beyond Python packages, and what happens where it is missing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from typing import Final

import pytest

PROGRAMS: Final[Mapping[str, tuple[str, ...]]] = {"prometheus": ("prometheus", "promtool"), "gcc": ("gcc", "nm")}
"""Marker → programs that a test with it starts, itself or through a helper."""


# Before a test's own skip marks are looked at: with the variable set, none of them may hide a test.
@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test whose programs are missing. With REQUIRE_TEST_PROGRAMS=1 it fails: nothing passes by omission."""
    for marker, programs in PROGRAMS.items():
        missing = [program for program in programs if shutil.which(program) is None]
        if missing and item.get_closest_marker(marker):
            reason = f"not installed: {', '.join(missing)}. `make test` installs it where it can, as root"
            if os.environ.get("REQUIRE_TEST_PROGRAMS") == "1":
                pytest.fail(reason, pytrace=False)
            pytest.skip(reason)
