"""Listening sockets."""

from __future__ import annotations

import errno
import socket
from collections.abc import Sequence
from typing import Final

BACKLOG: Final = 128
_ADVICE: Final = {
    errno.EADDRINUSE: "another program listens there: stop it, or choose another port in `listen`",
    errno.EACCES: "ports below 1024 need the capability NET_BIND_SERVICE: choose a higher one in `listen`",
    errno.EADDRNOTAVAIL: "this host has no such address: correct `listen`, or use 0.0.0.0 for all addresses",
    errno.EAFNOSUPPORT: "this host has IPv6 switched off: use 0.0.0.0 in `listen`",
}
_MISSING: Final = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
"""Of a name's several addresses the host need not have each: `localhost` names ::1 where IPv6 is switched off, too."""
_NAME_ADVICE: Final = "the name has no address: correct `listen`, or write the address itself"


def listen(addresses: Sequence[str]) -> list[socket.socket]:
    """Sockets that listen on all ``addresses`` (HOST:PORT, IPv6 in brackets), or on none.

    ``[::]`` takes IPv4 clients, too, unless an IPv4 wildcard with the same port stands beside it. Raises OSError, whose
    ``strerror`` names the address and says what to do.
    """
    sockets: list[socket.socket] = []
    try:
        for address in addresses:
            sockets += _listen(address, addresses)
    except OSError:
        for opened in sockets:
            opened.close()
        raise
    return sockets


def _listen(address: str, addresses: Sequence[str]) -> list[socket.socket]:
    host, _, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    both = host == "::" and not (port != "0" and f"0.0.0.0:{port}" in addresses)
    opened: list[socket.socket] = []
    missing: OSError | None = None
    try:
        # A name can have several addresses. A port that the system chooses is chosen once for all of them.
        for family, _, _, _, place in _resolve(host, int(port)):
            if opened and port == "0":
                place = (place[0], opened[0].getsockname()[1], *place[2:])
            try:
                opened.append(_open(family, place, both=both))
            except OSError as error:
                if error.errno not in _MISSING:
                    raise
                missing = error
        if missing is not None and not opened:
            raise missing
    except OSError as error:
        for each in opened:
            each.close()
        reason = error.strerror or str(error)
        advice = _NAME_ADVICE if isinstance(error, socket.gaierror) else _ADVICE.get(error.errno or 0)
        text = f"cannot listen on {address}: {reason}" + (f": {advice}" if advice else "")
        raise OSError(error.errno, text) from error
    return opened


_Resolved = tuple[socket.AddressFamily, socket.SocketKind, int, str, tuple[str | int, ...]]


def _resolve(host: str, port: int) -> list[_Resolved]:
    found: list[_Resolved] = list(
        dict.fromkeys(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE))  # type: ignore[arg-type]
    )
    return found


def _open(family: socket.AddressFamily, place: tuple[str | int, ...], *, both: bool) -> socket.socket:
    opened = socket.socket(family, socket.SOCK_STREAM)
    try:
        opened.setblocking(False)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(not both))
        opened.bind(place)
        opened.listen(BACKLOG)
    except OSError:
        opened.close()
        raise
    return opened


def name(listening: socket.socket) -> str:
    """HOST:PORT of a listening socket, with the port that it really has."""
    host, port = listening.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
