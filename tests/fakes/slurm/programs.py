"""A program ``squeue`` that prints as Slurm's does.

Seen on Slurm 22.05: fields of --format stand as they are, line feeds and separators and all, with nothing cut and the
format's own text between them; --json prints every job with all it has, whatever else is asked for.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import exporter

ASKED: Final = "asked"
JOBS: Final = "jobs.json"
PADDING: Final = "x" * 3000
"""What a job has in JSON beside the fields that matter: 3 kB at the least."""


def install(folder: Path, jobs: Sequence[Mapping[str, Any]]) -> Path:
    """Put the program into a directory; returns it. A job: as in the JSON, with a state if it does not run."""
    folder.mkdir(exist_ok=True)
    say(folder, jobs)
    program = folder / "squeue"
    root = Path(exporter.__path__[0]).parent
    program.write_text(
        f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(root)!r})\n"
        f"from tests.fakes.slurm.programs import squeue\nsqueue({str(folder)!r}, sys.argv[1:])\n"
    )
    program.chmod(0o755)
    return program


def say(folder: Path, jobs: Sequence[Mapping[str, Any]]) -> None:
    """What the controller knows from now on."""
    (folder / "new").write_text(json.dumps(list(jobs)))
    (folder / "new").rename(folder / JOBS)


def asked(program: Path) -> list[list[str]]:
    """The arguments of each call."""
    file = program.parent / ASKED
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def squeue(folder: str, arguments: Sequence[str]) -> None:
    """What the program does."""
    with (Path(folder) / ASKED).open("a") as file:
        file.write(json.dumps(list(arguments)) + "\n")
    jobs = json.loads((Path(folder) / JOBS).read_text())
    if "--json" in arguments:
        print(json.dumps({"jobs": [{**job, "batch_host": PADDING} for job in jobs]}))
        return
    (form,) = (each.removeprefix("--format=") for each in arguments if each.startswith("--format="))
    fields = {"A": "job_id", "a": "account", "u": "user_name", "P": "partition"}
    (states,) = (each.removeprefix("--states=").upper() for each in arguments if each.startswith("--states="))
    for job in jobs:
        if job.get("job_state", "RUNNING") in states.split(","):
            first, *parts = form.split("%")
            print(first + "".join(f"{job[fields[part[0]]]}{part[1:]}" for part in parts))
