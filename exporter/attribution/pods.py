"""Pods of this node, from the API server's watch or the kubelet's list; and labels of namespaces."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from exporter.attribution.api import Api, ApiError, Backoff, Expired
from exporter.attribution.claims import NamespaceLabels, Owner, Pod, Pods, Status

log = logging.getLogger(__name__)

WATCH_SECONDS: Final = (300, 600)
"""How long a watch is asked to last; drawn, so that not all nodes come again at once."""
GRACE: Final = 30.0
"""A watch that is silent for so much longer than asked is dead."""
CONFIG_HASH: Final = "kubernetes.io/config.hash"
METADATA_LIST: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
METADATA: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"


class _Reference(msgspec.Struct, frozen=True):
    kind: str = ""
    name: str = ""
    controller: bool | None = None


class _Metadata(msgspec.Struct, frozen=True, rename={"owner_references": "ownerReferences"}):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[_Reference] | None = None
    resource_version: str = msgspec.field(name="resourceVersion", default="")


class _Container(msgspec.Struct, frozen=True):
    name: str = ""
    container_id: str = msgspec.field(name="containerID", default="")


class _Spec(msgspec.Struct, frozen=True):
    containers: list[_Container] | None = None


class _PodStatus(msgspec.Struct, frozen=True):
    phase: str = ""
    containers: list[_Container] | None = msgspec.field(name="containerStatuses", default=None)
    init: list[_Container] | None = msgspec.field(name="initContainerStatuses", default=None)


class _Object(msgspec.Struct, frozen=True):
    """A pod, or the metadata of something else."""

    metadata: _Metadata = _Metadata()
    spec: _Spec | None = None
    status: _PodStatus | None = None


class _ListMetadata(msgspec.Struct, frozen=True):
    resource_version: str = msgspec.field(name="resourceVersion", default="")


class _List(msgspec.Struct, frozen=True):
    metadata: _ListMetadata = _ListMetadata()
    items: list[_Object] | None = None


class _Event(msgspec.Struct, frozen=True):
    type: str
    object: msgspec.Raw


class _Failure(msgspec.Struct, frozen=True):
    code: int = 0
    reason: str = ""


_LIST: Final = msgspec.json.Decoder(_List)
_EVENT: Final = msgspec.json.Decoder(_Event)
_OBJECT: Final = msgspec.json.Decoder(_Object)


class Watch:
    """Objects of one kind, kept by list and watch. What was missed while away, the next list brings."""

    def __init__(
        self,
        api: Api,
        path: str,
        query: Mapping[str, str],
        *,
        metadata_only: bool,
        changed: Callable[[], None],
        failed: Callable[[str], None],
    ) -> None:
        self.objects: dict[tuple[str, str], _Object] = {}
        self.status = Status(up=False)
        self._api, self._path, self._query = api, path, dict(query)
        self._accept = (METADATA_LIST, METADATA) if metadata_only else ("", "")
        self._changed, self._failed = changed, failed
        self._version = ""
        self._backoff = Backoff()

    async def run(self) -> None:
        """Until cancelled."""
        fresh = True
        while True:
            try:
                if not self._version:
                    await self._list(cached=fresh)
                await self._follow()
            except Expired:
                # Asked of the quorum: a cache that has just begun may be older than what was seen.
                self._version, fresh = "", False
                self._failed("expired")
                await asyncio.sleep(random.uniform(0, 1))
            except ApiError as error:
                self._down(error)
                await asyncio.sleep(self._backoff.pause(error.pause))
            except msgspec.MsgspecError as error:
                self._down(ApiError("answer", f"{self._path}: {error}"))
                self._version = ""
                await asyncio.sleep(self._backoff.pause(None))

    def _down(self, error: ApiError) -> None:
        self._failed(error.kind)
        if self.status.up or self.status.hint != error.hint:
            log.warning("pods are not told: %s", error.hint)
        self.status = Status(up=False, last_success=self.status.last_success, hint=error.hint)
        self._changed()

    def _up(self) -> None:
        self.status = Status(up=True, last_success=time.time())

    async def _list(self, *, cached: bool) -> None:
        query = {**self._query, **({"resourceVersion": "0"} if cached else {})}
        found = _LIST.decode(await self._api.get(self._path, query, accept=self._accept[0]))
        self.objects = {_key(item): item for item in found.items or ()}
        self._version = found.metadata.resource_version
        self._up()
        self._changed()

    async def _follow(self) -> None:
        """One watch, until it ends."""
        seconds = random.randint(*WATCH_SECONDS)
        query = {
            **self._query,
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": str(seconds),
        }
        async for line in self._api.lines(self._path, query, idle=seconds + GRACE, accept=self._accept[1]):
            self._take(_EVENT.decode(line))
            self._up()

    def _take(self, event: _Event) -> None:
        if event.type == "ERROR":
            failure = msgspec.json.decode(event.object, type=_Failure)
            if failure.code == 410 or failure.reason in ("Expired", "Gone"):
                raise Expired
            raise ApiError("server", f"{self._path}: the watch ended with {failure.code} {failure.reason}")
        item = _OBJECT.decode(event.object)
        if item.metadata.resource_version:
            self._version = item.metadata.resource_version
        if event.type == "BOOKMARK":
            return
        if event.type == "DELETED":
            self.objects.pop(_key(item), None)
        else:
            self.objects[_key(item)] = item
        self._changed()


class Poll:
    """Pods from the kubelet, which has no watch."""

    def __init__(self, api: Api, period: float, *, changed: Callable[[], None], failed: Callable[[str], None]) -> None:
        self.objects: dict[tuple[str, str], _Object] = {}
        self.status = Status(up=False)
        self._api, self._period, self._changed, self._failed = api, period, changed, failed
        self._backoff = Backoff()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            pause = self._period
            try:
                found = _LIST.decode(await self._api.get("/pods", {}))
                self.objects = {_key(item): item for item in found.items or ()}
                self.status = Status(up=True, last_success=time.time())
            except (ApiError, Expired, msgspec.MsgspecError) as error:
                kind = error.kind if isinstance(error, ApiError) else "answer"
                asked = error.pause if isinstance(error, ApiError) else None
                self._failed(kind)
                self.status = Status(up=False, last_success=self.status.last_success, hint=str(error))
                pause = max(pause, self._backoff.pause(asked))
            self._changed()
            await asyncio.sleep(pause)


def _key(item: _Object) -> tuple[str, str]:
    return item.metadata.namespace, item.metadata.name


def pods(objects: Mapping[tuple[str, str], _Object], annotations: frozenset[str]) -> Pods:
    """What attribution needs of pods; of their annotations only those that some rule looks at."""
    return {key: _pod(item, annotations) for key, item in objects.items()}


def _pod(item: _Object, annotations: frozenset[str]) -> Pod:
    metadata, status = item.metadata, item.status or _PodStatus()
    told = metadata.annotations or {}
    return Pod(
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        other_uid=told.get(CONFIG_HASH, ""),
        phase=status.phase,
        labels=metadata.labels or {},
        annotations={key: value for key, value in told.items() if key in annotations},
        owners=[Owner(ref.kind, ref.name, bool(ref.controller)) for ref in metadata.owner_references or ()],
        containers=dict(_containers((*(status.containers or ()), *(status.init or ())))),
        container_order=[container.name for container in (item.spec or _Spec()).containers or ()],
    )


def _containers(statuses: Sequence[_Container]) -> Iterator[tuple[str, str]]:
    for container in statuses:
        _, separator, identity = container.container_id.partition("://")
        if separator:
            yield identity, container.name


def namespace_labels(objects: Mapping[tuple[str, str], _Object]) -> NamespaceLabels:
    return {name: item.metadata.labels or {} for (_, name), item in objects.items()}
