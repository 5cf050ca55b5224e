"""A fake ``libdcgm.so.4`` (and ``.3``), written in C, that the real binding loads. Start with README.md."""

from __future__ import annotations

from tests.fakes.dcgm.build import Call, Installation, install
from tests.fakes.dcgm.hostengine import HostEngine
from tests.fakes.dcgm.world import World

__all__ = ["Call", "HostEngine", "Installation", "World", "install"]
