"""Drives the NVIDIA collector over a fake library: the binding keeps one library for the life of a process."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from collectors.base import HostPaths, Settings
from tests.fakes.nvml import Installation
from tests.integration import collector_child
from tests.integration.collector_child import Answer


class Child(collector_child.Child):
    """``lost_every``: seconds between two looks for a lost GPU, instead of the collector's two minutes."""

    def __init__(
        self,
        installation: Installation,
        settings: Settings,
        environment: Mapping[str, str] | None = None,
        lost_every: float | None = None,
    ) -> None:
        arguments = [] if lost_every is None else [str(lost_every)]
        super().__init__(__name__, settings, environment or installation.environment(), *arguments)


def settings(wanted: Mapping[str, Sequence[str]] | None = None, kmsg: Path | None = None, **more: Any) -> Settings:
    """Settings that ask for these series; by default for all, in one group; without the machine's own kernel log."""
    from collectors.nvidia.table import TABLE

    groups: dict[Any, frozenset[str]] = {group: frozenset(names) for group, names in (wanted or {}).items()}
    return Settings(
        wanted=groups or {"normal": frozenset(TABLE)},
        node=more.pop("node", "node-a"),
        paths=HostPaths(kmsg=str(kmsg or "/nonexistent/kmsg"), sys=str(more.pop("sys", "/nonexistent/sys"))),
        **more,
    )


def second_sample(installation: Installation, **options: Any) -> Answer:
    """A sample that has an earlier one to take rates from."""
    with Child(installation, settings(**options)) as child:
        child.discover()
        time.sleep(0.12)
        child.sample()
        time.sleep(0.12)
        return child.sample()


def main() -> None:
    from collectors.nvidia import nvml, open_collector

    if len(sys.argv) > 2:
        vars(nvml)["_LOST_EVERY"] = float(sys.argv[2])
    collector_child.serve(open_collector)


if __name__ == "__main__":
    main()
