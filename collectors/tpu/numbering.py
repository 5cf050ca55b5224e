"""Which chip a device number means.

libtpu numbers the devices of a whole slice: a second host can have 4 to 7, another one 8, 9, 12 and 13. So the numbers
of one host are taken together and ranked: the first is that of the first chip. That the two orders agree is an
assumption which no document confirms. Where the count of numbers does not fit the chips, none is placed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from collectors.tpu.chips import Chip
from collectors.tpu.table import Fold

_HALF: Final = 0.75
"""A device that has less than this of a chip's memory is a part of the chip."""


def place(numbers: Collection[int], chips: Sequence[Chip]) -> dict[int, int] | None:
    """Device number → index of its chip. None where their count fits neither the chips nor these chips' devices."""
    if not numbers or not chips:
        return {}
    devices, left = divmod(len(numbers), len(chips))
    most = min(chip.generation.devices for chip in chips)
    if left or not 1 <= devices <= most:
        return None
    return {number: chips[rank // devices].index for rank, number in enumerate(sorted(numbers))}


def duty_has_own_numbers(duty: Collection[int], memory: Collection[int], chips: Sequence[Chip]) -> bool:
    """v2 and v3: there is one duty cycle for each chip and one memory for each of its two cores, in two numberings."""
    old = all(chip.generation.name in ("v2", "v3") for chip in chips)
    return old and len(duty) == len(chips) and len(memory) == 2 * len(chips)


class Numbers:
    """The numbers that one workload's runtime has shown: a metric that leaves one out for a while moves no other."""

    def __init__(self) -> None:
        self._known: frozenset[int] = frozenset()
        self._met = -1

    def all(self, seen: frozenset[int], connections: int, most: int) -> frozenset[int]:
        """What was seen now and what was known before, unless that is of another workload. ``most`` fit the chips."""
        if connections != self._met:
            self._known, self._met = frozenset(), connections
        together = self._known | seen
        self._known = together if len(together) <= most else seen
        return self._known


def fold(values: Sequence[float], how: Fold, totals: Sequence[float], hbm: int) -> float | None:
    """One value for a chip out of those of its devices. None: it cannot be known.

    Memory is summed if each device has its part of it; some versions tell the whole chip's for each device, and then it
    is the same number twice.
    """
    if len(values) == 1:
        return values[0]
    if how == "max":
        return max(values)
    if how == "min":
        return min(values)
    if how == "mean":
        return sum(values) / len(values)
    if len(totals) != len(values):
        return None
    return sum(values) if max(totals) < _HALF * hbm else max(values)


def ranks(
    bound: Collection[int], free: Collection[int], local: Collection[int], chips: int
) -> Mapping[int, int] | None:
    """Of the plugin's numbers of workloads' devices, each one's place on the host. None: it cannot be known.

    ``bound`` are the numbers that a container has, slice-wide; ``free`` those that stand on series of the node alone;
    ``local`` those of the host's own numbering; ``chips`` how many there are, 0 if that is not known. A number that is
    not in the result stands for nothing: the plugin gives zeros for local numbers that it does not find among the bound
    ones.
    """
    count = chips or (max(local) + 1 if local else 0) or len(bound) or len(free)
    slice_wide = bound or free
    everything = {*bound, *free}
    if bound and len(bound) == count:
        return {number: rank for rank, number in enumerate(sorted(bound))}
    if all(number < count for number in everything):
        return {number: number for number in everything}
    if len(slice_wide) == count:
        return {number: rank for rank, number in enumerate(sorted(slice_wide))}
    return None
