"""The metric services of libtpu: the workload's own processes serve them, and only while they run.

Nobody listening is the normal state of an idle chip, and no error. Which metrics there are differs by version, so each
service is asked for that first, and for nothing that it does not list: a name that it does not know it may answer by 0.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from collectors.dial import Address
from collectors.protobuf import Malformed
from collectors.tpu import messages
from collectors.tpu.messages import Entry
from collectors.tpu.table import BASICS
from collectors.unary import Channel, Code, RpcError

PORTS: Final = range(8431, 8439)
RESERVED: Final = frozenset((*PORTS, 8353, *range(8470, 8483)))
"""Ports on which libtpu and GKE's agents want to listen. A job whose port is taken does not start."""

_CONNECT: Final = 0.3
"""Seconds for a connection to a process of this host."""
_LIST_EVERY: Final = 60.0
"""Seconds: a runtime can have more to tell when it has begun to work."""
_UNKNOWN: Final = frozenset[Code](("NOT_FOUND", "INVALID_ARGUMENT"))
"""The service listed the metric and does not know it after all."""
_KINDS: Final[Mapping[Code, str]] = {
    "DEADLINE_EXCEEDED": "timeout",
    "PERMISSION_DENIED": "permission",
    "UNAUTHENTICATED": "permission",
}
_QUIET: Final = frozenset[Code](("UNAVAILABLE", "CANCELLED"))
"""The workload has ended, or has not begun."""


class Group(msgspec.Struct, frozen=True):
    """The services of one workload, and the chips that are its own, by their index."""

    addresses: tuple[Address, ...]
    chips: tuple[int, ...]


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What the services of a group told."""

    group: Group
    up: bool
    """Any of them answered."""
    metrics: Mapping[str, Sequence[Entry]]
    errors: Sequence[tuple[str, str]]
    """Kind and text."""
    connections: int
    """Changes when a service was met anew: what was learned of the workload may hold no more."""


class _Service:
    """One address, asked in three steps, so that all services work at the same time."""

    def __init__(self, address: Address) -> None:
        self.channel = Channel(address, avoid_ports=RESERVED)
        self.errors: list[tuple[str, str]] = []
        self.metrics: dict[str, list[Entry]] = {}
        self.up = False
        self._listed: frozenset[str] = frozenset()
        self._met = 0
        """The connection whose list this is; 0: of none."""
        self._list_again = 0.0
        self._listing: int | None = None
        self._asked: dict[str, int] = {}

    def open(self, deadline: float) -> None:
        """Connect, and ask what there is if it is not known."""
        self.errors, self.metrics, self.up = [], {}, False
        self._listing, self._asked = None, {}
        try:
            self.channel.connect(min(deadline, time.monotonic() + _CONNECT))
            if self._met != self.channel.connections or time.monotonic() >= self._list_again:
                self._listing = self.channel.begin(messages.LIST, b"", deadline)
        except RpcError as error:
            self._fail(error)

    def ask(self, names: frozenset[str], listed_by: float, deadline: float) -> None:
        """Send the requests."""
        try:
            if self._listing is not None:
                self._learn(listed_by)
            if self._met != self.channel.connections:
                return
            self.up = bool(self._listed)
            for name in sorted(names):
                # The prefix of some names is not certain.
                spelled = name if name in self._listed else f"megascale.{name}"
                if spelled in self._listed:
                    self._asked[name] = self.channel.begin(messages.GET, messages.request(spelled), deadline)
        except RpcError as error:
            self._fail(error)

    def _learn(self, deadline: float) -> None:
        """Raises RpcError."""
        stream, self._listing = self._listing, None
        met = self.channel.connections
        try:
            self._listed = messages.supported(self.channel.finish(stream or 0, deadline))
        except RpcError as error:
            if error.code != "UNIMPLEMENTED":
                raise
            self._listed = BASICS
        except Malformed as error:
            self.errors.append(("parse", f"libtpu at {self.channel.address} lists metrics in no known form: {error}"))
            return
        self._met = met
        self._list_again = time.monotonic() + _LIST_EVERY

    def collect(self, deadline: float) -> None:
        """Take the answers."""
        if self._asked:
            self.up = False
        for name, stream in self._asked.items():
            try:
                self.metrics[name] = messages.entries(self.channel.finish(stream, deadline))
                self.up = True
            except Malformed as error:
                self.errors.append(("parse", f"{name} of libtpu at {self.channel.address}: {error}"))
            except RpcError as error:
                self.up = self.up or error.code in _UNKNOWN
                if error.code in _UNKNOWN or error.code == "UNIMPLEMENTED":
                    self._listed -= {name, f"megascale.{name}"}
                else:
                    self._fail(error)
        self._asked = {}

    def _fail(self, error: RpcError) -> None:
        if error.code in _QUIET or self.errors:
            return
        hint = "; a workload that compiles a program does not answer" if error.code == "DEADLINE_EXCEEDED" else ""
        self.errors.append((_KINDS.get(error.code, "transient"), f"libtpu at {error.detail}{hint}"))


class Runtimes:
    """All services of the host, with their connections from one reading to the next."""

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._services: dict[Address, _Service] = {}

    def read(self, groups: Sequence[Group], names: frozenset[str]) -> list[Answer]:
        """Ask all at once; takes little longer than the timeout at most."""
        self._keep({address for group in groups for address in group.addresses})
        services = list(self._services.values())
        deadline = time.monotonic() + self._timeout
        listed_by = deadline - self._timeout / 2
        for service in services:
            service.open(deadline)
        for service in services:
            service.ask(names, listed_by, deadline)
        for service in services:
            service.collect(deadline)
        return [self._answer(group) for group in groups]

    def close(self) -> None:
        self._keep(set())

    def _keep(self, addresses: set[Address]) -> None:
        for address in list(self._services):
            if address not in addresses:
                self._services.pop(address).channel.close()
        for address in addresses - self._services.keys():
            self._services[address] = _Service(address)

    def _answer(self, group: Group) -> Answer:
        services = [self._services[address] for address in group.addresses]
        metrics: dict[str, dict[tuple[object, ...], Entry]] = {}
        for service in services:
            for name, found in service.metrics.items():
                of_name = metrics.setdefault(name, {})
                for entry in found:
                    # The first port speaks for the others, too: what a later one repeats is no news.
                    of_name.setdefault(tuple(sorted(entry.attributes.items())), entry)
        return Answer(
            group=group,
            up=any(service.up for service in services),
            metrics={name: tuple(found.values()) for name, found in metrics.items()},
            errors=[error for service in services for error in service.errors],
            connections=sum(service.channel.connections for service in services),
        )
