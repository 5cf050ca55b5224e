"""Reads the Prometheus text format 0.0.4 and OpenMetrics 1.0, one sample line at a time.

Only what a bridge needs: names, labels, value, timestamp. Types, help and exemplars are passed over. The parser meets
text from programs that it does not trust: it never raises, remembers nothing beyond one line, and makes no value out of
a broken one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from collectors.base import Labels

MAX_LINE: Final = 64 * 1024
"""Bytes of a line. The longest real ones, with all the labels of a pod, have about 2 KiB."""

_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*+")
# Possessive quantifiers, so that a missing quote costs no backtracking.
_LABEL = re.compile(r'[ \t]*+([a-zA-Z_][a-zA-Z0-9_]*+)[ \t]*+=[ \t]*+"((?:[^"\\\n]++|\\.)*+)"[ \t]*+')
_NUMBER = re.compile(r"[+-]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?")
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
_WORDS: Final = {"nan": float("nan"), "inf": float("inf"), "infinity": float("inf")}
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES: Final = {"n": "\n", '"': '"', "\\": "\\"}


class Line(msgspec.Struct, frozen=True, gc=False):
    """One sample. ``timestamp`` is in Unix seconds, None where the source gives none."""

    name: str
    labels: Labels
    value: int | float
    timestamp: float | None = None
    end: int = 0
    """Where the name and the labels end in the text."""


class Malformed(msgspec.Struct, frozen=True, gc=False):
    """A line that is no sample; ``reason`` is one of a small fixed set."""

    reason: str


def split(chunks: Iterable[bytes]) -> Iterator[str | Malformed]:
    """Cut a body into its lines.

    A last line without a newline is malformed, since it may have been cut within its number.
    """
    rest = b""
    skipping = False
    for chunk in chunks:
        *complete, last = (rest + chunk).split(b"\n")
        for raw in complete:
            if skipping or len(raw) > MAX_LINE:
                skipping = False
                yield Malformed("line too long")
            elif raw:
                yield _decode(raw)
        # Of a line that is too long already nothing is kept but the fact.
        skipping = (skipping and not complete) or len(last) > MAX_LINE
        rest = b"" if skipping else last
    if skipping:
        yield Malformed("line too long")
    elif rest:
        yield Malformed("last line without a newline")


def _decode(raw: bytes) -> str | Malformed:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return Malformed("not UTF-8")


def parse_line(text: str, *, openmetrics: bool = False) -> Line | Malformed | None:
    """Read one line without its newline. None: a comment or nothing at all."""
    text = text.strip(" \t\r")
    if not text or text[0] == "#":
        return None
    name = _NAME.match(text)
    if name is None:
        return Malformed("no metric name")
    start = _blank(text, name.end())
    end = name.end()
    labels: Labels = ()
    if start < len(text) and text[start] == "{":
        found = _labels(text, start + 1)
        if isinstance(found, Malformed):
            return found
        labels, end = found
    elif start == end:
        return Malformed("no value")
    tail = _tail(text, end, openmetrics)
    if isinstance(tail, Malformed):
        return tail
    value, timestamp = tail
    return Line(name.group(), labels, value, timestamp, end)


def is_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None


def parse_tail(text: str, *, openmetrics: bool = False) -> tuple[int | float, float | None] | Malformed:
    """Read what follows the labels: the value, a timestamp perhaps, an exemplar perhaps."""
    return _tail(text, 0, openmetrics)


def _blank(text: str, position: int) -> int:
    while position < len(text) and text[position] in " \t":
        position += 1
    return position


def _labels(text: str, position: int) -> tuple[Labels, int] | Malformed:
    """The labels from behind the opening brace, and where the closing one ends."""
    found: dict[str, str] = {}
    while True:
        position = _blank(text, position)
        if text.startswith("}", position):
            return tuple(found.items()), position + 1
        match = _LABEL.match(text, position)
        if match is None:
            return Malformed("broken labels")
        name, value = match.group(1, 2)
        if name in found:
            return Malformed("a label stands there twice")
        found[name] = unescape(value) if "\\" in value else value
        position = match.end()
        if text.startswith(",", position):
            position += 1
        elif not text.startswith("}", position):
            return Malformed("broken labels")


def unescape(value: str) -> str:
    """Undo the escapes of a label value. An escape that the format does not have stays as it is."""
    return _ESCAPE.sub(lambda match: _ESCAPES.get(match.group(1), match.group()), value)


def _tail(text: str, start: int, openmetrics: bool) -> tuple[int | float, float | None] | Malformed:
    rest = text[start:]
    if openmetrics:
        rest = rest.partition(" # ")[0]
    words = [word for word in rest.replace("\t", " ").split(" ") if word]
    if not words:
        return Malformed("no value")
    value = number(words[0])
    if value is None:
        return Malformed("the value is no number")
    if len(words) == 1:
        return value, None
    if len(words) > 2:
        return Malformed("text behind the value")
    timestamp = _timestamp(words[1], openmetrics)
    return Malformed("the timestamp is no number") if timestamp is None else (value, timestamp)


def _timestamp(word: str, openmetrics: bool) -> float | None:
    """Milliseconds as an integer in the text format, seconds in OpenMetrics."""
    if openmetrics:
        seconds = number(word)
        return float(seconds) if seconds is not None and abs(seconds) < float("inf") else None
    return int(word) / 1000 if _INTEGER.fullmatch(word) else None


def number(word: str) -> int | float | None:
    """A number as both formats write it. An integer stays one, so that counters beyond 2^53 keep all their digits."""
    if _INTEGER.fullmatch(word):
        exact = int(word)
        return exact if -(2**63) <= exact < 2**63 else float(exact)
    if _NUMBER.fullmatch(word):
        value = float(word)
        # Too big to be a float: no number could be given for it.
        return value if abs(value) < float("inf") else None
    sign = -1.0 if word.startswith("-") else 1.0
    named = _WORDS.get(word[1:].lower() if word[:1] in ("+", "-") else word.lower())
    return None if named is None else sign * named
