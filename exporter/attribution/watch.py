"""Objects of one kind, kept by list and watch as the Kubernetes API asks for it."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, TypeVar

import msgspec

from exporter.attribution.api import Api, ApiError, Backoff, Expired
from exporter.attribution.claims import Status

log = logging.getLogger(__name__)

WATCH_SECONDS: Final = (300, 600)
"""How long a watch is asked to last; drawn, so that not all nodes come again at once."""
GRACE: Final = 30.0
"""A watch that is silent for so much longer than asked is dead."""
METADATA_LIST: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
METADATA: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"


class Reference(msgspec.Struct, frozen=True):
    kind: str = ""
    name: str = ""
    controller: bool | None = None


class Metadata(msgspec.Struct, frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owners: list[Reference] | None = msgspec.field(name="ownerReferences", default=None)
    version: str = msgspec.field(name="resourceVersion", default="")


class Object(msgspec.Struct, frozen=True):
    """What every object has. Kinds of which more is read derive from it."""

    metadata: Metadata = Metadata()


T = TypeVar("T", bound=Object)


class _ListMetadata(msgspec.Struct, frozen=True):
    version: str = msgspec.field(name="resourceVersion", default="")


class Listed(msgspec.Struct, Generic[T], frozen=True):
    metadata: _ListMetadata = _ListMetadata()
    items: list[T] | None = None


class _Event(msgspec.Struct, frozen=True):
    type: str
    object: msgspec.Raw


class _Failure(msgspec.Struct, frozen=True):
    code: int = 0
    reason: str = ""


_EVENT: Final = msgspec.json.Decoder(_Event)


def key(item: Object) -> tuple[str, str]:
    return item.metadata.namespace, item.metadata.name


class Watch(Generic[T]):
    """Keeps ``objects``. What was missed while away, the next list brings."""

    def __init__(
        self,
        api: Api,
        path: str,
        query: Mapping[str, str],
        kind: type[T],
        *,
        changed: Callable[[], None],
        failed: Callable[[str], None],
        metadata_only: bool = False,
    ) -> None:
        """``failed`` is told the kind of each trouble, for a counter."""
        self.objects: dict[tuple[str, str], T] = {}
        self.status = Status(up=False, hint="not asked yet")
        self._api, self._path, self._query = api, path, dict(query)
        self._accept = (METADATA_LIST, METADATA) if metadata_only else ("", "")
        self._changed, self._failed = changed, failed
        # msgspec takes generic structs; type checkers cannot follow a type made at run time.
        listed: Any = Listed[kind]  # type: ignore[valid-type]
        self._list_decoder: msgspec.json.Decoder[Listed[T]] = msgspec.json.Decoder(listed)
        self._decoder: msgspec.json.Decoder[T] = msgspec.json.Decoder(kind)
        self._version = ""
        self._backoff = Backoff()

    async def run(self) -> None:
        """Until cancelled."""
        cached = True
        while True:
            try:
                if not self._version:
                    await self._list(cached=cached)
                await self._follow()
            except Expired:
                # Asked of the quorum: a cache that has just begun may be older than what was seen.
                self._version, cached = "", False
                self._failed("expired")
                await asyncio.sleep(random.uniform(0, 1))
            except ApiError as error:
                self._down(error)
                await asyncio.sleep(self._backoff.pause(error.pause))
            except msgspec.MsgspecError as error:
                self._version = ""
                self._down(ApiError("answer", f"{self._path}: {error}"))
                await asyncio.sleep(self._backoff.pause(None))

    def _down(self, error: ApiError) -> None:
        self._failed(error.kind)
        if self.status.up or self.status.hint != error.hint:
            log.warning("the API server does not tell: %s", error.hint)
        self.status = Status(up=False, last_success=self.status.last_success, hint=error.hint)
        self._changed()

    def _up(self) -> None:
        self.status = Status(up=True, last_success=time.time())

    async def _list(self, *, cached: bool) -> None:
        query = {**self._query, **({"resourceVersion": "0"} if cached else {})}
        found = self._list_decoder.decode(await self._api.get(self._path, query, accept=self._accept[0]))
        self.objects = {key(item): item for item in found.items or ()}
        self._version = found.metadata.version
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
        began = time.monotonic()
        async for line in self._api.lines(self._path, query, idle=seconds + GRACE, accept=self._accept[1]):
            self._take(_EVENT.decode(line))
            self._up()
        if time.monotonic() - began < 1:
            # A server that ends every watch at once must not be asked without pause.
            raise ApiError("server", f"{self._path}: the watch ended at once")

    def _take(self, event: _Event) -> None:
        if event.type == "ERROR":
            failure = msgspec.json.decode(event.object, type=_Failure)
            if failure.code == 410 or failure.reason in ("Expired", "Gone"):
                raise Expired
            raise ApiError("server", f"{self._path}: the watch ended with {failure.code} {failure.reason}")
        item = self._decoder.decode(event.object)
        if item.metadata.version:
            self._version = item.metadata.version
        if event.type == "BOOKMARK":
            return
        if event.type == "DELETED":
            self.objects.pop(key(item), None)
        else:
            self.objects[key(item)] = item
        self._changed()
