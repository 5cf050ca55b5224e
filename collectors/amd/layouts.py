"""Where each field of the driver's ``gpu_metrics`` table stands, by layout (Linux, ``kgd_pp_interface.h``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

XCPS: Final = 8
"""Partitions that a table has room for."""

MAXIMA: Final[Mapping[str, tuple[int, ...]]] = {
    "B": (0xFF,),
    "H": (0xFFFF, 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF),
    "I": (0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF),
    "Q": (0xFFFFFFFFFFFFFFFF,),
}
"""Width → "not offered" in that width, then in each wider one."""

ARRAYS: Final = frozenset(
    (
        "temperature_hbm", "vcn_activity", "jpeg_activity",
        "xgmi_read_data_acc", "xgmi_write_data_acc", "xgmi_link_status",
        "current_gfxclks", "current_socclks", "current_vclk0s", "current_dclk0s",
    )
)  # fmt: skip
PERCENTAGES: Final = frozenset(
    (
        "average_gfx_activity", "average_umc_activity", "average_mm_activity", "vcn_activity", "jpeg_activity",
        "gfx_busy_inst", "vcn_busy", "jpeg_busy",
    )
)  # fmt: skip
"""In format 1 whole per cent; what is more than 100 is no reading."""


class Scalar(msgspec.Struct, frozen=True):
    """One field, or an array of ``count`` of them. ``code`` is that of the module struct."""

    code: str
    offset: int
    count: int = 1


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """One revision of the table."""

    size: int
    fields: Mapping[str, Scalar]
    xcp: Mapping[str, Scalar] = {}
    """Fields of a partition's statistics, from the beginning of each."""
    xcp_offset: int = 0
    xcp_size: int = 0


def _at(code: str, **offsets: int) -> dict[str, Scalar]:
    return {name: Scalar(code, offset) for name, offset in offsets.items()}


_V1_1: Final[Mapping[str, Scalar]] = {
    **_at(
        "H",
        temperature_edge=4,
        temperature_hotspot=6,
        temperature_mem=8,
        temperature_vrgfx=10,
        temperature_vrsoc=12,
        temperature_vrmem=14,
        average_gfx_activity=16,
        average_umc_activity=18,
        average_mm_activity=20,
        average_socket_power=22,
        current_gfxclk=54,
        current_socclk=56,
        current_uclk=58,
        current_vclk0=60,
        current_dclk0=62,
        current_vclk1=64,
        current_dclk1=66,
        current_fan_speed=72,
        pcie_link_width=74,
        pcie_link_speed=76,
    ),
    **_at("I", throttle_status=68, gfx_activity_acc=80, mem_activity_acc=84),
    **_at("Q", energy_accumulator=24, system_clock_counter=32),
    "temperature_hbm": Scalar("H", 88, 4),
}
_V1_2: Final[Mapping[str, Scalar]] = {**_V1_1, **_at("Q", firmware_timestamp=96)}
_V1_3: Final[Mapping[str, Scalar]] = {
    **_V1_2,
    **_at("H", voltage_soc=104, voltage_gfx=106, voltage_mem=108),
    **_at("Q", indep_throttle_status=112),
}
_HEAD: Final = _at(
    "H",
    temperature_hotspot=4,
    temperature_mem=6,
    temperature_vrsoc=8,
    current_socket_power=10,
    average_gfx_activity=12,
    average_umc_activity=14,
)


def _links(
    pcie: int, xgmi: int, accumulated: int, bandwidth: int, recovery: int, links: int, nak: int | None = None
) -> dict[str, Scalar]:
    """PCIe width and speed, XGMI width and speed, activity, PCIe bandwidth, PCIe counters, XGMI data."""
    found = {
        **_at("H", pcie_link_width=pcie, pcie_link_speed=pcie + 2, xgmi_link_width=xgmi, xgmi_link_speed=xgmi + 2),
        **_at("I", gfx_activity_acc=accumulated, mem_activity_acc=accumulated + 4),
        **_at("Q", pcie_bandwidth_acc=bandwidth, pcie_bandwidth_inst=bandwidth + 8),
        **_at(
            "Q",
            pcie_l0_to_recov_count_acc=recovery,
            pcie_replay_count_acc=recovery + 8,
            pcie_replay_rover_count_acc=recovery + 16,
        ),
        "xgmi_read_data_acc": Scalar("Q", links, 8),
        "xgmi_write_data_acc": Scalar("Q", links + 64, 8),
    }
    if nak is not None:
        found |= _at("I", pcie_nak_sent_count_acc=nak, pcie_nak_rcvd_count_acc=nak + 4)
    return found


