"""Pods of this node and namespaces, as the API server or the kubelet tells them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from exporter.attribution.api import Api, ApiError, Backoff, Expired, decoded
from exporter.attribution.claims import Namespaces, Owner, Pod, Pods, Status
from exporter.attribution.watch import Listed, Object, Outage, by_name

CONFIG_HASH: Final = "kubernetes.io/config.hash"


class _Container(msgspec.Struct, frozen=True):
    name: str = ""
    container_id: str = msgspec.field(name="containerID", default="")


class _Spec(msgspec.Struct, frozen=True):
    containers: list[_Container] | None = None
    init: list[_Container] | None = msgspec.field(name="initContainers", default=None)


class _Status(msgspec.Struct, frozen=True):
    phase: str = ""
    containers: list[_Container] | None = msgspec.field(name="containerStatuses", default=None)
    init: list[_Container] | None = msgspec.field(name="initContainerStatuses", default=None)


class PodObject(Object, frozen=True):
    """A pod as the API gives it."""

    spec: _Spec = _Spec()
    status: _Status = _Status()


Objects = Mapping[tuple[str, str], PodObject]
_LIST: Final = msgspec.json.Decoder(Listed[PodObject])


class Poll:
    """Pods from the kubelet, which has no watch."""

    def __init__(self, api: Api, period: float, *, changed: Callable[[], None], failed: Callable[[str], None]) -> None:
        self.objects: dict[tuple[str, str], PodObject] = {}
        self.status = Status(up=False, hint="not asked yet", waiting=True)
        self._api, self._period, self._changed, self._failed = api, period, changed, failed
        self._backoff = Backoff()
        self._outage = Outage()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            pause = self._period
            try:
                found = decoded(_LIST, await self._api.get("/pods", {}), "/pods")
            except (ApiError, Expired) as error:
                kind, asked = (error.kind, error.pause) if isinstance(error, ApiError) else ("answer", None)
                self._failed(kind)
                self.status = Status(up=False, last_success=self.status.last_success, hint=f"the kubelet: {error}")
                if self._outage.is_too_long():
                    self.objects = {}
                pause = max(pause, self._backoff.pause(asked))
                self._changed()
            else:
                self._take(by_name(found.items or ()))
            await asyncio.sleep(pause)

    def _take(self, objects: dict[tuple[str, str], PodObject]) -> None:
        self._outage.end()
        news = objects != self.objects or not self.status.up
        self.objects = objects
        self.status = Status(up=True, last_success=time.time())
        if news:
            self._changed()


def pods(objects: Objects, annotations: frozenset[str]) -> Pods:
    """What attribution needs of pods; of their annotations only those that some rule looks at."""
    return {name: _pod(item, annotations) for name, item in objects.items()}


def _pod(item: PodObject, annotations: frozenset[str]) -> Pod:
    metadata, status = item.metadata, item.status
    told = metadata.annotations or {}
    return Pod(
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        other_uid=told.get(CONFIG_HASH, ""),
        phase=status.phase,
        labels=metadata.labels or {},
        annotations={name: value for name, value in told.items() if name in annotations},
        owners=[Owner(owner.kind, owner.name, bool(owner.controller)) for owner in metadata.owners or ()],
        containers=dict(_containers((*(status.containers or ()), *(status.init or ())))),
        container_order=[container.name for container in item.spec.containers or ()],
        init_order=[container.name for container in item.spec.init or ()],
    )


def _containers(statuses: Sequence[_Container]) -> Iterator[tuple[str, str]]:
    for container in statuses:
        _, separator, identity = container.container_id.partition("://")
        if separator:
            yield identity, container.name


def namespaces_of(objects: Mapping[tuple[str, str], Object]) -> Namespaces:
    """By name."""
    return {name: item.metadata for (_, name), item in objects.items()}
