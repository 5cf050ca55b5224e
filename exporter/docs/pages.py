"""The generated pages of docs/: ``python -m exporter.docs`` writes them, ``--check`` compares them with the files."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from exporter.catalogue import Catalogue, CatalogueError
from exporter.config.reference import reference
from exporter.docs.metrics import metrics_page
from exporter.docs.text import link, prose
from exporter.docs.vendors import vendor_page
from exporter.registry import catalogues

ROOT: Final = Path(__file__).resolve().parents[2]
INDEX: Final = "docs/index.md"
VENDORS: Final = "docs/vendors"
BEGIN: Final = "<!-- Vendors: made by `python -m exporter.docs` (`make docs`). -->\n"
END: Final = "<!-- End of vendors. -->\n"


class NotARepository(Exception):
    """The pages can be made in a checkout only."""


def pages(root: Path = ROOT) -> dict[str, str]:
    """Path from the repository's root → text. Raises CatalogueError, and NotARepository outside a checkout."""
    index = root / INDEX
    if not index.exists():
        raise NotARepository(f"{index} is missing: run this in a checkout of the repository")
    # Collectors of other packages have their pages elsewhere: what is installed here must not change ours.
    built_in = {
        name: (catalogue, item.folder.resolve())
        for name, (item, catalogue) in sorted(catalogues().items())
        if item.module.startswith("collectors.")
    }
    tables = {name: catalogue for name, (catalogue, _) in built_in.items()}
    found = {"docs/configuration.md": reference(), "docs/metrics.md": metrics_page(tables)}
    for name, (catalogue, folder) in built_in.items():
        found[f"{VENDORS}/{name}.md"] = vendor_page(catalogue, str(folder.relative_to(ROOT)))
    found[INDEX] = with_vendors(index.read_text(), tables)
    return found


def with_vendors(index: str, tables: Mapping[str, Catalogue]) -> str:
    """The list of all pages, with one line for each vendor between its two marks. Raises ValueError without these."""
    before, begin, rest = index.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{INDEX} needs the two lines {BEGIN.strip()} and {END.strip()}")
    rows = [f"- {link(prose(catalogue.collector.title), f'vendors/{name}.md')}\n" for name, catalogue in tables.items()]
    return f"{before}{BEGIN}{''.join(rows)}{END}{after}"


def differences(root: Path, wanted: Mapping[str, str]) -> list[str]:
    """Pages that are missing or other than they should be, and pages of vendors that are gone."""
    changed = [path for path, text in wanted.items() if not (root / path).exists() or (root / path).read_text() != text]
    left = [f"{VENDORS}/{path.name}" for path in (root / VENDORS).glob("*.md")]
    return sorted({*changed, *(path for path in left if path not in wanted)})


def write(root: Path, wanted: Mapping[str, str]) -> list[str]:
    """Bring all pages up to date. Returns those that were touched."""
    touched = differences(root, wanted)
    for path in touched:
        file = root / path
        if path in wanted:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(wanted[path])
        else:
            file.unlink()
    return touched


def main(argv: Sequence[str] | None = None) -> int:
    """Write or compare. Returns 1 if ``--check`` finds a difference."""
    parser = argparse.ArgumentParser(prog="python -m exporter.docs", description="Write the generated pages of docs/.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a page is not up to date")
    check = parser.parse_args(argv).check
    try:
        wanted = pages()
    except (CatalogueError, NotARepository, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    found = differences(ROOT, wanted) if check else write(ROOT, wanted)
    for path in found:
        print(f"{path}: {'not up to date: run `make docs`' if check else 'written'}")
    return int(check and bool(found))
