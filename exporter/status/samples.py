"""A publication, read back into labels and values."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import Final

from exporter.families import Family, Publication, parse_labels
from exporter.model import Number

Labels = Mapping[str, str]
Rows = Sequence[tuple[Labels, Number]]
Samples = Mapping[str, Rows]
"""Metric of the common schema → its series."""

SLICE: Final = 500
"""Series that are read before others have their turn."""


class Reader:
    """Reads families, and keeps what it has read of texts while they stay the same: values change, series hardly."""

    def __init__(self, wanted: Iterable[str]) -> None:
        self._wanted = frozenset(wanted)
        self._labels: dict[tuple[str, ...], tuple[Labels, ...]] = {}

    async def read(self, publication: Publication) -> Samples:
        """The samples of the wanted metrics. While it reads new texts, others have their turn."""
        steps = self._steps(publication)
        while True:
            try:
                next(steps)
            except StopIteration as stop:
                found: Samples = stop.value
                return found
            await asyncio.sleep(0)

    def read_now(self, publication: Publication) -> Samples:
        """The same in one go, for few metrics."""
        steps = self._steps(publication)
        while True:
            try:
                next(steps)
            except StopIteration as stop:
                found: Samples = stop.value
                return found

    def _steps(self, publication: Publication) -> Generator[None, None, Samples]:
        kept: dict[tuple[str, ...], tuple[Labels, ...]] = {}
        found: dict[str, Rows] = {}
        for family in publication.families:
            if family.schema == "common" and family.name in self._wanted:
                found[family.name] = yield from self._rows(family, kept)
        self._labels = kept
        return found

    def _rows(self, family: Family, kept: dict[tuple[str, ...], tuple[Labels, ...]]) -> Generator[None, None, Rows]:
        rows: list[tuple[Labels, Number]] = []
        for block in family.blocks:
            labels = self._labels.get(block.prefixes)
            if labels is None:
                parsed: list[Labels] = []
                for start in range(0, len(block.prefixes), SLICE):
                    parsed += [parse_labels(text) for text in block.prefixes[start : start + SLICE]]
                    yield
                labels = tuple(parsed)
            kept[block.prefixes] = labels
            rows.extend(zip(labels, block.values, strict=True))
        return rows
