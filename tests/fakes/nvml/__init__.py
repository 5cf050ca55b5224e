"""A fake ``libnvidia-ml.so.1``, written in C, that the real Python binding loads. Start with README.md."""

from __future__ import annotations

from tests.fakes.nvml.build import Call, Installation, build, install
from tests.fakes.nvml.model import Scenario

__all__ = ["Call", "Installation", "Scenario", "build", "install"]
