"""Which readings there are: every wanted series of every device or part, with its labels and its course."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Final, Literal

import msgspec

from collectors.base import NODE, Group, Labels
from collectors.simulated.board import Board, Unit
from collectors.simulated.courses import Course, apart, course
from collectors.simulated.identity import Facts
from collectors.simulated.options import Fixed, Simulation
from collectors.simulated.trouble import number_of
from collectors.tables import Series, Tables

Links = Literal["sum", "each"]
_LINKS: Final = frozenset(("link", "nvlink", "port", "lane", "hccs", "ici"))
_FIRST_PID: Final = 4100


class Member(msgspec.Struct, frozen=True):
    """One device of the list that the agent knows, with its model."""

    position: int
    board: Board
    unit: Unit
    facts: Facts


class Item(msgspec.Struct, frozen=True):
    """One reading, to be made at each sample."""

    series: str
    position: int
    unit: Unit
    labels: Labels
    course: Course
    facts: Facts
    fault_labels: Labels = ()
    """Templates of labels that tell of the last fault and so change with it."""


def plan(
    tables: Tables,
    simulation: Simulation,
    wanted: Mapping[Group, frozenset[str]],
    members: Sequence[Member],
    seed: str,
    node: Facts,
    *,
    links: Links,
    distinct: bool,
) -> dict[Group, tuple[Item, ...]]:
    """Raises ValueError for a template that cannot be filled."""
    simulation = _counted(simulation, members)
    found: dict[Group, list[Item]] = {}
    numbers = itertools.count(1)
    count = simulation.device.links if links == "each" else 0
    # The agent decides in which group a series is read; the table's group is no more than its proposal.
    groups = {name: group for group, names in wanted.items() for name in names}
    for series in tables.series:
        if series.name not in groups or (not count and _tells_links_apart(series)):
            continue
        if (fixed := simulation.values.get(series.name)) is not None and fixed.quantity == "none":
            continue
        items = found.setdefault(groups[series.name], [])
        for member in _holders(series, members, node):
            for item in _items(series, member, simulation, seed, count):
                if distinct:
                    item = msgspec.structs.replace(item, course=apart(item.course, series, next(numbers)))
                items.append(item)
    return {group: tuple(items) for group, items in found.items()}


def _counted(simulation: Simulation, members: Sequence[Member]) -> Simulation:
    """With the number of devices for what tells it; a device that is cut counts by its parts."""
    units = sum(member.unit is not member.board.whole or not member.board.parts for member in members)
    values = {
        name: msgspec.structs.replace(fixed, quantity="", value=units) if fixed.quantity == "devices" else fixed
        for name, fixed in simulation.values.items()
    }
    return msgspec.structs.replace(simulation, values=values)


def _tells_links_apart(series: Series) -> bool:
    return any(feed.metric == "accel_interconnect_link_up" for feed in series.feeds)


def _holders(series: Series, members: Sequence[Member], node: Facts) -> Iterator[Member]:
    """Those who have the series: a part's quantity stands on the parts where a device is cut, else on the whole."""
    if series.level == "node":
        if members:
            yield Member(NODE, members[0].board, members[0].board.whole, node)
        return
    for member in members:
        is_whole = member.unit is member.board.whole
        if is_whole != (series.level == "part" and bool(member.board.parts)):
            yield member


def _items(series: Series, member: Member, simulation: Simulation, seed: str, links: int) -> Iterator[Item]:
    """``links``: how many there are to tell apart; 0: they are summed, and no label tells them."""
    fixed = simulation.values.get(series.name)
    sets = list(_label_sets(series, fixed, member.facts, links))
    weights = [1.0 + 0.04 * math.cos(1.7 * number) for number in range(len(sets))]
    changing: Labels = ()
    if fixed is not None and fixed.quantity == "fault_code":
        templates = ((label, fixed.labels.get(label)) for label in series.labels)
        changing = tuple((label, template) for label, template in templates if isinstance(template, str))
    for labels, weight in zip(sets, weights, strict=True):
        own = f"{seed}/{series.name}/{member.position}/{labels}"
        yield Item(
            series.name,
            member.position,
            member.unit,
            labels,
            course(series, dict(labels), fixed, weight / sum(weights), partial(random.Random, own)),
            member.facts,
            changing,
        )


def _label_sets(series: Series, fixed: Fixed | None, facts: Facts, links: int) -> Iterator[Labels]:
    values = [_values(label, fixed, facts, links) for label in series.labels]
    for combination in itertools.product(*values):
        yield tuple(
            (label, value) for label, value in zip(series.labels, combination, strict=True) if value is not None
        )


def _values(label: str, fixed: Fixed | None, facts: Facts, links: int) -> Sequence[str | None]:
    if fixed is not None and fixed.labels:
        # What the file does not name is not there: an empty window has no code.
        told = fixed.labels.get(label)
        return [None] if told is None else [facts.fill(one) for one in ((told,) if isinstance(told, str) else told)]
    lower = label.lower()
    if lower in _LINKS:
        return [str(number) for number in range(links)] if links else [None]
    if "host" in lower or "node" in lower:
        return [facts.words["node"]]
    if lower == "pid":
        return [str(_FIRST_PID + int(facts.words["index"]))]
    return ["0"]


def current_labels(item: Item) -> Labels:
    """The item's labels now: those that tell of a fault tell of the device's last one."""
    event = item.unit.board.last_event
    if event is None or not item.fault_labels:
        return item.labels
    fault = {"fault_code": str(number_of(event.fault.code)), "fault_name": event.fault.name}
    words = Facts({**item.facts.words, **fault})
    return tuple((label, words.fill(template)) for label, template in item.fault_labels)
