"""Where nv-hostengine listens, and whether anything does: a connection by the library would be tried for seconds."""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

from collectors.base import Unavailable

PORT: Final = 5555
_PROBE: Final = 0.5
"""Seconds for a connection to be taken, where a host does not refuse it."""
_HOST: Final = re.compile(r"\[([0-9a-fA-F:.%\w]+)\]|([^\s:/\[\]]+)")


class Address(msgspec.Struct, frozen=True):
    """Of an engine: a socket's path, a host, or the context id of a virtual machine's host."""

    kind: Literal["unix", "tcp", "vsock"]
    where: str
    port: int = PORT

    def __str__(self) -> str:
        if self.kind == "unix":
            return self.where
        host = f"[{self.where}]" if ":" in self.where else self.where
        return f"{host}:{self.port}" if self.kind == "tcp" else f"vsock://{self.where}:{self.port}"


DEFAULTS: Final = (Address("unix", "/tmp/nv-hostengine"), Address("tcp", "127.0.0.1"))
"""Where nv-hostengine listens without options: with -d alone on the socket, else on the port."""


def parse(text: str) -> Address:
    """``host``, ``host:port``, ``/path``, and the same as ``tcp://``, ``unix://``, ``vsock://cid:port``.

    Raises ValueError for anything else.
    """
    scheme, found, rest = text.rpartition("://")
    if not found:
        scheme = "unix" if text.startswith("/") else "tcp"
    if scheme == "unix" and rest.startswith("/") and "\0" not in rest:
        return Address("unix", rest)
    host = _HOST.match(rest)
    if scheme not in ("tcp", "vsock") or host is None:
        raise ValueError(f"{text!r} is no address of nv-hostengine")
    where, port = host[1] or host[2], rest[host.end() :]
    if not re.fullmatch(r"(:\d{1,5})?", port) or (scheme == "vsock" and not where.isdigit()):
        raise ValueError(f"{text!r} is no address of nv-hostengine")
    number = int(port[1:] or PORT)
    if not 0 < number < 65536:
        raise ValueError(f"{text!r}: a port is from 1 to 65535")
    return Address("tcp" if scheme == "tcp" else "vsock", where, number)


def listens(address: Address, seconds: float) -> bool:
    """Whether a connection is taken there. Waits no longer than told, and not at all where nothing listens."""
    try:
        with _socket(address) as probe:
            probe.settimeout(seconds)
            probe.connect(_target(address))
    except OSError:
        return False
    return True


def _socket(address: Address) -> socket.socket:
    if address.kind == "tcp":
        return socket.socket(socket.AF_INET6 if ":" in address.where else socket.AF_INET)
    return socket.socket(socket.AF_UNIX if address.kind == "unix" else socket.AF_VSOCK)


def _target(address: Address) -> str | tuple[str | int, int]:
    if address.kind == "unix":
        return address.where
    return (int(address.where), address.port) if address.kind == "vsock" else (address.where, address.port)


def candidates(options: Mapping[str, Any]) -> tuple[Address, ...]:
    """Where to look for nv-hostengine. Raises Unavailable for an address that is none."""
    text = str(options.get("dcgm_address", ""))
    if not text:
        return DEFAULTS
    try:
        return (parse(text),)
    except ValueError as error:
        hint = f"{error}: set dcgm_address to host, host:port, a socket's path, or unix://, tcp:// or vsock://"
        raise Unavailable("no_driver", hint) from None


def reachable(options: Mapping[str, Any]) -> Address | None:
    """The first address at which something listens."""
    return next((address for address in candidates(options) if listens(address, _PROBE)), None)
