"""How each raw series is read: what is asked of HLML, of hl-smi's table or of sysfs, and what becomes of the answer.

The order of a series' ways is the preference. Enumerations are those of hlml.h.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

import msgspec

from collectors.gaudi import sysfs

Number = int | float
Kind = Literal[
    "number", "wide", "pair", "memory", "utilization", "violation", "rows",
    "column", "attribute", "pci", "sensor", "power",
]  # fmt: skip
"""number to rows: HLML by the type of its result. column: a field of hl-smi. attribute, pci: a file of the driver, of
the PCI function. sensor, power: hwmon."""


class Ask(msgspec.Struct, frozen=True):
    """One question to one device. Equal ones are asked once in a sample."""

    kind: Kind
    name: str = ""
    arguments: tuple[int, ...] = ()


class Way(msgspec.Struct, frozen=True):
    """A question, and how the series' value comes out of the answer; None: the answer says that there is none."""

    ask: Ask
    pick: Callable[[Any], Number | None]


SOC: Final = 0
ON_AIP, ON_BOARD, HBM, VRM = 0, 1, 3, 4
SHUTDOWN, SLOWDOWN, MEM_MAX, GPU_MAX = 0, 1, 2, 3
TX, RX = 0, 1
POWER, THERMAL = 0, 1
MULTI_SINGLE_BIT, DOUBLE_BIT = 0, 1


def _same(answer: Any) -> Number | None:
    found: Number | None = answer
    return found


def positive(answer: Any) -> Number | None:
    """A quantity of a device that runs is never 0: there 0 is how firmware says that it has no figure."""
    return answer if answer > 0 else None


def _number(name: str, *arguments: int, pick: Callable[[Any], Number | None] = _same) -> Way:
    return Way(Ask("number", f"hlml_device_get_{name}", arguments), pick)


def _wide(name: str, *arguments: int, pick: Callable[[Any], Number | None] = _same) -> Way:
    return Way(Ask("wide", f"hlml_device_get_{name}", arguments), pick)


def _column(name: str, pick: Callable[[Any], Number | None] = _same) -> Way:
    return Way(Ask("column", name), pick)


def _attribute(name: str, pick: Callable[[str], Number | None]) -> Way:
    return Way(Ask("attribute", name), pick)


def _pci(name: str, pick: Callable[[str], Number | None]) -> Way:
    return Way(Ask("pci", name), pick)


def _sensor(kind: str) -> Way:
    return Way(Ask("sensor", kind), positive)


def _positive_text(text: str) -> Number | None:
    return sysfs.whole(text) or None


def _total(answer: tuple[int, int]) -> Number | None:
    return answer[0] or None


def _used(answer: tuple[int, int]) -> Number | None:
    """Of a memory that has a size: the idle device keeps some of it, so nothing used is no reading."""
    return (answer[1] or None) if answer[0] else None


def _free(answer: tuple[int, int]) -> Number | None:
    """HLML's own figure may be made anew from the others; the vendor's exporter makes it so, too."""
    total, used = answer
    return total - used if total >= used > 0 else None


def _first(answer: tuple[int, int]) -> Number | None:
    return answer[0]


def _limit(place: int) -> Callable[[tuple[int, int]], Number | None]:
    return lambda answer: answer[place] or None


def _bit(answer: Any) -> Number | None:
    """A switch: 0 or 1, else no reading."""
    return answer if answer in (0, 1) else None


_MEMORY: Final = Ask("memory")
_POWER: Final = (
    _number("power_usage", pick=positive),
    _column("power.draw", positive),
    Way(Ask("power"), positive),
)
_CLOCK: Final = (
    _number("clock_info", SOC, pick=positive),
    _column("clocks.current.soc", positive),
    _attribute("clk_cur_freq_mhz", _positive_text),
)
_UTILIZATION: Final = (Way(Ask("utilization"), _same), _column("utilization.aip"))
_ON_CHIP: Final = (
    _sensor("onchip"),
    _number("temperature", ON_AIP, pick=positive),
    _column("temperature.aip", positive),
)
_MEMORY_TOTAL: Final = (Way(_MEMORY, _total), _column("memory.total", positive))
_MEMORY_USED: Final = (Way(_MEMORY, _used), _column("memory.used", positive))
_RECEIVED: Final = (_number("pcie_throughput", RX),)
_SENT: Final = (_number("pcie_throughput", TX),)

