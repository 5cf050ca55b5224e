"""Which of its two ways the NVIDIA collector takes, and that it takes one at a time."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.fakes.dcgm import HostEngine, install, worlds
from tests.fakes.dcgm import Installation as Dcgm
from tests.fakes.nvml import Installation as Nvml
from tests.fakes.nvml import install as install_nvml
from tests.fakes.nvml import scenarios
from tests.integration.collector_child import Answer, RefusedError
from tests.integration.dcgm_rig import DEV, PROF, settings
from tests.integration.nvml_child import Child

pytestmark = pytest.mark.gcc

TEMPERATURE = DEV + "GPU_TEMP"
WANTED = {
    "normal": [TEMPERATURE, DEV + "FB_USED", DEV + "XID_ERRORS", "nvml_processes", "dcgm_nvlink_links",
               "nvml_nvlink_links", PROF + "SM_ACTIVE"],
}  # fmt: skip
# What only one of the two tells.
OF_NVML = {"nvml_processes", "nvml_nvlink_links"}
OF_DCGM = {"dcgm_nvlink_links"}


class Host(NamedTuple):
    """A node with a driver, and a DCGM that says other temperatures: so it shows who was asked."""

    nvml: Nvml
    dcgm: Dcgm
    engine: HostEngine
    environment: dict[str, str]

    def child(self, **more: Any) -> Child:
        told = settings(self.engine.address, WANTED, **{"source": "auto", **more})
        return Child(self.nvml, told, self.environment)


DCGM_TEMPERATURE = 70


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    nvml = install_nvml(tmp_path / "nvml", scenarios.h100(2))
    world = worlds.all_of(worlds.h100(2), [(1, 0), (1, 1)], 150, DCGM_TEMPERATURE)
    dcgm = install(tmp_path / "dcgm", world)
    with HostEngine(tmp_path / "engine") as engine:
        yield Host(nvml, dcgm, engine, dcgm.environment(nvml.environment()))


def names(answer: Answer) -> set[str]:
    return {one.series for one in answer.sample.readings}


def rows(answer: Answer) -> list[tuple[str, int, tuple[tuple[str, str], ...]]]:
    return [(one.series, one.device, one.labels) for one in answer.sample.readings]


def asked(host: Host) -> tuple[bool, bool]:
    """Whether NVML and whether DCGM was asked for anything so far."""
    return bool(host.nvml.calls()), bool(host.dcgm.calls())


def test_an_engine_that_can_be_reached_is_preferred(host: Host) -> None:
    with host.child() as child:
        child.discover()
        answer = child.sample()
    assert answer.value(TEMPERATURE) == DCGM_TEMPERATURE
    assert names(answer) == {*WANTED["normal"]} - OF_NVML
    assert asked(host) == (False, True)


def test_without_an_engine_nvml_is_read_and_dcgm_not_loaded(host: Host) -> None:
    host.engine.stop()
    with host.child() as child:
        child.discover()
        answer = child.sample()
    assert answer.value(TEMPERATURE) == 50
    assert names(answer) == {*WANTED["normal"]} - OF_DCGM
    assert asked(host) == (True, False)
    assert answer.sample.errors == []


@pytest.mark.parametrize(("source", "expected"), [("nvml", (True, False)), ("dcgm", (False, True))])
def test_the_way_that_is_asked_for_is_taken(host: Host, source: str, expected: tuple[bool, bool]) -> None:
    with host.child(source=source) as child:
        child.discover()
        child.sample()
    assert asked(host) == expected


def test_no_series_is_told_twice(host: Host) -> None:
    with host.child() as child:
        child.discover()
        by_dcgm = rows(child.sample())
        host.engine.stop()
        child.sample()
        child.discover()
        by_nvml = rows(child.sample())
    for found in (by_dcgm, by_nvml):
        assert len(found) == len(set(found))


def test_an_engine_that_is_lost_is_replaced_by_nvml_at_the_next_discovery(host: Host) -> None:
    with host.child() as child:
        before = child.discover()
        assert child.sample().value(TEMPERATURE) == DCGM_TEMPERATURE
        host.engine.stop()
        lost = child.sample().sample
        assert (lost.readings, lost.rediscover) == ([], True)
        after = child.discover()
        assert child.sample().value(TEMPERATURE) == 50
    # The same devices by the same identity: the core's counters go on.
    assert [device.uuid for device in before] == [device.uuid for device in after]


def test_an_engine_that_comes_back_is_found_by_the_discovery(host: Host) -> None:
    with host.child() as child:
        child.discover()
        host.engine.stop()
        child.sample()
        host.engine.start()
        child.discover()
        assert child.sample().value(TEMPERATURE) == DCGM_TEMPERATURE
    assert asked(host) == (False, True)


def test_a_library_that_is_too_new_is_told_once_and_nvml_is_read(host: Host) -> None:
    host.dcgm.apply(worlds.h100(2, engine="4.4.1", library="4.6.0"))
    with host.child() as child:
        child.discover()
        first = child.sample()
        child.discover()
        second = child.sample()
    assert first.value(TEMPERATURE) == 50
    [error] = first.sample.errors
    assert error.kind == "library"
    assert "4.6.0" in error.detail
    assert "NVML is read instead" in error.detail
    assert second.sample.errors == []


def test_an_engine_that_hangs_costs_seconds_and_not_the_readings(host: Host) -> None:
    host.dcgm.apply(worlds.h100(2).hangs("dcgmHostengineVersionInfo"))
    with host.child() as child:
        began = time.monotonic()
        child.discover()
        assert time.monotonic() - began < 15
        assert child.sample().value(TEMPERATURE) == 50


def test_when_neither_works_both_reasons_are_told(host: Host) -> None:
    host.nvml.apply(scenarios.fails(scenarios.h100(2), "system", "nvmlInitWithFlags", 9))
    host.dcgm.apply(worlds.h100(2, engine="4.4.1", library="4.6.0"))
    with host.child() as child, pytest.raises(RefusedError) as caught:
        child.discover()
    assert caught.value.refused.state == "no_driver"
    assert "modprobe nvidia" in caught.value.refused.hint
    assert "4.6.0" in caught.value.refused.hint


def test_an_address_that_is_none_is_said_even_if_nvml_would_work(host: Host) -> None:
    with host.child(options={"dcgm_address": "http://x"}) as child, pytest.raises(RefusedError) as caught:
        child.discover()
    assert "dcgm_address" in caught.value.refused.hint


PROGRAM = """
import sys
sys.modules["pynvml"] = None
from collectors.base import Settings
from collectors.nvidia import open_collector
collector = open_collector(Settings(wanted={{"normal": {{"DCGM_FI_DEV_GPU_TEMP"}}}}, source={source!r},
                                    options={{"dcgm_address": {address!r}}}))
print(len(collector.discover()), collector.source, "asyncio" in sys.modules)
collector.close()
"""


@pytest.mark.parametrize("source", ["auto", "dcgm"])
def test_dcgm_needs_no_binding_of_nvml(host: Host, source: str) -> None:
    program = PROGRAM.format(source=source, address=host.engine.address)
    output = subprocess.run(
        [sys.executable, "-c", program], env=host.environment, capture_output=True, text=True, check=True
    ).stdout
    assert output.split() == ["2", "dcgm", "False"]
