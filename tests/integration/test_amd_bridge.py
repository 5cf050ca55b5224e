"""What AMD's own exporter says, read through the bridge, becomes what the native collector gives."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

import collectors
from collectors.amd import open_collector
from collectors.base import NODE, Device, Group, Reading
from collectors.bridge.scrape import Reader, Scrape
from collectors.tables import Tables
from exporter.catalogue import Catalogue, load
from exporter.families import prefix
from exporter.model import Key
from exporter.normalize import make_plan
from exporter.tables import tables
from tests.fakes.amd import build, worlds
from tests.integration.amd_child import settings

# As the exporter prints a card that is not cut (v1.5), with ids that are made up.
EXPOSITION = """
# HELP gpu_nodes_total Number of GPUs in the node
# TYPE gpu_nodes_total gauge
gpu_nodes_total{{hostname="node-a"}} 2
# HELP gpu_package_power Current socket power in Watts
# TYPE gpu_package_power gauge
gpu_package_power{{{labels},gpu_id="0",serial_number="SN0001"}} 561
gpu_package_power{{{labels},gpu_id="1",serial_number="SN0002"}} 560
# TYPE gpu_clock gauge
gpu_clock{{clock_index="0",clock_type="system",{labels},gpu_id="0",serial_number="SN0001"}} 2100
gpu_clock{{clock_index="8",clock_type="memory",{labels},gpu_id="0",serial_number="SN0001"}} 1300
# TYPE gpu_ecc_correct_umc gauge
gpu_ecc_correct_umc{{{labels},gpu_id="0",serial_number="SN0001"}} 3
# TYPE gpu_energy_consumed gauge
gpu_energy_consumed{{{labels},gpu_id="0",serial_number="SN0001"}} 1002700800
# TYPE gpu_health gauge
gpu_health{{{labels},gpu_id="0",serial_number="SN0001"}} 0
"""
LABELS = (
    'card_model="102-G30211-0C",container="train",deployment_mode="baremetal",gpu_compute_partition_type="{mode}",'
    'gpu_memory_partition_type="nps1",gpu_partition_id="0",hostname="node-a",job_id="",job_partition="",job_user="",'
    'namespace="ml",pod="train-0"'
)


class Seen(NamedTuple):
    """Common series: metric, uuid's device index, partition and further label values → value."""

    devices: Sequence[Device]
    values: Mapping[tuple[str, ...], float]


@pytest.fixture(scope="module")
def amd() -> Catalogue:
    return load(Path(collectors.__path__[0]) / "amd", "collectors.amd")


def reader(catalogue: Catalogue) -> Reader:
    told = msgspec.convert(tables(catalogue), Tables)
    assert told.bridge is not None
    wanted: Mapping[Group, frozenset[str]] = {"normal": frozenset(catalogue.series)}
    return Reader(told, told.bridge, wanted, max_series=100_000, max_age=300)


def read(catalogue: Catalogue, text: str) -> Scrape:
    scrape = reader(catalogue).read([text.encode()], openmetrics=False, now=time.time())
    assert scrape.errors == ()
    return scrape


def bridged(catalogue: Catalogue, text: str) -> Seen:
    scrape = read(catalogue, text)
    return common(catalogue, scrape.devices, [one for found in scrape.readings.values() for one in found])


def common(catalogue: Catalogue, devices: Sequence[Device], readings: Sequence[Reading]) -> Seen:
    layout = tuple(Key(one.series, one.device, one.labels) for one in readings)
    plan = make_plan(catalogue, devices, {"normal": layout})
    index = {device.uuid: device.index for device in reversed(devices) if not device.partition}
    values = [one.value for one in readings]
    found = {}
    for out in plan.outputs:
        labels = [value for _, value in out.id.labels]
        key = (out.id.metric.removeprefix("accel_"), index[out.id.uuid], out.id.partition, *labels)
        found[key] = out.evaluate(values)
    return Seen(devices, found)


@pytest.mark.parametrize("mode", ["spx", "", "none"])
@pytest.mark.parametrize("name", ["", "amd_"])
def test_a_card_that_is_not_cut_is_one_device(amd: Catalogue, mode: str, name: str) -> None:
    text = EXPOSITION.format(labels=LABELS.format(mode=mode)).replace("\ngpu_", f"\n{name}gpu_")
    seen = bridged(amd, text)
    assert [(d.index, d.partition, d.serial, d.uuid) for d in seen.devices] == [
        ("0", "", "SN0001", "SN0001"),
        ("1", "", "SN0002", "SN0002"),
    ]
    assert seen.values == {
        ("power_watts", "0", ""): 561,
        ("power_watts", "1", ""): 560,
        ("clock_hertz", "0", "", "core"): 2.1e9,
        ("clock_hertz", "0", "", "memory"): 1.3e9,
        ("memory_errors_total", "0", "", "true", "hbm"): 3,
        ("energy_joules_total", "0", ""): 1002.7008,
    }
    labels = dict(seen.devices[0].raw_labels)
    assert labels["gpu_partition_id"] == "0"
    assert labels.get("gpu_compute_partition_type") == (mode or "")


