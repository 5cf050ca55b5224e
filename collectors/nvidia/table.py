"""Every raw series that NVML can give, and how.

Names, ids and units are dcgm-exporter's (etc/default-counters.csv) and DCGM's (dcgm_fields.h).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

from collectors.nvidia import picks, queries
from collectors.nvidia.rates import dcgm_megabytes
from collectors.nvidia.sources import ALL_LINKS, Call, Field, Gpm, Pick, Rate, Source, Special, Spread, Way

_DEV: Final = "DCGM_FI_DEV_"
_PROF: Final = "DCGM_FI_PROF_"
_OWN: Final = "nvml_"
_LINKS: Final = 18
"""Links that have series of their own, L0 to L17."""
EVENT_REASONS: Final[tuple[Way, ...]] = (
    ("nvmlDeviceGetCurrentClocksEventReasons", ()),
    ("nvmlDeviceGetCurrentClocksThrottleReasons", ()),
)
"""Why clocks are low; the second is the symbol before R535."""
MEMORY: Final[tuple[Way, ...]] = (("nvmlDeviceGetMemoryInfo", (0x02000028,)), ("nvmlDeviceGetMemoryInfo", ()))
"""Version 2 of the structure, then version 1, which has no reserved and counts it as used."""
LINK_STATES: Final[tuple[Way, ...]] = ((queries.link_states, ()),)
_LINK_COUNTERS: Final = (("REPLAY", 0), ("RECOVERY", 1), ("CRC_FLIT", 2), ("CRC_DATA", 3))
"""``nvmlNvLinkErrorCounter_t``."""


def _call(function: str, *arguments: int, pick: Pick = picks.integer) -> Call:
    return Call(((function, arguments),), pick)


def _sensors() -> Iterator[tuple[str, Source]]:
    for name, function, kind in (
        ("SM_CLOCK", "nvmlDeviceGetClockInfo", 1),
        ("MEM_CLOCK", "nvmlDeviceGetClockInfo", 2),
        ("VIDEO_CLOCK", "nvmlDeviceGetClockInfo", 3),
        ("APP_SM_CLOCK", "nvmlDeviceGetApplicationsClock", 1),
        ("APP_MEM_CLOCK", "nvmlDeviceGetApplicationsClock", 2),
        ("MAX_SM_CLOCK", "nvmlDeviceGetMaxClockInfo", 1),
        ("MAX_MEM_CLOCK", "nvmlDeviceGetMaxClockInfo", 2),
        ("MAX_VIDEO_CLOCK", "nvmlDeviceGetMaxClockInfo", 3),
    ):
        yield name, _call(function, kind)
    # The second of each pair is the older symbol.
    yield (
        "GPU_TEMP",
        Call((("nvmlDeviceGetTemperatureV", (0,)), ("nvmlDeviceGetTemperature", (0,))), picks.temperature),
    )
    yield "MEMORY_TEMP", Field(82, pick=picks.memory_temperature)
    for name, threshold in (("SHUTDOWN_TEMP", 0), ("SLOWDOWN_TEMP", 1), ("MEM_MAX_OP_TEMP", 2), ("GPU_MAX_OP_TEMP", 3)):
        yield name, _call("nvmlDeviceGetTemperatureThreshold", threshold, pick=picks.temperature)
    yield "GPU_TEMP_LIMIT", Call(((queries.margin_temperature, ()),), picks.margin)
    yield "POWER_USAGE", _call("nvmlDeviceGetPowerUsage", pick=picks.milliwatts)
    yield "POWER_USAGE_INSTANT", Field(186, pick=picks.milliwatts)
    yield "TOTAL_ENERGY_CONSUMPTION", _call("nvmlDeviceGetTotalEnergyConsumption", pick=picks.counter)
    yield "POWER_MGMT_LIMIT", _call("nvmlDeviceGetPowerManagementLimit", pick=picks.milliwatts)
    for name, pick in (
        ("POWER_MGMT_LIMIT_MIN", picks.first_milliwatts),
        ("POWER_MGMT_LIMIT_MAX", picks.second_milliwatts),
    ):
        yield name, _call("nvmlDeviceGetPowerManagementLimitConstraints", pick=pick)
    yield "POWER_MGMT_LIMIT_DEF", _call("nvmlDeviceGetPowerManagementDefaultLimit", pick=picks.milliwatts)
    yield "ENFORCED_POWER_LIMIT", _call("nvmlDeviceGetEnforcedPowerLimit", pick=picks.milliwatts)
    yield "FAN_SPEED", _call("nvmlDeviceGetFanSpeed")
    yield "PSTATE", _call("nvmlDeviceGetPerformanceState", pick=lambda state: state if state < 16 else None)


def _activity() -> Iterator[tuple[str, Source]]:
    yield "GPU_UTIL", _call("nvmlDeviceGetUtilizationRates", pick=picks.attribute("gpu"))
    yield "MEM_COPY_UTIL", _call("nvmlDeviceGetUtilizationRates", pick=picks.attribute("memory"))
    yield "ENC_UTIL", _call("nvmlDeviceGetEncoderUtilization", pick=picks.first)
    yield "DEC_UTIL", _call("nvmlDeviceGetDecoderUtilization", pick=picks.first)
    for name in ("CLOCKS_EVENT_REASONS", "CLOCK_THROTTLE_REASONS"):
        yield name, Call(EVENT_REASONS, picks.counter)
    for name, field in (
        ("POWER_VIOLATION", 74),
        ("THERMAL_VIOLATION", 75),
        ("SYNC_BOOST_VIOLATION", 76),
        ("BOARD_LIMIT_VIOLATION", 77),
        ("LOW_UTIL_VIOLATION", 78),
        ("RELIABILITY_VIOLATION", 79),
        ("TOTAL_APP_CLOCKS_VIOLATION", 80),
        ("TOTAL_BASE_CLOCKS_VIOLATION", 81),
        ("CLOCKS_EVENT_REASON_SW_POWER_CAP_NS", 74),
        ("CLOCKS_EVENT_REASON_SYNC_BOOST_NS", 76),
        ("CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN_NS", 269),
        ("CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN_NS", 270),
        ("CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN_NS", 271),
    ):
        yield name, Field(field)


def _memory() -> Iterator[tuple[str, Source]]:
    # On a MIG instance through its own handle.
    yield "FB_TOTAL", Call(MEMORY, picks.mebibytes("total"), "part")
    yield "FB_FREE", Call(MEMORY, picks.mebibytes("free"), "part")
    yield "FB_USED", Call(MEMORY, picks.mebibytes("used"), "part")
    yield "FB_RESERVED", Call(MEMORY, picks.mebibytes("reserved"), "part")
    yield "FB_USED_PERCENT", Call(MEMORY, picks.used_ratio, "part")
    for name in ("Total", "Used", "Free"):
        window = picks.mebibytes(f"bar1{name}")
        yield f"BAR1_{name.upper()}", Call((("nvmlDeviceGetBAR1MemoryInfo", ()),), window, "part")


def _memory_errors() -> Iterator[tuple[str, Source]]:
    yield "ECC_CURRENT", _call("nvmlDeviceGetEccMode", pick=picks.first)
    yield "ECC_PENDING", _call("nvmlDeviceGetEccMode", pick=picks.second)
    for field, name in enumerate(("SBE_VOL", "DBE_VOL", "SBE_AGG", "DBE_AGG"), start=3):
        yield f"ECC_{name}_TOTAL", Field(field, family="ecc")
    for kind, error in enumerate(("SBE", "DBE")):
        for since, window in enumerate(("VOL", "AGG")):
            for location, place in enumerate(("L1", "L2", "DEV", "REG", "TEX", "SHM", "CBU", "SRM")):
                yield (
                    f"ECC_{error}_{window}_{place}",
                    _call("nvmlDeviceGetMemoryErrorCounter", kind, since, location, pick=picks.counter),
                )
    yield "THRESHOLD_SRM", Call(((queries.sram_threshold, ()),), picks.integer)
    yield "RETIRED_SBE", Call(((queries.retired_pages, (0,)),), picks.integer)
    yield "RETIRED_DBE", Field(30)
    yield "RETIRED_PENDING", Field(31)
    # nvmlDeviceGetRemappedRows gives these four at once, but not with MIG on.
    yield "CORRECTABLE_REMAPPED_ROWS", Field(142)
    yield "UNCORRECTABLE_REMAPPED_ROWS", Field(143)
    yield "ROW_REMAP_PENDING", Field(144)
    yield "ROW_REMAP_FAILURE", Field(145)
    for name in ("max", "high", "partial", "low", "none"):
        yield (
            f"BANKS_REMAP_ROWS_AVAIL_{name.upper()}",
            _call("nvmlDeviceGetRowRemapperHistogram", pick=picks.attribute(name)),
        )
    yield "MEMORY_UNREPAIRABLE_FLAG", Call(((queries.unrepairable_memory, ()),), picks.integer)
    yield "GET_GPU_RECOVERY_ACTION", Field(230)


def _pcie() -> Iterator[tuple[str, Source]]:
    yield "PCIE_REPLAY_COUNTER", _call("nvmlDeviceGetPcieReplayCounter")
    yield "PCIE_LINK_GEN", _call("nvmlDeviceGetCurrPcieLinkGeneration")
    yield "PCIE_LINK_WIDTH", _call("nvmlDeviceGetCurrPcieLinkWidth")
    yield "PCIE_MAX_LINK_GEN", _call("nvmlDeviceGetMaxPcieLinkGeneration")
    yield "PCIE_MAX_LINK_WIDTH", _call("nvmlDeviceGetMaxPcieLinkWidth")
    yield "PCIE_COUNT_CORRECTABLE_ERRORS", Field(173)


def _nvlink() -> Iterator[tuple[str, Source]]:
    for (name, counter), field in zip(_LINK_COUNTERS, (52, 59, 38, 45), strict=True):
        by_link = Call(((queries.link_errors, (counter,)),), picks.counter)
        yield f"NVLINK_{name}_ERROR_COUNT_TOTAL", Field(field, fallback=by_link)
    for name, field in (("REPLAY", 161), ("RECOVERY", 162), ("CRC", 163)):
        by_link = Call(((queries.link_field_sum, (field,)),), picks.counter)
        yield f"NVLINK_ERROR_DL_{name}", Field(field, ALL_LINKS, fallback=by_link)
    yield "NVLINK_ECC_DATA_ERROR_COUNT_TOTAL", Field(160)
    for direction, fields in (("", (138, 139)), ("TX_", (138,)), ("RX_", (139,))):
        for link in range(-1, _LINKS):
            scope, suffix = (ALL_LINKS, "TOTAL") if link < 0 else (link, f"L{link}")
            counters = tuple(Field(field, scope, family="nvlink") for field in fields)
            yield f"NVLINK_{direction}BANDWIDTH_{suffix}", Rate(counters, dcgm_megabytes)
    for name, field in (
        ("TX_PACKETS", 201),
        ("TX_BYTES", 202),
        ("RX_PACKETS", 203),
        ("RX_BYTES", 204),
        ("RX_MALFORMED_PACKET_ERRORS", 206),
        ("RX_BUFFER_OVERRUN_ERRORS", 207),
        ("RX_ERRORS", 208),
        ("RX_REMOTE_ERRORS", 209),
        ("RX_GENERAL_ERRORS", 210),
        ("LOCAL_LINK_INTEGRITY_ERRORS", 211),
        ("TX_DISCARDS", 212),
        ("LINK_RECOVERY_SUCCESSFUL_EVENTS", 213),
        ("LINK_RECOVERY_FAILED_EVENTS", 214),
        ("LINK_RECOVERY_EVENTS", 215),
        ("EFFECTIVE_ERRORS", 219),
        ("RX_SYMBOL_ERRORS", 221),
    ):
        by_link = Call(((queries.link_field_sum, (field,)),), picks.counter)
        yield f"NVLINK_COUNT_{name}", Field(field, ALL_LINKS, family="nvlink5", fallback=by_link)
    for name, field in (("EFFECTIVE", 220), ("SYMBOL", 222)):
        yield f"NVLINK_COUNT_{name}_BER", Field(field, ALL_LINKS, family="nvlink5")
        yield (
            f"NVLINK_COUNT_{name}_BER_FLOAT",
            Field(field, ALL_LINKS, picks.link_error_rate, family="nvlink5"),
        )


def _fabric() -> Iterator[tuple[str, Source]]:
    newest: Way = (queries.fabric, (0x03000028,))
    older: Way = (queries.fabric, (0x02000024,))
    oldest: Way = (queries.fabric, (0,))
    yield "FABRIC_MANAGER_STATUS", Call((newest, older, oldest), picks.fabric_status)
    yield "FABRIC_MANAGER_ERROR_CODE", Call((newest, older, oldest), picks.fabric_error)
    yield "FABRIC_CLIQUE_ID", Call((newest, older, oldest), picks.attribute("cliqueId"))
    yield "FABRIC_HEALTH_MASK", Call((newest, older), picks.attribute("healthMask"))
    yield "FABRIC_HEALTH_SUMMARY", Call((newest,), lambda info: int(info.healthSummary) or None)
    for name, field in (
        ("LINK_COUNT", 170),
        ("LINK_STATUS", 171),
        ("MAX_BANDWIDTH", 172),
        ("LINK_ERROR_INTR", 231),
        ("LINK_ERROR_REPLAY", 232),
        ("LINK_ERROR_REPLAY_B2B", 233),
        ("LINK_POWER_STATE", 234),
    ):
        yield f"C2C_{name}", Field(field, family="c2c")


def _profiling() -> Iterator[tuple[str, Source]]:
    for name, metric in (
        ("GR_ENGINE_ACTIVE", 1),
        ("SM_ACTIVE", 2),
        ("SM_OCCUPANCY", 3),
        ("PIPE_INT_ACTIVE", 4),
        ("PIPE_TENSOR_ACTIVE", 5),
        ("PIPE_TENSOR_DFMA_ACTIVE", 6),
        ("PIPE_TENSOR_HMMA_ACTIVE", 7),
        ("PIPE_TENSOR_IMMA_ACTIVE", 9),
        ("DRAM_ACTIVE", 10),
        ("PIPE_FP64_ACTIVE", 11),
        ("PIPE_FP32_ACTIVE", 12),
        ("PIPE_FP16_ACTIVE", 13),
    ):
        yield name, Gpm(metric, picks.percent_ratio, "part")
    for engine, metric, count in (("NVDEC", 30, 8), ("NVJPG", 40, 8), ("NVOFA", 50, 2)):
        for unit in range(count):
            yield f"{engine}{unit}_ACTIVE", Gpm(metric + unit, picks.percent_ratio)
    for name, source in _pcie_traffic(stand_in=False):
        yield f"PCIE_{name}_BYTES", source
    yield "NVLINK_TX_BYTES", Gpm(61, picks.mebibytes_to_bytes)
    yield "NVLINK_RX_BYTES", Gpm(60, picks.mebibytes_to_bytes)
    for link in range(_LINKS):
        yield f"NVLINK_L{link}_TX_BYTES", Gpm(63 + 2 * link, picks.mebibytes_to_bytes)
        yield f"NVLINK_L{link}_RX_BYTES", Gpm(62 + 2 * link, picks.mebibytes_to_bytes)
    for name, metric in (("TX_ALL", 100), ("RX_ALL", 101), ("TX_DATA", 102), ("RX_DATA", 103)):
        yield f"C2C_{name}_BYTES", Gpm(metric, picks.mebibytes_to_bytes)
    caches = ("HOSTMEM_CACHE_HIT", "HOSTMEM_CACHE_MISS", "PEERMEM_CACHE_HIT", "PEERMEM_CACHE_MISS")
    for metric, name in enumerate(caches, start=160):
        yield name, Gpm(metric, picks.whole)
    for metric, name in enumerate(
        (
            "SM_CYCLES_ELAPSED",
            "SM_CYCLES_ACTIVE",
            "MMA_CYCLES_ACTIVE",
            "DMMA_CYCLES_ACTIVE",
            "HMMA_CYCLES_ACTIVE",
            "IMMA_CYCLES_ACTIVE",
            "DFMA_CYCLES_ACTIVE",
            "PCIE_TX_BYTES",
            "PCIE_RX_BYTES",
            "INT_CYCLES_ACTIVE",
            "FP64_CYCLES_ACTIVE",
            "FP32_CYCLES_ACTIVE",
            "FP16_CYCLES_ACTIVE",
        ),
        start=248,
    ):
        yield f"{name}_TOTAL", Gpm(metric, picks.whole)


def _pcie_traffic(*, stand_in: bool) -> Iterator[tuple[str, Gpm]]:
    """The rates by direction. Counters of the driver are trusted once they show that they are wider than 32 bits:

    one of 32 wraps in less than a second at full speed, so its increase over seconds would be any number.
    """
    for direction, metric, field, kind in (("TX", 20, 197, 0), ("RX", 21, 198, 1)):
        measured = Call((("nvmlDeviceGetPcieThroughput", (kind,)),), picks.kilobytes_to_bytes)
        counted = Rate((Field(field),), picks.whole, measured, least=1 << 32)
        yield direction, Gpm(metric, picks.mebibytes_to_bytes, fallback=counted, stand_in=stand_in)


def _own() -> Iterator[tuple[str, Source]]:
    """What NVML tells and dcgm-exporter does not."""
    yield "temperature_tlimit_celsius", Spread(((queries.temperature_limits, ()),), "threshold")
    yield "fan_speed_percent", Spread(((queries.fans, ()),), "fan")
    yield "memory_total_bytes", Call(MEMORY, lambda memory: int(memory.total), "part")
    yield "memory_capacity_bytes", Call(MEMORY, lambda memory: int(memory.total))
    yield "compute_units", Call((("nvmlDeviceGetAttributes", ()),), picks.instance_units, "part")
    yield "processes", Special("processes")
    yield "process_memory_used_bytes", Special("process_memory")
    for engine, function in (("jpeg", "nvmlDeviceGetJpgUtilization"), ("ofa", "nvmlDeviceGetOfaUtilization")):
        yield f"{engine}_utilization_percent", _call(function, pick=picks.first)
    for direction, source in _pcie_traffic(stand_in=True):
        yield f"pcie_{direction.lower()}_bytes_per_second", source
    yield "pcie_nonfatal_errors_total", Field(179)
    yield "pcie_fatal_errors_total", Field(180)
    for name, field in (("sent", 138), ("received", 139)):
        by_link = Call(((queries.link_field_sum, (field,)),), picks.counter)
        yield f"nvlink_{name}_kibibytes_total", Field(field, ALL_LINKS, family="nvlink", fallback=by_link)
    yield "nvlink_links", Call(LINK_STATES, len)
    yield "nvlink_links_up", Call(LINK_STATES, sum)


def _build() -> dict[str, Source]:
    table: dict[str, Source] = {}
    for section in (_sensors, _activity, _memory, _memory_errors, _pcie, _nvlink, _fabric):
        table.update((_DEV + name, source) for name, source in section())
    table.update((_PROF + name, source) for name, source in _profiling())
    table.update((_OWN + name, source) for name, source in _own())
    table[_DEV + "VGPU_LICENSE_STATUS"] = _call("nvmlDeviceGetGridLicensableFeatures_v4", pick=picks.vgpu_license)
    table[_DEV + "XID_ERRORS"] = Special("xid")
    table["DCGM_EXP_XID_ERRORS_COUNT"] = Special("xid_count")
    table["DCGM_EXP_CLOCK_EVENTS_COUNT"] = Special("clock_events")
    table["DCGM_EXP_P2P_STATUS"] = Special("p2p")
    return table


TABLE: Final[Mapping[str, Source]] = MappingProxyType(_build())
"""Series name → how to read it."""


def _by_link() -> Iterator[tuple[str, Source]]:
    yield _OWN + "nvlink_link_up", Spread(LINK_STATES, "link", picks.numbered)
    for name, field in (("sent", 138), ("received", 139)):
        yield f"{_OWN}nvlink_{name}_kibibytes_total", Spread(((queries.link_fields, (field,)),), "link")
    for name, counter in _LINK_COUNTERS:
        yield f"{_DEV}NVLINK_{name}_ERROR_COUNT_TOTAL", Spread(((queries.errors_by_link, (counter,)),), "nvlink")
    for name, field in (
        ("ERROR_DL_REPLAY", 161),
        ("ERROR_DL_RECOVERY", 162),
        ("ERROR_DL_CRC", 163),
        ("COUNT_TX_BYTES", 202),
        ("COUNT_RX_BYTES", 204),
        ("COUNT_RX_ERRORS", 208),
        ("COUNT_LOCAL_LINK_INTEGRITY_ERRORS", 211),
        ("COUNT_TX_DISCARDS", 212),
        ("COUNT_LINK_RECOVERY_EVENTS", 215),
        ("COUNT_RX_SYMBOL_ERRORS", 221),
    ):
        yield f"{_DEV}NVLINK_{name}", Spread(((queries.link_fields, (field,)),), "nvlink")


BY_LINK: Final[Mapping[str, Source]] = MappingProxyType(dict(_by_link()))
"""What is read differently, or besides, under the option ``links: each``: all that the common schema has by link."""
