"""AWS Inferentia and Trainium, read through neuron-monitor, the driver's sysfs and neuron-ls."""

from __future__ import annotations

from collectors.base import Collector, Settings


def open_collector(settings: Settings) -> Collector:
    """Make the collector. No program is started and no file is read before ``discover``."""
    from collectors.neuron.collector import NeuronCollector

    return NeuronCollector(settings)
