"""Fakes of what the Gaudi collector talks to: libhlml.so in C, the command hl-smi, a host's files."""

from __future__ import annotations

from tests.fakes.gaudi.build import Library, install
from tests.fakes.gaudi.cards import Scenario, gaudi2
from tests.fakes.gaudi.host import Host, make_host
from tests.fakes.gaudi.smi import Smi, install_smi

__all__ = ["Host", "Library", "Scenario", "Smi", "gaudi2", "install", "install_smi", "make_host"]
