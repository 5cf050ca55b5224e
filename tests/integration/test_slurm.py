"""The source of Slurm's jobs, with directories that change and a program ``squeue`` that behaves and misbehaves."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from exporter.attribution import squeue
from exporter.attribution.claims import Claim, Status
from exporter.attribution.slurm import SlurmSource
from exporter.attribution.squeue import JobDetails
from exporter.config.attribution import SlurmAttribution
from tests.attribution_rig import Heard, in_loop, running, until
from tests.fakes.slurm import programs

JOB = {"job_id": 4711, "account": "physics", "user_name": "alice", "partition": "gpu"}
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

    def __init__(
        self, folder: Path, *, objects: Path | None = None, details: bool = False, period: float = 0.05
    ) -> None:
        self.heard = Heard()
        heard = self.heard
        self.details = JobDetails(period, changed=heard.changed, failed=heard.failed) if details else None
        self.slurm = SlurmSource(
            SlurmAttribution(poll=0.05, vendor="acme"),
            [str(folder)],
            [str(objects)] if objects else [],
            str(folder / "proc"),
            changed=heard.changed,
            failed=heard.failed,
            details=self.details,
        )

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.slurm.run())
            if self.details is not None:
                group.create_task(self.details.run())

    @property
    def status(self) -> Status:
        return self.slurm.status

    def controller(self) -> Status:
        """How what the controller is asked with is."""
        assert self.details is not None
        return self.details.status

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


@pytest.fixture
def controller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Puts a program on the path that prints as Slurm's squeue does."""

    def write(*jobs: Mapping[str, Any]) -> Path:
        monkeypatch.setenv("PATH", f"{tmp_path}/slurm:{os.environ['PATH']}")
        return programs.install(tmp_path / "slurm", jobs)

    return write


@in_loop
async def test_account_and_partition_come_from_the_controller(mapping: Path, controller: Callable[..., Path]) -> None:
    program = controller(JOB, {**JOB, "job_id": 4712, "account": "chemistry"})
    (mapping / "0").write_text("4711")
    (mapping / "1").write_text("unknown")
    found = Source(mapping, details=True)
    async with running(found.run()):
        await until(lambda: [claim.tenant for claim in found.claims()] == ["physics", ""])
        assert [claim.queue for claim in found.claims()] == ["gpu", ""]
        assert found.controller().up
        assert not found.controller().hint
        # The JSON of a large cluster's jobs is more than a controller should print for every node.
        assert not any("--json" in arguments for arguments in programs.asked(program))


@in_loop
async def test_the_controller_is_not_asked_for_what_it_has_told(mapping: Path, controller: Callable[..., Path]) -> None:
    program = controller(JOB)
    (mapping / "0").write_text("4711")
    found = Source(mapping, details=True)
    async with running(found.run()):
        await until(lambda: [claim.tenant for claim in found.claims()] == ["physics"])
        for _ in range(20):
            found.claims()
            await asyncio.sleep(0.01)
    assert len(programs.asked(program)) == 1


@in_loop
async def test_twenty_thousand_jobs_are_not_too_many(mapping: Path, controller: Callable[..., Path]) -> None:
    controller(*({**JOB, "job_id": number} for number in range(1, 20_001)))
    (mapping / "0").write_text("19999")
    found = Source(mapping, details=True)
    async with running(found.run()):
        await until(lambda: [claim.tenant for claim in found.claims()] == ["physics"])
    assert not found.heard.troubles


