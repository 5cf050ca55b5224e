"""The status page in a real browser: what it shows of a node, and what it never does."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from exporter.config.attribution import StaticOwner
from exporter.config.model import SchemaChoice
from exporter.status.model import OtlpEndpoint
from tests.browser import NoBrowser, Page, browser, cannot
from tests.status_stage import ROWS, SHOWN, Scene, hanging, play, scene, world

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]

EVIL = '<img src=x onerror="document.title=\'owned\'"><script>document.title="owned"</script>'


async def health(page: Page) -> list[str]:
    """The word in each device's pill."""
    return await page.texts(f"{ROWS} .health .pill .word")


def test_devices_are_shown_with_their_numbers_where_they_are_from_and_who_holds_them(tmp_path: Path) -> None:
    owners = (StaticOwner(devices=("0",), namespace="research", pod="train-7", job_name="llm", tenant="lab"),)

    async def story(here: Scene, page: Page) -> None:
        rows = await page.texts(ROWS)
        assert len(rows) == 2
        assert await health(page) == ["healthy", "healthy"]
        for expected in ("acme 0", "A1", "40 %", "1.0 / 64.0 GiB", "50 °C", "250 W", "research/train-7", "llm", "lab"):
            assert expected in rows[0], expected
        assert "41 %" in rows[1]
        assert "free" in rows[1]
        cells = await page.script(f"[...document.querySelectorAll('{ROWS} .quantity')].map((c) => c.title)")
        assert "accel_utilization_ratio\nacme_load_percent (exact)" in cells
        # Acme tells no compute activity: it is neither 0 nor copied from something else.
        compute = await page.texts(f"{ROWS} td[data-label='Compute active'] .value")
        assert compute == ["–", "–"]
        summary = await page.text("#summary")
        assert "501 W" in summary
        assert "1 of 2" in summary
        assert await page.text("#collector-table tbody th .name") == "Acme accelerators"
        assert "static" in await page.text("#attribution-table")
        assert await page.script("document.getElementById('otlp').hidden")

    play(tmp_path, world(), story, owners=owners)


def test_the_page_follows_the_devices_without_being_loaded_again(tmp_path: Path) -> None:
    async def story(here: Scene, page: Page) -> None:
        await page.script("window.marked = true")
        row = "document.querySelector('#device-table tbody tr')"
        await page.script(f"{row}.marked = true")
        hotter = world()
        for line in hotter["readings"]["normal"]:
            if line[:2] == ["acme_temperature", 0]:
                line[2] = 77
        here.set(hotter)
        await page.until(f"{row}.innerText.includes('77 °C')")
        # The same page and the same row: focus and what is open stay.
        assert await page.script("window.marked")
        assert await page.script(f"{row}.marked")
        await page.until(f"{row}.querySelector('.spark .line').getAttribute('d').includes('L')")
        here.set({**world(), "rediscover": True, "devices": world(3)["devices"], "readings": world(3)["readings"]})
        await page.until(f"document.querySelectorAll('{ROWS}').length === 3")

    play(tmp_path, world(), story)


def test_a_lost_device_is_failed_with_the_reason_and_without_numbers(tmp_path: Path) -> None:
    async def story(here: Scene, page: Page) -> None:
        lost = world(lost=[1], faults=[[1, "acme:7", 1.0]])
        for rows in lost["readings"].values():
            rows[:] = [row for row in rows if row[1] != 1]
        here.set(lost)
        await page.until(
            f"[...document.querySelectorAll('{ROWS} .health .word')].some((e) => e.innerText === 'failed')"
        )
        assert await health(page) == ["healthy", "failed"]
        failed = (await page.texts(ROWS))[1]
        assert "does not answer" in failed
        assert "reset device" in failed
        assert "W" not in "".join(await page.texts(f"{ROWS}:last-of-type .quantity .value"))
        await page.until("document.getElementById('notices').innerText.includes('1 device of 2 not reporting')")
        await page.until("document.getElementById('announce').textContent.includes('1 failed')")
        # The collector itself is well.
        assert await page.text("#collector-table .pill .word") == "running"

    play(tmp_path, world(), story)


