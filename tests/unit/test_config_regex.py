"""Regular expressions of the configuration end soon, whatever text a workload's owner has made up."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from exporter.attribution.claims import Pod
from exporter.attribution.identity import identifier
from exporter.config.attribution import Attribution, TenantSource
from exporter.config.regex import MAX_TEXT, is_quick
from exporter.model import Workload


@pytest.mark.parametrize(
    "pattern",
    [
        "",
        "^team-(?P<tenant>.+)$",
        "[a-z]+-[a-z]+-[a-z]+",
        r"^(\w+)-(\w+)-(\w+)-(\w+)$",
        "(?:team|org)-(?P<tenant>[^-]+)",
        "^(?:[^/]+/){2}(?P<tenant>[^/]+)",
        "(?i)h100|a100|mi300x|gaudi ?3",
        "(?x) a + b  # blanks",
        "a{2,5}b?c*?",
        r"\bNVIDIA (H100|H200)\b",
    ],
)
def test_what_people_write_is_taken(pattern: str) -> None:
    assert is_quick(pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        pytest.param("(a+)+$", id="a repetition in a repetition"),
        pytest.param("(a*)*b", id="the same of nothing"),
        pytest.param("(?:a{1,9}){1,9}b", id="the same with bounds"),
        pytest.param("(a|aa)+$", id="an alternative in a repetition"),
        pytest.param("(a?)+$", id="an option in a repetition"),
        pytest.param("((?:ab|a)c?)*$", id="deeper"),
        pytest.param("(?:a?){64}", id="options, repeated"),
        pytest.param("a?" * 64, id="options side by side"),
        pytest.param("(a|a)" * 30, id="alternatives side by side"),
        pytest.param(".*" * 8 + "x", id="repetitions side by side"),
        pytest.param("^" + ".*" * 8 + "x", id="the same from the start"),
        pytest.param("(?m)^.*a.*b.*c.*d", id="the start of any line is no start"),
        pytest.param(r"(?:\b){1000000}", id="nothing, a million times"),
        pytest.param(r"((\b){900}){900}", id="the same in two steps"),
        pytest.param("(?=a+)+b", id="what follows"),
        pytest.param("(?<!a)b", id="what precedes"),
        pytest.param(r"(a+)\1+", id="a reference to a group"),
        pytest.param("(a)(?(1)b|c)", id="a condition"),
        pytest.param("(", id="no expression"),
        pytest.param("a{99999999999}", id="a number too large"),
    ],
)
def test_what_could_take_long_is_refused(pattern: str) -> None:
    assert not is_quick(pattern)


@pytest.mark.parametrize("pattern", [".*.*.*x", "^.*.*.*.*x", "(a|a)?" * 3 + "a*a*x", r"\w*\w*\d*$x"])
def test_the_worst_that_is_taken_ends(pattern: str) -> None:
    """In a process of its own: Python's engine cannot be stopped. It has a hundred times as long as it needs."""
    assert is_quick(pattern)
    subprocess.run(
        [sys.executable, "-c", f"import re; re.search({pattern!r}, 'a' * {MAX_TEXT})"], check=True, timeout=30
    )


PIECES = ["a", "b", ".", "[ab]", "(", ")", "(?:", "|", "*", "+", "?", "{2}", "{1,3}", "^", "$"]


@given(st.lists(st.sampled_from(PIECES), max_size=9).map("".join))
def test_expressions_that_are_taken_are_those_of_python(pattern: str) -> None:
    assume(is_quick(pattern))
    re.search(pattern, "ab" * (MAX_TEXT // 2))


def test_a_tenant_is_looked_for_in_a_bounded_part_of_an_annotation() -> None:
    config = Attribution(tenant_from=(TenantSource(source="pod_annotation", key="k", pattern="(?P<tenant>[a-z]+)$"),))
    workload = Workload(namespace="ns", pod="p")

    def tenant(value: str) -> str:
        return identifier(config, dict)(workload, Pod(namespace="ns", name="p", annotations={"k": value})).tenant

    assert tenant("1" * (MAX_TEXT - 3) + "oil") == "oil"
    assert tenant("1" * MAX_TEXT + "oil") == ""
