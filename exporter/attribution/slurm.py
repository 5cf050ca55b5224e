"""Batch jobs from the files that prologs write: one for each device."""

from __future__ import annotations

import asyncio
import itertools
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from exporter.attribution.claims import Claim, SourceName, Status
from exporter.attribution.squeue import JobDetails
from exporter.attribution.text import clean
from exporter.config.attribution import SlurmAttribution
from exporter.files import beginning

FILE_NAME: Final = re.compile(r"(?P<index>[0-9]{1,4})(?:[.-](?P<instance>[0-9]{1,4}))?")
MAX_BYTES: Final = 64 * 1024
MAX_FILES: Final = 2048
MAX_JOBS: Final = 64
"""Jobs of one file; more share no device."""
MAX_ID: Final = 128
OUTDATED: Final = 60.0
"""Seconds for which the files count while a reading of them does not end."""
RENDER_MINORS: Final = 128
"""Some prologs number devices by the minors of their render nodes, which begin here."""

_OBJECT: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_TEXT: Final = msgspec.json.Decoder(str | int)
_LABELS: Final = {
    "SLURM_JOB_ID": "job_id",
    "SLURM_JOB_USER": "job_user",
    "SLURM_JOB_PARTITION": "job_partition",
    "SLURM_CLUSTER_NAME": "cluster_name",
}
"""Variables, and the labels that they become."""
_DEVICES: Final = ("CUDA_VISIBLE_DEVICES", "SLURM_JOB_GPUS")
"""Variables that list devices. Without CUDA the first is there and empty."""


class File(msgspec.Struct, frozen=True):
    """What a prolog wrote about a device."""

    index: str
    instance: str
    """Of a part of the device; empty for the whole."""
    text: str


class SlurmSource:
    """Claims of batch jobs, read again in time: files are written without care, and half of one is whole soon."""

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
        details: JobDetails | None = None,
    ) -> None:
        """``lines``: directories whose files have a job id a line; ``objects``: whose files have a JSON object.

        ``details`` works by itself; here it is looked at.
        """
        self._config, self._lines, self._objects, self._proc = config, lines, objects, proc
        self._changed, self._failed = changed, failed
        self._claims: tuple[Claim, ...] = ()
        self._status = Status(up=False, hint="the directories have not been read yet", waiting=True)
        self._details = details
        self._is_late = False

    @property
    def status(self) -> Status:
        return self._status

    def claims(self) -> Sequence[Claim]:
        """With the user for a tenant where nothing tells the account. None while a reading does not end."""
        if self._is_late:
            return ()
        details = self._details
        told = [claim if details is None else details.fill(claim) for claim in self._claims]
        return [msgspec.structs.replace(c, tenant=c.raw.get("job_user", "")) if not c.tenant else c for c in told]

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            claims, problems = await self._in_time()
            if problems:
                self._failed("io")
                self._status = Status(up=False, last_success=self._status.last_success, hint="; ".join(problems[:3]))
            else:
                self._status = Status(up=True, last_success=time.time())
            if self._details is not None:
                self._details.want(claims)
            if claims != self._claims:
                self._claims = claims
                self._changed()
            await asyncio.sleep(self._config.poll)

    async def _in_time(self) -> tuple[tuple[Claim, ...], list[str]]:
        """What ``_read`` says. A directory on a file system that does not answer is told as such, and waited for."""
        reading = asyncio.create_task(asyncio.to_thread(self._read))
        try:
            done, _ = await asyncio.wait((reading,), timeout=OUTDATED)
            if not done:
                self._is_late = True
                self._failed("timeout")
                hint = "a directory does not answer: is its file system away?"
                self._status = Status(up=False, last_success=self._status.last_success, hint=hint)
                self._changed()
            return await reading
        finally:
            reading.cancel()
            if self._is_late:
                self._is_late = False
                self._changed()

    def _read(self) -> tuple[tuple[Claim, ...], list[str]]:
        """What all files of all directories that are there say, and what could not be read."""
        booted = boot_time(self._proc)
        problems: list[str] = []
        claims: list[Claim] = []
        for folder in self._lines:
            claims += of_lines(files(Path(folder), booted, problems), self._config.vendor)
        for folder in self._objects:
            claims += of_objects(files(Path(folder), booted, problems), self._config.vendor)
        order = self._config.device_order
        return tuple(in_order(claim, order) for claim in claims), problems


