"""What is wrong with a configuration, and how that is told: where, which key, which value, what was expected."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

KeyPath = tuple[str | int, ...]

SHOWN: Final = 50
"""So many problems are printed. A file of another program has thousands, and none of them helps."""
_LONGEST_VALUE: Final = 80
_LONGEST_KEY: Final = 64
_MOST_NAMES: Final = 20
_SECRET: Final = re.compile(
    r"passw|secret|token|credential|api[_-]?key|private_?key|authorization|bearer|^headers$", re.IGNORECASE
)
_FILE_LINE: Final = re.compile(r"(.*):([0-9]+)", re.DOTALL)
_PLAIN_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")


class Hidden(str):
    """A text that no message may show, whatever its key is called."""

    __slots__ = ()


class Problem(msgspec.Struct, frozen=True):
    """One thing to correct. Every text is ready to print: secrets are hidden, and no character breaks a line."""

    source: str
    """``file:line``, ``environment variable X`` or ``flag --x``."""
    key: str
    found: str
    expected: str

    def __str__(self) -> str:
        return f"{self.source}: {self.key}: {self.found}, expected {self.expected}"


class ConfigError(Exception):
    """The configuration cannot be used. ``problems`` has all that was found, not just the first."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems: tuple[Problem, ...] = tuple(sorted(problems, key=_place))
        super().__init__(self.problems)

    def __str__(self) -> str:
        lines = [str(problem) for problem in self.problems[:SHOWN]]
        if len(self.problems) > SHOWN:
            lines.append(f"… and {len(self.problems) - SHOWN} more")
        return "\n".join(lines)


def _place(problem: Problem) -> tuple[str, int]:
    """Files first, line by line; the others stay in their order behind them."""
    found = _FILE_LINE.fullmatch(problem.source)
    return (found[1], int(found[2])) if found else ("\U0010ffff", 0)


def printable(text: str) -> str:
    """One line that any terminal and any log can take."""
    text = "".join(character if character.isprintable() else ascii(character)[1:-1] for character in text)
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def show_key(path: KeyPath) -> str:
    """``collectors.x.raw[2]``; a key that is not a plain word stands in quotes."""
    if not path:
        return "(document)"
    parts: list[str] = []
    for step in path:
        if isinstance(step, int):
            parts.append(f"[{step}]")
        else:
            word = step if _PLAIN_KEY.fullmatch(step) else json.dumps(step)
            parts.append("." * bool(parts) + (word if len(word) <= _LONGEST_KEY else word[:_LONGEST_KEY] + "…"))
    return "".join(parts)


def show_value(value: object, path: KeyPath = ()) -> str:
    """The value as YAML would have it, short. What may be a secret, by its key or inside a URL, is hidden."""
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    if isinstance(value, Hidden) or any(isinstance(step, str) and _SECRET.search(step[:1000]) for step in path):
        return "(hidden)"
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, int) and abs(value) >= 10**_LONGEST_VALUE:
        return "a number of more than 80 digits"
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, str):
        return json.dumps(_hide(value), ensure_ascii=True)
    return f"an object of type {type(value).__name__}"


def _hide(value: str) -> str:
    """Hide what stands where a URL has a user's password or a token, also in what is no URL yet."""
    before, at, after = value.rpartition("@")
    if at and ":" in before:
        value = f"(hidden)@{after}"
    before, mark, after = value.partition("?")
    if mark and "=" in after:
        value = f"{before}?(hidden)"
    return value if len(value) <= _LONGEST_VALUE else value[:_LONGEST_VALUE] + "…"


def wrong(source: str, path: KeyPath, value: object, expected: str) -> Problem:
    """The key is right and its value is not."""
    return Problem(source, show_key(path), f"got {show_value(value, path)}", expected)


def unknown(source: str, path: KeyPath, value: object, known: Sequence[str]) -> Problem:
    """There is no such key; ``known`` are those that could stand there."""
    name = str(path[-1]) if path else ""
    found = f"unknown key (its value: {show_value(value, path)})"
    return Problem(source, show_key(path), found, one_of(name, known))


def one_of(name: str, known: Sequence[str]) -> str:
    """The choice that there is, and the one that was probably meant."""
    if not known:
        return "nothing here"
    close = nearest(name, known)
    if close and len(known) > _MOST_NAMES:
        return f"{close} or another of {len(known)} names"
    listed = ", ".join(known[:_MOST_NAMES])
    if len(known) > _MOST_NAMES:
        listed += f" and {len(known) - _MOST_NAMES} more"
    return f"{close} (one of {listed})" if close and len(known) > 1 else f"one of {listed}"


def nearest(name: str, known: Sequence[str], count: int = 1) -> str:
    """The known names, the likeliest first, that ``name`` is probably meant to be, or nothing."""
    if len(name) > _LONGEST_KEY:
        return ""
    folded = {each.lower(): each for each in known}
    close = difflib.get_close_matches(name.lower(), folded, n=count, cutoff=0.6)
    return " or ".join(folded[each] for each in close)
