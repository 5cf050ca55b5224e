"""Writes families as Prometheus text 0.0.4 and as OpenMetrics 1.0.0.

Two rules hold in both formats. A value that is no number (NaN), that no 64-bit float can hold, or that a counter cannot
have (below 0) is left out, for NaN does not say 'missing' to Prometheus; a family of which nothing is left is left out
with its header. And no series is written twice: the first of two with the same name and labels stays.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from itertools import compress as select
from typing import Final

import msgspec

from exporter.families import Block, Family, Schema, clean
from exporter.model import MetricType, Number
from exporter.negotiation import Format
from exporter.schema import METRICS

Omitted = frozenset[int]
"""Positions in a block whose series stands in the family already."""
Layout = tuple[tuple[str, ...], ...]
"""The series of a family, block by block."""

SLICE: Final = 1000
"""Series written before other tasks get their turn: about half a millisecond."""
EOF: Final = b"# EOF\n"
NOTHING: Final = b"# No series of this kind now.\n"
"""Instead of an empty body, which looks like a broken exporter."""

_SUFFIXES: Final[Mapping[str, tuple[str, ...]]] = {
    "counter": ("_total", "_created"),
    "summary": ("_count", "_sum", "_created"),
    "histogram": ("_count", "_sum", "_bucket", "_created"),
    "gaugehistogram": ("_gcount", "_gsum", "_bucket"),
    "info": ("_info",),
}
"""What a family of a type may append to its name (OpenMetrics 1.0.0): these names are taken with it."""


class Section(msgspec.Struct, frozen=True, eq=False):
    """A family as one format has it."""

    family: Family
    name: str
    header: bytes


class Own(msgspec.Struct, frozen=True, eq=False):
    """One family of the agent's own metrics, already written, and every name that it takes."""

    names: frozenset[str]
    text: bytes


def render(families: Sequence[Family], format_: Format, agent: bytes) -> bytes:
    """Write families, and after them the agent's own metrics (already in that format, with or without ``# EOF``)."""
    own = own_families(agent)
    sections, _ = plan(families, format_, own)
    steps = Texts().update(families)
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            return b"".join(Rendered(sections, stop.value, own).pieces(format_))


# Values and lines


def number(value: Number, kind: MetricType) -> str | None:
    """A value in the syntax of both formats, or None where no sample can have it."""
    try:
        real = float(value)
    except OverflowError:
        return None
    if math.isnan(real) or (kind == "counter" and real < 0):
        return None
    if math.isinf(real):
        return "+Inf" if real > 0 else "-Inf"
    # Not repr: a bool or an enumeration is an int, and would write its name.
    return int.__repr__(value) if isinstance(value, int) else float.__repr__(value)


def _regular(values: Sequence[Number], kind: MetricType) -> bool:
    """Whether repr writes each of these values as the formats want it."""
    try:
        return (
            set(map(type, values)) <= {int, float}
            and all(map(math.isfinite, values))
            and (kind != "counter" or min(values, default=0) >= 0)
        )
    except OverflowError:
        return False


def _lines(prefixes: Sequence[str], values: Sequence[Number], kind: MetricType) -> bytes:
    if not _regular(values, kind):
        texts = [number(value, kind) for value in values]
        pairs = zip(prefixes, texts, strict=True)
        return "".join([f"{prefix}{text}\n" for prefix, text in pairs if text is not None]).encode()
    # The fastest of eight ways that were measured; nearly all of its time goes into repr.
    parts = ["\n"] * (3 * len(prefixes))
    parts[0::3] = prefixes
    parts[1::3] = map(repr, values)
    return "".join(parts).encode()


class Texts:
    """The lines of each block, kept as long as the block is exposed. They are the same in both formats."""

    def __init__(self) -> None:
        self._texts: dict[Block, tuple[Omitted, bytes]] = {}
        self._layouts: dict[str, tuple[Layout, tuple[Omitted, ...]]] = {}

    def update(self, families: Sequence[Family]) -> Generator[None, None, Mapping[Block, bytes]]:
        """Write the blocks that are new and forget those that are gone; gives way after every slice."""
        texts: dict[Block, tuple[Omitted, bytes]] = {}
        layouts: dict[str, tuple[Layout, tuple[Omitted, ...]]] = {}
        pending = 0
        for family in families:
            layout = tuple([block.prefixes for block in family.blocks])
            known = self._layouts.get(family.name)
            # Tuples that are the same objects compare without a look at what is in them.
            omitted = known[1] if known is not None and known[0] == layout else _repetitions(layout)
            layouts[family.name] = (layout, omitted)
            for block, omit in zip(family.blocks, omitted, strict=True):
                kept = self._texts.get(block)
                if kept is not None and kept[0] == omit:
                    texts[block] = kept
                    continue
                slices = []
                for prefixes, values in _slices(block, omit):
                    slices.append(_lines(prefixes, values, family.type))
                    pending += len(prefixes)
                    if pending >= SLICE:
                        pending = 0
                        yield
                texts[block] = (omit, b"".join(slices))
        self._texts, self._layouts = texts, layouts
        return {block: text for block, (_, text) in texts.items()}


