"""What a simulation can be told: by the user, and by the vendor's simulation.toml."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec

Scenario = Literal["training", "inference", "idle", "failing"]
Share = Annotated[float, msgspec.Meta(gt=0, le=1)]


class ClockRange(msgspec.Struct, frozen=True, kw_only=True):
    min: float = 300.0
    max: float = 1800.0


class DeviceData(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of device. Templates may use {index}, {number}, {bus}, {uuid}; {uuid} is a random one of the seed."""

    kind: str = ""
    model: str = ""
    memory_bytes: int = 64 * 2**30
    reserved_memory_bytes: int = 512 * 2**20
    idle_watts: float = 60.0
    max_watts: float = 500.0
    """What the heaviest load would draw; the limit below may cut it."""
    power_limit_watts: float = 0.0
    """0: the same as max_watts."""
    min_power_limit_watts: float = 0.0
    idle_celsius: float = 32.0
    max_celsius: float = 76.0
    """At max_watts with sound cooling."""
    memory_celsius_above: float = 6.0
    slowdown_celsius: float = 90.0
    shutdown_celsius: float = 95.0
    core_clock_mhz: ClockRange = ClockRange()
    memory_clock_mhz: float = 1600.0
    media_clock_mhz: float = 1200.0
    compute_units: int = 64
    links: int = 4
    link_bytes_per_second: float = 25e9
    """Of one link, in each direction."""
    pcie_generation: int = 5
    pcie_width: int = 16
    spare_row_banks: int = 512
    driver_version: str = "1.0.0"
    firmware_version: str = ""
    uuid: str = "{uuid}"
    serial: str = "{number:012d}"
    pci_bus_id: str = "0000:{bus:02x}:00.0"


class PartProfile(msgspec.Struct, frozen=True, kw_only=True):
    profile: str
    count: Annotated[int, msgspec.Meta(ge=1, le=64)]
    memory_share: Share
    unit_share: Share


class PartsData(msgspec.Struct, frozen=True, kw_only=True):
    """How a device is cut. Templates may use {profile}, {part} and {uuid}."""

    name: str = "{profile}/{part}"
    uuid: str = "{uuid}"
    first_id: int = 0
    profiles: tuple[PartProfile, ...] = (PartProfile(profile="quarter", count=4, memory_share=0.25, unit_share=0.25),)


class Fixed(msgspec.Struct, frozen=True, kw_only=True):
    """What one raw series says, in its own unit, where the model cannot know.

    On a failing device the model wins over ``value`` for a series with a feed, so that its failure is seen. With the
    ``quantity`` ``fault_code`` a series gives the number of the last fault's code, and ``value`` before the first; with
    ``devices`` that of the devices and parts; with ``none`` nothing, for this model has no such series. The texts of
    ``labels`` may use what raw labels may; with ``fault_code`` also {fault_code} and {fault_name}. Several texts for a
    label make several series.
    """

    value: int | float | None = None
    quantity: Literal["", "fault_code", "devices", "none"] = ""
    labels: Mapping[str, str | tuple[str, ...]] = {}


class Simulation(msgspec.Struct, frozen=True, kw_only=True):
    """A vendor's simulation.toml.

    Raw labels may use {index}, {uuid}, {pci}, {serial}, {model}, {node}, {driver_version}, {profile} and {part}.
    """

    device: DeviceData = DeviceData()
    raw_labels: Mapping[str, str] = {}
    part_labels: Mapping[str, str] = {}
    """Those that only a part has."""
    parts: PartsData = PartsData()
    values: Mapping[str, Fixed] = {}


class SimulatedOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The vendor's tables (collectors.tables) stand beside these in the same options."""

    devices: Annotated[int, msgspec.Meta(ge=0, le=4096)] = 8
    seed: int = 1
    scenarios: Annotated[tuple[Scenario, ...], msgspec.Meta(min_length=1)] = (
        "training",
        "inference",
        "idle",
        "failing",
    )
    """One for each device, again from the first when there are more devices."""
    scenario: Scenario | Literal["", "mix"] = ""
    """One for all devices and parts. Empty or mix: ``scenarios``."""
    parts: Annotated[int, msgspec.Meta(ge=0)] = 0
    """How many of the devices are cut into parts."""
    profile: str = ""
    """Cut them into parts of this profile alone. Empty: as simulation.toml says."""
    cycle_seconds: Annotated[float, msgspec.Meta(ge=10)] = 600.0
    """How long a failing device takes from sound over lost to sound again."""
    distinct: bool = False
    """For benchmarks: give nearly every reading a value of its own, since equal values flatter renderers and gzip."""
    simulation: Simulation = Simulation()

    def of(self, number: int) -> Scenario:
        """What the device or part with this number does."""
        if self.scenario and self.scenario != "mix":
            return self.scenario
        return self.scenarios[number % len(self.scenarios)]
