"""The files of the lists: ``python -m releases`` writes the present version's, ``--check`` compares.

A version that the changelog has a heading for is released: its list is not touched any more.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from exporter import __version__
from releases.listing import Listing, present, read, text
from releases.rules import Version, problems

ROOT: Final = Path(__file__).resolve().parents[1]
FOLDER: Final = "releases"
CHANGELOG: Final = "CHANGELOG.md"
_HEADING: Final = re.compile(r"^## \[?(\d+\.\d+\.\d+)\b", re.MULTILINE)
_UNRELEASED: Final = re.compile(r"^## Unreleased\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)


def parsed(version: str) -> Version:
    major, minor, patch = version.split(".")
    return int(major), int(minor), int(patch)


def released(root: Path) -> set[str]:
    """Versions that the changelog has a heading for."""
    return set(_HEADING.findall((root / CHANGELOG).read_text()))


def unreleased(root: Path) -> str:
    found = _UNRELEASED.search((root / CHANGELOG).read_text())
    return found[1] if found else ""


def path_of(root: Path, version: str) -> Path:
    return root / FOLDER / f"{version}.toml"


def history(root: Path) -> dict[Version, Listing]:
    """The lists of all releases."""
    return {parsed(version): read(path_of(root, version).read_text()) for version in released(root)}


def complaints(root: Path = ROOT, version: str = __version__, now: Listing | None = None) -> list[str]:
    """All that keeps this tree from being right; empty: it is."""
    listing = present() if now is None else now
    out = released(root)
    lacking = sorted(each for each in out if not path_of(root, each).exists())
    if lacking:
        return [f"{FOLDER}/{each}.toml is missing, though {CHANGELOG} says that it is released" for each in lacking]
    file = path_of(root, version)
    same = file.exists() and file.read_text() == text(listing, version)
    if version in out:
        return (
            [] if same else [f"the metrics are no more those of {version}: give exporter/__init__.py the next version"]
        )
    stale = [] if same else [f"{file.relative_to(root)} is not up to date: run `make docs`"]
    left = [path.stem for path in (root / FOLDER).glob("*.toml") if path.stem not in out and path.stem != version]
    stale += [f"{FOLDER}/{each}.toml is of no release: remove it" for each in sorted(left)]
    return [*stale, *problems(history(root), parsed(version), listing, unreleased(root))]


def main(argv: Sequence[str] | None = None, root: Path = ROOT, version: str = __version__) -> int:
    """Write, then tell what is not right. Exit code 1 if anything is not."""
    parser = argparse.ArgumentParser(prog="python -m releases", description="Write the list of this version's metrics.")
    parser.add_argument("--check", action="store_true", help="write nothing")
    check = parser.parse_args(argv).check
    if not check and version not in released(root):
        file, wanted = path_of(root, version), text(present(), version)
        if not file.exists() or file.read_text() != wanted:
            file.write_text(wanted)
            print(f"{file.relative_to(root)}: written")
    found = complaints(root, version)
    for line in found:
        print(line, file=sys.stderr)
    return int(bool(found))
