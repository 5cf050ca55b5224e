"""Owners that the configuration fixes, for hosts without a scheduler."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Final

from exporter.attribution.claims import Claim, SourceName, Status
from exporter.config.attribution import StaticOwner

FACTS: Final = ("index", "uuid", "serial", "pci_bus_id")
"""What a device of the configuration may be called by."""


class StaticSource:
    """Claims that never change."""

    name: SourceName = "static"

    def __init__(self, owners: Sequence[StaticOwner]) -> None:
        self._claims = tuple(claim for owner in owners for claim in claims_of(owner))
        self._status = Status(up=True, last_success=time.time())

    @property
    def status(self) -> Status:
        return self._status

    def claims(self) -> Sequence[Claim]:
        return self._claims

    async def run(self) -> None:
        await asyncio.Event().wait()


def claims_of(owner: StaticOwner) -> Sequence[Claim]:
    """One claim for each name that a device may go by; those that no device has mean nothing."""
    names = [{fact: device} for device in owner.devices for fact in FACTS] or [{}]
    return [
        Claim(
            source="static",
            vendor=owner.vendor,
            names=name,
            everything=not name,
            namespace=owner.namespace,
            pod=owner.pod,
            job_name=owner.job_name,
            tenant=owner.tenant,
        )
        for name in names
    ]
