"""The JSON files beside the code: ``python -m dashboards`` writes them, ``--check`` compares them."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from dashboards.board import Board, document
from dashboards.boards import device, exporter, fleet, health, node, tenants, vendors, workload
from dashboards.pages import pages

ROOT: Final = Path(__file__).resolve().parents[1]
FOLDER: Final = "dashboards/json"
BOARDS: Final[tuple[Board, ...]] = (
    fleet.BOARD, node.BOARD, device.BOARD, workload.BOARD, tenants.BOARD, health.BOARD, exporter.BOARD, vendors.BOARD,
)  # fmt: skip


def wanted() -> dict[str, str]:
    """Path from the repository's root → text, of the boards and of the page about them."""
    documents = {f"{FOLDER}/{board.name}.json": document(board) for board in BOARDS}
    files = {path: json.dumps(made, indent=2, ensure_ascii=False) + "\n" for path, made in documents.items()}
    return {**files, **pages(dict(zip((board.name for board in BOARDS), documents.values(), strict=True)))}


def differences(root: Path, files: Mapping[str, str], folder: str = "") -> list[str]:
    """Files that are missing or other than they should be, and those in ``folder`` that are gone from the code."""
    changed = [path for path, text in files.items() if not (root / path).exists() or (root / path).read_text() != text]
    left = [f"{folder}/{path.name}" for path in (root / folder).glob("*.json")] if folder else []
    return sorted({*changed, *(path for path in left if path not in files)})


def write(root: Path, files: Mapping[str, str], folder: str = "") -> list[str]:
    """Bring all files up to date. Returns those that were touched."""
    touched = differences(root, files, folder)
    for path in touched:
        file = root / path
        if path in files:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(files[path])
        else:
            file.unlink()
    return touched


def report(root: Path, files: Mapping[str, str], folder: str = "", *, check: bool) -> int:
    """Write, or with ``check`` compare, and say which files were meant. Returns 1 if they differ in a comparison."""
    found = differences(root, files, folder) if check else write(root, files, folder)
    for path in found:
        print(f"{path}: {'not up to date: run `make dashboards`' if check else 'written'}")
    return int(check and bool(found))


def main(argv: Sequence[str] | None = None) -> int:
    """Write or compare. Returns 1 if ``--check`` finds a difference."""
    parser = argparse.ArgumentParser(prog="python -m dashboards", description="Write the Grafana dashboards.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a file is not up to date")
    return report(ROOT, wanted(), FOLDER, check=parser.parse_args(argv).check)
