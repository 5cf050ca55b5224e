"""What people see of the agent whose browsers run no scripts, and what of a hint is for everyone."""

from __future__ import annotations

import re
from html import escape
from typing import Final

import msgspec


class CollectorLine(msgspec.Struct, frozen=True, kw_only=True):
    """One collector, as the page shows it."""

    name: str
    state: str
    hint: str = ""
    """What to do about the state; empty where nothing is to be done."""
    devices: int = 0
    age: float | None = None
    """Seconds since the newest sample; None: there is none."""


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """What is told of the agent."""

    version: str
    node: str
    collectors: tuple[CollectorLine, ...] = ()


_LINKS: Final = (
    ("metrics", "everything, for Prometheus"),
    ("metrics?schema=common", "the common schema and the agent's own metrics"),
    ("metrics?schema=raw", "the vendors' own series"),
    ("api/v1/devices", "devices, as JSON"),
    ("api/v1/status", "collectors and the agent, as JSON"),
    ("readyz", "whether the first readings are done"),
    ("healthz", "whether the agent works"),
)
_NUMBER: Final = ' class="number"'
_HEADINGS: Final = "".join(
    f'<th scope="col"{attributes}>{text}</th>'
    for text, attributes in (
        ("Collector", ""),
        ("State", ""),
        ("Devices", _NUMBER),
        ("Newest sample", _NUMBER),
        ("Hint", ""),
    )
)
_CREDENTIALS: Final = re.compile(r"(?<=://)[^/\s@]+@")
_PATH: Final = re.compile(r"(?<![\w/.\]…])/(?!/|(?:dev|proc|sys)/)(?:[^\s/'\"`,;:()]+/)+(?=[^\s/'\"`,;:()])")


def fallback(overview: Overview) -> str:
    """Version, links and collectors as they are now, as a part of a page: for who runs no scripts.

    The links are relative, so that they work behind a proxy that puts a path in front.
    """
    links = "\n".join(f'<li><a href="{target}">/{target}</a>: {escape(text)}</li>' for target, text in _LINKS)
    rows = "\n".join(_row(line) for line in overview.collectors)
    return f"""<p>Version {escape(overview.version)}, node {escape(overview.node)}</p>
<ul>
{links}
</ul>
<table>
<caption>Collectors</caption>
<thead>
<tr>{_HEADINGS}</tr>
</thead>
<tbody>
{rows or '<tr><td colspan="5">No collector is configured.</td></tr>'}
</tbody>
</table>
"""


def _row(line: CollectorLine) -> str:
    cells = (
        ("", line.name),
        ("", line.state),
        (_NUMBER, str(line.devices)),
        (_NUMBER, "none" if line.age is None else f"{_duration(line.age)} ago"),
        ("", public(line.hint)),
    )
    head, *rest = (f"{attributes}>{escape(text)}" for attributes, text in cells)
    return f'<tr><th scope="row"{head}</th>' + "".join(f"<td{cell}</td>" for cell in rest) + "</tr>"


def _duration(seconds: float) -> str:
    seconds = max(0.0, seconds)
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"


def public(hint: str) -> str:
    """A hint for everyone who can reach the port: without credentials in URLs, and of a path the last part alone.

    Devices and kernel files keep theirs: they are the same on every host, and the hint is about them.
    """
    return _PATH.sub("…/", _CREDENTIALS.sub("…@", hint))
