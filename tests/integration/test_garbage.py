"""What a collector gives that nobody could expose costs that reading, and neither the vendor nor a scrape."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from exporter.worker import MAX_DEVICES, MAX_TEXT
from tests.integration.test_supervisor import DEVICES, GOOD, World, live, running, until

POWER = ["acme_power_mw", 0, 5000, []]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def given(world: World) -> dict[str, float]:
    """Series → value of the newest sample."""
    group = world.snapshot.groups["normal"]
    return {key.series: value for key, value in zip(group.layout, group.values, strict=True)}


@pytest.mark.parametrize(
    "row",
    [
        ["acme_link_bytes", 0, 1, [["bad name", "0"]]],
        ["acme_link_bytes", 0, 1, [["", "0"]]],
        ["acme_link_bytes", 0, 1, [["__name__", "0"]]],
        ["acme_link_bytes", 0, 1, [["link", "0"], ["link", "1"]]],
        ["acme_link_bytes", 0, 1, [["UUID", "another"]]],
        ["acme_link_bytes", 0, 1, [["link", "x" * (MAX_TEXT + 1)]]],
    ],
    ids=["blank", "empty", "reserved", "twice", "of the device", "endless"],
)
def test_a_series_that_would_break_a_scrape_is_left_out_and_counted(world: World, row: list[Any]) -> None:
    async def story(world: World) -> None:
        world.set({**GOOD, "readings": {"normal": [row, POWER]}})
        await running(world)
        assert given(world) == {"acme_power_mw": 5000}
        errors = world.metric("collector_errors_total", kind="library")
        assert errors >= 1
        # The same series again: sent without their keys.
        before = world.snapshot
        await until(lambda: world.snapshot is not before)
        assert world.snapshot.groups["normal"].layout is before.groups["normal"].layout
        assert given(world) == {"acme_power_mw": 5000}
        assert world.metric("collector_errors_total", kind="library") > errors

    live(world, story)


def test_an_integer_that_no_float_can_hold_is_left_out(world: World) -> None:
    async def story(world: World) -> None:
        rows = [["acme_temperature", 0, 10**400, []], ["acme_load_percent", 0, -(10**400), []], POWER]
        world.set({**GOOD, "readings": {"normal": rows}})
        await running(world)
        assert given(world) == {"acme_power_mw": 5000}

    live(world, story)


def test_a_name_that_is_no_utf8_is_shown_as_far_as_it_can_be(world: World) -> None:
    link = json.loads('"a\\udcffb"')
    devices = [{**DEVICES[0], "model": link}, DEVICES[1]]

    async def story(world: World) -> None:
        rows = [["acme_link_bytes", 0, 7, [["link", link]]], POWER]
        world.set({**GOOD, "devices": devices, "readings": {"normal": rows}})
        await running(world)
        assert given(world) == {"acme_link_bytes": 7, "acme_power_mw": 5000}
        [labels] = [key.labels for key in world.snapshot.groups["normal"].layout if key.labels]
        assert labels == (("link", "a\ufffdb"),)
        assert world.snapshot.devices[0].model == "a\ufffdb"

    live(world, story)


@pytest.mark.parametrize("device", [{"model": "x" * (MAX_TEXT + 1)}, {"uuid": "x" * 1_000_000}])
def test_a_device_with_endless_facts_is_refused(world: World, device: dict[str, str]) -> None:
    async def story(world: World) -> None:
        world.set({**GOOD, "devices": [{**DEVICES[0], **device}]})
        await until(lambda: world.runner.state == "failed")
        assert "characters" in world.runner.hint
        assert len(world.runner.hint) < 1000

    live(world, story)


def test_devices_without_end_are_refused(world: World) -> None:
    async def story(world: World) -> None:
        many = [{"uuid": f"ACME-{number}", "index": str(number)} for number in range(MAX_DEVICES + 1)]
        world.set({**GOOD, "devices": many})
        await until(lambda: world.runner.state == "failed")
        assert f"{MAX_DEVICES + 1} devices" in world.runner.hint
        world.set({**GOOD, "devices": many[:-1]})
        await running(world)
        assert len(world.snapshot.devices) == MAX_DEVICES

    live(world, story)
