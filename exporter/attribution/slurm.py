"""Batch jobs from the files that prologs write: one for each device."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from exporter.attribution.claims import Claim, SourceName, Status
from exporter.config.attribution import SlurmAttribution

FILE_NAME: Final = re.compile(r"(?P<index>\d{1,4})(?:[.-](?P<instance>\d{1,4}))?")
MAX_BYTES: Final = 64 * 1024
MAX_FILES: Final = 2048
MAX_JOBS: Final = 64
"""Jobs of one file; more share no device."""
ANSWER_BYTES: Final = 32 * 1024 * 1024


class SlurmSource:
    """Claims of batch jobs, read again in time. Files are written without care: half of one is read again later."""

    name: SourceName = "slurm"

    def __init__(
        self,
        config: SlurmAttribution,
        lines: Sequence[str],
        objects: Sequence[str],
        proc: str,
        *,
        changed: Callable[[], None],
        failed: Callable[[str], None],
    ) -> None:
        """``lines``: directories whose files have a job id a line; ``objects``: whose files have a JSON object."""
        self._config, self._lines, self._objects, self._proc = config, lines, objects, proc
        self._changed, self._failed = changed, failed
        self._claims: tuple[Claim, ...] = ()
        self._details: Mapping[str, Mapping[str, str]] = {}
        self._asked_at = float("-inf")
        self._status = Status(up=False, hint="the directories have not been read yet")

    @property
    def status(self) -> Status:
        return self._status

    def claims(self) -> Sequence[Claim]:
        return self._claims

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                found = await asyncio.to_thread(self._read)
            except OSError as error:
                self._failed("io")
                self._status = Status(up=False, last_success=self._status.last_success, hint=str(error))
            else:
                await self._learn(found)
                detailed = tuple(_with_details(claim, self._details.get(claim.job_name, {})) for claim in found)
                self._status = Status(up=True, last_success=time.time())
                if detailed != self._claims:
                    self._claims = detailed
                    self._changed()
            await asyncio.sleep(self._config.poll)

    def _read(self) -> tuple[Claim, ...]:
        """All files of all directories that are there. Files from before the last boot are left-overs."""
        booted = boot_time(self._proc)
        claims = [claim for folder in self._lines for claim in of_lines(Path(folder), self._config.vendor, booted)]
        claims += [claim for folder in self._objects for claim in of_objects(Path(folder), self._config.vendor, booted)]
        return tuple(dict.fromkeys(claims))

    async def _learn(self, claims: Sequence[Claim]) -> None:
        """Ask the controller for accounts and users, seldom, and only while there are jobs that it has not told."""
        unknown = {claim.job_name for claim in claims} - self._details.keys()
        if self._config.details == "none" or not unknown:
            return
        if time.monotonic() - self._asked_at < self._config.details_poll:
            return
        self._asked_at = time.monotonic()
        try:
            self._details = await squeue()
        except (OSError, ValueError, TimeoutError) as error:
            self._failed("squeue")
            self._status = Status(up=True, last_success=self._status.last_success, hint=f"squeue: {error}")


def of_lines(folder: Path, vendor: str, booted: float) -> Iterator[Claim]:
    """A directory whose files are named after devices and have a job id a line."""
    for names, text in _files(folder, booted):
        for line in text.splitlines()[:MAX_JOBS]:
            job = line.strip()
            if job:
                yield _claim(vendor, names, job, raw={"hpc_job": job})


def of_objects(folder: Path, vendor: str, booted: float) -> Iterator[Claim]:
    """A directory whose files have a JSON object of the job's variables. The object names the devices, not the file."""
    for names, text in _files(folder, booted):
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            continue
        if not isinstance(found, dict):
            continue
        told = {str(name): str(value) for name, value in found.items() if isinstance(value, str | int)}
        job = told.get("SLURM_JOB_ID", "")
        if not job:
            continue
        raw = {
            "job_id": job,
            "job_user": told.get("SLURM_JOB_USER", ""),
            "job_partition": told.get("SLURM_JOB_PARTITION", ""),
            "cluster_name": told.get("SLURM_CLUSTER_NAME", ""),
        }
        listed = told.get("CUDA_VISIBLE_DEVICES") or told.get("SLURM_JOB_GPUS") or ""
        indices = [str(int(part) % 128) for part in listed.split(",") if part.strip().isdecimal()][:MAX_JOBS]
        for index in indices or [names["index"]]:
            claim = _claim(vendor, {"index": index}, job, raw=raw)
            yield _with_details(claim, {"user": raw["job_user"], "queue": raw["job_partition"]})


