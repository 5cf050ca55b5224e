"""Boards with two dies (MI250), of which the driver gives the first all power and energy, and the second zeros."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from collectors.amd.cards import Card
from collectors.amd.gpu_metrics import GpuMetrics


def pairs(
    cards: Sequence[Card], metrics: Callable[[Card], GpuMetrics], same: Callable[[Card, Card], bool]
) -> dict[int, Card]:
    """Position of a first die → its second.

    Which die is a second one, its zeros tell; whose, nobody does: the nearest before it on the bus that is of the same
    kind is taken. The sum over all is right in any case.
    """
    found: dict[int, Card] = {}
    firsts: list[Card] = []
    for card in cards:
        table = metrics(card)
        watts, steps = table.number("average_socket_power"), table.number("energy_accumulator")
        if watts and steps:
            firsts.append(card)
        elif watts == 0 and steps == 0:
            first = next((die for die in reversed(firsts) if same(die, card)), None)
            if first is not None:
                firsts.remove(first)
                found[first.position] = card
    return found
