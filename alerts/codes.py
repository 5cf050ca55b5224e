"""Names of fault codes, by the vendors' fault tables: series carry the code alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from exporter.catalogue import Catalogue, FaultClass
from exporter.registry import catalogues

FIRST: Final[Mapping[str, str]] = {
    severity: f'{{{{ if eq $labels.action "none" }}}}The vendor names no action: {instead}{{{{ else }}}}'
    "First thing to do: {{ $labels.action }}.{{ end }}"
    for severity, instead in (
        ("fatal", "drain the device, then follow the runbook."),
        ("degraded", "look whether the workload goes on, and whether the fault comes again."),
    )
}
"""What a text says of the first thing to do, by severity."""


def built_in() -> Iterator[tuple[str, Catalogue]]:
    """Collectors of this repository, by name. Those of other packages have their pages elsewhere."""
    for name, (item, catalogue) in sorted(catalogues().items()):
        if item.module.startswith("collectors."):
            yield name, catalogue


def of_severity(catalogue: Catalogue, severity: str) -> list[FaultClass]:
    return [fault for fault in catalogue.faults.values() if fault.severity == severity]


def named(severity: str) -> str:
    """Template of a text: the code's name behind a comma, or nothing for a code that no table has."""
    faults = [fault for _, catalogue in built_in() for fault in of_severity(catalogue, severity)]
    choices = [f'if eq $labels.code "{fault.code}" }}}}, {fault.name}' for fault in faults]
    return "{{ " + "{{ else ".join(choices) + "{{ end }}" if choices else ""
