"""What the kubelet has handed out: PodResources v1 over its unix socket.

The messages are those of kubernetes/kubelet, pkg/apis/podresources/v1/api.proto; podresources.proto beside this file
states the part that is read. The call blocks and has its own thread; the answer is decoded there.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import msgspec

from collectors.dial import Address
from collectors.protobuf import BYTES, Malformed, Value, fields, text
from collectors.unary import Channel, RpcError
from exporter.attribution.claims import Claim, SourceName, Status

LIST: Final = "/v1.PodResourcesLister/List"
MAX_ANSWER: Final = 64 * 1024 * 1024
"""The answer grows with all pods of the node; a failing DRA driver once made it 17 MB."""
MAX_CLAIMS: Final = 100_000
TIMEOUT: Final = 10.0

_HINTS: Final = {
    "UNIMPLEMENTED": "this kubelet does not know PodResources v1: Kubernetes 1.20 or newer is needed",
    "PERMISSION_DENIED": "the kubelet's socket may not be opened: run as root, or mount its directory",
    "RESOURCE_EXHAUSTED": "the kubelet limits the rate of questions, or its answer is too large",
}


class DraDevice(msgspec.Struct, frozen=True):
    """A device of Dynamic Resource Allocation that a container holds."""

    driver: str
    pool: str
    device: str
    share: str
    claim_name: str
    claim_namespace: str


class Held(msgspec.Struct, frozen=True):
    """What one container holds."""

    namespace: str
    pod: str
    container: str
    devices: tuple[tuple[str, str], ...] = ()
    """(resource, id), each once."""
    dra: tuple[DraDevice, ...] = ()


class Unreadable(Exception):
    """The kubelet's answer is no ListPodResourcesResponse."""


def decode(body: bytes) -> list[Held]:
    """A ListPodResourcesResponse. Containers that hold nothing are left out. Raises Unreadable."""
    try:
        return [held for pod in _messages(body, 1) for held in _pod(pod)]
    except Malformed as error:
        raise Unreadable(str(error)) from error


def _messages(data: bytes, wanted: int) -> Iterator[bytes]:
    for number, wire, value in fields(data):
        if number == wanted and wire == BYTES and isinstance(value, bytes):
            yield value


def _pod(data: bytes) -> Iterator[Held]:
    name = namespace = ""
    containers: list[bytes] = []
    for number, value in _bytes(fields(data)):
        if number == 1:
            name = text(value)
        elif number == 2:
            namespace = text(value)
        elif number == 3:
            containers.append(value)
    for container in containers:
        held = _container(namespace, name, container)
        if held is not None:
            yield held


def _bytes(found: Iterable[tuple[int, int, Value]]) -> Iterator[tuple[int, bytes]]:
    for number, _, value in found:
        if isinstance(value, bytes):
            yield number, value


def _container(namespace: str, pod: str, data: bytes) -> Held | None:
    name = ""
    devices: dict[tuple[str, str], None] = {}
    dra: dict[DraDevice, None] = {}
    for number, value in _bytes(fields(data)):
        if number == 1:
            name = text(value)
        elif number == 2:
            devices.update(dict.fromkeys(_devices(value)))
        elif number == 5:
            dra.update(dict.fromkeys(_dynamic(value)))
    if not devices and not dra:
        return None
    return Held(namespace, pod, name, tuple(devices), tuple(dra))


def _devices(data: bytes) -> Iterator[tuple[str, str]]:
    """Of one ContainerDevices. A device of several NUMA nodes comes in several of them."""
    resource = ""
    ids: list[str] = []
    for number, value in _bytes(fields(data)):
        if number == 1:
            resource = text(value)
        elif number == 2:
            ids.append(text(value))
    for identity in ids:
        yield resource, identity


def _dynamic(data: bytes) -> Iterator[DraDevice]:
    """Of one DynamicResource. CDI names are not looked at: those of later devices repeat the earlier ones'."""
    claim_name = claim_namespace = ""
    resources: list[bytes] = []
    for number, value in _bytes(fields(data)):
        if number == 2:
            claim_name = text(value)
        elif number == 3:
            claim_namespace = text(value)
        elif number == 4:
            resources.append(value)
    for resource in resources:
        told = {number: text(value) for number, value in _bytes(fields(resource)) if number in (2, 3, 4, 5)}
        if told.get(2) and told.get(4):
            yield DraDevice(told[2], told.get(3, ""), told[4], told.get(5, ""), claim_name, claim_namespace)


class PodResources:
    """Asks the kubelet in time. The last good answer counts for ``hold`` seconds after it fails."""

    name: SourceName = "podresources"

    def __init__(
        self,
        socket: str,
        poll: float,
        hold: float,
        *,
        changed: Callable[[], None],
        failed: Callable[[str], None],
    ) -> None:
        self._socket, self._poll, self._hold = socket, poll, hold
        self._changed, self._failed = changed, failed
        self._held: tuple[Held, ...] = ()
        self._answered_at = float("-inf")
        self._status = Status(up=False, hint="the kubelet has not been asked yet")

    @property
    def status(self) -> Status:
        return self._status

    @property
    def held(self) -> Sequence[Held]:
        """The last good answer; nothing when it is too old."""
        return self._held if time.monotonic() - self._answered_at <= self._hold + self._poll else ()

    def claims(self) -> Sequence[Claim]:
        """Of device plugins; those of DRA are another source's."""
        return [
            Claim(
                source="podresources",
                resource=resource,
                device_id=identity,
                namespace=held.namespace,
                pod=held.pod,
                container=held.container,
            )
            for held in self.held
            for resource, identity in held.devices
        ]

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                answer = await asyncio.to_thread(ask, self._socket)
            except (RpcError, Unreadable) as error:
                self._trouble(error)
            else:
                self._answered_at = time.monotonic()
                self._status = Status(up=True, last_success=time.time())
                if answer != self._held:
                    self._held = answer
                    self._changed()
            if not self.held and self._held:
                self._held = ()
                self._changed()
            await asyncio.sleep(self._poll)

    def _trouble(self, error: RpcError | Unreadable) -> None:
        kind = error.code.lower() if isinstance(error, RpcError) else "unreadable"
        self._failed(kind)
        hint = _HINTS.get(error.code, str(error)) if isinstance(error, RpcError) else str(error)
        if isinstance(error, RpcError) and error.absent:
            hint = f"no kubelet listens at {self._socket}: mount its directory, or set pod_resources_socket"
        self._status = Status(up=False, last_success=self._status.last_success, hint=hint)


def ask(socket: str) -> tuple[Held, ...]:
    """The kubelet's answer, in an order of its own. Raises RpcError, Unreadable.

    A connection for each question: the kubelet makes its socket anew when it restarts, and a kept one would not see it.
    """
    channel = Channel(Address(path=socket), max_message=MAX_ANSWER)
    try:
        found = decode(channel.call(LIST, b"", TIMEOUT))
    finally:
        channel.close()
    if sum(len(held.devices) + len(held.dra) for held in found) > MAX_CLAIMS:
        raise Unreadable(f"the kubelet lists more than {MAX_CLAIMS} devices")
    return tuple(
        Held(
            held.namespace,
            held.pod,
            held.container,
            tuple(sorted(held.devices)),
            tuple(sorted(held.dra, key=lambda device: (device.driver, device.pool, device.device, device.share))),
        )
        for held in sorted(found, key=lambda held: (held.namespace, held.pod, held.container))
    )
