"""Hosts: which cards they have and what these say. Numbers follow from a card's number i: no two cards are alike."""

from __future__ import annotations

from collections.abc import Mapping

from tests.fakes.amd import blobs
from tests.fakes.amd.tree import Board, Content, Node

MIB = 1 << 20
GIB = 1 << 30

MI300X_VRAM = 196592 * MIB
MI300X_BUSES = (0x05, 0x26, 0x46, 0x65, 0x85, 0xA6, 0xC6, 0xE5)


def unique_id(i: int) -> int:
    return 0x9F44_0A1B_2C3D_4E00 + i


def mi300x_bdf(i: int) -> str:
    return f"0000:{MI300X_BUSES[i]:02x}:00.0"


def mi300x_fields(i: int, tick: int = 0) -> dict[str, blobs.Value]:
    """Layout 1.7 of card i, ``tick`` steps of 1000 of the accumulation counter later."""
    return {
        "temperature_hotspot": 50 + i,
        "temperature_mem": 40 + i,
        "temperature_vrsoc": 45 + i,
        "current_socket_power": 255 + i,
        "average_gfx_activity": 90 + i,
        "average_umc_activity": 30 + i,
        "vram_max_bandwidth": 5325,
        "energy_accumulator": (1000 + i) << 16,
        "system_clock_counter": 1_000_000_000,
        "accumulation_counter": 1_000_000 + 1000 * tick,
        "prochot_residency_acc": 0,
        "ppt_residency_acc": 5000 + i + 250 * tick,
        "socket_thm_residency_acc": 100 + i,
        "vr_thm_residency_acc": 300 + i,
        "hbm_thm_residency_acc": 200 + i,
        "pcie_link_width": 16,
        "pcie_link_speed": 320,
        "xgmi_link_width": 16,
        "xgmi_link_speed": 32,
        "gfx_activity_acc": 7,
        "mem_activity_acc": 8,
        "pcie_bandwidth_acc": 90_000 + i,
        "pcie_bandwidth_inst": 18 + i,
        "pcie_l0_to_recov_count_acc": 1,
        "pcie_replay_count_acc": 2 + i,
        "pcie_replay_rover_count_acc": 3,
        "pcie_nak_sent_count_acc": 4,
        "pcie_nak_rcvd_count_acc": 5,
        "xgmi_read_data_acc": [1000 * (n + 1) + i for n in range(7)],
        "xgmi_write_data_acc": [2000 * (n + 1) + i for n in range(7)],
        # The eighth entry is the card itself.
        "xgmi_link_status": [1, 1, 1, 1, 1, 1, 0, 2],
        "firmware_timestamp": 100_000_000,
        "current_gfxclks": [2100 - 10 * i + n for n in range(8)],
        "current_socclks": [1200, 1201, 1202, 1203],
        "current_vclk0s": [29, 30, 31, 32],
        "current_dclk0s": [22, 23, 24, 25],
        "current_uclk": 1300,
        "num_partition": 1,
    }


def busy(i: int, partition: int = 0, dies: int = 8) -> Mapping[str, blobs.Value]:
    """A partition's own statistics."""
    return {
        "gfx_busy_inst": [80 + i + partition] * (dies - 1) + [40 + i],
        "jpeg_busy": [0] * 32,
        "vcn_busy": [i, 0, 0, 0],
        "gfx_busy_acc": [9] * dies,
    }


def _mi300x_files(i: int, revision: tuple[int, int] = (1, 7)) -> dict[str, Content]:
    used = (1000 + 100 * i) * MIB + MIB // 2
    fields = mi300x_fields(i)
    if revision < (1, 7):
        fields = {name: value for name, value in fields.items() if name in blobs.names(revision)}
    return {
        "gpu_metrics": blobs.table(revision, fields, [busy(i)]),
        "unique_id": f"{unique_id(i):016x}\n",
        "manufacturer": "AMD\n",
        "product_name": "AMD Instinct MI300X OAM\n",
        "product_number": "102-G30211-0C\n",
        "serial_number": f"69230000{i:04d}\n",
        "vbios_version": "113-M3000100-102\n",
        "numa_node": f"{i // 4}\n",
        "mem_info_vram_total": f"{MI300X_VRAM}\n",
        "mem_info_vram_used": f"{used}\n",
        "mem_info_vis_vram_total": f"{MI300X_VRAM}\n",
        "mem_info_vis_vram_used": f"{used}\n",
        "mem_info_gtt_total": f"{512 * GIB}\n",
        "mem_info_gtt_used": f"{(20 + i) * MIB}\n",
        "gpu_busy_percent": "99\n",
        "pp_dpm_sclk": "0: 500Mhz\n1: 2100Mhz\n",
        "pp_dpm_mclk": "0: 900Mhz\n1: 1300Mhz *\n",
        "pp_dpm_fclk": "0: 1200Mhz\n1: 2000Mhz *\n",
        "pp_dpm_pcie": "0: 2.5GT/s, x16 \n",
        "max_link_speed": "32.0 GT/s PCIe\n",
        "max_link_width": "16\n",
        "current_link_speed": "32.0 GT/s PCIe\n",
        "current_link_width": "16\n",
        "pcie_replay_count": "77\n",
        "current_compute_partition": "SPX\n",
        "available_compute_partition": "SPX, DPX, QPX, CPX\n",
        "current_memory_partition": "NPS1\n",
        "power/runtime_status": "active\n",
        "ras/umc_err_count": f"ue: 0\nce: {3 + i}\nde: 1\n",
        "ras/gfx_err_count": f"ue: 0\nce: {2 * i}\n",
        "ras/sdma_err_count": "ue: 0\nce: 0\n",
        "ras/xgmi_wafl_err_count": f"ue: 0\nce: {7 + i}\n",
        "ras/pcie_bif_err_count": "ue: 0\nce: 4\n",
        "ras/gpu_vram_bad_pages": "0x00012af3 : 0x00001000 : R\n0x00012af4 : 0x00001000 : R\n",
    }


