"""The part of a vendor's collector.toml that says what its devices are called in Kubernetes and by batch systems."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec


class IdPattern(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One form of a device's id in the kubelet's answers.

    Named groups are names of facts: uuid, index, serial, pci_bus_id, partition_uuid, partition, or a key of
    ``Device.ids``. A device is meant if it has all of them. The group ``share`` tells a replica and names nothing. A
    form without named groups means every device of the vendor.
    """

    pattern: str
    resources: tuple[str, ...] = ()
    """Resource names (globs) that use this form; empty: all of the vendor's."""
    hint: bool = False
    """A scheduler may give the workload another device than this id says, and tells which in an annotation: what the id
    itself says does not count."""


class DraRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How a DRA driver's devices are recognised."""

    driver: str
    attributes: Mapping[str, str] = {}
    """Attribute of the ResourceSlice's device → name of the fact that it gives."""
    names: tuple[str, ...] = ()
    """Patterns of device names, with groups as in ``IdPattern``, where the slice does not tell."""
    raw: Mapping[str, str] = {}
    """Key of a raw label (``raw_labels``) → attribute of the ResourceSlice's device that is its value."""
    raw_where: Mapping[str, str] = {}
    """Only for devices with these attributes."""
    skip: tuple[str, ...] = ()
    """Patterns of names that are no devices, such as channels."""


class AnnotationRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A pod's annotation that tells devices better than the kubelet does.

    The format ``slices`` is ``uuid,type,MiB,percent:`` for each device and ``;`` after each container, in the pod's
    order; ``list`` is ids with commas; ``objects`` is a JSON list with an object for each device.
    """

    key: str
    format: Literal["slices", "list", "objects"]
    resources: tuple[str, ...] = ()
    """Resource names (globs) whose ids in the kubelet's answers it replaces."""
    pattern: str = ""
    """For ``list``: pattern of one id, with groups as in ``IdPattern``."""
    facts: Mapping[str, str] = {}
    """For ``objects``: name of a fact, as in ``IdPattern`` → field. An object without them is of no device yet."""
    container: str = ""
    """For ``objects``: field with the container's number in the pod, those of initialization first."""
    whole: str = ""
    """For ``objects``: field with the uuid of the device that this is a part of."""
    instead_of: str = ""
    """For ``objects``: an annotation whose claims of these wholes do not count."""


class Attribution(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the vendor means to Kubernetes."""

    resources: tuple[str, ...] = ()
    """Names (globs) of the vendor's extended resources."""
    ignore: tuple[str, ...] = ()
    """Names (globs) of resources that hand out no device, such as memory or monitoring."""
    ids: tuple[IdPattern, ...] = ()
    """Forms of device ids; the first that matches an id and finds a device counts."""
    job_directories: tuple[str, ...] = ()
    """Directories (with {run}, …) with a file for each device, which a batch system's prolog fills with job ids."""
    json_directories: tuple[str, ...] = ()
    """The same with a JSON object of the job's variables."""
    dra: tuple[DraRule, ...] = ()
    annotations: tuple[AnnotationRule, ...] = ()
    raw_labels: Mapping[str, str] = {}
    """Fact of a workload (namespace, pod, container, pod_uid, share, job_name, …) → label of the vendor's exporter."""
    raw_empty: bool = False
    """The vendor's exporter gives these labels on free devices, too, empty."""
