"""Tests whose programs are missing are left out with a reason, and fail where nothing may be left out."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

MARKED = """
import pytest

@pytest.mark.gcc
def test_compiles() -> None:
    raise AssertionError("this test must not run")
"""


def outcome(folder: Path, **environ: str) -> tuple[int, str]:
    """Run a marked test on a machine without any program."""
    conftest = Path(__file__).parents[1] / "conftest.py"
    (folder / "conftest.py").write_text(conftest.read_text())
    (folder / "test_marked.py").write_text(MARKED)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n    gcc: x\n")
    kept = {
        name: value for name, value in os.environ.items() if name not in ("REQUIRE_TEST_PROGRAMS", "PYTEST_ADDOPTS")
    }
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-ra", "-q", "-p", "no:cacheprovider", str(folder)],
        env={**kept, "PATH": str(folder), **environ},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


def test_a_test_without_its_programs_is_skipped_with_the_reason(tmp_path: Path) -> None:
    code, text = outcome(tmp_path)
    assert code == 0
    assert "1 skipped" in text
    assert "not installed: gcc, nm" in text


def test_where_programs_are_required_it_fails(tmp_path: Path) -> None:
    code, text = outcome(tmp_path, REQUIRE_TEST_PROGRAMS="1")
    assert code == 1
    assert "not installed: gcc, nm" in text
    assert "must not run" not in text
