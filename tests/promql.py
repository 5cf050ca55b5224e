"""What the expressions of dashboards and rules may say: names, labels and functions, found in the parsed text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import promql_parser as promql

from dashboards.coverage import selectors
from dashboards.promql import PART
from exporter.docs.metrics import own_metrics
from exporter.schema import METRICS, WORKLOAD

TARGET: Final = frozenset(("job", "instance", "cluster"))
"""Labels that Prometheus or its configuration adds."""
_OF_PROMETHEUS: Final = ("up", "scrape_duration_seconds", "scrape_samples_scraped")
_OF_PROCESS: Final = ("process_cpu_seconds_total", "process_resident_memory_bytes", "process_open_fds")
_SUFFIXES: Final = {"histogram": {"_bucket": ("le",), "_sum": (), "_count": ()}}
COUNTING: Final = frozenset(("rate", "increase", "irate", "resets", "changes"))
RATES: Final = frozenset(("rate", "increase", "irate"))


def _own() -> dict[str, tuple[str, frozenset[str]]]:
    """Of the agent itself: sample name → type and labels."""
    found: dict[str, tuple[str, frozenset[str]]] = {}
    for name, kind, labels, _ in own_metrics():
        told = frozenset(labels)
        for suffix, more in _SUFFIXES.get(kind, {"": ()}).items():
            found[name + suffix] = ("counter" if kind == "histogram" else kind, told | frozenset(more))
    return found


def known() -> dict[str, tuple[str, frozenset[str]]]:
    """Every series that an expression may name → type and labels."""
    # What Prometheus makes itself has all labels of the target: where discovery gives it the node, that too.
    found = {name: ("gauge", frozenset(("node",))) for name in _OF_PROMETHEUS}
    found |= {name: ("counter" if name.endswith("_total") else "gauge", frozenset[str]()) for name in _OF_PROCESS}
    for metric in METRICS.values():
        identity = {"device": set(PART), "vendor": {"vendor", "node"}, "agent": {"node"}}[metric.scope]
        workload = set(WORKLOAD) if metric.workload else set()
        found[metric.name] = (metric.type, frozenset(identity | workload | set(metric.labels)))
    return {name: (kind, labels | TARGET) for name, (kind, labels) in {**found, **_own()}.items()}


KNOWN: Final = known()


def unknown_names(expression: Any, more: Mapping[str, frozenset[str]] = {}) -> list[str]:
    """Metrics that do not exist, and labels in matchers that the metric has not. ``more``: recorded series."""
    found = []
    for selector in selectors(expression):
        if not selector.name:
            continue
        if selector.name not in KNOWN and selector.name not in more:
            found.append(selector.name)
            continue
        labels = more[selector.name] if selector.name in more else KNOWN[selector.name][1]
        found += [f"{selector.name}.{m.name}" for m in selector.matchers.matchers if m.name not in labels]
    return found


def grouping_labels(expression: Any) -> Iterator[tuple[str, frozenset[str]]]:
    """Each label of a ``by``, ``on`` or ``group_left`` with all labels that what it stands on could have."""
    for node in nodes(expression):
        labels: list[str] = []
        if isinstance(node, promql.AggregateExpr) and node.modifier is not None:
            labels = node.modifier.labels
        elif isinstance(node, promql.BinaryExpr) and node.modifier is not None:
            labels = [*(node.modifier.matching.labels if node.modifier.matching else ()), *_group_labels(node)]
        if labels:
            possible = frozenset(label for selector in selectors(node) for label in labels_of(selector.name or ""))
            yield from ((label, possible) for label in labels)


def labels_of(name: str) -> frozenset[str]:
    """Recorded series and those of any name may have any label of the schema."""
    return KNOWN[name][1] if name in KNOWN else EVERY_LABEL


EVERY_LABEL: Final = frozenset(label for _, labels in KNOWN.values() for label in labels)


def _group_labels(node: promql.BinaryExpr) -> list[str]:
    card = node.modifier.card if node.modifier is not None else None
    return list(getattr(card, "labels", None) or (node.modifier.group_labels if node.modifier else None) or [])


def nodes(expression: Any) -> list[Any]:
    found: list[Any] = []

    def visit(node: Any) -> bool:
        found.append(node)
        return True

    promql.walk(expression, visit)
    return found


def bare_counters(expression: Any) -> list[str]:
    """Counters that are read by their value and not by their growth."""
    found: list[str] = []

    def visit(node: Any, growing: bool) -> None:
        match node:
            case promql.VectorSelector():
                if KNOWN.get(node.name or "", ("",))[0] == "counter" and not growing:
                    found.append(node.name or "")
            case promql.MatrixSelector():
                visit(node.vector_selector, growing)
            case promql.Call():
                for argument in node.args:
                    visit(argument, node.func.name in COUNTING)
            case promql.BinaryExpr():
                visit(node.lhs, False)
                visit(node.rhs, False)
            case promql.AggregateExpr() | promql.ParenExpr() | promql.UnaryExpr() | promql.SubqueryExpr():
                visit(node.expr, False)

    visit(expression, False)
    return found


def rated_gauges(expression: Any) -> list[str]:
    """What is no counter and yet in a rate."""
    return [
        selector.name or ""
        for node in nodes(expression)
        if isinstance(node, promql.Call) and node.func.name in RATES
        for selector in selectors(node)
        if KNOWN.get(selector.name or "", ("",))[0] != "counter"
    ]