def _claim(vendor: str, names: Mapping[str, str], job: str, raw: Mapping[str, str]) -> Claim:
    return Claim(source="slurm", vendor=vendor, names=dict(names), job_name=job, job_kind="SlurmJob", raw=dict(raw))


def _with_details(claim: Claim, details: Mapping[str, str]) -> Claim:
    if not details:
        return claim
    return Claim(
        source=claim.source,
        vendor=claim.vendor,
        names=claim.names,
        job_name=claim.job_name,
        job_kind=claim.job_kind,
        tenant=claim.tenant or details.get("account", "") or details.get("user", ""),
        queue=claim.queue or details.get("queue", ""),
        raw=claim.raw,
    )


def _files(folder: Path, booted: float) -> Iterator[tuple[dict[str, str], str]]:
    """Names of the device and the text, of each file of a device. A directory that is not there has none."""
    try:
        paths = sorted(folder.iterdir())[:MAX_FILES]
    except (FileNotFoundError, NotADirectoryError):
        return
    for path in paths:
        name = FILE_NAME.fullmatch(path.name)
        if name is None:
            continue
        try:
            if not path.is_file() or path.stat().st_mtime < booted:
                continue
            with path.open("rb") as file:
                text = file.read(MAX_BYTES).decode("utf-8", "replace")
        except FileNotFoundError:
            # The epilog was faster.
            continue
        names = {"index": name["index"]}
        if name["instance"] is not None:
            names["gi"] = name["instance"]
        yield names, text


def boot_time(proc: str) -> float:
    """Unix seconds; 0 where the host does not tell."""
    try:
        text = (Path(proc) / "stat").read_text()
    except OSError:
        return 0.0
    found = re.search(r"^btime (\d+)$", text, re.MULTILINE)
    return float(found[1]) if found else 0.0


async def squeue(program: str = "squeue", limit: float = 30.0) -> dict[str, dict[str, str]]:
    """Job id → account, user, partition of all running jobs. Raises OSError, ValueError, TimeoutError."""
    process = await asyncio.create_subprocess_exec(
        program,
        "--json",
        "--states=running",
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(limit):
            output = await _all(process)
            await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
    if process.returncode:
        raise ValueError(f"it ended with {process.returncode}")
    return jobs(json.loads(output))


async def _all(process: asyncio.subprocess.Process) -> bytes:
    parts: list[bytes] = []
    size = 0
    while process.stdout is not None and (part := await process.stdout.read(256 * 1024)):
        size += len(part)
        if size > ANSWER_BYTES:
            raise ValueError(f"it prints more than {ANSWER_BYTES} bytes")
        parts.append(part)
    return b"".join(parts)


def jobs(answer: Any) -> dict[str, dict[str, str]]:
    """What ``squeue --json`` says of each job, in the shapes of all versions. Raises ValueError."""
    listed = answer.get("jobs") if isinstance(answer, dict) else None
    if not isinstance(listed, list):
        raise ValueError("there is no list of jobs in its answer")
    found: dict[str, dict[str, str]] = {}
    for job in listed:
        if isinstance(job, dict) and isinstance(job.get("job_id"), int):
            found[str(job["job_id"])] = {
                "account": _text(job.get("account")),
                "user": _text(job.get("user_name")),
                "queue": _text(job.get("partition")),
            }
    return found


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