def test_a_stale_collector_shows_its_state_and_its_devices_no_numbers(tmp_path: Path) -> None:
    async def story(here: Scene, page: Page) -> None:
        here.set(hanging(world()))
        await page.until("document.querySelector('#collector-table .flag').innerText.startsWith('stale')")
        assert await page.text("#collector-table .pill .word") in ("timeout", "starting")
        await page.until(f"document.querySelector('{ROWS} .health .word').innerText === 'unknown'")
        row = (await page.texts(ROWS))[0]
        assert "no fresh sample" in row
        assert "stale" in row
        assert "W" not in "".join(await page.texts(f"{ROWS} .quantity .value"))
        assert "too old" in await page.text("#notices")
        assert "kernel" in await page.text("#collector-table .hint")
        age = await page.text("#collector-table .age .value")
        await page.until(f"document.querySelector('#collector-table .age .value').innerText !== {age!r}")

    play(tmp_path, world(), story, max_age_periods=10.0, deadline=1.0)


def test_an_empty_node_says_so_and_what_to_do(tmp_path: Path) -> None:
    async def story(here: Scene, page: Page) -> None:
        assert await page.texts(ROWS) == []
        assert await page.script("document.getElementById('device-table').hidden")
        assert "No accelerator was found" in await page.text("#no-devices")
        await page.script("document.getElementById('absent').open = true")
        absent = await page.text("#absent")
        assert "1 collector without devices" in absent
        assert "load the acme driver" in absent

    play(tmp_path, {"unavailable": ["no_driver", "load the acme driver"]}, story)


def test_hostile_names_are_text(tmp_path: Path) -> None:
    what = world(1)
    what["devices"][0] |= {"model": EVIL, "uuid": 'ACME"><b>0</b>', "index": "0<i>", "serial": "\u202eevil\u0000"}
    owners = (
        StaticOwner(devices=("0<i>",), namespace="<b>ns</b>", pod=EVIL, job_name="${alert(1)}", tenant="'\"><u>"),
    )

    async def story(here: Scene, page: Page) -> None:
        await page.script("document.querySelector('.toggle').click()")
        row = (await page.texts(ROWS))[0]
        for text in (EVIL, "<b>ns</b>", "${alert(1)}", "'\"><u>", "0<i>"):
            assert text in row, text
        await page.until("document.querySelector('tr.details').innerText.includes('<b>0</b>')")
        foreign = await page.script("document.querySelectorAll('main img, main script, main b, main i, main u').length")
        assert foreign == 0
        assert await page.script("document.title") == "accel-exporter on <s>node</s>"
        assert await page.text("h1 .node") == "<s>node</s>"
        with pytest.raises(RuntimeError, match="TrustedHTML"):
            await page.script("document.body.innerHTML = '<p>x</p>'")

    play(tmp_path, what, story, owners=owners, node="<s>node</s>", quiet=False)


def test_when_the_agent_is_gone_the_page_says_so_and_comes_back_with_it(tmp_path: Path) -> None:
    async def run() -> None:
        async with browser() as page:
            async with scene(tmp_path, world()) as here:
                address, port = here.url, int(here.url.rpartition(":")[2])
                await page.open(here.url + "/")
                await page.until(SHOWN)
                await page.until("document.getElementById('live').innerText === 'Live'")
            await page.until("!document.getElementById('gone').hidden")
            gone = await page.text("#gone")
            assert "does not answer" in gone
            assert "Next try in" in gone or "Asking" in gone
            assert await page.script("document.body.classList.contains('is-gone')")
            # What was known is still there, marked as old; it gets older.
            assert len(await page.texts(ROWS)) == 2
            await page.until("/this is [0-9.]+ s old/.test(document.getElementById('live').innerText)")
            # It asked every two seconds; the pauses between tries grow beyond that.
            await page.until("/Next try in ([5-9]|[0-9]{2}) s/.test(document.getElementById('gone').innerText)")
            async with scene(tmp_path, world(3), port=port) as again:
                assert again.url == address
                await page.script("document.querySelector('#gone button').click()")
                await page.until("document.getElementById('gone').hidden")
                await page.until(f"document.querySelectorAll('{ROWS}').length === 3")
                assert await page.text("#live") == "Live"

    try:
        asyncio.run(asyncio.wait_for(run(), 150))
    except NoBrowser as error:
        cannot(error)


