"""One frame of ``accel-exporter top``: lines of text, made from what the JSON API answers."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence
from typing import Final, Literal

import msgspec

from exporter.model import Number
from exporter.status.devices import lines
from exporter.status.model import Collector, Count, Device, Devices, Status

Tone = Literal["plain", "head", "good", "warn", "bad", "soft"]
BAR: Final = 8
WIDEST: Final = 40
"""Columns of a cell, but for the last one in its line."""
ABSENT: Final = ("no_device", "no_library", "no_driver")
_TONES: Final[dict[str, Tone]] = {"healthy": "good", "degraded": "warn", "failed": "bad", "unknown": "soft"}


class Line(msgspec.Struct, frozen=True):
    """A line, and how it is to be shown where there are colours. Nothing is said by its colour alone."""

    text: str
    tone: Tone = "plain"


class View(msgspec.Struct, frozen=True, kw_only=True):
    """What a frame shows."""

    devices: Devices
    status: Status
    trouble: str = ""
    """Why there is nothing newer than this."""
    age: float = 0.0
    """Seconds since the answers came."""


def frame(view: View, width: int, height: int | None = None) -> list[Line]:
    """The lines, none wider than ``width`` columns and no more than ``height``; None: all that there are."""
    top = _head(view)
    table = _table(list(lines(view.devices.devices)), view.devices.now + view.age)
    below = [*_reasons(view.devices.devices), *_collectors(view.status.collectors)]
    if not view.devices.devices:
        table = [Line(_nothing(view.status), "soft")]
    found = [*top, Line(""), *table, Line(""), *below]
    if height is not None and len(found) > height:
        # What is wrong stands at the top and in the devices' own lines: the end can go.
        left = len(found) - max(0, height - 1)
        found = [*found[: max(0, height - 1)], Line(f"… {left} more lines: the window is too low", "soft")]
    return [Line(fit(line.text, width), line.tone) for line in found]


def _head(view: View) -> list[Line]:
    status = view.status
    found = [Line(f"accel-exporter {clean(status.agent_version)} on {clean(status.node)}", "head")]
    if status.simulated:
        found.append(Line("SIMULATED: no device of this list exists.", "warn"))
    if view.trouble:
        found.append(Line(f"NO ANSWER for {duration(view.age)}: {clean(view.trouble)}", "bad"))
    if not status.healthy:
        found.append(Line(f"The agent itself does not work: {clean(status.trouble)}", "bad"))
    found += [Line(text, "warn") for count in view.devices.counts if (text := missing(count))]
    return found


def missing(count: Count) -> str:
    """What is to be said of a vendor's devices that give nothing; empty where all do."""
    wanted = max(count.expected or 0, count.present or 0)
    lacking = wanted - (count.reporting or 0)
    return f"{clean(count.vendor)}: {lacking} of {wanted} devices not reporting" if lacking > 0 else ""


def _nothing(status: Status) -> str:
    if not status.ready:
        return "The first samples are being taken."
    if not status.common_schema:
        return "The common schema is switched off (schema.common: false), so no device is shown."
    return "No device was found; 'accel-exporter doctor' tells why."


HEAD: Final = ("DEVICE", "HEALTH", "UTIL", "", "ACTIVE", "", "MEMORY", "TEMP", "POWER", "AGE", "WORKLOAD")


def _table(devices: Sequence[Device], now: float) -> list[Line]:
    # One name without end must not push every device's numbers out of the window.
    rows = [(*(fit(cell, WIDEST) for cell in cells), last) for *cells, last in (_cells(each, now) for each in devices)]
    widths = [max(columns(row[index]) for row in (HEAD, *rows)) for index in range(len(HEAD))]
    found = [Line(_joined(HEAD, widths), "soft")]
    for device, row in zip(devices, rows, strict=True):
        found.append(Line(_joined(row, widths), _TONES.get(device.health or "", "plain")))
    return found


