"""Devices that a pod's annotation names: some sharing layers hand out others than the kubelet thinks."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from exporter.attribution.claims import Claim, Pod, Pods, SourceName, Status
from exporter.catalogue import AnnotationRule

MAX_DEVICES: Final = 256
"""Devices of one annotation that are looked at."""
INSTANCE: Final = re.compile(r"(?P<uuid>[^\[\]]+)\[(?P<number>\d+)-(?P<place>\d+)\]")
"""A part of a device, as the format ``slices`` writes it."""


class AnnotationSource:
    """Claims from the annotations of the node's pods."""

    name: SourceName = "annotations"

    def __init__(self, rules: Sequence[tuple[str, AnnotationRule]], pods: Callable[[], Pods]) -> None:
        """``rules``: vendor and rule."""
        self._rules, self._pods = rules, pods
        self._status = Status(up=True, last_success=time.time())

    @property
    def status(self) -> Status:
        return self._status

    def claims(self) -> Sequence[Claim]:
        return [
            claim
            for pod in self._pods().values()
            if not pod.ended
            for vendor, rule in self._rules
            if rule.key in pod.annotations
            for claim in claims_of(pod, vendor, rule)
        ]


def claims_of(pod: Pod, vendor: str, rule: AnnotationRule) -> Iterator[Claim]:
    """What one annotation says. Half of it is better than none: an entry that is no device is left out."""
    text = pod.annotations[rule.key]
    entries = _slices(text) if rule.format == "slices" else _list(text, rule.pattern)
    for number, (position, names, share) in enumerate(entries):
        if number >= MAX_DEVICES:
            return
        container = pod.container_order[position] if position < len(pod.container_order) else ""
        if rule.format == "list" and len(pod.container_order) == 1:
            container = pod.container_order[0]
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


Entry = tuple[int, Mapping[str, str], str]
"""Position of the container, names of the device, share."""


def _slices(text: str) -> Iterator[Entry]:
    """``uuid,type,MiB,percent:`` for each device, ``;`` behind each container."""
    for position, container in enumerate(text.split(";")):
        for number, device in enumerate(container.split(":")):
            fields = device.split(",")
            if len(fields) < 2 or not fields[0].strip():
                continue
            identity = fields[0].strip()
            part = INSTANCE.fullmatch(identity)
            # A slice shares its device even while it is the only one there.
            yield position, {"uuid": part["uuid"] if part else identity}, f"{position}.{number}"


def _list(text: str, pattern: str) -> Iterator[Entry]:
    for device in text.split(","):
        identity = device.strip()
        if not identity:
            continue
        match = re.fullmatch(pattern, identity) if pattern else None
        if match is not None:
            yield 10**6, {name: value for name, value in match.groupdict().items() if value is not None}, ""
        elif not pattern:
            yield 10**6, {"uuid": identity}, ""
