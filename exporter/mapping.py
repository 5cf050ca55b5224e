"""``accel-exporter mapping``: which raw series feeds which common metric."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from typing import Literal

from exporter.assemble import Catalogues
from exporter.catalogue import Catalogue, Feed


def rows(name: str, catalogue: Catalogue) -> Iterable[dict[str, str]]:
    """One for each feed, in the table's order; raw series that feed nothing have an empty metric."""
    for series in catalogue.series.values():
        base = {
            "collector": name,
            "raw": series.name,
            "type": series.type,
            "unit": series.unit,
            "native": series.native,
        }
        for feed in series.feeds:
            yield {
                **base,
                "common": feed.metric + labels_text(feed.labels),
                "exactness": feed.exactness,
                "how": how(feed),
            }
        if not series.feeds:
            yield {**base, "common": "", "exactness": "", "how": ""}


def labels_text(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{value}"' for name, value in labels.items()) + "}"


def how(feed: Feed) -> str:
    """The conversion beyond that of units, in words."""
    condition = " and ".join(f"{name} is {' or '.join(values)}" for name, values in feed.where.items())
    return f"{_how(feed)} where {condition}".lstrip() if condition else _how(feed)


def _how(feed: Feed) -> str:
    if feed.bits is not None:
        return f"1 if any bit of {feed.bits:#x} is set"
    if feed.equals is not None:
        return "1 if " + " or ".join(f"{value:g}" for value in feed.equals)
    if feed.plus:
        return f"sum with {', '.join(feed.plus)}"
    return f"{feed.aggregate} over links" if feed.aggregate and feed.each else feed.aggregate or ""


def mapping(catalogues: Catalogues, output: Literal["table", "json"], only: str = "") -> int:
    """Print the mapping of all collectors, or of one. Exit code 2 if there is no such collector."""
    if only and only not in catalogues:
        names = ", ".join(sorted(catalogues))
        print(f"accel-exporter: there is no collector {only!r}; expected one of {names}", file=sys.stderr)
        return 2
    found = [
        row
        for name, (_, catalogue) in sorted(catalogues.items())
        if only in ("", name)
        for row in rows(name, catalogue)
    ]
    if output == "json":
        print(json.dumps(found, indent=1))
        return 0
    mapped = [row for row in found if row["common"]]
    columns = ("collector", "raw", "unit", "common", "exactness", "how")
    lines = [tuple(column.upper() for column in columns), *(tuple(row[c] or "-" for c in columns) for row in mapped)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]
    for line in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
    print(f"{len(mapped)} mappings; {len(found) - len(mapped)} raw series feed nothing (--format json lists them)")
    return 0
