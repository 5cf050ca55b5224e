"""Puts numbers on the rows where they are shown."""

from __future__ import annotations

from collections.abc import Iterable

from collectors.base import Labels, Reading


def emit(out: list[Reading], series: str, rows: Iterable[int], value: int | float | None, labels: Labels = ()) -> None:
    """Add a value on each row, if there is one."""
    if value is not None:
        out.extend(Reading(series, row, value, labels) for row in rows)
