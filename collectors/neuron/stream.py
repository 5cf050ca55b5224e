"""Cuts neuron-monitor's output into reports.

There is one JSON object a line in practice, but the documents promise only a stream of JSON: objects that share a line
or span several are taken, too. What cannot be understood is dropped and counted; memory is bounded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final, Generic, TypeVar

import msgspec

T = TypeVar("T")

MAX_REPORT: Final = 16 * 2**20
"""Bytes of one report. Real ones have half a megabyte with 32 runtimes; most of it lists loaded models."""

NOT_UNDERSTOOD: Final = (msgspec.MsgspecError, ValueError, RecursionError)
"""What a decoder raises."""

_TOKEN: Final = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}]')
"""A string, in which braces mean nothing, or a brace."""
_BEGINS: Final = re.compile(
    rb'\{\s*"(?:neuron_runtime_data|system_data|instance_info|neuron_hardware_info|runtime_data|instance_data)"'
)
"""How a report begins: what is nested in one begins otherwise."""


class Splitter(Generic[T]):
    """Takes bytes as they come, gives what ``decode`` makes of whole objects.

    ``malformed`` counts pieces of which it makes nothing.
    """

    def __init__(self, decode: Callable[[bytes], T], limit: int = MAX_REPORT) -> None:
        self.malformed = 0
        self._decode = decode
        self._limit = limit
        self._tail = bytearray()
        """The begin of a line whose end has not come."""
        self._skipping = False
        """The line was too long: the rest of it is dropped."""
        self._open = bytearray()
        """Lines of an object that is not complete."""
        self._depth = 0

    def feed(self, chunk: bytes) -> list[T]:
        """The reports that are complete with these bytes."""
        found: list[T] = []
        *lines, rest = chunk.split(b"\n")
        for line in lines:
            skipping, self._skipping = self._skipping, False
            self._tail += line
            if skipping or self._too_long():
                self._tail.clear()
                continue
            whole = bytes(self._tail).strip()
            self._tail.clear()
            found.extend(self._line(whole))
        if not self._skipping:
            self._tail += rest
            self._skipping = self._too_long()
        if self._skipping:
            self._tail.clear()
        return found

    def _too_long(self) -> bool:
        too_long = len(self._tail) > self._limit
        if too_long:
            self.malformed += 1
            self._drop()
        return too_long

    def _line(self, line: bytes) -> Iterator[T]:
        if not line:
            return
        begins = _BEGINS.match(line) is not None
        if begins and self._open:
            # What was open has lost its end: a report does not begin inside another.
            self.malformed += 1
            self._drop()
        if not self._open:
            if not line.startswith(b"{"):
                self.malformed += 1
                return
            try:
                yield self._decode(line)
            except NOT_UNDERSTOOD:
                yield from self._slowly(line)
            return
        yield from self._slowly(line)

    def _slowly(self, line: bytes) -> Iterator[T]:
        """Count braces, for an object that is not a line of its own."""
        start = len(self._open)
        self._open += line + b"\n"
        done = 0
        for token in _TOKEN.finditer(line):
            self._depth += {b"{": 1, b"}": -1}.get(token.group(), 0)
            if self._depth == 0 and token.group() == b"}":
                end = start + token.end()
                yield from self._piece(bytes(self._open[done:end]))
                done = end
            elif self._depth < 0:
                self._depth = 0
        del self._open[:done]
        if not self._depth and self._open.strip():
            # What stands between two objects.
            self.malformed += 1
        if not self._depth:
            self._drop()
        elif len(self._open) > self._limit:
            self.malformed += 1
            self._drop()

    def _piece(self, text: bytes) -> Iterator[T]:
        try:
            yield self._decode(text.strip())
        except NOT_UNDERSTOOD:
            self.malformed += 1

    def _drop(self) -> None:
        self._open.clear()
        self._depth = 0
