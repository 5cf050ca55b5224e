"""Token buckets: how often something may happen, and how often at once."""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from typing import Final

MAX_SOURCES: Final = 4096
"""Addresses that are remembered; the one that did nothing for the longest time is forgotten first."""


class Bucket:
    """Holds up to ``size`` tokens, and gets ``rate`` of them a second."""

    __slots__ = ("_at", "_tokens", "rate", "size")

    def __init__(self, size: float, rate: float, now: float) -> None:
        self.size, self.rate = size, rate
        self._tokens, self._at = size, now

    def wait(self, now: float) -> float:
        """Seconds until there is a token; 0: there is one."""
        self._fill(now)
        return max(0.0, (1 - self._tokens) / self.rate)

    def take(self, now: float) -> bool:
        """Take a token, if there is one."""
        self._fill(now)
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    def give_back(self) -> None:
        self._tokens = min(self.size, self._tokens + 1)

    def full(self, now: float) -> bool:
        self._fill(now)
        return self._tokens >= self.size

    def _fill(self, now: float) -> None:
        self._tokens = min(self.size, self._tokens + (now - self._at) * self.rate)
        self._at = now


class Buckets:
    """A bucket for each source of requests."""

    def __init__(self, size: float, rate: float) -> None:
        self._size, self._rate = size, rate
        self._buckets: OrderedDict[str, Bucket] = OrderedDict()

    def of(self, source: str, now: float) -> Bucket:
        found = self._buckets.get(source)
        if found is None:
            found = self._buckets[source] = Bucket(self._size, self._rate, now)
            if len(self._buckets) > MAX_SOURCES:
                self._buckets.popitem(last=False)
        self._buckets.move_to_end(source)
        return found

    def __len__(self) -> int:
        return len(self._buckets)


def source(peer: str) -> str:
    """Whom a client's address belongs to: of IPv6 the network of 64 bits, since one host has all of it."""
    try:
        address = ipaddress.ip_address(peer.partition("%")[0])
    except ValueError:
        return peer or "unix"
    if isinstance(address, ipaddress.IPv6Address):
        mapped = address.ipv4_mapped
        return str(mapped or ipaddress.IPv6Network((address, 64), strict=False))
    return str(address)
