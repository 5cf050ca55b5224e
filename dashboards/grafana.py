"""What Grafana does with a dashboard's JSON before it asks: finds the queries and fills in variables."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

Document = Mapping[str, Any]
INTERVALS: Final[Mapping[str, str]] = {
    "__rate_interval": "5m",
    "__range_s": "3600",
    "__range": "1h",
    "__interval": "1m",
}
"""Values that any time range could have."""
_VARIABLE: Final = re.compile(r"\$\{?(\w+)\}?")


def panels(document: Document) -> Iterator[Document]:
    """All panels, those of closed rows included, rows excluded."""
    for panel in document["panels"]:
        yield from (inner for inner in (panel, *panel.get("panels", [])) if inner["type"] != "row")


def queries(document: Document) -> Iterator[tuple[Document, str]]:
    """Panel and expression of each query."""
    for panel in panels(document):
        for target in panel["targets"]:
            yield panel, target["expr"]


def variables(document: Document) -> dict[str, Document]:
    return {variable["name"]: variable for variable in document["templating"]["list"]}


def filled(expression: str, values: Mapping[str, str]) -> str:
    """The expression with its variables filled in. Raises KeyError for one that there is not."""
    return _VARIABLE.sub(lambda found: {**INTERVALS, **values}[found[1]], expression)


def everything(document: Document) -> dict[str, str]:
    """All that can be chosen, chosen."""
    return {name: variable.get("allValue", ".+") for name, variable in variables(document).items()}
