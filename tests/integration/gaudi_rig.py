"""Opens the Gaudi collector over its fakes, in this process: the fake library is loaded by its path."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import collectors
from collectors.base import Device, Reading, Sample, Settings
from collectors.gaudi import open_collector
from collectors.gaudi.collector import GaudiCollector
from exporter.catalogue import Catalogue, load
from tests.fakes.gaudi import Host, Library, Smi

CATALOGUE: Catalogue = load(Path(collectors.__file__).parent / "gaudi", "collectors.gaudi")
NATIVE = frozenset(series.name for series in CATALOGUE.series.values() if series.native)


class Answer:
    """A sample, ready to be asked for."""

    def __init__(self, sample: Sample) -> None:
        self.sample = sample

    def values(self, series: str, device: int = 0, **labels: str) -> list[int | float]:
        """All values of a series on a device, among those with these labels."""
        return [
            reading.value for reading in self.readings(series, device) if labels.items() <= dict(reading.labels).items()
        ]

    def value(self, series: str, device: int = 0, **labels: str) -> int | float:
        found = self.values(series, device, **labels)
        assert len(found) == 1, f"{series} {labels} on device {device}: {found}"
        return found[0]

    def readings(self, series: str, device: int = 0) -> list[Reading]:
        return [one for one in self.sample.readings if (one.series, one.device) == (series, device)]

    def series(self, device: int = 0) -> set[str]:
        return {reading.series for reading in self.sample.readings if reading.device == device}

    @property
    def errors(self) -> list[tuple[int, str, str]]:
        return [(error.device, error.kind, error.detail) for error in self.sample.errors]


class Rig:
    """An open collector."""

    def __init__(self, collector: GaudiCollector) -> None:
        self.collector = collector

    def discover(self) -> Sequence[Device]:
        return self.collector.discover()

    def sample(self) -> Answer:
        return Answer(self.collector.sample("normal"))


@contextmanager
def rig(
    host: Host, library: Library | None = None, smi: Smi | None = None, wanted: Sequence[str] = (), **more: Any
) -> Iterator[Rig]:
    """``wanted``: the series to read, in one group; all by default. ``more``: fields of Settings."""
    options = {
        "library": str(library.path) if library else "/nonexistent/libhlml.so",
        "hl_smi": str(smi.program) if smi else "/nonexistent/hl-smi",
        **more.pop("options", {}),
    }
    settings = Settings(
        wanted={"normal": frozenset(wanted) or NATIVE}, paths=host.paths, node="node-a", options=options, **more
    )
    with mock.patch.dict(os.environ, library.environ if library else {}):
        collector = open_collector(settings)
        assert isinstance(collector, GaudiCollector)
        try:
            yield Rig(collector)
        finally:
            collector.close()
