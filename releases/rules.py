"""How a list of metrics may differ from that of the last release.

| | experimental | stable, deprecated |
|---|---|---|
| comes | the changelog names it | the same |
| goes | the changelog names it | stable: not at all; deprecated: two minor releases after it became so |
| other type, unit, labels, names over OTLP; fewer values of a label | the changelog names it | not at all |
| more values of a label | freely | freely |
| becomes stable, or deprecated | the changelog names it | the same; experimental it does not become again |
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Final

import msgspec

from releases.listing import Entry, Listing

Version = tuple[int, int, int]
KEPT: Final = 2
"""Minor releases for which a deprecated metric is still served."""
_SPAN: Final = re.compile(r"`([^`\n]+)`")
_BRACES: Final = re.compile(r"\{([a-z0-9_,]+)\}")


class Change(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    what: str
    breaking: bool = False
    """Those who build on a stable metric would notice."""
    wildcard: bool = False
    """The changelog may name it among others, as in `accel_x_*`."""


def changes(before: Mapping[str, Entry], now: Mapping[str, Entry]) -> Iterator[Change]:
    """All that the changelog has to tell."""
    for name in sorted(now.keys() - before.keys()):
        yield Change(name=name, what="is new", wildcard=True)
    for name in sorted(before.keys() - now.keys()):
        yield Change(name=name, what="is gone", breaking=before[name].stability != "experimental")
    for name in sorted(before.keys() & now.keys()):
        yield from _altered(name, before[name], now[name])


def _altered(name: str, before: Entry, now: Entry) -> Iterator[Change]:
    promised = before.stability != "experimental"

    def change(what: str, *, breaking: bool) -> Change:
        return Change(name=name, what=what, breaking=breaking)

    for field in ("type", "unit", "otlp"):
        was, now_is = getattr(before, field), getattr(now, field)
        if was != now_is:
            yield change(f"had {field} {was!r} and has {now_is!r}", breaking=promised)
    for label in sorted(before.labels.keys() ^ now.labels.keys()):
        yield change(f"{'lost' if label in before.labels else 'got'} the label {label}", breaking=promised)
    for label in sorted(before.labels.keys() & now.labels.keys()):
        # Without a fixed set of values any may come.
        lost = set(before.labels[label]) - set(now.labels[label]) if now.labels[label] else set()
        if lost or (now.labels[label] and not before.labels[label]):
            yield change(f"has no more all values of {label}: {', '.join(sorted(lost)) or 'any'}", breaking=promised)
    if before.stability != now.stability:
        back = promised and now.stability == "experimental"
        yield change(f"was {before.stability} and is {now.stability}", breaking=back)


def problems(history: Mapping[Version, Listing], version: Version, now: Listing, changelog: str) -> list[str]:
    """What of the differences from the last release is not allowed, or is not told. ``history``: earlier releases."""
    if not history:
        return []
    last, current = history[max(history)].entries(), now.entries()
    told = named(changelog)
    implied = _implied(last, current)
    found = []
    for change in changes(last, current):
        if change.name in implied:
            continue
        if change.breaking and not (change.what == "is gone" and may_go(history, version, change.name)):
            advice = (
                "mark it deprecated and serve it beside its successor"
                if last[change.name].stability == "stable"
                else (f"it stays for {KEPT} minor releases after the one that deprecated it")
            )
            found.append(f"{change.name} {change.what}: that breaks a promise; {advice}")
        elif not any(fnmatchcase(change.name, pattern) for pattern in told if change.wildcard or "*" not in pattern):
            found.append(f"{change.name} {change.what}: CHANGELOG.md does not name it under Unreleased")
    return found


def _implied(before: Mapping[str, Entry], now: Mapping[str, Entry]) -> set[str]:
    """Instruments of OTLP that come or go with a metric: that is told once."""
    coming = {name for metric in now.keys() - before.keys() for name in now[metric].otlp} - before.keys()
    going = {name for metric in before.keys() - now.keys() for name in before[metric].otlp} - now.keys()
    return coming | going


def may_go(history: Mapping[Version, Listing], version: Version, name: str) -> bool:
    """Whether a metric has been deprecated for long enough."""
    since: Version | None = None
    for release in sorted(history, reverse=True):
        entry = history[release].entries().get(name)
        if entry is None or entry.stability != "deprecated":
            break
        since = release
    if since is None:
        return False
    return version[0] > since[0] or version[1] >= since[1] + KEPT


def named(changelog: str) -> set[str]:
    """The names in code spans, those in braces one by one: `a_{b,c}` is a_b and a_c."""
    return {name for span in _SPAN.findall(changelog) for word in span.split() for name in _each(word)}


def _each(word: str) -> Sequence[str]:
    found = _BRACES.search(word)
    if found is None:
        return [word]
    return [name for part in found[1].split(",") for name in _each(word[: found.start()] + part + word[found.end() :])]
