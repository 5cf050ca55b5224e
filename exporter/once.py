"""Commands that read the node once and print: ``once`` and ``devices``."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

import msgspec

from collectors.base import Device
from exporter.agent import Agent
from exporter.config.otlp import OtlpEndpoint, receivers
from exporter.exposition import BodyRequest, Exposition
from exporter.families import Family, Publication, parse_labels
from exporter.model import Number
from exporter.negotiation import Format
from exporter.program import Program
from exporter.schema import SENSORS
from exporter.selfmetrics import SelfMetrics

SchemaChoice = Literal["common", "raw", "all"]
OutputFormat = Literal["prometheus", "openmetrics", "json", "otlp-json"]


class Reached(msgspec.Struct, frozen=True):
    """What a node gave within the time."""

    agent: Agent
    publication: Publication


async def reach(program: Program, wait: float, metrics: SelfMetrics) -> Reached:
    """Start the collectors, and stop them when each was tried and, ``wait`` seconds later, sampled again.

    Rates and ratios over an interval need the second sample.
    """
    faster = msgspec.structs.replace(program.config.intervals, fast=wait / 2, normal=wait / 2) if wait > 0 else None
    config = msgspec.structs.replace(program.config, intervals=faster) if faster else program.config
    agent = Agent(config, program.members, metrics)
    agent.start()
    try:
        await agent.settled()
        await asyncio.sleep(wait)
        return Reached(agent, agent.publication)
    finally:
        # The publication stays; the runners keep their last snapshots for those who print them.
        await agent.stop()


def once(program: Program, output: OutputFormat, schema: SchemaChoice | None, wait: float) -> int:
    """Print what a scrape would see, or a receiver of OTLP. Exit code 1 if no collector gave anything.

    ``schema``: None for all, and with OTLP for what the first receiver of the configuration is sent.
    """
    return asyncio.run(_once(program, output, schema, wait))


async def _once(program: Program, output: OutputFormat, schema: SchemaChoice | None, wait: float) -> int:
    metrics = SelfMetrics()
    metrics.reload_success.set(1)
    metrics.reload_time.set_to_current_time()
    began = time.time_ns()
    reached = await reach(program, wait, metrics)
    publication = reached.publication
    if output == "json":
        families = [family for family in publication.families if schema in (None, "all", family.schema)]
        json.dump({"node": program.config.node, "families": list(map(_family, families))}, sys.stdout, indent=1)
        print()
    elif output == "otlp-json":
        print(await _otlp(program, publication, metrics, schema, began))
    else:
        format_ = Format.OPENMETRICS if output == "openmetrics" else Format.TEXT
        exposition = Exposition(lambda wanted: metrics.text(openmetrics=wanted is Format.OPENMETRICS))
        request = BodyRequest(format=format_, schema=None if schema is None or schema == "all" else schema)
        body = await exposition.body(publication, request)
        sys.stdout.write(body.content.decode())
    sys.stdout.flush()
    # A card on the bus counts as present even if nothing can be read of it.
    if reached.agent.found:
        return 0
    print("accel-exporter: nothing was read; 'accel-exporter doctor' tells why", file=sys.stderr)
    return 1


async def _otlp(
    program: Program, publication: Publication, metrics: SelfMetrics, schema: SchemaChoice | None, began: int
) -> str:
    from exporter.otlp.service import preview, selection

    first = next(iter(receivers(program.config.otlp)), OtlpEndpoint())
    chosen = selection(first)
    if schema is not None:
        chosen = msgspec.structs.replace(chosen, schema="both" if schema == "all" else schema)
    return await preview(program.config, metrics, publication, chosen, began)


def _family(family: Family) -> dict[str, object]:
    return {
        "name": family.name,
        "type": family.type,
        "help": family.help,
        "schema": family.schema,
        "samples": [
            {"labels": parse_labels(prefix), "value": value}
            for block in family.blocks
            for prefix, value in zip(block.prefixes, block.values, strict=True)
        ],
    }


def devices(program: Program, output: Literal["table", "json"], wait: float) -> int:
    """Print the devices that were found, with their state and main facts. Exit code 1 if there are none."""
    reached = asyncio.run(reach(program, wait, SelfMetrics()))
    values = _values(reached.publication)
    rows = [_row(vendor, device, values) for vendor, device in reached.agent.found]
    if output == "json":
        json.dump(rows, sys.stdout, indent=1)
        print()
    elif rows:
        print(table(rows))
    if not rows:
        print("accel-exporter: no device was found; 'accel-exporter doctor' tells why", file=sys.stderr)
    return 0 if rows else 1


Values = dict[tuple[str, str, str], list[tuple[dict[str, str], Number]]]
"""(metric, uuid, partition) → labels and value of its series."""


def _values(publication: Publication) -> Values:
    found: Values = {}
    for family in publication.families:
        if family.schema != "common":
            continue
        for block in family.blocks:
            for prefix, value in zip(block.prefixes, block.values, strict=True):
                labels = parse_labels(prefix)
                key = (family.name, labels.get("uuid", ""), labels.get("partition", ""))
                found.setdefault(key, []).append((labels, value))
    return found


def _row(vendor: str, device: Device, values: Values) -> dict[str, object]:
    def value(metric: str, **labels: str) -> Number | None:
        for found, number in values.get((metric, device.uuid, device.partition), ()):
            if labels.items() <= found.items():
                return number
        return None

    told = (value("accel_temperature_celsius", sensor=sensor) for sensor in SENSORS)
    health = [
        labels["state"] for labels, number in values.get(("accel_health_state", device.uuid, ""), ()) if number == 1
    ]
    return {
        "vendor": vendor,
        "device": device.index,
        "partition": device.partition,
        "model": device.model,
        "uuid": device.uuid,
        "pci_bus_id": device.pci_bus_id,
        "health": health[0] if health else "",
        "memory_used_bytes": value("accel_memory_used_bytes", memory="device"),
        "memory_total_bytes": value("accel_memory_total_bytes", memory="device"),
        "utilization_ratio": value("accel_utilization_ratio"),
        "compute_active_ratio": value("accel_compute_active_ratio"),
        "temperature_celsius": next((degrees for degrees in told if degrees is not None), None),
        "power_watts": value("accel_power_watts"),
    }


def table(rows: Sequence[dict[str, object]]) -> str:
    """Columns for a person: what a device does not tell is a dash."""
    head = ("VENDOR", "DEVICE", "PARTITION", "MODEL", "HEALTH", "UTIL", "ACTIVE", "MEMORY", "TEMP", "POWER", "UUID")
    lines = [head, *(tuple(_cells(row)) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def _cells(row: dict[str, object]) -> Iterable[str]:
    for name in ("vendor", "device", "partition", "model", "health"):
        yield str(row[name] or "-")
    for name in ("utilization_ratio", "compute_active_ratio"):
        yield _shown(row[name], lambda value: f"{value:.0%}")
    used = _shown(row["memory_used_bytes"], lambda value: f"{value / 2**30:.1f}")
    yield f"{used}/{_shown(row['memory_total_bytes'], lambda value: f'{value / 2**30:.1f} GiB')}"
    yield _shown(row["temperature_celsius"], lambda value: f"{value:.0f} °C")
    yield _shown(row["power_watts"], lambda value: f"{value:.0f} W")
    yield str(row["uuid"])


def _shown(value: object, write: Callable[[float], str]) -> str:
    return write(value) if isinstance(value, int | float) else "-"
