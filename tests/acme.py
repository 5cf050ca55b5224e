"""The vendor that does not exist, for tests of the core: its tables, and snapshots of its devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from collectors.base import Device, Group, Labels
from exporter.catalogue import Catalogue, load
from exporter.families import Publication
from exporter.model import GroupSample, Key, Number, Snapshot

FOLDER: Final = Path(__file__).parent / "fakes" / "acme" / "acme_accel"
MAX_AGE: Final[Mapping[Group, float]] = {"fast": 3.0, "normal": 15.0, "slow": 180.0}

Row = tuple[str, int, Number] | tuple[str, int, Number, Labels]


def catalogue() -> Catalogue:
    return load(FOLDER, "acme_accel")


def device(index: str, partition: str = "") -> Device:
    labels: Labels = (("slot", index), ("UUID", f"ACME-{index}"))
    if partition:
        labels = (*labels, ("part", partition))
    return Device(uuid=f"ACME-{index}", index=index, partition=partition, kind="npu", model="A1", raw_labels=labels)


def sample(rows: Sequence[Row], at: float = 100.0, lost: Sequence[int] = ()) -> GroupSample:
    return GroupSample(
        layout=tuple(Key(row[0], row[1], row[3] if len(row) == 4 else ()) for row in rows),
        values=tuple(row[2] for row in rows),
        taken_at=1_000_000.0 + at,
        taken_monotonic=at,
        duration=0.01,
        lost=frozenset(lost),
    )


def snapshot(
    devices: Sequence[Device], groups: Mapping[Group, GroupSample], generation: int = 1, name: str = "acme"
) -> Snapshot:
    return Snapshot(
        collector=name,
        vendor="acme",
        generation=generation,
        devices=tuple(devices),
        groups=groups,
        lost=frozenset().union(*(found.lost for found in groups.values())),
    )


def series(publication: Publication) -> dict[str, Number]:
    """Everything in a publication: text of the series → value. Fails on a series that stands there twice."""
    found: dict[str, Number] = {}
    for family in publication.families:
        for block in family.blocks:
            for text, value in zip(block.prefixes, block.values, strict=True):
                assert text not in found, f"{text} is there twice"
                assert text.startswith((family.name + "{", family.name + " ")), f"{text} stands in {family.name}"
                found[text.rstrip()] = value
    return found
