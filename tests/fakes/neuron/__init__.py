"""A host with AWS Neuron devices: the driver's files, and programs with the names of AWS's tools.

``machines`` has the shapes of the instance types and the numbers on them, ``host`` builds the files, ``programs`` holds
the sources of the fake tools, which do what a scenario file tells them.
"""

from __future__ import annotations

from tests.fakes.neuron.host import NeuronHost, make_host
from tests.fakes.neuron.machines import MACHINES, Machine, RuntimeData, report

__all__ = ["MACHINES", "Machine", "NeuronHost", "RuntimeData", "make_host", "report"]
