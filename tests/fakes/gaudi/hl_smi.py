"""The fake hl-smi itself: a program that needs nothing but Python. smi.py installs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any


def table(scenario: dict[str, Any], asked: list[str]) -> str:
    """The CSV table. A scenario may refuse fields, lack columns, and write values in other ways."""
    for name in asked:
        if name in scenario.get("refused", ()):
            print(f'Field "{name}" is not a valid field to query.', file=sys.stderr)
            sys.exit(scenario.get("refusal_code", 2))
    columns = [name for name in asked if name not in scenario.get("missing", ())] + list(scenario.get("extra", ()))
    units = scenario["units"]
    head = [f"{name} [{units[name]}]" if name in units else name for name in columns]
    lines = [*scenario.get("before", ()), ", ".join(head)]
    for device in scenario["devices"]:
        cells = []
        for name in columns:
            value = device.get(name, scenario.get("absent", "N/A"))
            plain = value.replace(".", "", 1).isdigit()
            bare = scenario.get("nounits") or name not in units or not plain
            cells.append(value if bare else f"{value} {units[name]}")
        lines.append(", ".join(cells))
    return "\n".join([*lines, *scenario.get("after", ())]) + "\n"


def network(scenario: dict[str, Any], what: str, device: str) -> str:
    ports = scenario["ports"]
    if what == "ports":
        return "".join(f"port {port}: external\n" for port in ports["external"])
    up = set(ports["up"].get(device, ()))
    return "".join(f"port {port:2d}:        {'UP' if port in up else 'DOWN'}\n" for port in range(ports["count"]))


def note(scenario: dict[str, Any], arguments: list[str]) -> None:
    locale = {name: value for name, value in os.environ.items() if name.startswith(("LC_", "LANG"))}
    with Path(scenario["log"]).open("a") as log:
        log.write(json.dumps({"arguments": arguments, "locale": locale, "pid": os.getpid()}) + "\n")


def main(file: str) -> None:
    scenario = json.loads(Path(file).read_text())
    arguments = sys.argv[1:]
    note(scenario, arguments)
    if scenario.get("child"):
        # Something that outlives the program and holds its pipes open.
        with Path(scenario["child"]).open("w") as pid:
            pid.write(str(subprocess.Popen(["sleep", "600"]).pid))
    if scenario.get("hang"):
        time.sleep(600)
    if "raw" in scenario:
        output = scenario["raw"] * scenario.get("times", 1)
    elif arguments[0] == "-n":
        output = network(scenario, arguments[1], arguments[3])
    else:
        output = table(scenario, arguments[1].split(","))
    output = output[: len(output) - scenario.get("cut", 0)]
    sys.stdout.write(output)
    sys.stdout.flush()
    if "complaint" in scenario:
        print(scenario["complaint"], file=sys.stderr)
    sys.exit(scenario.get("code", 0))
