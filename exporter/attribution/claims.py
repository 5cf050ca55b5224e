"""What sources of attribution say, before it is joined with devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

import msgspec

SourceName = Literal["podresources", "pods", "dra", "annotations", "slurm", "squeue", "processes", "static", "bridge"]


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """A container or a batch job holds a device, as one source says it.

    Either ``device_id`` names the device as a kubelet does (the vendor's tables tell which device it is), or ``names``
    gives names that devices have themselves. What the source does not know stays empty.
    """

    source: SourceName
    resource: str = ""
    """Kubernetes' name of what was asked for, such as example.com/gpu; a DRA driver's name for DRA."""
    device_id: str = ""
    names: Mapping[str, str] = {}
    """Name of a fact (uuid, index, serial, pci_bus_id, partition_uuid, or a key of Device.ids) → its value."""
    everything: bool = False
    """All devices of the vendor."""
    vendor: str = ""
    """Only devices of this vendor, where the source knows it."""
    share: str = ""
    """Which share of the device, where it is handed out in shares."""
    namespace: str = ""
    pod: str = ""
    pod_uid: str = ""
    container: str = ""
    job_name: str = ""
    job_kind: str = ""
    tenant: str = ""
    queue: str = ""
    replaces: tuple[str, ...] = ()
    """Resource names (globs) whose ids in the kubelet's answer are not the truth for this pod."""
    raw: Mapping[str, str] = {}
    """Labels that the vendor's own exporter would add from this source (hpc_job, job_id, …)."""


class Owner(msgspec.Struct, frozen=True):
    """A reference of a pod to what owns it."""

    kind: str
    name: str
    controller: bool = False


class Pod(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a pod beyond its name."""

    namespace: str
    name: str
    uid: str = ""
    other_uid: str = ""
    """Of a static pod: the uid that the kubelet uses, which is not the API server's."""
    phase: str = ""
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    owners: Sequence[Owner] = ()
    containers: Mapping[str, str] = {}
    """Container id (64 hex digits) → container's name."""
    container_order: Sequence[str] = ()
    """Names of the containers in the pod's order."""
    init_order: Sequence[str] = ()
    """The same of its init containers."""

    @property
    def ended(self) -> bool:
        return self.phase in ("Succeeded", "Failed")


Pods = Mapping[tuple[str, str], Pod]
"""(namespace, name) → pod"""


class Described(Protocol):
    """What has labels and annotations."""

    @property
    def labels(self) -> Mapping[str, str] | None: ...

    @property
    def annotations(self) -> Mapping[str, str] | None: ...


Namespaces = Mapping[str, Described]
"""Name → namespace"""


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """How a source is."""

    up: bool
    last_success: float = 0.0
    """Unix seconds."""
    hint: str = ""
    """What to do when it is not up, or why there is nothing to ask it."""
    waiting: bool = False
    """It has just begun, and there is no trouble yet."""


class ClaimSource(Protocol):
    """Something that knows claims."""

    name: SourceName

    @property
    def status(self) -> Status: ...

    def claims(self) -> Sequence[Claim]:
        """What holds now. Empty where the last good answer is too old."""
        ...
