"""Grace CPUs and their cores."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final

from collectors.nvidia.dcgm import abi, codes
from collectors.nvidia.dcgm.codes import DcgmFailure
from collectors.nvidia.dcgm.engine import Engine

_MOST: Final = 8
_FIRST: Final = 8
_CPU: Final = struct.Struct("=I4xI4x16Q")
"""Its id, a version word, and a bit for each core of the node."""


def read_cores(engine: Engine) -> Mapping[int, tuple[int, ...]]:
    """CPU → its cores; empty on a node without Grace. Raises DcgmFailure when the engine does not answer."""
    buffer = abi.structure(abi.CPUS)
    try:
        engine.call("dcgmGetCpuHierarchy", buffer)
    except DcgmFailure as failure:
        if codes.judge(failure.code) in ("gone", "timeout"):
            raise
        return {}
    found = {}
    for place in range(min(struct.unpack_from("=I", buffer, 4)[0], _MOST)):
        cpu, _, *masks = _CPU.unpack_from(buffer, _FIRST + place * _CPU.size)
        found[cpu] = tuple(64 * word + bit for word, mask in enumerate(masks) for bit in range(64) if mask >> bit & 1)
    return found
