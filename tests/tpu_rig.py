"""Opens the TPU collector on a fake host, and looks at what it reads."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import collectors
from collectors.base import NODE, Collector, Device, Group, Labels, Sample, Settings
from collectors.tpu import open_collector
from exporter.catalogue import load
from tests.fakes.tpu.host import Host, add_chips, make_host
from tests.fakes.tpu.service import Runtime, serve

CATALOGUE = load(Path(collectors.__path__[0]) / "tpu", "collectors.tpu")
INSTANCE = "7402918374650192837"
GROUPS: Sequence[Group] = ("fast", "normal", "slow")
NOWHERE = "http://127.0.0.1:1/metrics"
"""Where no plugin answers."""


GIB = 2**30
V6E_TOTAL = 33_554_432_000
"""31.25 GiB: what tpu-info shows of 32."""
FOUR = {n: (25.0 * (n % 4), (n % 4 + 1) * GIB, V6E_TOTAL) for n in (8, 9, 12, 13)}
"""A host of a slice whose numbers have gaps."""


@contextlib.contextmanager
def workload(host: Host, nodes: list[str], *runtimes: Runtime, pid: int = 1000) -> Iterator[list[str]]:
    """A process that holds these nodes and whose runtimes serve at ports that its environment names."""
    with contextlib.ExitStack() as stack:
        addresses = [stack.enter_context(serve(runtime)) for runtime in runtimes]
        listed = ",".join(address.rpartition(":")[2] for address in addresses)
        process = host.process(pid, nodes, {"TPU_RUNTIME_METRICS_PORTS": listed})
        yield addresses
        shutil.rmtree(process)


def host_of(folder: Path, kind: str, count: int) -> tuple[Host, list[str]]:
    host = make_host(folder)
    return host, add_chips(host, kind, count)


class Rig:
    """A collector that has been opened and has discovered."""

    def __init__(self, collector: Collector) -> None:
        self.collector = collector
        self.devices: Sequence[Device] = collector.discover()

    @property
    def source(self) -> object:
        return getattr(self.collector, "source", None)

    def sample(self) -> tuple[dict[tuple[str, int], float], Sample]:
        """Series and position → value, of series without labels of their own; and all of the groups' samples in one."""
        found: dict[tuple[str, int, Labels], float] = {}
        samples = [self.collector.sample(group) for group in GROUPS]
        for sample in samples:
            for reading in sample.readings:
                key = (reading.series, reading.device, reading.labels)
                assert key not in found, key
                assert NODE <= reading.device < len(self.devices)
                assert reading.series in CATALOGUE.series
                assert set(dict(reading.labels)) <= set(CATALOGUE.series[reading.series].labels)
                found[key] = reading.value
        together = Sample(
            readings=[reading for sample in samples for reading in sample.readings],
            errors=[error for sample in samples for error in sample.errors],
            faults=[fault for sample in samples for fault in sample.faults],
            lost=sorted({position for sample in samples for position in sample.lost}),
            rediscover=any(sample.rediscover for sample in samples),
        )
        return {(series, device): value for (series, device, labels), value in found.items() if not labels}, together

    def of(self, series: str) -> dict[int, float]:
        """Position → value, of one series now."""
        return {position: value for (name, position), value in self.sample()[0].items() if name == series}


def settings(host: Host, source: Literal["auto", "plugin", "runtime"] = "runtime", **options: Any) -> Settings:
    """All series are wanted; the instance's id is given, so that no metadata server is asked."""
    return Settings(
        wanted=CATALOGUE.wanted(frozenset(CATALOGUE.series), common=True),
        paths=host.paths,
        node="node-a",
        source=source,
        options={"instance_id": INSTANCE, "plugin_url": NOWHERE, "timeout": 2.0, **options},
    )


@contextlib.contextmanager
def opened(host: Host, source: Literal["auto", "plugin", "runtime"] = "runtime", **options: Any) -> Iterator[Rig]:
    """The collector on this host. Raises Unavailable."""
    collector = open_collector(settings(host, source, **options))
    try:
        yield Rig(collector)
    finally:
        collector.close()
