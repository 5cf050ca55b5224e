"""The newest good state of the web configuration file, its certificates and its users.

All of them are read again within seconds after a change, as cert-manager and the kubelet exchange them, and on SIGHUP.
What is broken or half exchanged changes nothing: the last good state stays in force and the next look tries again.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from exporter.config.problems import ConfigError, Problem
from exporter.selfmetrics import WebMetrics
from exporter.web import tls
from exporter.web.buckets import Bucket
from exporter.web.credentials import Guard, Refusal
from exporter.web.settings import Found, RateLimit, WebSettings, read, seconds, warnings
from exporter.web.tls import Tls

LOOK_EVERY: Final = 10.0
"""Seconds between two looks at the files."""
RENEW_AFTER: Final = 1000
"""Handshakes after which a context makes room for a new one: it remembers sessions, and Python cannot forbid it."""

Stamp = tuple[tuple[int, ...] | None, ...]
"""What changes with the files: of each that is there device, inode, size and time of its change."""

log = logging.getLogger(__name__)


class State(msgspec.Struct, frozen=True, kw_only=True):
    """What one reading found."""

    found: Found
    tls: Tls | None
    context: ssl.SSLContext | None
    stamp: Stamp

    @property
    def settings(self) -> WebSettings:
        return self.found.settings


def load(path: Path) -> State:
    """Read all files. Raises ConfigError."""
    found = read(path)
    # Before the files are read: a change from now on is seen.
    stamp = _stamp(tls.files(found))
    secured = tls.load(found)
    return State(found=found, tls=secured, context=secured.context() if secured else None, stamp=stamp)


class Keeper:
    """Holds the state. ``distrusted`` is called when clients that were let in may not be any more."""

    def __init__(self, path: Path, metrics: WebMetrics, *, look_every: float = LOOK_EVERY) -> None:
        """Raises ConfigError."""
        self._path, self._metrics, self._look_every = path, metrics, look_every
        self.distrusted: Callable[[], None] = lambda: None
        self._guard = Guard()
        self._limit: Bucket | None = None
        self._context: ssl.SSLContext | None = None
        self._uses = 0
        self._told = ""
        self._refreshing = asyncio.Lock()
        self._state = load(path)
        self._adopt(None)

    @property
    def secure(self) -> bool:
        """Whether connections are encrypted. It stays as it was at the start."""
        return self._state.tls is not None

    @property
    def headers(self) -> Mapping[str, str]:
        """To be added to each answer, in place of others of the same name."""
        return self._state.settings.http_server_config.headers

    def context(self) -> ssl.SSLContext:
        """For one handshake. Only where ``secure``."""
        assert self._context is not None
        self._uses += 1
        if self._uses > RENEW_AFTER and self._state.tls is not None:
            self._uses = 1
            try:
                self._context = self._state.tls.context()
            except OSError as error:
                # The system has no descriptor left, say: the old one is as good.
                log.warning("the TLS context was not renewed: %s", error)
        return self._context

    def admits(self, certificate: Mapping[str, Any] | None) -> bool:
        """Whether a client with this certificate, as ``SSLObject.getpeercert`` tells it, may come in."""
        return self._state.tls is None or self._state.tls.admits(certificate)

    async def judge(self, authorization: Sequence[str], peer: str, before: bytes) -> bytes | Refusal:
        """As ``Guard.judge``, after the limit on the requests of all clients together."""
        if self._limit is not None:
            now = time.monotonic()
            if wait := self._limit.wait(now):
                headers = {"Retry-After": str(max(1, round(wait + 0.5)))}
                return Refusal(status=429, why="rate_limit", words="too many requests: wait", headers=headers)
            self._limit.take(now)
        return await self._guard.judge(authorization, peer, before)

    async def watch(self) -> None:
        """Look at the files again and again, until cancelled."""
        while True:
            await asyncio.sleep(self._look_every)
            await self.refresh()

    async def refresh(self) -> None:
        """Take over what has changed. What is wrong with it is logged, once."""
        async with self._refreshing:
            try:
                state = await asyncio.to_thread(self._changed)
            except (ConfigError, OSError) as error:
                self._metrics.reload_success.set(0)
                if str(error) != self._told:
                    self._told = str(error)
                    log.error("the web configuration was not reloaded, the old one stays in force: %s", error)
                return
            except Exception as error:
                # Were this to end the task that looks, no certificate would be renewed any more.
                self._metrics.reload_success.set(0)
                if repr(error) != self._told:
                    self._told = repr(error)
                    log.exception("the web configuration was not reloaded: a fault of the agent, please report it")
                return
            self._metrics.reload_success.set(1)
            if state is None:
                self._told = ""
                return
            before, self._state = self._state, state
            self._adopt(before)
            log.info("web configuration reloaded")

    async def close(self) -> None:
        await self._guard.close()

    def _changed(self) -> State | None:
        if not self._told and _stamp(tls.files(self._state.found)) == self._state.stamp:
            return None
        state = load(self._path)
        if (state.tls is None) == self.secure:
            what = "off" if self.secure else "on"
            key = "tls_server_config"
            found = f"TLS was switched {what}"
            raise ConfigError([Problem(str(self._path), key, found, "as at the start: restart the agent to change it")])
        return state

    def _adopt(self, before: State | None) -> None:
        settings, now = self._state.settings, self._state.tls
        self._told = ""
        self._guard.use(settings.basic_auth_users)
        if before is None or before.settings.rate_limit != settings.rate_limit:
            self._limit = _bucket(settings.rate_limit)
        self._context, self._uses = self._state.context, 0
        self._metrics.reload_success.set(1)
        if now is not None:
            self._metrics.certificate(now.validity.not_before, now.validity.not_after)
        if before is None or before.found.settings != settings:
            for line in warnings(self._state.found):
                log.warning(line)
        if now is not None and now.validity.not_after < time.time():
            log.warning("the server's certificate has expired: clients that check it refuse it")
        if before is not None and before.tls is not None and now is not None and _trust(before.tls) != _trust(now):
            self.distrusted()


def _bucket(limit: RateLimit) -> Bucket | None:
    interval = seconds(limit.interval)
    return Bucket(limit.burst, 1 / interval, time.monotonic()) if interval else None


def _trust(found: Tls) -> tuple[object, ...]:
    """What decides which clients may connect."""
    return (found.pems.client_ca, found.settings.client_auth_type, found.settings.client_allowed_sans)


def _stamp(paths: Sequence[Path]) -> Stamp:
    found: list[tuple[int, ...] | None] = []
    for path in paths:
        try:
            facts = path.stat()
        except OSError:
            found.append(None)
        else:
            found.append((facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns))
    return tuple(found)
