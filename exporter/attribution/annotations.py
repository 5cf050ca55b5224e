"""Devices that a pod's annotation names: some sharing layers hand out others than the kubelet thinks."""

from __future__ import annotations

import fnmatch
import itertools
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from exporter.attribution.claims import Claim, Pod, Pods, SourceName, Status
from exporter.attribution.held import Held
from exporter.attribution.table import AnnotationRule

MAX_DEVICES: Final = 256
"""Devices of one annotation that are looked at."""
_OBJECTS: Final = msgspec.json.Decoder(list[msgspec.Raw])
_OBJECT: Final = msgspec.json.Decoder(dict[str, Any])
INSTANCE: Final = re.compile(r"(?P<uuid>[^\[\]]+)\[(?P<number>\d+)-(?P<place>\d+)\]")
"""A part of a device, as the format ``slices`` writes it."""


class AnnotationSource:
    """Claims from the annotations of the node's pods."""

    name: SourceName = "annotations"

    def __init__(
        self,
        rules: Sequence[tuple[str, AnnotationRule]],
        pods: Callable[[], Pods],
        held: Callable[[], Sequence[Held] | None] = lambda: None,
    ) -> None:
        """``rules``: vendor and rule. ``held``: what containers hold as the kubelet says, None where it does not."""
        self._rules, self._pods, self._held = rules, pods, held
        self._status = Status(up=True, last_success=time.time())

    @property
    def status(self) -> Status:
        return self._status

    def claims(self) -> Sequence[Claim]:
        """A pod keeps its annotation when it has ended: one that holds nothing, as the kubelet says, claims nothing."""
        held = self._held()
        return [
            claim
            for pod in self._pods().values()
            if not pod.ended
            for vendor, rule in self._rules
            if rule.key in pod.annotations and (held is None or _holds(held, pod, rule.resources))
            for claim in self._of(pod, vendor, rule)
        ]

    def _of(self, pod: Pod, vendor: str, rule: AnnotationRule) -> Iterator[Claim]:
        better = self._better_known(pod, rule.key)
        return (claim for claim in claims_of(pod, vendor, rule) if claim.names.get("uuid") not in better)

    def _better_known(self, pod: Pod, key: str) -> set[str]:
        """Devices of which another annotation of the pod tells the parts."""
        better = (rule for _, rule in self._rules if rule.instead_of == key and rule.key in pod.annotations)
        return {_text(told, rule.whole) for rule in better for told in _objects(pod.annotations[rule.key])} - {""}


def _holds(held: Sequence[Held], pod: Pod, resources: Sequence[str]) -> bool:
    return not resources or any(
        fnmatch.fnmatchcase(resource, name)
        for each in held
        if (each.namespace, each.pod) == (pod.namespace, pod.name)
        for resource, _ in each.devices
        for name in resources
    )


def claims_of(pod: Pod, vendor: str, rule: AnnotationRule) -> Iterator[Claim]:
    """What one annotation says. Half of it is better than none: an entry that is no device is left out."""
    text = pod.annotations[rule.key]
    entries: Iterator[Entry]
    match rule.format:
        case "slices":
            entries = _slices(text, rule.pattern, pod)
        case "list":
            entries = _list(text, rule.pattern, pod)
        case "objects":
            entries = _parts(text, rule, pod)
    for container, names, share in itertools.islice(entries, MAX_DEVICES):
        yield Claim(
            source="annotations",
            vendor=vendor,
            names=names,
            share=share,
            namespace=pod.namespace,
            pod=pod.name,
            pod_uid=pod.uid,
            container=container,
            replaces=rule.resources,
        )


Entry = tuple[str, Mapping[str, str], str]
"""Container, names of the device, share."""


def _slices(text: str, pattern: str, pod: Pod) -> Iterator[Entry]:
    """``uuid,type,MiB,percent:`` for each device, ``;`` behind each container, or between them."""
    pieces = text.split(";")
    between = _order(pod, len(pieces))
    if not pieces[-1].strip():
        pieces.pop()
    containers = _order(pod, len(pieces)) or between or (_only(pod),) * len(pieces)
    for position, piece in enumerate(pieces):
        for number, device in enumerate(piece.split(":")):
            identity, *rest = device.split(",")
            part = INSTANCE.fullmatch(identity.strip())
            names = _names(part["uuid"] if part else identity.strip(), pattern) if len(rest) >= 3 else None
            if names:
                # A slice shares its device even while it is the only one there.
                yield containers[position], names, f"{position}.{number}"


def _names(identity: str, pattern: str) -> Mapping[str, str] | None:
    """None for what is no device."""
    if not pattern:
        return {"uuid": identity} if identity else None
    match = re.fullmatch(pattern, identity)
    return None if match is None else {name: value for name, value in match.groupdict().items() if value is not None}


def _order(pod: Pod, count: int) -> Sequence[str] | None:
    """Whose so many entries are: all containers', those of initialization first, or in older versions without these."""
    for order in ((*pod.init_order, *pod.container_order), tuple(pod.container_order)):
        if len(order) == count:
            return order
    return None


def _only(pod: Pod) -> str:
    return pod.container_order[0] if len(pod.container_order) == 1 and not pod.init_order else ""


def _list(text: str, pattern: str, pod: Pod) -> Iterator[Entry]:
    """Ids with commas between them."""
    for device in text.split(","):
        names = _names(device.strip(), pattern)
        if names:
            yield _only(pod), names, ""


def _parts(text: str, rule: AnnotationRule, pod: Pod) -> Iterator[Entry]:
    """One for each object. A part that is yet to be made has no names; the kubelet's word is not true, either."""
    order = (*pod.init_order, *pod.container_order)
    for told in _objects(text):
        names = {fact: value for fact, field in rule.facts.items() if (value := _text(told, field))}
        position = told.get(rule.container)
        container = order[position] if isinstance(position, int) and 0 <= position < len(order) else _only(pod)
        yield container, names if len(names) == len(rule.facts) else {}, ""


def _objects(text: str) -> Iterator[Mapping[str, Any]]:
    """Those of a JSON list; what is none is passed over."""
    try:
        listed = _OBJECTS.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        return
    for item in listed[:MAX_DEVICES]:
        try:
            yield _OBJECT.decode(item)
        except (msgspec.MsgspecError, RecursionError):
            continue


def _text(told: Mapping[str, Any], field: str) -> str:
    """A text or number as text; empty where there is none."""
    value = told.get(field)
    return str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""
