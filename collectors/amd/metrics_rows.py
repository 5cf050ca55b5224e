"""Readings that follow from one table of a card (gpu_metrics), wherever it came from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from collectors.amd import texts
from collectors.amd.cards import Card
from collectors.amd.gpu_metrics import GpuMetrics
from collectors.base import Labels, Reading

JOULES: Final = 2.0**-16
"""Of one step of the energy accumulator."""
LIBRARY_MICROJOULES: Final = 15.3
"""What AMD's library takes for it."""

MEMORY_CLOCK: Final = 8
FIRST_VIDEO_CLOCK: Final = 9
FIRST_DATA_CLOCK: Final = 13
SOC_CLOCK: Final = 19
_LINK_UP: Final = 1
_LINK_DOWN: Final = 0
"""Else the link is disabled: the GPU has none there."""

Clocks = dict[tuple[int, str], int]
"""Index and type of a clock → MHz."""


def power(card: Card, metrics: GpuMetrics) -> Iterator[Reading]:
    """No card draws 0 W: the second die of a board and non-first partitions are told so."""
    current, average = metrics.number("current_socket_power"), metrics.number("average_socket_power")
    if current:
        yield Reading("gpu_package_power", card.position, current)
    if average:
        yield Reading("gpu_average_package_power", card.position, average)
    if current or average:
        yield Reading("gpu_power_usage", card.position, current or average or 0)


def energy(card: Card, metrics: GpuMetrics) -> Iterator[Reading]:
    """From the accumulator, in its own unit and in that of AMD's library."""
    steps = metrics.number("energy_accumulator")
    if steps and card.counts_energy:
        yield Reading("amdsmi_energy_joules_total", card.position, steps * JOULES)
        yield Reading("gpu_energy_consumed", card.position, int(steps * LIBRARY_MICROJOULES))


def temperatures(card: Card, metrics: GpuMetrics) -> Iterator[Reading]:
    """Whole degrees. 0 is what sensors that are not there say."""
    for series, field in (
        ("gpu_junction_temperature", "temperature_hotspot"),
        ("gpu_edge_temperature", "temperature_edge"),
        ("gpu_memory_temperature", "temperature_mem"),
    ):
        if value := metrics.number(field):
            yield Reading(series, card.position, value)
    for index, stack in enumerate(metrics.array("temperature_hbm")):
        if stack:
            yield Reading("gpu_hbm_temperature", card.position, stack, (("hbm_index", str(index)),))
    for rail in ("gfx", "soc", "mem"):
        if value := metrics.number(f"temperature_vr{rail}"):
            yield Reading("amdsmi_vr_temperature_celsius", card.position, value, (("rail", rail),))


def voltages(card: Card, metrics: GpuMetrics) -> Iterator[Reading]:
    for series, field in (
        ("gpu_voltage", "voltage_soc"),
        ("gpu_gfx_voltage", "voltage_gfx"),
        ("gpu_memory_voltage", "voltage_mem"),
    ):
        if value := metrics.number(field):
            yield Reading(series, card.position, value)


def activity(card: Card, metrics: GpuMetrics) -> Iterator[Reading]:
    """Of the whole card."""
    for series, field in (
        ("gpu_gfx_activity", "average_gfx_activity"),
        ("gpu_umc_activity", "average_umc_activity"),
        ("gpu_mma_activity", "average_mm_activity"),
    ):
        if (value := metrics.number(field)) is not None:
            yield Reading(series, card.position, value)
    yield from _indexed(card.position, "gpu_vcn_activity", "vcn_index", metrics.array("vcn_activity"))
    yield from _indexed(card.position, "gpu_jpeg_activity", "jpeg_index", metrics.array("jpeg_activity"))


def part_activity(card: Card, metrics: GpuMetrics) -> Iterator[Reading]:
    """Of each partition's engines at this moment."""
    for part in card.parts:
        for series, field in (
            ("gpu_gfx_busy_instantaneous", "gfx_busy_inst"),
            ("gpu_vcn_busy_instantaneous", "vcn_busy"),
            ("gpu_jpeg_busy_instantaneous", "jpeg_busy"),
        ):
            yield from _indexed(part.position, series, "xcc_index", metrics.part(field, part.partition))


