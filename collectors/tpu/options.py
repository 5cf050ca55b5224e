"""What a user can tell the collector: collector.toml explains it."""

from __future__ import annotations

import msgspec

from collectors.base import Settings
from collectors.dial import Address, parse_address


class TpuOptions(msgspec.Struct, frozen=True, kw_only=True):
    """collector.toml's options."""

    addresses: tuple[str, ...] = ()
    timeout: float = 2.0
    plugin_url: str = ""
    instance_id: str = ""
    model: str = ""
    topology: str = ""

    @property
    def runtimes(self) -> tuple[Address, ...]:
        """Raises ValueError for what is no address."""
        return tuple(parse_address(written) for written in self.addresses)


def read_options(settings: Settings) -> TpuOptions:
    """Raises ValueError that names what is wrong."""
    options = msgspec.convert(settings.options, TpuOptions)
    _ = options.runtimes
    return options
