"""The configuration in force, for everyone who can reach the port: without secrets and without places of files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from exporter.config import Config
from exporter.status.model import Setting

HIDDEN: Final = "(hidden)"
PATH: Final = "(path)"

_SECRET: Final = re.compile(
    r"header|token|passw|pass_?phrase|pwd|secret|credential|auth(?!or)|private|cookie|bearer|cert|community|signature"
    r"|(?:^|[._-])(?:api)?keys?(?:$|[._\[-])",
    re.IGNORECASE,
)
"""In a key's name: whatever stands there, or below it, is hidden."""
_HARMLESS: Final = frozenset(("attribution.tenant_from", "attribution.job_rules"))
"""Lists whose entries name keys of labels."""
_PLACE: Final = re.compile(
    r"(?P<url>[A-Za-z][A-Za-z0-9+.-]*://[^\s,]+)"
    r"|(?:^|(?<=[\s:=,'\"(\[@]))(?:~|\{\w+\})?/[^\s,:'\"]*|\{\w+\}(?=$|[:,])|[A-Za-z]:\\\S*"
)
"""A URL, or a path from a root, from a placeholder or from a home directory."""


def settings(config: Config, default: Config) -> tuple[Setting, ...]:
    """Every key with its value, in the model's order; entries of lists and mappings are keys, too.

    ``default``: what would be in force here without any configuration.
    """
    before = dict(_flat(msgspec.to_builtins(default)))
    return tuple(_setting(key, value, before) for key, value in _flat(msgspec.to_builtins(config)))


def _flat(value: object, path: str = "") -> Iterator[tuple[str, Any]]:
    """Keys and their values; a list of plain values is one."""
    if isinstance(value, Mapping) and (value or not path):
        for name, inner in value.items():
            yield from _flat(inner, f"{path}.{name}" if path else str(name))
    elif isinstance(value, list | tuple) and any(isinstance(inner, Mapping) for inner in value):
        for position, inner in enumerate(value):
            yield from _flat(inner, f"{path}[{position}]")
    else:
        yield path, value


def _setting(key: str, value: Any, before: Mapping[str, Any]) -> Setting:
    shown = shown_value(key, value)
    return Setting(
        key=key, value=shown, default=key in before and before[key] == value, hidden=bool(value) and shown != value
    )


def shown_value(key: str, value: Any) -> Any:
    """A value as everyone may see it."""
    # Limits such as http.max_header_bytes are numbers, and secrets are not. Of collectors' options nobody knows.
    number = isinstance(value, bool) or (isinstance(value, int | float) and ".options." not in key)
    if _is_secret(key) and not number:
        # What is empty is no secret, and says that none is set.
        return HIDDEN if value else value
    if isinstance(value, str):
        return _without_places(value)
    if isinstance(value, list | tuple):
        return type(value)(shown_value(key, inner) for inner in value)
    return value


def _is_secret(key: str) -> bool:
    within = re.sub(r"\[\d+\].*", "", key)
    return within not in _HARMLESS and _SECRET.search(key) is not None


def _without_places(text: str) -> str:
    return _PLACE.sub(lambda match: _origin(match["url"]) if match["url"] else PATH, text)


def _origin(url: str) -> str:
    """Scheme, host and port of a URL: its user, path and query may be secrets."""
    try:
        parts = urlsplit(url)
        host = f"[{parts.hostname}]" if parts.hostname and ":" in parts.hostname else parts.hostname or ""
        port = f":{parts.port}" if parts.port is not None else ""
    except ValueError:
        return HIDDEN
    user = "…@" if "@" in parts.netloc else ""
    rest = "/…" if parts.path.strip("/") or parts.query or parts.fragment else ""
    return f"{parts.scheme}://{user}{host}{port}{rest}"
