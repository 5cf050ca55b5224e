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


def find() -> dict[str, Found]:
    """All collectors by name. A foreign package cannot take a built-in's name. Nothing of a vendor is imported."""
    found = {item.name: item for item in _built_in()}
    for entry in sorted(entry_points(group=ENTRY_POINTS), key=lambda entry: entry.name):
        if entry.name in found:
            raise CatalogueError(
                f"the package {entry.value} brings a collector {entry.name!r}, which is built in: it needs another name"
            )
        found[entry.name] = Found(entry.name, entry.module, _folder(entry))
    return found


def catalogues() -> dict[str, tuple[Found, Catalogue]]:
    """The checked tables of all collectors, by name. Raises CatalogueError."""
    return {name: (item, load(item.folder, item.module)) for name, item in find().items()}


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
