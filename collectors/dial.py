"""Connections to servers of this host and its pods."""

from __future__ import annotations

import errno
import re
import socket
import struct
import time
from collections.abc import Container
from typing import Final

import msgspec

_IP_LOCAL_PORT_RANGE: Final = 51
_USUAL_LOCAL_PORTS: Final = struct.pack("=I", 32768 | 60999 << 16)
"""Linux 6.3 and newer: from where a connection takes its own port, whatever the host's range is."""
_ABORT: Final = struct.pack("ii", 1, 0)
"""SO_LINGER: close at once, and leave no port behind in TIME_WAIT."""
_PORT_ATTEMPTS: Final = 8


class Address(msgspec.Struct, frozen=True):
    """host and port, or the path of a unix socket."""

    host: str = ""
    port: int = 0
    path: str = ""

    def __str__(self) -> str:
        if self.path:
            return f"unix:{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


_HOST_PORT: Final = re.compile(r"(?:\[([0-9A-Fa-f:.%a-z]+)\]|([^\s:/\[\]]+)):([0-9]{1,5})")


def parse_address(written: str) -> Address:
    """``host:port``, ``[v6]:port``, ``unix:/path`` or ``unix:///path``. Raises ValueError that says so."""
    if written.startswith("unix:"):
        path = written.removeprefix("unix:")
        path = path.removeprefix("//") if path.startswith("///") else path
        if path.startswith("/"):
            return Address(path=path)
    elif (found := _HOST_PORT.fullmatch(written)) is not None and 0 < int(found[3]) < 65536:
        return Address(host=found[1] or found[2], port=int(found[3]))
    raise ValueError(f"the address {written!r} is not understood; expected host:port, [address]:port or unix:/path")


def dial(address: Address, deadline: float, avoid: Container[int] = ()) -> socket.socket:
    """Connect before ``deadline`` (monotonic). Raises OSError.

    Never from a local port in ``avoid``: some server of this host wants to listen there.
    """
    if address.path:
        return _connect_one(socket.AF_UNIX, address.path, deadline)
    trouble: OSError = OSError("the name has no address")
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except UnicodeError:
        raise OSError(f"{address.host!r} cannot be a name of a host") from None
    for family, _, _, _, where in found:
        for _ in range(_PORT_ATTEMPTS):
            try:
                sock = _connect_one(family, where, deadline)
            except OSError as error:
                trouble = error
                break
            if sock.getsockname()[1] not in avoid:
                return sock
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ABORT)
            sock.close()
            trouble = ConnectionRefusedError(errno.ECONNREFUSED, "only a port that must stay free was to be had")
    raise trouble


def _connect_one(family: int, where: str | tuple[str | int | bytes, ...], deadline: float) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        if family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _keep_to_usual_ports(sock)
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        sock.settimeout(left)
        sock.connect(where)
    except BaseException:
        sock.close()
        raise
    return sock


def _keep_to_usual_ports(sock: socket.socket) -> None:
    """Without it (older kernels) the port is looked at after the connection is made."""
    try:
        sock.setsockopt(socket.IPPROTO_IP, _IP_LOCAL_PORT_RANGE, _USUAL_LOCAL_PORTS)
    except OSError as error:
        if error.errno not in (errno.ENOPROTOOPT, errno.EINVAL, errno.EPERM, errno.EOPNOTSUPP):
            raise
