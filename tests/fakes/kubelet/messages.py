"""The messages of PodResources v1, written by the protobuf runtime: an encoder that knows nothing of our decoder.

Numbers, names and types are those of kubernetes/kubelet, pkg/apis/podresources/v1/api.proto at Kubernetes 1.37; the
field class_name of 1.27 to 1.30, removed since, is there, too.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

PACKAGE: Final = "v1"

FIELDS: Final = {
    "ListPodResourcesResponse": ("1 repeated PodResources pod_resources",),
    "PodResources": (
        "1 string name",
        "2 string namespace",
        "3 repeated ContainerResources containers",
        "4 repeated int64 cpu_ids",
        "5 repeated ContainerMemory memory",
    ),
    "ContainerResources": (
        "1 string name",
        "2 repeated ContainerDevices devices",
        "3 repeated int64 cpu_ids",
        "4 repeated ContainerMemory memory",
        "5 repeated DynamicResource dynamic_resources",
    ),
    "ContainerMemory": ("1 string memory_type", "2 uint64 size", "3 TopologyInfo topology"),
    "ContainerDevices": ("1 string resource_name", "2 repeated string device_ids", "3 TopologyInfo topology"),
    "TopologyInfo": ("1 repeated NUMANode nodes",),
    "NUMANode": ("1 int64 ID",),
    "DynamicResource": (
        "1 string class_name",
        "2 string claim_name",
        "3 string claim_namespace",
        "4 repeated ClaimResource claim_resources",
    ),
    "ClaimResource": (
        "1 repeated CDIDevice cdi_devices",
        "2 string driver_name",
        "3 string pool_name",
        "4 string device_name",
        "5 string share_id",
    ),
    "CDIDevice": ("1 string name",),
}
_TYPES: Final = {
    "string": descriptor_pb2.FieldDescriptorProto.TYPE_STRING,
    "int64": descriptor_pb2.FieldDescriptorProto.TYPE_INT64,
    "uint64": descriptor_pb2.FieldDescriptorProto.TYPE_UINT64,
}


@dataclass(frozen=True, slots=True)
class Devices:
    """Ids of one resource. ``nodes``: NUMA nodes of all of them."""

    resource: str
    ids: Sequence[str]
    nodes: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class Dra:
    """One device of a claim; kubelets before 1.31 tell ``cdi`` only."""

    driver: str = ""
    pool: str = ""
    device: str = ""
    share: str | None = None
    cdi: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Claim:
    name: str
    namespace: str
    devices: Sequence[Dra]
    class_name: str = ""


@dataclass(frozen=True, slots=True)
class Container:
    name: str
    devices: Sequence[Devices] = ()
    claims: Sequence[Claim] = ()
    cpus: Sequence[int] = ()
    memory: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class Pod:
    namespace: str
    name: str
    containers: Sequence[Container] = ()
    cpus: Sequence[int] = ()
    """Of Kubernetes 1.37: of the pod as a whole, beside its containers'."""


def answer(pods: Sequence[Pod]) -> bytes:
    """A ListPodResourcesResponse."""
    found = _message("ListPodResourcesResponse")()
    for pod in pods:
        written = found.pod_resources.add(name=pod.name, namespace=pod.namespace, cpu_ids=pod.cpus)
        for container in pod.containers:
            _write(written.containers.add(name=container.name, cpu_ids=container.cpus), container)
    return bytes(found.SerializeToString())


def _write(written: Any, container: Container) -> None:
    for size in container.memory:
        written.memory.add(memory_type="memory", size=size).topology.nodes.add(ID=0)
    for devices in container.devices:
        entry = written.devices.add(resource_name=devices.resource, device_ids=devices.ids)
        for node in devices.nodes:
            entry.topology.nodes.add(ID=node)
    for claim in container.claims:
        entry = written.dynamic_resources.add(
            class_name=claim.class_name, claim_name=claim.name, claim_namespace=claim.namespace
        )
        for device in claim.devices:
            resource = entry.claim_resources.add(
                driver_name=device.driver, pool_name=device.pool, device_name=device.device
            )
            if device.share is not None:
                resource.share_id = device.share
            for name in device.cdi:
                resource.cdi_devices.add(name=name)


@functools.cache
def _message(name: str) -> Any:
    return message_factory.GetMessageClass(_pool().FindMessageTypeByName(f"{PACKAGE}.{name}"))


@functools.cache
def _pool() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="podresources.proto", package=PACKAGE, syntax="proto3")
    for message, fields in FIELDS.items():
        written = file.message_type.add(name=message)
        for field in fields:
            number, *repeated, kind, name = field.split()
            entry = written.field.add(number=int(number), name=name)
            entry.label = (
                descriptor_pb2.FieldDescriptorProto.LABEL_REPEATED
                if repeated
                else descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL
            )
            if kind in _TYPES:
                entry.type = _TYPES[kind]
            else:
                entry.type = descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE
                entry.type_name = f".{PACKAGE}.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return pool