def _mi300x_hwmon(i: int) -> dict[str, Content]:
    return {
        "temp2_label": "junction\n",
        "temp2_input": f"{(50 + i) * 1000 + 900}\n",
        "temp2_crit": "100000\n",
        "temp2_emergency": "105000\n",
        "temp3_label": "mem\n",
        "temp3_input": f"{(40 + i) * 1000}\n",
        "temp3_crit": "95000\n",
        "temp3_emergency": "105000\n",
        "power1_input": f"{(255 + i) * 1_000_000}\n",
        "power1_cap": "650000000\n",
        "power1_cap_default": "750000000\n",
        "power1_cap_min": "0\n",
        "power1_cap_max": "750000000\n",
        "freq1_input": "2100000000\n",
    }


def mi300x(cards: int = 8, revision: tuple[int, int] = (1, 7)) -> list[Board]:
    """Not cut: SPX."""
    return [
        Board(
            bdf=mi300x_bdf(i),
            card=8 * i + 1,
            files=_mi300x_files(i, revision),
            hwmon=_mi300x_hwmon(i),
            nodes=[Node(gpu_id=10_000 + i, render=128 + 8 * i, memory=MI300X_VRAM, used=(1000 + 100 * i) * MIB)],
        )
        for i in range(cards)
    ]


def cpx_node(i: int, partition: int) -> Node:
    return Node(
        gpu_id=20_000 + 10 * i + partition,
        render=128 + 8 * i + partition,
        partition=partition,
        simds=152,
        memory=MI300X_VRAM // 8,
        used=(100 * (partition + 1) + i) * MIB,
    )


def mi300x_cpx(cards: int = 1) -> list[Board]:
    """Cut into eight, memory in four quarters: CPX and NPS4."""
    boards = []
    for i in range(cards):
        fields = {**mi300x_fields(i), "num_partition": 8}
        files = _mi300x_files(i) | {
            "gpu_metrics": blobs.table((1, 7), fields, [busy(i, partition, 1) for partition in range(8)]),
            "current_compute_partition": "CPX\n",
            "current_memory_partition": "NPS4\n",
        }
        boards.append(
            Board(
                bdf=mi300x_bdf(i),
                card=8 * i + 1,
                files=files,
                hwmon=_mi300x_hwmon(i),
                nodes=[cpx_node(i, partition) for partition in range(8)],
                first_platform=7 * i,
            )
        )
    return boards


def mi200_fields(i: int, *, second: bool = False) -> dict[str, blobs.Value]:
    """Layout 1.3, as MI200 fills it."""
    return {
        "temperature_edge": 40 + i,
        "temperature_hotspot": 48 + i,
        "temperature_mem": 52 + i,
        "average_gfx_activity": 70 + i,
        "average_umc_activity": 20 + i,
        "average_socket_power": 0 if second else 300 + i,
        "energy_accumulator": 0 if second else (5000 + i) << 16,
        "current_gfxclk": 1700 - i,
        "current_socclk": 1090,
        "current_uclk": 1600,
        "current_vclk0": 0,
        "current_dclk0": 0,
        "pcie_link_width": 16,
        "pcie_link_speed": 160,
        "temperature_hbm": [50 + i, 51 + i, 52 + i, 49 + i],
        "throttle_status": 0,
        # Package power (bit 0) and the hot spot (bit 36).
        "indep_throttle_status": 1 | 1 << 36,
    }


