"""Whom the numbers are about: the node, and each workload on it.

What the environment says is read by opentelemetry-sdk: ``OTEL_RESOURCE_ATTRIBUTES``, ``OTEL_SERVICE_NAME`` and the
detectors that ``OTEL_EXPERIMENTAL_RESOURCE_DETECTORS`` names, which other packages may bring.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Final

import msgspec
from opentelemetry.sdk.resources import OTELResourceDetector, ResourceDetector
from opentelemetry.sdk.resources import Resource as Detected

from collectors.base import Labels
from exporter import __version__
from exporter.config import Config
from exporter.model import Workload
from exporter.otlp import wire

log = logging.getLogger(__name__)

SERVICE: Final = "accel-exporter"
DETECTORS: Final = "OTEL_EXPERIMENTAL_RESOURCE_DETECTORS"
DETECTION_TIME: Final = 5.0
"""Seconds for all detectors: one that asks a cloud's metadata service may wait for ever."""
_KINDS: Final = ("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job", "CronJob")
_OWNERS: Final = {kind: f"k8s.{kind.lower()}.name" for kind in _KINDS}
OWN_POD: Final = (
    "container.",
    *(f"k8s.{kind}." for kind in ("namespace", "pod", "container", *map(str.lower, _KINDS))),
)
"""What names the agent's own pod: on a device's numbers it would say that the agent works on the device."""


class Resource(msgspec.Struct, frozen=True, eq=False):
    """One resource, the same object as long as its attributes are the same."""

    attributes: tuple[tuple[str, wire.Value], ...]
    encoded: bytes
    """As the first field of a ResourceMetrics."""


class Resources:
    """The node's resource and those of the workloads that are here now."""

    def __init__(self, node: Mapping[str, wire.Value]) -> None:
        self._base = {name: value for name, value in node.items() if not name.startswith(OWN_POD)}
        self.node = _resource(tuple(self._base.items()))
        self._workloads: dict[Labels, Resource] = {}

    def workload(self, names: Labels, found: Sequence[Workload]) -> Resource:
        """That of the workload which a series names; ``found``: those that hold its device, as attribution tells."""
        told = next((w for w in found if all(getattr(w, name) == value for name, value in names)), None)
        attributes = workload_attributes(told or msgspec.structs.replace(Workload(), **dict(names)))
        kept = self._workloads.get(attributes)
        if kept is None:
            merged = tuple({**self._base, **dict(attributes)}.items())
            kept = self._workloads[attributes] = _resource(merged)
        return kept

    def forget(self, used: set[Resource]) -> None:
        """Keep only these: pods come and go."""
        self._workloads = {key: kept for key, kept in self._workloads.items() if kept in used}


def _resource(attributes: tuple[tuple[str, wire.Value], ...]) -> Resource:
    return Resource(attributes, wire.field(1, wire.attributes(1, attributes)))


def workload_attributes(workload: Workload) -> Labels:
    """By the conventions for Kubernetes where they have a name."""
    facts = (
        ("k8s.namespace.name", workload.namespace),
        ("k8s.pod.name", workload.pod),
        ("k8s.pod.uid", workload.pod_uid),
        ("k8s.container.name", workload.container),
        (_OWNERS.get(workload.job_kind, ""), workload.job_name),
        ("accel.job.name", workload.job_name),
        ("accel.job.kind", workload.job_kind),
        ("accel.tenant", workload.tenant),
        ("accel.queue", workload.queue),
        ("accel.served_model", workload.served_model),
    )
    return tuple((name, value) for name, value in facts if name and value)


def detect(config: Config, environ: Mapping[str, str] = os.environ) -> dict[str, wire.Value]:
    """The node's attributes. Blocks for as long as the detectors take, at most ``DETECTION_TIME`` seconds.

    The later one counts: detectors, what the agent knows, OTEL_RESOURCE_ATTRIBUTES, OTEL_SERVICE_NAME, the
    configuration. In a container a detector takes the container's name for the host's.
    """
    return {
        **_host_id(config, environ),
        **_detected(_named(environ.get(DETECTORS, "")), DETECTION_TIME),
        **_known(config, environ),
        **_values(OTELResourceDetector().detect()),
        **config.otlp.resource_attributes,
    }


def _detected(detectors: Sequence[ResourceDetector], patience: float) -> dict[str, wire.Value]:
    """What detectors find in time. The SDK's own way to run them never ends if one of them does not."""
    results: dict[int, dict[str, wire.Value]] = {}

    def run(index: int) -> None:
        try:
            results[index] = _values(detectors[index].detect())
        except Exception:
            log.exception("the resource detector %s failed", type(detectors[index]).__name__)

    # Daemons: the agent must be able to end while one of them hangs.
    threads = [threading.Thread(target=run, args=(index,), daemon=True) for index in range(len(detectors))]
    end = time.monotonic() + patience
    for thread in threads:
        thread.start()
    for index, thread in enumerate(threads):
        thread.join(max(0.0, end - time.monotonic()))
        if thread.is_alive():
            log.warning("the resource detector %s is not waited for any longer", type(detectors[index]).__name__)
    return {name: value for index in sorted(results.copy()) for name, value in results[index].items()}


def _values(found: Detected) -> dict[str, wire.Value]:
    """Texts, numbers and lists of them; nothing else is common in a resource."""
    scalars, lists = (str, bool, int, float), (list, tuple)
    return {
        name: tuple(item for item in value if isinstance(item, scalars)) if isinstance(value, lists) else value
        for name, value in found.attributes.items()
        if isinstance(value, (*scalars, *lists))
    }


def _known(config: Config, environ: Mapping[str, str]) -> dict[str, str]:
    found = {
        "service.name": SERVICE,
        "service.version": __version__,
        # Not a random one: after a restart each series would be another.
        "service.instance.id": config.node,
        "host.name": config.node,
    }
    if environ.get("KUBERNETES_SERVICE_HOST") or environ.get("NODE_NAME"):
        found["k8s.node.name"] = config.attribution.kubernetes.node_name or config.node
    return {name: value for name, value in found.items() if value}


def _host_id(config: Config, environ: Mapping[str, str]) -> dict[str, str]:
    """The machine's id, where a detector knows no better one, such as that of a cloud's instance."""
    etc = config.paths.host.etc
    # In a container /etc is the image's, and the id in it that of all its containers.
    if etc == "/etc" and environ.get("KUBERNETES_SERVICE_HOST"):
        return {}
    try:
        found = Path(etc, "machine-id").read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return {}
    return {"host.id": found} if found else {}


def _named(text: str) -> list[ResourceDetector]:
    """The detectors that the variable names, by their entry points; ``*`` is all of them."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        return []
    offered = {point.name: point for point in entry_points(group="opentelemetry_resource_detector")}
    if "*" in names:
        names = sorted(offered)
    found = []
    for name in names:
        # The one for the environment always comes last; a random instance id would make each restart a new series.
        if name in ("otel", "service_instance"):
            continue
        if name not in offered:
            log.warning("%s names %r, which no installed package offers", DETECTORS, name)
            continue
        try:
            found.append(offered[name].load()())
        except Exception:
            log.exception("the resource detector %r cannot be used", name)
    return found
