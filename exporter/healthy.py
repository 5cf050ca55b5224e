"""``accel-exporter healthy``: whether the agent beside it works, whatever its port asks of clients.

The agent tells it on an abstract Unix socket. That needs no file and no port, so it is there with every configuration,
and TLS, passwords and client certificates of the port need no exception. The socket's name has the agent's process id,
and which namespace that is one of: containers share a network more often than their processes.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import socket
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

Verdict = Callable[[], tuple[bool, str]]
"""Whether it is so, and if not, why."""

PATIENCE: Final = 4.0
MOST_BYTES: Final = 4096
_CREDENTIALS: Final = struct.Struct("3i")
"""Of the other end of a Unix socket: process, user, group."""
_ROOT: Final = 0

log = logging.getLogger(__name__)


def _family() -> str:
    """What the names of all agents begin with that are processes of this namespace."""
    try:
        return f"accel-exporter/{Path('/proc/self/ns/pid').stat().st_ino}/"
    except OSError:
        # A sandbox without it has one namespace.
        return "accel-exporter/0/"


# The agent


class _Teller(asyncio.Protocol):
    """Tells who connects, and hangs up. Nothing is read."""

    def __init__(self, alive: Verdict, ready: Verdict) -> None:
        self._alive, self._ready = alive, ready

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        if _user(transport.get_extra_info("socket")) in (os.geteuid(), _ROOT):
            told = {name: verdict() for name, verdict in (("alive", self._alive), ("ready", self._ready))}
            # Fits into the socket's buffer: there is nothing to wait for.
            transport.write(json.dumps({name: [good, why[:1000]] for name, (good, why) in told.items()}).encode())
        transport.close()


def _user(connected: socket.socket) -> int:
    found = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(found)[1])


async def tell(alive: Verdict, ready: Verdict) -> asyncio.Server | None:
    """Tell each who asks, until the server is closed. None where there are no such sockets, which the log says."""
    opened = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        opened.setblocking(False)
        opened.bind(f"\0{_family()}{os.getpid()}")
        return await asyncio.get_running_loop().create_unix_server(lambda: _Teller(alive, ready), sock=opened)
    except OSError as error:
        opened.close()
        log.warning("`accel-exporter healthy` will not find this agent: %s", error)
        return None


# Who asks


def healthy(pid: int | None, *, ready: bool) -> int:
    """Print how the agents are, or the one with this process id. Exit code 0 if there are some, and all are well."""
    found = {number: _ask(number, "ready" if ready else "alive") for number in _agents() if pid in (None, number)}
    verdicts = {number: verdict for number, verdict in found.items() if verdict is not None}
    if not verdicts:
        which = "no agent" if pid is None else f"process {pid} is no agent that"
        advice = "ask as its user, or as root" if found else "ask in its container, where its processes are seen"
        print(f"accel-exporter: {which} {'tells this user' if found else 'runs here'}: {advice}", file=sys.stderr)
        return 1
    for number, (good, why) in verdicts.items():
        print(f"process {number}: {('ready' if ready else 'healthy') if good else why}")
    return int(not all(good for good, _ in verdicts.values()))


def _agents() -> list[int]:
    """Process ids of those that listen here."""
    listed = Path("/proc/self/net/unix").read_text(errors="replace")
    return sorted({int(number) for number in re.findall(rf" @{_family()}(\d+)$", listed, flags=re.MULTILINE)})


def _ask(pid: int, what: str) -> tuple[bool, str] | None:
    """None: it is another user's, and tells nothing."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connected:
        connected.settimeout(PATIENCE)
        try:
            connected.connect(f"\0{_family()}{pid}")
            with connected.makefile("rb") as file:
                content = file.read(MOST_BYTES)
        except TimeoutError:
            return False, f"no answer within {PATIENCE:g} seconds: it stands still"
        except OSError as error:
            return False, f"no answer: {error.strerror or error}"
    if not content:
        return None
    good, why = json.loads(content)[what]
    return bool(good), str(why)
