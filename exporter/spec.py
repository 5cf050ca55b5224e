"""How a collector is to be run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from collectors.base import Group, HostPaths
from exporter.catalogue import Catalogue


class CollectorSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One collector, as configured."""

    name: str
    catalogue: Catalogue
    module: str
    tables: str
    """Folder of the vendor's tables."""
    wanted: Mapping[Group, frozenset[str]]
    paths: HostPaths
    node: str = ""
    links: Literal["sum", "each"] = "sum"
    processes: bool = False
    """Tell which processes use each device."""
    source: str = "auto"
    profile: str = "default"
    options: Mapping[str, object] = {}
    environ: Mapping[str, str] = {}
    """Variables of the worker's environment beyond the agent's own."""
    detect: bool = True
    """Start a worker only where there are signs of the vendor."""
    simulated: bool = False
    bridged: bool = False
    expected: int | None = None


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """In seconds, but for the memory."""

    periods: Mapping[Group, float]
    deadline: float = 10.0
    startup_deadline: float = 60.0
    """For opening the library and finding devices, which initialises drivers."""
    backoff_min: float = 1.0
    backoff_max: float = 60.0
    retry_unavailable: float = 60.0
    stop_grace: float = 5.0
    memory: int = 0
    """Bytes that a worker may grow to; 0: whatever it wants."""
