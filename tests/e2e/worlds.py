"""The machines on which the agent is tried: each has a name, a scenario of the fake NVML and a fast configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from exporter.registry import catalogues
from tests.e2e.host import Host, make_host
from tests.fakes.nvml import Installation, Scenario, install, scenarios
from tests.fakes.nvml.model import Value

NODE: Final = "node-a"
NORMAL: Final = 0.3
"""Seconds between two samples; the other intervals follow."""

ECC_PLACES: Final = ("l1", "l2", "dram", "register", "texture", "shm", "cbu", "sram")


def workstation() -> Scenario:
    """One GPU that tells what none of the boards does, whatever its generation.

    Two fans; memory errors at each place; more engines; caches of host and peer memory; errors of PCIe by severity;
    errors of NVLink by link of its data link layer, and of its data; bit error rates over all links.
    """
    keys: dict[str, Value] = {"fan_count": 2, "fan_speed": 41, "fan_speed.0": 40, "fan_speed.1": 42}
    for number, place_ in enumerate(ECC_PLACES):
        for counter, start in (("volatile", 10), ("aggregate", 30)):
            keys[f"ecc.corrected.{counter}.{place_}"] = start + number
            keys[f"ecc.uncorrected.{counter}.{place_}"] = start + 10 + number
    keys |= {"gpm.37": 7, "gpm.47": 17, "gpm.51": 21, "gpm.160": 60, "gpm.161": 61, "gpm.162": 62, "gpm.163": 63}
    keys |= {"field.160": "ull:160", "field.179": "ui:4", "field.180": "ui:5"}
    keys |= {f"field.{field}.all": f"ull:{field}" for field in (161, 162, 163)}
    keys |= {"field.220.all": f"ull:{1 << 8 | 15}", "field.222.all": f"ull:{3 << 8 | 12}"}
    return scenarios.h100(1).with_keys("gpu 0", keys)


WORLDS: Final[Mapping[str, Callable[[], Scenario]]] = {
    "h100": lambda: scenarios.h100(2),
    "h100_mig": scenarios.h100_mig,
    "a100_mig": scenarios.a100_mig,
    "t4": scenarios.t4,
    "workstation": workstation,
    "b200": lambda: scenarios.b200(2),
    "gb200": lambda: scenarios.b200(2, grace=True),
    "gb10": scenarios.gb10,
    "r535_early": scenarios.r535_early,
    "zero_gpus": scenarios.zero_gpus,
    "no_driver": scenarios.no_driver,
    "version_skew": scenarios.version_skew,
    "no_permission": lambda: scenarios.no_permission(scenarios.h100(2)),
    "no_permission_for_one": lambda: scenarios.no_permission(scenarios.h100(2), 1),
}
WITHOUT_DEVICES: Final[Mapping[str, str]] = {
    "zero_gpus": "no_device",
    "no_driver": "no_driver",
    "version_skew": "version_mismatch",
    "no_permission": "no_permission",
}
"""Worlds in which there is nothing to read, and the state that says why."""


class Place(msgspec.Struct, frozen=True):
    """A fake host and the fake library on it."""

    host: Host
    nvml: Installation

    epoch: float
    """Unix seconds from which the scenario's counters grow."""

    @property
    def environ(self) -> dict[str, str]:
        return self.nvml.environment()

    def config(self, **more: Any) -> dict[str, Any]:
        """Fast intervals, the host's paths, NVML alone; ``more`` are further sections, merged one level deep."""
        found: dict[str, Any] = {
            "node": NODE,
            "intervals": {"normal": NORMAL, "fast": NORMAL, "slow": 2 * NORMAL},
            "collection": {"retry_unavailable": 1, "backoff_min": 0.1, "backoff_max": 0.2, "deadline": 5},
            "paths": {"root": str(self.host.root)},
            "collectors": {name: {"enabled": False} for name in catalogues()} | {"nvidia": {"source": "nvml"}},
        }
        for name, section in more.items():
            found[name] = {**found.get(name, {}), **section} if isinstance(section, dict) else section
        return found


def place(folder: Path, scenario: Scenario) -> Place:
    """A host with the scenario's GPUs on its bus; at least one, so that NVML is asked at all."""
    gpus = len(scenario.headers("gpu")) or 1
    epoch = float(scenario.keys("system")["epoch"])
    return Place(make_host(folder, gpus), install(folder / "nvml", scenario), epoch)


def still(scenario: Scenario) -> Scenario:
    """The same world, in which no counter grows."""
    sections = {
        header: {key: _at_rest(value) for key, value in keys.items()} for header, keys in scenario.sections.items()
    }
    return Scenario(sections, scenario.missing)


def _at_rest(value: Value) -> Value:
    if isinstance(value, str) and value.endswith("/s"):
        return value[: value.rindex("+")]
    return value
