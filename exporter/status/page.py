"""The page that people see who open the agent's address in a browser: three kinds of files, as they lie in assets/."""

from __future__ import annotations

from html import escape
from pathlib import Path
from string import Template
from typing import Final

from exporter.http.landing import CollectorLine, Overview, fallback
from exporter.http.resources import Answerer, Query, Resource
from exporter.status.model import Status

FOLDER: Final = Path(__file__).parent / "assets"
ASSETS: Final = {
    "app.js": "text/javascript; charset=utf-8",
    "devices.js": "text/javascript; charset=utf-8",
    "dom.js": "text/javascript; charset=utf-8",
    "panels.js": "text/javascript; charset=utf-8",
    "style.css": "text/css; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
"""What the page loads → its type."""

HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}
"""The page runs its own files alone, asks its own server alone, and can never make markup out of text."""

_ASSET_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
}
BANNER: Final = '<p class="simulated" role="note"><strong>SIMULATED</strong>: no device of this page exists.</p>'


def page(status: Status) -> str:
    """The page, with the node's name, and what a browser shows that runs no scripts."""
    title = f"accel-exporter on {status.node}" + (" (SIMULATED)" if status.simulated else "")
    return Template((FOLDER / "index.html").read_text()).substitute(
        title=escape(title),
        node=escape(status.node),
        version=escape(status.agent_version),
        banner=BANNER if status.simulated else "",
        fallback=fallback(_overview(status)),
    )


def _overview(status: Status) -> Overview:
    lines = (
        CollectorLine(name=each.name, state=each.state, hint=each.hint, devices=each.devices, age=each.age)
        for each in status.collectors
    )
    return Overview(version=status.agent_version, node=status.node, collectors=tuple(lines))


def asset(name: str) -> Answerer:
    """One of the files that the page loads. Whatever stands behind the question mark is passed over."""
    resource = Resource(
        content=(FOLDER / name).read_bytes(), content_type=ASSETS[name], headers=_ASSET_HEADERS, constant=True
    )

    async def answer(_: Query) -> Resource:
        return resource

    return answer
