"""The simulated node on a clock of its own: each reading finds it one period later, however soon that is."""

from __future__ import annotations

import itertools
import time
from typing import Final

import msgspec

from collectors.base import Collector, Settings
from collectors.simulated.collector import SimulatedCollector
from collectors.simulated.options import SimulatedOptions
from collectors.tables import Tables

STEP: Final = 5.0
"""Seconds from one reading to the next."""


def open_collector(settings: Settings) -> Collector:
    """Make the simulation. Raises ValueError if the options make no sense."""
    start = time.time()
    return SimulatedCollector(
        msgspec.convert(settings.options, Tables),
        msgspec.convert(settings.options, SimulatedOptions),
        settings.wanted,
        settings.node,
        clock=itertools.count(0.0, STEP).__next__,
        wall=itertools.count(start, STEP).__next__,
    )
