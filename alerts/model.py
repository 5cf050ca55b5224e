"""What a rule is, and how it is written: as Prometheus reads it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec
import promql_parser
import yaml

Severity = Literal["critical", "warning", "info"]
RUNBOOKS: Final = "docs/runbooks"
"""Folder of the runbooks, from the repository's root."""
PART: Final = "{{ with $labels.partition }} part {{ . }}{{ end }}"
DEVICE: Final = (
    "{{ $labels.vendor }} device {{ $labels.device }}" + PART + "{{ with $labels.node }} on {{ . }}{{ end }}"
)
"""How a text names the device of an alert."""
UUID: Final = "Its uuid is {{ $labels.uuid }}."
WORKLOADS: Final = (
    "Workloads on it: {{ range $i, $held := query (printf `accel_allocation_info{vendor=%q,uuid=%q,node=%q}` "
    "$labels.vendor $labels.uuid $labels.node) | sortByLabel `namespace` }}{{ if $i }}, {{ end }}"
    "{{ $held.Labels.namespace }}/{{ or $held.Labels.pod $held.Labels.job_name }}{{ else }}none known{{ end }}."
)
"""Asked for when the alert fires, so that shared devices and agents without workload labels are covered, too."""
AGENT: Final = "{{ $labels.instance }}"
COUNT: Final = '{{ printf "%.0f" $value }}'
"""A count, whole: what ``increase`` makes of it is not."""


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    severity: Severity
    action: str
    """What to do first; empty: the series says it in a label of that name."""
    expr: str
    wait: str = ""
    """How long it has to hold; empty: it fires at once, for events that happen once."""
    when: str
    """The condition in words, for the documentation."""
    summary: str
    description: str
    subject: Literal["device", "agent", "vendor"] = "device"
    """What it is about: texts about a device name it and its workloads."""
    differ: tuple[str, ...] = ()
    """Metrics that have to come from different raw series, or the rule never fires."""

    def rule(self, base: str) -> dict[str, Any]:
        """``base``: the address of the folder of runbooks; empty: its path in the repository."""
        of_device = f" {UUID} {WORKLOADS}" if self.subject == "device" else ""
        labels = {"severity": self.severity, **({"action": self.action} if self.action else {})}
        return {
            "alert": self.name,
            "expr": pretty(self.expr),
            **({"for": self.wait} if self.wait else {}),
            "labels": labels,
            "annotations": {
                "summary": self.summary,
                "description": " ".join(self.description.split()) + of_device,
                "runbook_url": f"{base or RUNBOOKS}/{self.name}.md",
            },
        }

    @property
    def runbook(self) -> str:
        return f"{RUNBOOKS}/{self.name}.md"


class Record(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    expr: str
    meaning: str
    labels: dict[str, str] = {}

    def rule(self, base: str) -> dict[str, Any]:
        return {
            "record": self.name,
            "expr": pretty(self.expr),
            **({"labels": self.labels} if self.labels else {}),
        }


class Group(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    rules: Sequence[Alert | Record]
    interval: str = ""

    def document(self, base: str) -> dict[str, Any]:
        return {
            "name": self.name,
            **({"interval": self.interval} if self.interval else {}),
            "rules": [rule.rule(base) for rule in self.rules],
        }


def pretty(expression: str) -> str:
    """The expression over several lines where it is long. Raises ValueError for what is no PromQL."""
    return promql_parser.parse(expression).prettify().strip("\n")


def text(source: str, groups: Sequence[Group], base: str = "") -> str:
    """A rule file."""
    head = f"# Made from {source} by `python -m alerts` (`make dashboards`). Do not edit.\n"
    made = {"groups": [group.document(base) for group in groups]}
    return head + yaml.dump(made, Dumper=_Dumper, sort_keys=False, width=10**6, allow_unicode=True)


class _Dumper(yaml.SafeDumper):
    """Lists below their key, and long texts as blocks."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def _string(dumper: _Dumper, value: str) -> yaml.ScalarNode:
    style = "|" if "\n" in value else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _string)
