"""The source of Slurm's jobs, with directories that change and a program ``squeue`` that behaves and misbehaves."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from exporter.attribution import squeue
from exporter.attribution.claims import Claim, Status
from exporter.attribution.slurm import SlurmSource
from exporter.attribution.squeue import JobDetails
from exporter.config.attribution import SlurmAttribution
from tests.attribution_rig import Heard, in_loop, running, until

ANSWER = {"jobs": [{"job_id": 4711, "account": "physics", "user_name": "alice", "partition": "gpu"}]}
Install = Callable[[str], Path]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Puts a program named squeue on the path."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    def write(script: str) -> Path:
        program = folder / "squeue"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        return program

    return write


class Source:
    """The source and what it asks the controller with, at work."""

    def __init__(self, folder: Path, *, objects: Path | None = None, details: bool = False) -> None:
        self.heard = Heard()
        heard = self.heard
        self._details = JobDetails(0.05, changed=heard.changed, failed=heard.failed) if details else None
        self.slurm = SlurmSource(
            SlurmAttribution(poll=0.05, vendor="acme"),
            [str(folder)],
            [str(objects)] if objects else [],
            str(folder / "proc"),
            changed=heard.changed,
            failed=heard.failed,
            details=self._details,
        )

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.slurm.run())
            if self._details is not None:
                group.create_task(self._details.run())

    @property
    def status(self) -> Status:
        return self.slurm.status

    def claims(self) -> Sequence[Claim]:
        return self.slurm.claims()


def jobs(found: Source) -> dict[str, str]:
    return {claim.names["index"]: claim.job_name for claim in found.claims()}


@pytest.fixture
def mapping(tmp_path: Path) -> Path:
    folder = tmp_path / "job-mapping"
    folder.mkdir()
    return folder


@in_loop
async def test_jobs_come_and_go_with_their_files(mapping: Path, tmp_path: Path) -> None:
    objects = tmp_path / "exporter"
    found = Source(mapping, objects=objects)
    async with running(found.run()):
        await until(lambda: found.status.up)
        (mapping / "0").write_text("4711")
        await until(lambda: jobs(found) == {"0": "4711"})
        (mapping / "0").write_text("4712")
        await until(lambda: jobs(found) == {"0": "4712"})
        objects.mkdir()
        (objects / "1").write_text('{"SLURM_JOB_ID": "47')
        await asyncio.sleep(0.1)
        assert jobs(found) == {"0": "4712"}
        (objects / "1").write_text(json.dumps({"SLURM_JOB_ID": "4713", "SLURM_JOB_USER": "alice"}))
        await until(lambda: jobs(found) == {"0": "4712", "1": "4713"})
        assert [claim.tenant for claim in found.claims()] == ["", "alice"]
        (mapping / "0").unlink()
        (objects / "1").unlink()
        await until(lambda: jobs(found) == {})
    assert found.heard.changes == 4
    assert not found.heard.troubles


@in_loop
async def test_what_cannot_be_read_is_trouble_while_the_rest_goes_on(mapping: Path) -> None:
    (mapping / "0").symlink_to("/proc/self/mem")
    (mapping / "1").write_text("4711")
    found = Source(mapping)
    async with running(found.run()):
        await until(lambda: found.heard.troubles["io"])
        assert jobs(found) == {"1": "4711"}
        assert not found.status.up
        assert found.status.hint
        (mapping / "0").unlink()
        await until(lambda: found.status.up)


@in_loop
async def test_account_and_partition_come_from_the_controller(mapping: Path, install: Install) -> None:
    install(f'echo "$@" >"$0.asked"; echo \'{json.dumps(ANSWER)}\'')
    (mapping / "0").write_text("4711")
    (mapping / "1").write_text("unknown")
    found = Source(mapping, details=True)
    async with running(found.run()):
        await until(lambda: [claim.tenant for claim in found.claims()] == ["physics", ""])
        assert [claim.queue for claim in found.claims()] == ["gpu", ""]
        assert found.status.hint == ""


@in_loop
async def test_the_controller_is_not_asked_for_what_it_has_told(mapping: Path, install: Install) -> None:
    program = install(f'echo "$@" >>"$0.asked"; echo \'{json.dumps(ANSWER)}\'')
    (mapping / "0").write_text("4711")
    found = Source(mapping, details=True)
    async with running(found.run()):
        await until(lambda: [claim.tenant for claim in found.claims()] == ["physics"])
        for _ in range(20):
            found.claims()
            await asyncio.sleep(0.01)
    assert program.with_name("squeue.asked").read_text() == "--json --states=running\n"


@pytest.mark.parametrize(
    ("script", "hint"),
    [
        pytest.param("exit 3", "ended with 3", id="exit code"),
        pytest.param("echo error: no controller", "not understood", id="no JSON"),
        pytest.param("yes 0123456789 | head -c 40000000", "more than 33554432 bytes", id="40 MB"),
        pytest.param("exec sleep 60", "does not end within", id="hangs"),
        pytest.param("sleep 60 & echo '{'; wait", "does not end within", id="hangs with a child"),
        pytest.param("sleep 60 & echo '{'", "does not end within", id="leaves a child that holds the pipe"),
    ],
)
@in_loop
async def test_a_controller_that_does_not_answer_stops_nothing(
    mapping: Path, install: Install, monkeypatch: pytest.MonkeyPatch, script: str, hint: str
) -> None:
    monkeypatch.setattr(squeue, "TIMEOUT", 2.0 if "yes" in script else 0.3)
    install(script)
    (mapping / "0").write_text("4711")
    found = Source(mapping, details=True)
    async with running(found.run()):
        await until(lambda: jobs(found) == {"0": "4711"})
        (mapping / "0").write_text("4712")
        await until(lambda: jobs(found) == {"0": "4712"})
        found.claims()
        await until(lambda: found.claims() and found.heard.troubles["squeue"])
        assert found.status.up
        assert hint in found.status.hint


@in_loop
async def test_without_the_program_the_hint_names_it(mapping: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(mapping))
    (mapping / "0").write_text("4711")
    found = Source(mapping, details=True)
    async with running(found.run()):
        await until(lambda: found.claims() and found.heard.troubles["squeue"])
        assert "squeue" in found.status.hint


@in_loop
async def test_a_program_that_hangs_is_ended_with_its_children(install: Install, tmp_path: Path) -> None:
    install(f"sleep 60 & echo $! >{tmp_path}/child; echo $$ >{tmp_path}/self; wait")
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        await squeue.squeue(0.5)
    assert time.monotonic() - began < 10
    pids = [int((tmp_path / name).read_text()) for name in ("child", "self")]
    await until(lambda: not any(_lives(pid) for pid in pids))


def _lives(pid: int) -> bool:
    """Whether it runs; one that has ended and waits for its parent does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
