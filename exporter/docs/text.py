"""Markdown as the generated pages write it (GitHub's dialect)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

GENERATED: Final = "<!-- Made from {source} by `python -m exporter.docs` (`make docs`). Do not edit. -->\n"
"""The first line of a page."""

_SPECIAL: Final = re.compile(r"[\\`*\[\]<>|~$]|(?<![a-zA-Z0-9])_|_(?![a-zA-Z0-9])")


def prose(text: str) -> str:
    """Text of a table that means nothing to Markdown, on one line."""
    return _SPECIAL.sub(lambda match: "\\" + match[0], " ".join(text.split()))


def code(text: str) -> str:
    """Text as code, safe in a table's cell. Empty stays empty."""
    if not text:
        return ""
    fence = "`" * (max((len(run) for run in re.findall("`+", text)), default=0) + 1)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    # A cell ends at a bare | even inside code.
    return fence + pad + " ".join(text.split()).replace("|", "\\|") + pad + fence


def codes(texts: Iterable[str]) -> str:
    return ", ".join(code(text) for text in texts)


def link(text: str, target: str) -> str:
    return f"[{text}]({target})"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of cells that are Markdown already. A column without content is left out, and so is an empty table."""
    found = list(rows)
    kept = [column for column in range(len(head)) if any(row[column] for row in found)]
    if not kept:
        return ""
    lines = ["| " + " | ".join(line[column] for column in kept) + " |\n" for line in (head, *found)]
    return "".join([lines[0], "|" + "---|" * len(kept) + "\n", *lines[1:]])


def page(*parts: str) -> str:
    """Parts with one empty line between them; empty ones are left out."""
    return "\n".join(part if part.endswith("\n") else part + "\n" for part in parts if part)
