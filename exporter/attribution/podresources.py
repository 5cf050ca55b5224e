"""What the kubelet has handed out: PodResources v1 over its unix socket.

The call blocks and has its own thread; the answer is decoded there (held.py).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from collectors.dial import Address
from collectors.unary import Channel, RpcError
from exporter.attribution.claims import Claim, SourceName, Status
from exporter.attribution.held import Held, Unreadable, Wanted, decode
from exporter.attribution.text import MAX_HINT, clean

LIST: Final = "/v1.PodResourcesLister/List"
MAX_ANSWER: Final = 64 * 1024 * 1024
"""The answer grows with all pods of the node; a failing DRA driver once made it 17 MB."""
TIMEOUT: Final = 10.0

_HINTS: Final = {
    "UNIMPLEMENTED": "this kubelet does not know PodResources v1: Kubernetes 1.20 or newer is needed",
    "PERMISSION_DENIED": "the kubelet's socket may not be opened: run as root, or mount its directory",
    "RESOURCE_EXHAUSTED": f"the kubelet limits how often it is asked, or has more than {MAX_ANSWER} bytes to say",
}

Holding = tuple[str, str, tuple[str, str]]
"""Namespace and name of a pod, resource and id of a device."""


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
        wanted: Wanted = lambda resource: True,
    ) -> None:
        """``wanted``: whether ids of a resource are looked at; those of no vendor only cost memory."""
        self._socket, self._poll, self._hold, self._wanted = socket, poll, hold, wanted
        self._changed, self._failed = changed, failed
        self._held: tuple[Held, ...] = ()
        self._claims: tuple[Claim, ...] = ()
        self._since: Mapping[Holding, int] = {}
        self._answers = 0
        self._answered_at = float("-inf")
        self._status = Status(up=False, hint="the kubelet has not been asked yet", waiting=True)

    @property
    def status(self) -> Status:
        return self._status

    @property
    def held(self) -> Sequence[Held]:
        """The last good answer; nothing when it is too old."""
        return self.told() or ()

    def told(self) -> Sequence[Held] | None:
        """The same; None when it is too old, or there was none."""
        return self._held if self._is_fresh() else None

    def claims(self) -> Sequence[Claim]:
        """Of device plugins; those of DRA are another source's."""
        return self._claims if self._is_fresh() else ()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                answer = await self._ask()
            except (RpcError, Unreadable) as error:
                self._trouble(error)
            else:
                await self._take(answer)
            if self._held and not self._is_fresh():
                self._held, self._claims, self._since = (), (), {}
                self._changed()
            await asyncio.sleep(self._poll)

    async def _ask(self) -> tuple[Held, ...]:
        """What ``ask`` says. Cancelled, it leaves no thread behind that waits for a kubelet in trouble."""
        channel = _channel(self._socket)
        try:
            return await asyncio.to_thread(_answer, channel, self._wanted)
        finally:
            channel.interrupt()

    def _is_fresh(self) -> bool:
        return time.monotonic() - self._answered_at <= self._hold + self._poll

    async def _take(self, answer: tuple[Held, ...]) -> None:
        self._answered_at = time.monotonic()
        self._status = Status(up=True, last_success=time.time())
        self._answers += 1
        if answer == self._held:
            return
        # There may be a hundred thousand.
        since, claims = await asyncio.to_thread(_claimed, answer, self._since, self._answers)
        self._held, self._claims, self._since = answer, claims, since
        self._changed()

    def _trouble(self, error: RpcError | Unreadable) -> None:
        self._failed("unreadable" if isinstance(error, Unreadable) else error.code.lower())
        if isinstance(error, Unreadable):
            hint = f"the kubelet's answer is not understood: {error}"
        elif error.absent:
            hint = f"no kubelet listens at {self._socket}: mount its directory, or set pod_resources_socket"
        else:
            told = clean(error.detail, MAX_HINT)
            hint = f"{_HINTS.get(error.code, 'the kubelet does not answer')} ({told})"
        self._status = Status(up=False, last_success=self._status.last_success, hint=hint)


def _claimed(
    answer: Sequence[Held], before: Mapping[Holding, int], number: int
) -> tuple[Mapping[Holding, int], tuple[Claim, ...]]:
    """Since which answer each pod has held each of its devices, the last being ``number``; and what is so claimed."""
    holdings = ((held.namespace, held.pod, device) for held in answer for device in held.devices)
    since = {holding: before.get(holding, number) for holding in holdings}
    return since, tuple(claims_of(answer, since))


def claims_of(answer: Sequence[Held], since: Mapping[Holding, int]) -> Iterator[Claim]:
    """Kubelets before 1.34 list finished pods with what they held: an id is the pod's that was seen with it last.

    Not the pod's that was seen last: one that is made anew under its name, between two answers, seems to be an old one.
    Of pods that have held it from the start all are named: which of them have ended, only their metadata tells.
    """
    latest: dict[tuple[str, str], int] = {}
    for (_, _, device), first in since.items():
        latest[device] = max(latest.get(device, 0), first)
    for held in answer:
        for device in held.devices:
            if since[held.namespace, held.pod, device] == latest[device]:
                resource, identity = device
                yield Claim(
                    source="podresources",
                    resource=resource,
                    device_id=identity,
                    namespace=held.namespace,
                    pod=held.pod,
                    container=held.container,
                )


def ask(socket: str, wanted: Wanted = lambda resource: True) -> tuple[Held, ...]:
    """The kubelet's answer. Raises RpcError, Unreadable."""
    return _answer(_channel(socket), wanted)


def _channel(socket: str) -> Channel:
    """For one question: the kubelet makes its socket anew when it restarts, and a kept connection would not see it."""
    return Channel(Address(path=socket), max_message=MAX_ANSWER)


def _answer(channel: Channel, wanted: Wanted) -> tuple[Held, ...]:
    try:
        return decode(channel.call(LIST, b"", TIMEOUT), wanted)
    finally:
        channel.close()
