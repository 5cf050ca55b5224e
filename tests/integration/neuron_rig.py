"""Drives the Neuron collector over a fake host, and finds its readings."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import collectors
from collectors.base import Collector, Device, Group, Labels, Sample, Settings
from collectors.neuron import open_collector
from exporter.catalogue import Catalogue, load
from exporter.model import Key
from exporter.normalize import make_plan
from tests.fakes.neuron import NeuronHost

PERIOD: Final = 0.1
CATALOGUE: Final[Catalogue] = load(Path(collectors.__file__).parent / "neuron", "collectors.neuron")
GROUPS: Final[tuple[Group, ...]] = ("normal", "slow")


class Rig:
    """A collector and what it said last."""

    def __init__(self, collector: Collector) -> None:
        self.collector = collector
        self.devices: tuple[Device, ...] = ()
        self.samples: dict[Group, Sample] = {}

    def discover(self) -> None:
        self.devices = tuple(self.collector.discover())
        self.samples = {}

    def sample(self) -> None:
        self.samples = {group: self.collector.sample(group) for group in GROUPS}

    def until(self, condition: Callable[[], object], patience: float = 10.0) -> None:
        """Sample until the condition holds."""
        end = time.monotonic() + patience
        self.sample()
        while not condition():
            assert time.monotonic() < end, f"did not come within {patience} s: {self.errors}"
            time.sleep(PERIOD / 2)
            self.sample()

    @property
    def errors(self) -> list[tuple[str, str]]:
        return [(error.kind, error.detail) for sample in self.samples.values() for error in sample.errors]

    @property
    def readings(self) -> dict[tuple[str, int, Labels], float]:
        found: dict[tuple[str, int, Labels], float] = {}
        for sample in self.samples.values():
            for reading in sample.readings:
                key = (reading.series, reading.device, reading.labels)
                assert key not in found, key
                found[key] = reading.value
        return found

    def values(self, series: str, **labels: str) -> list[float]:
        wanted = labels.items()
        return [
            value
            for (name, _, found), value in self.readings.items()
            if name == series and wanted <= dict(found).items()
        ]

    def value(self, series: str, **labels: str) -> float:
        found = self.values(series, **labels)
        assert len(found) == 1, f"{series}{labels}: {found}"
        return found[0]

    def position(self, device: int, core: int | None = None) -> int:
        wanted = (str(device), "" if core is None else str(core))
        [found] = [n for n, one in enumerate(self.devices) if (one.index, one.partition) == wanted]
        return found

    def common(self) -> dict[tuple[str, ...], float]:
        """The common schema: (metric, device, partition, *label values) → value."""
        layouts = {
            group: tuple(Key(one.series, one.device, one.labels) for one in sample.readings)
            for group, sample in self.samples.items()
        }
        lost = frozenset(position for sample in self.samples.values() for position in sample.lost)
        values = {group: [one.value for one in sample.readings] for group, sample in self.samples.items()}
        indexes = {device.uuid: device.index for device in self.devices}
        plan = make_plan(CATALOGUE, self.devices, layouts, lost=lost)
        return {
            (out.id.metric, indexes[out.id.uuid], out.id.partition, *(value for _, value in out.id.labels)): float(
                out.evaluate(values[out.group])
            )
            for out in plan.outputs
        }


def settings(host: NeuronHost, source: str = "auto", **options: Any) -> Settings:
    wanted: dict[Group, frozenset[str]] = {
        group: frozenset(series.name for series in CATALOGUE.series.values() if series.group == group)
        for group in ("fast", "normal", "slow")
    }
    return Settings(
        wanted=wanted,
        paths=host.paths,
        source=source,
        options={"period": PERIOD, "host_metrics": "on", "processes": True, **options},
    )


@contextlib.contextmanager
def rig(host: NeuronHost, source: str = "auto", **options: Any) -> Iterator[Rig]:
    """A collector that has discovered its devices and sampled once."""
    found = Rig(open_collector(settings(host, source, **options)))
    try:
        found.discover()
        found.sample()
        yield found
    finally:
        found.collector.close()


def alive(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        text = (Path("/proc") / str(pid) / "stat").read_text()
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] not in ("Z", "X")


def wait_until(condition: Callable[[], object], what: str, patience: float = 10.0) -> None:
    end = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < end, f"{what} within {patience} s"
        time.sleep(0.02)
