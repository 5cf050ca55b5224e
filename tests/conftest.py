"""What the tests need beyond Python packages, and what happens where it is missing."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Mapping
from typing import Final

import pytest

PROGRAMS: Final[Mapping[str, tuple[str, ...]]] = {
    "prometheus": ("prometheus", "promtool"),
    "gcc": ("gcc", "nm"),
    "browser": ("chromium",),
    "alertmanager": ("prometheus-alertmanager",),
}
"""Marker → programs that a test with it starts, itself or through a helper."""
OPTIONAL: Final = ("browser", "alertmanager")
"""Of these programs nothing is asked where the distribution does not offer them."""


def pytest_configure() -> None:
    """Have SIGINT as a terminal has it: a shell starts background jobs with it ignored, and programs inherit that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


# Before a test's own skip marks are looked at: with the variable set, none of them may hide a test.
@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test whose programs are missing. With REQUIRE_TEST_PROGRAMS=1 it fails: nothing passes by omission."""
    for marker, programs in PROGRAMS.items():
        missing = [program for program in programs if shutil.which(program) is None]
        if missing and item.get_closest_marker(marker):
            reason = f"not installed: {', '.join(missing)}. `make test` installs it where it can, as root"
            required = marker not in OPTIONAL or all(offered(program) for program in missing)
            if os.environ.get("REQUIRE_TEST_PROGRAMS") == "1" and required:
                pytest.fail(reason, pytrace=False)
            pytest.skip(reason)


def offered(package: str) -> bool:
    """Whether apt knows the package, as it does on Debian once its lists are there."""
    apt = shutil.which("apt-cache")
    if apt is None:
        return False
    return subprocess.run([apt, "show", package], capture_output=True, check=False).returncode == 0
