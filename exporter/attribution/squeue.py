"""What Slurm's controller knows of jobs, as ``squeue`` prints it: account, user, partition.

Of a thousand jobs its JSON is 3 to 5 MB, whatever is asked for, and a text of the four fields 0.1 MB. Only the JSON
tells a job's SLUID (26.05 and newer): it is asked for where a job is known by that alone.
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import shutil
import signal
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec

from exporter.attribution.claims import Claim, Status
from exporter.attribution.text import clean

STATES: Final = "--states=running,completing,configuring,suspended"
"""Of jobs that hold devices: while prolog and epilog run, and while they are suspended, they are not called running."""
JSON: Final = ("squeue", "--json", STATES)
TEXT: Final = ("squeue", "--noheader", STATES)
SLUID: Final = re.compile(r"s[0-9a-z]{13}")
FIELDS: Final = ("%A", "%a", "%u", "%P")
"""Job id (of each element of an array its own), account, user, partition. Without a width none is cut."""
TIMEOUT: Final = 60.0
MAX_ANSWER: Final = 32 * 1024 * 1024
MAX_COMPLAINT: Final = 1000
MAX_WANTED: Final = 1024
"""Jobs of one node that are asked after."""
MAX_KEPT: Final = 20_000
"""Jobs of the cluster that are kept: one that works on a device only later needs no question of its own."""
WANTED: Final = 30.0
"""Seconds for which a job counts as this node's after a source has named it."""
LOOK: Final = 1.0
"""Seconds between two looks at which jobs are wanted, beside those for which a new one is a reason."""
SURE: Final = 60.0
"""Seconds after which a job that is still named has not just ended."""


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
    # A cluster has few accounts, users and partitions: one text for each is kept.
    same: dict[str, str] = {}
    for at in range(0, len(pieces), len(FIELDS)):
        told, *rest_of_it = pieces[at : at + len(FIELDS)]
        identity = told.strip()
        if identity.isdecimal():
            account, user, partition = (same.setdefault(text, text) for text in map(clean, rest_of_it))
            found[identity] = Details(identity, account, user, partition)
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
        self._period, self._changed, self._failed = period, changed, failed
        self._known: Mapping[str, Details] = {}
        self._wanted: dict[str, float] = {}
        """Job → when a source named it last."""
        self._news = asyncio.Event()
        """A job is wanted that was not wanted before."""
        self._untold: tuple[str, ...] = ()
        """What the last questions were about, where the answers told of nothing that was asked."""
        self._answered_at = float("-inf")
        self._status = Status(up=True, hint="not asked yet: no job is known to hold a device")

    @property
    def status(self) -> Status:
        """Down without the program or its answer, and where it answers and tells of none of this node's jobs."""
        if not self._status.up or not self._untold:
            return self._status
        sure = self._answered_at + SURE
        still = [name for name in self._untold if self._wanted.get(name, 0.0) > sure]
        hint = _untold(still) if still else f"{_untold(self._untold)}; or they have just ended"
        return msgspec.structs.replace(self._status, up=not still, hint=hint)

    def want(self, claims: Iterable[Claim]) -> None:
        """Some source names these jobs."""
        now = time.monotonic()
        for claim in claims:
            name = claim.job_name.casefold()
            if not name or claim.job_kind != "SlurmJob":
                continue
            if name not in self._wanted:
                if len(self._wanted) >= MAX_WANTED:
                    continue
                self._news.set()
            self._wanted[name] = now

    def fill(self, claim: Claim) -> Claim:
        """The claim with what is known of its job; what the claim's own source knows of it stays."""
        if not claim.job_name or claim.job_kind != "SlurmJob":
            return claim
        self.want((claim,))
        told = self._known.get(claim.job_name.casefold(), Details())
        return msgspec.structs.replace(
            claim,
            job_name=told.job or claim.job_name,
            tenant=claim.tenant or told.account or told.user,
            queue=claim.queue or told.partition,
        )

    async def run(self) -> None:
        """Until cancelled."""
        pause = min(LOOK, self._period)
        asked_at = float("-inf")
        if await asyncio.to_thread(shutil.which, JSON[0]) is None:
            self._status = Status(up=False, hint=_trouble(FileNotFoundError()))
        while True:
            now = time.monotonic()
            self._wanted = {name: at for name, at in self._wanted.items() if now - at <= WANTED}
            if self._wanted.keys() - self._known.keys() and now - asked_at >= self._period:
                asked_at = now
                if self._status.up and not self._status.last_success:
                    self._status = Status(up=True, hint="asked, and it has not answered yet")
                await self._ask(tuple(self._wanted))
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._news.wait()
            self._news.clear()

    async def _ask(self, wanted: Sequence[str]) -> None:
        known: Mapping[str, Details] = self._known
        hints: dict[str, None] = {}
        asked: list[str] = []
        for question, pattern in ((_by_id, "[0-9]+"), (_by_sluid, SLUID)):
            names = [name for name in wanted if re.fullmatch(pattern, name)]
            if not names:
                continue
            try:
                found = await question()
            except (OSError, ValueError) as error:
                self._failed("squeue")
                hints[_trouble(error)] = None
                continue
            asked += names
            if len(found) > MAX_KEPT:
                found = {name: found[name] for name in (*known, *names) if name in found}
            stays = {name: told for name, told in known.items() if name in wanted or not re.fullmatch(pattern, name)}
            known = {**stays, **found}
        if asked:
            self._known, self._answered_at = known, time.monotonic()
            self._untold = () if any(name in known for name in asked) else tuple(asked)
            self._changed()
        if hints:
            self._status = Status(up=False, last_success=self._status.last_success, hint="; ".join(hints))
        elif asked:
            self._status = Status(up=True, last_success=time.time())


