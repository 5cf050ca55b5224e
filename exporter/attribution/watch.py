"""Objects of one kind, kept by list and watch as the Kubernetes API asks for it."""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import aclosing
from typing import Any, Final, Generic, TypeVar

import msgspec

from exporter.attribution.api import Api, ApiError, Backoff, Expired, decoded
from exporter.attribution.claims import Status

log = logging.getLogger(__name__)

WATCH_SECONDS: Final = (300, 600)
"""How long a watch is asked to last; drawn, so that not all nodes come again at once."""
GRACE: Final = 30.0
"""A watch that is silent for so much longer than asked is dead."""
SHORT: Final = 1.0
"""Seconds; a server that ends every watch sooner must not be asked without pause."""
STARTING: Final = 20.0
"""Seconds for which an API server that has just started may forbid what its roles grant: it has not read them yet."""
MAX_OBJECTS: Final = 4096
"""Of one node, which has some hundred pods at the most."""
OUTDATED: Final = 600.0
"""Seconds for which objects count while their server is away. A pod of the same name may be another by then."""
APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
"""An annotation with the whole object once more."""
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
_FAILURE: Final = msgspec.json.Decoder(_Failure)


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
        most: int | None = None,
    ) -> None:
        """``failed`` is told the kind of each trouble, for a counter. ``most``: objects that are kept."""
        self.objects: dict[tuple[str, str], T] = {}
        self.status = Status(up=False, hint="not asked yet", waiting=True)
        self._api, self._path, self._query = api, path, dict(query)
        self._accept = (METADATA_LIST, METADATA) if metadata_only else ("", "")
        self._changed, self._failed = changed, failed
        # msgspec takes generic structs; type checkers cannot follow a type made at run time.
        listed: Any = Listed[kind]  # type: ignore[valid-type]
        self._list_decoder: msgspec.json.Decoder[Listed[T]] = msgspec.json.Decoder(listed)
        self._decoder: msgspec.json.Decoder[T] = msgspec.json.Decoder(kind)
        self._version = ""
        self._backoff = Backoff()
        self._most = MAX_OBJECTS if most is None else most
        self._outage = Outage()
        self._forbidden_since: float | None = None

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
                await asyncio.sleep(self._backoff.pause(None))
            except ApiError as error:
                if error.kind in ("answer", "not_found"):
                    self._version = ""
                self._down(error)
                await asyncio.sleep(self._backoff.pause(self._asked(error)))

    def _asked(self, error: ApiError) -> float | None:
        """Seconds to wait, as the error asks for. What is forbidden for a moment is asked for as after any other."""
        if error.kind != "forbidden":
            self._forbidden_since = None
            return error.pause
        now = time.monotonic()
        if self._forbidden_since is None:
            self._forbidden_since = now
        return error.pause if now - self._forbidden_since >= STARTING else None

    def _down(self, error: ApiError) -> None:
        self._failed(error.kind)
        if self.status.up or self.status.hint != error.hint:
            log.warning("the API server does not tell: %s", error.hint)
        self.status = Status(up=False, last_success=self.status.last_success, hint=error.hint)
        if self._outage.is_too_long():
            self.objects, self._version = {}, ""
        self._changed()

    def _up(self) -> None:
        was_up = self.status.up
        self._outage.end()
        self._forbidden_since = None
        self.status = Status(up=True, last_success=time.time())
        if not was_up:
            self._changed()

    async def _list(self, *, cached: bool) -> None:
        query = {**self._query, **({"resourceVersion": "0"} if cached else {})}
        try:
            body = await self._api.get(self._path, query, accept=self._accept[0])
        except Expired:
            if cached:
                raise
            # No version was asked for: a server that says so cannot tell, and what is known grows old.
            raise ApiError("answer", f"{self._path}: HTTP 410") from None
        found = decoded(self._list_decoder, body, self._path)
        self.objects = by_name(found.items or (), self._most)
        self._version = found.metadata.version
        self._up()
        self._changed()

    async def _follow(self) -> None:
        """One watch, until it ends. Raises what Api does, where the server refused it or told of trouble."""
        seconds = random.randint(*WATCH_SECONDS)
        query = {
            **self._query,
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": str(seconds),
        }
        began = time.monotonic()
        lines = self._api.lines(self._path, query, idle=seconds + GRACE, opened=self._up, accept=self._accept[1])
        try:
            async with aclosing(lines):
                async for line in lines:
                    self._take(decoded(_EVENT, line, self._path))
                    self._up()
        except ApiError as error:
            # Balancers cut what is silent: whether there is trouble, the next watch tells.
            if error.kind != "connection" or not self.status.up or time.monotonic() - began < SHORT:
                raise
        if time.monotonic() - began < SHORT:
            raise ApiError("server", f"{self._path}: the watch ended at once")

    def _take(self, event: _Event) -> None:
        if event.type == "ERROR":
            self._refused(decoded(_FAILURE, event.object, self._path))
        if event.type not in ("ADDED", "MODIFIED", "DELETED", "BOOKMARK"):
            return
        item = decoded(self._decoder, event.object, self._path)
        if item.metadata.version:
            self._version = item.metadata.version
        if event.type == "BOOKMARK":
            return
        if event.type == "DELETED":
            self.objects.pop(key(item), None)
        elif key(item) in self.objects or len(self.objects) < self._most:
            self.objects[key(item)] = slim(item)
        self._changed()

    def _refused(self, failure: _Failure) -> None:
        """Raises Expired or ApiError. Whatever it was, the list is read anew: the version may be to blame."""
        if failure.code == 410 or failure.reason in ("Expired", "Gone"):
            raise Expired
        self._version = ""
        raise ApiError("server", f"{self._path}: the watch ended with {failure.code} {failure.reason}")


class Outage:
    """For how long a server has been away."""

    def __init__(self) -> None:
        self._since: float | None = None

    def end(self) -> None:
        """It answers."""
        self._since = None

    def is_too_long(self) -> bool:
        """It did not answer just now: whether what it said before is too old to be shown."""
        now = time.monotonic()
        if self._since is None:
            self._since = now
        return now - self._since > OUTDATED


def by_name(items: Iterable[T], most: int = MAX_OBJECTS) -> dict[tuple[str, str], T]:
    """Objects by namespace and name, as many as are kept."""
    return {key(item): slim(item) for item in itertools.islice(items, most)}


def slim(item: T) -> T:
    """Without the annotation that repeats the object."""
    told = item.metadata.annotations
    if told is not None:
        told.pop(APPLIED, None)
    return item
