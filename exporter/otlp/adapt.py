"""What the hardware conventions say otherwise than /metrics: a state that is not known, and memory as a share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from exporter.families import Block, Family, parse_labels
from exporter.model import Number
from exporter.otlp.names import MEMORY_UTILIZATION
from exporter.schema import IDENTITY

HEALTH: Final = "accel_health_state"
USED: Final = "accel_memory_used_bytes"
TOTAL: Final = "accel_memory_total_bytes"
_STATE: Final = ',state="'
_UNKNOWN: Final = 'unknown"} '

_Texts = tuple[tuple[str, ...], ...]
_Pairs = tuple[tuple[int, int, str], ...]
"""Position of used, of total, and the text of their share."""


class Adapter:
    """Adapts families. Keeps which series belong together while they are the same."""

    def __init__(self) -> None:
        self._kept: tuple[tuple[_Texts, _Texts], _Pairs] | None = None

    def adapt(self, families: Sequence[Family]) -> Iterator[Family]:
        """The common families as the conventions have them; others as they are."""
        found = {family.name: family for family in families if family.name in (USED, TOTAL)}
        for family in families:
            if family.name == HEALTH:
                yield _without_unknown(family)
                continue
            yield family
            if family.name == USED and TOTAL in found:
                yield self._utilization(family, found[TOTAL])

    def _utilization(self, used: Family, total: Family) -> Family:
        layout = tuple(b.prefixes for b in used.blocks), tuple(b.prefixes for b in total.blocks)
        if self._kept is None or self._kept[0] != layout:
            self._kept = layout, tuple(_pairs(*layout))
        parts = [number for block in used.blocks for number in block.values]
        wholes = [number for block in total.blocks for number in block.values]
        rows: list[tuple[str, Number]] = [
            (text, parts[i] / wholes[j]) for i, j, text in self._kept[1] if wholes[j] > 0 <= parts[i]
        ]
        # Used memory moves and its total does not: the share is as old as the former.
        taken_at = max((block.taken_at for block in used.blocks), default=0.0)
        block = Block(tuple(text for text, _ in rows), tuple(value for _, value in rows), taken_at)
        metric = MEMORY_UTILIZATION
        return Family(metric.name, metric.type, metric.help, "common", (block,))


def _without_unknown(family: Family) -> Family:
    """No point of a device whose state is not known: the conventions have no word for that."""
    blocks = []
    for block in family.blocks:
        rows = list(zip(block.prefixes, block.values, strict=True))
        silent = {text.removesuffix(_UNKNOWN) for text, value in rows if value == 1 and text.endswith(_UNKNOWN)}
        told = [row for row in rows if row[0][: row[0].rindex(_STATE) + len(_STATE)] not in silent]
        blocks.append(Block(tuple(text for text, _ in told), tuple(value for _, value in told), block.taken_at))
    return Family(family.name, family.type, family.help, family.schema, tuple(blocks))


def _pairs(used: _Texts, total: _Texts) -> Iterator[tuple[int, int, str]]:
    """Used and total memory of the same device or part, of its own memory."""

    def keys(texts: _Texts) -> Iterator[tuple[int, tuple[str, ...], str]]:
        for index, text in enumerate(text for block in texts for text in block):
            labels = parse_labels(text)
            if labels.get("memory") == "device":
                yield index, tuple(labels.get(name, "") for name in IDENTITY), text

    wholes = {key: index for index, key, _ in keys(total)}
    for index, key, text in keys(used):
        if key in wholes:
            yield index, wholes[key], MEMORY_UTILIZATION.name + text[len(USED) :]
