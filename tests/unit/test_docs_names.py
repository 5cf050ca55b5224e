"""What any page names exists: links, metrics, keys of tables, commands and flags."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec
import pytest

from exporter import catalogue as tables
from exporter.cli import _parser
from exporter.docs.metrics import own_metrics
from exporter.schema import METRICS
from tests.unit.test_docs import of
from tests.unit.test_repository import FILES, ROOT

PAGES = [path for path in FILES if path.suffix == ".md"]
ANY_PAGE = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def without_code(text: str) -> str:
    text = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"(`+)(?!`).+?(?<!`)\1(?!`)", "", text)


def anchors(page: Path) -> set[str]:
    """What a forge makes of headings: lower case, no punctuation, spaces as hyphens, repeated ones counted."""
    found: dict[str, int] = {}
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    for heading in re.findall(r"^#{1,6} +(.+?) *#*$", text, flags=re.MULTILINE):
        shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
        slug = re.sub(r"[^\w\- ]", "", shown.lower()).replace(" ", "-")
        found[slug] = found.get(slug, 0) + 1
    return {slug if not n else f"{slug}-{n}" for slug, count in found.items() for n in range(count)}


def dead_links(page: Path) -> Iterator[str]:
    for target in re.findall(r"\]\(([^)\s]+)[^)]*\)", without_code(page.read_text())):
        if "://" in target or target.startswith("mailto:"):
            continue
        path, _, anchor = target.partition("#")
        file = page.parent / path if path else page
        if not file.exists() or (anchor and (file.suffix != ".md" or anchor not in anchors(file))):
            yield target


@ANY_PAGE
def test_every_link_and_anchor_of_a_page_leads_somewhere(page: Path) -> None:
    assert list(dead_links(page)) == []


def test_a_dead_link_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A `title`, twice\n## A title twice\n[ok](#a-title-twice-1) [`x`](#a-title-twice) [no](#other)\n"
        "[gone](gone.md) `[code](no.md)` [here](page.md#a-title-twice)\n"
    )
    assert list(dead_links(page)) == ["#other", "gone.md"]


def known_names() -> set[str]:
    """Names of metrics, and of samples where these are others."""
    suffixes = {"histogram": ("_bucket", "_sum", "_count")}
    own = {name + suffix for name, kind, _, _ in own_metrics() for suffix in ("", *suffixes.get(kind, ()))}
    return own | set(METRICS)


KNOWN = known_names()
BRACES = re.compile(r"\{(\w+(?:,\w+)+)\}")


def spelled_out(shorthand: str) -> list[str]:
    """Patterns of a name such as accel_pcie_{received,sent}_… ."""
    found = BRACES.search(shorthand)
    if found is None:
        return [shorthand.replace("…", "*")]
    before, after = shorthand[: found.start()], shorthand[found.end() :]
    return [full for part in found[1].split(",") for full in spelled_out(before + part + after)]


def unknown(shorthand: str) -> list[str]:
    return [name for name in spelled_out(shorthand) if not any(fnmatchcase(known, name) for known in KNOWN)]


@ANY_PAGE
def test_every_metric_that_a_page_names_exists(page: Path) -> None:
    # The group of entry points has such a name, too, and no metric has a dot.
    text = page.read_text().replace("accel_exporter.collectors", "")
    named = re.findall(r"(?<![\w./:-])accel_(?:[a-z0-9_*…]|\{\w+(?:,\w+)+\})*", text)
    assert sorted({name for shorthand in named if shorthand != "accel_" for name in unknown(shorthand)}) == []


def test_a_metric_that_does_not_exist_is_found() -> None:
    assert unknown("accel_power_watt") == ["accel_power_watt"]
    assert unknown("accel_pcie_{received,dropped}_bytes_…") == ["accel_pcie_dropped_bytes_*"]


def test_the_readmes_overview_names_metrics_that_exist() -> None:
    rows = re.findall(r"^\| [^|`]+ \| (`.*) \|$", of((ROOT / "README.md").read_text(), "## What you get"), re.MULTILINE)
    names = [name for row in rows for name in re.findall(r"`([^`]+)`", row)]
    assert len(names) > 20
    full = [name if name.startswith("accel_") else "accel_" + name for name in names]
    assert [name for shorthand in full for name in unknown(shorthand)] == []


TABLES = (
    tables.Collector, tables.Detect, tables.PciRule, tables.HealthRule, tables.DoctorCheck, tables.Option,
    tables.Bridge, tables.Series, tables.Feed, tables.FaultClass,
)  # fmt: skip


@pytest.mark.parametrize("table", TABLES, ids=lambda table: str(table.__name__))
def test_contributing_names_every_key_of_a_vendors_tables(table: type[msgspec.Struct]) -> None:
    spans = re.findall(r"`([^`]+)`", (ROOT / "CONTRIBUTING.md").read_text())
    named = {re.sub(r"<\w+>|[\[\].]", "", span) for span in spans}
    assert [name for name in table.__struct_encode_fields__ if name not in named] == []


def commands() -> dict[str, argparse.ArgumentParser]:
    (subparsers,) = (action for action in _parser()._actions if isinstance(action, argparse._SubParsersAction))
    return dict(subparsers.choices)


def wrong_arguments(command: str, arguments: list[str]) -> Iterator[str]:
    """Flags that the command has not, and values that a flag does not take."""
    options = commands()[command]._option_string_actions
    for position, argument in enumerate(arguments):
        flag, equals, value = argument.partition("=")
        if not flag.startswith("-"):
            continue
        if flag not in options:
            yield f"{command} {flag}"
        elif options[flag].choices is not None:
            given = value if equals else "".join(arguments[position + 1 : position + 2])
            if given not in (options[flag].choices or ()):
                yield f"{command} {flag} {given}"


def wrong_commands(text: str) -> Iterator[str]:
    """Of code spans and indented or fenced blocks; a flag in the row of a command is one of that command."""
    every = commands()
    for line in text.splitlines():
        spans = re.findall(r"`([^`]+)`", line) or [line.strip()]
        current = ""
        for span in spans:
            words = shlex.split(span, comments=True) if span.startswith(("accel-exporter ", "--")) else []
            if words[:1] == ["accel-exporter"]:
                current = words[1] if not words[1].startswith("-") else "serve"
                if current != "COMMAND" and current not in every:
                    yield current
                    current = ""
                words = words[2:] if words[1] == current else words[1:]
            if words and current in every:
                yield from wrong_arguments(current, words)
            elif words and current != "COMMAND" and all(list(wrong_arguments(each, words)) for each in every):
                yield " ".join(words)


def test_the_readme_names_commands_flags_and_values_that_exist() -> None:
    text = (ROOT / "README.md").read_text()
    assert text.count("`accel-exporter ") >= len(commands())
    assert list(wrong_commands(text)) == []


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("    accel-exporter serve --listen 127.0.0.1:0", []),
        ("    accel-exporter serve --lisen x", ["serve --lisen"]),
        ("| `accel-exporter once` | `--format yaml` or `--schema raw` |", ["once --format yaml"]),
        ("`accel-exporter observe` and `--links each`", ["observe"]),
        ("in flags (`--interval 10`, `--no-such-flag`)", ["--no-such-flag"]),
        ("`accel-exporter COMMAND --help` tells the rest", []),
        ("`accel-exporter --demo`", []),
    ],
)
def test_a_wrong_command_is_found(line: str, wrong: list[str]) -> None:
    assert list(wrong_commands(line)) == wrong
