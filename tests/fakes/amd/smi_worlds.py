"""What a libamd_smi.so says of the cards of a world. Handles are 0x1000 and up, in the order of the library."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

from tests.fakes.amd import blobs, worlds
from tests.fakes.amd.library import Scenario, Value, number, write
from tests.fakes.amd.wheels import Layout, Wheel
from tests.fakes.amd.worlds import MIB

MAJOR = {"6.4.4": 25, "7.0.2": 26}
_SOCKET = 0x100
FIRST = 0x1000
_SEVERITY = {"non_fatal_uncorrected": 0, "fatal": 1, "non_fatal_corrected": 2}


def handle(index: int) -> int:
    return FIRST + index


def version(scenario: Scenario, wheel: str, major: int, minor: int = 0) -> None:
    """The library's version, laid out as libraries of that major version have it: with a year up to 25."""
    head = (25, major, minor, 1) if major <= 25 else (major, minor, 1, 0)
    scenario.answer(
        "amdsmi_get_lib_version", actions=[write(0, struct.pack("<4I", *head)), f"0@16:{major}.{minor}.{wheel}"]
    )


def _start(wheel: Wheel, handles: Sequence[int]) -> Scenario:
    scenario = Scenario(wheel.layout)
    version(scenario, wheel.version, MAJOR[wheel.version])
    for function in ("amdsmi_init", "amdsmi_shut_down"):
        scenario.answer(function)
    sockets = struct.pack("<Q", _SOCKET)
    scenario.answer("amdsmi_get_socket_handles", actions=[number(0, 1, 4), write(1, sockets)])
    scenario.answer(
        "amdsmi_get_processor_handles",
        _SOCKET,
        actions=[number(1, len(handles), 4), write(2, struct.pack(f"<{len(handles)}Q", *handles))],
    )
    return scenario


def mi300x(wheel: Wheel, cards: int = 2) -> Scenario:
    """Cards that are not cut. Some numbers differ by 1000 from those of sysfs, so that it shows where one came from."""
    scenario = _start(wheel, [handle(i) for i in range(cards)])
    for i in range(cards):
        _identity(scenario, handle(i), worlds.mi300x_bdf(i), i)
        _partition(scenario, handle(i), 0, 10_000 + i, "SPX", "NPS1")
        metrics(scenario, handle(i), worlds.mi300x_fields(i), [worlds.busy(i)])
        _readings(scenario, handle(i), i)
        memory(scenario, handle(i), worlds.MI300X_VRAM, (2000 + 100 * i) * MIB)
    return scenario