def _indexed(position: int, series: str, label: str, values: Iterable[int | None]) -> Iterator[Reading]:
    for index, value in enumerate(values):
        if value is not None:
            yield Reading(series, position, value, ((label, str(index)),))


def clocks(metrics: GpuMetrics) -> Clocks:
    """The rates of now."""
    found: Clocks = {}

    def add(first: int, kind: str, names: tuple[str, ...], array: str = "") -> None:
        values = metrics.array(array) if array and metrics.array(array) else tuple(map(metrics.number, names))
        for index, value in enumerate(values):
            if value is not None:
                found[first + index, kind] = value

    add(0, "system", ("current_gfxclk",), "current_gfxclks")
    add(MEMORY_CLOCK, "memory", ("current_uclk",))
    add(FIRST_VIDEO_CLOCK, "video", ("current_vclk0", "current_vclk1"), "current_vclk0s")
    add(FIRST_DATA_CLOCK, "data", ("current_dclk0", "current_dclk1"), "current_dclk0s")
    soc = (*metrics.array("current_socclks"), metrics.number("current_socclk"))
    told = next((value for value in soc if value is not None), None)
    if told is not None:
        found[SOC_CLOCK, "soc"] = told
    return found


def clock_labels(index: int, kind: str) -> Labels:
    return (("clock_index", str(index)), ("clock_type", kind))


def pcie(card: Card, metrics: GpuMetrics) -> Iterator[Reading]:
    speed = metrics.number("pcie_link_speed")
    if speed:
        yield from link_speed(card, speed / 10)
    if width := metrics.number("pcie_link_width"):
        yield Reading("amdsmi_pcie_link_width", card.position, width)
    for series, field in (
        ("pcie_bandwidth", "pcie_bandwidth_inst"),
        ("pcie_bidirectional_bandwidth", "pcie_bandwidth_acc"),
        ("pcie_replay_count", "pcie_replay_count_acc"),
        ("pcie_recovery_count", "pcie_l0_to_recov_count_acc"),
        ("pcie_replay_rollover_count", "pcie_replay_rover_count_acc"),
        ("pcie_nack_sent_count", "pcie_nak_sent_count_acc"),
        ("pcie_nack_received_count", "pcie_nak_rcvd_count_acc"),
    ):
        if (value := metrics.number(field)) is not None:
            yield Reading(series, card.position, value)


def link_speed(card: Card, gigatransfers: float) -> Iterator[Reading]:
    """AMD's exporter gives whole GT/s, cut."""
    yield Reading("pcie_speed", card.position, int(gigatransfers))
    if (generation := texts.generation(gigatransfers)) is not None:
        yield Reading("amdsmi_pcie_link_generation", card.position, generation)


def xgmi(card: Card, metrics: GpuMetrics) -> Iterator[Reading]:
    """A link that the table has no numbers for is left out."""
    yield from _indexed(card.position, "gpu_xgmi_link_rx", "link_index", metrics.array("xgmi_read_data_acc"))
    yield from _indexed(card.position, "gpu_xgmi_link_tx", "link_index", metrics.array("xgmi_write_data_acc"))


def links(card: Card, metrics: GpuMetrics) -> Iterator[Reading]:
    """The state of each XGMI link."""
    states = {index: state for index, state in enumerate(metrics.array("xgmi_link_status")) if state is not None}
    yield from link_states(card, {index: state == _LINK_UP for index, state in states.items() if state in _STATES})


_STATES: Final = frozenset((_LINK_UP, _LINK_DOWN))


def link_states(card: Card, up: dict[int, bool]) -> Iterator[Reading]:
    """Counts, and each link; nothing where there is no link."""
    if not up:
        return
    yield Reading("amdsmi_xgmi_links", card.position, len(up))
    yield Reading("amdsmi_xgmi_links_up", card.position, sum(up.values()))
    for index, state in up.items():
        yield Reading("amdsmi_xgmi_link_up", card.position, int(state), (("link", str(index)),))


def bandwidth(card: Card, metrics: GpuMetrics) -> Iterator[Reading]:
    if value := metrics.number("vram_max_bandwidth"):
        yield Reading("gpu_vram_max_bandwidth", card.position, value)
