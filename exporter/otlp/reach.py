"""For doctor: whether receivers can be connected to. Nothing is sent, and names are without paths and secrets."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

import msgspec

from exporter.config.otlp import OtlpEndpoint
from exporter.otlp.http import proxy_for

PATIENCE: Final = 3.0
"""Seconds for all receivers together; a name that nobody resolves would take longer."""
_PORTS: Final = {"http": 80, "https": 443}
_UNIX: Final = "unix:"


class Reached(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a try."""

    name: str
    """Scheme, host and port; of a Unix socket the last part of its path."""
    proxy: str = ""
    """Host and port of the proxy that was tried instead, which alone knows the receiver."""
    trouble: str = ""
    """Why it cannot be reached; empty: it can."""


class _Target(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    proxy: str
    place: str | tuple[str, int]
    """A socket's path, or host and port."""


def reach(endpoints: Sequence[OtlpEndpoint], patience: float = PATIENCE) -> list[Reached]:
    """Try all of them at the same time."""
    targets = [_target(endpoint) for endpoint in endpoints]
    troubles = [f"no connection within {patience:g} seconds"] * len(targets)

    def run(index: int) -> None:
        troubles[index] = _try(targets[index].place, patience)

    # Daemons: resolving a name has no deadline, and must not hold up the end.
    threads = [threading.Thread(target=run, args=(index,), daemon=True) for index in range(len(targets))]
    end = time.monotonic() + patience
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    return [
        Reached(name=target.name, proxy=target.proxy, trouble=trouble)
        for target, trouble in zip(targets, list(troubles), strict=True)
    ]


def _target(endpoint: OtlpEndpoint) -> _Target:
    text = endpoint.endpoint
    if text.startswith(_UNIX):
        path = "/" + text.removeprefix(_UNIX).lstrip("/")
        return _Target(name=f"{_UNIX}…/{path.rpartition('/')[2]}", proxy="", place=path)
    scheme, found, _ = text.partition("://")
    # HOST:PORT is an address of gRPC's.
    url = text if found else f"{'http' if endpoint.insecure else 'https'}://{text}"
    parts = urlsplit(url)
    place = (parts.hostname or "", parts.port or _PORTS[parts.scheme])
    name = _written(place)
    through = proxy_for(url, endpoint.proxy)
    if through is None:
        return _Target(name=f"{scheme}://{name}" if found else name, proxy="", place=place)
    at = (through.host or "", through.port or _PORTS["http"])
    return _Target(name=f"{scheme}://{name}" if found else name, proxy=_written(at), place=at)


def _written(place: tuple[str, int]) -> str:
    host, port = place
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _try(place: str | tuple[str, int], patience: float) -> str:
    try:
        if isinstance(place, str):
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as opened:
                opened.settimeout(patience)
                opened.connect(place)
        else:
            socket.create_connection(place, timeout=patience).close()
    except TimeoutError:
        return f"no connection within {patience:g} seconds"
    except OSError as error:
        return error.strerror or str(error)
    return ""
