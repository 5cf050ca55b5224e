"""The simulation as a collector."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping

import msgspec

from collectors.base import Device, Fault, Group, Reading, Sample, Settings, Unavailable
from collectors.simulated import identity
from collectors.simulated.board import Board
from collectors.simulated.identity import Facts
from collectors.simulated.load import Workload
from collectors.simulated.options import SimulatedOptions
from collectors.simulated.plan import Links, Member, current_labels, plan
from collectors.simulated.trouble import Course
from collectors.tables import Tables

Clock = Callable[[], float]


class SimulatedCollector:
    """All devices of one simulated node. Time is what ``clock`` says since the collector was made."""

    def __init__(
        self,
        tables: Tables,
        options: SimulatedOptions,
        wanted: Mapping[Group, frozenset[str]],
        node: str,
        links: Links = "sum",
        clock: Clock = time.monotonic,
        wall: Clock = time.time,
    ) -> None:
        """Raises ValueError for options that do not fit together."""
        self._clock = clock
        self._wall = wall
        self._start = clock()
        self._devices: list[Device] = []
        self._members: list[Member] = []
        self._boards: list[tuple[Board, tuple[int, ...]]] = []
        self._build(tables, options, node)
        words = {**(self._members[0].facts.words if self._members else {}), "node": node}
        self._plan = plan(
            tables,
            options.simulation,
            wanted,
            self._members,
            f"{options.seed}/{node}",
            Facts(words),
            links=links,
            distinct=options.distinct,
        )

    def _build(self, tables: Tables, options: SimulatedOptions, node: str) -> None:
        simulation = options.simulation
        cut = identity.profiles(simulation, options.profile) if options.parts else ()
        profiles = [profile for profile in cut for _ in range(profile.count)]
        for number in range(options.devices):
            rng = random.Random(f"{options.seed}/{node}/{tables.vendor}/{number}")
            device, facts = identity.whole(number, tables, simulation, node, rng)
            scenario = options.of(number)
            course = Course(options.cycle_seconds, tables.faults) if scenario == "failing" else None
            board = Board(simulation.device, rng, Workload(scenario, rng), course)
            first = len(self._devices)
            self._add(device, Member(first, board, board.whole, facts))
            if number < options.parts:
                workloads = [Workload(options.of(number + 1 + place), rng) for place in range(len(profiles))]
                board.split(
                    [
                        (workload, profile.memory_share, profile.unit_share)
                        for workload, profile in zip(workloads, profiles, strict=True)
                    ]
                )
                for place, (profile, unit) in enumerate(zip(profiles, board.parts, strict=True)):
                    own = identity.part_facts(facts, simulation.parts.first_id + place, profile)
                    part = identity.part(device, own, tables, simulation, identity.random_uuid(rng))
                    self._add(part, Member(len(self._devices), board, unit, own))
            self._boards.append((board, tuple(range(first, len(self._devices)))))

    def _add(self, device: Device, member: Member) -> None:
        self._devices.append(device)
        self._members.append(member)

    def discover(self) -> tuple[Device, ...]:
        """The same devices each time. Raises Unavailable if there shall be none."""
        if not self._devices:
            raise Unavailable("no_device", "the simulation has 0 devices; set devices to some more")
        return tuple(self._devices)

    def sample(self, group: Group) -> Sample:
        now = max(0.0, self._clock() - self._start)
        faults: list[Fault] = []
        lost: list[int] = []
        for board, positions in self._boards:
            events = board.advance(now)
            if events:
                today = self._wall()
                faults.extend(Fault(positions[0], event.fault.code, today - (now - event.at)) for event in events)
            if board.trouble.lost:
                lost.extend(positions)
        gone = frozenset(lost)
        readings = [
            Reading(item.series, item.position, value, current_labels(item) if item.fault_labels else item.labels)
            for item in self._plan.get(group, ())
            if item.position not in gone and (value := item.course(item.unit, now)) is not None
        ]
        return Sample(readings=readings, faults=faults, lost=lost)

    def close(self) -> None:
        self._plan = {}


def open_simulation(settings: Settings) -> SimulatedCollector:
    """Check the options. Raises Unavailable that names the wrong one."""
    try:
        tables = msgspec.convert(settings.options, Tables)
        options = msgspec.convert(settings.options, SimulatedOptions)
        return SimulatedCollector(tables, options, settings.wanted, settings.node or "simulated", settings.links)
    except ValueError as error:  # msgspec.ValidationError is one
        raise Unavailable("no_device", f"simulation: {error}") from error