def _slices(block: Block, omit: Omitted) -> Iterator[tuple[Sequence[str], Sequence[Number]]]:
    prefixes, values = block.prefixes, block.values
    if omit:
        keep = [position not in omit for position in range(len(prefixes))]
        prefixes, values = tuple(select(prefixes, keep)), tuple(select(values, keep))
    for start in range(0, max(len(prefixes), len(values)), SLICE):
        yield prefixes[start : start + SLICE], values[start : start + SLICE]


def _repetitions(layout: Layout) -> tuple[Omitted, ...]:
    """For each block of a family the positions whose series came before."""
    if len(set().union(*layout)) == sum(map(len, layout)):
        return (frozenset(),) * len(layout)
    seen: set[str] = set()
    omitted = []
    for prefixes in layout:
        repeated = set()
        for position, prefix in enumerate(prefixes):
            if prefix in seen:
                repeated.add(position)
            seen.add(prefix)
        omitted.append(frozenset(repeated))
    return tuple(omitted)


# Families and headers


def plan(families: Sequence[Family], format_: Format, own: Iterable[Own]) -> tuple[list[Section], frozenset[str]]:
    """Each family under the name and type that the format has for it, and the names for which there is no place.

    No place has a family whose name is another's, or one of the agent's own: a second header loses the whole scrape.

    OpenMetrics names a counter without its ``_total``. A counter that has none is of unknown type there, and so is one
    whose shorter name, or that with ``_created``, is taken: counter ``a_total`` beside gauge ``a`` stays ``a_total``.
    """
    reserved = frozenset().union(*(family.names for family in own))
    chosen: dict[str, Family] = {}
    refused = set()
    for family in families:
        if family.name in reserved or family.name in chosen:
            refused.add(family.name)
        else:
            chosen[family.name] = family
    if format_ is Format.TEXT:
        return [Section(f, f.name, _header(f, f.name, f.type, format_)) for f in chosen.values()], frozenset(refused)
    sections = []
    taken = set(reserved) | set(chosen)
    for family in chosen.values():
        name, kind = family.name, "gauge"
        if family.type == "counter":
            base = name.removesuffix("_total")
            if base in ("", name) or base in taken or base + "_created" in taken:
                kind = "unknown"
            else:
                taken.update((base, base + "_created"))
                name, kind = base, "counter"
        sections.append(Section(family, name, _header(family, name, kind, format_)))
    return sections, frozenset(refused)


def _header(family: Family, name: str, kind: str, format_: Format) -> bytes:
    help_ = clean(family.help).strip().replace("\\", "\\\\").replace("\n", "\\n")
    if format_ is Format.OPENMETRICS:
        help_ = help_.replace('"', '\\"')
    lines = [f"# HELP {name} {help_}"] if help_ else []
    lines.append(f"# TYPE {name} {kind}")
    metric = METRICS.get(family.name) if format_ is Format.OPENMETRICS and family.schema == "common" else None
    if metric is not None and metric.unit and name.endswith("_" + metric.unit):
        lines.append(f"# UNIT {name} {metric.unit}")
    return ("\n".join(lines) + "\n").encode()


def own_families(text: bytes) -> tuple[Own, ...]:
    """Take the agent's own text apart, at the headers."""
    found: list[tuple[set[str], list[bytes]]] = []
    current = None
    for line in text.split(b"\n"):
        if not line or line + b"\n" == EOF:
            continue
        words = line.split(None, 3)
        meta = len(words) > 2 and words[0] == b"#" and words[1] in (b"HELP", b"TYPE", b"UNIT")
        name = words[2].decode() if meta else current
        if name != current or not found:
            current = name
            found.append(({name} if name else set(), []))
        if meta and words[1] == b"TYPE":
            found[-1][0].update(f"{name}{suffix}" for suffix in _SUFFIXES.get(words[-1].decode(), ()))
        found[-1][1].append(line + b"\n")
    return tuple(Own(frozenset(names), b"".join(lines)) for names, lines in found)


class Rendered(msgspec.Struct, frozen=True, eq=False):
    """A publication in one format: what every body of it is put together from."""

    sections: Sequence[Section]
    texts: Mapping[Block, bytes]
    own: Sequence[Own]

    def pieces(self, format_: Format, schema: Schema | None = None, names: Collection[str] = ()) -> list[bytes]:
        """The body of one selection, in pieces."""
        sections = [
            section
            for section in self.sections
            if (schema is None or section.family.schema == schema)
            and (not names or not _called(section.family).isdisjoint(names))
        ]
        own = [f for f in self.own if schema != "raw" and (not names or not f.names.isdisjoint(names))]
        return _assemble(sections, self.texts, own, format_)


def _called(family: Family) -> frozenset[str]:
    """The names by which one may ask for a family: in either format its name in the other is right, too."""
    return frozenset((family.name, family.name.removesuffix("_total") if family.type == "counter" else family.name))


def _assemble(
    sections: Iterable[Section], texts: Mapping[Block, bytes], own: Iterable[Own], format_: Format
) -> list[bytes]:
    pieces = []
    for section in sections:
        written = [text for block in section.family.blocks if (text := texts[block])]
        if written:
            pieces.append(section.header)
            pieces += written
    pieces += [family.text for family in own]
    if format_ is Format.OPENMETRICS:
        pieces.append(EOF)
    return pieces or [NOTHING]
