"""A kubelet can list a hundred thousand ids. Joining them costs little for each, whatever else there is, and gives way.

Counted, not timed: what a machine is busy with otherwise does not matter.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from types import FrameType

import pytest

from collectors.base import Device
from exporter.attribution.claims import Claim, Pod
from exporter.attribution.identity import identifier
from exporter.attribution.join import MAX_WORKLOADS, SLICE, Joined, join, joining
from exporter.attribution.match import Match, Matcher, VendorDevices
from exporter.config.attribution import Attribution
from exporter.model import Workload
from tests.unit.test_attribution_join import TABLE

IDENTIFY = identifier(Attribution(), dict)
MANY = 99_000
OF_ONE = 4000
"""Ids that one container holds."""


def vendors(devices: int) -> list[VendorDevices]:
    return [
        VendorDevices(
            "acme", TABLE, tuple(Device(uuid=f"ACME-{n}", index=str(n), serial=f"S{n}") for n in range(devices))
        )
    ]


def claims(count: int, devices: int) -> Iterator[Claim]:
    """Shares of all devices in turn, and as many ids that no device has."""
    for number in range(count):
        known = number % 2
        yield Claim(
            source="podresources",
            resource="acme.com/npu",
            device_id=f"ACME-{number % devices}::{number}" if known else f"ACME-{devices + number}",
            namespace="ns",
            pod=f"p{number // OF_ONE}",
            container="c",
        )


def calls_of(count: int, devices: int) -> int:
    """How many functions of ours and of Python's library are called to join so many claims."""
    found = 0

    def count_call(frame: FrameType, event: str, argument: object) -> None:
        nonlocal found
        found += event in ("call", "c_call")

    known = list(claims(count, devices))
    before = sys.getprofile()
    sys.setprofile(count_call)
    try:
        join(vendors(devices), known, {}, IDENTIFY)
    finally:
        sys.setprofile(before)
    return found


def of_each(devices: int) -> float:
    """Calls for each claim beyond those for each device."""
    return (calls_of(6000, devices) - calls_of(2000, devices)) / 4000


def test_a_claim_costs_the_same_on_a_node_of_many_devices() -> None:
    few, many = of_each(4), of_each(256)
    assert many < few * 1.1
    # With a look at each device there were a thousand.
    assert few < 40


def test_the_work_is_done_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[int] = []
    """Claims that were looked at, or workloads that were identified, in each slice."""

    def find(self: Matcher, claim: Claim) -> tuple[Match, ...]:
        done[-1] += 1
        return find_really(self, claim)

    def identify(workload: Workload, pod: Pod | None) -> Workload:
        done[-1] += 1
        return IDENTIFY(workload, pod)

    find_really = Matcher.find
    monkeypatch.setattr(Matcher, "find", find)
    work = joining(vendors(8), list(claims(MANY, 8)), {}, identify)
    joined = None
    while joined is None:
        done.append(0)
        try:
            next(work)
        except StopIteration as end:
            joined = end.value
    assert sum(done) >= MANY
    assert max(done) <= max(SLICE, MAX_WORKLOADS)
    assert joined.unmatched == {"acme.com/npu": MANY // 2}
    # Of the even numbers no share is known, and so none of an even device.
    assert {key: replicas(joined, key) for key in joined.allocation} == {
        (f"ACME-{device}", ""): MANY // 8 for device in (1, 3, 5, 7)
    }


def replicas(joined: Joined, key: tuple[str, str]) -> int:
    owners: Sequence[Workload] = joined.allocation[key]
    assert [owner.pod for owner in owners] == sorted(f"p{number}" for number in range(-(-MANY // OF_ONE)))
    return sum(owner.replicas for owner in owners)
