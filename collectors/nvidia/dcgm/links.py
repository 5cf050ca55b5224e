"""NVLinks: which there are, in which state, and by what number an engine calls them."""

from __future__ import annotations

from typing import Final

import msgspec

from collectors.nvidia.dcgm import abi, codes
from collectors.nvidia.dcgm.codes import DcgmFailure
from collectors.nvidia.dcgm.engine import Engine

_NOT_SUPPORTED: Final = 0
_UP: Final = 3
_SWITCHES: Final = 12


class Links(msgspec.Struct, frozen=True):
    """By GPU and by switch: number of the link → whether it is up."""

    of_gpus: dict[int, dict[int, bool]]
    of_switches: dict[int, dict[int, bool]]


def read_links(engine: Engine) -> Links:
    """Raises DcgmFailure. A link that the board has not is not listed."""
    # 5 has room for 36 links a GPU; only the library of 4.6 knows it, which still takes 4.
    for number in (3,) if engine.library.major == 3 else (5, 4):
        buffer = abi.structure(abi.LINK_STATUS[number])
        try:
            engine.call("dcgmGetNvLinkLinkStatus", buffer)
        except DcgmFailure as failure:
            if failure.code != codes.VERSION_MISMATCH:
                raise
            continue
        return _decode(buffer, abi.LINKS_OF_GPU[number], abi.LINKS_OF_SWITCH[number])
    raise DcgmFailure(codes.NOT_SUPPORTED, "dcgmGetNvLinkLinkStatus")


def _decode(buffer: object, of_gpu: int, of_switch: int) -> Links:
    words = memoryview(buffer).cast("B").cast("I")  # type: ignore[arg-type]
    gpus, switches_at = words[1], 2 + abi.MAX_GPUS * (1 + of_gpu)
    return Links(
        _states(words, 2, min(gpus, abi.MAX_GPUS), of_gpu),
        _states(words, switches_at + 1, min(words[switches_at], _SWITCHES), of_switch),
    )


def _states(words: memoryview[int], at: int, count: int, links: int) -> dict[int, dict[int, bool]]:
    found = {}
    for place in range(count):
        start = at + place * (1 + links)
        states = words[start + 1 : start + 1 + links]
        found[words[start]] = {link: state == _UP for link, state in enumerate(states) if state != _NOT_SUPPORTED}
    return found


def entity(engine: Engine, group: int, parent: int, link: int) -> abi.Entity | None:
    """A link of a GPU or a switch as an entity. None for an engine that has no number for it.

    The number is put together in three ways; in that of 4.0 to 4.2 the parent does not fit. An engine that does not
    tell its version could use either.
    """
    if engine.version >= (4, 3):
        return abi.LINK, group | link << 8 | parent << 24
    if engine.version and engine.version < (4, 0):
        return abi.LINK, group | link << 8 | parent << 16
    return None
