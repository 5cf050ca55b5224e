"""A publication, read back into labels and values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from exporter.families import Family, Publication
from exporter.model import Number
from exporter.once import parse_labels

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

    def read(self, publication: Publication) -> Iterator[Samples | None]:
        """Yields None after each slice of work, and the samples at the end."""
        kept: dict[tuple[str, ...], tuple[Labels, ...]] = {}
        found: dict[str, Rows] = {}
        for family in publication.families:
            if family.schema == "common" and family.name in self._wanted:
                rows: list[tuple[Labels, Number]] = []
                for step in self._rows(family, kept, rows):
                    yield step
                found[family.name] = rows
        self._labels = kept
        yield found

    def read_now(self, publication: Publication) -> Samples:
        """The same in one go, for few families."""
        *_, found = self.read(publication)
        assert found is not None
        return found

    def _rows(
        self, family: Family, kept: dict[tuple[str, ...], tuple[Labels, ...]], rows: list[tuple[Labels, Number]]
    ) -> Iterator[None]:
        for block in family.blocks:
            labels = self._labels.get(block.prefixes)
            if labels is None:
                parsed: list[Labels] = []
                for start in range(0, len(block.prefixes), SLICE):
                    parsed += [parse_labels(text) for text in block.prefixes[start : start + SLICE]]
                    yield None
                labels = tuple(parsed)
            kept[block.prefixes] = labels
            rows.extend(zip(labels, block.values, strict=True))
