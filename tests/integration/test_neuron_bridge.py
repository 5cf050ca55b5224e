"""neuron-monitor-prometheus.py through the bridge: the same common values as natively."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from collectors.base import NODE, Device, Group, Labels
from collectors.bridge.scrape import Reader, Scrape
from collectors.tables import Tables
from exporter.families import prefix
from exporter.model import Key
from exporter.normalize import make_plan
from exporter.tables import tables
from tests.fakes.neuron import MACHINES, RuntimeData, make_host, report
from tests.integration.neuron_rig import CATALOGUE, Rig, rig

Common = dict[tuple[str, ...], float]
EXPORTED = frozenset(name for name, series in CATALOGUE.series.items() if not series.own and series.native)


def text_of(found: Rig) -> str:
    """What the script would serve: each series under its labels in alphabetical order."""
    lines = []
    for (name, position, own), value in found.readings.items():
        if name in EXPORTED:
            labels: Labels = own if position == NODE else found.devices[position].raw_labels + own
            lines.append(f"{prefix(name, sorted(labels))}{float(value)!r}\n")
    return "".join(lines)


def scrape(text: str) -> Scrape:
    told = msgspec.convert(tables(CATALOGUE), Tables)
    assert told.bridge is not None
    wanted: dict[Group, frozenset[str]] = {"normal": frozenset(CATALOGUE.series)}
    reader = Reader(told, told.bridge, wanted, max_series=100_000, max_age=300)
    for _ in range(2):  # the second time from what the reader remembers
        found = reader.read([text.encode()], openmetrics=False, now=0.0)
        assert found.errors == ()
    return found


def common_of(found: Scrape) -> Common:
    readings = found.readings["normal"]
    layout = tuple(Key(one.series, one.device, one.labels) for one in readings)
    indexes = {device.uuid: device.index for device in found.devices}
    values = [one.value for one in readings]
    plan = make_plan(CATALOGUE, found.devices, {"normal": layout})
    return {
        (out.id.metric, indexes[out.id.uuid], out.id.partition, *(value for _, value in out.id.labels)): float(
            out.evaluate(values)
        )
        for out in plan.outputs
    }


def names(devices: tuple[Device, ...]) -> Iterator[tuple[str, str]]:
    return ((device.index, device.partition) for device in devices)


@pytest.mark.parametrize("name", ["inf2", "trn1", "trn2"])
def test_the_bridge_gives_the_devices_and_values_of_the_native_collector(tmp_path: Path, name: str) -> None:
    machine = MACHINES[name]
    host = make_host(tmp_path / "host", machine)
    runtimes = [RuntimeData(11, "1", {0: 12.5}), RuntimeData(12, "2", {1: 42.5}, latency={"p50": 0.5})]
    host.scenario([{"hang": True}], first=report(machine, runtimes, ecc={0: {"sram_ecc_uncorrected": 2}}))
    with rig(host) as found:
        native, text = found.common(), text_of(found)
        devices = found.devices
    bridged = scrape(text)
    assert sorted(names(bridged.devices)) == sorted(names(devices))
    assert [device.uuid for device in bridged.devices if not device.partition] == [
        f"i-0a1b2c3d4e5f60718-neuron{index}" for index in range(machine.devices)
    ]
    for one in bridged.readings["normal"]:
        # A label that stood there twice would cost the whole scrape of whoever passes the series on.
        identity = bridged.devices[one.device].raw_labels if one.device != NODE else ()
        shown = [name for name, _ in identity + one.labels]
        assert len(set(shown)) == len(shown), one
    common = common_of(bridged)
    cores = [(str(core // machine.cores), str(core)) for core in range(machine.devices * machine.cores)]
    for device, core in cores:
        assert common["accel_utilization_ratio", device, core] == native["accel_utilization_ratio", device, core]
        assert common["accel_compute_active_ratio", device, core] == native["accel_utilization_ratio", device, core]
    assert common["accel_utilization_ratio", "0", "0"] == 0.125
    assert common["accel_utilization_ratio", "0", "1"] == 0.425
    # The driver's own figures, which natively come first, count what the runtimes do not.
    assert common["accel_memory_category_bytes", "0", "1", "device", "tensors"] == 2 * 2**20 + 4
    assert common["accel_memory_errors_total", "0", "", "false", "sram"] == 2
    assert {key[0] for key in common} == {
        "accel_utilization_ratio", "accel_compute_active_ratio", "accel_memory_category_bytes",
        "accel_memory_errors_total",
    }  # fmt: skip


def test_series_of_the_node_keep_their_labels_through_the_bridge(tmp_path: Path) -> None:
    host = make_host(tmp_path / "host", MACHINES["inf2"])
    host.scenario(report(MACHINES["inf2"], [RuntimeData(11, "1", {0: 5}, latency={"p50": 0.5})]))
    with rig(host) as found:
        sent = {key: value for key, value in found.readings.items() if key[0] in EXPORTED and key[1] == NODE}
        text = text_of(found)
    came = {
        (one.series, one.device, tuple(pair for pair in one.labels if pair[1])): one.value
        for one in scrape(text).readings["normal"]
        if one.device == NODE
    }
    assert came == {
        (name, at, tuple(pair for pair in own if pair[1])): value for (name, at, own), value in sent.items()
    }


def test_inf1s_page_of_the_scripts_older_version_is_understood() -> None:
    """The form of a real page: labels in alphabetical order, *_created beside counters, a name that is empty."""
    base = (
        'availability_zone="eu-north-1a",instance_id="i-0f1e2d3c4b5a69788",instance_name="",instance_type="inf1.xlarge"'
    )
    rest = 'region="eu-north-1",subnet_id="subnet-0f1e2d3c"'
    text = f"""
