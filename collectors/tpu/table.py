"""Which of libtpu's metrics gives which raw series. The names are those of its metric service and of GKE's plugin."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

DUTY: Final = "tpu.runtime.tensorcore.dutycycle.percent"
TOTAL: Final = "tpu.runtime.hbm.memory.total.bytes"
USED: Final = "tpu.runtime.hbm.memory.usage.bytes"
FREE_SERIES: Final = "libtpu_memory_free_bytes"

BASICS: Final = frozenset((DUTY, TOTAL, USED))
"""What a libtpu has that is too old to list what it has."""

Fold = Literal["max", "min", "mean", "memory"]


class PerDevice(msgspec.Struct, frozen=True, kw_only=True):
    """A metric with one value for each device that the runtime knows."""

    metric: str
    series: tuple[str, ...]
    fold: Fold
    """How the values of a chip become one where the runtime knows it as several devices."""
    percent: bool = False


class PerNode(msgspec.Struct, frozen=True, kw_only=True):
    """A metric of the workload as a whole. ``labels``: attributes that become labels."""

    metric: str
    series: str
    """Of a histogram, without _bucket, _sum and _count."""
    labels: tuple[str, ...] = ()
    statistic: Literal["value", "mean", "histogram"] = "value"
    identified: bool = True
    """Carries make, model and tpu_topology, as in the plugin."""


class Alarm(msgspec.Struct, frozen=True, kw_only=True):
    """A metric that is 1 while something is wrong with what the chips work for."""

    metric: str
    series: str
    labels: Mapping[str, str]
    """Attribute → label."""


# A chip was busy if one of its cores was, at least so long; it is idle since the last of them was busy.
PER_DEVICE: Final = (
    PerDevice(metric=DUTY, series=("duty_cycle", "duty_cycle_node"), fold="max", percent=True),
    PerDevice(metric=TOTAL, series=("memory_total", "memory_total_node"), fold="memory"),
    PerDevice(metric=USED, series=("memory_used", "memory_used_node"), fold="memory"),
    PerDevice(
        metric="tpu.runtime.hbm.utilization.percent",
        series=("libtpu_hbm_utilization_percent",),
        fold="mean",
        percent=True,
    ),
    PerDevice(
        metric="tpu.runtime.tensorcore.idle_duration.seconds",
        series=("libtpu_tensorcore_idle_duration_seconds",),
        fold="min",
    ),
)

ALARMS: Final = (
    # A label `type` would be taken for a word of the scrape's target.
    Alarm(
        metric="slice.error.detected.gauge",
        series="libtpu_slice_error_detected",
        labels={"type": "slice_error_type", "topology": "topology"},
    ),
    Alarm(
        metric="megascale.error.detected.gauge",
        series="libtpu_megascale_error_detected",
        labels={"error_type": "error_type"},
    ),
)


def _latency(series: str, metric: str, *labels: str) -> PerNode:
    return PerNode(
        metric=f"megascale.{metric}.microsecond.cumulative.distribution",
        series=f"{series}_microsecond",
        labels=labels,
        statistic="histogram",
    )


def _size(series: str, metric: str, *labels: str) -> PerNode:
    return PerNode(
        metric=f"{metric}.cumulative.distribution", series=f"{series}_bytes", labels=labels, statistic="histogram"
    )


_OF_PROCESS: Final = ("device_ordinal", "core_type")

PER_NODE: Final = (
    PerNode(
        metric="tpu.runtime.uptime.seconds.gauge",
        series="libtpu_uptime_seconds",
        labels=("ml_framework_name", "ml_framework_version"),
        identified=False,
    ),
    PerNode(metric="hlo.queue.size.gauge", series="libtpu_hlo_queue_size", labels=_OF_PROCESS, identified=False),
    PerNode(
        metric="hlo.execution.timing.distribution.microseconds",
        series="libtpu_hlo_execution_mean_microseconds",
        labels=_OF_PROCESS,
        statistic="mean",
        identified=False,
    ),
    *(
        PerNode(metric=f"megascale.grpc_tcp_{what}.cumulative.count", series=f"grpc_tcp_{what}_count")
        for what in (
            "packets_sent", "packets_retransmitted", "packets_spurious_retransmitted", "recurring_retransmits",
            "bytes_sent", "bytes_retransmitted", "syscall_writes", "syscall_reads",
        )
    ),
    *(
        PerNode(metric=f"bamm2_bits_{what}.cumulative.count", series=f"bamm2_bits_{what}_count")
        for what in ("sent", "received", "read", "written", "written_with_imm")
    ),
    _latency("dcn_transfer_latencies", "dcn_transfer_latencies", "buffer_size", "type"),
    _latency("dcn_inbound_transfer_latencies", "dcn_inbound_transfer_latencies", "buffer_size", "type"),
    _latency("compute_latencies", "mxla_compute_latencies", "buffer_size"),
    _latency("grpc_client_call_latencies", "grpc_client_call_latencies", "buffer_size"),
    _latency("grpc_server_call_latencies", "grpc_server_call_latencies", "buffer_size"),
    _latency("host_to_device_transfer_latencies", "host_to_device_transfer_latencies", "buffer_size"),
    _latency("device_to_host_transfer_latencies", "device_to_host_transfer_latencies", "buffer_size"),
    _latency("collective_end_to_end_latencies", "collective_end_to_end_latencies", "input_size", "collective_type"),
    _latency("grpc_tcp_min_round_trip_times", "grpc_tcp_min_rtt"),
    PerNode(
        metric="megascale.grpc_tcp_delivery_rate.Mbps.cumulative.distribution",
        series="grpc_tcp_delivery_rates_Mbps",
        statistic="histogram",
    ),
    _size("grpc_tcp_write_sizes", "megascale.grpc_tcp_write_size"),
    _size("grpc_tcp_read_sizes", "megascale.grpc_tcp_read_size"),
    _latency("grpc_tcp_sender_latencies", "grpc_tcp_sender_latency"),
    _latency("grpc_tcp_transfer_latencies", "grpc_tcp_transfer_latency", "transfer_size"),
    _size("dcn_inbound_transfer_sizes", "dcn_inbound_transfer_size.bytes", "type"),
    _size("dcn_transfer_sizes", "dcn_transfer_size.bytes", "type"),
    _size("collective_input_sizes", "collective_input_size.bytes", "collective_type", "execution_type"),
    _size("mxla_compute_operand_sizes", "mxla_compute_operand_size.bytes"),
    _size("device_to_host_transfer_sizes", "device_to_host_transfer_size.bytes"),
    _size("host_to_device_transfer_sizes", "host_to_device_transfer_size.bytes"),
)  # fmt: skip

HISTOGRAM: Final = ("_bucket", "_sum", "_count")


def needed(wanted: frozenset[str]) -> frozenset[str]:
    """The metrics to ask for, so that these series can be given."""
    found = {item.metric for item in PER_DEVICE if wanted & set(item.series)}
    found |= {alarm.metric for alarm in ALARMS if alarm.series in wanted}
    for item in PER_NODE:
        names = {item.series + end for end in HISTOGRAM} if item.statistic == "histogram" else {item.series}
        if wanted & names:
            found.add(item.metric)
    if FREE_SERIES in wanted:
        found |= {TOTAL, USED}
    if found & {USED}:
        # Whether a chip's devices are to be summed is seen in their totals.
        found.add(TOTAL)
    return frozenset(found)
