"""Calls that need more than one function of the binding or a structure that the caller fills."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any, Final

from collectors.nvidia import codes
from collectors.nvidia.binding import NvmlFailure, call, structure, symbol
from collectors.nvidia.fields import LARGEST_CALL, decode
from collectors.nvidia.picks import margin

_UNREPAIRABLE_V1: Final = 0x01000008
_MOST_LINKS: Final = 36
"""NVML_NVLINK_MAX_LINKS."""
_LINK_COUNT: Final = 91
"""NVML_FI_DEV_NVLINK_LINK_COUNT."""


def retired_pages(handle: Any, cause: int) -> int:
    """How many pages were retired for a cause: 0 single-bit errors, 1 a double-bit error."""
    return len(call("nvmlDeviceGetRetiredPages", handle, cause))


def sram_threshold(handle: Any) -> int:
    """1 if uncorrectable SRAM errors have passed the vendor's threshold."""
    status = structure("c_nvmlEccSramErrorStatus_v1_t")
    call("nvmlDeviceGetSramEccErrorStatus", handle, ctypes.byref(status))
    return int(status.bThresholdExceeded)


def unrepairable_memory(handle: Any) -> int:
    """1 if memory is damaged beyond repair.

    One header declares the structure as {flag}, all others as {version, flag}. The latter is passed; a driver that
    follows the former overwrites the version.
    """
    function = symbol("nvmlDeviceGetUnrepairableMemoryFlag_v1")
    words = (ctypes.c_uint * 2)(_UNREPAIRABLE_V1, 0)
    code = int(function(handle, ctypes.byref(words)))
    if code != codes.SUCCESS:
        raise NvmlFailure(code, "nvmlDeviceGetUnrepairableMemoryFlag_v1")
    return int(bool(words[0] if words[0] != _UNREPAIRABLE_V1 else words[1]))


class _Margin(ctypes.Structure):
    """nvmlMarginTemperature_v1_t."""

    _fields_ = (("version", ctypes.c_uint), ("marginTemperature", ctypes.c_int))


def margin_temperature(handle: Any) -> int:
    """Degrees left before the GPU slows down."""
    info = _Margin(version=0x01000008)
    code = int(symbol("nvmlDeviceGetMarginTemperature")(handle, ctypes.byref(info)))
    if code != codes.SUCCESS:
        raise NvmlFailure(code, "nvmlDeviceGetMarginTemperature")
    return int(info.marginTemperature)


class _Fabric(ctypes.Structure):
    """nvmlGpuFabricInfo_t. Not the binding's: that of 12.535 has a longer uuid than the driver writes."""

    _fields_ = (
        ("clusterUuid", ctypes.c_uint8 * 16),
        ("status", ctypes.c_uint),
        ("cliqueId", ctypes.c_uint),
        ("state", ctypes.c_uint8),
    )


class _FabricV(ctypes.Structure):
    """nvmlGpuFabricInfo_v3_t; version 2 ends before the summary."""

    _fields_ = (
        ("version", ctypes.c_uint),
        *_Fabric._fields_,
        ("healthMask", ctypes.c_uint),
        ("healthSummary", ctypes.c_uint8),
    )


def fabric(handle: Any, version: int) -> Any:
    """Fabric state by a version of its structure, 0 for the call of R535, which knows no health.

    Raises NvmlFailure, with 3 on a GPU that is in no fabric.
    """
    name = "nvmlDeviceGetGpuFabricInfoV" if version else "nvmlDeviceGetGpuFabricInfo"
    info = _FabricV(version=version) if version else _Fabric()
    code = int(symbol(name)(handle, ctypes.byref(info)))
    if code == codes.SUCCESS and info.state == 0:
        code = 3
    if code != codes.SUCCESS:
        raise NvmlFailure(code, name)
    return info


def link_states(handle: Any) -> list[int]:
    """1 for each NVLink that is up, 0 for one that is not. Raises NvmlFailure with 3 on a GPU without."""
    states: list[int] = []
    for link in range(_MOST_LINKS):
        try:
            state = int(call("nvmlDeviceGetNvLinkState", handle, link))
        except NvmlFailure as failure:
            if codes.judge(failure.code) in ("unsupported", "stale", "nothing"):
                # The numbers of the links have no holes: the first that is not there is behind the last.
                if link == 0:
                    raise NvmlFailure(3, failure.call) from None
                break
            raise
        states.append(int(state == 1))
    return states


