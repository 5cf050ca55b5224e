"""A fake host whose AMD cards are read from sysfs, by a collector in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from collectors.amd import open_collector
from collectors.base import Collector, Device, Sample
from tests.fakes.amd import Board, Tree, build
from tests.integration.amd_child import settings
from tests.integration.collector_child import Answer

Open = Callable[..., "Host"]


class Host:
    """A fake host with an open collector."""

    def __init__(self, tree: Tree, collector: Collector) -> None:
        self.tree, self.collector = tree, collector
        self.devices: Sequence[Device] = collector.discover()

    def sample(self) -> Answer:
        return Answer(self.collector.sample("normal"))

    def raw(self) -> Sample:
        return self.collector.sample("normal")


@contextmanager
def opening(folder: Path) -> Iterator[Open]:
    """Opens hosts below the folder; their collectors are closed at the end."""
    opened: list[Collector] = []

    def make(boards: Sequence[Board], *, version: str = "6.12.12", **more: Any) -> Host:
        tree = build(folder / str(len(opened)), boards, version=version)
        collector = open_collector(settings(tree, source="sysfs", **more))
        opened.append(collector)
        return Host(tree, collector)

    try:
        yield make
    finally:
        for collector in opened:
            collector.close()


def values(answer: Answer, device: int, expected: Mapping[str, float]) -> dict[str, float]:
    return {series: answer.value(series, device) for series in expected}


def series_of(answer: Answer, device: int = 0) -> set[str]:
    return {reading.series for reading in answer.sample.readings if reading.device == device}
