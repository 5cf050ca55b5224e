"""The driver's table of measurements: the binary file ``gpu_metrics`` of sysfs, and what amdsmi makes of it.

The table's layout is named by two numbers in its header, format and content (Linux, ``kgd_pp_interface.h``). Of a
layout that is not listed here only the header is read: fields move between layouts. The names are the kernel's, and
also keys of ``amdsmi_get_gpu_metrics_info``. A field that the device does not offer is all ones in its width.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import Final

from collectors.amd.layouts import ARRAYS, LAYOUTS, MAXIMA, PERCENTAGES, XCP, XCPS, Layout, Scalar

_HEADER: Final = struct.Struct("<HBB")
_PREFIX: Final = "xcp_stats."
Scalars = Mapping[str, int]
Array = tuple[int | None, ...]


class MetricsError(ValueError):
    """The table is cut, or its header contradicts its layout."""


class GpuMetrics:
    """What one table tells. A field that the device or the layout has not is None, in arrays, too."""

    __slots__ = ("_arrays", "_parts", "_scalars", "revision")

    def __init__(
        self,
        revision: tuple[int, int] | None,
        scalars: Scalars,
        arrays: Mapping[str, Array],
        parts: Mapping[str, tuple[Array, ...]],
    ) -> None:
        self.revision = revision
        """Format and content; None where amdsmi does not tell."""
        self._scalars, self._arrays, self._parts = scalars, arrays, parts

    def number(self, name: str) -> int | None:
        """A field, in the kernel's unit."""
        return self._scalars.get(name)

    def array(self, name: str) -> Array:
        """A field of several numbers; empty where there is none."""
        return self._arrays.get(name, ())

    def part(self, name: str, partition: int) -> Array:
        """A field of a partition's own statistics; empty where there is none."""
        rows = self._parts.get(name, ())
        return rows[partition] if partition < len(rows) else ()

    @property
    def known(self) -> bool:
        """Whether anything beyond the header could be read."""
        return bool(self._scalars or self._arrays)


NOTHING: Final = GpuMetrics(None, {}, {}, {})
"""Where there is no table."""


def decode(blob: bytes) -> GpuMetrics:
    """Read the file's content. Raises MetricsError; a layout that is not known gives a table of its revision alone."""
    if len(blob) < _HEADER.size:
        raise MetricsError(f"gpu_metrics has {len(blob)} bytes, which is no header")
    size, format_, content = _HEADER.unpack_from(blob)
    layout = LAYOUTS.get((format_, content))
    if layout is None:
        return GpuMetrics((format_, content), {}, {}, {})
    if size != layout.size or len(blob) < size:
        told = f"header says {size}, the file has {len(blob)} bytes"
        raise MetricsError(f"gpu_metrics v{format_}.{content} should have {layout.size} bytes: {told}")
    scalars: dict[str, int] = {}
    arrays: dict[str, Array] = {}
    for name, scalar in layout.fields.items():
        found = tuple(_values(name, blob, scalar))
        if name in ARRAYS:
            arrays[name] = found
        elif found[0] is not None:
            scalars[name] = found[0]
    return GpuMetrics((format_, content), scalars, arrays, _partitions(blob, layout))


def _values(name: str, blob: bytes, scalar: Scalar) -> Iterable[int | None]:
    absent = MAXIMA[scalar.code][0]
    for value in struct.unpack_from(f"<{scalar.count}{scalar.code}", blob, scalar.offset):
        yield None if value == absent or (name in PERCENTAGES and value > 100) else value


def _partitions(blob: bytes, layout: Layout) -> dict[str, tuple[Array, ...]]:
    return {
        name: tuple(
            tuple(
                _values(
                    name,
                    blob,
                    Scalar(scalar.code, layout.xcp_offset + number * layout.xcp_size + scalar.offset, scalar.count),
                )
            )
            for number in range(XCPS)
        )
        for name, scalar in layout.xcp.items()
    }


def from_amdsmi(answer: Mapping[str, object]) -> GpuMetrics:
    """The same of ``amdsmi_get_gpu_metrics_info``, whose numbers may be ``N/A``, or all ones in a narrower width.

    It gives the throttler bits as a truth value: those are left out.
    """
    scalars: dict[str, int] = {}
    arrays: dict[str, Array] = {}
    parts: dict[str, tuple[Array, ...]] = {}
    for key, value in answer.items():
        if key.startswith(_PREFIX) and isinstance(value, list):
            name = key.removeprefix(_PREFIX)
            parts[name] = tuple(_told(name, row) for row in value if isinstance(row, list))
        elif isinstance(value, list):
            arrays[key] = _told(key, value)
        elif (number := _one(key, value)) is not None:
            scalars[key] = number
    header = [scalars.pop(f"common_header.{name}_revision", None) for name in ("format", "content")]
    scalars.pop("common_header.structure_size", None)
    format_, content = header
    return GpuMetrics(None if format_ is None or content is None else (format_, content), scalars, arrays, parts)


def _told(name: str, values: Iterable[object]) -> Array:
    return tuple(_one(name, value) for value in values)


def _one(name: str, value: object) -> int | None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        return None
    if value in _ABSENT.get(name, ()) or (name in PERCENTAGES and value > 100):
        return None
    return value


def _absent() -> dict[str, frozenset[int]]:
    """Field → all ones in each width from the kernel's own on: the library widens without a look at the value."""
    fields = [item for layout in LAYOUTS.values() for item in (*layout.fields.items(), *layout.xcp.items())]
    return {name: frozenset(MAXIMA[scalar.code]) for name, scalar in (*fields, *XCP.items())}


_ABSENT: Final = _absent()
