"""Panels and variables in the one form that all boards share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from grafana_foundation_sdk.builders import bargauge, stat, statetimeline, table, timeseries
from grafana_foundation_sdk.builders import common as common_builders
from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.builders.prometheus import Dataquery
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import common, dashboard
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

DATASOURCE: Final = dashboard.DataSourceRef(type_val="prometheus", uid="${datasource}")
PREFIX: Final = "accel-"
"""Of each board's uid."""
HEIGHT: Final = 8
Panel = Builder[dashboard.Panel]


class Q(msgspec.Struct, frozen=True):
    """A query and what its series are called in the legend; in a table the name of its column."""

    expr: str
    legend: str = ""


class Link(msgspec.Struct, frozen=True):
    """To another board. ``takes``: variable → label of the series that was clicked."""

    title: str
    board: str
    takes: tuple[tuple[str, str], ...] = ()

    @property
    def url(self) -> str:
        """The time range goes along; so do all variables, unless the clicked series says which."""
        chosen = "&".join(f"var-{name}=${{__field.labels.{label}}}" for name, label in self.takes)
        return f"/d/{PREFIX}{self.board}?${{__url_time_range}}&${{datasource:queryparam}}" + (
            f"&{chosen}" if chosen else "&${__all_variables}"
        )


DEVICE_OF: Final = (("node", "node"), ("vendor", "vendor"), ("device", "device"))
TO_DEVICE: Final = Link("The device", "device", DEVICE_OF)
TO_NODE: Final = Link("The node", "node", (("node", "node"),))
TO_FLEET: Final = Link("Fleet", "fleet")
TO_HEALTH: Final = Link("Errors and health", "health")
TO_WORKLOAD: Final = Link("The workload", "workload", (("namespace", "namespace"), ("job_name", "job_name")))
TO_TENANTS: Final = Link("Tenants and cost", "tenants")
TO_VENDORS: Final = Link("Vendors compared", "vendors")
TO_EXPORTER: Final = Link("The agent itself", "exporter")


def graph(
    title: str,
    description: str,
    unit: str,
    queries: Sequence[Q],
    link: Link,
    *,
    width: int = 12,
    top: float | None = None,
    stacked: bool = False,
    dashed: str = "",
    steps: bool = False,
) -> Panel:
    """Lines over time. ``dashed``: pattern of the names of series that are limits, drawn as dashed lines."""
    panel = timeseries.Panel().unit(unit).min(0).line_width(1).fill_opacity(30 if stacked else 8)
    panel.legend(_legend()).tooltip(_tooltip()).show_points(common.VisibilityMode.NEVER)
    panel.data_links([_link(link)] if _tells(queries, link) else [])
    if top is not None:
        panel.max(top)
    if stacked:
        panel.stacking(common_builders.StackingConfig().mode(common.StackingMode.NORMAL))
    if steps:
        panel.line_interpolation(common.LineInterpolation.STEP_AFTER)
    if dashed:
        line = {"fill": "dash", "dash": [8, 6]}
        panel.override_by_regexp(
            dashed,
            [
                dashboard.DynamicConfigValue("custom.lineStyle", line),
                dashboard.DynamicConfigValue("custom.fillOpacity", 0),
            ],
        )
    for number, query in enumerate(queries):
        panel.with_target(_target(number, query).range())
    return _finish(panel, title, description, link, width, HEIGHT)


def number(
    title: str,
    description: str,
    unit: str,
    queries: Sequence[Q],
    link: Link,
    *,
    width: int = 4,
    warn: float | None = None,
    bad: float | None = None,
) -> Panel:
    """One figure for each series, now. ``warn`` and ``bad``: from where on it is yellow and red."""
    panel = stat.Panel().unit(unit).thresholds(_thresholds(warn, bad)).graph_mode(common.BigValueGraphMode.NONE)
    panel.reduce_options(common_builders.ReduceDataOptions().calcs(["lastNotNull"]))
    colored = warn is not None or bad is not None
    panel.color_mode(common.BigValueColorMode.VALUE if colored else common.BigValueColorMode.NONE)
    for position, query in enumerate(queries):
        panel.with_target(_target(position, query).instant())
    return _finish(panel, title, description, link, width, 4)


