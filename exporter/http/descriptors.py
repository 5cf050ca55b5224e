"""As many connections as the process may have open files for, beside what the agent needs itself."""

from __future__ import annotations

import logging
import resource
from typing import Final

import msgspec

from exporter.config import Config, Http
from exporter.config.otlp import receivers
from exporter.http.listen import AT_A_TIME

BASE: Final = 64
"""The loop, the log, sources of attribution, and as many files as threads may be reading."""
OF_COLLECTOR: Final = 8
"""A worker has four; for a moment there are two of one vendor."""
OF_RECEIVER: Final = 4
OF_ADDRESS: Final = 1 + 5 * AT_A_TIME
"""The socket, and connections beyond the limit: the loop has taken in four times as many before the first is closed."""

log = logging.getLogger(__name__)


def own(config: Config, collectors: int) -> int:
    """Descriptors that the agent needs beside those of connections."""
    return (
        BASE + OF_COLLECTOR * collectors + OF_RECEIVER * len(receivers(config.otlp)) + OF_ADDRESS * len(config.listen)
    )


def bounded(http: Http, reserved: int) -> Http:
    """The settings with as many connections as are possible; the log says so where that is fewer than configured.

    The soft limit is raised as far as needed and no further: workers inherit it, and libraries that call select break
    on descriptors above 1023.
    """
    allowed = _allow(reserved + http.max_connections)
    possible = max(1, allowed - reserved)
    if possible >= http.max_connections:
        return http
    log.warning(
        "http.max_connections is %d, but this process may have no more than %d open files and needs %d itself: "
        "it takes %d connections at a time; raise the limit (LimitNOFILE of systemd, ulimits of the container runtime, "
        "ulimit -n), or lower http.max_connections",
        http.max_connections,
        allowed,
        reserved,
        possible,
    )
    return msgspec.structs.replace(http, max_connections=possible)


def _allow(needed: int) -> int:
    """The limit of open files, raised to what is needed if that is possible, or as far as it is."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return needed
    wanted = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError) as error:
        log.warning("the limit of open files stays at %d: %s", soft, error)
        return soft
    return wanted
