"""What a vendor's own exporter would say of simulated devices comes back through the bridge as it went out."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec
import pytest

import collectors
from collectors.base import NODE, Group, Labels
from collectors.bridge.scrape import Reader
from collectors.tables import Tables
from exporter.catalogue import load
from exporter.families import prefix
from exporter.tables import simulation, tables
from tests.simulated_rig import Rig

Found = dict[tuple[str, str, str, Labels], float]


def bridged(folder: Path) -> bool:
    catalogue = load(folder, folder.name)
    bridge = catalogue.collector.bridge
    return bridge is not None and bool(set(bridge.labels.uuid) & set(catalogue.identity))


FOLDERS = [
    path.parent for path in sorted(Path(collectors.__path__[0]).glob("*/collector.toml")) if bridged(path.parent)
]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
@pytest.mark.parametrize("parts", [0, 1])
def test_readings_and_devices_survive_the_way_through_text(folder: Path, parts: int) -> None:
    catalogue = load(folder, folder.name)
    if parts and not (catalogue.collector.bridge and catalogue.collector.bridge.labels.partition_id):
        pytest.skip("the vendor's exporter tells no parts")
    data = {**tables(catalogue), "simulation": simulation(folder)}
    rig = Rig(data, devices=3, parts=parts, links="each", scenarios=["training", "failing", "inference"])
    sent: Found = {}
    text = []
    for (series, position, labels), value in rig.at(290)[0].items():
        device = None if position == NODE else rig.devices[position]
        raw = device.raw_labels if device else ()
        uuid, partition = (device.uuid, device.partition) if device else ("", "")
        sent[series, uuid, partition, labels] = value
        text.append(f"{prefix(series, raw + labels)}{value!r}\n")
    told = msgspec.convert(data, Tables)
    assert told.bridge is not None
    wanted: dict[Group, frozenset[str]] = {"normal": frozenset(catalogue.series)}
    reader = Reader(told, told.bridge, wanted, max_series=100_000, max_age=300)
    for _ in range(2):  # the second time from what the reader remembers
        scrape = reader.read(["".join(text).encode()], openmetrics=False, now=time.time())
        assert scrape.errors == ()
        came: Found = {}
        for reading in scrape.readings["normal"]:
            seen = None if reading.device == NODE else scrape.devices[reading.device]
            key = (reading.series, seen.uuid if seen else "", seen.partition if seen else "", reading.labels)
            came[key] = reading.value
        assert came == sent
        assert [
            (device.uuid, device.index, device.partition, device.partition_profile) for device in scrape.devices
        ] == [(device.uuid, device.index, device.partition, device.partition_profile) for device in rig.devices]
        assert [device.raw_labels for device in scrape.devices] == [device.raw_labels for device in rig.devices]


def test_a_big_page_is_read_in_linear_time() -> None:
    """Twice the page takes about twice the processor time; with slack, for machines are shared."""
    folder = FOLDERS[0]
    catalogue = load(folder, folder.name)
    data = {**tables(catalogue), "simulation": simulation(folder)}
    rig = Rig(data, devices=16)
    text = "".join(
        f"{prefix(series, rig.devices[position].raw_labels + labels)}{value!r}\n"
        for (series, position, labels), value in rig.at(60)[0].items()
        if position != NODE
    ).encode()
    told = msgspec.convert(data, Tables)
    assert told.bridge is not None
    reader = Reader(told, told.bridge, {"normal": frozenset(catalogue.series)}, max_series=100_000, max_age=300)
    lines = text.splitlines(keepends=True)
    half = b"".join(lines[: len(lines) // 2])

    def cost(page: bytes) -> float:
        """Processor time a known sample, the best of some."""
        best = 1.0
        for _ in range(4):
            started = time.process_time()
            scrape = reader.read([page], openmetrics=False, now=time.time())
            best = min(best, (time.process_time() - started) / scrape.known)
        return best

    assert cost(text) < 10 * cost(half)