def _clocks(timestamp: int) -> dict[str, Scalar]:
    """Firmware's time and the clocks behind it."""
    return {
        **_at("Q", firmware_timestamp=timestamp),
        "current_gfxclks": Scalar("H", timestamp + 8, 8),
        "current_socclks": Scalar("H", timestamp + 24, 4),
        "current_vclk0s": Scalar("H", timestamp + 32, 4),
        "current_dclk0s": Scalar("H", timestamp + 40, 4),
        **_at("H", current_uclk=timestamp + 48),
    }


def _residencies(first: int) -> dict[str, Scalar]:
    names = (
        "accumulation_counter",
        "prochot_residency_acc",
        "ppt_residency_acc",
        "socket_thm_residency_acc",
        "vr_thm_residency_acc",
        "hbm_thm_residency_acc",
    )
    return {name: Scalar("I", first + 4 * place) for place, name in enumerate(names)}


# In 1.4 and 1.5 throttle_status is always 0, which means that it is not reported: it is left out.
_V1_4: Final[Mapping[str, Scalar]] = {
    **_HEAD,
    "vcn_activity": Scalar("H", 16, 4),
    **_at("Q", energy_accumulator=24, system_clock_counter=32),
    **_links(48, 52, 56, 64, 80, 104),
    **_clocks(232),
}
_V1_5: Final[Mapping[str, Scalar]] = {
    **_HEAD,
    "vcn_activity": Scalar("H", 16, 4),
    "jpeg_activity": Scalar("H", 24, 32),
    **_at("Q", energy_accumulator=88, system_clock_counter=96),
    **_links(112, 116, 120, 128, 144, 176, nak=168),
    **_clocks(304),
}
_V1_6: Final[Mapping[str, Scalar]] = {
    **_HEAD,
    **_at("Q", energy_accumulator=16, system_clock_counter=24),
    **_residencies(32),
    **_links(60, 64, 68, 80, 96, 128, nak=120),
    **_clocks(256),
    **_at("H", num_partition=306),
}
_V1_7: Final[Mapping[str, Scalar]] = {
    **_HEAD,
    **_at("Q", vram_max_bandwidth=16, energy_accumulator=24, system_clock_counter=32),
    **_residencies(40),
    **_links(68, 72, 76, 88, 104, 136, nak=128),
    "xgmi_link_status": Scalar("H", 264, 8),
    **_clocks(288),
    **_at("H", num_partition=338),
}
XCP: Final[Mapping[str, Scalar]] = {
    "gfx_busy_inst": Scalar("I", 0, 8),
    "jpeg_busy": Scalar("H", 32, 32),
    "vcn_busy": Scalar("H", 96, 4),
    "gfx_busy_acc": Scalar("Q", 104, 8),
}
_XCP_1_8: Final[Mapping[str, Scalar]] = {
    "gfx_busy_inst": Scalar("I", 0, 8),
    "jpeg_busy": Scalar("H", 32, 40),
    "vcn_busy": Scalar("H", 112, 4),
    "gfx_busy_acc": Scalar("Q", 120, 8),
    "gfx_below_host_limit_ppt_acc": Scalar("Q", 184, 8),
    "gfx_below_host_limit_thm_acc": Scalar("Q", 248, 8),
    "gfx_low_utilization_acc": Scalar("Q", 312, 8),
    "gfx_below_host_limit_total_acc": Scalar("Q", 376, 8),
}

LAYOUTS: Final[Mapping[tuple[int, int], Layout]] = {
    (1, 1): Layout(size=96, fields=_V1_1),
    (1, 2): Layout(size=104, fields=_V1_2),
    (1, 3): Layout(size=120, fields=_V1_3),
    (1, 4): Layout(size=288, fields=_V1_4),
    (1, 5): Layout(size=360, fields=_V1_5),
    (1, 6): Layout(size=1664, fields=_V1_6, xcp=XCP, xcp_offset=312, xcp_size=168),
    (1, 7): Layout(size=2208, fields=_V1_7, xcp=XCP, xcp_offset=344, xcp_size=232),
    (1, 8): Layout(size=3872, fields=_V1_7, xcp=_XCP_1_8, xcp_offset=344, xcp_size=440),
}
"""Format and content → layout. 1.0 and formats 2 and 3 (of APUs) are not read: hwmon has what matters of them."""
