"""Regular expressions of the configuration: only those are taken that cannot take long.

Python's engine tries one way after the other. Where a repetition stands in a repetition, or many stand side by side,
their number grows beyond all bounds with the text, and the text is a workload's: a label of a pod would stop the agent.
The ways are counted here from the parsed expression, for a text of ``MAX_TEXT`` characters.
"""

from __future__ import annotations

import importlib
import math
import re
from collections.abc import Iterable
from typing import Any, Final

MAX_TEXT: Final = 128
"""Characters of a text that expressions are tried on."""
MAX_WAYS: Final = 2**24
"""Some tenths of a second."""
MAX_LENGTH: Final = 1000
"""Parts of an expression, those that are repeated as often as they are."""
EXPECTED: Final = (
    "a regular expression (Python's) that cannot take long: no repetition or alternative within a repetition, at most "
    "three of *, + and {m,n}, no look-around and no reference to a group"
)

_SINGLE: Final = frozenset(("LITERAL", "NOT_LITERAL", "ANY", "IN", "AT", "CATEGORY"))
_REPEATS: Final = frozenset(("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"))

_Cost = tuple[int, int, int]
"""Repetitions of any number, ways beside them, parts."""


class _Refused(Exception):
    """The expression has something whose cost is not bounded."""


def is_quick(pattern: str) -> bool:
    """Whether it is an expression, and ends soon on any text."""
    # Nothing public gives the parsed form; a Python without it would fail all tests of this module.
    parser: Any = importlib.import_module("re._parser")
    try:
        re.compile(pattern)
        tree = parser.parse(pattern)
        stars, ways, length = _sequence(tree)
    except (re.error, RecursionError, OverflowError, _Refused):
        return False
    if not _is_anchored(tree):
        stars += 1
    return length <= MAX_LENGTH and math.comb(MAX_TEXT + stars, stars) * ways <= MAX_WAYS


def _is_anchored(tree: Any) -> bool:
    first = tree[0] if len(tree) else None
    if first is None or str(first[0]) != "AT":
        return False
    lines = tree.state.flags & re.MULTILINE
    return str(first[1]) == "AT_BEGINNING_STRING" or (str(first[1]) == "AT_BEGINNING" and not lines)


def _sequence(nodes: Iterable[tuple[Any, Any]]) -> _Cost:
    stars, ways, length = 0, 1, 0
    for name, told in nodes:
        cost = _node(str(name), told)
        stars, ways, length = stars + cost[0], ways * cost[1], length + cost[2]
        if ways > MAX_WAYS or length > MAX_LENGTH:
            raise _Refused
    return stars, ways, length


def _node(name: str, told: Any) -> _Cost:
    if name in _SINGLE:
        return 0, 1, 1
    if name == "SUBPATTERN":
        return _sequence(told[-1])
    if name == "BRANCH":
        costs = [_sequence(each) for each in told[1]]
        return max(cost[0] for cost in costs), sum(cost[1] for cost in costs), sum(cost[2] for cost in costs)
    if name in _REPEATS:
        return _repeat(*told)
    # References to groups, assertions of what follows or precedes, and what a later Python may have.
    raise _Refused


def _repeat(least: int, most: int, body: Any) -> _Cost:
    stars, ways, length = _sequence(body)
    if most <= 1:
        return stars, ways + 1, length
    if least > MAX_LENGTH:
        raise _Refused
    if least == most:
        return stars * most, min(ways**most, MAX_WAYS + 1), length * most
    if stars or ways > 1:
        raise _Refused
    return 1, 1, length * max(least, 1)
