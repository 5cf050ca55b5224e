"""What containers hold, from the kubelet's answer: v1.ListPodResourcesResponse, read without copying most of it.

The messages are those of kubernetes/kubelet, pkg/apis/podresources/v1/api.proto; podresources.proto beside this file
states the part that is read. Fields that are not in it, of whatever wire type, are passed over: a newer kubelet has
more. An answer may have 64 MiB of pods without devices, of claims that a failing driver repeats or of ids that are
quantities, and is decoded in the same process that serves scrapes: hence positions instead of slices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from exporter.attribution.text import MAX_NAME, clean

MAX_HELD: Final = 100_000
"""Devices of a node that are taken."""
MAX_IDS: Final = 4096
"""Ids of one resource in one container that are taken. Some plugins hand out a unit of memory an id: no devices."""

MAX_MESSAGES: Final = 500_000
"""Pods, their containers, and what these hold, that are looked into: each takes a microsecond or more."""
MAX_TEXT: Final = 1024
"""Bytes of a name or id that are taken."""

_VARINT: Final = 0
_FIXED64: Final = 1
_BYTES: Final = 2
_FIXED32: Final = 5
_MOST_VARINT_BITS: Final = 63
_MORE: Final = 0x80


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
    """(resource, id), each once, in order."""
    dra: tuple[DraDevice, ...] = ()
    """Each once, in order."""


class Unreadable(Exception):
    """The kubelet's answer is no ListPodResourcesResponse, or has more in it than any node has."""


Wanted = Callable[[str], bool]
"""Whether a resource's ids are looked at."""


class _Left:
    """How many messages may still be looked into."""

    def __init__(self) -> None:
        self._left = MAX_MESSAGES

    def take(self) -> None:
        """Raises Unreadable."""
        self._left -= 1
        if self._left < 0:
            raise Unreadable(f"it has more than {MAX_MESSAGES} pods, containers and what these hold")


def decode(body: bytes, wanted: Wanted = lambda resource: True) -> tuple[Held, ...]:
    """The containers that hold something, in order: the kubelet's own changes from call to call. Raises Unreadable."""
    found: list[Held] = []
    left, messages = MAX_HELD, _Left()
    try:
        for number, start, end in _parts(body, 0, len(body)):
            if number != 1:
                continue
            messages.take()
            for held in _pod(body, start, end, wanted, messages):
                left -= len(held.devices) + len(held.dra)
                if left < 0:
                    raise Unreadable(f"the kubelet lists more than {MAX_HELD} devices")
                found.append(held)
    except IndexError:
        raise Unreadable("the answer ends within a number") from None
    return tuple(sorted(found, key=lambda held: (held.namespace, held.pod, held.container)))


def _parts(data: bytes, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Number, start and end of each field with bytes in it. Raises Unreadable, and IndexError past the data's end."""
    while at < end:
        key = data[at]
        at += 1
        if key >= _MORE:
            key, at = _number(data, at - 1)
        if key < 8:
            raise Unreadable("a field has the number 0")
        wire = key & 7
        if wire == _BYTES:
            size = data[at]
            at += 1
            if size >= _MORE:
                size, at = _number(data, at - 1)
            start, at = at, at + size
            if at > end:
                break
            yield key >> 3, start, at
        elif wire == _VARINT:
            _, at = _number(data, at)
        elif wire == _FIXED64:
            at += 8
        elif wire == _FIXED32:
            at += 4
        else:
            raise Unreadable(f"field {key >> 3} has the wire type {wire}")
    if at != end:
        raise Unreadable("a field ends after its message")


def _number(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < _MORE:
            return value, at
        shift += 7
        if shift > _MOST_VARINT_BITS:
            raise Unreadable("a number is longer than 64 bits")


def _pod(data: bytes, start: int, end: int, wanted: Wanted, messages: _Left) -> Iterator[Held]:
    name = namespace = ""
    containers: list[tuple[int, int]] = []
    for number, at, after in _parts(data, start, end):
        if number == 1:
            name = clean(_text(data, at, after), MAX_NAME)
        elif number == 2:
            namespace = clean(_text(data, at, after), MAX_NAME)
        elif number == 3:
            messages.take()
            containers.append((at, after))
    for at, after in containers if name else ():
        held = _container((namespace, name), data, at, after, wanted, messages)
        if held is not None:
            yield held


def _container(pod: tuple[str, str], data: bytes, start: int, end: int, wanted: Wanted, messages: _Left) -> Held | None:
    name = ""
    devices: dict[str, set[str]] = {}
    dra: set[DraDevice] = set()
    for number, at, after in _parts(data, start, end):
        if number == 1:
            name = clean(_text(data, at, after), MAX_NAME)
        elif number == 2:
            messages.take()
            _add_devices(devices, data, at, after, wanted)
        elif number == 5:
            messages.take()
            _add_claim(dra, data, at, after)
    held = tuple(sorted((resource, identity) for resource, ids in devices.items() for identity in ids))
    if not held and not dra:
        return None
    return Held(*pod, name, held, tuple(sorted(dra, key=_order)))


def _order(device: DraDevice) -> tuple[str, ...]:
    return device.driver, device.pool, device.device, device.share, device.claim_namespace, device.claim_name


def _add_devices(found: dict[str, set[str]], data: bytes, start: int, end: int, wanted: Wanted) -> None:
    """One ContainerDevices. A device of several NUMA nodes comes in several of them."""
    resource = ""
    ids: list[tuple[int, int]] = []
    for number, at, after in _parts(data, start, end):
        if number == 1:
            resource = clean(_text(data, at, after), MAX_NAME)
            if not wanted(resource):
                return
        elif number == 2 and after > at and len(ids) < MAX_IDS:
            ids.append((at, after))
    if not resource or not ids:
        return
    known = found.setdefault(resource, set())
    for at, after in ids:
        if len(known) >= MAX_IDS:
            return
        known.add(_text(data, at, after))


def _add_claim(found: set[DraDevice], data: bytes, start: int, end: int) -> None:
    """One DynamicResource, whose devices may be repeated without end by a failing driver."""
    claim_name = claim_namespace = ""
    resources: set[bytes] = set()
    for number, at, after in _parts(data, start, end):
        if number == 2:
            claim_name = _text(data, at, after)
        elif number == 3:
            claim_namespace = _text(data, at, after)
        elif number == 4 and len(resources) < MAX_HELD:
            resources.add(data[at:after])
    for resource in resources:
        # Its CDI names (1) are not looked at: those of later devices repeat the earlier ones'.
        told = {
            number: _text(resource, at, after)
            for number, at, after in _parts(resource, 0, len(resource))
            if 2 <= number <= 5
        }
        if told.get(2) and told.get(4) and len(found) < MAX_HELD:
            found.add(DraDevice(told[2], told.get(3, ""), told[4], told.get(5, ""), claim_name, claim_namespace))


def _text(data: bytes, start: int, end: int) -> str:
    """What is no UTF-8 is replaced."""
    return data[start : min(end, start + MAX_TEXT)].decode("utf-8", "replace")
