"""Reads a vendor's own Prometheus exporter and maps it through the same series.toml as the native collector.

For nodes on which the vendor's exporter already runs, or must run. Which devices there are follows from the labels;
whom they belong to is handed on, and counts where the agent's own attribution knows nothing; timestamps of the source
decide whether a sample is too old and go no further.

Several groups of readings come from one page. A scrape serves every group that asks within ``share_seconds``, each of
them once, so that a group which asks again always gets a newer page. The agent sets ``share_seconds`` to half of the
shortest period.
"""

from __future__ import annotations

from collectors.base import Collector, Settings


def open_collector(settings: Settings) -> Collector:
    """Make the bridge; nothing is asked of the exporter yet. Raises Unavailable if the options make no sense."""
    from collectors.bridge.collector import open_bridge

    return open_bridge(settings)
