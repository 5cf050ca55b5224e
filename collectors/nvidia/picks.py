"""From what the driver answers to a value, or to nothing where the driver said that it has none."""

from __future__ import annotations

from typing import Any, Final

BLANK_32: Final = 0xFFFFFFFF
BLANK_64: Final = 0xFFFFFFFFFFFFFFFF
_MEBIBYTE: Final = 1 << 20
_HOTTEST: Final = 200
"""DCGM drops what is above, °C."""
_FABRIC_COMPLETED: Final = 3
"""NVML_GPU_FABRIC_STATE_COMPLETED."""
_DCGM_CODES: Final = {0: 0, 1: -56, 2: -1, 3: -6, 4: -17, 6: -14, 10: -11, 15: -18, 16: -19, 23: -49}
"""nvmlReturn_t → dcgmReturn_t, as DCGM translates them (NvmlReturnToDcgmReturn)."""
_DCGM_NVML_ERROR: Final = -8


def integer(value: Any) -> int | None:
    """An unsigned int: a clock, a code, a state. All ones is no value."""
    found = int(value)
    return None if found == BLANK_32 else found


def counter(value: Any) -> int | None:
    """An unsigned long long: a count or a mask. All ones is no value."""
    found = int(value)
    return None if found == BLANK_64 else found


def milliwatts(value: Any) -> float | None:
    """mW to W."""
    found = integer(value)
    return None if found is None else found / 1000


def temperature(value: Any) -> int | None:
    """°C; above 200 there was no reading."""
    found = integer(value)
    return None if found is None or found > _HOTTEST else found


def memory_temperature(value: Any) -> int | None:
    """°C; 0 is how boards without the sensor answer."""
    return temperature(value) or None


def margin(value: Any) -> int | None:
    """Degrees left before slowdown, or an offset to it: may be negative."""
    found = int(value)
    if found > 1 << 31:
        found -= 1 << 32
    return found if abs(found) <= _HOTTEST else None


def first(value: Any) -> int | None:
    """The first of several outputs."""
    return integer(value[0])


def second(value: Any) -> int | None:
    """The second of several outputs."""
    return integer(value[1])


def first_milliwatts(value: Any) -> float | None:
    """The first of several outputs, mW to W."""
    return milliwatts(value[0])


def second_milliwatts(value: Any) -> float | None:
    """The second of several outputs, mW to W."""
    return milliwatts(value[1])


def attribute(name: str) -> Any:
    """A picker of one integer of a structure."""

    def pick(value: Any) -> int | None:
        return integer(getattr(value, name))

    return pick


def instance_units(attributes: Any) -> int | None:
    """SMs of a GPU instance, from the attributes of its compute instance.

    They are the compute instance's: None where it is only a slice of the GPU instance, for the SMs of the slices need
    not add up to those of the whole.
    """
    if attributes.computeInstanceSliceCount != attributes.gpuInstanceSliceCount:
        return None
    return integer(attributes.multiprocessorCount)


def mebibytes(name: str) -> Any:
    """A picker of one size of a structure, in whole MiB, rounded down; None where this version has none."""

    def pick(value: Any) -> int | None:
        found = getattr(value, name, None)
        return None if found is None or int(found) == BLANK_64 else int(found) // _MEBIBYTE

    return pick


def used_ratio(memory: Any) -> float | None:
    """Used over what is usable: total less reserved."""
    usable = int(memory.total) - int(getattr(memory, "reserved", 0))
    return int(memory.used) / usable if usable > 0 else None


def link_error_rate(value: Any) -> float:
    """NVLink 5 bit error rate: mantissa in bits 8–11, negative decimal exponent in bits 0–7 (nvml.h)."""
    code = int(value)
    return float((code >> 8) & 0xF) * 10.0 ** -(code & 0xFF)


def fabric_status(info: Any) -> int | None:
    """1 not started, 2 in progress, 3 completed; 4 where completed with an error, as DCGM says it."""
    if info.state not in (1, 2, _FABRIC_COMPLETED):
        return None
    return 4 if info.state == _FABRIC_COMPLETED and info.status != 0 else int(info.state)


def fabric_error(info: Any) -> int | None:
    """DCGM's return code for the status; nothing before the GPU is done with joining, as with DCGM."""
    if info.state != _FABRIC_COMPLETED:
        return None
    return _DCGM_CODES.get(int(info.status), _DCGM_NVML_ERROR)


def numbered(values: Any) -> list[tuple[str, int]]:
    """Values by their place."""
    return [(str(place), value) for place, value in enumerate(values)]


def pairs(value: Any) -> list[tuple[str, int]]:
    """Pairs of a label's value and a number, as they are."""
    return list(value)


def vgpu_license(features: Any) -> int | None:
    """1 if the vGPU feature is licensed, 0 if not or if the GPU takes no licence; None if it has no such feature."""
    if not features.isGridLicenseSupported:
        return 0
    for position in range(min(int(features.licensableFeaturesCount), len(features.gridLicensableFeatures))):
        feature = features.gridLicensableFeatures[position]
        if feature.featureCode == 1:
            return int(feature.featureState != 0)
    return None


def percent_ratio(value: float) -> float:
    """Percent to ratio."""
    return value / 100


def whole(value: float) -> int:
    """Truncated, as DCGM does with what it keeps as int64."""
    return int(value)


def mebibytes_to_bytes(value: float) -> int:
    """MiB a second to bytes a second, truncated."""
    return int(value * _MEBIBYTE)


def kilobytes_to_bytes(value: Any) -> int | None:
    """KB a second to bytes a second."""
    found = integer(value)
    return None if found is None else found * 1000
