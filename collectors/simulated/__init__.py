"""Devices that are not there, with numbers that could be: for demonstrations, tests, benchmarks and simulated fleets.

Works for every vendor that has a series.toml. A model of a device (load, power, temperature, memory, errors) gives the
quantities of the common schema, and each raw series says what it must for its feeds to come out so. The same seed and
the same times give the same numbers.
"""

from __future__ import annotations

from collectors.base import Collector, Settings


def open_collector(settings: Settings) -> Collector:
    """Make the simulation. Raises Unavailable if the options make no sense."""
    from collectors.simulated.collector import open_simulation

    return open_simulation(settings)
