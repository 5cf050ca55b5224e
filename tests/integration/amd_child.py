"""Drives the AMD collector over a fake library: AMD's package keeps one library for the life of a process."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from collectors.base import HostPaths, Settings
from tests.fakes.amd import Tree
from tests.fakes.amd.library import Installation
from tests.integration import collector_child


class Child(collector_child.Child):
    """``environ``: variables beyond those of the installation."""

    def __init__(self, settings: Settings, installation: Installation | None = None, **environ: str) -> None:
        base = installation.environ if installation is not None else _without_library()
        super().__init__(__name__, settings, {**base, **environ})


def _without_library() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("ROCM", "LD_LIBRARY"))}


def every_series() -> frozenset[str]:
    """All raw series of AMD's table that are read natively."""
    import tomllib

    import collectors.amd

    text = (Path(collectors.amd.__file__).parent / "series.toml").read_text()
    return frozenset(series["name"] for series in tomllib.loads(text)["series"] if series.get("native"))


def settings(tree: Tree, wanted: Mapping[str, Sequence[str]] | None = None, **more: Any) -> Settings:
    """Settings that ask for these series; by default for all, in one group."""
    groups: dict[Any, frozenset[str]] = {group: frozenset(names) for group, names in (wanted or {}).items()}
    paths = HostPaths(sys=str(tree.sys), opt=str(tree.root / "opt"))
    return Settings(wanted=groups or {"normal": every_series()}, node=more.pop("node", "node-a"), paths=paths, **more)


def main() -> None:
    from collectors.amd import open_collector

    collector_child.serve(open_collector)


if __name__ == "__main__":
    main()
