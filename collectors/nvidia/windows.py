"""Sliding windows that dcgm-exporter's own series count over."""

from __future__ import annotations

from typing import Final

from collectors.base import Settings

_DEFAULT: Final = 300_000
"""Milliseconds: dcgm-exporter's."""


def window(settings: Settings, option: str) -> float:
    """A window of the options, in seconds."""
    return float(settings.options.get(option, _DEFAULT)) / 1000