# HELP hardware_ecc_events_total Hardware ecc events total
# TYPE hardware_ecc_events_total counter
hardware_ecc_events_total{{availability_zone="eu-north-1a",event_type="mem_ecc_corrected",instance_id="i-0f1e2d3c4b5a69788",instance_name="",instance_type="inf1.xlarge",neuron_device_index="0",{rest}}} 3.0
# TYPE hardware_ecc_events_created gauge
hardware_ecc_events_created{{availability_zone="eu-north-1a",event_type="mem_ecc_corrected",instance_id="i-0f1e2d3c4b5a69788",instance_name="",instance_type="inf1.xlarge",neuron_device_index="0",{rest}}} 1.7e+09
# TYPE neuron_hardware_info gauge
neuron_hardware_info{{{base},neuron_device_count="1",neuron_device_memory_size="8589934592",neuroncore_per_device_count="4",{rest}}} 1.0
# TYPE neuroncore_utilization_ratio gauge
neuroncore_utilization_ratio{{{base},neuroncore="3",{rest.replace(",", ',runtime_tag="31961",')}}} 0.425
neuroncore_utilization_ratio{{{base},neuroncore="3",{rest.replace(",", ',runtime_tag="32265",')}}} 0.0
# TYPE inference_status_total counter
inference_status_total{{{base},{rest.replace(",", ',runtime_tag="31961",status_type="completed",')}}} 12.0
"""  # noqa: E501
    found = scrape(text)
    assert list(names(found.devices)) == [("0", ""), ("0", "3")]
    common = common_of(found)
    assert common["accel_utilization_ratio", "0", "3"] == 0.425
    assert common["accel_memory_errors_total", "0", "", "true", "hbm"] == 3
    [status] = [one for one in found.readings["normal"] if one.series == "execution_status_total"]
    assert (status.device, status.value) == (NODE, 12)


def test_without_the_count_of_cores_per_device_a_core_belongs_to_no_device() -> None:
    """Collectors that strip *_info take it away: then nothing is guessed."""
    text = 'neuroncore_utilization_ratio{instance_id="i-0f1e2d3c4b5a69788",neuroncore="3",runtime_tag="1"} 0.425\n'
    told = msgspec.convert(tables(CATALOGUE), Tables)
    assert told.bridge is not None
    reader = Reader(told, told.bridge, {"normal": frozenset(CATALOGUE.series)}, max_series=100, max_age=300)
    found = reader.read([text.encode()], openmetrics=False, now=0.0)
    assert found.devices == ()
    assert [error.detail for error in found.errors] == [
        "its labels name no device: 1 times, first in 'neuroncore_utilization_ratio'"
    ]
