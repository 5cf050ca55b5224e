"""Which collectors there are: the folders of ``collectors`` and packages that other distributions bring."""

from __future__ import annotations

import importlib.util
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Final

import msgspec

from exporter.catalogue import Catalogue, CatalogueError, load

ENTRY_POINTS: Final = "accel_exporter.collectors"
"""Entry-point group: the name is the collector's, the value its package, which holds the tables and open_collector."""


class Found(msgspec.Struct, frozen=True):
    """A collector's name, its package and the folder of its tables."""

    name: str
    module: str
    folder: Path


class Survey(msgspec.Struct, frozen=True):
    """All collectors that can be used, and those of foreign packages that cannot, with the reason."""

    collectors: dict[str, tuple[Found, Catalogue]]
    broken: dict[str, str]


def survey() -> Survey:
    """Find collectors and check their tables. Nothing of a vendor is imported.

    A foreign package with a wrong table, or with the name of a built-in, is left out: it must not cost the others their
    numbers. Raises CatalogueError for a wrong table of our own.
    """
    collectors = {item.name: (item, load(item.folder, item.module)) for item in _built_in()}
    broken: dict[str, str] = {}
    for entry in sorted(entry_points(group=ENTRY_POINTS), key=lambda entry: entry.name):
        try:
            if entry.name in collectors:
                raise CatalogueError(f"there is a collector {entry.name!r} already: the package needs another name")
            item = Found(entry.name, entry.module, _folder(entry))
            collectors[entry.name] = (item, load(item.folder, item.module))
        except CatalogueError as error:
            broken[entry.name] = f"the package {entry.module} is left out: {error}"
    return Survey(collectors, broken)


def catalogues() -> dict[str, tuple[Found, Catalogue]]:
    """Those of ``survey`` that can be used."""
    return survey().collectors


def _built_in() -> list[Found]:
    spec = importlib.util.find_spec("collectors")
    if spec is None or not spec.submodule_search_locations:
        raise CatalogueError("the package 'collectors' is not installed: install accel-exporter again")
    return [
        Found(table.parent.name, f"collectors.{table.parent.name}", table.parent)
        for place in spec.submodule_search_locations
        for table in sorted(Path(place).glob("*/collector.toml"))
    ]


def _folder(entry: EntryPoint) -> Path:
    try:
        spec = importlib.util.find_spec(entry.module)
    except ImportError as error:
        raise CatalogueError(f"the collector {entry.name!r} cannot be found: {error}") from error
    if spec is None or spec.origin is None:
        raise CatalogueError(f"the collector {entry.name!r} names the package {entry.module}, which is not installed")
    return Path(spec.origin).parent
