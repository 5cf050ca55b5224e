"""What the JSON API answers, from the running agent. Nothing is done before somebody asks, but for the history."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence

import msgspec

from exporter import __version__
from exporter.agent import Agent
from exporter.assemble import GROUPS
from exporter.config import Config
from exporter.config.load import load
from exporter.families import Publication
from exporter.http.landing import public
from exporter.mapping import rows
from exporter.program import Program
from exporter.status.devices import WANTED, counts, sources, tree
from exporter.status.history import POINTS, History
from exporter.status.live import Ages, attribution, collectors, known
from exporter.status.model import Devices, Feed, Mapped, OtlpEndpoint, Settings, Status
from exporter.status.model import History as HistoryAnswer
from exporter.status.samples import Reader
from exporter.status.settings import settings

log = logging.getLogger(__name__)


class Monitor:
    """Answers for one agent. ``program`` gives the configuration in force, ``otlp`` how the targets of push are."""

    def __init__(
        self, agent: Agent, program: Callable[[], Program], otlp: Callable[[], Sequence[OtlpEndpoint]] = tuple
    ) -> None:
        self._agent, self._program, self._otlp = agent, program, otlp
        self._started_at = time.time()
        self._reader = Reader(WANTED)
        self._reading = asyncio.Lock()
        self._kept: tuple[Publication, Devices] | None = None
        self._recalling = asyncio.Lock()
        self._recalled: HistoryAnswer | None = None
        self._described: Program | None = None
        """Whose mapping and configuration are kept: they cost much, and anyone can ask for them again and again."""
        self._settings: Settings | None = None
        self._mapped: dict[str, Mapped] = {}
        self.recorded = History()

    async def record(self) -> None:
        """Take points of history, one each normal period, until cancelled."""
        while True:
            await asyncio.sleep(self._config.intervals.period("normal"))
            try:
                self.recorded.record(self._agent.publication, time.time())
            except Exception:
                # Curves are a comfort: what else the agent does goes on without them.
                log.exception("no more history is taken: this is a fault of the agent, please report it")
                return

    async def devices(self) -> Devices:
        """Devices with their newest values. A publication is read once, when somebody first asks."""
        async with self._reading:
            publication = self._agent.publication
            if self._kept is None or self._kept[0] is not publication:
                self._kept = (publication, await self._read(publication))
            return msgspec.structs.replace(self._kept[1], now=time.time())

    async def _read(self, publication: Publication) -> Devices:
        samples = await self._reader.read(publication)
        now = time.time()
        catalogues = [runner.spec.catalogue for runner in self._agent.runners]
        names = {
            (catalogue.collector.vendor, code): fault.name
            for catalogue in catalogues
            for code, fault in catalogue.faults.items()
        }
        found = known(self._agent.runners, self._max_age)
        return Devices(
            now=now,
            version=publication.version,
            devices=tree(samples, found, names, now - self._config.health.fault_hold),
            counts=counts(samples),
            sources=sources(samples),
        )

    async def history(self, since: float = 0.0) -> HistoryAnswer:
        """Points later than ``since`` (Unix seconds). The same points are written once for all who ask."""
        async with self._recalling:
            times = self.recorded.times(since)
            if self._recalled is None or self._recalled.times != times:
                self._recalled = await self._recall(since, times)
            return msgspec.structs.replace(self._recalled, period=self._config.intervals.period("normal"))

    async def _recall(self, since: float, times: tuple[float, ...]) -> HistoryAnswer:
        found = []
        for device in self.recorded.devices(since):
            found.append(device)
            # Hundreds of numbers: others have their turn.
            await asyncio.sleep(0)
        return HistoryAnswer(
            started_at=self._started_at,
            period=self._config.intervals.period("normal"),
            points=POINTS,
            times=times,
            devices=tuple(device for device in found if times),
        )

    def status(self) -> Status:
        """The agent, its collectors, its sources of attribution, its targets of push."""
        program = self._program()
        return Status(
            agent_version=__version__,
            node=program.config.node,
            now=time.time(),
            started_at=self._started_at,
            ready=self._agent.started,
            healthy=not self._agent.trouble,
            simulated=program.simulated,
            trouble=public(self._agent.trouble),
            common_schema=program.config.schema.common,
            collectors=collectors(self._agent.runners, self._max_age, self._agent.without_series),
            attribution=attribution(self._agent.attribution),
            otlp=tuple(self._otlp()),
        )

    def mapping(self, only: str = "") -> Mapped:
        """What feeds what. Raises KeyError for a collector that there is not."""
        program = self._describe()
        if only not in self._mapped:
            catalogues = program.catalogues
            names = [only] if only else sorted(catalogues)
            feeds = tuple(Feed(**row) for name in names for row in rows(name, catalogues[name][1]))
            self._mapped[only] = Mapped(mapping=feeds)
        return self._mapped[only]

    def config(self) -> Settings:
        """The configuration in force, without secrets and places of files."""
        program = self._describe()
        if self._settings is None:
            options = {name: catalogue.collector.options for name, (_, catalogue) in program.catalogues.items()}
            self._settings = Settings(settings=settings(program.config, load(None, {}, {}, options)))
        return self._settings

    def _describe(self) -> Program:
        """The program in force; what is kept of another one is forgotten."""
        program = self._program()
        if program is not self._described:
            self._described, self._settings, self._mapped = program, None, {}
        return program

    @property
    def _config(self) -> Config:
        return self._program().config

    @property
    def _max_age(self) -> Ages:
        periods = self._config.collection.max_age_periods
        return {group: self._config.intervals.period(group) * periods for group in GROUPS}
