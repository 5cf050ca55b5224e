"""neuron-ls: PCI addresses, the logical NeuronCore configuration and the topology. Run at discovery only.

It opens every device, and before SDK 2.28 two of them at once made each other fail.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from collectors.neuron import formats, programs

DEADLINE: Final = 15.0
MAX_BYTES: Final = 4 * 2**20
_MOST_CORES: Final = 64


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One device, as neuron-ls has it. What it does not tell is 0 or empty."""

    bdf: str = ""
    numa_node: str = ""
    cores: int = 0
    """Logical ones."""
    core_ids: tuple[int, ...] = ()
    """Their node-wide indexes."""
    lnc: int = 0
    memory_bytes: int = 0
    neighbours: int | None = None


class _In(msgspec.Struct):
    neuron_device: int
    bdf: str | None = None
    numa_node: str | int | None = None
    connected_to: list[int] | None = None
    nc_count: int | None = None
    logical_neuroncore_config: int | None = None
    memory_size: int | None = None
    neuroncore_ids: list[int] | None = None


def look(program: str, deadline: float = DEADLINE) -> tuple[Mapping[int, Entry], str]:
    """Device → what neuron-ls says, and why it said nothing."""
    outcome = programs.run([program, "--json-output"], deadline, MAX_BYTES)
    if outcome.trouble:
        return {}, f"neuron-ls: {outcome.trouble}"
    found = parse(outcome.stdout)
    if not found:
        return {}, f"neuron-ls ended with exit code {outcome.code}: {outcome.stderr or 'no device in its output'}"
    return found, ""


def parse(text: bytes) -> Mapping[int, Entry]:
    """The JSON list. Entries that are not understood are left out; empty if it is no list at all."""
    try:
        rows = msgspec.json.decode(text, type=list[msgspec.Raw])
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return {}
    found: dict[int, Entry] = {}
    for row in rows:
        try:
            device = msgspec.json.decode(row, type=_In)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            continue
        if 0 <= device.neuron_device < 1000:
            found[device.neuron_device] = _entry(device)
    return found


def _entry(device: _In) -> Entry:
    cores = device.nc_count or 0
    ids = tuple(number for number in device.neuroncore_ids or () if number >= 0)
    numa = str(device.numa_node) if device.numa_node is not None else ""
    return Entry(
        bdf=formats.pci_address(device.bdf or ""),
        numa_node=numa if numa.isdecimal() else "",
        cores=cores if 0 < cores <= _MOST_CORES else 0,
        core_ids=ids if len(set(ids)) == len(ids) else (),
        lnc=lnc if 0 < (lnc := device.logical_neuroncore_config or 0) <= _MOST_CORES else 0,
        memory_bytes=max(0, device.memory_size or 0),
        neighbours=len(device.connected_to) if device.connected_to is not None else None,
    )