def _joined(row: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell + " " * (width - columns(cell)) for cell, width in zip(row, widths, strict=True)).rstrip()


def _cells(device: Device, now: float) -> tuple[str, ...]:
    name = f"  └ {device.partition}" if device.partition else f"{device.vendor} {device.device} {device.model}"
    age = "-" if device.sampled_at is None else duration(now - device.sampled_at)
    return (
        clean(name),
        device.health or "",
        _shown(device.utilization_ratio, lambda value: f"{value:4.0%}"),
        _bar(device.utilization_ratio),
        _shown(device.compute_active_ratio, lambda value: f"{value:4.0%}"),
        _bar(device.compute_active_ratio),
        _memory(device),
        _shown(device.temperature_celsius, lambda value: f"{value:.0f} °C"),
        _shown(device.power_watts, lambda value: f"{value:.0f} W"),
        f"{age} stale" if device.stale else age,
        clean(_workload(device)),
    )


def _shown(value: Number | None, write: Callable[[float], str]) -> str:
    if value is None:
        return "-"
    try:
        return write(value)
    except OverflowError:
        # Another agent's JSON can hold a whole number that is larger than any float.
        return "?"


def _bar(ratio: float | None) -> str:
    if ratio is None:
        return ""
    full = round(min(1.0, max(0.0, ratio)) * BAR)
    return "█" * full + "·" * (BAR - full)


def _memory(device: Device) -> str:
    if device.memory_used_bytes is None:
        return "-"
    used = _shown(device.memory_used_bytes, lambda value: f"{value / 2**30:.1f}")
    if device.memory_total_bytes is None:
        return f"{used} GiB"
    total = _shown(device.memory_total_bytes, lambda value: f"{value / 2**30:.0f}")
    return f"{used}/{total} GiB"


def _workload(device: Device) -> str:
    if not device.workloads:
        return "free" if device.allocated is False else "-"
    first = device.workloads[0]
    name = f"{first.namespace}/{first.pod}" if first.pod else first.job_name or first.tenant
    return name + (f" +{len(device.workloads) - 1}" if len(device.workloads) > 1 else "")


def _reasons(devices: Sequence[Device]) -> list[Line]:
    found = []
    for device in devices:
        if device.health == "healthy" and not device.throttling:
            continue
        needs = [f"needs {action}" for action in device.recovery_actions]
        slowed = [f"slowed down by {reason}" for reason in device.throttling]
        # Codes of faults stay as they are: that is how the vendor's page lists them.
        words = ", ".join((*device.reasons, *(word.replace("_", " ") for word in (*needs, *slowed))))
        if words:
            text = clean(f"{device.vendor} {device.device}: {words}")
            found.append(Line(text, _TONES.get(device.health or "", "plain")))
    return found


def _collectors(collectors: Sequence[Collector]) -> list[Line]:
    found = []
    for each in collectors:
        if each.state == "running" and not each.stale:
            continue
        if each.state in ABSENT and not each.devices:
            continue
        stale = f", stale: {', '.join(each.stale)}" if each.stale else ""
        hint = f": {each.hint}" if each.hint else ""
        found.append(Line(clean(f"collector {each.name} is {each.state}{stale}{hint}"), "bad"))
    return found


def duration(seconds: float) -> str:
    seconds = max(0.0, seconds)
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"


def clean(text: str) -> str:
    """Without anything that a terminal would obey: a pod may be called whatever somebody likes."""
    return "".join(character if character.isprintable() else "?" for character in text)


def columns(text: str) -> int:
    """How many columns a text takes in a terminal."""
    if text.isascii():
        return len(text)
    return sum(_width(character) for character in text)


def _width(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def fit(text: str, width: int) -> str:
    """The text in so many columns, with an ellipsis where it was cut."""
    if columns(text) <= width:
        return text
    found, taken = "", 0
    for character in text:
        taken += _width(character)
        if taken > width - 1:
            break
        found += character
    return found + "…" if width > 0 else ""
