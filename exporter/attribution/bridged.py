"""Owners that a vendor's exporter tells, where the agent reads it instead of the devices: the last to be believed."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from exporter.attribution.claims import Claim, SourceName, Status
from exporter.model import Snapshot

FACTS: Final = frozenset(("namespace", "pod", "container", "job_name"))
MAX_TEXT: Final = 253
"""Characters of a pod's name."""
MAX_AGE: Final = 120.0
"""Seconds for which a page counts that is not followed by another."""


class BridgeSource:
    """Claims from labels of bridged exporters.

    Which other sources know more is settled when all are joined. Until a label has named an owner the source says
    nothing: an exporter that does not look for owners must not make devices look free.
    """

    name: SourceName = "bridge"

    def __init__(self) -> None:
        self.awake = False
        self._claims: tuple[Claim, ...] = ()
        self._status = Status(up=True)

    @property
    def status(self) -> Status:
        return self._status

    def claims(self) -> Sequence[Claim]:
        return self._claims

    def take(self, snapshots: Sequence[Snapshot]) -> bool:
        """Whether what these say differs from what was said before."""
        claims = tuple(claim for snapshot in snapshots for claim in _claims(snapshot))
        if claims:
            self.awake = True
            self._status = Status(up=True, last_success=time.time())
        news, self._claims = claims != self._claims, claims
        return news


def _claims(snapshot: Snapshot) -> Iterator[Claim]:
    """One for each device and owner."""
    found: dict[tuple[int, tuple[tuple[str, str], ...]], None] = {}
    for sample in snapshot.groups.values():
        if time.monotonic() - sample.taken_monotonic <= MAX_AGE:
            found.update(dict.fromkeys((holder.device, holder.facts) for holder in sample.holders))
    for position, facts in found:
        device = snapshot.devices[position]
        yield _claim(snapshot.vendor, device.uuid, device.partition, dict(facts))


def _claim(vendor: str, uuid: str, partition: str, facts: Mapping[str, str]) -> Claim:
    told = {name: "".join(each for each in value if each.isprintable())[:MAX_TEXT] for name, value in facts.items()}
    job = told.get("job_name", "")
    return Claim(
        source="bridge",
        vendor=vendor,
        names={"uuid": uuid, **({"partition": partition} if partition else {})},
        namespace=told.get("namespace", ""),
        pod=told.get("pod", ""),
        container=told.get("container", ""),
        job_name=job,
        job_kind="SlurmJob" if job else "",
        raw={name: value for name, value in told.items() if name not in FACTS},
    )
