"""Owners that a bridged exporter names: from its page, through the bridge, to who works on which device."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

import collectors
from collectors.base import Group, Holder
from collectors.bridge import open_collector
from collectors.tables import Tables
from exporter.attribution.bridged import MAX_AGE, MAX_TEXT, BridgeSource
from exporter.attribution.service import Attribution
from exporter.catalogue import Catalogue, load
from exporter.config import Config
from exporter.config import attribution as settings
from exporter.model import GroupSample, Snapshot, Workload
from exporter.selfmetrics import SelfMetrics
from tests.bridge_sources import PageServer
from tests.bridge_tables import TABLES
from tests.bridge_tables import settings as bridge_settings

A = "GPU-0f0e0d0c-1111-2222-3333-44445555aaaa"
B = "GPU-0f0e0d0c-1111-2222-3333-44445555bbbb"
TEMP, UTIL = "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_GPU_UTIL"
OWNED = 'container="train",namespace="team-a",pod="job-0"'
GROUPS: tuple[Group, ...] = ("fast", "normal", "slow")


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    return load(Path(collectors.__path__[0]) / "nvidia", "collectors.nvidia")


@pytest.fixture
def page() -> Iterator[PageServer]:
    with PageServer("").serving() as server:
        yield server


def gpu(number: int, uuid: str, more: str = "", series: str = TEMP) -> str:
    return f'{series}{{gpu="{number}",UUID="{uuid}"{"," if more else ""}{more}}} 50\n'


def tables(workload: Mapping[str, tuple[str, ...]]) -> Tables:
    """Those of the bridge's tests, with a vendor's labels of workloads."""
    assert TABLES.bridge is not None
    labels = msgspec.structs.replace(TABLES.bridge.labels, workload=workload)
    return msgspec.structs.replace(TABLES, bridge=msgspec.structs.replace(TABLES.bridge, labels=labels))


def snapshot(page: PageServer, catalogue: Catalogue, text: str, *, age: float = 0.0) -> Snapshot:
    """What the agent has of the page."""
    page.body = text
    own = catalogue.collector.bridge
    assert own is not None
    collector = open_collector(bridge_settings(page.url, tables(own.labels.workload)))
    devices = tuple(collector.discover())
    groups: dict[Group, GroupSample] = {}
    for group in GROUPS:
        sample = collector.sample(group)
        groups[group] = GroupSample(
            layout=(), values=(), taken_at=0, taken_monotonic=time.monotonic() - age, duration=0,
            holders=tuple(sample.holders),
        )  # fmt: skip
    collector.close()
    return Snapshot(collector="nvidia", vendor="nvidia", generation=1, devices=devices, groups=groups, bridged=True)


class Agent:
    def __init__(self, catalogue: Catalogue, **config: Any) -> None:
        kubernetes = settings.KubernetesAttribution(enabled=False)
        attribution = settings.Attribution(
            kubernetes=kubernetes, processes=settings.ProcessAttribution(enabled=False), **config
        )
        self._service = Attribution(Config(attribution=attribution), {"nvidia": catalogue}, SelfMetrics(), lambda: None)

    def owners(self, seen: Snapshot) -> Mapping[tuple[str, str], list[Workload]] | None:
        told = self._service.attributed([seen])
        return None if told is None else {key: list(held) for key, held in told.allocation.items()}


def test_a_pod_that_the_exporter_names_has_the_device(page: PageServer, catalogue: Catalogue) -> None:
    found = Agent(catalogue).owners(snapshot(page, catalogue, gpu(0, A, OWNED) + gpu(1, B)))
    assert found is not None
    assert set(found) == {(A, "")}
    (workload,) = found[A, ""]
    assert (workload.namespace, workload.pod, workload.container) == ("team-a", "job-0", "train")
    assert workload.tenant == "team-a"


def test_pods_that_share_a_device_are_all_named_and_once(page: PageServer, catalogue: Catalogue) -> None:
    text = "".join(
        gpu(0, A, f'namespace="n",pod="p{number}",vgpu="{number}"', series)
        for series in (TEMP, UTIL)
        for number in range(3)
    )
    found = Agent(catalogue).owners(snapshot(page, catalogue, text))
    assert found is not None
    assert [workload.pod for workload in found[A, ""]] == ["p0", "p1", "p2"]


def test_the_pod_of_a_part_has_the_part(page: PageServer, catalogue: Catalogue) -> None:
    part = 'GPU_I_PROFILE="1g.10gb",GPU_I_ID="{}"'
    text = gpu(0, A, f"{part.format(7)},{OWNED}") + gpu(0, A, part.format(8))
    found = Agent(catalogue).owners(snapshot(page, catalogue, text))
    assert found is not None
    assert {key: [each.pod for each in held] for key, held in found.items()} == {(A, "1g.10gb/7"): ["job-0"]}


def test_a_job_keeps_the_label_that_the_exporter_gave_it(page: PageServer, catalogue: Catalogue) -> None:
    found = Agent(catalogue).owners(snapshot(page, catalogue, gpu(0, A, 'hpc_job="4711"')))
    assert found is not None
    (workload,) = found[A, ""]
    assert (workload.job_name, workload.job_kind, workload.raw) == ("4711", "SlurmJob", {"hpc_job": "4711"})


def test_what_the_agent_knows_itself_is_not_overridden(page: PageServer, catalogue: Catalogue) -> None:
    owner = settings.StaticOwner(devices=(A,), namespace="lab", pod="bench", tenant="physics")
    seen = snapshot(page, catalogue, gpu(0, A, OWNED) + gpu(1, B, OWNED))
    found = Agent(catalogue, static=(owner,)).owners(seen)
    assert found is not None
    assert {uuid: [(each.pod, each.tenant) for each in held] for (uuid, _), held in found.items()} == {
        A: [("bench", "physics")],
        B: [("job-0", "team-a")],
    }


def test_an_exporter_that_names_nobody_makes_no_device_free(page: PageServer, catalogue: Catalogue) -> None:
    agent = Agent(catalogue)
    empty = gpu(0, A, 'container="",namespace="",pod=""') + gpu(1, B, 'namespace="monitoring"')
    assert agent.owners(snapshot(page, catalogue, empty)) is None
    assert agent.owners(snapshot(page, catalogue, gpu(0, A, OWNED))) not in (None, {})
    # Now it is known that it looks for owners.
    assert agent.owners(snapshot(page, catalogue, empty)) == {}


def test_a_page_that_is_not_followed_by_another_counts_for_a_time(page: PageServer, catalogue: Catalogue) -> None:
    agent = Agent(catalogue)
    assert agent.owners(snapshot(page, catalogue, gpu(0, A, OWNED)))
    assert agent.owners(snapshot(page, catalogue, gpu(0, A, OWNED), age=MAX_AGE + 1)) == {}


def test_hostile_names_are_cut_and_cleaned(page: PageServer, catalogue: Catalogue) -> None:
    seen = snapshot(page, catalogue, gpu(0, A, f'namespace="n",pod="a\\n{"b" * 500}"'))
    source = BridgeSource()
    source.take([seen])
    assert [claim.pod for claim in source.claims()] == [("a" + "b" * 500)[:MAX_TEXT]]


def test_a_new_device_waits_for_its_position(page: PageServer) -> None:
    page.body = gpu(1, B)
    collector = open_collector(bridge_settings(page.url, tables({"pod": ("pod",)}), share_seconds=0))
    assert [device.uuid for device in collector.discover()] == [B]
    page.body = gpu(0, A, 'pod="new"') + gpu(1, B, 'pod="old"')
    assert collector.sample("normal").holders == (Holder(0, (("pod", "old"),)),)
    collector.close()
