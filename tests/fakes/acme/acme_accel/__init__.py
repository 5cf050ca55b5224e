"""A collector whose devices do what a JSON file says, read anew at each call.

Keys of the file, all optional: ``devices`` (fields of collectors.base.Device), ``readings`` (group → rows of series,
device, value, labels), ``faults``, ``lost``, ``errors``, ``rediscover``, ``unavailable`` ([state, hint]), and ``do``:
what goes wrong in a call (``hang``, ``deaf``, ``crash``, ``exit``, ``print``, ``raise``, ``flood``, ``orphan``,
``leak``), or ``do_<call>`` in that call alone. In ``close`` only ``do_close`` counts.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from collectors.base import Device, Fault, Group, ReadError, Reading, Sample, Settings, Unavailable

_KEPT: list[bytes] = []


def open_collector(settings: Settings) -> AcmeCollector:
    return AcmeCollector(Path(str(settings.options["world"])), settings)


class AcmeCollector:
    def __init__(self, path: Path, settings: Settings) -> None:
        self._path, self._settings = path, settings
        self._world("open")

    def discover(self) -> list[Device]:
        devices = self._world("discover").get("devices", [])
        return [Device(**{**d, "raw_labels": (("slot", d["index"]), ("UUID", d["uuid"]))}) for d in devices]

    def sample(self, group: Group) -> Sample:
        world = self._world("sample")
        wanted = self._settings.wanted[group]
        rows = world.get("readings", {}).get(group, [])
        return Sample(
            readings=[
                Reading(series, device, value, tuple((name, text) for name, text in labels))
                for series, device, value, labels in rows
                if series in wanted or world.get("unwanted")
            ],
            errors=[ReadError(*row) for row in world.get("errors", [])],
            faults=[Fault(*row) for row in world.get("faults", [])] if group == "normal" else [],
            lost=world.get("lost", []),
            rediscover=bool(world.get("rediscover")),
        )

    def close(self) -> None:
        with Path(f"{self._path}.closed").open("a") as file:
            file.write(f"{os.getpid()}\n")
        _misbehave(json.loads(self._path.read_text()).get("do_close"))

    def _world(self, call: str) -> dict[str, Any]:
        world: dict[str, Any] = json.loads(self._path.read_text())
        if world.get("unavailable"):
            state, hint = world["unavailable"]
            raise Unavailable(state, hint, restart=bool(world.get("restart")))
        _misbehave(world.get(f"do_{call}", world.get("do")))
        return world


def _misbehave(how: str | None) -> None:
    match how:
        case "hang":
            while True:
                time.sleep(60)
        case "deaf":
            signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
            while True:
                time.sleep(60)
        case "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        case "exit":
            os._exit(3)
        case "print":
            os.write(1, b"\x00\x00\x00\x05hello")
            print("noise of a library", file=sys.stderr)
        case "flood":
            os.write(1, b"x" * 3_000_000 + b"\n")
        case "raise":
            raise ZeroDivisionError("a fault of the collector")
        case "leak":
            _KEPT.append(b"x" * (40 << 20))
        case "orphan":
            subprocess.Popen(["sleep", "300"])
