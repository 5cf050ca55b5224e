"""Listening sockets."""

from __future__ import annotations

import errno
import os
import socket
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

BACKLOG: Final = 128
"""Connections that may wait in the kernel."""
AT_A_TIME: Final = 8
"""Connections that the loop takes in before others have their turn."""
_ADVICE: Final = {
    errno.EADDRINUSE: "another program listens there: stop it, or choose another port in `listen`",
    errno.EACCES: "ports below 1024 need the capability NET_BIND_SERVICE: choose a higher one in `listen`",
    errno.EADDRNOTAVAIL: "this host has no such address: correct `listen`, or use 0.0.0.0 for all addresses",
    errno.EAFNOSUPPORT: "this host has IPv6 switched off: use 0.0.0.0 in `listen`",
}
_MISSING: Final = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
"""Of a name's several addresses the host need not have each: `localhost` names ::1 where IPv6 is switched off, too."""
_NAME_ADVICE: Final = "the name has no address: correct `listen`, or write the address itself"
_UNIX: Final = "unix:"
_SOCKET_ADVICE: Final = {
    errno.EADDRINUSE: "another program listens there: stop it, or choose another path in `listen`",
    errno.EEXIST: "a file that is no socket stands there: remove it, or choose another path in `listen`",
    errno.ENOENT: "its directory is missing: make it, or choose another path in `listen`",
    errno.EACCES: "this user may not write in its directory: choose another path in `listen`",
    errno.EROFS: "its directory cannot be written: choose another path in `listen`",
}

Place = tuple[int, int]
"""Device and inode of a socket's file."""


def listen(addresses: Sequence[str], socket_mode: int = 0o660) -> list[socket.socket]:
    """Sockets that listen on all ``addresses`` (HOST:PORT, IPv6 in brackets, or unix:PATH), or on none.

    A Unix socket gets the permissions ``socket_mode``; one that a dead program left there is replaced. ``[::]`` takes
    IPv4 clients, too, unless an IPv4 wildcard with the same port stands beside it. Raises OSError, whose ``strerror``
    names the address and says what to do.
    """
    sockets: list[socket.socket] = []
    try:
        for address in addresses:
            if address.startswith(_UNIX):
                sockets.append(_listen_unix(address, socket_mode))
            else:
                sockets += _listen(address, addresses)
    except OSError:
        remove(places(sockets))
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


def _listen_unix(address: str, mode: int) -> socket.socket:
    path = address.removeprefix(_UNIX)
    opened = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        opened.setblocking(False)
        _make_room(path)
        # The file has never more permissions than these: it begins with those of its descriptor, less the umask.
        os.fchmod(opened.fileno(), mode)
        opened.bind(path)
        Path(path).chmod(mode)
        opened.listen(BACKLOG)
    except OSError as error:
        opened.close()
        advice = _SOCKET_ADVICE.get(error.errno or 0)
        text = f"cannot listen on {address}: {error.strerror or error}" + (f": {advice}" if advice else "")
        raise OSError(error.errno, text) from error
    return opened


def _make_room(path: str) -> None:
    """Remove a socket that nobody listens on any more. Raises OSError for one in use, and for any other file."""
    try:
        kind = Path(path).lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(kind):
        raise OSError(errno.EEXIST, os.strerror(errno.EEXIST))
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            Path(path).unlink(missing_ok=True)
            return
        except BlockingIOError:
            # Somebody listens, and is busy.
            pass
    raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))


def places(sockets: Sequence[socket.socket]) -> Mapping[str, Place]:
    """The files of the Unix sockets among these, by their paths."""
    found = {}
    for each in sockets:
        if each.family == socket.AF_UNIX:
            path = str(each.getsockname())
            facts = Path(path).lstat()
            found[path] = (facts.st_dev, facts.st_ino)
    return found


def remove(files: Mapping[str, Place]) -> None:
    """Remove the files of Unix sockets, but for those that another program has put in their place."""
    for path, place in files.items():
        try:
            facts = Path(path).lstat()
            if (facts.st_dev, facts.st_ino) == place:
                Path(path).unlink()
        except OSError:
            # It is gone, or its directory cannot be written any more: the next start makes room.
            continue


def name(listening: socket.socket) -> str:
    """HOST:PORT of a listening socket, with the port that it really has, or unix:PATH."""
    if listening.family == socket.AF_UNIX:
        return f"{_UNIX}{listening.getsockname()}"
    host, port = listening.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
