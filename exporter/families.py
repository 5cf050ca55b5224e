"""What is exposed: families of samples, ready to be written in any format."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from exporter.model import Allocation, MetricType, Number

Schema = Literal["common", "raw"]

_UNCLEAN: Final = re.compile("[\0\ud800-\udfff]")


class Block(msgspec.Struct, frozen=True, eq=False):
    """The samples of one family that came together from one group of one collector.

    ``prefixes`` are complete and escaped up to the value: ``name{label="value"} ``. The tuple is the same object as
    long as the series are the same, and a block as long as its values are: what is made from either can be kept.
    """

    prefixes: tuple[str, ...]
    values: tuple[Number, ...]
    taken_at: float = 0.0
    """Unix seconds of the sample; 0: made by the agent itself, for the publication."""


class Family(msgspec.Struct, frozen=True, eq=False):
    """All samples of one name. The blocks of several collectors stand together, for a family must be contiguous."""

    name: str
    type: MetricType
    help: str
    schema: Schema
    blocks: tuple[Block, ...]


class Publication(msgspec.Struct, frozen=True, eq=False):
    """Everything that a scrape sees, at one moment. A new one is made when a sample arrives or one becomes stale."""

    version: int
    families: tuple[Family, ...] = ()
    made_at: float = 0.0
    """Unix seconds."""
    allocation: Allocation | None = None
    """Who works on the devices; the same object as long as it is the same. None: nothing tells."""


def clean(text: str) -> str:
    """Replace what no format can carry by U+FFFD: NUL, and lone surrogates (bytes of a name that were not UTF-8)."""
    return text if text.isascii() and "\0" not in text else _UNCLEAN.sub("\ufffd", text)


def escape_label(value: str) -> str:
    """Clean a label value and escape it for both formats: backslash, quote and newline."""
    return clean(value).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def prefix(name: str, labels: Sequence[tuple[str, str]]) -> str:
    """The text of a series up to its value."""
    if not labels:
        return name + " "
    return name + "{" + ",".join(f'{label}="{escape_label(value)}"' for label, value in labels) + "} "


def parse_labels(prefix: str) -> dict[str, str]:
    """The labels of a series' text. Of a text that ``prefix`` did not write it raises ValueError or IndexError."""
    found: dict[str, str] = {}
    position = prefix.find("{") + 1
    while position and prefix[position] != "}":
        equals = prefix.index("=", position)
        end = equals + 2
        while prefix[end] != '"':
            end += 2 if prefix[end] == "\\" else 1
        value = prefix[equals + 2 : end]
        found[prefix[position:equals]] = _unescape(value) if "\\" in value else value
        position = end + 2 if prefix[end + 1] == "," else end + 1
    return found


def _unescape(value: str) -> str:
    parts = iter(value)
    return "".join({"n": "\n"}.get(following := next(parts), following) if c == "\\" else c for c in parts)
