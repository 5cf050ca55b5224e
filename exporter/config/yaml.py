"""Reads the configuration's YAML into a tree that remembers where each value stands.

It takes a small, safe part of YAML: mappings with text keys, lists and scalars, and of those only ``true`` and
``false`` as booleans, decimal numbers, ``null`` and text (``yes``, ``1:30`` and ``2024-01-01`` are text). Anchors,
aliases and tags are refused. Size, depth and number of values are bounded.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from exporter.config.problems import ConfigError, KeyPath, Problem, printable, show_key, show_value
from exporter.config.text import read_text

Scalar = str | int | float | bool | None

DEPTH: Final = 12
VALUES: Final = 10_000

_WORDS: Final[Mapping[str, Scalar]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **{word: float("inf") for word in (".inf", ".Inf", ".INF", "+.inf")},
    **{word: float("-inf") for word in ("-.inf", "-.Inf", "-.INF")},
    **{word: float("nan") for word in (".nan", ".NaN", ".NAN")},
}
_INTEGER: Final = re.compile(r"[-+]?[0-9]{1,300}")
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]{1,40}|[0-9]{1,40}(\.[0-9]{0,40})?)([eE][-+]?[0-9]{1,5})?")


@dataclass(frozen=True, slots=True)
class Node:
    """A value and where it was set. Mappings keep their order; ``value`` of a mapping or list holds Nodes."""

    value: object
    source: str


def locate(tree: Node, path: KeyPath) -> Node | None:
    """The node at ``path``, or None if nothing was set there."""
    node = tree
    for step in path:
        inside = node.value
        if isinstance(step, str) and isinstance(inside, dict) and step in inside:
            node = inside[step]
            continue
        if isinstance(step, int) and isinstance(inside, tuple) and step < len(inside):
            node = inside[step]
            continue
        return None
    return node


def source_of(tree: Node, path: KeyPath) -> str:
    """Where the value at ``path``, or the nearest section around it, was set."""
    for length in range(len(path), -1, -1):
        node = locate(tree, path[:length])
        if node is not None:
            return node.source
    return tree.source


def put(tree: Node, path: tuple[str, ...], node: Node) -> Node:
    """``tree`` with ``node`` at ``path``: sections merge, everything else is replaced."""
    if not path:
        return node
    if tree.value is not None and not isinstance(tree.value, dict):
        # What stands there is wrong and will be told; hiding it below would not make it right.
        return tree
    inside: dict[str, Node] = tree.value or {}
    below = inside.get(path[0], Node({}, node.source))
    return Node({**inside, path[0]: put(below, path[1:], node)}, tree.source)


def plain(text: str) -> Scalar:
    """What an unquoted scalar means."""
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    return text


def read(path: Path) -> tuple[Node, list[Problem]]:
    """The file's tree as far as it can be read, and what is wrong with it. Raises ConfigError if nothing can be."""
    return parse(read_text(path, "configuration file"), printable(str(path)))


def parse(text: str, name: str) -> tuple[Node, list[Problem]]:
    """As ``read``, for a text that came from ``name``."""
    reader: _Reader | None = None
    try:
        reader = _Reader(text, name)
        return reader.document(), reader.problems
    except yaml.YAMLError as error:
        problem = _syntax(error, text, name, reader.at if reader else ())
        raise ConfigError([*(reader.problems if reader else ()), problem]) from error


