"""What only sysfs gives, whichever way the rest is read: fans, the slot, errors by block, KFD's processes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from collectors.amd import files, kfd, texts
from collectors.amd.cards import Card, Part
from collectors.amd.kfd import Process
from collectors.amd.reader import Probe, Reader, hwmon, number, path
from collectors.amd.sysfs_probes import memory_rows
from collectors.amd.texts import Errors, Pages
from collectors.base import Reading

BLOCKS: Final = (
    "umc", "sdma", "gfx", "mmhub", "athub", "pcie_bif", "hdp", "xgmi_wafl", "df", "smn", "sem", "mp0", "mp1", "fuse",
    "mca", "vcn", "jpeg", "ih", "mpio",
)  # fmt: skip
"""What counts errors, as the driver names it. AMD's exporter calls pcie_bif bif."""
_KINDS: Final = ("correct", "uncorrect", "deferred")
_MOST_PAGES: Final = 4 << 20
"""Bytes of the list of bad pages."""
_MOST_PROCESSES: Final = 64
"""Processes of one GPU that are named: those with the most compute units, or the most memory."""
_MIN_THROUGHPUT: Final = 3


def _fans(_: Reader, card: Card) -> Iterator[Reading]:
    labels = (("fan", "0"),)
    if (rpm := hwmon(card, "fan1_input")) is not None:
        yield Reading("amdsmi_fan_speed_rpm", card.position, rpm, labels)
    if (duty := hwmon(card, "pwm1")) is not None:
        yield Reading("amdsmi_fan_speed_ratio", card.position, duty / 255, labels)


def _slot(_: Reader, card: Card) -> Iterator[Reading]:
    speed = texts.speed(files.text(path(card, "max_link_speed"))) if card.has("max_link_speed") else None
    yield from slot_rows(card, speed, number(card, "max_link_width"))


def slot_rows(card: Card, speed: float | None, width: int | None) -> Iterator[Reading]:
    """What the link could do."""
    if speed:
        yield Reading("pcie_max_speed", card.position, int(speed))
        if (generation := texts.generation(speed)) is not None:
            yield Reading("amdsmi_pcie_link_max_generation", card.position, generation)
    if width:
        yield Reading("amdsmi_pcie_link_max_width", card.position, width)


def _errors(reader: Reader, card: Card) -> Iterator[Reading]:
    found: dict[str, Errors] = {}
    for block in BLOCKS:
        if block in card.ras:
            found[block] = texts.errors(files.text(path(card, f"ras/{block}_err_count")))
    total = _sum(found)
    yield from error_rows(card, found, total)
    yield from reader.health.rows(card, found, total)


def _sum(found: Mapping[str, Errors]) -> Errors:
    """Of all blocks. A block that does not answer leaves no total: it would seem to have fallen."""

    def total(pick: Callable[[Errors], int | None], *, all_count: bool) -> int | None:
        counts = [pick(errors) for errors in found.values()]
        known = [count for count in counts if count is not None]
        return sum(known) if known and (len(known) == len(counts) or not all_count) else None

    return Errors(
        total(lambda errors: errors.correctable, all_count=True),
        total(lambda errors: errors.uncorrectable, all_count=True),
        total(lambda errors: errors.deferred, all_count=False),
    )


def error_rows(card: Card, found: Mapping[str, Errors], total: Errors) -> Iterator[Reading]:
    """By block, and of all of them."""
    for block, errors in (*found.items(), ("total", total)):
        name = "bif" if block == "pcie_bif" else block
        for kind, count in zip(_KINDS, (errors.correctable, errors.uncorrectable, errors.deferred), strict=True):
            if count is not None:
                yield Reading(f"gpu_ecc_{kind}_{name}", card.position, count)


def _pages(_: Reader, card: Card) -> Iterator[Reading]:
    if card.has("ras/gpu_vram_bad_pages"):
        yield from page_rows(card, texts.pages(files.text(path(card, "ras/gpu_vram_bad_pages"), _MOST_PAGES)))


def page_rows(card: Card, pages: Pages) -> Iterator[Reading]:
    for name in ("retired", "pending", "unreservable"):
        yield Reading(f"amdsmi_bad_pages_{name}", card.position, getattr(pages, name))


