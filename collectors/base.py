"""The contract between a vendor's collector and the agent.

A vendor's package offers ``open_collector(settings) -> Collector``. It runs in a worker process of its own: plain
blocking code that may hang or crash without harm to the agent. It imports nothing of the agent; this module, and the
readers beside it that know no vendor (unary.py, dial.py, protobuf.py, kernel_log.py), are what collectors share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

import msgspec

NODE = -1
"""``Reading.device`` of a series that belongs to the node and to no device."""

Group = Literal["fast", "normal", "slow"]
Labels = tuple[tuple[str, str], ...]


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """A physical device, or a part of one. A part has the uuid of its whole and a ``partition`` unique within it.

    A fact that the device does not tell stays empty: it is never guessed.
    """

    uuid: str
    """Stable identity of the physical device: vendor's uuid, else serial, else PCI address."""
    index: str
    """The index that people type."""
    partition: str = ""
    kind: str = "gpu"
    """What sort of accelerator: gpu, npu, tpu."""
    model: str = ""
    serial: str = ""
    pci_bus_id: str = ""
    driver_version: str = ""
    firmware_version: str = ""
    numa_node: str = ""
    """The kernel's number."""
    partition_uuid: str = ""
    """The part's own identity, where the vendor gives it one."""
    partition_profile: str = ""
    """The vendor's name for the part's size."""
    raw_labels: Labels = ()
    """The identity labels of the vendor's own exporter, in its order."""
    ids: Mapping[str, str] = {}
    """Further names of the device (minor number, card number, …) by which a kubelet or a scheduler may call it."""


class Reading(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One number under the vendor's own series name, in the unit that series.toml states."""

    series: str
    device: int
    """Position in the list that ``discover`` returned last, or NODE."""
    value: int | float
    labels: Labels = ()
    """Labels of the series beyond the device's identity, in the order of series.toml."""


class Fault(msgspec.Struct, frozen=True, array_like=True):
    """One fault event, as the vendor codes it (``xid:79``)."""

    device: int
    """Position in the list that ``discover`` returned last; so below, too."""
    code: str
    timestamp: float
    """Unix seconds."""


class ReadError(msgspec.Struct, frozen=True, array_like=True):
    """A quantity that could not be read now. What a device does not support is no error."""

    device: int
    kind: str
    """permission, transient, parse, lost, timeout or library; another counts as library."""
    detail: str
    """For people. A number that changes in it would make each time another trouble of the same one."""


class Process(msgspec.Struct, frozen=True, array_like=True):
    """A process that uses a device. ``memory``: bytes of the device's memory; None where that is not told."""

    device: int
    pid: int
    memory: int | None = None
    utilization: float | None = None
    """Share of the device's time, 0 to 1."""


class Holder(msgspec.Struct, frozen=True, array_like=True):
    """Whose a device is, as the vendor's own exporter says it: namespace, pod, container, job_name, where it does.

    Beside these there are its own labels of them.
    """

    device: int
    facts: Labels


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """The result of reading one group once."""

    readings: Sequence[Reading] = ()
    errors: Sequence[ReadError] = ()
    faults: Sequence[Fault] = ()
    lost: Sequence[int] = ()
    """Devices that do not answer any more: their values vanish and their health is failed."""
    processes: Sequence[Process] | None = None
    """Processes on the devices, where ``Settings.processes`` asks for them; None: not told by this group."""
    holders: Sequence[Holder] = ()
    rediscover: bool = False
    """The devices or their parts have changed: the agent calls ``discover`` before the next sample."""


class HostPaths(msgspec.Struct, frozen=True, kw_only=True):
    """Where the host's files are: a container mounts them elsewhere, a test puts fixtures there."""

    proc: str = "/proc"
    sys: str = "/sys"
    dev: str = "/dev"
    kmsg: str = "/dev/kmsg"
    run: str = "/run"
    var_lib: str = "/var/lib"
    etc: str = "/etc"
    opt: str = "/opt"


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What the agent tells a collector when it opens it."""

    wanted: Mapping[Group, frozenset[str]]
    """The raw series to read, by group: those that are exposed and those that feed the common schema."""
    paths: HostPaths = HostPaths()
    node: str = ""
    """The node's name, for vendors whose series carry it as a label."""
    links: Literal["sum", "each"] = "sum"
    """Links between devices: one series a device, or one a link."""
    processes: bool = False
    """Tell which processes use each device: attribution wants to know."""
    source: str = "auto"
    """Which of the vendor's own ways to read (collector.toml's ``sources``); auto: the best that works."""
    profile: str = "default"
    """Which spelling of the vendor's raw labels and names to use (collector.toml lists them)."""
    options: Mapping[str, Any] = {}
    """The vendor's own section of the configuration, checked against collector.toml's ``options``."""


class DeviceState(msgspec.Struct, frozen=True):
    """How a device is and who works on it, for services that a vendor's other programs ask."""

    device: Device
    health: str
    """healthy, degraded, failed or unknown."""
    workloads: tuple[str, ...] = ()
    """NAMESPACE/NAME of pods."""


class ServiceUnavailable(Exception):
    """A service cannot be offered; the text says what to do.

    A module that collector.toml's ``services`` names has ``start_service(states, paths)``, with ``states`` a function
    that any thread may call; it returns an object with ``stop()``.
    """


UnavailableState = Literal["no_device", "no_library", "no_driver", "no_permission", "version_mismatch", "released"]


class Unavailable(Exception):
    """This vendor cannot be read here now. Not an error: the agent shows the state and tries again slowly.

    ``hint`` tells the user what to do next. ``restart`` asks for a new process before the next try.
    """

    def __init__(self, state: UnavailableState, hint: str, *, restart: bool = False) -> None:
        super().__init__(f"{state}: {hint}")
        self.state: UnavailableState = state
        self.hint = hint
        self.restart = restart


class Collector(Protocol):
    """What ``open_collector`` returns. Calls come one at a time, from one thread.

    A collector with several ways to read may have an attribute ``source``: the one in use, one of collector.toml's
    ``sources``, looked at after each discovery.
    """

    def discover(self) -> Sequence[Device]:
        """List devices and their parts, a whole before its parts. Raises Unavailable."""
        ...

    def sample(self, group: Group) -> Sample:
        """Read every wanted series of the group once. Raises Unavailable when the vendor went away as a whole."""
        ...

    def close(self) -> None:
        """Let go of the driver. Called once, before the process ends or the devices are released."""
        ...
