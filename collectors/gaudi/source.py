"""What the two ways to read have in common: HLML and hl-smi."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

from collectors.gaudi.questions import Kind
from collectors.gaudi.units import Answer, Asker, Unit


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """A device as the source names it. What it does not tell is empty."""

    key: Any
    index: str
    bdf: str = ""
    minor: str = ""
    module_id: str = ""
    uuid: str = ""
    serial: str = ""
    model: str = ""
    driver_version: str = ""


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """The devices of one discovery, and in words those that did not say who they are."""

    found: tuple[Found, ...]
    failed: tuple[str, ...] = ()


class Port(msgspec.Struct, frozen=True):
    """A network port of a device."""

    number: int
    external: bool | None
    """Whether it leads out of the chassis; None: not told."""

    @property
    def labels(self) -> tuple[tuple[str, str], ...]:
        words = {True: "external", False: "internal", None: "unknown"}
        return (("port", str(self.number)), ("port_type", words[self.external]))


class Event(msgspec.Struct, frozen=True):
    """A fault event: the source's name of the device, and the code of faults.toml."""

    key: Any
    code: str


class Source(Protocol):
    """Every call can raise Failure for a device or a driver that is gone, and Unavailable where it says so."""

    name: str
    """One of collector.toml's sources."""

    @property
    def answers(self) -> Mapping[Kind, Answer]:
        """Which questions it can be asked."""
        ...

    def open(self) -> None:
        """Raises Unavailable."""
        ...

    def discover(self) -> Listing:
        """Raises Unavailable."""
        ...

    def begin(self, wanted: frozenset[str], units: Sequence[Unit], asker: Asker) -> None:
        """A sample of these series starts."""
        ...

    def state(self, unit: Unit) -> str:
        """The text of the device's state, for devices that sysfs does not show."""
        ...

    def ports(self, unit: Unit, asker: Asker) -> Sequence[tuple[Port, bool]]:
        """The device's ports, and whether their links are up. A port that cannot be asked is left out."""
        ...

    def octets(self, unit: Unit, port: Port) -> tuple[int, int] | None:
        """Bytes received and sent by a port; None where they cannot be told now."""
        ...

    def watch(self, units: Sequence[Unit]) -> None:
        """Register for events."""
        ...

    def events(self) -> Sequence[Event]:
        """What has come since the last call."""
        ...

    def close(self) -> None:
        """Let go of driver and library."""
        ...
