"""Texts that others choose, made fit for a label, a log and a terminal: printable and bounded."""

from __future__ import annotations

from typing import Final

MAX_VALUE: Final = 128
"""Characters of a value that may become a label; label values of Kubernetes have at most 63, annotations any number."""
MAX_NAME: Final = 253
"""Characters of a name in Kubernetes."""
MAX_HINT: Final = 500
"""Characters of what a server says went wrong."""


def clean(value: str, most: int = MAX_VALUE) -> str:
    """The text without what is not printable, cut to so many characters."""
    if len(value) <= most and value.isprintable():
        return value
    return "".join(character for character in value[:most] if character.isprintable())
