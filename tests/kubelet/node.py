"""What a test does on the node: start pods, end them, look who holds what, and who the agent says does."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.e2e.agent import Agent, Seen, until
from tests.kubelet import image
from tests.kubelet.api import Api, Json
from tests.kubelet.cluster import NODE, PATIENCE, Cluster
from tests.kubelet.plugin import VISIBLE

GPU: Final = "nvidia.com/gpu"
SHARED: Final = "nvidia.com/gpu.shared"
TENANT: Final = "capsule.clastix.io/tenant"


class Holding(NamedTuple):
    """A container has a device."""

    uuid: str
    namespace: str
    pod: str
    pod_uid: str
    container: str


class Named(NamedTuple):
    """A device, and what the agent says of who works on it."""

    uuid: str
    namespace: str
    pod: str
    pod_uid: str
    container: str
    job_name: str
    job_kind: str
    tenant: str


def names(seen: Seen) -> frozenset[Named]:
    """All workloads that a scrape shows."""
    infos = seen.all("accel_allocation_info")
    return frozenset(Named(*(info.labels.get(label, "") for label in Named._fields)) for info in infos)


def told(seen: Seen) -> set[Holding]:
    return {Holding(*row[: len(Holding._fields)]) for row in names(seen)}


def is_up(seen: Seen, source: str) -> bool:
    """Whether the agent gets answers from a source of attribution."""
    return seen.value("accel_exporter_attribution_up", source=source) == 1


def agrees(agent: Agent) -> Seen:
    """The scrape in which the agent says of each device what the containers' own environment says."""
    return agent.wait_for(lambda seen: told(seen) == held(), PATIENCE)


def held() -> set[Holding]:
    """Who has which device, from the processes that run: their environment says what the plugin gave them."""
    found = set()
    for environ in _environs().values():
        for identity in environ[VISIBLE].split(","):
            place = (environ[key] for key in ("POD_NAMESPACE", "POD_NAME", "POD_UID", "CONTAINER"))
            found.add(Holding(identity.partition("::")[0], *place))
    return found


def _environs() -> Mapping[int, Mapping[str, str]]:
    """pid → environment of each process to which a plugin gave devices. All pods run in this process namespace."""
    found = {}
    for file in Path("/proc").glob("[0-9]*/environ"):
        try:
            words = file.read_bytes().decode(errors="replace").split("\0")
        except OSError:
            # It has ended.
            continue
        environ = dict(word.split("=", 1) for word in words if "=" in word)
        if "POD_UID" in environ and VISIBLE in environ:
            found[int(file.parent.name)] = environ
    return found


def container(name: str = "main", command: str = image.WAIT, **resources: int) -> Json:
    """``resources``: gpu and shared."""
    places = {"POD_NAMESPACE": "metadata.namespace", "POD_NAME": "metadata.name", "POD_UID": "metadata.uid"}
    env: list[Json] = [{"name": key, "valueFrom": {"fieldRef": {"fieldPath": place}}} for key, place in places.items()]
    known = {"gpu": GPU, "shared": SHARED}
    return {
        "name": name,
        "image": image.NAME,
        "imagePullPolicy": "Never",
        "command": ["/bin/sh", "-c", command],
        "env": [*env, {"name": "CONTAINER", "value": name}],
        "resources": {"limits": {known[key]: str(count) for key, count in resources.items()}},
    }


def spec(*containers: Json, **more: Any) -> Json:
    """Of a pod on the node; there is no scheduler and no network of pods."""
    fixed = {"nodeName": NODE, "hostNetwork": True, "restartPolicy": "Never", "terminationGracePeriodSeconds": 5}
    return {**fixed, "containers": list(containers), **more}


def pod(namespace: str, name: str, pod_spec: Json, labels: Mapping[str, str] | None = None) -> Json:
    metadata = {"namespace": namespace, "name": name, "labels": dict(labels or {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod_spec}


def job(namespace: str, name: str, pod_spec: Json, pods: int = 1) -> Json:
    settings = {"completions": pods, "parallelism": pods, "template": {"spec": pod_spec}}
    metadata = {"namespace": namespace, "name": name}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": settings}


class Node:
    """The cluster, as one test uses it."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.api: Api = cluster.api
        self._jobs: list[tuple[str, str]] = []

    def make_namespace(self, name: str, labels: Mapping[str, str] | None = None) -> None:
        """It stays: nothing here deletes namespaces."""
        metadata = {"name": name, "labels": dict(labels or {})}
        if self.api.get("Namespace", name) is None:
            self.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})

    def start(self, item: Json, devices: int) -> set[Holding]:
        """Create a pod or a job, and wait until its containers run with so many devices."""
        namespace, name = item["metadata"]["namespace"], item["metadata"]["name"]
        if item["kind"] == "Job":
            self._jobs.append((namespace, name))
        before = held()
        self.api.create(item)
        self.wait(lambda: len(held() - before) == devices, f"{namespace}/{name} does not run with {devices} devices")
        return held() - before

    def wait(self, condition: Callable[[], object], message: str) -> None:
        try:
            until(condition, message, PATIENCE)
        except AssertionError as error:
            error.add_note(f"pods: {[(p['metadata']['name'], p['status']) for p in self.pods()]}")
            raise

    def pods(self) -> list[Json]:
        found: list[Json] = self.api.call("GET", "/api/v1/pods")["items"]
        return found

    def phase(self, namespace: str, name: str) -> str:
        """Empty where there is no such pod."""
        found = self.api.get("Pod", name, namespace)
        return str(found["status"]["phase"]) if found is not None else ""

    def end_containers(self, holdings: set[Holding]) -> None:
        """Their commands end well, as work that is done, and nobody asked the API."""
        uids = {each.pod_uid for each in holdings}
        firsts = [pid for pid, environ in _environs().items() if environ["POD_UID"] in uids and _is_first(pid)]
        for pid in firsts:
            os.kill(pid, signal.SIGTERM)
        self.wait(lambda: not held() & holdings, "a container does not end")

    def clear(self) -> None:
        """No pods, no jobs, nothing held: for the next test."""
        for namespace, name in self._jobs:
            self.api.delete("Job", name, namespace)

        def none_left() -> bool:
            left = self.pods()
            # The controller may have made one more.
            for metadata in (each["metadata"] for each in left):
                self.api.delete("Pod", metadata["name"], metadata["namespace"], grace=0)
            return not left and not held()

        self.wait(none_left, "pods do not end")


def _is_first(pid: int) -> bool:
    """Whether it is the first process of its container: signals reach the others through it."""
    status = (Path("/proc") / str(pid) / "status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("NSpid:"))
    return line.split()[-1] == "1"


@contextmanager
def recording(agent: Agent) -> Iterator[list[frozenset[Named]]]:
    """What every scrape shows meanwhile, one scrape after the other."""
    scrapes: list[frozenset[Named]] = []
    troubles: list[BaseException] = []
    ended = threading.Event()

    def record() -> None:
        try:
            while not ended.wait(0.1):
                scrapes.append(names(agent.scrape()))
        except (AssertionError, OSError, ValueError) as error:
            troubles.append(error)

    thread = threading.Thread(target=record)
    thread.start()
    try:
        yield scrapes
    finally:
        ended.set()
        thread.join()
    assert not troubles, troubles


def of(rows: frozenset[Named], uuid: str) -> list[Named]:
    """Those of one device."""
    return [row for row in rows if row.uuid == uuid]
