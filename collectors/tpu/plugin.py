"""GKE's tpu-device-plugin: its page of metrics, put in order before the bridge reads it.

The plugin numbers chips in two ways under the one label accelerator_id: by libtpu's slice-wide number what comes from
the workload's runtime, by the chip's place on the host what comes from the hardware's counters. It also adds zeros for
places that it does not find among the slice-wide numbers. A join on the label is so wrong on every host but a slice's
first. Here each number becomes the chip's place, and the zeros that stand for nothing are left out. Besides, the plugin
empties its gauges once a minute for a moment: a chip that a page leaves out is not gone.
"""

from __future__ import annotations

import functools
import re
import time
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from collectors.base import NODE, Collector, Device, Group, Holder, ReadError, Reading, Settings
from collectors.bridge.collector import BridgeCollector, open_bridge
from collectors.bridge.scrape import Reader, Scrape
from collectors.tpu.numbering import ranks

BOUND: Final = frozenset(("duty_cycle", "memory_total", "memory_used"))
"""A container's, numbered slice-wide."""
FREE: Final = frozenset(f"{name}_node" for name in BOUND)
"""The node's: those of the containers, and zeros."""
LOCAL: Final = frozenset(
    (
        "tensorcore_utilization", "tensorcore_utilization_node",
        "memory_bandwidth_utilization", "memory_bandwidth_utilization_node",
    )
)  # fmt: skip
"""Numbered by place on the host."""

_NAME: Final = re.compile(r"[ \t]*([a-z_]+)[ \t]*\{")
_ID: Final = re.compile(r'(?<=[{, ]accelerator_id=")([^"\\]*-)([0-9]{1,9})(?=")')
_GONE: Final = 180.0
"""Seconds after which a chip that no page names is gone."""
_MAX_PAGE: Final = 4 * 1024 * 1024
_UNPLACED: Final = (
    "the plugin's numbers of devices {} do not fit {} chips: the series that bear them are left out for now"
)


class PluginReader(Reader):
    """The bridge's reader behind a page that has been put in order."""

    def __init__(self, *arguments: Any, chips: int = 0, **more: Any) -> None:
        """``chips``: how many the host has; 0: the page alone tells."""
        super().__init__(*arguments, **more)
        self._chips = chips
        self._seen: dict[str, tuple[Device, float]] = {}

    def read(self, chunks: Iterable[bytes], *, openmetrics: bool, now: float) -> Scrape:
        """As the bridge's, but the chip's place is its index. Raises Refused, and whatever ``chunks`` raises."""
        lines, errors = in_order(b"".join(chunks).decode("utf-8", "replace").split("\n"), self._chips)
        scrape = super().read(["\n".join(lines).encode()], openmetrics=openmetrics, now=now)
        return self._kept(scrape, errors)

    def _kept(self, scrape: Scrape, errors: tuple[ReadError, ...]) -> Scrape:
        """The same with those devices that were there lately and are left out now."""
        now = time.monotonic()
        for device in scrape.devices:
            index = device.uuid.rpartition("-")[2]
            self._seen[index] = (msgspec.structs.replace(device, index=index), now)
        self._seen = {index: seen for index, seen in self._seen.items() if now - seen[1] <= _GONE}
        devices = tuple(device for device, _ in sorted(self._seen.values(), key=lambda seen: _place(seen[0])))
        position = {device.uuid: place for place, device in enumerate(devices)}
        moved = [position[device.uuid] for device in scrape.devices]
        readings: dict[Group, tuple[Reading, ...]] = {
            group: tuple(
                found if found.device == NODE else Reading(found.series, moved[found.device], found.value, found.labels)
                for found in of_group
            )
            for group, of_group in scrape.readings.items()
        }
        holders = tuple(Holder(moved[holder.device], holder.facts) for holder in scrape.holders)
        return Scrape(devices, readings, scrape.errors + errors, scrape.known, scrape.unknown, holders)


def _place(device: Device) -> tuple[int, str]:
    return (int(device.index) if device.index.isdecimal() else -1, device.uuid)


def in_order(lines: Iterable[str], chips: int) -> tuple[list[str], tuple[ReadError, ...]]:
    """The page with each chip named by its place on the host, and what could not be placed."""
    page = list(lines)
    numbers: dict[frozenset[str], set[int]] = {BOUND: set(), FREE: set(), LOCAL: set()}
    for kind, _, number in filter(None, map(_numbered, page)):
        numbers[kind].add(number)
    places = ranks(numbers[BOUND], numbers[FREE], numbers[LOCAL], chips)
    return list(_placed(page, places)), _errors(places, numbers[BOUND] | numbers[FREE], chips)


def _errors(places: object, numbers: set[int], chips: int) -> tuple[ReadError, ...]:
    if places is not None:
        return ()
    listed = ", ".join(map(str, sorted(numbers)[:16]))
    return (ReadError(NODE, "parse", _UNPLACED.format(listed, chips or "the page's")),)


def _numbered(line: str) -> tuple[frozenset[str], re.Match[str], int] | None:
    """What kind of number a line bears, and where."""
    name = _NAME.match(line)
    if name is None:
        return None
    kind = next((kind for kind in (BOUND, FREE, LOCAL) if name[1] in kind), None)
    found = _ID.search(line)
    return (kind, found, int(found[2])) if kind is not None and found is not None else None


def _placed(page: Iterable[str], places: Any) -> Iterator[str]:
    for line in page:
        found = _numbered(line)
        if found is None or found[0] is LOCAL:
            yield line
        elif places is not None and found[2] in places:
            start, end = found[1].span(2)
            yield f"{line[:start]}{places[found[2]]}{line[end:]}"


def own_tables() -> dict[str, Any]:
    """This folder's tables, as the bridge's options have them."""
    folder = Path(__file__).parent
    collector = tomllib.loads((folder / "collector.toml").read_text(encoding="utf-8"))
    series = tomllib.loads((folder / "series.toml").read_text(encoding="utf-8"))
    return {
        **{name: collector[name] for name in ("vendor", "title", "kind", "bridge")},
        "identity": series["identity"],
        "series": series["series"],
    }


def open_plugin(settings: Settings, url: str, timeout: float, chips: int) -> BridgeCollector:
    """The plugin as a source of the native collector. Raises Unavailable for an address that is none."""
    options = {**own_tables(), "url": url, "timeout": timeout, "max_bytes": _MAX_PAGE}
    return open_bridge(msgspec.structs.replace(settings, options=options), functools.partial(PluginReader, chips=chips))


def open_collector(settings: Settings) -> Collector:
    """The plugin as the bridge reads it, with the bridge's options. Raises Unavailable for wrong ones."""
    return open_bridge(settings, PluginReader)
