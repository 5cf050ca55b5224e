"""The fake neuron-monitor: writes what scenario.json beside it says, in the groups that its configuration asks for.

scenario.json: ``first`` is written once, ``report`` then once a period, read anew each time. Each is an object (a
report) or a list of steps: {"text": …} writes as it is, {"sleep": seconds}, {"stderr": …}, {"exit": code},
{"hang": true}, {"child": true} starts a grandchild that keeps the pipes.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

FOLDER = Path(sys.argv[0]).parent
UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0}


def main() -> None:
    config = json.loads(Path(sys.argv[sys.argv.index("-c") + 1]).read_text())
    amount, unit = re.fullmatch(r"([0-9.]+)(ms|s|m)", config["period"]).groups()  # type: ignore[union-attr]
    with (FOLDER / "starts.jsonl").open("a") as file:
        names = ("GOMEMLIMIT", "LC_ALL")
        seen = {name: os.environ.get(name) for name in names} | {"pid": os.getpid(), "group": os.getpgrp()}
        file.write(json.dumps({**seen, "config": config, "arguments": sys.argv[1:]}) + "\n")
    play(scenario().get("first", []), config)
    while True:
        play(scenario().get("report", []), config)
        time.sleep(float(amount) * UNITS[unit])


def scenario() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / "scenario.json").read_text())
    return found


def play(what: Any, config: dict[str, Any]) -> None:
    if isinstance(what, dict):
        write(json.dumps(asked_for(what, config), separators=(",", ":")) + "\n")
        return
    for step in what:
        if "text" in step:
            write(step["text"])
        elif "sleep" in step:
            time.sleep(step["sleep"])
        elif "stderr" in step:
            print(step["stderr"], file=sys.stderr, flush=True)
        elif "child" in step:
            subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        elif "hang" in step:
            time.sleep(600)
        else:
            sys.exit(step["exit"])


def asked_for(report: dict[str, Any], config: dict[str, Any]) -> dict[str, Any]:
    """The report with the groups of the configuration alone."""
    runtime = {metric["type"] for entry in config["neuron_runtimes"] for metric in entry["metrics"]}
    system = {metric["type"] for metric in config["system_metrics"]}
    runtimes = report.get("neuron_runtime_data")
    if runtimes:
        runtimes = [
            {**one, "report": {name: group for name, group in (one["report"] or {}).items() if name in runtime}}
            for one in runtimes
        ]
    found = {**report, "neuron_runtime_data": runtimes}
    if report.get("system_data"):
        found["system_data"] = {name: group for name, group in report["system_data"].items() if name in system}
    return found


def write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


if __name__ == "__main__":
    main()
