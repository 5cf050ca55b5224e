"""Who may ask the agent to let go of the devices: programs on this node, and no web page that runs in its browsers."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping, Sequence
from typing import Final

MIN_SECONDS: Final = 1
MAX_SECONDS: Final = 3600
_NUMBER: Final = re.compile("[0-9]{1,4}")
_HOST: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]+)(?::[0-9]{1,5})?")
_FORWARDED: Final = ("forwarded", "via", "x-forwarded-for", "x-real-ip")
_BROWSER: Final = ("origin", "sec-fetch-site")


def refusal(peer: object, headers: Mapping[str, str], hosts: Sequence[str]) -> str | None:
    """Why this client may not release, or None if it may. Nothing is said by a header that lets someone in.

    ``peer``: the socket's address as the transport tells it. ``headers``: with names in any case. ``hosts``: all Host
    headers; a page whose name was rebound to the loopback address shows its own name there.
    """
    if not (isinstance(peer, tuple) and peer and is_loopback(str(peer[0]))):
        return "only programs on this node may release devices: ask at 127.0.0.1"
    if any(name in headers for name in _FORWARDED):
        return "a forwarded request does not come from this node: ask at 127.0.0.1, without a proxy"
    if any(name in headers for name in _BROWSER):
        return "web pages may not release devices: use a command such as curl"
    host = _HOST.fullmatch(hosts[0]) if len(hosts) == 1 else None
    if host is None or not (host[1].lower() == "localhost" or is_loopback(host[1].strip("[]"))):
        return "the Host header does not name this node: ask at 127.0.0.1 or localhost"
    return None


def is_loopback(address: str) -> bool:
    """Whether an address is this host's own loopback, in IPv4, IPv6 or mapped form."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return (mapped or found).is_loopback


def seconds(values: Sequence[str], default: float) -> float:
    """The time that a request asks for. Raises ValueError, which says what was expected."""
    if not values:
        return default
    if len(values) > 1 or not _NUMBER.fullmatch(values[0]) or not MIN_SECONDS <= int(values[0]) <= MAX_SECONDS:
        raise ValueError(f"seconds: expected one whole number from {MIN_SECONDS} to {MAX_SECONDS}")
    return float(values[0])
