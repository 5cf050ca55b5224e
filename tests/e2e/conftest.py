"""What several of these tests look at, made once."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest

from tests.e2e.agent import OPENMETRICS, TEXT, Agent, Seen, parse
from tests.e2e.worlds import WITHOUT_DEVICES, WORLDS, place
from tests.fakes.nvml import scenarios

MEASURED = pytest.StashKey[list[str]]()
Tell = Callable[[str], None]


@pytest.fixture
def tell(request: pytest.FixtureRequest) -> Tell:
    """Notes a measurement, which stands in the summary of the run."""
    return request.config.stash.setdefault(MEASURED, []).append


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if measured := config.stash.get(MEASURED, []):
        terminalreporter.section("measured")
        for line in sorted(measured):
            terminalreporter.write_line(line)


class Exposed(NamedTuple):
    """What the agent serves in one world, with all raw series on."""

    text: bytes
    openmetrics: bytes
    common_text: bytes
    raw: Seen


@pytest.fixture(scope="session")
def exposed(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Exposed]:
    """World → what is served there, after a second sample (rates need it) and an Xid."""
    known: dict[str, Exposed] = {}

    def find(world: str) -> Exposed:
        if world not in known:
            known[world] = _expose(world, tmp_path_factory)
        return known[world]

    return find


def _expose(world: str, folders: pytest.TempPathFactory) -> Exposed:
    folder = folders.mktemp(world)
    scenario = WORLDS[world]()
    here = place(folder, scenario)
    nvidia = {"nvidia": {"source": "nvml", "options": {"processes": True}}}
    config = here.config(schema={"raw": "all"}, links="each", collectors=nvidia)
    with Agent.start(folder, here.environ, config) as agent:
        if world in WITHOUT_DEVICES:
            agent.wait_for(lambda seen: seen.state() == WITHOUT_DEVICES[world])
        else:
            here.nvml.apply(scenarios.xid(scenario, 0, 31))
            agent.wait_for(lambda seen: seen.has("accel_fault_code_total", code="xid:31"))
            duration = "accel_exporter_collector_duration_seconds_count"
            samples = agent.scrape().value(duration)
            agent.wait_for(lambda seen: seen.value(duration) > samples)
        text, openmetrics, common, raw = (
            agent.get(f"/metrics{query}", accept=accept)
            for query, accept in (
                ("", TEXT),
                ("", OPENMETRICS),
                ("?schema=common", TEXT),
                ("?schema=raw", OPENMETRICS),
            )
        )
    return Exposed(text.body, openmetrics.body, common.body, parse(raw.body))