def mi300x_cpx(wheel: Wheel) -> Scenario:
    """One card cut into eight. A partition's address has its number where the function's is."""
    scenario = _start(wheel, [handle(n) for n in range(8)])
    for n in range(8):
        _identity(scenario, handle(n), worlds.mi300x_bdf(0)[:-1] + str(n), 0)
        _partition(scenario, handle(n), n, 20_000 + n, "CPX", "NPS4")
        uuid = f"9f{n:02x}74a1-0000-1000-8044-0a1b2c3d4e00"
        scenario.answer("amdsmi_get_gpu_device_uuid", handle(n), actions=[_text(2, uuid)])
        memory(scenario, handle(n), worlds.MI300X_VRAM // 8, (200 + n) * MIB)
    fields = {**worlds.mi300x_fields(0), "num_partition": 8}
    metrics(scenario, handle(0), fields, [worlds.busy(0, n, 1) for n in range(8)])
    _readings(scenario, handle(0), 0)
    return scenario


def metrics(
    scenario: Scenario, at: int, fields: Mapping[str, blobs.Value], parts: Sequence[Mapping[str, blobs.Value]] = ()
) -> None:
    """The table of a card, with all ones for what is not given."""
    name = "amdsmi_gpu_metrics_t"
    known = {field["name"] for field in scenario.layout.structures[name]["fields"]}
    values: dict[str, Value] = {key: value for key, value in fields.items() if key in known}
    values["xcp_stats"] = [dict(part) for part in parts]
    values["common_header"] = {"structure_size": 2208, "format_revision": 1, "content_revision": 7}
    scenario.gives("amdsmi_get_gpu_metrics_info", at, argument=1, structure=name, values=values)


def memory(scenario: Scenario, at: int, total: int, used: int) -> None:
    kinds = scenario.layout.constants
    for kind in ("VRAM", "VIS_VRAM"):
        for function, value in (("total", total), ("usage", used)):
            type_ = kinds[f"AMDSMI_MEM_TYPE_{kind}"]
            scenario.answer(f"amdsmi_get_gpu_memory_{function}", at, type_, actions=[number(2, value, 8)])


def errors(scenario: Scenario, at: int, block: str, correctable: int, uncorrectable: int, deferred: int = 0) -> None:
    values = {
        "correctable_count": correctable,
        "uncorrectable_count": uncorrectable,
        "deferred_count": deferred,
    }
    if block == "total":
        function: tuple[str, tuple[int, ...], int] = ("amdsmi_get_gpu_total_ecc_count", (at,), 1)
    else:
        bit = scenario.layout.constants[f"AMDSMI_GPU_BLOCK_{block}"]
        function = ("amdsmi_get_gpu_ecc_count", (at, bit), 2)
    name, keys, argument = function
    scenario.gives(name, *keys, argument=argument, structure="amdsmi_error_count_t", values=values)


def power(scenario: Scenario, at: int, **values: int) -> None:
    """What a GPU draws. The package of ROCm 6.4 asks another function than those before and after it."""
    name = "amdsmi_power_info_t"
    scenario.gives("amdsmi_get_power_info", at, argument=1, structure=name, values=values)
    scenario.gives("amdsmi_get_power_info_v2", at, argument=2, structure=name, values=values)


def records(scenario: Scenario, at: int, found: Sequence[tuple[str, Sequence[int]]], *, cursor: int = 0) -> None:
    """Error records: severity and AFIDs of each. A record's bytes are its number and one that is negative if signed."""
    name = "amdsmi_cper_hdr_t"
    bodies = []
    for index, (severity, afids) in enumerate(found):
        header = scenario.structure(
            name,
            {
                "record_length": scenario.layout.structures[name]["size"] + 2,
                "error_severity": _SEVERITY[severity],
                "timestamp": {
                    "seconds": 5,
                    "minutes": 4,
                    "hours": 3,
                    "flag": 0,
                    "day": 2,
                    "month": 1,
                    "year": 26,
                    "century": 20,
                },
            },
        )
        bodies.append(header + bytes([index, 0xF0]))
        scenario.answer(
            "amdsmi_get_afids_from_cper",
            actions=[write(2, struct.pack(f"<{len(afids)}Q", *afids)), number(3, len(afids), 4)],
        )
    scenario.answer(
        "amdsmi_get_gpu_cper_entries",
        at,
        actions=[write(2, b"".join(bodies)), number(5, len(found), 8), number(6, cursor + len(found), 8)],
    )


def _identity(scenario: Scenario, at: int, bdf: str, i: int) -> None:
    domain, bus, rest = bdf.split(":")
    slot, function = rest.split(".")
    address = int(domain, 16) << 16 | int(bus, 16) << 8 | int(slot, 16) << 3 | int(function, 16)
    scenario.answer("amdsmi_get_gpu_device_bdf", at, actions=[number(1, address, 8)])
    uuid = f"9fff74a1-0000-1000-8044-0a1b2c3d4e{i:02x}"
    scenario.answer("amdsmi_get_gpu_device_uuid", at, actions=[_text(2, uuid)])
    told: tuple[tuple[str, dict[str, Value]], ...] = (
        (
            "asic",
            {
                "market_name": "AMD Instinct MI300X",
                "vendor_id": 0x1002,
                "vendor_name": "Advanced Micro Devices Inc. [AMD/ATI]",
                "subvendor_id": 0x1002,
                "device_id": 0x74A1,
                "rev_id": 0,
                "asic_serial": f"0x{worlds.unique_id(i):016X}",
                "target_graphics_version": 0x942,
            },
        ),
        (
            "board",
            {
                "model_number": "102-G30211-00",
                "product_serial": f"69230000{i:04d}",
                "fru_id": "113-AMDG302110000",
                "product_name": "AMD Instinct MI300X OAM",
                # Some versions give the vendor's number instead.
                "manufacturer_name": "0x1002" if i % 2 else "AMD",
            },
        ),
        ("driver", {"driver_name": "amdgpu", "driver_version": "6.14.14", "driver_date": "2015/01/01 00:00"}),
        (
            "vbios",
            {
                "name": "MI300X_HW_SRIOV_CVS_1VF",
                "build_date": "2024/08/14 18:12",
                "part_number": "113-M3000100-102",
                "version": "022.040.003.043.000001",
            },
        ),
    )
    for structure, values in told:
        name = f"amdsmi_{structure}_info_t"
        scenario.gives(f"amdsmi_get_gpu_{structure}_info", at, argument=1, structure=name, values=values)
    mode = scenario.layout.constants["AMDSMI_VIRTUALIZATION_MODE_BAREMETAL"]
    scenario.answer("amdsmi_get_gpu_virtualization_mode", at, actions=[number(1, mode, 4)])


def _partition(scenario: Scenario, at: int, partition: int, gpu_id: int, compute: str, memory_mode: str) -> None:
    scenario.gives(
        "amdsmi_get_gpu_kfd_info",
        at,
        argument=1,
        structure="amdsmi_kfd_info_t",
        values={"kfd_id": gpu_id, "node_id": 2, "current_partition_id": partition},
    )
    scenario.answer("amdsmi_get_gpu_compute_partition", at, actions=[_text(1, compute)])
    scenario.answer("amdsmi_get_gpu_memory_partition", at, actions=[_text(1, memory_mode)])


def _readings(scenario: Scenario, at: int, i: int) -> None:
    constants = scenario.layout.constants
    for sensor, celsius in (("HOTSPOT", 60 + i), ("VRAM", 55 + i)):
        type_ = constants[f"AMDSMI_TEMPERATURE_TYPE_{sensor}"]
        for metric, value in (("CURRENT", celsius), ("CRITICAL", 100), ("EMERGENCY", 105)):
            kind = constants[f"AMDSMI_TEMP_{metric}"]
            scenario.answer("amdsmi_get_temp_metric", at, type_, kind, actions=[number(3, value, 8)])
    scenario.gives(
        "amdsmi_get_power_cap_info",
        at,
        0,
        argument=2,
        structure="amdsmi_power_cap_info_t",
        values={
            "power_cap": 700_000_000,
            "default_power_cap": 750_000_000,
            "dpm_cap": 2100,
            "min_power_cap": 0,
            "max_power_cap": 750_000_000,
        },
    )
    for clock, mhz, lowest, highest in (("GFX", 2000, 500, 2100), ("MEM", 1300, 900, 1300), ("DF", 1900, 1200, 2000)):
        scenario.gives(
            "amdsmi_get_clock_info",
            at,
            constants[f"AMDSMI_CLK_TYPE_{clock}"],
            argument=2,
            structure="amdsmi_clk_info_t",
            values={"clk": mhz, "min_clk": lowest, "max_clk": highest},
        )
    for block, correctable in (("UMC", 65535), ("GFX", 2 * i), ("XGMI_WAFL", 1 + i)):
        errors(scenario, at, block, correctable, 0, 3)
    errors(scenario, at, "total", 65535 + 3 * i + 1, 0, 3)
    pages = [(0x12AF3, 4096, 0), (0x12AF4, 4096, 0), (0x12AF5, 4096, 1)]
    scenario.answer(
        "amdsmi_get_gpu_bad_page_info",
        at,
        actions=[number(1, len(pages), 4), write(2, b"".join(struct.pack("<QQI4x", *page) for page in pages))],
    )
    up, down, off = (constants[f"AMDSMI_XGMI_LINK_{state}"] for state in ("UP", "DOWN", "DISABLE"))
    scenario.gives(
        "amdsmi_get_gpu_xgmi_link_status",
        at,
        argument=1,
        structure="amdsmi_xgmi_link_status_t",
        values={"total_links": 8, "status": [off, up, up, up, up, up, up, down]},
    )
    vram: dict[str, Value] = {"vram_type": 1, "vram_size": 196592, "vram_bit_width": 8192, "vram_max_bandwidth": 5300}
    if not _is_text(scenario.layout, "amdsmi_vram_info_t", "vram_vendor"):
        vram["vram_vendor"] = 0
    scenario.gives("amdsmi_get_gpu_vram_info", at, argument=1, structure="amdsmi_vram_info_t", values=vram)


def _is_text(layout: Layout, structure: str, name: str) -> bool:
    return any(field["name"] == name and field["count"] > 1 for field in layout.structures[structure]["fields"])


def _text(argument: int, text: str) -> str:
    return write(argument, text.encode() + b"\0")
