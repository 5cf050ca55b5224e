"""The NVIDIA collector over DCGM."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NoReturn

import msgspec

from collectors.base import NODE, Device, Fault, Group, ReadError, Reading, Sample, Settings, Unavailable
from collectors.nvidia.dcgm import abi, codes, fields
from collectors.nvidia.dcgm.codes import DcgmFailure
from collectors.nvidia.dcgm.discovery import Node, answers, discover, entity_of, gpu_ids
from collectors.nvidia.dcgm.engine import Engine, connect
from collectors.nvidia.dcgm.health import Health
from collectors.nvidia.dcgm.links import Links, read_links
from collectors.nvidia.dcgm.made import HEALTH, MADE, OF_LOST, Maker
from collectors.nvidia.dcgm.migs import read_layout
from collectors.nvidia.dcgm.pace import Pace
from collectors.nvidia.dcgm.plan import Block, Builder
from collectors.nvidia.dcgm.readout import Readout
from collectors.nvidia.dcgm.values import Reader, Value
from collectors.nvidia.dcgm.watches import HISTORY, Watches
from collectors.nvidia.dcgm.xids import History
from collectors.nvidia.inventory import Inventory
from collectors.nvidia.windows import window

_TABLE: Final = Path(__file__).parents[1] / "series.toml"
_LAYOUT_EVERY: Final = 10.0
"""Seconds between two looks whether GPUs or MIG instances have come or gone."""
_LOST_EVERY: Final = 120.0
"""Seconds between two discoveries while a GPU is lost."""
_XID_EVERY: Final = 1.0
"""Seconds. Xids are events: the interval costs nothing."""
_FIRST_RATIOS: Final = 0.2
"""Seconds between two samples of profiling ratios until the first ones are there."""
_RATIO_PATIENCE: Final = 3.0


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """What a discovery has set up in an engine."""

    node: Node
    reader: Reader
    watches: Watches
    readout: Readout
    blocks: Mapping[Group, tuple[Block, ...]]
    xids: tuple[tuple[int, int], ...]
    places: Mapping[abi.Entity, int]
    """Entity → position, for Xids."""
    health: Health | None


class DcgmCollector:
    """Reads the node's GPUs, NVSwitches and CPUs through an engine."""

    source: Final = "dcgm"

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._made: dict[Group, frozenset[str]] = {
            group: frozenset(names).intersection(MADE) for group, names in settings.wanted.items()
        }
        self._entries = {group: fields.entries(_TABLE, names) for group, names in settings.wanted.items()}
        self._paces = {group: Pace(group) for group in settings.wanted}
        self._history = History(window(settings, "xid_count_window_ms"))
        self._maker = Maker(settings, self._history.book)
        self._faults: list[Fault] = []
        self._engine: Engine | None = None
        self._session: Session | None = None
        self._known = Inventory()
        self._lost: set[int] = set()
        self._notices: list[ReadError] = []
        self._looked_at = self._discovered_at = 0.0

    def discover(self) -> Sequence[Device]:
        """List GPUs and MIG instances, and have them watched. Raises Unavailable."""
        if self._engine is not None:
            try:
                return self._discover(self._engine)
            except DcgmFailure as failure:
                if codes.judge(failure.code) != "gone":
                    self._give_up(failure)
                # It went away since the last sample, and may be back already.
                self._disconnect()
        self._engine = connect(self._settings)
        try:
            return self._discover(self._engine)
        except DcgmFailure as failure:
            self._give_up(failure)

    def sample(self, group: Group) -> Sample:
        """Read a group. When the engine went away, an empty sample asks for a discovery. Raises Unavailable."""
        engine, session = self._engine, self._session
        if engine is None or session is None:
            raise Unavailable("no_driver", "the GPUs have not been discovered")
        try:
            return self._sample(engine, session, group)
        except DcgmFailure as failure:
            where = engine.where
            if codes.judge(failure.code) == "mismatch":
                self._give_up(failure)
            self._disconnect()
            error = ReadError(NODE, "transient", f"nv-hostengine at {where} is gone: {failure}")
            return Sample(errors=[error], faults=self._take_faults(), rediscover=True)

    def close(self) -> None:
        """Take back what is watched, and disconnect."""
        session, self._session = self._session, None
        if session is not None:
            session.watches.close()
        self._disconnect()

    def _discover(self, engine: Engine) -> Sequence[Device]:
        if self._session is not None:
            self._session.watches.close()
            self._session = None
        reader = Reader(engine)
        node = discover(engine, reader, self._settings, self._known)
        inventory = node.inventory
        if not inventory.devices:
            self._refuse(engine, node)
        self._known, self._lost = inventory, set(inventory.lost)
        self._notices = [ReadError(NODE, "lost", text) for text in inventory.failed]
        if node.blind:
            detail = "MIG is on and nv-hostengine sees no instance: it must run as root"
            self._notices.append(ReadError(NODE, "permission", detail))
        watches = Watches(engine)
        builder = Builder(engine, watches, self._settings, node, _known_links(engine))
        blocks = self._blocks(engine, builder)
        places = {entity_of(gpu): gpu.position for gpu in inventory.gpus}
        places |= {entity_of(part): part.position for gpu in inventory.gpus for part in gpu.parts}
        self._session = Session(
            node=node,
            reader=reader,
            watches=watches,
            readout=Readout(reader),
            blocks=blocks,
            xids=self._watch_xids(watches, node, places),
            places=_with_only_parts(node, places),
            health=self._watch_health(engine, watches, inventory),
        )
        self._history.book.keep(inventory)
        watches.refresh()
        self._await_ratios(self._session)
        if self._history.new:
            # From here on an Xid is an event; what came before is remembered.
            self._history.drain(engine, self._session.xids, self._session.places)
        self._notices += builder.errors
        self._discovered_at = self._looked_at = time.monotonic()
        return inventory.devices

    def _sample(self, engine: Engine, session: Session, group: Group) -> Sample:
        now, pace = time.monotonic(), self._paces.get(group)
        readings: list[Reading] = []
        self._faults += self._history.drain(engine, session.xids, session.places)
        if pace is not None and pace.note(now):
            for block in session.blocks[group]:
                _rewatch(session.watches, block, pace.seconds)
        readout = session.readout
        readout.begin()
        for number, block in enumerate(session.blocks.get(group, ())):
            with readout.tolerating():
                readout.read((group, number), block, pace.seconds if pace else 0.0, now, readings)
        self._lose(session)
        inventory = session.node.inventory
        made = self._made.get(group, frozenset())
        self._maker.make(engine, inventory, readout, session.health, made, frozenset(self._lost), readings)
        self._lose(session)
        kept = [reading for reading in readings if reading.device not in self._lost or reading.series in OF_LOST]
        notices, self._notices = self._notices, []
        return Sample(
            readings=kept,
            errors=(*notices, *readout.take_errors()),
            faults=self._take_faults(),
            lost=sorted(self._lost),
            rediscover=readout.unwatched or self._changed(engine, session),
        )

    def _blocks(self, engine: Engine, builder: Builder) -> dict[Group, tuple[Block, ...]]:
        found: dict[Group, tuple[Block, ...]] = {}
        for group, entries in self._entries.items():
            wanted = fields.quantities(engine.library, entries, self._made[group])
            plain = [quantity for quantity in wanted if not quantity.profiling]
            ratios = [quantity for quantity in wanted if quantity.profiling]
            found[group] = (
                *builder.blocks(plain, self._paces[group].seconds),
                *builder.blocks(ratios, _FIRST_RATIOS),
            )
        return found

    def _await_ratios(self, session: Session) -> None:
        """Wait for the first profiling ratios, then have them sampled as often as the rest.

        What feeds a common series is chosen at the first read and stays: a ratio that came later would not be chosen.
        """
        ratios = [(group, block) for group, blocks in session.blocks.items() for block in blocks if block.profiling]
        deadline = time.monotonic() + _RATIO_PATIENCE
        for _, block in ratios:
            while _pending(session.reader, block) and time.monotonic() < deadline:
                time.sleep(_FIRST_RATIOS / 2)
        for group, block in ratios:
            _rewatch(session.watches, block, self._paces[group].seconds)

    def _watch_xids(
        self, watches: Watches, node: Node, places: Mapping[abi.Entity, int]
    ) -> tuple[tuple[int, int], ...]:
        """An Xid stands at just one of GPU, instance and compute instance: at the one that the driver named."""
        computes = [one.entity for one in node.layout if one.entity[0] == abi.GPU_CI]
        groups = watches.groups(sorted({*places, *computes}))
        made = watches.field_groups([fields.XID])
        watches.watch(groups, made, _XID_EVERY, HISTORY)
        return tuple((group, field_group) for group in groups for field_group in made)

    def _watch_health(self, engine: Engine, watches: Watches, inventory: Inventory) -> Health | None:
        if not any(HEALTH in made for made in self._made.values()) or not inventory.gpus:
            return None
        try:
            [group] = watches.groups([entity_of(gpu) for gpu in inventory.gpus])
            return Health(engine, group)
        except DcgmFailure as failure:
            if codes.judge(failure.code) in ("gone", "timeout"):
                raise
            self._notices.append(ReadError(NODE, "library", f"no health watches: {failure}"))
            return None

    def _lose(self, session: Session) -> None:
        """GPUs that the engine calls lost, and those of which nothing but blanks comes, if a direct look agrees."""
        readout = session.readout
        for gpu in session.node.inventory.gpus:
            if gpu.position in readout.silent - readout.lost - self._lost:
                with readout.tolerating(gpu.position):
                    if not answers(session.reader, entity_of(gpu)[1]):
                        readout.lost.add(gpu.position)
            if gpu.position in readout.lost:
                self._lost.update(gpu.positions)

    def _changed(self, engine: Engine, session: Session) -> bool:
        now = time.monotonic()
        if self._lost and now - self._discovered_at >= _LOST_EVERY:
            return True
        if now - self._looked_at < _LAYOUT_EVERY:
            return False
        self._looked_at = now
        return tuple(gpu_ids(engine)) != session.node.ids or read_layout(engine) != session.node.layout

    def _take_faults(self) -> list[Fault]:
        """Those that no sample has told yet: a connection that breaks after they were fetched does not lose them."""
        faults, self._faults = self._faults, []
        return faults

    def _disconnect(self) -> None:
        self._session = None
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.close()

    def _refuse(self, engine: Engine, node: Node) -> NoReturn:
        where = engine.where
        self._disconnect()
        if node.inventory.failed:
            hint = f"nv-hostengine at {where}: no GPU answers: {node.inventory.failed[0]}; see the kernel's log"
            raise Unavailable("no_driver", hint)
        raise Unavailable("no_device", f"nv-hostengine at {where} finds no GPU")

    def _give_up(self, failure: DcgmFailure) -> NoReturn:
        where = self._engine.where if self._engine is not None else ""
        self._disconnect()
        if codes.judge(failure.code) == "mismatch":
            hint = f"libdcgm and nv-hostengine at {where} do not understand each other ({failure}): update the engine"
            raise Unavailable("version_mismatch", hint) from None
        raise Unavailable("no_driver", f"nv-hostengine at {where} fails: {failure}; see its log") from None


def _known_links(engine: Engine) -> Links:
    """None where they cannot be told: then no series is by link."""
    try:
        return read_links(engine)
    except DcgmFailure as failure:
        if codes.judge(failure.code) in ("gone", "timeout"):
            raise
        return Links({}, {})


def _rewatch(watches: Watches, block: Block, seconds: float) -> None:
    for group, field_group in block.watches:
        watches.watch([group], [field_group], seconds)


def _pending(reader: Reader, block: Block) -> bool:
    """Whether nothing has come yet and something may: what is not supported will not."""
    why = [_lack(record) for record in reader.read(list(block.targets), list(block.quantities))]
    return None not in why and "nothing" in why


def _lack(record: Value) -> str | None:
    """Why a record is no value; None for one that is."""
    if record.status != codes.OK:
        return codes.judge(record.status)
    return abi.blank(record.value) if record.value is not None else "unsupported"


def _with_only_parts(node: Node, places: Mapping[abi.Entity, int]) -> dict[abi.Entity, int]:
    """Compute instances that are the only one of their GPU instance, which stands for them."""
    alone = {
        one.entity: places[one.parent] for one in node.layout if one.entity[0] == abi.GPU_CI and one.parent in places
    }
    return {**alone, **places}
