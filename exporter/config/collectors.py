"""The part of the configuration that says how each vendor's collector reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from exporter.config import checks
from exporter.config.checks import SECONDS, checked

SOURCES: Final = ("auto", "native", "bridge", "both")
BRIDGED: Final = ("auto", "bridge", "both")
"""Sources with which the bridge may be in use."""

OptionValue = bool | int | float | str | tuple[str, ...]
RawChoice = Literal["default", "all", "none"]
SeriesNames = Annotated[tuple[Annotated[str, checked(checks.SERIES)], ...], Meta(max_length=2000)]


class Bridge(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a vendor's own exporter is read, and how much of it is accepted."""

    timeout: Annotated[
        float, Meta(ge=0.1, le=300, description="For a whole scrape. Below `collection.deadline`.", extra=SECONDS)
    ] = 5.0
    max_bytes: Annotated[
        int, Meta(ge=1024, le=1 << 30, description="The largest page, before and after decompression.")
    ] = 32 * 1024 * 1024
    max_series: Annotated[
        int, Meta(ge=1, le=10_000_000, description="A page with more series that the catalogue knows is refused.")
    ] = 50_000
    max_age: Annotated[
        float,
        Meta(
            ge=0,
            le=86400,
            description="A sample whose own timestamp is older is left out; 0: timestamps are not looked at.",
            extra=SECONDS,
        ),
    ] = 300.0
    bearer_token_file: Annotated[
        str, checked(checks.PATH_OR_EMPTY), Meta(description="A token to send, read again at each scrape.")
    ] = ""
    ca_file: Annotated[
        str, checked(checks.PATH_OR_EMPTY), Meta(description="Certificates to trust for https; empty: the system's.")
    ] = ""


class CollectorConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One vendor's collector. The key is its name; `accel-exporter doctor` lists the names."""

    enabled: Annotated[
        bool | Literal["auto"],
        Meta(description="`auto`: if there are signs of the vendor on this node. `true`: always try. `false`: never."),
    ] = "auto"
    source: Annotated[
        str,
        checked(checks.NAME),
        Meta(
            description="`native`: the vendor's library or tools. `bridge`: the vendor's own exporter. `both`: native, "
            "and through the bridge what only the vendor's exporter has. `auto`: bridge if `url` is set, else native. "
            "Where a vendor can be read natively in several ways, also the name of one (its page lists them)."
        ),
    ] = "auto"
    url: Annotated[
        str,
        checked(checks.URL),
        Meta(description="Where the vendor's own exporter answers, for the bridge; empty: its usual address."),
    ] = ""
    bridge: Bridge = Bridge()
    passthrough: Annotated[
        bool,
        Meta(
            description="Bridge only: serve the raw series, too. Off by default, since Prometheus usually scrapes the "
            "vendor's exporter already."
        ),
    ] = False
    profile: Annotated[
        str,
        checked(checks.NAME),
        Meta(description="The spelling of raw names and labels, where versions of the vendor's exporter differ."),
    ] = "default"
    options: Annotated[
        Mapping[str, OptionValue],
        Meta(description="The collector's own options; its README lists them.", extra={"options": True}),
    ] = {}
    fast: Annotated[
        SeriesNames,
        Meta(description="Raw series to read in the fast group, whatever their usual one."),
    ] = ()
    expected_devices: Annotated[
        Annotated[int, Meta(ge=0, le=4096)] | None,
        Meta(description="How many devices this node should have; null: the most that were seen since the start."),
    ] = None
    raw: Annotated[
        RawChoice | SeriesNames | None,
        Meta(description="As `schema.raw`, for this collector alone; null: `schema.raw` counts."),
    ] = None