def in_order(claim: Claim, order: Sequence[int]) -> Claim:
    """With the device's index instead of Slurm's number. Numbers beyond ``order`` stay."""
    number = int(claim.names["index"])
    if number >= len(order):
        return claim
    return msgspec.structs.replace(claim, names={**claim.names, "index": str(order[number])})


def of_lines(found: Sequence[File], vendor: str) -> Iterator[Claim]:
    """Of files that are named after devices and have a job id a line."""
    for file in found:
        listed = (line.strip() for line in file.text.splitlines()[:MAX_JOBS])
        for job in dict.fromkeys(listed):
            if job and job.isprintable() and len(job) <= MAX_ID:
                names = {"index": file.index, **({"gi": file.instance} if file.instance else {})}
                yield _claim(vendor, names, job, {"hpc_job": job})


def of_objects(found: Sequence[File], vendor: str) -> Iterator[Claim]:
    """Of files that have a JSON object of the job's variables. These list the devices of the whole job.

    Each device of a job has such a file. What another file says of a device that has one of its own does not count:
    that file may be the left-over of an earlier job.
    """
    told = [(str(int(file.index) % RENDER_MINORS), _variables(file.text)) for file in found]
    own = {index for index, variables in told if variables.get("SLURM_JOB_ID")}
    for named, variables in told:
        job = clean(variables.get("SLURM_JOB_ID", ""))
        if not job:
            continue
        raw = {label: clean(variables[name]) for name, label in _LABELS.items()}
        for index in _indices(variables) or (named,):
            if index == named or index not in own:
                claim = _claim(vendor, {"index": index}, job, raw)
                yield msgspec.structs.replace(claim, queue=raw["job_partition"])


def _variables(text: str) -> Mapping[str, str]:
    """Nothing of half an object."""
    try:
        found = _OBJECT.decode(text.encode())
    except (msgspec.MsgspecError, RecursionError):
        return {}
    told: dict[str, str] = {}
    for name in (*_LABELS, *_DEVICES):
        try:
            told[name] = str(_TEXT.decode(found[name])) if name in found else ""
        except msgspec.MsgspecError:
            told[name] = ""
    return told


def _indices(variables: Mapping[str, str]) -> Sequence[str]:
    listed = next((variables[name] for name in _DEVICES if variables[name].strip()), "")
    numbers = [int(part) for part in listed.split(",")[:MAX_JOBS] if re.fullmatch(r"\s*[0-9]{1,4}\s*", part)]
    return list(dict.fromkeys(str(number % RENDER_MINORS) for number in numbers))


def _claim(vendor: str, names: Mapping[str, str], job: str, raw: Mapping[str, str]) -> Claim:
    return Claim(source="slurm", vendor=vendor, names=names, job_name=job, job_kind="SlurmJob", raw=raw)


def files(folder: Path, booted: float, problems: list[str]) -> Sequence[File]:
    """The files of devices; those from before the last boot are left-overs. A directory that is not there has none.

    What cannot be read is added to ``problems``.
    """
    try:
        named = [(path, name) for path in folder.iterdir() if (name := FILE_NAME.fullmatch(path.name))]
    except (FileNotFoundError, NotADirectoryError):
        return ()
    except OSError as error:
        problems.append(str(error))
        return ()
    found: list[File] = []
    for path, name in itertools.islice(sorted(named, key=lambda each: each[0].name), MAX_FILES):
        try:
            read = beginning(path, MAX_BYTES)
        except FileNotFoundError:
            # The epilog was faster.
            continue
        except OSError as error:
            problems.append(str(error))
            continue
        if read is not None and read[1] >= booted:
            text = read[0].decode("utf-8", "replace")
            found.append(File(str(int(name["index"])), str(int(name["instance"])) if name["instance"] else "", text))
    return found


def boot_time(proc: str) -> float:
    """Unix seconds; 0 where the host does not tell."""
    try:
        text = (Path(proc) / "stat").read_text()
    except (OSError, UnicodeDecodeError):
        return 0.0
    found = re.search(r"^btime (\d+)$", text, re.MULTILINE)
    return float(found[1]) if found else 0.0
