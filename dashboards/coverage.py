"""Which vendors an expression can have an answer for, by what their catalogues feed: the others leave it silent."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
import promql_parser as promql

from exporter.catalogue import Catalogue
from exporter.registry import catalogues
from exporter.schema import METRICS

Labels = Mapping[str, str | None]
"""Labels that a feed gives; None stands for any value."""

ALWAYS: Final = (
    "accel_info", "accel_health_state", "accel_devices_present", "accel_devices_reporting", "accel_devices_expected",
    "accel_sample_timestamp_seconds", "accel_allocated", "accel_allocated_seconds_total", "accel_allocation_info",
    "accel_metric_source_info",
)  # fmt: skip
"""What the agent makes for every vendor."""
FAULTS: Final = ("accel_faults_total", "accel_fault_code_total", "accel_fault_last_timestamp_seconds")
_MATCHES: Final[Mapping[str, Callable[[str, str], bool]]] = {
    "Equal": lambda pattern, value: value == pattern,
    "NotEqual": lambda pattern, value: value != pattern,
    "Re": lambda pattern, value: re.fullmatch(pattern, value) is not None,
    "NotRe": lambda pattern, value: re.fullmatch(pattern, value) is None,
}


class Told(msgspec.Struct, frozen=True):
    """What a collector tells: metric → label sets."""

    title: str
    metrics: Mapping[str, tuple[Labels, ...]]
    sources: Mapping[str, frozenset[str]]
    """Metric → raw series that feed it."""


def told(catalogue: Catalogue) -> Told:
    """Of one vendor, by the feeds of its series and by what the agent makes of them."""
    found: dict[str, list[Labels]] = {name: [{}] for name in ALWAYS}
    sources: dict[str, set[str]] = {}
    for series in catalogue.series.values():
        for feed in series.feeds:
            labels = {name: None if value.startswith("$") else value for name, value in feed.labels.items()}
            found.setdefault(feed.metric, []).append({**labels, **dict.fromkeys(feed.each)})
            sources.setdefault(feed.metric, set()).add(series.name)
    if "accel_power_watts" in found:
        found.setdefault("accel_energy_joules_total", [{}])
    if catalogue.faults:
        meanings: list[Labels] = [
            {"code": fault.code, "class": fault.fault_class, "severity": fault.severity, "action": fault.action}
            for fault in catalogue.faults.values()
        ]
        found.update(dict.fromkeys(FAULTS, meanings))
        found["accel_faults_total"] = [{}]
        actions: list[Labels] = [{"action": fault.action} for fault in catalogue.faults.values()]
        found.setdefault("accel_recovery_action", actions)
    return Told(
        catalogue.collector.title,
        {name: tuple(sets) for name, sets in found.items()},
        {name: frozenset(names) for name, names in sources.items()},
    )


def built_in() -> dict[str, Told]:
    """Collector → what it tells. Collectors of other packages have their pages elsewhere."""
    every = sorted(catalogues().items())
    return {name: told(catalogue) for name, (item, catalogue) in every if item.module.startswith("collectors.")}


def can_answer(expression: Any, of: Told) -> bool:
    """Whether a parsed expression can have a result for a collector's devices, as far as metrics and labels say."""
    match expression:
        case promql.VectorSelector():
            return _selects(expression, of)
        case promql.MatrixSelector():
            return _selects(expression.vector_selector, of)
        case promql.BinaryExpr():
            left, right = can_answer(expression.lhs, of), can_answer(expression.rhs, of)
            return {"or": left or right, "unless": left}.get(str(expression.op), left and right)
        case promql.Call():
            return expression.func.name == "absent" or all(can_answer(argument, of) for argument in expression.args)
        case promql.AggregateExpr() | promql.ParenExpr() | promql.UnaryExpr() | promql.SubqueryExpr():
            return can_answer(expression.expr, of)
    return True


def silent(expressions: Iterable[str], among: Mapping[str, Told]) -> list[str]:
    """Collectors that tell too little for any of the expressions to have an answer."""
    parsed = [promql.parse(text) for text in expressions]
    return [name for name, of in among.items() if not any(can_answer(each, of) for each in parsed)]


def same_number(of: Told, metrics: Sequence[str]) -> bool:
    """Whether the vendor tells these metrics by the same raw series, so that they can never differ."""
    return len(metrics) > 1 and len({of.sources.get(metric, frozenset()) for metric in metrics}) == 1


def selectors(expression: Any) -> Iterator[promql.VectorSelector]:
    """All selectors of a parsed expression."""
    found: list[promql.VectorSelector] = []

    def visit(node: Any) -> bool:
        if isinstance(node, promql.VectorSelector):
            found.append(node)
        return True

    promql.walk(expression, visit)
    yield from found


def _selects(selector: promql.VectorSelector, of: Told) -> bool:
    name = selector.name or ""
    if name not in METRICS:
        return True
    own = METRICS[name].labels
    matchers = [matcher for matcher in selector.matchers.matchers if matcher.name in own]
    return any(all(_fits(matcher, labels) for matcher in matchers) for labels in of.metrics.get(name, ()))


def _fits(matcher: promql.Matcher, labels: Labels) -> bool:
    value = labels.get(matcher.name, None)
    return value is None or _MATCHES[_operator(matcher)](matcher.value, value)


def _operator(matcher: promql.Matcher) -> str:
    return str(matcher.op).rpartition(".")[2]
