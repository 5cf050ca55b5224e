"""Objects as the API gives them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

PODS: Final = "/api/v1/pods"
NAMESPACES: Final = "/api/v1/namespaces"
DRA: Final = "/apis/resource.k8s.io"

Json = dict[str, Any]


def pod(
    name: str,
    *,
    namespace: str = "ns",
    node: str = "node1",
    uid: str = "",
    phase: str = "Running",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    owners: Sequence[Json] = (),
    containers: Mapping[str, str] | None = None,
    init: Mapping[str, str] | None = None,
) -> Json:
    """A pod. ``containers`` and ``init``: name → id, as the runtime spells it."""
    containers = {"main": ""} if containers is None else containers
    metadata: Json = {"name": name, "namespace": namespace, "uid": uid or f"uid-of-{name}"}
    if labels:
        metadata["labels"] = dict(labels)
    if annotations:
        metadata["annotations"] = dict(annotations)
    if owners:
        metadata["ownerReferences"] = list(owners)
    metadata["managedFields"] = [{"manager": "kubelet", "fieldsV1": {"f:status": {"f:phase": {}}}}]
    spec: Json = {
        "nodeName": node,
        "containers": [{"name": each, "image": "busybox", "env": [{"name": "A", "value": "b"}]} for each in containers],
    }
    status: Json = {
        "phase": phase,
        "containerStatuses": [{"name": each, "containerID": identity} for each, identity in containers.items()],
    }
    if init:
        spec["initContainers"] = [{"name": each} for each in init]
        status["initContainerStatuses"] = [{"name": each, "containerID": identity} for each, identity in init.items()]
    return {"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "spec": spec, "status": status}


def namespace(name: str, labels: Mapping[str, str]) -> Json:
    metadata = {"name": name, "labels": {"kubernetes.io/metadata.name": name, **labels}}
    return {"kind": "Namespace", "apiVersion": "v1", "metadata": metadata, "spec": {"finalizers": ["kubernetes"]}}


def resource_slice(
    name: str,
    devices: Mapping[str, Mapping[str, Json]],
    *,
    version: str = "v1",
    driver: str = "gpu.nvidia.com",
    pool: str = "node1",
    generation: int = 1,
    count: int = 1,
    node: str = "node1",
) -> Json:
    """A ResourceSlice. ``devices``: name → attributes; v1beta1 has these one level deeper."""
    listed: list[Json] = []
    for each, attributes in devices.items():
        inner: Json = {"attributes": dict(attributes), "capacity": {"memory": {"value": "80Gi"}}}
        listed.append({"name": each, "basic": inner} if version == "v1beta1" else {"name": each, **inner})
    spec = {
        "driver": driver,
        "nodeName": node,
        "pool": {"name": pool, "generation": generation, "resourceSliceCount": count},
        "devices": listed,
    }
    return {
        "kind": "ResourceSlice",
        "apiVersion": f"resource.k8s.io/{version}",
        "metadata": {"name": name, "uid": f"uid-of-{name}"},
        "spec": spec,
    }


def resource_claim(namespace: str, name: str, results: Sequence[Json] | None) -> Json:
    """A ResourceClaim; ``results`` None: not allocated."""
    status: Json = {} if results is None else {"allocation": {"devices": {"results": list(results)}}}
    return {
        "kind": "ResourceClaim",
        "apiVersion": "resource.k8s.io/v1",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"devices": {"requests": [{"name": "gpus"}]}},
        "status": status,
    }
