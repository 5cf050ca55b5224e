"""What Slurm's controller knows of jobs, as ``squeue`` prints it: account, user, partition.

Of a thousand jobs its JSON is 3 to 5 MB, whatever is asked for, and a text of the four fields 0.1 MB. Only the JSON
tells a job's SLUID (26.05 and newer): it is asked for where a job is known by that alone.
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec

from exporter.attribution.claims import Claim
from exporter.attribution.identity import clean

JSON: Final = ("squeue", "--json", "--states=running")
TEXT: Final = ("squeue", "--noheader", "--states=running")
SLUID: Final = re.compile(r"s[0-9a-z]{13}")
FIELDS: Final = ("%A", "%a", "%u", "%P")
"""Job id (of each element of an array its own), account, user, partition. Without a width none is cut."""
TIMEOUT: Final = 60.0
MAX_ANSWER: Final = 32 * 1024 * 1024
MAX_WANTED: Final = 1024
"""Jobs of one node that are asked after."""


class Details(msgspec.Struct, frozen=True):
    """Of one job. What the controller does not tell stays empty."""

    job: str = ""
    account: str = ""
    user: str = ""
    partition: str = ""


class _Job(msgspec.Struct, frozen=True):
    """As far as it is read. Types differ between versions, and not only those of numbers."""

    job_id: Any = None
    account: Any = None
    user_name: Any = None
    partition: Any = None
    step_id: Any = None


class _Answer(msgspec.Struct, frozen=True):
    jobs: list[_Job]


_ANSWER: Final = msgspec.json.Decoder(_Answer)


def text_format(mark: str) -> str:
    """What to ask for: ``mark`` stands behind each field.

    Whoever submits a job chooses its account's name where accounting does not check it, and may put line feeds into it:
    what divides fields must be something that he cannot know.
    """
    return "".join(f"{field}|{mark}" for field in FIELDS)


def jobs_of_text(answer: bytes, mark: str) -> dict[str, Details]:
    """By job id. Raises ValueError."""
    *pieces, rest = answer.decode("utf-8", "replace").split(f"|{mark}")
    if len(pieces) % len(FIELDS) or rest.strip():
        raise ValueError(f"its answer is not understood: {answer[:100]!r}")
    found: dict[str, Details] = {}
    for at in range(0, len(pieces), len(FIELDS)):
        told, account, user, partition = pieces[at : at + len(FIELDS)]
        identity = told.strip()
        if identity.isdecimal():
            found[identity] = Details(identity, clean(account), clean(user), clean(partition))
    return found


def jobs(answer: bytes) -> dict[str, Details]:
    """By job id, and by SLUID where the controller tells it (26.05 and newer). Raises ValueError."""
    try:
        listed = _ANSWER.decode(answer).jobs
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(f"its answer is not understood: {error}") from error
    found: dict[str, Details] = {}
    for job in listed:
        identity = _number(job.job_id)
        if not identity:
            continue
        details = Details(identity, _text(job.account), _text(job.user_name), _text(job.partition))
        found[identity] = details
        sluid = _text(job.step_id.get("sluid")) if isinstance(job.step_id, dict) else ""
        if sluid:
            found[sluid.casefold()] = details
    return found


def _number(value: Any) -> str:
    """A plain number, or since 23.02 one that says whether it is set."""
    if isinstance(value, dict):
        value = value.get("number") if value.get("set") is True else None
    return str(value) if isinstance(value, int) and not isinstance(value, bool) and value > 0 else ""


def _text(value: Any) -> str:
    return clean(value) if isinstance(value, str) else ""


class JobDetails:
    """Asks the controller seldom, and only while there are jobs that it has not told of."""

    def __init__(self, period: float, *, changed: Callable[[], None], failed: Callable[[str], None]) -> None:
        """``failed`` is told the kind of each trouble, for a counter."""
        self.hint = ""
        """What to do where the controller does not answer."""
        self._period, self._changed, self._failed = period, changed, failed
        self._known: Mapping[str, Details] = {}
        self._wanted: dict[str, None] = {}

    def fill(self, claim: Claim) -> Claim:
        """The claim with what is known of its job; what the claim's own source knows of it stays."""
        if not claim.job_name or claim.job_kind != "SlurmJob":
            return claim
        name = claim.job_name.casefold()
        if len(self._wanted) < MAX_WANTED:
            self._wanted[name] = None
        told = self._known.get(name, Details())
        return msgspec.structs.replace(
            claim,
            job_name=told.job or claim.job_name,
            tenant=claim.tenant or told.account or told.user,
            queue=claim.queue or told.partition,
        )

    async def run(self) -> None:
        """Until cancelled."""
        pause = min(5.0, self._period)
        asked_at = float("-inf")
        while True:
            wanted, self._wanted = self._wanted, {}
            if wanted.keys() - self._known.keys() and time.monotonic() - asked_at >= self._period:
                asked_at = time.monotonic()
                await self._ask(wanted)
            await asyncio.sleep(pause)

    async def _ask(self, wanted: Mapping[str, None]) -> None:
        found: dict[str, Details] = {}
        hints: dict[str, None] = {}
        for question, name in ((_by_id, "[0-9]+"), (_by_sluid, SLUID)):
            if not any(re.fullmatch(name, each) for each in wanted):
                continue
            try:
                found |= await question()
            except (OSError, ValueError) as error:
                self._failed("squeue")
                hints[f"squeue: {error}"] = None
        self.hint = "; ".join(hints)
        if found or not hints:
            told = {**self._known, **found}
            self._known = {name: told[name] for name in wanted if name in told}
            self._changed()


async def _by_id() -> dict[str, Details]:
    mark = secrets.token_hex(8)
    answer = await output((*TEXT, f"--format={text_format(mark)}"), TIMEOUT)
    return await asyncio.to_thread(jobs_of_text, answer, mark)


async def _by_sluid() -> dict[str, Details]:
    return await asyncio.to_thread(jobs, await output(JSON, TIMEOUT))


async def output(command: Sequence[str], limit: float) -> bytes:
    """What the program prints. Raises OSError, of which TimeoutError, and ValueError."""
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(limit):
            output = await _all(process)
            await process.wait()
    except TimeoutError:
        await _end(process)
        raise TimeoutError(f"it does not end within {limit:g} seconds") from None
    except BaseException:
        await _end(process)
        raise
    if process.returncode:
        raise ValueError(f"it ended with {process.returncode}")
    return output


async def _end(process: asyncio.subprocess.Process) -> None:
    """Kill the program and what it started, and read the rest: only then is the pipe closed."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    # One that has left the group may hold the pipe.
    with suppress(TimeoutError):
        async with asyncio.timeout(1):
            while process.stdout is not None and await process.stdout.read(65536):
                pass
            await process.wait()


async def _all(process: asyncio.subprocess.Process) -> bytes:
    parts: list[bytes] = []
    size = 0
    while process.stdout is not None and (part := await process.stdout.read(256 * 1024)):
        size += len(part)
        if size > MAX_ANSWER:
            raise ValueError(f"it prints more than {MAX_ANSWER} bytes")
        parts.append(part)
    return b"".join(parts)
