"""What sources of attribution said counts for a time after they fall silent, and then no more."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from exporter.attribution import slurm
from exporter.attribution import watch as watches
from tests.attribution_rig import in_loop, running, until
from tests.fakes.apiserver.objects import PODS, pod
from tests.fakes.apiserver.server import ApiServer, refuse
from tests.integration.test_kubelet_pods import Polled
from tests.integration.test_slurm import Source, jobs
from tests.watch_rig import Watched, hurry


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServer]:
    hurry(monkeypatch)
    monkeypatch.setattr(watches, "OUTDATED", 0.3)
    with ApiServer() as found:
        found.put(PODS, pod("a"))
        yield found


@in_loop
async def test_pods_of_an_api_server_that_stays_away_are_dropped_and_read_anew(server: ApiServer) -> None:
    found = Watched(server.url)
    async with running(found.run()):
        await until(lambda: found.names == {"a"})
        changes = found.heard.changes
        server.faults.extend(refuse(503) for _ in range(100))
        server.cut()
        await until(lambda: found.names == set())
        assert found.heard.changes > changes
        # What happened meanwhile was in no watch.
        server.put(PODS, pod("b"))
        server.faults.clear()
        await until(lambda: found.names == {"a", "b"})


@in_loop
async def test_a_short_outage_costs_no_pod(server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watches, "OUTDATED", 60.0)
    found = Watched(server.url)
    async with running(found.run()):
        await until(lambda: found.names == {"a"})
        server.faults.extend(refuse(503) for _ in range(5))
        server.cut()
        await until(lambda: found.heard.troubles["server"] >= 5)
        assert found.names == {"a"}


@in_loop
async def test_pods_of_a_kubelet_that_stays_away_are_dropped(server: ApiServer) -> None:
    server.put("/pods", pod("a"))
    found = Polled(server)
    async with running(found.run()):
        await until(lambda: found.names == {"a"})
        server.tokens = {"another"}
        await until(lambda: found.names == set())
        server.tokens = None
        await until(lambda: found.names == {"a"})


@in_loop
async def test_jobs_of_a_directory_that_does_not_answer_are_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm, "OUTDATED", 0.2)
    (tmp_path / "0").write_text("4711")
    found, away = Source(tmp_path), threading.Event()
    read = found.slurm._read
    async with running(found.run()):
        await until(lambda: jobs(found) == {"0": "4711"})
        monkeypatch.setattr(found.slurm, "_read", lambda: (away.wait(20), read())[1])
        changes = found.heard.changes
        try:
            await until(lambda: not jobs(found))
            await until(lambda: not found.status.up)
            assert found.heard.changes > changes
            assert "file system" in found.status.hint
            assert found.heard.troubles["timeout"] == 1
        finally:
            away.set()
        await until(lambda: jobs(found) == {"0": "4711"} and found.status.up)