def _trouble(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return (
            "squeue is not on the PATH of this process: add its directory to PATH "
            "(systemctl edit accel-exporter, Environment=PATH=…), or set attribution.slurm.details to none"
        )
    return f"squeue: {error}; does it answer for the user that the agent runs as?"


def _untold(jobs: Sequence[str]) -> str:
    return (
        f"squeue answers, but tells of none of this node's jobs ({', '.join(jobs[:3])}): with PrivateData=jobs in "
        "slurm.conf the agent's user must be root, SlurmUser or an operator; or an epilog has left files behind"
    )


async def _by_id() -> dict[str, Details]:
    mark = secrets.token_hex(8)
    answer = await output((*TEXT, f"--format={text_format(mark)}"), TIMEOUT)
    return await asyncio.to_thread(jobs_of_text, answer, mark)


async def _by_sluid() -> dict[str, Details]:
    return await asyncio.to_thread(jobs, await output(JSON, TIMEOUT))


async def output(command: Sequence[str], limit: float) -> bytes:
    """What the program prints. Raises OSError, of which TimeoutError, and ValueError."""
    process, transport = await _begin(command)
    complaining = asyncio.create_task(_complaint(process))
    try:
        async with asyncio.timeout(limit):
            output = await _all(process)
            complaint = await asyncio.shield(complaining)
            await process.wait()
    except TimeoutError:
        await _end(process, transport, complaining)
        raise TimeoutError(f"it does not end within {limit:g} seconds") from None
    except BaseException:
        await _end(process, transport, complaining)
        raise
    if process.returncode:
        raise ValueError(f"it ended with {process.returncode}{complaint}")
    return output


_Program = tuple[asyncio.subprocess.Process, asyncio.SubprocessTransport]


async def _begin(command: Sequence[str]) -> _Program:
    """Cancelled in the middle of it, asyncio would wait for as long as the program's children hold its pipes open."""
    beginning = asyncio.create_task(_start(command))
    try:
        return await asyncio.shield(beginning)
    except asyncio.CancelledError:
        with suppress(OSError):
            process, transport = await beginning
            await _end(process, transport, asyncio.create_task(_complaint(process)))
        raise


async def _start(command: Sequence[str]) -> _Program:
    """As asyncio.create_subprocess_exec, with what can close the pipes."""
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.subprocess_exec(
        lambda: asyncio.subprocess.SubprocessStreamProtocol(limit=64 * 1024, loop=loop),
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    return asyncio.subprocess.Process(transport, protocol, loop), transport


async def _complaint(process: asyncio.subprocess.Process) -> str:
    """The first line of what it says went wrong; the rest is read, lest it wait for its reader."""
    said = b""
    while process.stderr is not None and (part := await process.stderr.read(4096)):
        said += part[: MAX_COMPLAINT - len(said)]
    line = clean(next(iter(said.decode("utf-8", "replace").splitlines()), ""))
    return f": {line}" if line else ""


async def _end(
    process: asyncio.subprocess.Process, transport: asyncio.SubprocessTransport, complaining: asyncio.Task[str]
) -> None:
    """Kill the program and what it started, read the rest, and close the pipes."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    # One that has left the group may hold the pipe.
    with suppress(TimeoutError):
        async with asyncio.timeout(1):
            while process.stdout is not None and await process.stdout.read(65536):
                pass
            await complaining
            await process.wait()
    complaining.cancel()
    transport.close()


async def _all(process: asyncio.subprocess.Process) -> bytes:
    parts: list[bytes] = []
    size = 0
    while process.stdout is not None and (part := await process.stdout.read(256 * 1024)):
        size += len(part)
        if size > MAX_ANSWER:
            raise ValueError(f"it prints more than {MAX_ANSWER} bytes")
        parts.append(part)
    return b"".join(parts)
