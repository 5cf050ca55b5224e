"""What a bridge can be told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final

import msgspec

DEFAULT_MAX_BYTES: Final = 32 * 1024 * 1024

Positive = Annotated[float, msgspec.Meta(gt=0)]
Count = Annotated[int, msgspec.Meta(ge=1)]


class BridgeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Where the exporter is and how much of it to accept. The vendor's tables stand beside these in the options."""

    url: str = ""
    """http, https, or unix:///path/to.sock?path=/metrics. Empty: the usual address of the vendor's exporter."""
    timeout: Positive = 5.0
    """Seconds for a whole scrape, from the connection to the last line. Resolving the host's name is not counted."""
    max_bytes: Count = DEFAULT_MAX_BYTES
    """Of the body, before and after decompression."""
    max_series: Count = 50_000
    """Samples of known series. A source with more is refused as a whole, since a cut would look like lost devices."""
    max_age: Annotated[float, msgspec.Meta(ge=0)] = 300.0
    """Seconds. A sample whose own timestamp is older is left out. 0: timestamps are not looked at."""
    share_seconds: Annotated[float, msgspec.Meta(ge=0)] = 2.5
    """A scrape serves all groups that ask within this time, each once. Half of the shortest period is right."""
    headers: Mapping[str, str] = {}
    bearer_token_file: str = ""
    """Read again at each scrape, since tokens are rotated."""
    ca_file: str = ""
