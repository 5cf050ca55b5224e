"""Scenarios of the API server, read from the files in scenarios/: what it has and does, and what must come of it.

A scenario begins with the pods ``a`` and ``b`` of node1 and one of another node, and with an agent that watches those
of node1. Its steps are done in order: something happens at the server, or the agent must ``see`` something before it
goes on. ``end`` is what must be so when all is done.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, Literal

import msgspec

from tests.fakes.apiserver.objects import PODS, pod
from tests.fakes.apiserver.server import ApiServer, Fault, body, expired, is_list, is_watch, line, refuse, stream

FOLDER: Final = Path(__file__).parent / "scenarios"


class Line(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One line of a watch: an event of a pod, a failure, or any text."""

    type: str = ""
    pod: str = ""
    version: str = ""
    code: int = 0
    reason: str = ""
    text: str = ""
    pieces: list[int] = []
    """Lengths of the pieces in which it comes; the rest is one more."""
    without_end: int = 0
    """So many of its last bytes never come."""

    def parts(self) -> Iterator[bytes]:
        data = self._bytes()
        data = data[: len(data) - self.without_end]
        for length in self.pieces:
            yield data[:length]
            data = data[length:]
        yield data

    def _bytes(self) -> bytes:
        if self.text:
            return self.text.encode() + b"\n"
        if self.type == "ERROR":
            return line("ERROR", expired("as a scenario says", self.reason, self.code))
        item = pod(self.pod)
        item["metadata"] |= {"resourceVersion": self.version} if self.version else {}
        return line(self.type, item)


class Trouble(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is answered instead of what is so, to the next request of its kind."""

    on: Literal["list", "watch"]
    times: int = 1
    """To so many requests."""
    status: int = 0
    retry_after: str = ""
    body: str | None = None
    """With status 200, of a list."""
    fill: str = ""
    """A text that follows ``body``, or stands instead of lines, ``fill_times`` times."""
    fill_times: int = 0
    lines: list[Line] | None = None
    """Of a watch, which then ends: in order, ``after`` seconds, ``cut`` off, or never, if it ``hangs``."""
    after: float = 0.0
    cut: bool = False
    hangs: bool = False

    def faults(self) -> list[Fault]:
        return [self._fault() for _ in range(self.times)]

    def _fault(self) -> Fault:
        fits = is_list if self.on == "list" else is_watch
        more = (self.fill * self.fill_times).encode()
        if self.status:
            return refuse(self.status, retry_after=self.retry_after, fits=fits)
        if self.body is not None:
            return body(self.body.encode() + more, fits=fits)
        parts = [part for each in self.lines or () for part in each.parts()] + ([more] if more else [])
        return stream(*parts, after=self.after, cut=self.cut, hang=self.hangs, fits=fits)


class PodChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A pod that is created, or changed."""

    name: str
    node: str = "node1"
    uid: str = ""
    phase: str = "Running"
    filling: int = 0
    """Bytes of an annotation."""


class Seen(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the agent comes to. What is not named is not looked at."""

    pods: list[str] | None = None
    phases: Mapping[str, str] = {}
    uids: Mapping[str, str] = {}
    up: bool | None = None
    hint: str = ""
    """Part of its words on what to do."""
    troubles: Mapping[str, int] = {}
    """So many of each, at the least."""
    watches: int = 0
    """So many watches have been begun, at the least."""


class End(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What must be so in the end."""

    pods: list[str] | None = None
    troubles: Mapping[str, int] = {}
    """Neither more nor others."""
    lists: list[str] | None = None
    """The resourceVersion of each list that was asked for; empty: of the quorum."""
    watches: list[str] | None = None
    """The resourceVersion from which each watch began."""
    tokens: list[str] | None = None
    """Those that were sent, each once, in order."""


class Step(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One thing that happens, or that must come."""

    put: list[PodChange] | None = None
    delete: list[str] | None = None
    faults: list[Trouble] | None = None
    forbid: bool | None = None
    """The role does not grant pods any more, or grants them again."""
    tokens: list[str] | None = None
    """Those that are accepted."""
    token: str = ""
    """What the agent's file holds from now on."""
    forget: bool = False
    """The server compacts: watches from versions before are refused."""
    cut: bool = False
    """All watches end."""
    see: Seen | None = None

    def happen(self, server: ApiServer, token_file: Path) -> None:
        """At the server, or in the agent's file."""
        for each in self.put or ():
            annotations = {"filling": "x" * each.filling} if each.filling else None
            server.put(PODS, pod(each.name, node=each.node, uid=each.uid, phase=each.phase, annotations=annotations))
        for name in self.delete or ():
            server.delete(PODS, name)
        for trouble in self.faults or ():
            server.faults.extend(trouble.faults())
        if self.forbid is not None:
            (server.forbidden.add if self.forbid else server.forbidden.discard)(PODS)
        if self.tokens is not None:
            server.tokens = set(self.tokens)
        if self.token:
            token_file.write_text(self.token + "\n")
        if self.forget:
            server.forget()
        if self.cut:
            server.cut()


class Scenario(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``before``: what is so when the agent begins."""

    name: str
    before: Step = Step()
    steps: list[Step] = []
    end: End = End()


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``steps``: of all scenarios of the file that have none of their own."""

    scenario: list[Scenario]
    steps: list[Step] = []


def scenarios() -> list[Scenario]:
    """Of all files, in order."""
    files = [msgspec.toml.decode(path.read_bytes(), type=_File) for path in sorted(FOLDER.glob("*.toml"))]
    return [
        each if each.steps else msgspec.structs.replace(each, steps=file.steps)
        for file in files
        for each in file.scenario
    ]
