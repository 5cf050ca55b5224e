"""AMD GPUs, read through the library amdsmi of ROCm, or from sysfs alone."""

from __future__ import annotations

from collectors.base import Collector, Settings


def open_collector(settings: Settings) -> Collector:
    """Make the collector. Neither driver nor library is touched before ``discover``."""
    from collectors.amd.collector import AmdCollector

    return AmdCollector(settings)
