"""Intel Gaudi accelerators, read through HLML (``libhlml.so``) or the command ``hl-smi``, and sysfs."""

from __future__ import annotations

from collectors.base import Collector, Settings


def open_collector(settings: Settings) -> Collector:
    """Make the collector. Neither library nor driver is touched before ``discover``."""
    from collectors.gaudi.collector import GaudiCollector

    return GaudiCollector(settings)
