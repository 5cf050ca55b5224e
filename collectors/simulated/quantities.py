"""Quantities of the common schema, asked of the model: metric and labels → a function of a device or part.

Values are in the schema's base units. A metric that is not here is not modelled; its raw series get a plausible course
of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from collectors.simulated.board import Board, Unit

Quantity = Callable[[Unit], float]
_Make = Callable[[Mapping[str, str]], Quantity | None]

_ABOVE_DIE: Final = {
    "die": 0.0, "edge": -3.0, "soc": -1.0, "hotspot": 8.0, "vr": 4.0, "board": -12.0, "inlet": -30.0, "outlet": -18.0,
}  # fmt: skip
"""How far each sensor is from the die at full power; nearer to it the less there is to do."""
_PIPES: Final = {"fp64": 0.02, "fp32": 0.35, "fp16": 0.22, "int": 0.15}
_MEMORIES: Final = {"device": 1.0, "host": 0.05, "sram": 0.0005}
_CATEGORIES: Final = 0.18
_FLOPS_PER_UNIT: Final = 7.5e12
_RPM: Final = 6500.0


def _celsius(board: Board, sensor: str) -> float:
    if sensor == "memory":
        return board.celsius + board.data.memory_celsius_above * min(1.0, board.exertion + 0.2)
    away = _ABOVE_DIE.get(sensor, -5.0) * min(1.0, board.exertion + 0.2)
    return max(board.celsius + away, min(board.celsius, 20.0 + board.airflow))


def _temperature(labels: Mapping[str, str]) -> Quantity:
    sensor = labels.get("sensor", "die")
    return lambda unit: _celsius(unit.board, sensor)


def _temperature_limit(labels: Mapping[str, str]) -> Quantity:
    limit = labels.get("limit")
    above = 5.0 if labels.get("sensor") == "memory" else 0.0
    if limit == "shutdown":
        return lambda unit: unit.board.data.shutdown_celsius + above
    if limit == "slowdown":
        return lambda unit: unit.board.data.slowdown_celsius + above
    return lambda unit: unit.board.data.slowdown_celsius + above - 3.0


def _power_limit(labels: Mapping[str, str]) -> Quantity:
    if labels.get("limit") == "min":
        return lambda unit: unit.share * (unit.board.data.min_power_limit_watts or 0.3 * unit.board.limit)
    if labels.get("limit") == "max":
        return lambda unit: unit.share * unit.board.data.max_watts
    return lambda unit: unit.share * unit.board.limit


def _clock(labels: Mapping[str, str]) -> Quantity:
    domain = labels.get("domain")
    if domain == "memory":
        return lambda unit: unit.board.data.memory_clock_mhz * 1e6
    if domain == "media":
        return lambda unit: unit.board.data.media_clock_mhz * 1e6
    return lambda unit: unit.board.clock_mhz * 1e6


def _clock_limit(labels: Mapping[str, str]) -> Quantity:
    if labels.get("domain") in ("memory", "media"):
        return _clock(labels)
    return lambda unit: unit.board.data.core_clock_mhz.max * 1e6


def _memory(part: str) -> _Make:
    def make(labels: Mapping[str, str]) -> Quantity:
        size = _MEMORIES.get(labels.get("memory", "device"), 1.0)
        if part == "total":
            return lambda unit: size * unit.memory_total
        if part == "used":
            return lambda unit: size * unit.memory_used
        if part == "reserved":
            return lambda unit: size * unit.memory_reserved
        return lambda unit: size * (unit.memory_total - unit.memory_reserved - unit.memory_used)

    return make


def _active(reason: str | None) -> Quantity:
    if reason in ("power_cap", "thermal"):
        return lambda unit: float(unit.board.throttled[reason])
    return lambda _: 0.0


def _throttled_seconds(labels: Mapping[str, str]) -> Quantity:
    reason = labels.get("reason", "")
    if reason in ("power_cap", "thermal"):
        return lambda unit: unit.board.throttled_seconds[reason]
    return lambda _: 0.0


def _errors(lifetime: bool) -> _Make:
    def make(labels: Mapping[str, str]) -> Quantity:
        if labels.get("location", "unknown") not in ("hbm", "unknown"):
            return lambda _: 0.0
        if labels.get("correctable") == "false":
            return lambda unit: unit.share * unit.board.trouble.uncorrectable
        past = 2e-7 if lifetime else 0.0
        return lambda unit: unit.share * (unit.board.trouble.correctable + past * unit.board.age)

    return make


def _repairs(labels: Mapping[str, str]) -> Quantity:
    if labels.get("kind", "remapped_row") != "remapped_row" or labels.get("cause") == "correctable":
        return lambda _: 0.0
    return lambda unit: unit.board.trouble.repaired


def _repair_pending(labels: Mapping[str, str]) -> Quantity:
    if labels.get("kind", "remapped_row") != "remapped_row":
        return lambda _: 0.0
    return lambda unit: float(unit.board.trouble.hung)


def _banks(labels: Mapping[str, str]) -> Quantity:
    """Each repair takes a spare row out of a bank that was full."""
    if labels.get("availability") == "max":
        return lambda unit: max(0, unit.board.data.spare_row_banks - unit.board.trouble.repaired)
    if labels.get("availability") == "high":
        return lambda unit: min(unit.board.data.spare_row_banks, unit.board.trouble.repaired)
    return lambda _: 0.0


def _state(label: str, sound: str, failed: str) -> _Make:
    def make(labels: Mapping[str, str]) -> Quantity:
        if labels.get(label) == sound:
            return lambda unit: float(not unit.board.trouble.hung)
        if labels.get(label) == failed:
            return lambda unit: float(unit.board.trouble.hung)
        return lambda _: 0.0

    return make


def _pipe(labels: Mapping[str, str]) -> Quantity:
    share = _PIPES.get(labels.get("pipe", ""), 0.1)
    return lambda unit: share * unit.load.compute


def _category(labels: Mapping[str, str]) -> Quantity:
    # The categories of one device stay below what is used: there are never more than five.
    size = _MEMORIES.get(labels.get("memory", "device"), 1.0) * _CATEGORIES
    return lambda unit: size * unit.memory_used


def _latency(labels: Mapping[str, str]) -> Quantity:
    text = labels.get("percentile", "mean")[1:].replace("_", ".")
    rank = float(text) if text.replace(".", "", 1).isdecimal() else 50.0
    return lambda unit: 0.004 * (1.0 + rank / 40.0) * (1.0 + unit.load.utilization)


def _of(quantity: Quantity) -> _Make:
    return lambda _: quantity


_MAKERS: Final[Mapping[str, _Make]] = {
    "accel_capacity_memory_bytes": _of(lambda unit: unit.board.data.memory_bytes),
    "accel_capacity_compute_units": _of(lambda unit: unit.board.data.compute_units),
    "accel_compute_units": _of(lambda unit: unit.compute_units),
    "accel_ecc_enabled": _of(lambda _: 1.0),
    "accel_temperature_celsius": _temperature,
    "accel_temperature_limit_celsius": _temperature_limit,
    "accel_power_watts": _of(lambda unit: unit.share * unit.board.power),
    "accel_power_limit_watts": _power_limit,
    "accel_energy_joules_total": _of(lambda unit: unit.share * unit.board.energy),
    "accel_fan_speed_ratio": _of(lambda unit: min(1.0, 0.3 + max(0.0, unit.board.celsius - 40.0) / 70.0)),
    "accel_fan_speed_rpm": _of(lambda unit: _RPM * min(1.0, 0.3 + max(0.0, unit.board.celsius - 40.0) / 70.0)),
    "accel_voltage_volts": _of(lambda unit: 0.72 + 0.3 * unit.board.exertion),
    "accel_memory_total_bytes": _memory("total"),
    "accel_memory_used_bytes": _memory("used"),
    "accel_memory_free_bytes": _memory("free"),
    "accel_memory_reserved_bytes": _memory("reserved"),
    "accel_memory_category_bytes": _category,
    "accel_memory_bandwidth_active_ratio": _of(lambda unit: unit.load.bandwidth),
    "accel_memory_read_bytes_total": _of(lambda unit: unit.memory_read),
    "accel_memory_written_bytes_total": _of(lambda unit: unit.memory_written),
    "accel_memory_read_bytes_per_second": _of(lambda unit: 0.7 * unit.load.bandwidth * unit.bandwidth),
    "accel_memory_written_bytes_per_second": _of(lambda unit: 0.3 * unit.load.bandwidth * unit.bandwidth),
    "accel_utilization_ratio": _of(lambda unit: unit.load.utilization),
    "accel_compute_active_ratio": _of(lambda unit: unit.load.compute),
    "accel_compute_occupancy_ratio": _of(lambda unit: 0.55 * unit.load.compute),
    "accel_matrix_active_ratio": _of(lambda unit: unit.load.matrix),
    "accel_pipe_active_ratio": _pipe,
    "accel_media_utilization_ratio": _of(lambda unit: unit.load.media),
    "accel_flops_per_second": _of(lambda unit: unit.load.matrix * unit.compute_units * _FLOPS_PER_UNIT),
    "accel_clock_hertz": _clock,
    "accel_clock_limit_hertz": _clock_limit,
    "accel_throttle_active": lambda labels: _active(labels.get("reason")),
    "accel_throttle_seconds_total": _throttled_seconds,
    "accel_pcie_received_bytes_total": _of(lambda unit: unit.share * unit.board.pcie_in),
    "accel_pcie_sent_bytes_total": _of(lambda unit: unit.share * unit.board.pcie_out),
    "accel_pcie_received_bytes_per_second": _of(lambda unit: unit.share * unit.load.pcie_in * unit.board.pcie_rate),
    "accel_pcie_sent_bytes_per_second": _of(lambda unit: unit.share * unit.load.pcie_out * unit.board.pcie_rate),
    "accel_pcie_errors_total": lambda labels: (
        (lambda unit: unit.board.trouble.uncorrectable) if labels.get("severity") == "fatal" else (lambda _: 0.0)
    ),
    "accel_pcie_replays_total": _of(lambda unit: unit.board.trouble.uncorrectable * 4),
    "accel_pcie_link_width": _of(lambda unit: unit.board.data.pcie_width),
    "accel_pcie_link_max_width": _of(lambda unit: unit.board.data.pcie_width),
    "accel_pcie_link_generation": _of(lambda unit: unit.board.data.pcie_generation if unit.load.utilization > 0 else 1),
    "accel_pcie_link_max_generation": _of(lambda unit: unit.board.data.pcie_generation),
    "accel_interconnect_received_bytes_total": _of(lambda unit: unit.share * unit.board.link_in),
    "accel_interconnect_sent_bytes_total": _of(lambda unit: unit.share * unit.board.link_out),
    "accel_interconnect_received_bytes_per_second": _of(
        lambda unit: unit.share * unit.load.link * unit.board.link_rate
    ),
    "accel_interconnect_sent_bytes_per_second": _of(
        lambda unit: unit.share * unit.load.link * unit.board.link_rate * 0.98
    ),
    "accel_interconnect_errors_total": _of(lambda unit: unit.board.trouble.uncorrectable * 2),
    "accel_interconnect_links": _of(lambda unit: unit.board.data.links),
    "accel_interconnect_links_up": _of(lambda unit: unit.board.data.links),
    "accel_interconnect_link_up": _of(lambda _: 1.0),
    "accel_fabric_state": _state("state", "completed", "failed"),
    "accel_memory_errors_total": _errors(lifetime=False),
    "accel_memory_errors_lifetime_total": _errors(lifetime=True),
    "accel_memory_repairs": _repairs,
    "accel_memory_repair_pending": _repair_pending,
    "accel_memory_repair_failed": _of(lambda _: 0.0),
    "accel_memory_repair_banks": _banks,
    "accel_recovery_action": _state("action", "none", "reset_device"),
    "accel_execution_errors_total": _of(lambda unit: unit.board.trouble.uncorrectable),
    "accel_execution_latency_seconds": _latency,
    "accel_processes": _of(lambda unit: float(unit.memory_used > 0.01 * unit.memory_total)),
    "accel_process_memory_used_bytes": _of(lambda unit: 0.97 * unit.memory_used),
    "accel_container_memory_used_bytes": _of(lambda unit: 0.97 * unit.memory_used),
    "accel_container_utilization_ratio": _of(lambda unit: unit.load.utilization),
    "accel_health_state": _state("state", "healthy", "failed"),
}

DIVIDED: Final = frozenset(
    (
        "accel_pcie_received_bytes_total", "accel_pcie_sent_bytes_total",
        "accel_pcie_received_bytes_per_second", "accel_pcie_sent_bytes_per_second",
        "accel_interconnect_received_bytes_total", "accel_interconnect_sent_bytes_total",
        "accel_interconnect_received_bytes_per_second", "accel_interconnect_sent_bytes_per_second",
        "accel_memory_read_bytes_total", "accel_memory_written_bytes_total",
        "accel_process_memory_used_bytes", "accel_container_memory_used_bytes",
        "accel_flops_per_second",
    )
)  # fmt: skip
"""Where a raw series has labels of its own (links, processes), the device's quantity is shared out among them."""


def quantity(metric: str, labels: Mapping[str, str]) -> Quantity | None:
    """None: the model knows nothing of this metric."""
    maker = _MAKERS.get(metric)
    return maker(labels) if maker else None
