"""The routes of the page and of the JSON API."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from exporter.http.resources import Answerer, BadQuery, Query, Resource, only
from exporter.status.page import ASSETS, FOLDER, HEADERS, asset, page
from exporter.status.service import Monitor

API: Final = "/api/v1"
_SECONDS: Final = re.compile(r"[0-9]{1,12}(?:\.[0-9]{1,6})?")
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,100}")
_JSON_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
}


def routes(monitor: Monitor) -> Mapping[str, Answerer]:
    """Path → what answers there."""
    document = (FOLDER / "openapi.json").read_bytes()

    async def devices(query: Query) -> Resource:
        only(query)
        return _json(await monitor.devices())

    async def history(query: Query) -> Resource:
        return _json(await monitor.history(_since(query)))

    async def status(query: Query) -> Resource:
        only(query)
        return _json(monitor.status())

    async def mapping(query: Query) -> Resource:
        only(query, "collector")
        name = query.get("collector", [""])[0]
        try:
            if not name or _NAME.fullmatch(name):
                return _json(monitor.mapping(name))
        except KeyError:
            name = ""
        raise BadQuery("collector: expected the name of a collector, as /api/v1/mapping lists them")

    async def config(query: Query) -> Resource:
        only(query)
        return _json(monitor.config())

    async def openapi(query: Query) -> Resource:
        only(query)
        return Resource(content=document, headers=_JSON_HEADERS, constant=True)

    async def index(_: Query) -> Resource:
        return Resource(
            content=page(monitor.status()).encode(), content_type="text/html; charset=utf-8", headers=HEADERS
        )

    answerers: dict[str, Answerer] = {
        "/": index,
        f"{API}/devices": devices,
        f"{API}/history": history,
        f"{API}/status": status,
        f"{API}/mapping": mapping,
        f"{API}/config": config,
        f"{API}/openapi.json": openapi,
    }
    return answerers | {f"/assets/{name}": asset(name) for name in ASSETS}


def _json(answer: msgspec.Struct) -> Resource:
    return Resource(content=msgspec.json.encode(answer), headers=_JSON_HEADERS)


def _since(query: Query) -> float:
    only(query, "since")
    value = query.get("since", ["0"])[0]
    if _SECONDS.fullmatch(value) is None:
        raise BadQuery("since: expected Unix time in seconds, such as 1767225600")
    return float(value)