class _Reader:
    """Builds the tree from YAML's events, so that a bound stops it before memory or the stack is used up."""

    def __init__(self, text: str, name: str) -> None:
        self.name = name
        self.problems: list[Problem] = []
        self.at: KeyPath = ()
        self._loader: Any = yaml.SafeLoader(text)
        self._left = VALUES
        self._refused: set[str] = set()

    def document(self) -> Node:
        self._next()
        if self._loader.check_event(yaml.StreamEndEvent):
            return Node({}, self.name)
        self._next()
        tree = self._node((), 0)
        self._next()
        if not self._loader.check_event(yaml.StreamEndEvent):
            source = self._source(self._next())
            raise ConfigError(
                [*self.problems, Problem(source, "(document)", "a second document begins", "one document, without ---")]
            )
        if tree.value is None:
            return Node({}, self.name)
        return tree

    def _next(self) -> yaml.Event:
        event = self._loader.get_event()
        assert isinstance(event, yaml.Event), "the event that ends the stream comes before the events run out"
        return event

    def _source(self, event: yaml.Event) -> str:
        mark = event.start_mark
        return f"{self.name}:{mark.line + 1}" if mark else self.name

    def _node(self, path: KeyPath, depth: int) -> Node:
        self.at = path
        event = self._next()
        source = self._source(event)
        self._left -= 1
        if self._left < 0 or depth > DEPTH:
            limit = f"at most {DEPTH} levels" if depth > DEPTH else f"at most {VALUES} values"
            raise ConfigError([*self.problems, Problem(source, show_key(path), "too much", limit)])
        self._plain_only(event, path, source)
        if isinstance(event, yaml.ScalarEvent):
            quoted = event.style is not None
            return Node(event.value if quoted else plain(event.value), source)
        if isinstance(event, yaml.SequenceStartEvent):
            items: list[Node] = []
            while not self._loader.check_event(yaml.SequenceEndEvent):
                items.append(self._node((*path, len(items)), depth + 1))
            self._next()
            return Node(tuple(items), source)
        if isinstance(event, yaml.MappingStartEvent):
            return Node(self._mapping(path, depth + 1), source)
        return Node(None, source)

    def _plain_only(self, event: yaml.Event, path: KeyPath, source: str) -> None:
        """Refuse anchors, aliases and tags, each once: with them a small file could stand for a huge or foreign one."""
        alias = isinstance(event, yaml.AliasEvent)
        kinds = {
            "an alias": alias,
            "an anchor": not alias and getattr(event, "anchor", None) is not None,
            "a tag": getattr(event, "tag", None) is not None,
        }
        for kind, present in kinds.items():
            if present and kind not in self._refused:
                self._refused.add(kind)
                self.problems.append(Problem(source, show_key(path), f"{kind} is used", "the value itself"))

    def _mapping(self, path: KeyPath, depth: int) -> dict[str, Node]:
        found: dict[str, Node] = {}
        while not self._loader.check_event(yaml.MappingEndEvent):
            key = self._node(path, depth)
            if isinstance(key.value, str):
                name = key.value
            else:
                name = show_value(key.value)
                expected = (
                    f'a text as key; put it in quotes: "{name}"'
                    if not isinstance(key.value, tuple | dict)
                    else "a text as key"
                )
                self.problems.append(Problem(key.source, show_key(path), f"the key is {name}", expected))
            value = self._node((*path, name), depth)
            if not isinstance(key.value, str):
                continue
            if name in found:
                before = found[name].source.rpartition(":")[2]
                problem = Problem(
                    key.source, show_key((*path, name)), f"stands here again, first in line {before}", "each key once"
                )
                self.problems.append(problem)
            else:
                # An error in a section points at the line of its key, where it would be looked for.
                found[name] = Node(value.value, key.source)
        self._next()
        return found


def _syntax(error: yaml.YAMLError, text: str, name: str, at: KeyPath) -> Problem:
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        if "'\\t'" in (error.problem or ""):
            return Problem(f"{name}:{line}", show_key(at), "a tab is used for indentation", "spaces")
        found = "no valid YAML here: " + printable(f"{error.context or ''} {error.problem or ''}".strip())
        return Problem(
            f"{name}:{line}", show_key(at), found, "YAML (is a quote, a colon or an indentation wrong above?)"
        )
    position = getattr(error, "position", 0)
    line = text[: position if isinstance(position, int) else 0].count("\n") + 1
    return Problem(f"{name}:{line}", show_key(at), "a control character", "printable text")
