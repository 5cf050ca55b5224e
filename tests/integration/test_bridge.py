"""The bridge against an exporter on loopback that speaks every dialect of dcgm-exporter."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from collectors.base import NODE, Collector, Group, ReadError, Reading, Unavailable
from collectors.bridge import open_collector
from collectors.bridge.collector import PATIENCE
from tests.bridge_sources import PageServer
from tests.bridge_tables import settings

A = "GPU-0f0e0d0c-1111-2222-3333-44445555aaaa"
B = "GPU-0f0e0d0c-1111-2222-3333-44445555bbbb"
TEMP, POWER, UTIL = "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_GPU_UTIL"
ENERGY, USED, XID = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_XID_ERRORS"
GROUPS: tuple[Group, ...] = ("fast", "normal", "slow")


@pytest.fixture
def page() -> Iterator[PageServer]:
    with PageServer("").serving() as server:
        yield server


def bridge(page: PageServer, **options: Any) -> Collector:
    return open_collector(settings(page.url, **options))


def read(collector: Collector) -> dict[tuple[str, str, str], float]:
    """One round of all groups: (series, uuid, partition) → value."""
    devices = collector.discover()
    found = {}
    for group in GROUPS:
        for reading in collector.sample(group).readings:
            device = devices[reading.device]
            key = (reading.series, device.uuid, device.partition)
            assert key not in found, "one reading of each series of each device"
            found[key] = reading.value
    return found


def lines(*texts: str) -> str:
    return "".join(text + "\n" for text in texts)


def errors(collector: Collector) -> list[ReadError]:
    return [error for group in GROUPS for error in collector.sample(group).errors]


def test_two_devices_are_found_by_their_labels(page: PageServer) -> None:
    page.body = lines(
        "# HELP DCGM_FI_DEV_GPU_TEMP GPU temperature (in C).",
        "# TYPE DCGM_FI_DEV_GPU_TEMP gauge",
        f'{TEMP}{{gpu="1",UUID="{B}",pci_bus_id="00000000:3B:00.0",device="nvidia1",modelName="NVIDIA H100 80GB HBM3",'
        'Hostname="node-a",DCGM_FI_DRIVER_VERSION="580.95.05"} 44',
        f'{TEMP}{{gpu="0",UUID="{A}",pci_bus_id="00000000:1A:00.0",device="nvidia0",modelName="NVIDIA H100 80GB HBM3",'
        'Hostname="node-a",DCGM_FI_DRIVER_VERSION="580.95.05",container="train",namespace="team-a",pod="job-0"} 61',
        f'{POWER}{{gpu="0",UUID="{A}",pci_bus_id="00000000:1A:00.0",device="nvidia0",modelName="NVIDIA H100 80GB HBM3",'
        'Hostname="node-a",DCGM_FI_DRIVER_VERSION="580.95.05",container="train",namespace="n",pod="job-0"} 514.250000',
    )
    collector = bridge(page)
    first, second = collector.discover()
    assert (first.uuid, first.index, first.model, first.pci_bus_id, first.driver_version, first.kind) == (
        A, "0", "NVIDIA H100 80GB HBM3", "00000000:1A:00.0", "580.95.05", "gpu",
    )  # fmt: skip
    assert (second.uuid, second.index) == (B, "1")
    assert first.raw_labels == (
        ("gpu", "0"), ("UUID", A), ("pci_bus_id", "00000000:1A:00.0"), ("device", "nvidia0"),
        ("modelName", "NVIDIA H100 80GB HBM3"), ("Hostname", "node-a"), ("DCGM_FI_DRIVER_VERSION", "580.95.05"),
    )  # fmt: skip
    assert read(collector) == {(TEMP, A, ""): 61, (TEMP, B, ""): 44, (POWER, A, ""): 514.25}


@pytest.mark.parametrize(
    ("labels", "raw"),
    [
        (f'gpu="0",UUID="{A}",device="nvidia0",modelName="Tesla T4"', "UUID"),
        (f'gpu="0",uuid="{A}",device="nvidia0",modelName="Tesla T4",pod_name="p",pod_namespace="n"', "uuid"),
        (
            f'gpu="0",UUID="{A}",device="nvidia0",modelName="Tesla T4",Hostname="h",container="",namespace="",pod=""',
            "UUID",
        ),
        (f'gpu="0",UUID="{A}",device="nvidia0",modelName="Tesla T4",hostname="h"', "UUID"),
        (f'hostname="h",gpu_uuid="{A}",model_name="Tesla T4",gpu="0"', "gpu_uuid"),
    ],
    ids=["before 3.3.7", "old namespace", "empty pod", "hostname", "link series"],
)
def test_every_spelling_names_the_same_device_and_stays_as_it_was_read(page: PageServer, labels: str, raw: str) -> None:
    page.body = lines(f"{TEMP}{{{labels}}} 50")
    collector = bridge(page)
    [device] = collector.discover()
    assert (device.uuid, device.index, device.model, device.pci_bus_id) == (A, "0", "Tesla T4", "")
    assert (raw, A) in device.raw_labels
    assert not {"pod", "pod_name", "namespace", "pod_namespace", "container"} & {name for name, _ in device.raw_labels}
    assert read(collector) == {(TEMP, A, ""): 50}


def test_series_that_name_a_device_with_fewer_labels_belong_to_it(page: PageServer) -> None:
    page.body = lines(
        f'{POWER}{{gpu="1"}} 70.5', f'{TEMP}{{gpu="0",UUID="{A}"}} 50', f'{TEMP}{{gpu="1",UUID="{B}"}} 51'
    )
    collector = bridge(page)
    assert [device.uuid for device in collector.discover()] == [A, B]
    assert read(collector) == {(TEMP, A, ""): 50, (TEMP, B, ""): 51, (POWER, B, ""): 70.5}


def test_a_sample_that_fits_two_devices_belongs_to_none(page: PageServer) -> None:
    shared = 'pci_bus_id="0000:01:00.0"'
    page.body = lines(
        f'{TEMP}{{gpu="0",UUID="{A}",{shared}}} 50',
        f'{TEMP}{{gpu="1",UUID="{B}",{shared}}} 51',
        f"{POWER}{{{shared}}} 75",
    )
    collector = bridge(page)
    assert read(collector) == {(TEMP, A, ""): 50, (TEMP, B, ""): 51}
    page.body += "# again\n"
    [error] = errors(collector)
    assert error.kind == "parse"
    assert "fit several devices" in error.detail


def test_copies_for_jobs_are_one_reading(page: PageServer) -> None:
    page.body = lines(*(f'{ENERGY}{{gpu="0",UUID="{A}",hpc_job="{job}"}} 27151028' for job in ("1201", "1202", "")))
    assert read(bridge(page)) == {(ENERGY, A, ""): 27151028}


def test_copies_for_virtual_devices_are_one_reading(page: PageServer) -> None:
    page.body = lines(*(f'{TEMP}{{gpu="0",UUID="{A}",pod="p{n}",vgpu="{n}"}} 55' for n in range(3)))
    assert read(bridge(page)) == {(TEMP, A, ""): 55}


def test_a_pods_share_is_not_taken_for_the_devices_own_value(page: PageServer) -> None:
    page.body = lines(
        f'{UTIL}{{gpu="0",UUID="{A}",pod="p0",pod_uid="u0",vgpu="0"}} 30',
        f'{UTIL}{{gpu="0",UUID="{A}",pod="p1",pod_uid="u1",vgpu="1"}} 12',
        f'{UTIL}{{gpu="0",UUID="{A}"}} 47',
    )
    assert read(bridge(page)) == {(UTIL, A, ""): 47}


def test_shares_of_pods_alone_give_no_reading_and_are_never_summed(page: PageServer) -> None:
    page.body = lines(
        f'{UTIL}{{gpu="0",UUID="{A}",pod="p0",pod_uid="u0"}} 30',
        f'{UTIL}{{gpu="0",UUID="{A}",pod="p1",pod_uid="u1"}} 12',
    )
    collector = bridge(page)
    collector.discover()
    sample = collector.sample("normal")
    assert sample.readings == ()
    assert [error.kind for error in sample.errors] == ["parse"]
    assert UTIL in sample.errors[0].detail


def mig(series: str, instance: str, profile: str, value: object) -> str:
    return (
        f'{series}{{gpu="0",UUID="{A}",device="nvidia0",modelName="NVIDIA A100-SXM4-40GB",GPU_I_PROFILE="{profile}",'
        f'GPU_I_ID="{instance}",Hostname="node-a"}} {value}'
    )


def test_parts_get_a_whole_which_takes_the_facts_that_they_repeat(page: PageServer) -> None:
    instances = (("7", "1g.5gb"), ("11", "1g.5gb"), ("5", "2g.10gb"))
    # Recorded copies of one board's power do differ within one page.
    power = {"7": "112.252000", "11": "106.463000", "5": "112.252000"}
    used = {"7": 6, "11": 4384, "5": 13}
    page.body = lines(
        *(mig(POWER, number, profile, power[number]) for number, profile in instances),
        *(mig(USED, number, profile, used[number]) for number, profile in instances),
    )
    collector = bridge(page)
    whole, *parts = collector.discover()
    assert (whole.uuid, whole.partition, whole.partition_profile) == (A, "", "")
    assert whole.raw_labels == (
        ("gpu", "0"), ("UUID", A), ("device", "nvidia0"), ("modelName", "NVIDIA A100-SXM4-40GB"),
        ("Hostname", "node-a"),
    )  # fmt: skip
    assert [(part.uuid, part.partition, part.partition_profile) for part in parts] == [
        (A, "1g.5gb/7", "1g.5gb"),
        (A, "1g.5gb/11", "1g.5gb"),
        (A, "2g.10gb/5", "2g.10gb"),
    ]
    assert ("GPU_I_ID", "7") in parts[0].raw_labels
    expected = {
        (POWER, A, ""): 112.252,
        (USED, A, "1g.5gb/7"): 6,
        (USED, A, "1g.5gb/11"): 4384,
        (USED, A, "2g.10gb/5"): 13,
    }
    assert read(collector) == expected
    page.body = lines(*reversed(page.body.splitlines()))
    assert read(bridge(page)) == expected, "the order of the page decides nothing"


def test_fault_codes_keep_their_labels(page: PageServer) -> None:
    page.body = lines(
        f'{XID}{{gpu="0",UUID="{A}",Hostname="h",err_code="79",err_msg="GPU has fallen \\"off\\" the bus",pod="p"}} 79'
    )
    collector = bridge(page)
    collector.discover()
    assert collector.sample("slow").readings == (
        Reading(XID, 0, 79, (("err_code", "79"), ("err_msg", 'GPU has fallen "off" the bus'))),
    )


def test_values_that_say_no_reading_give_none(page: PageServer) -> None:
    page.body = lines(
        f'{UTIL}{{gpu="0",UUID="{A}"}} 9223372036854775794',
        f'{UTIL}{{gpu="1",UUID="{B}"}} 9.223372036854775794e+18',
        f'{POWER}{{gpu="0",UUID="{A}"}} 140737488355328.000000',
        f'{POWER}{{gpu="1",UUID="{B}"}} NaN',
        f'{TEMP}{{gpu="0",UUID="{A}"}} +Inf',
        f'{TEMP}{{gpu="1",UUID="{B}"}} 0',
        f'DCGM_FI_DEV_MEMORY_TEMP{{gpu="1",UUID="{B}"}} 0',
    )
    collector = bridge(page)
    assert read(collector) == {(TEMP, B, ""): 0}
    assert errors(collector) == []


def test_another_spelling_of_a_name_is_the_same_series(page: PageServer) -> None:
    page.body = lines(f'DCGM_FI_DEV_MEMORY_TEMP_CELSIUS{{gpu="0",UUID="{A}"}} 63')
    assert read(bridge(page)) == {("DCGM_FI_DEV_MEMORY_TEMP", A, ""): 63}


def test_series_of_the_node_and_unknown_ones(page: PageServer) -> None:
    page.body = lines(
        "DCGM_FI_IMEX_DAEMON_STATUS 5", "go_goroutines 12", 'other{gpu="7"} 1', f'{TEMP}{{UUID="{A}"}} 40'
    )
    collector = bridge(page)
    assert [device.uuid for device in collector.discover()] == [A]
    sample = collector.sample("slow")
    assert sample.readings == (Reading("DCGM_FI_IMEX_DAEMON_STATUS", NODE, 5),)
    assert sample.errors == ()


def test_only_wanted_series_are_read_and_in_the_group_that_the_agent_says(page: PageServer) -> None:
    page.body = lines(f'{TEMP}{{UUID="{A}"}} 40', f'{POWER}{{UUID="{A}"}} 90')
    told = settings(page.url)
    collector = open_collector(type(told)(wanted={"slow": frozenset({POWER})}, options=told.options))
    assert read(collector) == {(POWER, A, ""): 90}


def test_broken_lines_are_counted_once_and_cost_nothing_else(page: PageServer) -> None:
    page.body = (
        lines(f'{TEMP}{{UUID="{A}" 40', "%%%", f'{TEMP}{{UUID="{A}"}} forty', f'{TEMP}{{UUID="{A}"}} 41') + "x 1"
    )
    collector = bridge(page)
    collector.discover()
    fast = collector.sample("fast")
    assert [reading.value for reading in fast.readings] == [41]
    assert {error.kind for error in fast.errors} == {"parse"}
    assert sorted(error.detail.partition(":")[0] for error in fast.errors) == [
        "broken labels",
        "last line without a newline",
        "no metric name",
        "the value is no number",
    ]
    assert collector.sample("normal").errors == ()


def test_a_sample_older_than_the_limit_is_left_out(page: PageServer) -> None:
    now = time.time()
    page.body = lines(
        f'{TEMP}{{UUID="{A}"}} 40 {round((now - 10) * 1000)}', f'{POWER}{{UUID="{A}"}} 90 {round((now - 400) * 1000)}'
    )
    collector = bridge(page)
    assert read(collector) == {(TEMP, A, ""): 40}
    assert read(bridge(page, max_age=0)) == {(TEMP, A, ""): 40, (POWER, A, ""): 90}


def test_a_source_that_froze_as_a_whole_is_reported(page: PageServer) -> None:
    page.body = lines("DCGM_FI_IMEX_DAEMON_STATUS 5", f'{TEMP}{{UUID="{A}"}} 40 {round((time.time() - 4000) * 1000)}')
    collector = bridge(page)
    with pytest.raises(Unavailable) as caught:
        collector.discover()
    assert caught.value.state == "no_device"
    sample = collector.sample("fast")
    assert sample.readings == ()
    assert "older than max_age" in sample.errors[0].detail


def test_openmetrics_is_read_with_its_seconds_and_its_end(page: PageServer) -> None:
    page.content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8"
    fresh = f'{TEMP}{{UUID="{A}"}} 40 {time.time() - 5:.3f}'
    page.body = lines(fresh, f'{POWER}{{UUID="{A}"}} 90 {time.time() - 900:.3f} # {{x="y"}} 1.0', "# EOF")
    assert read(bridge(page)) == {(TEMP, A, ""): 40}
    page.body = lines(fresh)
    with pytest.raises(Unavailable, match="# EOF"):
        bridge(page).discover()


def test_groups_share_a_page_and_each_gets_it_once(page: PageServer) -> None:
    page.body = lines(f'{TEMP}{{UUID="{A}"}} 40', f'{USED}{{UUID="{A}"}} 17', f'{XID}{{UUID="{A}"}} 0')
    collector = bridge(page, share_seconds=60)
    collector.discover()
    for group in GROUPS:
        assert len(collector.sample(group).readings) == 1
    assert len(page.requests) == 1
    page.body = page.body.replace(" 40", " 41")
    assert [reading.value for reading in collector.sample("fast").readings] == [41]
    assert len(page.requests) == 2


def test_a_page_is_not_shared_longer_than_told(page: PageServer) -> None:
    page.body = lines(f'{TEMP}{{UUID="{A}"}} 40')
    collector = bridge(page, share_seconds=0)
    collector.discover()
    for group in GROUPS:
        collector.sample(group)
    assert len(page.requests) == 4


def test_new_and_gone_devices_ask_for_a_discovery(page: PageServer) -> None:
    one, two = f'{TEMP}{{gpu="0",UUID="{A}"}} 40', f'{TEMP}{{gpu="1",UUID="{B}"}} 41'
    page.body = lines(two)
    collector = bridge(page)
    collector.discover()
    assert not collector.sample("fast").rediscover
    page.body = lines(one, two)
    sample = collector.sample("fast")
    assert sample.rediscover
    assert sample.readings == (Reading(TEMP, 0, 41),), "what is known keeps its position until the discovery"
    assert [device.uuid for device in collector.discover()] == [A, B]
    assert len(page.requests) == 2, "the discovery looks at the page that asked for it"
    page.body = lines(one)
    sample = collector.sample("fast")
    assert (sample.rediscover, sample.readings) == (True, (Reading(TEMP, 0, 40),))


def test_an_exporter_without_devices_or_of_another_kind(page: PageServer) -> None:
    page.body = lines("node_load1 0.5")
    with pytest.raises(Unavailable, match="dcgm-exporter") as caught:
        bridge(page).discover()
    assert caught.value.state == "no_device"
    assert page.url in caught.value.hint


def test_failed_scrapes_are_errors_first_and_then_the_exporter_is_gone(page: PageServer) -> None:
    page.body = lines(f'{TEMP}{{UUID="{A}"}} 40')
    collector = bridge(page)
    collector.discover()
    collector.sample("fast")
    page.status = 500
    for _ in range(PATIENCE - 1):
        sample = collector.sample("fast")
        assert sample.readings == ()
        [error] = sample.errors
        assert (error.device, error.kind) == (NODE, "transient")
    with pytest.raises(Unavailable, match="500"):
        collector.sample("fast")
    page.status = 200
    assert read(collector) == {(TEMP, A, ""): 40}


def test_a_template_that_names_no_field_is_refused() -> None:
    plain = settings("http://x/").options
    wrong = {**plain, "bridge": {**plain["bridge"], "partition": "{uuid.__class__}"}}
    with pytest.raises(Unavailable, match="partition template"):
        open_collector(type(settings("http://x/"))(wanted={}, options=wrong))


def test_a_device_of_which_only_the_index_is_told_has_that_as_its_identity(page: PageServer) -> None:
    page.body = lines(f'{TEMP}{{gpu="10",UUID="",modelName="NA"}} 40', f'{TEMP}{{gpu="9"}} 41')
    collector = bridge(page)
    assert [(device.uuid, device.index, device.model) for device in collector.discover()] == [
        ("9", "9", ""),
        ("10", "10", ""),
    ]