@pytest.mark.parametrize(
    "account",
    [
        pytest.param("evil\n4711|evil|root|gpu|", id="line feeds"),
        pytest.param("evil|" * 20, id="separators"),
        pytest.param("%A|%a|%u|%P", id="fields of the format"),
        pytest.param("a b\tc \x1f d", id="blanks and controls"),
        pytest.param("x" * 5000, id="long"),
    ],
)
@in_loop
async def test_an_account_that_a_user_made_up_says_nothing_of_other_jobs(
    mapping: Path, controller: Callable[..., Path], account: str
) -> None:
    """Slurm takes any text for an account where accounting is not enforced."""
    controller({**JOB, "job_id": 4710, "account": account}, JOB, {**JOB, "job_id": 4712, "account": account})
    for index, job in enumerate((4710, 4711)):
        (mapping / str(index)).write_text(str(job))
    found = Source(mapping, details=True)
    async with running(found.run()):
        await until(lambda: len(found.claims()) == 2 and all(claim.tenant for claim in found.claims()))
        evil, good = found.claims()
        assert (good.tenant, good.queue) == ("physics", "gpu")
        assert evil.queue == "gpu"
        assert evil.tenant == "".join(each for each in account[:128] if each.isprintable())


@in_loop
async def test_a_job_that_is_known_by_its_sluid_alone_is_found_in_the_json(controller: Callable[..., Path]) -> None:
    program = controller({**JOB, "step_id": {"sluid": "sEKNKTV3WPV500"}})
    heard = Heard()
    details = JobDetails(0.05, changed=heard.changed, failed=heard.failed)
    claim = Claim(source="processes", job_name="sEKNKTV3WPV500", job_kind="SlurmJob")
    async with running(details.run()):
        await until(lambda: details.fill(claim).job_name == "4711")
        assert details.fill(claim).tenant == "physics"
    assert all("--json" in arguments for arguments in programs.asked(program))


