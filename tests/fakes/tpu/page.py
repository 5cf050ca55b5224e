"""The page of GKE's tpu-device-plugin, as its public source writes it and a capture from a 7x node shows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

HELP: Final[Mapping[str, str]] = {
    "duty_cycle": "Percent of time when the TPU was actively processing",
    "duty_cycle_node": "Percent of time when the TPU was actively processing",
    "memory_total": "Total memory available on the TPU in bytes",
    "memory_total_node": "Total memory available on the TPU in bytes",
    "memory_used": "Allocated TPU memory in bytes",
    "memory_used_node": "Allocated TPU memory in bytes",
    "memory_bandwidth_utilization": "Memory bandwidth utilization of the TPU device",
    "memory_bandwidth_utilization_node": "Memory bandwidth utilization of the TPU device per node",
    "tensorcore_utilization": "Tensorcore percent utilization of the TPU device",
    "tensorcore_utilization_node": "Tensorcore percent utilization of the TPU device per node",
    "accelerator_request": "Number of accelerator devices requested by the container",
}


class Board(msgspec.Struct, frozen=True, kw_only=True):
    """What the plugin knows of one chip. ``number`` is libtpu's; None: no container has the chip."""

    number: int | None
    duty: float = 0.0
    used: float = 0.0
    total: float = 0.0
    tensorcore: float = 0.0
    bandwidth: float = 0.0


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """One node's page. The chips stand in the order of their places on the host."""

    chips: Sequence[Board]
    instance: str = "1234567890123456789"
    model: str = "tpu-v6e-slice"
    topology: str = "4x4"
    pod: tuple[tuple[str, str], ...] = (("namespace", "ns"), ("pod", "w-0"), ("container", "vllm-worker"))
    emptied: bool = False
    """Caught in the moment in which the plugin has reset the node's gauges."""


def text(node: Node) -> str:
    """The page: a container's series have libtpu's numbers, the hardware's have places, and there are phantoms."""
    rows: dict[str, list[tuple[str, float]]] = {name: [] for name in HELP}

    def add(name: str, number: int, value: float, *, pod: bool = False) -> None:
        labels = {
            "accelerator_id": f"{node.instance}-{number}", "make": "cloud-tpu", "model": node.model,
            "tpu_topology": node.topology, **dict(node.pod if pod else ()),
        }  # fmt: skip
        inner = ",".join(f'{key}="{value}"' for key, value in sorted(labels.items()))
        rows[name].append((f"{name}{{{inner}}}", value))

    bound = {board.number for board in node.chips}
    for place, board in enumerate(node.chips):
        for name, value in (("duty_cycle", board.duty), ("memory_used", board.used), ("memory_total", board.total)):
            if board.number is not None:
                add(name, board.number, value, pod=True)
                if not node.emptied:
                    add(f"{name}_node", board.number, value)
        if place not in bound and not node.emptied:
            add("duty_cycle_node", place, 0)
        for name, value in (
            ("tensorcore_utilization", board.tensorcore), ("memory_bandwidth_utilization", board.bandwidth),
        ):  # fmt: skip
            if bound - {None}:
                add(name, place, value, pod=True)
            if not node.emptied:
                add(f"{name}_node", place, value)
    count = sum(board.number is not None for board in node.chips)
    if count:
        inner = ",".join(
            f'{key}="{value}"' for key, value in sorted({**dict(node.pod), "resource_name": "google.com/tpu"}.items())
        )
        rows["accelerator_request"].append((f"accelerator_request{{{inner}}}", count))
    lines = []
    for name, found in rows.items():
        if found:
            lines += [f"# HELP {name} {HELP[name]}", f"# TYPE {name} gauge"]
            lines += [f"{series} {value:g}" if value < 1e6 else f"{series} {value:.12g}" for series, value in found]
    lines += ["# TYPE go_goroutines gauge", "go_goroutines 34", "process_cpu_seconds_total 5699.87"]
    return "\n".join(lines) + "\n"
