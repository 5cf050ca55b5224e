"""The standard worlds of the DCGM tests. Values follow formulas in the GPU's index, and differ within a GPU."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Final

from tests.fakes.dcgm.world import CPU, CPU_CORE, GPU, GPU_CI, GPU_I, LINK, NONE, SWITCH, VGPU, Value, World
from tests.fakes.nvml.gpus import NVLINKS, pci, uuid

H100: Final = 0x48100000
A100: Final = 0xA1000000
DRIVER: Final = "580.95.05"
TOTAL: Final = 81559
"""MiB of an H100."""
NO_INSTANCE: Final = 0xFFFFFFFF
RATIOS: Final = (*range(1001, 1009), *range(1013, 1017))
"""Profiling ratios of a MIG instance, too."""
RATES: Final = (1009, 1010, 1011, 1012)

_REAL: Final = {155, 157, *range(160, 165), 254, *range(1001, 1009), *range(1013, 1035), 1216, 1218, 1612}
_REAL_CPU: Final = {*range(1100, 1105), *range(1110, 1113), *range(1130, 1134)}
_OF_PARTS: Final = {90, 92, 93, 230, *range(250, 255), *range(1001, 1005), *range(1006, 1009), *range(1013, 1017)}
_OF_GPUS: Final = {
    52, 53, 55, 57, 67, *range(100, 103), *range(110, 116), 140, *range(150, 165), *range(170, 176), 190, 191,
    *range(202, 208), *range(235, 239), *range(240, 248), 285, 286, 287, 300, 301, *range(310, 347),
    *range(385, 397), 409, 419, 429, 439, *range(440, 450), *range(475, 481), *range(494, 500), *range(825, 844),
    *range(879, 898), 1009, 1010, 1011, 1012, *range(1017, 1097), *range(1200, 1220), *range(1400, 1404),
    *range(1420, 1425), 1501, 1507, 1523,
}  # fmt: skip
_OF_SWITCHES: Final = {701, 705, 706, 707, *range(856, 863), 864}
_OF_LINKS: Final = {*range(780, 789), 870, 1532, 1533}


def fields() -> dict[int, tuple[int, str]]:
    """Field → level and type, as DCGM 4.6.0 knows them."""
    found = {1: (NONE, "s"), 50: (GPU_CI, "s"), 54: (GPU_CI, "s"), 1503: (NONE, "i"), 526: (VGPU, "i")}
    for level, numbers in ((GPU, _OF_GPUS), (GPU_CI, _OF_PARTS), (SWITCH, _OF_SWITCHES), (LINK, _OF_LINKS)):
        found |= {number: (level, "d" if number in _REAL else "i") for number in numbers}
    found |= {number: (CPU_CORE if number < 1110 else CPU, "d") for number in _REAL_CPU}
    return found | {1005: (GPU_I, "d")}


def empty(engine: str = "4.6.0", library: str = "") -> World:
    """An engine without GPUs, of this version, and a library of the same or another."""
    own = library or engine
    major = own.split(".")[0]
    versions = {"engine": engine, f"library{major}": own}
    return World(system={"epoch": time.time(), **versions}, metas=fields())


def h100(gpus: int = 2, engine: str = "4.6.0", library: str = "") -> World:
    """A Hopper node. GPU i: 50+i °C, 310.5+i W, 10000+100i MiB used, 90+i % utilization, SM active 0.6+0.01i."""
    world = empty(engine, library)
    for i in range(gpus):
        world = identified(world, i, H100, "NVIDIA H100 80GB HBM3", TOTAL)
        world = world.with_values((GPU, i), {**_common(i), **memory(TOTAL, 479, 10_000 + 100 * i), **_hopper(i)})
        world = world.with_values((GPU, i), ratios(i))
        world = world.with_lines(("metrics", i, 1, 0, *RATIOS, *RATES), ("links", GPU, i, "3" * NVLINKS))
    return world.with_values((NONE, 0), {1503: 5})


def identified(world: World, i: int, board: int, name: str, total: int) -> World:
    """One GPU more, with its facts. The minor number is not DCGM's id."""
    return world.with_gpu(
        i,
        name=name,
        pci=pci(i),
        uuid=uuid(board, i),
        serial=str(1650000000100 + i),
        vbios=f"96.00.A5.00.{i:02X}",
        driver=DRIVER,
        brand="Tesla",
        inforom="G520.0200.00.05",
        fb_total_mib=total,
    ).with_values((GPU, i), {52: i, 55: i ^ 1, 67: 0})


def _common(i: int) -> dict[int, Value]:
    """What every generation tells."""
    return {
        100: 1980 - 15 * i, 101: 2619, 102: 1500 + i, 110: 1980, 111: 2619, 112: 4, 113: 1985, 114: 2620, 115: 1545,
        140: 60 + i, 150: 50 + i, 155: 310.5 + i, 157: 320.25 + i, 156: f"{10**12 + 10**9 * i}+{310_500 + 1000 * i}/s",
        160: 690.0, 161: 200.0, 162: 700.0, 163: 695.0, 164: 680.0, 190: 0,
        202: 7 + i, 203: 90 + i, 204: 40 + i, 206: 3, 207: 4 + i, 235: 5, 236: 16, 237: 4, 238: 16,
        240: 10**9 * (1 + i), 241: 2 * 10**9, 242: 0, 243: 0, 244: 0, 245: 3 * 10**9,
        300: 1, 301: 1, 310: 10 + i, 311: 0, 312: 20 + i, 313: 1, 526: 0,
    }  # fmt: skip


