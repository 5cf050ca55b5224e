"""The status page for everyone who uses it: structure, contrast, narrow screens, keyboard."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from exporter.config.attribution import StaticOwner
from tests.browser import Page
from tests.status_stage import ROWS, Scene, play, world

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]


# Who can use it

AUDIT = """(() => {
  const wrong = [];
  const visible = (e) => e.getClientRects().length > 0;
  for (const name of ["header", "nav", "main", "footer", "h1"])
    if (document.querySelectorAll(`body ${name}`).length !== 1) wrong.push(`landmark ${name}`);
  if (!document.documentElement.lang) wrong.push("no language");
  const ids = [...document.querySelectorAll("[id]")].map((e) => e.id);
  if (new Set(ids).size !== ids.length) wrong.push("an id stands there twice");
  for (const e of document.querySelectorAll("[aria-labelledby], [aria-describedby], [aria-controls]"))
    for (const name of ["aria-labelledby", "aria-describedby", "aria-controls"])
      for (const id of (e.getAttribute(name) ?? "").split(" ").filter(Boolean))
        if (!document.getElementById(id)) wrong.push(`${name} ${id} leads nowhere`);
  let level = 0;
  for (const e of document.querySelectorAll("h1, h2, h3, h4")) {
    const next = Number(e.tagName[1]);
    if (next > level + 1) wrong.push(`heading ${e.innerText} skips a level`);
    level = next;
  }
  for (const table of document.querySelectorAll("#app table")) {
    if (!table.getAttribute("aria-labelledby")) wrong.push("a table has no name");
    for (const e of table.querySelectorAll("thead th")) if (e.scope !== "col") wrong.push(`head ${e.innerText}`);
    for (const row of table.querySelectorAll("tbody tr:not(.details)")) {
      if (row.children[0].tagName !== "TH" || row.children[0].scope !== "row") wrong.push("a row has no head");
      if (row.children.length !== table.tHead.rows[0].children.length) wrong.push("a row has another width");
    }
  }
  for (const e of document.querySelectorAll("button, a, summary"))
    if (visible(e) && !(e.innerText.trim() || e.getAttribute("aria-label"))) wrong.push("a control has no name");
  for (const e of document.querySelectorAll("input"))
    if (!e.labels?.length) wrong.push("a field has no label");
  for (const e of document.querySelectorAll("svg")) if (e.getAttribute("aria-hidden") !== "true") wrong.push("svg");
  for (const e of document.querySelectorAll(".pill"))
    if (visible(e) && !e.querySelector(".word").innerText) wrong.push("only a colour");
  if (document.getElementById("announce").getAttribute("aria-live") !== "polite") wrong.push("no live region");
  return wrong;
})()"""

CONTRAST = """(() => {
  const probe = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgb = (colour) => {
    probe.clearRect(0, 0, 1, 1);
    probe.fillStyle = colour;
    probe.fillRect(0, 0, 1, 1);
    return [...probe.getImageData(0, 0, 1, 1).data];
  };
  const light = (c) => {
    const [r, g, b] = c.slice(0, 3).map((v) => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (e) => {
    for (; e; e = e.parentElement) {
      const c = rgb(getComputedStyle(e).backgroundColor);
      if (c[3] === 255) return c;
    }
    return [255, 255, 255, 255];
  };
  const wrong = [];
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const e = texts.currentNode.parentElement;
    if (!texts.currentNode.data.trim() || !e.getClientRects().length || e.closest(".unseen, .skip, noscript")) continue;
    const [a, b] = [light(rgb(getComputedStyle(e).color)), light(behind(e))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) wrong.push(`${e.className || e.tagName} ${texts.currentNode.data}: ${ratio.toFixed(2)}`);
  }
  return wrong;
})()"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_headings_tables_names_and_contrast_are_right_for_everyone(tmp_path: Path, scheme: str) -> None:
    owners = (StaticOwner(devices=("0",), namespace="research", pod="train-7"),)

    async def story(here: Scene, page: Page) -> None:
        await page.prefer(prefers_color_scheme=scheme)
        here.set(world(lost=[1]))
        await page.until(
            f"[...document.querySelectorAll('{ROWS} .health .word')].some((e) => e.innerText === 'failed')"
        )
        await page.script("document.querySelector('.toggle').click()")
        await page.script("document.getElementById('config').open = true")
        await page.until("document.getElementById('config-table').innerText.includes('intervals.normal')")
        assert await page.script(AUDIT) == []
        assert await page.script(CONTRAST) == []
        dark = await page.script("getComputedStyle(document.body).backgroundColor")
        assert (dark == "rgb(14, 18, 22)") is (scheme == "dark")

    play(tmp_path, world(), story, owners=owners)


@pytest.mark.parametrize("width", [320, 400, 800, 1216, 1217, 1400])
def test_nothing_is_cut_off_on_a_screen_of_any_width(tmp_path: Path, width: int) -> None:
    owners = (StaticOwner(devices=("0",), namespace="a-rather-long-namespace", pod="x" * 200, job_name="y" * 100),)

    async def story(here: Scene, page: Page) -> None:
        await page.size(width, 800)
        await page.until("document.querySelectorAll('.health .reasons li').length > 3")
        await page.script("document.querySelector('.toggle').click()")
        assert await page.script("document.documentElement.scrollWidth") <= width
        assert await page.script(AUDIT) == []
        labels = await page.script(
            "getComputedStyle(document.querySelector('#device-table td.quantity'), '::before').content"
        )
        assert (labels == '"Utilization"') is (width <= 1216)

    what = world(faults=[[0, "acme:7", 1.0], [0, "acme:3", time.time()]])
    what["devices"][0]["model"] = "Acme Accelerator A1 96GB HBM3 (unreleased)"
    what["readings"]["normal"].append(["acme_state_bits", 0, 7, []])
    what["readings"]["slow"].append(["acme_repair_failed", 0, 1, []])
    play(tmp_path, what, story, owners=owners)


def test_the_keyboard_reaches_everything_and_focus_is_seen(tmp_path: Path) -> None:
    focused = "document.activeElement"

    async def story(here: Scene, page: Page) -> None:
        await page.press("Tab")
        assert await page.script(f"{focused}.innerText") == "Skip to the devices"
        assert await page.script(f"{focused}.getBoundingClientRect().left") >= 0
        outline = await page.script(
            f"getComputedStyle({focused}).outlineStyle + getComputedStyle({focused}).outlineWidth"
        )
        assert outline == "solid3px"
        await page.press("Enter")
        assert await page.script(f"{focused}.id") == "devices"
        await page.press("Tab")
        assert await page.script(f"{focused}.getAttribute('aria-label')") == "Where Utilization comes from"
        tip = "document.getElementById('tip-accel_utilization_ratio')"
        assert await page.script(f"getComputedStyle({tip}).display") == "block"
        assert await page.script(f"{tip}.innerText") == "accel_utilization_ratio\nacme: acme_load_percent (exact)"
        await page.press("Escape")
        assert await page.script(f"getComputedStyle({tip}).display") == "none"
        for _ in range(5):
            await page.press("Tab")
        assert await page.script(f"{focused}.getAttribute('aria-label')") == "Details of acme 0"
        await page.press("Enter")
        assert await page.script(f"{focused}.getAttribute('aria-expanded')") == "true"
        details = await page.text("tr.details")
        assert "ACME-0" in details
        assert "acme_load_percent (exact)" in details
        # Answers come meanwhile; whoever is there stays there.
        version = len(page.requests)
        while len(page.requests) < version + 3:
            await asyncio.sleep(0.05)
        assert await page.script(f"{focused}.getAttribute('aria-label')") == "Details of acme 0"

    play(tmp_path, world(), story)
