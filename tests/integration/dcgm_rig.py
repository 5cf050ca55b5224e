"""The NVIDIA collector over a fake libdcgm, in a process of its own."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import collectors.nvidia
from collectors.base import HostPaths, Settings
from tests.fakes.dcgm import HostEngine, Installation, World, install
from tests.integration.nvml_child import Child

DEV: Final = "DCGM_FI_DEV_"
PROF: Final = "DCGM_FI_PROF_"
NODE: Final = -1
TABLE: Final = Path(collectors.nvidia.__file__).parent / "series.toml"


def readable() -> list[str]:
    """Every series that the table promises for the source dcgm."""
    table = tomllib.loads(TABLE.read_text())["series"]
    return [row["name"] for row in table if "native" in row and "dcgm" in row.get("sources", ["dcgm"])]


def settings(
    address: str, wanted: Mapping[str, Sequence[str]] | None = None, source: str = "dcgm", **more: Any
) -> Settings:
    """Settings that ask for these series, by default for all of DCGM's in one group."""
    groups: dict[Any, frozenset[str]] = {
        group: frozenset(names) for group, names in (wanted or {"normal": readable()}).items()
    }
    options = {"dcgm_address": address, **more.pop("options", {})}
    nowhere = HostPaths(kmsg="/nonexistent/kmsg", sys="/nonexistent/sys")
    paths = more.pop("paths", nowhere)
    return Settings(wanted=groups, node="node-a", source=source, options=options, paths=paths, **more)


class Rig(NamedTuple):
    """A running collector, the engine that it talks to, and the world behind both."""

    child: Child
    engine: HostEngine
    dcgm: Installation


@contextmanager
def rig(
    folder: Path,
    world: World,
    wanted: Mapping[str, Sequence[str]] | None = None,
    majors: Sequence[int] = (4,),
    base: Mapping[str, str] = os.environ,
    **more: Any,
) -> Iterator[Rig]:
    """A collector with an engine on a socket. ``base`` is the environment to which the fake is added."""
    dcgm = install(folder / "dcgm", world, majors)
    with HostEngine(folder / "engine") as engine:
        told = settings(engine.address, wanted, **more)
        installation: Any = dcgm
        with Child(installation, told, dcgm.environment(base)) as child:
            yield Rig(child, engine, dcgm)