def _hopper(i: int) -> dict[int, Value]:
    return {
        393: 1 + i, 394: 2 + i, 395: 0, 396: 0, 385: 640, 386: 0, 387: 1, 388: 0, 389: 0, 170: 3, 171: 0, 1523: 0,
        409: 1, 419: 2, 429: 3, 439: 4, 449: 5000 + i, 1501: 6 + i,
    }  # fmt: skip


def memory(total: int, reserved: int, used: int) -> dict[int, Value]:
    """MiB."""
    return {
        250: total,
        251: total - reserved - used,
        252: used,
        253: reserved,
        254: used / (total - reserved),
        90: 131072,
        92: 1,
        93: 131071,
    }


def ratios(i: int, share: float = 1.0) -> dict[int, Value]:
    """Profiling ratio n of 1001, 1002, … is 0.5 + 0.01 n of the whole, for each GPU 0.001 more; rates in bytes."""
    found: dict[int, Value] = {number: ratio(number, i) * share for number in RATIOS}
    return found | {number: (number - 1008) * 10**9 + i for number in RATES}


def ratio(number: int, i: int) -> float:
    return round(0.5 + 0.01 * (number - 1000) + 0.001 * i, 6)


def a100_mig(engine: str = "4.6.0") -> World:
    """GPU 0 is cut: instances 1 (3g.20gb, two compute instances), 7 (1g.5gb), 9 (no compute instance). GPU 1 is whole.

    DCGM's ids of the instances are not NVML's: they are 0, 1, 2.
    """
    world = empty(engine)
    for i in range(2):
        world = identified(world, i, A100, "NVIDIA A100-SXM4-40GB", 40960)
        world = world.with_values((GPU, i), {**_common(i), 67: int(i == 0), 393: 0, 394: 0, 395: 0})
        world = world.with_lines(("metrics", i, 1, 0, *RATIOS, *RATES))
    world = world.with_values((GPU, 0), dict.fromkeys((203, 204, 206, 207, *range(250, 255)), "not_supported"))
    world = world.with_values((GPU, 0), dict.fromkeys(RATES, 10**9))
    world = world.with_values((GPU, 1), {**memory(40960, 500, 700), **ratios(1)})
    for entity, gi, profile, slices, name, size in (
        (0, 1, 9, 3, "3g.20gb", 20096),
        (1, 7, 19, 1, "1g.5gb", 4864),
        (2, 9, 19, 1, "1g.5gb", 4864),
    ):
        world = world.with_lines(("mig", GPU_I, entity, GPU, 0, 0, gi, NO_INSTANCE, profile, slices))
        world = world.with_values((GPU_I, entity), {**memory(size, 0, 100 + gi), **ratios(0, 1 / (1 + gi)), 50: name})
        world = world.with_values((GPU_I, entity), dict.fromkeys((100, 150), 7))
        computes = {0: (0, 1), 1: (0,), 2: ()}[entity]
        for ci in computes:
            compute = (GPU_CI, 10 * entity + ci, GPU_I, entity, 0, gi, ci, 0, 1)
            world = world.with_lines(("mig", *compute))
    return world


def dgx(engine: str = "4.6.0") -> World:
    """NVSwitch 0 with four links and 1 with three, link 1 of each down; two GPUs with four links, the last one down."""
    world = h100(2, engine).without_lines("links")
    for switch in (0, 1):
        world = world.with_lines(("entity", SWITCH, switch), ("links", SWITCH, switch, "3233"[: 4 - switch]))
        world = world.with_values(
            (SWITCH, switch), {858: 40 + switch, 705: 80 + switch, 856: "blank", 861: f"{10**6 * (1 + switch)}+1000/s"}
        )
        for link in range(4):
            world = world.with_values((LINK, link_id(SWITCH, switch, link)), {780: 100 * switch + link, 870: 2})
    for i in (0, 1):
        world = world.with_lines(("links", GPU, i, "3332"))
        for link in range(4):
            world = world.with_values((LINK, link_id(GPU, i, link)), {1532: 1000 * i + link, 1533: 2000 * i + link})
    return world


def link_id(group: int, parent: int, link: int) -> int:
    """As DCGM 4.3 and newer number a link."""
    return group | link << 8 | parent << 24


def gb200(engine: str = "4.6.0") -> World:
    """Two GPUs, and two Grace CPUs of two cores."""
    world = h100(2, engine)
    for cpu in (0, 1):
        world = world.with_lines(("entity", CPU, cpu), ("cores", cpu, 2 * cpu, 2))
        world = world.with_values((CPU, cpu), {1110: 45.5 + cpu, 1111: 95.0, 1130: 120.5 + cpu, 1131: 300.0})
        for core in (2 * cpu, 2 * cpu + 1):
            world = world.with_values((CPU_CORE, core), {1100: 0.25 + 0.1 * core, 1103: 0.05})
    return world


def t4() -> World:
    """Turing: ratios through the profiling module, in two groups that share counters; no row remapping, no NVLink."""
    world = identified(empty("4.4.1"), 0, 0x74000000, "Tesla T4", 15360)
    world = world.with_values((GPU, 0), {**_common(0), **memory(15360, 300, 2000), **ratios(0), 140: 0})
    return world.with_lines(("metrics", 0, 1, 0, 1001, 1002, 1003, 1005, 1009, 1010), ("metrics", 0, 1, 1, 1004, 1006))


def with_incident(world: World, system: int, health: int, code: int, entity: tuple[int, int]) -> World:
    return world.with_lines(("incident", system, health, code, *entity))


def all_of(world: World, entities: Iterable[tuple[int, int]], number: int, value: Value, status: int = 0) -> World:
    """One field of several entities."""
    for entity in entities:
        world = world.with_values(entity, {number: value}, status)
    return world