def bars(
    title: str,
    description: str,
    unit: str,
    queries: Sequence[Q],
    link: Link,
    *,
    width: int = 12,
    top: float | None = None,
) -> Panel:
    """One bar for each series, now."""
    panel = bargauge.Panel().unit(unit).min(0).orientation(common.VizOrientation.HORIZONTAL)
    panel.display_mode(common.BarGaugeDisplayMode.BASIC).thresholds(_thresholds(None, None))
    panel.reduce_options(common_builders.ReduceDataOptions().calcs(["lastNotNull"]))
    if top is not None:
        panel.max(top)
    for position, query in enumerate(queries):
        panel.with_target(_target(position, query).instant())
    return _finish(panel, title, description, link, width, HEIGHT)


def rows(
    title: str,
    description: str,
    unit: str,
    queries: Sequence[Q],
    link: Link,
    *,
    width: int = 24,
    units: Sequence[tuple[str, str]] = (),
    hide: Sequence[str] = (),
    sort: str = "",
) -> Panel:
    """A table: one row for each label set, one column for each query. ``units``: those of columns that differ."""
    panel = table.Panel().unit(unit)
    for position, query in enumerate(queries):
        panel.with_target(_target(position, query).instant().format(PromQueryFormat.TABLE))
    names = {f"Value #{_letter(n)}" if len(queries) > 1 else "Value": q.legend for n, q in enumerate(queries)}
    hidden = dict.fromkeys(("Time", *(f"Time {n + 1}" for n in range(len(queries))), *hide), True)
    if len(queries) > 1:
        panel.with_transformation(dashboard.DataTransformerConfig("merge", options={}))
    organize: dict[str, Any] = {"excludeByName": hidden, "renameByName": names, "indexByName": {}}
    panel.with_transformation(dashboard.DataTransformerConfig("organize", options=organize))
    for column, other in units:
        panel.override_by_name(column, [dashboard.DynamicConfigValue("unit", other)])
    if sort:
        panel.sort_by([common_builders.TableSortByFieldState().display_name(sort).desc(True)])
    return _finish(panel, title, description, link, width, HEIGHT)


def states(
    title: str, description: str, queries: Sequence[Q], link: Link, *, width: int = 12, unit: str = "bool_yes_no"
) -> Panel:
    """What held when."""
    panel = statetimeline.Panel().unit(unit).merge_values(True).show_value(common.VisibilityMode.NEVER)
    panel.legend(_legend()).tooltip(_tooltip()).thresholds(_thresholds(None, 1)).line_width(0).fill_opacity(70)
    for position, query in enumerate(queries):
        panel.with_target(_target(position, query).range())
    return _finish(panel, title, description, link, width, HEIGHT)


def _tells(queries: Sequence[Q], link: Link) -> bool:
    """Whether each series says by its legend where the link is to lead."""
    return bool(link.takes) and all(f"{{{{{label}}}}}" in query.legend for query in queries for _, label in link.takes)


def _finish(panel: Any, title: str, description: str, link: Link, width: int, height: int) -> Panel:
    panel.title(title).description(description).datasource(DATASOURCE).span(width).height(height)
    # A link of the whole panel cannot know which series is meant: the variables go along.
    panel.links([_link(Link(link.title, link.board))])
    finished: Panel = panel
    return finished


def _target(position: int, query: Q) -> Dataquery:
    target = Dataquery().expr(query.expr).ref_id(_letter(position)).datasource(DATASOURCE)
    return target.legend_format(query.legend)


def _letter(position: int) -> str:
    return chr(ord("A") + position)


def _link(link: Link) -> builders.DashboardLink:
    return (
        builders.DashboardLink(link.title)
        .url(link.url)
        .type(dashboard.DashboardLinkType.LINK)
        .icon("external link")
        .tooltip("")
        .tags([])
    )


def _legend() -> common_builders.VizLegendOptions:
    return (
        common_builders.VizLegendOptions()
        .show_legend(True)
        .display_mode(common.LegendDisplayMode.LIST)
        .placement(common.LegendPlacement.BOTTOM)
        .calcs([])
    )


def _tooltip() -> common_builders.VizTooltipOptions:
    return common_builders.VizTooltipOptions().mode(common.TooltipDisplayMode.MULTI).sort(common.SortOrder.DESCENDING)


def _thresholds(warn: float | None, bad: float | None) -> builders.ThresholdsConfig:
    given = [(warn, "yellow"), (bad, "red")]
    steps = [dashboard.Threshold(value=None, color="green")]
    steps += [dashboard.Threshold(value=value, color=color) for value, color in given if value is not None]
    return builders.ThresholdsConfig().mode(dashboard.ThresholdsMode.ABSOLUTE).steps(steps)
