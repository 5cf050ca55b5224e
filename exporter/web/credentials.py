"""Names and passwords: checked in constant time, at a bounded cost, and never written anywhere.

A hash by bcrypt costs its tenths of a second on purpose. So each good password is remembered, in a form that nobody can
read, until the agent ends or its hash changes; guesses are few for each address and wait for one another in a thread of
low priority, while who has proved itself on its connection waits for none of them.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import logging
import os
import secrets
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Literal

import msgspec

from exporter.web.buckets import Buckets, source

GUESSES: Final = 10
"""Wrong passwords that an address may try at once."""
GUESSES_PER_SECOND: Final = 1 / 10
"""And how many after them."""
AT_ONCE: Final = 2
"""Passwords of one address that wait to be checked."""
WAITING: Final = 16
"""And of all addresses."""
REMEMBERED: Final = 256
"""Wrong credentials that are known to be wrong: who repeats them is not guessing."""
LONGEST: Final = 72
"""Bytes of a password that bcrypt looks at, here as everywhere."""
NICE: Final = 10
"""How much the checks step back behind everything else that the host does."""
LOG_EVERY: Final = 60.0
_NOBODY: Final = bytes(32)
_CHALLENGE: Final = {"WWW-Authenticate": 'Basic realm="accel-exporter", charset="UTF-8"'}

Why = Literal["unauthorized", "guessing", "busy"]
Compare = Callable[[bytes, bytes], bool]

log = logging.getLogger(__name__)


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """Why a request is not answered."""

    status: int
    why: Why | Literal["rate_limit"]
    words: str
    headers: Mapping[str, str] = {}


class Pair(msgspec.Struct, frozen=True):
    """What a client shows. It has no readable form."""

    user: bytes
    password: bytes

    def __repr__(self) -> str:
        return "Pair(…)"


class Guard:
    """Knows users and their hashes. To be used in one event loop."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, compare: Compare | None = None) -> None:
        self._clock, self._compare = clock, compare
        self._secret = secrets.token_bytes(32)
        self._users: Mapping[bytes, bytes] = {}
        self._good: dict[bytes, bytes] = {}
        self._bad: OrderedDict[bytes, None] = OrderedDict()
        self._guesses = Buckets(GUESSES, GUESSES_PER_SECOND)
        self._checks: dict[bytes, asyncio.Task[bool]] = {}
        self._checking: Counter[str] = Counter()
        self._threads: ThreadPoolExecutor | None = None
        self._logged, self._unlogged = float("-inf"), 0

    def use(self, users: Mapping[str, str]) -> None:
        """The users from now on, each with a hash. What is known of those that stay is kept."""
        self._users = {name.encode(): kept.encode() for name, kept in users.items()}
        self._good = {name: digest for name, digest in self._good.items() if name in self._users}
        if self._users and self._compare is None:
            # Not everyone has users, and it is 10 ms and 700 KiB.
            import bcrypt

            self._compare = bcrypt.checkpw

    async def judge(self, headers: Sequence[str], peer: str, before: bytes) -> bytes | Refusal:
        """What proves that the client of a request may come in, or why it may not.

        ``headers``: all of its Authorization headers. ``before``: the proof from an earlier request on this connection,
        or nothing.
        """
        if not self._users:
            return b""
        pair = parse(headers)
        if pair is None:
            return _wrong()
        hashed = self._users.get(pair.user)
        digest = self._digest(pair, hashed)
        if hmac.compare_digest(digest, before):
            return digest
        now, address = self._clock(), source(peer)
        guesses = self._guesses.of(address, now)
        # Before the comparison, which would else tell a right guess from a wrong one as fast as they can be sent.
        if wait := guesses.wait(now):
            return _slower("guessing", 429, "too many wrong passwords from this address: wait", wait)
        if hmac.compare_digest(digest, self._good.get(pair.user, _NOBODY)):
            return digest
        if digest in self._bad:
            return _wrong()
        running = self._checks.get(digest)
        if running is None:
            if self._checking[address] >= AT_ONCE or len(self._checks) >= WAITING:
                return _slower("busy", 503, "other passwords are being checked: try again", 1)
            guesses.take(now)
            running = asyncio.create_task(self._check(pair, hashed, digest, address))
            self._checks[digest] = running
        # The others that wait for it still do when this client goes.
        if await asyncio.shield(running):
            return digest
        return _wrong()

    async def close(self) -> None:
        """Let go of the thread, and of all that is known."""
        for check in list(self._checks.values()):
            check.cancel()
        await asyncio.gather(*self._checks.values(), return_exceptions=True)
        self._good.clear()
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    async def _check(self, pair: Pair, hashed: bytes | None, digest: bytes, address: str) -> bool:
        self._checking[address] += 1
        try:
            right = await self._compared(pair.password, hashed or self._dummy(pair.user)) and hashed is not None
        finally:
            del self._checks[digest]
            self._checking[address] -= 1
            if not self._checking[address]:
                del self._checking[address]
        if right:
            if self._users.get(pair.user) != hashed:
                # Another hash was put in place meanwhile.
                return False
            self._good[pair.user] = digest
            self._guesses.of(address, self._clock()).give_back()
        else:
            self._bad[digest] = None
            if len(self._bad) > REMEMBERED:
                self._bad.popitem(last=False)
            self._tell(address)
        return right

    async def _compared(self, password: bytes, hashed: bytes) -> bool:
        assert self._compare is not None, "there are users"
        if self._threads is None:
            self._threads = ThreadPoolExecutor(1, "passwords", initializer=_step_back)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._compare, password[:LONGEST], hashed)

    def _digest(self, pair: Pair, hashed: bytes | None) -> bytes:
        parts = (pair.user, pair.password[:LONGEST], hashed or b"")
        text = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
        return hmac.digest(self._secret, text, "sha256")

    def _dummy(self, user: bytes) -> bytes:
        """A hash that nothing fits, for a user that there is not: it costs what one of the others costs."""
        hashes = sorted(self._users.values())
        chosen = int.from_bytes(hmac.digest(self._secret, user, "sha256")) % len(hashes)
        return hashes[chosen][:29] + b"." * 31

    def _tell(self, address: str) -> None:
        self._unlogged += 1
        now = self._clock()
        if now - self._logged < LOG_EVERY:
            return
        log.warning("requests with wrong credentials", extra={"newest_from": address, "new_ones": self._unlogged})
        self._logged, self._unlogged = now, 0


def parse(headers: Sequence[str]) -> Pair | None:
    """Name and password of the one Authorization header (RFC 7617); None: there is no such thing."""
    if len(headers) != 1:
        return None
    scheme, _, rest = headers[0].strip().partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        user, colon, password = base64.b64decode(rest.strip().encode("ascii"), validate=True).partition(b":")
    except (binascii.Error, UnicodeEncodeError):
        return None
    return Pair(user, password) if colon else None


def _wrong() -> Refusal:
    return Refusal(status=401, why="unauthorized", words="a user's name and password are needed", headers=_CHALLENGE)


def _slower(why: Why, status: int, words: str, wait: float) -> Refusal:
    return Refusal(status=status, why=why, words=words, headers={"Retry-After": str(max(1, round(wait + 0.5)))})


def _step_back() -> None:
    """In Linux each thread has a priority of its own."""
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)
