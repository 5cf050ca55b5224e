"""Which profiling ratios a GPU can give, and which of them together."""

from __future__ import annotations

import struct
from collections.abc import Collection, Sequence
from typing import Final

from collectors.nvidia.dcgm import abi, codes
from collectors.nvidia.dcgm.codes import DcgmFailure
from collectors.nvidia.dcgm.engine import Engine

_MOST_GROUPS: Final = 10
_MOST_FIELDS: Final = 64
_FIRST: Final = 16
_GROUP: Final = struct.Struct("=HHI64H")

MetricGroup = tuple[int, frozenset[int]]
"""Major id, and fields. Groups of one major id share counters: they can only be sampled in turns."""

ADVICE: Final = {
    codes.MODULE_NOT_LOADED: "the engine lacks its profiling module: install datacenter-gpu-manager-4-proprietary",
    codes.IN_USE: "another program has the performance counters: end it, or run dcgmi profile --pause for as long",
    codes.NO_PERMISSION: "the engine needs root, or CAP_SYS_ADMIN in its container",
    codes.NEEDS_ROOT: "the engine needs root, or CAP_SYS_ADMIN in its container",
    codes.PAUSED: "profiling is paused: dcgmi profile --resume",
}
"""Why there are no ratios although the GPU could give them → what to do."""


def metric_groups(engine: Engine, gpu: int) -> list[MetricGroup]:
    """What a GPU offers; nothing where it has no such counters.

    Raises DcgmFailure where it has and they cannot be read, or when the engine does not answer.
    """
    buffer = abi.structure(abi.METRIC_GROUPS)
    struct.pack_into("=I", buffer, 8, gpu)
    try:
        engine.call("dcgmProfGetSupportedMetricGroups", buffer)
    except DcgmFailure as failure:
        if failure.code not in ADVICE and codes.judge(failure.code) == "unsupported":
            return []
        raise
    count = min(struct.unpack_from("=I", buffer, 12)[0], _MOST_GROUPS)
    found = []
    for place in range(count):
        major, _, size, *fields = _GROUP.unpack_from(buffer, _FIRST + place * _GROUP.size)
        found.append((major, frozenset(fields[: min(size, _MOST_FIELDS)])))
    return found


def offered(groups: Sequence[MetricGroup]) -> frozenset[int]:
    """All fields."""
    return frozenset[int]().union(*(fields for _, fields in groups))


def one_pass(groups: Sequence[MetricGroup], wanted: Collection[int]) -> frozenset[int]:
    """The fields that can be sampled at once: of each major id the group with most of the wanted ones."""
    best: dict[int, frozenset[int]] = {}
    for major, fields in groups:
        useful = fields & frozenset(wanted)
        if len(useful) > len(best.get(major, ())):
            best[major] = useful
    return frozenset[int]().union(*best.values())