def link_count(handle: Any) -> int:
    """How many NVLinks the GPU has. Raises NvmlFailure with 3 on a GPU without."""
    try:
        count = _scoped(handle, [(_LINK_COUNT, 0)])[0]
    except NvmlFailure as failure:
        if codes.judge(failure.code) != "unsupported" and failure.code != codes.INVALID_ARGUMENT:
            raise
        return len(link_states(handle))
    if count == 0:
        raise NvmlFailure(3, "NVML_FI_DEV_NVLINK_LINK_COUNT")
    return count


def link_errors(handle: Any, counter: int) -> int:
    """The sum of one error counter over the links: 0 replay, 1 recovery, 2 CRC flit, 3 CRC data."""
    links = link_count(handle)
    return sum(int(call("nvmlDeviceGetNvLinkErrorCounter", handle, link, counter)) for link in range(links))


def errors_by_link(handle: Any, counter: int) -> list[tuple[str, int]]:
    """The same counter of each NVLink that has it, by its number."""
    found: list[tuple[str, int]] = []
    for link in range(link_count(handle)):
        try:
            found.append((str(link), int(call("nvmlDeviceGetNvLinkErrorCounter", handle, link, counter))))
        except NvmlFailure as failure:
            if codes.judge(failure.code) != "unsupported":
                raise
    return _some(found, "nvmlDeviceGetNvLinkErrorCounter")


def link_fields(handle: Any, field: int) -> list[tuple[str, int]]:
    """A field of each NVLink that has it, by its number."""
    found: list[tuple[str, int]] = []
    for link, answer in enumerate(_answers(handle, [(field, link) for link in range(link_count(handle))])):
        if isinstance(answer, int):
            found.append((str(link), answer))
        elif codes.judge(answer.code) != "unsupported" and answer.code != codes.INVALID_ARGUMENT:
            raise answer
    return _some(found, f"field {field}")


def link_field_sum(handle: Any, field: int) -> int:
    """The sum of a field over the links, for drivers that give it by link only. Raises NvmlFailure if any fails."""
    return sum(_scoped(handle, [(field, link) for link in range(link_count(handle))]))


def _some(found: list[tuple[str, int]], name: str) -> list[tuple[str, int]]:
    if not found:
        raise NvmlFailure(3, name)
    return found


_TLIMITS: Final = (("shutdown", 193), ("slowdown", 194), ("memory_max", 195), ("gpu_max", 196))


def temperature_limits(handle: Any) -> list[tuple[str, int]]:
    """The thresholds of Ada and newer, as offsets on the scale of the margin."""
    found = []
    for name, field in _TLIMITS:
        try:
            value = margin(_scoped(handle, [(field, 0)])[0])
        except NvmlFailure as failure:
            if codes.judge(failure.code) != "unsupported" and failure.code != codes.INVALID_ARGUMENT:
                raise
            continue
        if value is not None:
            found.append((name, value))
    if not found:
        raise NvmlFailure(3, "nvmlDeviceGetFieldValues#193..196")
    return found


def fans(handle: Any) -> list[tuple[str, int]]:
    """The speed of each fan in percent, by its number."""
    count = int(call("nvmlDeviceGetNumFans", handle))
    if count == 0:
        raise NvmlFailure(3, "nvmlDeviceGetNumFans")
    return [(str(fan), int(call("nvmlDeviceGetFanSpeed_v2", handle, fan))) for fan in range(count)]


def _scoped(handle: Any, keys: list[tuple[int, int]]) -> list[int]:
    """Field values that are all needed: the first failure is raised."""
    found: list[int] = []
    for answer in _answers(handle, keys):
        if isinstance(answer, NvmlFailure):
            raise answer
        found.append(answer)
    return found


def _answers(handle: Any, keys: list[tuple[int, int]]) -> Iterator[int | NvmlFailure]:
    for start in range(0, len(keys), LARGEST_CALL):
        for value in call("nvmlDeviceGetFieldValues", handle, keys[start : start + LARGEST_CALL]):
            code = int(value.nvmlReturn)
            number = decode(value) if code == codes.SUCCESS else None
            if number is None:
                yield NvmlFailure(code or 3, f"field {int(value.fieldId)}")
            else:
                yield int(number)
