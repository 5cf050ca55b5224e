"""Boards by generation, put together from the parts in ``gpus``. ``i`` is the GPU's index."""

from __future__ import annotations

from tests.fakes.nvml import gpus
from tests.fakes.nvml.gpus import MIB, NVLINKS
from tests.fakes.nvml.model import Value


def h100(i: int, peers: int) -> dict[str, Value]:
    """H100 SXM: GPM, 18 NVLinks, HBM temperature, ECC, row remapping; thresholds only as distances to the limit."""
    return {
        **gpus.identity(0x48100000, i, "NVIDIA H100 80GB HBM3", 0x2330, 1650000000100),
        "architecture": 9,
        "vbios": f"96.00.A5.00.{i:02X}",
        "board_part_number": "692-2G520-0000-000",
        "gsp_version": "580.95.05",
        "inforom.image": "G520.0200.00.05",
        "inforom.oem": "2.1",
        "inforom.ecc": "7.16",
        "module_id": i + 1,
        "cores": 16896,
        "cuda_cc": "9.0",
        "memory_bus_width": 5120,
        "temperature": 50 + i,
        "temperature_margin": 37 - i,
        "field.82": f"ui:{60 + i}",
        "field.193": "si:-8",
        "field.194": "si:-2",
        "field.195": "si:-1",
        "field.196": "si:0",
        **gpus.power(310_000 + 1_000 * i, 700_000, 200_000, i),
        "field.185": f"ui:{310_000 + 1_000 * i}",
        "field.186": f"ui:{320_000 + 1_000 * i}",
        **gpus.clocks(1980 - 15 * i, 2619, 1500 + i, 1980, 2619, 1545),
        **gpus.utilization(i, ("encoder", "decoder", "jpeg", "ofa")),
        **gpus.memory(81559, 479, (10_000 + 100 * i) * MIB + MIB // 2),
        **gpus.bar1(131072, 1 + i),
        **gpus.pcie(i, 5),
        "field.173": f"ui:{3 + i}",
        "field.197": f"ull:{(i + 1) * 10**12}+5000000/s",
        "field.198": f"ull:{(i + 1) * 2 * 10**12}+7000000/s",
        **gpus.ecc(i),
        **gpus.row_remapping(i),
        **gpus.sram(),
        **gpus.throttling(i),
        **gpus.nvlink_until_hopper(i, NVLINKS, 4),
        **gpus.gpm(i, NVLINKS),
        **gpus.fabric("00000000000000000000000000000000", 0, 3),
        **{f"p2p.{peer}": 0 for peer in range(peers) if peer != i},
        "field.230": "ui:0",
        "mig_mode": 0,
        "mig_pending": 0,
        "mig_max": 7,
        "event_types": gpus.EVENT_TYPES,
        "processes": 1,
        "conf.protected_kib": 0,
        "conf.unprotected_kib": 81559 * 1024,
    }


def a100(i: int) -> dict[str, Value]:
    """A100 SXM4 40 GB: no GPM, 12 NVLinks, absolute thresholds. The minor number is not the index."""
    return {
        **gpus.identity(0xA1000000, i, "NVIDIA A100-SXM4-40GB", 0x20B0, 1560000000200),
        "minor": i ^ 1,
        "architecture": 7,
        "vbios": f"92.00.36.00.{i:02X}",
        "board_part_number": "692-2G506-0000-002",
        "inforom.image": "G506.0200.00.04",
        "inforom.oem": "2.0",
        "inforom.ecc": "6.16",
        "module_id": i + 1,
        "cores": 6912,
        "cuda_cc": "8.0",
        "memory_bus_width": 5120,
        "temperature": 30 + i,
        "temperature_threshold.shutdown": 92,
        "temperature_threshold.slowdown": 89,
        "temperature_threshold.mem_max": 95,
        "temperature_threshold.gpu_max": 85,
        "field.82": f"ui:{44 + i}",
        **gpus.power(67_030 + 1_000 * i, 400_000, 100_000, i),
        **gpus.clocks(1275 - 15 * i, 1215, 1185 + i, 1410, 1215, 1290),
        **gpus.utilization(i, ("encoder", "decoder", "jpeg", "ofa")),
        **gpus.memory(40960, 624, (5_000 + 100 * i) * MIB),
        **gpus.bar1(65536, 1 + i),
        **gpus.pcie(i, 4),
        **gpus.ecc(i),
        **gpus.row_remapping(i),
        **gpus.sram(),
        **gpus.throttling(i),
        **gpus.nvlink_until_hopper(i, 12, 3),
        "gpm_supported": 0,
        "field.230": "ui:0",
        "mig_mode": 0,
        "mig_pending": 0,
        "mig_max": 7,
        "event_types": gpus.EVENT_TYPES,
        "processes": 1,
    }


def a100_without_whole_gpu_utilization(i: int) -> dict[str, Value]:
    """What a GPU in MIG mode still answers: no utilization, no engines, no remapped rows by their own call."""
    gone = ("util.", "remap.corrected", "remap.uncorrected", "remap.pending", "remap.failure")
    kept = {key: value for key, value in a100(i).items() if not key.startswith(gone)}
    return {**kept, "mig_mode": 1, "mig_pending": 1}


def mig_1g_5gb(parent: int, slot: int) -> dict[str, Value]:
    """A MIG device with one of seven slices: GPU instance 7+slot, placed at its slot, 14 multiprocessors, 4864 MiB."""
    return {
        "name": "NVIDIA A100-SXM4-40GB MIG 1g.5gb",
        "uuid": f"MIG-a1000000-{parent:04x}-5000-8000-{slot:012x}",
        "gi": 7 + slot,
        "ci": 0,
        "profile_id": 19,
        "placement_start": slot,
        "placement_size": 1,
        "attr.sm": 14,
        "attr.copy_engines": 1,
        "attr.decoders": 0,
        "attr.encoders": 0,
        "attr.jpegs": 0,
        "attr.ofas": 0,
        "attr.gi_slices": 1,
        "attr.ci_slices": 1,
        "attr.memory_mb": 4864,
        **gpus.memory(4864, 0, (3 + slot) * MIB),
        **gpus.bar1(8191, 0),
    }


def t4(i: int) -> dict[str, Value]:
    """Tesla T4: retired pages instead of row remapping, no memory temperature, no NVLink, no reserved memory told."""
    keys = {
        **gpus.identity(0x74000000, i, "Tesla T4", 0x1EB8, 1320000000300),
        "architecture": 6,
        "vbios": f"90.04.84.00.{i:02X}",
        "board_part_number": "900-2G183-0000-001",
        "inforom.image": "G183.0200.00.02",
        "inforom.oem": "1.1",
        "inforom.ecc": "5.0",
        "cuda_cc": "7.5",
        "temperature": 40 + i,
        "temperature_threshold.shutdown": 96,
        "temperature_threshold.slowdown": 93,
        "temperature_threshold.gpu_max": 85,
        **gpus.power(26_780 + 1_000 * i, 70_000, 30_000, i),
        **gpus.clocks(585 + 15 * i, 5000, 810, 1590, 5001, 1470),
        **gpus.utilization(i, ("encoder", "decoder")),
        **gpus.memory(15109, 0, (1_032 + i) * MIB),
        **gpus.bar1(256, 5 + i),
        **gpus.pcie(i, 3),
        **gpus.ecc(i),
        **gpus.throttling(i),
        "retired_pages.0": "0x1a000,0x1b000",
        "retired_pages.1": "0x2c000",
        "retired_pending": 0,
        "field.29": "ui:2",
        "field.30": "ui:1",
        "field.31": "ui:0",
        "event_types": 0x1F,
        "processes": 1,
    }
    later_than_r470 = ("memory.reserved", "field.269", "field.270", "field.271")
    return {key: value for key, value in keys.items() if key not in later_than_r470}


def b200(i: int, peers: int, grace: bool = False) -> dict[str, Value]:
    """B200: NVLink 5 counters as scoped fields, none of the older ones. With ``grace``: GB200, C2C, module power."""
    superchip: dict[str, Value] = {
        "field.170": "ui:14",
        "field.171.0": "ui:1",
        "field.172.0": "ui:44712",
        "field.231.0": f"ull:{i}",
        "field.232.0": f"ull:{10 + i}",
        "field.233.0": f"ull:{20 + i}",
        "field.234.0": "ui:0",
        "field.186.1": f"ui:{900_000 + 1_000 * i}",
        **{f"gpm.{metric}": metric * 10 + i for metric in (100, 101, 102, 103)},
        "numa_node": 2 + i,
    }
    return {
        **gpus.identity(
            0xB2000000, i, "NVIDIA GB200" if grace else "NVIDIA B200", 0x2941 if grace else 0x2901, 1650000000400
        ),
        "architecture": 10,
        "vbios": f"97.00.B9.00.{i:02X}",
        "board_part_number": "692-2G525-0000-000",
        "gsp_version": "595.45.04",
        "inforom.image": "G525.0200.00.03",
        "inforom.oem": "2.1",
        "inforom.ecc": "7.16",
        "module_id": i + 1,
        "cores": 18944,
        "cuda_cc": "10.0",
        "memory_bus_width": 8192,
        "temperature": 45 + i,
        "temperature_margin": 42 - i,
        "field.82": f"ui:{55 + i}",
        **gpus.power(520_000 + 1_000 * i, 1_000_000, 200_000, i),
        "field.185": f"ui:{520_000 + 1_000 * i}",
        "field.186": f"ui:{530_000 + 1_000 * i}",
        **gpus.clocks(1965 - 15 * i, 3996, 1400 + i, 1965, 3996, 1600),
        **gpus.utilization(i, ("encoder", "decoder", "jpeg", "ofa")),
        **gpus.memory(183359, 679, (20_000 + 100 * i) * MIB),
        **gpus.bar1(262144, 1 + i),
        **gpus.pcie(i, 6),
        **gpus.ecc(i),
        **gpus.row_remapping(i),
        **gpus.sram(),
        "unrepairable": 0,
        **gpus.throttling(i),
        **gpus.nvlink5(i, NVLINKS),
        **gpus.gpm(i, NVLINKS),
        **{f"gpm.{metric}": f"{metric * 10**9}+1000000/s" for metric in range(248, 261)},
        **gpus.fabric("b2000000-1111-4222-8333-444455556666", 7, 3),
        "platform.ib_guid": f"00000000000000{i:02x}",
        "platform.rack_guid": "31323334353637383930313233",
        "platform.chassis_serial": "1821925000007",
        "platform.slot": 12,
        "platform.tray": 4,
        "platform.host": 1,
        "platform.peer_type": 1,
        "platform.module_id": i + 1,
        **{f"p2p.{peer}": 0 for peer in range(peers) if peer != i},
        "field.230": "ui:0",
        "mig_mode": 0,
        "mig_pending": 0,
        "mig_max": 7,
        "event_types": 0xC11F,
        "processes": 1,
        **(superchip if grace else {}),
    }


def gb10() -> dict[str, Value]:
    """GB10 (unified memory): no memory sizes, no BAR1, no ECC, no memory clock, no limits, no NVLink."""
    return {
        **gpus.identity(0x6B100000, 0, "NVIDIA GB10", 0x2E12, 1650000000500),
        "pci": "0000000F:01:00.0",
        "architecture": 10,
        "vbios": "9A.0B.00.00.00",
        "cuda_cc": "12.1",
        "temperature": 41,
        "power_mw": 11_870,
        "energy_mj": "5000000+11870/s",
        "clock.graphics": 2411,
        "clock.sm": 2411,
        "clock.video": 2110,
        "clock.max.graphics": 3003,
        "clock.max.sm": 3003,
        "util.gpu": 96,
        "util.memory": 0,
        "throttle_mask": "0x0",
        "pstate": 0,
        "gpm_supported": 0,
        "event_types": 0x18,
        "processes": 1,
    }
