"""Makes gpu_metrics tables as the kernel lays them out: field after field in its header's order, nothing by offset.

What is not given is all ones, which means that the device does not offer it.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

Value = int | Sequence[int]

_HEADER = "structure_size:H format_revision:B content_revision:B"
_TO_HBM = """
temperature_edge:H temperature_hotspot:H temperature_mem:H temperature_vrgfx:H temperature_vrsoc:H temperature_vrmem:H
average_gfx_activity:H average_umc_activity:H average_mm_activity:H
average_socket_power:H energy_accumulator:Q system_clock_counter:Q
average_gfxclk_frequency:H average_socclk_frequency:H average_uclk_frequency:H average_vclk0_frequency:H
average_dclk0_frequency:H average_vclk1_frequency:H average_dclk1_frequency:H
current_gfxclk:H current_socclk:H current_uclk:H current_vclk0:H current_dclk0:H current_vclk1:H current_dclk1:H
throttle_status:I current_fan_speed:H pcie_link_width:H pcie_link_speed:H padding:2x
gfx_activity_acc:I mem_activity_acc:I temperature_hbm:4H
"""
_MI300_HEAD = """
temperature_hotspot:H temperature_mem:H temperature_vrsoc:H current_socket_power:H
average_gfx_activity:H average_umc_activity:H
"""
_LINKS = """
pcie_link_width:H pcie_link_speed:H xgmi_link_width:H xgmi_link_speed:H gfx_activity_acc:I mem_activity_acc:I
"""
_PCIE = """
pcie_bandwidth_acc:Q pcie_bandwidth_inst:Q pcie_l0_to_recov_count_acc:Q pcie_replay_count_acc:Q
pcie_replay_rover_count_acc:Q
"""
_NAK = "pcie_nak_sent_count_acc:I pcie_nak_rcvd_count_acc:I"
_XGMI = "xgmi_read_data_acc:8Q xgmi_write_data_acc:8Q"
_CLOCKS = "current_gfxclks:8H current_socclks:4H current_vclk0s:4H current_dclk0s:4H current_uclk:H"
_RESIDENCIES = """
accumulation_counter:I prochot_residency_acc:I ppt_residency_acc:I socket_thm_residency_acc:I vr_thm_residency_acc:I
hbm_thm_residency_acc:I
"""
_XCP_1_6 = "gfx_busy_inst:8I jpeg_busy:32H vcn_busy:4H gfx_busy_acc:8Q"
_XCP_1_7 = f"{_XCP_1_6} gfx_below_host_limit_acc:8Q"
_XCP_1_8 = """
gfx_busy_inst:8I jpeg_busy:40H vcn_busy:4H gfx_busy_acc:8Q gfx_below_host_limit_ppt_acc:8Q
gfx_below_host_limit_thm_acc:8Q gfx_low_utilization_acc:8Q gfx_below_host_limit_total_acc:8Q
"""

_TAIL = "pcie_lc_perf_other_end_recovery:I padding:4x"

FORMATS: Mapping[tuple[int, int], tuple[str, str]] = {
    (1, 1): (f"{_HEADER} {_TO_HBM}", ""),
    (1, 2): (f"{_HEADER} {_TO_HBM} firmware_timestamp:Q", ""),
    (1, 3): (
        f"{_HEADER} {_TO_HBM} firmware_timestamp:Q voltage_soc:H voltage_gfx:H voltage_mem:H padding:2x"
        " indep_throttle_status:Q",
        "",
    ),
    (1, 4): (
        f"{_HEADER} {_MI300_HEAD} vcn_activity:4H energy_accumulator:Q system_clock_counter:Q throttle_status:I"
        f" gfxclk_lock_status:I {_LINKS} {_PCIE} {_XGMI} firmware_timestamp:Q {_CLOCKS} padding:6x",
        "",
    ),
    (1, 5): (
        f"{_HEADER} {_MI300_HEAD} vcn_activity:4H jpeg_activity:32H energy_accumulator:Q system_clock_counter:Q"
        f" throttle_status:I gfxclk_lock_status:I {_LINKS} {_PCIE} {_NAK} {_XGMI} firmware_timestamp:Q {_CLOCKS}"
        " padding:6x",
        "",
    ),
    (1, 6): (
        f"{_HEADER} {_MI300_HEAD} energy_accumulator:Q system_clock_counter:Q {_RESIDENCIES} gfxclk_lock_status:I"
        f" {_LINKS} padding:4x {_PCIE} {_NAK} {_XGMI} firmware_timestamp:Q {_CLOCKS} num_partition:H padding:4x",
        _XCP_1_6,
    ),
    (1, 7): (
        f"{_HEADER} {_MI300_HEAD} vram_max_bandwidth:Q energy_accumulator:Q system_clock_counter:Q {_RESIDENCIES}"
        f" gfxclk_lock_status:I {_LINKS} padding:4x {_PCIE} {_NAK} {_XGMI} xgmi_link_status:8H padding:8x"
        f" firmware_timestamp:Q {_CLOCKS} num_partition:H padding:4x",
        _XCP_1_7,
    ),
    (1, 8): (
        f"{_HEADER} {_MI300_HEAD} vram_max_bandwidth:Q energy_accumulator:Q system_clock_counter:Q {_RESIDENCIES}"
        f" gfxclk_lock_status:I {_LINKS} padding:4x {_PCIE} {_NAK} {_XGMI} xgmi_link_status:8H padding:8x"
        f" firmware_timestamp:Q {_CLOCKS} num_partition:H padding:4x",
        _XCP_1_8,
    ),
}
"""Format and content → the fields, and those of each of the eight partitions."""


def table(revision: tuple[int, int], fields: Mapping[str, Value], parts: Sequence[Mapping[str, Value]] = ()) -> bytes:
    """A table of a revision. Raises ValueError for a field that it has not."""
    spec, xcp = FORMATS[revision]
    body = _fields(spec, {**fields, "format_revision": revision[0], "content_revision": revision[1]})
    if xcp:
        for number in range(8):
            body += _fields(xcp, parts[number] if number < len(parts) else {})
        body += _fields(_TAIL, {})
    return struct.pack("<H", len(body)) + body[2:]


def foreign(format_: int, content: int, size: int = 200) -> bytes:
    """A table of a revision that nobody knows."""
    return struct.pack("<HBB", size, format_, content) + bytes(range(256))[: size - 4]


def names(revision: tuple[int, int]) -> list[str]:
    """The fields of a revision, but for the header and paddings."""
    words = (word.partition(":")[0] for word in FORMATS[revision][0].split())
    return [word for word in words if word not in ("padding", "structure_size", "format_revision", "content_revision")]


def _fields(spec: str, values: Mapping[str, Value]) -> bytes:
    left = dict(values)
    found = b""
    for word in spec.split():
        name, _, code = word.partition(":")
        if code.endswith("x"):
            found += bytes(int(code[:-1]))
            continue
        count, kind = int(code[:-1] or 1), code[-1]
        ones = (1 << 8 * struct.calcsize(kind)) - 1
        value = left.pop(name, ones)
        given = [value] * count if isinstance(value, int) else [*value, *[ones] * (count - len(value))]
        found += struct.pack(f"<{count}{kind}", *given)
    if left:
        raise ValueError(f"this revision has no {', '.join(left)}")
    return found
