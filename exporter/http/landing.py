"""The page that people see who open the agent's address in a browser."""

from __future__ import annotations

import base64
import hashlib
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
    """What the page tells."""

    version: str
    node: str
    simulated: bool
    collectors: tuple[CollectorLine, ...] = ()


_STYLE: Final = """
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 64rem; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; }
th, td { border-bottom: 1px solid #bbb; padding: .3rem .8rem .3rem 0; text-align: left; vertical-align: top; }
td.number, th.number { text-align: right; }
p.simulated { background: #b00020; color: #fff; font-weight: bold; padding: .6rem 1rem; }
@media (prefers-color-scheme: dark) { body { background: #111; color: #ddd; } a { color: #8ab4f8; } }
"""
_STYLE_HASH: Final = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
CONTENT_SECURITY_POLICY: Final = (
    f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Nothing may be loaded or run; the one style sheet is the page's own."""

_LINKS: Final = (
    ("metrics", "everything, for Prometheus"),
    ("metrics?schema=common", "the common schema and the agent's own metrics"),
    ("metrics?schema=raw", "the vendors' own series"),
    ("readyz", "whether the first readings are done"),
    ("healthz", "whether the agent works"),
)
_NUMBER: Final = ' class="number"'
_HEADINGS: Final = (
    f"<th>Collector</th><th>State</th><th{_NUMBER}>Devices</th><th{_NUMBER}>Newest sample</th><th>Hint</th>"
)
_BANNER: Final = '<p class="simulated" role="alert">SIMULATED: no device of this page exists.</p>'
_CREDENTIALS: Final = re.compile(r"(?<=://)[^/\s@]+@")
_PATH: Final = re.compile(r"(?<![\w/.\]…])/(?!/|(?:dev|proc|sys)/)(?:[^\s/'\"`,;:()]+/)+(?=[^\s/'\"`,;:()])")


def page(overview: Overview) -> str:
    """The page. Its links are relative, so that they work behind a proxy that puts a path in front."""
    title = f"accel-exporter on {overview.node}" + (" (SIMULATED)" if overview.simulated else "")
    links = "\n".join(f'<li><a href="{target}">/{target}</a>: {escape(text)}</li>' for target, text in _LINKS)
    rows = "\n".join(_row(line) for line in overview.collectors)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>{_STYLE}</style>
</head>
<body>
<h1>accel-exporter</h1>
{_BANNER if overview.simulated else ""}
<p>Version {escape(overview.version)}, node {escape(overview.node)}</p>
<ul>
{links}
</ul>
<table>
<thead>
<tr>{_HEADINGS}</tr>
</thead>
<tbody>
{rows or '<tr><td colspan="5">No collector is configured.</td></tr>'}
</tbody>
</table>
</body>
</html>
"""


def _row(line: CollectorLine) -> str:
    cells = (
        ("", line.name),
        ("", line.state),
        (_NUMBER, str(line.devices)),
        (_NUMBER, "none" if line.age is None else f"{_duration(line.age)} ago"),
        ("", public(line.hint)),
    )
    return "<tr>" + "".join(f"<td{attributes}>{escape(text)}</td>" for attributes, text in cells) + "</tr>"


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