def _parts_memory(_: Reader, card: Card) -> Iterator[Reading]:
    if not card.memory_in_parts:
        return
    for part in card.parts:
        if part.node is not None:
            yield from memory_rows(part.position, "vram", part.node.memory, kfd.memory_used(part.node))


def _compute_units(_: Reader, card: Card) -> Iterator[Reading]:
    yield from unit_rows(card, {part.position: part.node.compute_units for part in card.parts if part.node})


def unit_rows(card: Card, units: Mapping[int, int | None]) -> Iterator[Reading]:
    """Of each part, and of the whole card if all parts are known."""
    known = {position: count for position, count in units.items() if count}
    for position, count in known.items():
        yield Reading("amdsmi_compute_units", position, count)
    if known and len(known) == len(card.parts):
        yield Reading("amdsmi_compute_units_capacity", card.position, sum(known.values()))


def _processes(reader: Reader, card: Card) -> Iterator[Reading]:
    occupancy = bool(reader.wanted & _OCCUPANCY)
    for part in card.parts:
        if part.node is not None:
            found = kfd.processes(reader.sys, part.node, occupancy=occupancy)
            if found is not None:
                yield from _process_rows(part, part.node, found)


def _process_rows(part: Part, node: kfd.Node, found: Iterable[Process]) -> Iterator[Reading]:
    running = list(found)
    yield Reading("amdsmi_processes", part.position, len(running))
    for process in sorted(running, key=lambda process: process.memory, reverse=True)[:_MOST_PROCESSES]:
        labels = (("pid", process.pid),)
        yield Reading("amdsmi_process_memory_bytes", part.position, process.memory, labels)
    told = [(process.pid, process.compute_units) for process in running if process.compute_units is not None]
    for pid, units in sorted(told, key=lambda item: item[1], reverse=True)[:_MOST_PROCESSES]:
        yield Reading("gpu_process_cu_occupancy", part.position, units, (("process_id", pid),))
    if node.compute_units and len(told) == len(running):
        # Each process's number is rounded up.
        share = min(1.0, sum(units for _, units in told) / node.compute_units)
        yield Reading("amdsmi_cu_occupancy_ratio", part.position, share)


def throughput_rows(card: Card, text: str) -> Iterator[Reading]:
    """``pcie_bw``: packets received, packets sent, the largest size of one; over a second."""
    numbers = texts.numbers(text)
    if len(numbers) == _MIN_THROUGHPUT:
        received, sent, size = numbers
        yield Reading("pcie_rx", card.position, received * size)
        yield Reading("pcie_tx", card.position, sent * size)


_OCCUPANCY: Final = frozenset(("gpu_process_cu_occupancy", "amdsmi_cu_occupancy_ratio"))
FANS: Final = frozenset(("amdsmi_fan_speed_rpm", "amdsmi_fan_speed_ratio"))
SLOT: Final = frozenset(("pcie_max_speed", "amdsmi_pcie_link_max_generation", "amdsmi_pcie_link_max_width"))
ERRORS: Final = frozenset(
    f"gpu_ecc_{kind}_{'bif' if block == 'pcie_bif' else block}" for kind in _KINDS for block in (*BLOCKS, "total")
) | {"gpu_health"}
PAGES: Final = frozenset(f"amdsmi_bad_pages_{name}" for name in ("retired", "pending", "unreservable"))
VRAM: Final = frozenset(("gpu_total_vram", "gpu_used_vram", "gpu_free_vram"))
UNITS: Final = frozenset(("amdsmi_compute_units", "amdsmi_compute_units_capacity"))
PROCESSES: Final = _OCCUPANCY | {"amdsmi_processes", "amdsmi_process_memory_bytes"}

PROBES: Final = (
    Probe(FANS, _fans),
    Probe(SLOT, _slot),
    Probe(ERRORS, _errors),
    Probe(PAGES, _pages),
    Probe(VRAM, _parts_memory),
    Probe(UNITS, _compute_units),
    Probe(PROCESSES, _processes),
)