def test_the_configuration_in_force_is_shown_without_secrets(tmp_path: Path) -> None:
    async def story(here: Scene, page: Page) -> None:
        await page.script("document.getElementById('config').open = true")
        await page.until("document.getElementById('config-table').innerText.includes('intervals.normal')")
        shown = await page.text("#config-table")
        assert "0.2" in shown
        assert "http.idle_timeout" not in shown
        await page.script("document.getElementById('config-all').click()")
        everything = await page.text("#config-table")
        assert "http.idle_timeout" in everything
        assert str(tmp_path) not in everything
        assert "(path)" in everything

    play(tmp_path, world(), story)


def test_receivers_of_otlp_are_shown_where_there_are_any(tmp_path: Path) -> None:
    endpoints = (
        OtlpEndpoint(name="http://collector:4318/v1/metrics", up=True, last_success=time.time(), queued=1),
        OtlpEndpoint(name="http://away:4318/v1/metrics", up=False, hint="connection refused <b>", dropped=12345),
        OtlpEndpoint(name="http://new:4318/v1/metrics"),
    )

    async def story(here: Scene, page: Page) -> None:
        first, second, third = await page.texts("#otlp-table tbody tr")
        assert "nothing sent yet" in third
        assert "receives" in first
        assert "ago" in first
        for expected in ("does not receive", "none", "12,345", "connection refused <b>"):
            assert expected in second, expected

    play(tmp_path, world(), story, otlp=lambda: endpoints)


def test_parts_stand_under_their_whole(tmp_path: Path) -> None:
    what = world(1)
    what["devices"] += [
        {"uuid": "ACME-0", "index": "0", "partition": f"half/{n}", "partition_profile": "half"} for n in (0, 1)
    ]
    what["readings"]["normal"] = [["acme_load_percent", position, 10 * position, []] for position in (1, 2)]
    what["readings"]["fast"] = []

    async def story(here: Scene, page: Page) -> None:
        names = await page.texts(f"{ROWS} th .name")
        assert names == ["acme 0", "half/0", "half/1"]
        values = await page.texts(f"{ROWS} td[data-label='Utilization'] .value")
        assert values == ["in its parts", "10 %", "20 %"]
        assert "1 and 2 parts" in await page.text("#summary")

    play(tmp_path, what, story)


def test_without_scripts_the_collectors_are_a_plain_table(tmp_path: Path) -> None:
    async def run() -> None:
        async with scene(tmp_path, world()) as here, browser() as page:
            await page.command("Emulation.setScriptExecutionDisabled", value=True)
            await page.command("Page.navigate", url=here.url + "/")
            tree: list[dict[str, Any]] = []
            async with asyncio.timeout(20):
                while not any("acme" in str(node.get("name", {}).get("value", "")) for node in tree):
                    tree = (await page.command("Accessibility.getFullAXTree"))["nodes"]
                    await asyncio.sleep(0.05)
            words = [str(node.get("name", {}).get("value", "")) for node in tree]
            assert {"acme", "running", "node-7"} <= set(words) or any("node-7" in word for word in words)
            assert any("runs no scripts" in word for word in words)

    try:
        asyncio.run(asyncio.wait_for(run(), 150))
    except NoBrowser as error:
        cannot(error)


def test_the_page_stays_right_where_the_common_schema_is_off(tmp_path: Path) -> None:
    async def story(here: Scene, page: Page) -> None:
        text = await page.text("#no-devices")
        assert "schema.common: false" in text

    play(tmp_path, {"devices": [], "readings": {}}, story, changes={"schema": SchemaChoice(common=False)})