TABLE: Final[Mapping[str, tuple[Way, ...]]] = {
    "habanalabs_clock_soc_mhz": _CLOCK,
    "habanalabs_clock_soc_max_mhz": (
        _number("max_clock_info", SOC, pick=positive),
        _column("clocks.max.soc", positive),
        _attribute("clk_max_freq_mhz", _positive_text),
    ),
    "habanalabs_x_clocks_throttle_reasons": (_wide("current_clocks_throttle_reasons"),),
    "habanalabs_utilization": _UTILIZATION,
    "habanalabs_memory_total_bytes": _MEMORY_TOTAL,
    "habanalabs_memory_used_bytes": _MEMORY_USED,
    "habanalabs_memory_free_bytes": (Way(_MEMORY, _free), _column("memory.free")),
    "habanalabs_power_mW": _POWER,
    "habanalabs_x_power_limit_mW": (
        _number("power_management_limit", pick=positive),
        _attribute("max_power", _positive_text),
    ),
    "habanalabs_power_default_limit_mW": (_number("power_management_default_limit", pick=positive),),
    "habanalabs_x_power_limit_min_mW": (
        Way(Ask("pair", "hlml_device_get_power_management_limit_constraints"), _limit(0)),
    ),
    "habanalabs_x_power_limit_max_mW": (
        Way(Ask("pair", "hlml_device_get_power_management_limit_constraints"), _limit(1)),
    ),
    "habanalabs_energy": (_wide("total_energy_consumption", pick=positive),),
    "habanalabs_temperature_onchip": _ON_CHIP,
    "habanalabs_temperature_onboard": (_sensor("onboard"), _number("temperature", ON_BOARD, pick=positive)),
    "habanalabs_x_temperature_hbm": (_sensor("hbm"), _number("temperature", HBM, pick=positive)),
    "habanalabs_x_temperature_vrm": (_sensor("vrm"), _number("temperature", VRM, pick=positive)),
    "habanalabs_temperature_threshold_shutdown": (_number("temperature_threshold", SHUTDOWN, pick=positive),),
    "habanalabs_temperature_threshold_slowdown": (_number("temperature_threshold", SLOWDOWN, pick=positive),),
    "habanalabs_temperature_threshold_memory": (_number("temperature_threshold", MEM_MAX, pick=positive),),
    "habanalabs_temperature_threshold_gpu": (_number("temperature_threshold", GPU_MAX, pick=positive),),
    "habanalabs_pcie_rx": _RECEIVED,
    "habanalabs_pcie_receive_throughput": _RECEIVED,
    "habanalabs_pcie_tx": _SENT,
    "habanalabs_pcie_transmit_throughput": _SENT,
    "habanalabs_pcie_replay_count": (_number("pcie_replay_counter"),),
    "habanalabs_pci_link_speed": (_pci("current_link_speed", sysfs.speed),),
    "habanalabs_pci_link_width": (
        _pci("current_link_width", sysfs.width),
        _number("curr_pcie_link_width", pick=positive),
        _column("pcie.link.width.current", positive),
    ),
    "habanalabs_x_pcie_link_max_width": (
        _pci("max_link_width", sysfs.width),
        _column("pcie.link.width.max", positive),
    ),
    "habanalabs_x_pcie_link_generation": (
        _pci("current_link_speed", sysfs.generation),
        _column("pcie.link.gen.current", positive),
    ),
    "habanalabs_x_pcie_link_max_generation": (
        _pci("max_link_speed", sysfs.generation),
        _column("pcie.link.gen.max", positive),
    ),
    "habanalabs_ecc_feature_mode": (
        Way(Ask("pair", "hlml_device_get_ecc_mode"), _first),
        _column("ecc.mode.current", _bit),
    ),
    "habanalabs_pending_rows_with_single_bit_ecc_errors": (Way(Ask("rows", "", (MULTI_SINGLE_BIT,)), _same),),
    "habanalabs_pending_rows_with_double_bit_ecc_errors": (Way(Ask("rows", "", (DOUBLE_BIT,)), _same),),
    "habanalabs_pending_rows_state": (_number("replaced_rows_pending_status", pick=_bit),),
    "habanalabs_x_hard_resets_total": (_attribute("hard_reset_cnt", sysfs.whole),),
    "accelerator_gpu_utilization": _UTILIZATION,
    "accelerator_memory_total_bytes": _MEMORY_TOTAL,
    "accelerator_memory_used_bytes": _MEMORY_USED,
    "accelerator_power_usage_watts": _POWER,
    "accelerator_temperature_celcius": _ON_CHIP,
    "accelerator_sm_clock_hertz": _CLOCK,
}
"""Raw series without labels of their own."""

VIOLATIONS: Final[Mapping[str, Ask]] = {
    "power": Ask("violation", "", (POWER,)),
    "thermal": Ask("violation", "", (THERMAL,)),
}
"""Policy → question for habanalabs_x_violation_nanoseconds_total."""

ERRORS: Final[Mapping[str, int]] = {"true": 0, "false": 1}
"""Whether it was corrected → hlml_memory_error_type: CORRECTED, UNCORRECTED."""
PLACES: Final[Mapping[str, int]] = {"sram": 0, "hbm": 1}
"""hlml_memory_location_type: SRAM, DRAM. ALL (2, since 1.22) is their sum and is not asked for."""


class EccSeries(msgspec.Struct, frozen=True):
    """A series of ECC errors: HLML's counter, and hl-smi's fields by whether the error was corrected."""

    name: str
    counter: int
    """hlml_ecc_counter_type: VOLATILE, AGGREGATE."""
    columns: Mapping[str, str]


ECC: Final = (
    EccSeries(
        "habanalabs_x_ecc_errors_volatile_total",
        0,
        {"true": "ecc.errors.corrected.volatile.total", "false": "ecc.errors.uncorrected.volatile.total"},
    ),
    EccSeries(
        "habanalabs_x_ecc_errors_aggregate_total",
        1,
        {"true": "ecc.errors.corrected.aggregate.total", "false": "ecc.errors.uncorrected.aggregate.total"},
    ),
)
DRAM_ECC: Final[Mapping[str, Mapping[str, str]]] = {
    "habanalabs_x_ecc_dram_errors_volatile_total": {
        "true": "ecc.errors.dram-corrected.volatile.total",
        "false": "ecc.errors.dram.volatile.total",
    },
    "habanalabs_x_ecc_dram_errors_aggregate_total": {
        "true": "ecc.errors.dram-corrected.aggregate.total",
        "false": "ecc.errors.dram.aggregate.total",
    },
}
"""Series → hl-smi's fields by whether the error was corrected."""


def columns(wanted: frozenset[str]) -> tuple[str, ...]:
    """The fields of hl-smi that these series need."""
    found = [way.ask.name for name in TABLE if name in wanted for way in TABLE[name] if way.ask.kind == "column"]
    found += [column for each in ECC if each.name in wanted for column in each.columns.values()]
    found += [column for name, fields in DRAM_ECC.items() if name in wanted for column in fields.values()]
    return tuple(dict.fromkeys(found))
