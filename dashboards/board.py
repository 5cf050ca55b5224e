"""A board: its variables, its rows of panels, and the row of raw series that each board of devices ends with."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard

from dashboards.panels import DATASOURCE, PREFIX, TO_VENDORS, Link, Panel, Q, graph, rows
from dashboards.promql import Scope

SCHEMA_VERSION: Final = 38
"""Of Grafana 10.0; later versions bring it up to their own."""
ALL: Final = ".*"
"""What ``All`` stands for. It also matches series that do not have the label."""
TAG: Final = "accel-exporter"

PLACE: Final = 'cluster=~"$cluster",node=~"$node",vendor=~"$vendor"'
OWNER: Final = 'namespace=~"$namespace",job_name=~"$job_name"'
DEVICES: Final = Scope(matchers=PLACE, workload=OWNER, facts='device_class=~"$class"')
"""What most boards look at."""
ONE_DEVICE: Final = msgspec.structs.replace(DEVICES, matchers=PLACE + ',device=~"$device"')
COUNTS: Final = Scope(matchers='cluster=~"$cluster",node=~"$node|",vendor=~"$vendor"')
"""Series of a vendor, which have no node unless discovery gives the target one."""
AGENTS: Final = Scope(matchers='cluster=~"$cluster",job=~"$job",instance=~"$instance"')
"""The agent's own metrics."""


class Variable(msgspec.Struct, frozen=True):
    """One that Prometheus fills."""

    name: str
    label: str
    query: str
    description: str
    regex: str = ""
    all: bool = True


_IN: Final = 'cluster=~"$cluster"'
CLUSTER: Final = Variable(
    "cluster", "Cluster", "label_values(accel_info, cluster)", "Where a label of that name is added to the targets."
)
NODE: Final = Variable("node", "Node", f"label_values(accel_info{{{_IN}}}, node)", "The nodes.")
VENDOR: Final = Variable(
    "vendor", "Vendor", f'label_values(accel_info{{{_IN},node=~"$node"}}, vendor)', "The vendors' short names."
)
CLASS: Final = Variable(
    "class", "Class", f"label_values(accel_info{{{PLACE}}}, device_class)",
    "The operator's own names for kinds of devices: device_class of accel_info.",
)  # fmt: skip
NAMESPACE: Final = Variable(
    "namespace", "Namespace", f"label_values(accel_allocation_info{{{PLACE}}}, namespace)",
    "Where the workload runs. A choice leaves out what is free.",
)  # fmt: skip
JOB_NAME: Final = Variable(
    "job_name", "Job", f'label_values(accel_allocation_info{{{PLACE},namespace=~"$namespace"}}, job_name)',
    "The workload's job. A choice leaves out what is free.",
)  # fmt: skip
ONE: Final = Variable(
    "device",
    "Device",
    f"label_values(accel_info{{{PLACE}}}, device)",
    "The index that people type, per node and vendor.",
)
RAW: Final = Variable(
    "raw", "Raw series", 'label_values(accel_metric_source_info{cluster=~"$cluster",vendor=~"$vendor"}, source)',
    "The vendor's series that feed the common ones, for the row at the end.", regex="/(?:.*\\/)?(.+)/", all=False,
)  # fmt: skip
JOB: Final = Variable(
    "job", "Job", f"label_values(accel_exporter_build_info{{{_IN}}}, job)", "The scrape job of the agents."
)
INSTANCE: Final = Variable(
    "instance", "Agent", f'label_values(accel_exporter_build_info{{{_IN},job=~"$job"}}, instance)', "The agents."
)
OF_DEVICES: Final = (CLUSTER, NODE, VENDOR, CLASS, NAMESPACE, JOB_NAME)
OF_AGENTS: Final = (CLUSTER, JOB, INSTANCE)


class Row(msgspec.Struct, frozen=True):
    title: str
    panels: tuple[Panel, ...]
    closed: bool = False
    """Its queries are not made before somebody opens it."""