@pytest.mark.parametrize(
    ("script", "hint"),
    [
        pytest.param("exit 3", "ended with 3", id="exit code"),
        pytest.param(
            "echo slurm_load_jobs error: Unable to contact slurm controller '(connect failure)' >&2; exit 1",
            "ended with 1: slurm_load_jobs error: Unable to contact slurm controller (connect failure)",
            id="complains",
        ),
        pytest.param("yes error | head -c 3000000 >&2; exit 1", "ended with 1: error", id="complains much"),
        pytest.param("echo error: no controller", "not understood", id="no list"),
        pytest.param("yes 0123456789 | head -c 40000000", "more than 33554432 bytes", id="40 MB"),
        pytest.param("exec sleep 60", "does not end within", id="hangs"),
        pytest.param("exec >&-; exec sleep 60", "does not end within", id="hangs with nothing more to say"),
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
        assert not found.controller().up
        assert hint in found.controller().hint


@in_loop
async def test_without_the_program_the_hint_says_where_to_put_it(
    mapping: Path, monkeypatch: pytest.MonkeyPatch, controller: Callable[..., Path]
) -> None:
    """Before any job is there, so that doctor tells; and no longer when it has come."""
    path = os.environ["PATH"]
    monkeypatch.setenv("PATH", str(mapping))
    found = Source(mapping, details=True)
    async with running(found.run()):
        await until(lambda: not found.controller().up)
        assert "squeue is not on the PATH" in found.controller().hint
        (mapping / "0").write_text("4711")
        await until(lambda: found.claims() and found.heard.troubles["squeue"])
        assert "squeue is not on the PATH" in found.controller().hint
        assert found.status.up
        monkeypatch.setenv("PATH", path)
        controller(JOB)
        await until(lambda: found.controller().up)


@in_loop
async def test_a_controller_that_hides_jobs_of_others_is_told_apart_from_one_that_answers(
    mapping: Path, monkeypatch: pytest.MonkeyPatch, controller: Callable[..., Path]
) -> None:
    """PrivateData=jobs: squeue ends well, and prints the caller's own jobs alone. A job may also just have ended."""
    program = controller()
    (mapping / "0").write_text("4711")
    found = Source(mapping, details=True)
    async with running(found.run()):
        await until(lambda: programs.asked(program) and found.controller().last_success)
        assert found.controller().up
        assert "PrivateData=jobs" in found.controller().hint
        monkeypatch.setattr(squeue, "SURE", 0.0)
        await until(lambda: not found.controller().up)
        assert "PrivateData=jobs" in found.controller().hint
        assert "4711" in found.controller().hint
        programs.say(program.parent, [JOB])
        await until(lambda: [claim.tenant for claim in found.claims()] == ["physics"])
        assert found.controller().up


@pytest.mark.parametrize("state", ["RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED"])
@in_loop
async def test_a_job_is_told_from_its_prolog_to_its_epilog(
    mapping: Path, controller: Callable[..., Path], state: str
) -> None:
    controller({**JOB, "job_state": state})
    (mapping / "0").write_text("4711")
    found = Source(mapping, details=True)
    async with running(found.run()):
        await until(lambda: [claim.tenant for claim in found.claims()] == ["physics"])


@in_loop
async def test_a_job_that_begins_between_two_questions_is_asked_for_when_it_is_time(
    mapping: Path, controller: Callable[..., Path]
) -> None:
    """Claims are looked at when something has changed: here once, when the file comes."""
    program = controller(JOB)
    (mapping / "0").write_text("4711")
    found = Source(mapping, details=True, period=1.0)
    async with running(found.run()):
        await until(lambda: len(programs.asked(program)) == 1)
        programs.say(program.parent, [JOB, {**JOB, "job_id": 4712, "account": "chemistry"}])
        (mapping / "1").write_text("4712")
        await until(lambda: len(programs.asked(program)) == 2)
        await until(lambda: [claim.tenant for claim in found.claims()] == ["physics", "chemistry"])


@in_loop
async def test_a_job_that_was_there_before_needs_no_question_of_its_own(
    mapping: Path, controller: Callable[..., Path]
) -> None:
    """It comes to a device long after it began."""
    program = controller(JOB, {**JOB, "job_id": 4712, "account": "chemistry"})
    (mapping / "0").write_text("4711")
    found = Source(mapping, details=True, period=3600.0)
    async with running(found.run()):
        await until(lambda: [claim.tenant for claim in found.claims()] == ["physics"])
        (mapping / "1").write_text("4712")
        await until(lambda: [claim.tenant for claim in found.claims()] == ["physics", "chemistry"])
    assert len(programs.asked(program)) == 1


@in_loop
async def test_a_program_that_hangs_is_ended_with_its_children(install: Install, tmp_path: Path) -> None:
    install(f"sleep 60 & echo $! >{tmp_path}/child; echo $$ >{tmp_path}/self; wait")
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        await squeue.output(squeue.TEXT, 0.5)
    assert time.monotonic() - began < 10
    pids = [int((tmp_path / name).read_text()) for name in ("child", "self")]
    await until(lambda: not any(_lives(pid) for pid in pids))


@in_loop
async def test_whenever_it_is_cancelled_it_ends_with_all_that_it_started(install: Install) -> None:
    """The children of the program would write for ever, and nobody reads any more."""
    install("yes error | head -c 3000000 >&2; exit 1")
    for number in range(60):
        task = asyncio.create_task(squeue.output(squeue.TEXT, 10.0))
        await asyncio.sleep(number / 2000)
        task.cancel()
        await asyncio.wait((task,), timeout=10)
        assert task.done()
        assert task.cancelled() or isinstance(task.exception(), ValueError)


def _lives(pid: int) -> bool:
    """Whether it runs; one that has ended and waits for its parent does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@in_loop
async def test_what_has_left_the_programs_group_keeps_no_descriptor_of_ours(install: Install, tmp_path: Path) -> None:
    """It holds the pipes for as long as it likes: a question every half a minute would use up all descriptors."""
    install(f"setsid sh -c 'echo $$ >{tmp_path}/child; exec sleep 300' & while [ ! -s {tmp_path}/child ]; do :; done")
    before = sorted(Path("/proc/self/fd").iterdir())
    try:
        with pytest.raises(TimeoutError):
            await squeue.output(squeue.TEXT, 1.0)
        await until(lambda: sorted(Path("/proc/self/fd").iterdir()) == before)
        assert _lives(int((tmp_path / "child").read_text()))
    finally:
        os.kill(int((tmp_path / "child").read_text()), signal.SIGKILL)