def _mi200(i: int, bdf: str, device: str, model: str, number: str, *, second: bool = False) -> Board:
    return Board(
        bdf=bdf,
        card=i + 1,
        device=device,
        class_code="0x038000",
        files={
            "gpu_metrics": blobs.table((1, 3), mi200_fields(i, second=second)),
            "unique_id": f"{unique_id(i):016x}\n",
            "product_name": model + "\n",
            "product_number": number + "\n",
            "serial_number": "PCB0200\n" if "MI250" in model else f"PCB010{i}\n",
            "vbios_version": "113-D67301-063\n",
            "mem_info_vram_total": f"{64 * GIB}\n",
            "mem_info_vram_used": f"{(500 + i) * MIB}\n",
            "max_link_speed": "16.0 GT/s PCIe\n",
            "max_link_width": "16\n",
            "pcie_replay_count": f"{6 + i}\n",
            "pcie_bw": f"{1000 + i} {2000 + i} 256\n",
            "ras/umc_err_count": "ue: 0\nce: 0\n",
        },
        hwmon={
            "temp1_label": "edge\n",
            "temp1_crit": "100000\n",
            "temp1_emergency": "105000\n",
            "power1_cap": "0\n" if second else "560000000\n" if "MI250" in model else "300000000\n",
        },
        nodes=[Node(gpu_id=30_000 + i, render=128 + i, simds=416, memory=64 * GIB, used=(500 + i) * MIB)],
    )


def mi210(cards: int = 2) -> list[Board]:
    return [
        _mi200(i, f"0000:{0x21 + 0x20 * i:02x}:00.0", "0x740f", "AMD Instinct MI210", "102-D67302-00")
        for i in range(cards)
    ]


def mi250() -> list[Board]:
    """One board: two dies, of which the first has all power and energy."""
    model, number = "AMD Instinct MI250", "102-D65209-0C"
    return [
        _mi200(0, "0000:29:00.0", "0x740c", model, number),
        _mi200(1, "0000:2c:00.0", "0x740c", model, number, second=True),
    ]


def mi300a() -> list[Board]:
    """Every PCIe field of the table is all ones; the memory is a share of the one that the processor has, too."""
    fields = {name: value for name, value in mi300x_fields(0).items() if not name.startswith("pcie_")}
    fields = {name: value for name, value in fields.items() if name in blobs.names((1, 6))}
    return [
        Board(
            bdf="0000:01:00.0",
            card=1,
            device="0x74a0",
            files={
                "gpu_metrics": blobs.table((1, 6), fields, [busy(0, 0, 6)]),
                "unique_id": f"{unique_id(0):016x}\n",
                "product_name": "AMD Instinct MI300A\n",
                "mem_info_vram_total": f"{128 * GIB}\n",
                "mem_info_vram_used": f"{GIB}\n",
                "current_compute_partition": "SPX\n",
                "current_memory_partition": "NPS1\n",
                "ras/umc_err_count": "ue: 0\nce: 0\nde: 0\n",
            },
            hwmon=_mi300x_hwmon(0),
            nodes=[Node(gpu_id=40_000, render=128, simds=912, memory=128 * GIB, used=GIB)],
        )
    ]


def rx7900() -> list[Board]:
    """A card with a screen: its energy counter counts something else; it has a fan; it may sleep."""
    fields: dict[str, blobs.Value] = {
        "temperature_edge": 47,
        "temperature_hotspot": 55,
        "temperature_mem": 62,
        "average_gfx_activity": 3,
        "average_umc_activity": 1,
        "average_mm_activity": 9,
        "average_socket_power": 61,
        "energy_accumulator": 123_456,
        "current_gfxclk": 37,
        "current_uclk": 96,
        "pcie_link_width": 16,
        "pcie_link_speed": 160,
        "voltage_gfx": 712,
        "indep_throttle_status": 0,
    }
    return [
        Board(
            bdf="0000:0a:00.0",
            card=1,
            device="0x744c",
            class_code="0x030000",
            files={
                "gpu_metrics": blobs.table((1, 3), fields),
                "unique_id": "c0ffee0123456789\n",
                "vbios_version": "113-3E4710U-O4X\n",
                "mem_info_vram_total": f"{24 * GIB}\n",
                "mem_info_vram_used": f"{2 * GIB}\n",
                "mem_info_vis_vram_total": f"{24 * GIB}\n",
                "mem_info_vis_vram_used": f"{2 * GIB}\n",
                "gpu_busy_percent": "3\n",
                "mem_busy_percent": "1\n",
                "pp_dpm_sclk": "0: 500Mhz\n1: 2304Mhz *\n2: 2482Mhz\n",
                "pp_dpm_socclk": "0: 500Mhz *\n1: 1200Mhz\n",
                "current_link_speed": "16.0 GT/s PCIe\n",
                "current_link_width": "16\n",
                "max_link_speed": "16.0 GT/s PCIe\n",
                "max_link_width": "16\n",
                "power/runtime_status": "active\n",
            },
            hwmon={
                "temp1_label": "edge\n",
                "temp1_input": "47000\n",
                "fan1_input": "1210\n",
                "pwm1": "51\n",
                "in0_input": "712\n",
                "power1_average": "61000000\n",
                "power1_cap": "315000000\n",
            },
            nodes=[Node(gpu_id=50_000, render=128, simds=192, simds_of_a_unit=2, memory=24 * GIB)],
        )
    ]


def bmc() -> Board:
    """The baseboard's display: card0 of many servers, and none of ours."""
    return Board(bdf="0000:03:00.0", card=0, vendor="0x1a03", device="0x2000", class_code="0x030000", driver="ast")