class Board(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    """Of the file; the uid is made from it."""
    title: str
    description: str
    variables: tuple[Variable, ...]
    rows: tuple[Row, ...]


def raw_row(metrics: Sequence[str], link: Link = TO_VENDORS) -> Row:
    """The vendor's own evidence: which raw series feeds what, and these series as they are."""
    names = "|".join(metric.removeprefix("accel_") for metric in metrics)
    sources = COUNTS.of("accel_metric_source_info", f'metric=~"accel_({names})"')
    return Row(
        "Raw series: the vendor's own evidence",
        (
            rows(
                "What feeds the panels above",
                "The vendor's series or field that each common metric comes from, and how exactly: exact is the "
                "vendor's number for just this; approximate is close to it; derived is computed from another; "
                "estimated is a share of a number that covers more than the device.",
                "none",
                [Q(f"max by (vendor, metric, source, exactness) ({sources})", "agents")],
                link,
                hide=("agents",),
            ),
            graph(
                "The chosen raw series",
                "The series chosen above under “Raw series”, as the vendor's exporter would give them: in the vendor's "
                "units and with its labels. Only series that the agents of the chosen nodes serve.",
                "short",
                [Q(f'{{__name__=~"$raw"}} and on (instance) {DEVICES.of("accel_info")}', "")],
                link,
                width=24,
            ),
        ),
        closed=True,
    )


def document(board: Board) -> dict[str, Any]:
    """The JSON that Grafana imports."""
    builder = (
        builders.Dashboard(board.title)
        .uid(PREFIX + board.name)
        .description(board.description)
        .tags([TAG])
        .readonly()
        .time("now-6h", "now")
        .refresh("1m")
        .timezone("browser")
        .tooltip(dashboard.DashboardCursorSync.CROSSHAIR)
        .annotations([])
        .link(_boards_link())
        .with_variable(_datasource())
    )
    for variable in board.variables:
        builder.with_variable(_variable(variable))
    for row in board.rows:
        builder.with_row(_closed(row) if row.closed else builders.Row(row.title))
        for panel in () if row.closed else row.panels:
            builder.with_panel(panel)
    built = builder.build()
    built.schema_version = SCHEMA_VERSION
    made: dict[str, Any] = json.loads(json.dumps(built, cls=JSONEncoder))
    _tidy(made)
    return made


def _closed(row: Row) -> builders.Row:
    built = builders.Row(row.title).collapsed(True)
    for panel in row.panels:
        built.with_panel(panel)
    return built


def _tidy(made: dict[str, Any]) -> None:
    """Number the panels, which Grafana would do anew at each import, and leave out keys that mean nothing."""
    every = [inner for panel in made["panels"] for inner in (panel, *panel.get("panels", []))]
    for number, panel in enumerate(every, 1):
        panel["id"] = number
    for variable in made["templating"]["list"]:
        for key in ("id", "auto", "auto_min", "auto_count"):
            del variable[key]


def _boards_link() -> builders.DashboardLink:
    return (
        builders.DashboardLink("Accelerators")
        .type(dashboard.DashboardLinkType.DASHBOARDS)
        .tags([TAG])
        .as_dropdown(True)
        .include_vars(True)
        .keep_time(True)
        .icon("external link")
        .tooltip("The other boards, with the same choice")
        .url("")
    )


def _datasource() -> builders.DatasourceVariable:
    return builders.DatasourceVariable("datasource").label("Data source").type("prometheus").multi(False)


def _variable(variable: Variable) -> builders.QueryVariable:
    query: dict[str, object] = {"query": variable.query, "refId": f"variable-{variable.name}", "qryType": 1}
    built = (
        builders.QueryVariable(variable.name)
        .label(variable.label)
        .description(variable.description)
        .datasource(DATASOURCE)
        .query(query)
        .refresh(dashboard.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(dashboard.VariableSort.ALPHABETICAL_ASC)
        .multi(True)
        .regex(variable.regex)
    )
    if variable.all:
        current = dashboard.VariableOption(selected=True, text=["All"], value=["$__all"])
        built.include_all(True).all_value(ALL).current(current)
    return built