def test_the_first_versions_upper_case_labels_name_a_device(amd: Catalogue) -> None:
    text = 'gpu_average_package_power{GPU_UUID="19844ecf",SERIAL_NUMBER="1816"} 41\ngpu_nodes_total 1\n'
    scrape = read(amd, text)
    [device] = scrape.devices
    assert (device.uuid, device.serial) == ("19844ecf", "1816")


def natively(tmp_path: Path, cut: bool) -> tuple[Sequence[Device], list[Reading]]:
    """What the native collector gives of two cards, after a second sample."""
    tree = build(tmp_path, worlds.mi300x_cpx(2) if cut else worlds.mi300x(2))
    collector = open_collector(settings(tree, source="sysfs", options={"cluster_name": "c1"}))
    devices = collector.discover()
    readings = list(collector.sample("normal").readings)
    collector.close()
    return devices, readings


@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("with_uuid", [True, False])
def test_the_bridge_gives_the_same_common_values_as_the_native_collector(
    amd: Catalogue, tmp_path: Path, cut: bool, with_uuid: bool
) -> None:
    """The text has what AMD's exporter has: its own series, on logical GPUs, by default without gpu_uuid."""
    devices, readings = natively(tmp_path, cut)
    vendors = [one for one in readings if not amd.series[one.series].own]
    text = []
    for one in vendors:
        identity = devices[one.device].raw_labels if one.device != NODE else ()
        labels = tuple(pair for pair in identity if with_uuid or pair[0] != "gpu_uuid")
        text.append(f"{prefix(one.series, labels + one.labels)}{one.value!r}\n")
    native = common(amd, devices, vendors)
    seen = bridged(amd, "".join(text))
    assert seen.values == native.values
    assert len({device.uuid for device in seen.devices}) == 2
    parts = [(device.index, device.partition) for device in seen.devices]
    assert parts == [(device.index, device.partition) for device in devices]


def test_the_parts_uuids_do_not_make_eight_cards_of_one(amd: Catalogue, tmp_path: Path) -> None:
    devices, _ = natively(tmp_path, cut=True)
    text = "".join(
        f"{prefix('gpu_used_vram', device.raw_labels)}{number}\n"
        for number, device in enumerate(devices)
        if device.partition
    )
    scrape = read(amd, text)
    assert [(d.uuid, d.index, d.partition, d.partition_uuid) for d in scrape.devices[:3]] == [
        ("692300000000", "0", "", ""),
        ("692300000000", "0", "0", "9f0074a1-0000-1000-8044-0a1b2c3d4e00"),
        ("692300000000", "1", "1", "9f0174a1-0000-1000-8044-0a1b2c3d4e00"),
    ]
    assert len(scrape.devices) == 18


def test_the_zeros_of_what_a_gpu_does_not_tell_are_no_readings(amd: Catalogue) -> None:
    """Before v1.4 the exporter gave 0 for whatever a GPU has not, and does so of the second die of an MI250."""
    zeros = ("gpu_average_package_power", "gpu_edge_temperature", "gpu_energy_consumed", "gpu_total_gtt", "pcie_speed")
    labels = LABELS.format(mode="none") + ',gpu_id="1",serial_number="SN0001"'
    text = "".join(f"{name}{{{labels}}} 0\n" for name in (*zeros, "gpu_gfx_activity", "gpu_ecc_correct_umc"))
    assert bridged(amd, text).values == {
        ("utilization_ratio", "1", ""): 0,
        ("memory_errors_total", "1", "", "true", "hbm"): 0,
    }


def test_a_parts_zero_never_stands_for_the_whole(amd: Catalogue) -> None:
    """Of a card that is cut, parts but the first tell 0 of the host's memory, and the first may tell none."""
    labels = [
        LABELS.format(mode="cpx").replace('partition_id="0"', f'partition_id="{n}"')
        + f',gpu_id="{n}",serial_number="S"'
        for n in range(3)
    ]
    text = f"gpu_used_vram{{{labels[0]}}} 1\n" + "".join(f"gpu_total_gtt{{{one}}} 0\n" for one in labels[1:])
    assert [key for key in bridged(amd, text).values if key[0] == "memory_total_bytes"] == []
