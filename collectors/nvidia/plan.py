"""What one group reads of a GPU: the wanted series, sorted by kind so that each call is made once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import msgspec

from collectors.nvidia import fields
from collectors.nvidia.sources import Call, Field, Gpm, Pick, Rate, Source, Special, Spread, Way
from collectors.nvidia.table import BY_LINK, TABLE

T = TypeVar("T", Call, Field, Gpm, Rate, Special, Spread)
Batches = tuple[tuple[fields.Key, ...], ...]


class Shared(msgspec.Struct, frozen=True):
    """One call and the series that come from its result."""

    ways: tuple[Way, ...]
    outputs: tuple[tuple[str, Pick], ...]


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a group reads, in a fixed order."""

    device_calls: tuple[Shared, ...]
    part_calls: tuple[Shared, ...]
    fields: tuple[tuple[str, Field], ...]
    rates: tuple[tuple[str, Rate], ...]
    batches: Batches
    device_gpm: tuple[tuple[str, Gpm], ...]
    part_gpm: tuple[tuple[str, Gpm], ...]
    fallbacks: tuple[tuple[str, Gpm, Rate], ...]
    """Series of GPM metrics for which counters stand in on GPUs without GPM."""
    fallback_batches: Batches
    spreads: tuple[tuple[str, Spread], ...]
    specials: tuple[tuple[str, Special], ...]


def compile_plan(wanted: frozenset[str], *, by_link: bool = False, processes: bool = False) -> Plan:
    """The plan for the wanted series; those that are not NVML's (they come with DCGM) are left out.

    ``by_link`` reads traffic and state of each NVLink, ``processes`` each process's memory.
    """
    variants = BY_LINK if by_link else {}
    table = {name: source for name, source in {**TABLE, **variants}.items() if name in wanted}
    if not processes:
        table = {name: source for name, source in table.items() if source != Special("process_memory")}
    fallbacks = tuple((name, source, source.fallback) for name, source in _of(table, Gpm) if source.fallback)
    gpm = tuple((name, source) for name, source in _of(table, Gpm) if not source.stand_in)
    rates = _of(table, Rate)
    own_fields = _of(table, Field)
    return Plan(
        device_calls=_shared(_of(table, Call), "device"),
        part_calls=_shared(_of(table, Call), "part"),
        fields=own_fields,
        rates=rates,
        batches=fields.batches(
            [field for _, field in own_fields] + [field for _, rate in rates for field in rate.fields]
        ),
        device_gpm=tuple((name, source) for name, source in gpm if source.level == "device"),
        part_gpm=tuple((name, source) for name, source in gpm if source.level == "part"),
        fallbacks=fallbacks,
        fallback_batches=fields.batches(field for _, _, rate in fallbacks for field in rate.fields),
        spreads=_of(table, Spread),
        specials=_of(table, Special),
    )


def _of(table: dict[str, Source], kind: type[T]) -> tuple[tuple[str, T], ...]:
    return tuple((name, source) for name, source in table.items() if isinstance(source, kind))


def _shared(calls: Iterable[tuple[str, Call]], level: str) -> tuple[Shared, ...]:
    grouped: dict[tuple[Way, ...], list[tuple[str, Pick]]] = {}
    for name, source in calls:
        if source.level == level:
            grouped.setdefault(source.ways, []).append((name, source.pick))
    return tuple(Shared(ways, tuple(outputs)) for ways, outputs in grouped.items())
