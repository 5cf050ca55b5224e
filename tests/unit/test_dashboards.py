"""The dashboards: up to date, in one form, and asking only for what exists."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import promql_parser as promql
import pytest
from grafana_foundation_sdk.models.dashboard import Dashboard

from dashboards import files
from dashboards.board import document
from dashboards.coverage import Told, can_answer, same_number, selectors, silent, told
from dashboards.grafana import Document, everything, filled, panels, queries, variables
from exporter.schema import METRICS
from tests import promql as lint
from tests.acme import catalogue
from tests.unit.test_repository import ROOT

WANTED: Final = files.wanted()
DOCUMENTS: Final[Mapping[str, Document]] = {board.name: document(board) for board in files.BOARDS}
ANY = pytest.mark.parametrize("name", DOCUMENTS)
NAMES: Final = ["fleet", "node", "device", "workload", "tenants", "health", "exporter", "vendors"]
OF_DEVICES: Final = {"datasource", "cluster", "node", "vendor", "class", "namespace", "job_name"}
PANELS: Final = {"timeseries", "stat", "bargauge", "table", "state-timeline"}
"""Core panels of Grafana 10 to 12. graph, table-old, singlestat and worldmap are deprecated or gone."""
UNITS: Final = {
    "none", "short", "percentunit", "watt", "joule", "celsius", "bytes", "Bps", "hertz", "s", "flops", "volt", "rotrpm",
    "reqps", "bool_yes_no", "bool_on_off", "dateTimeAsLocal",
}  # fmt: skip
"""Ids of Grafana's units."""


def parsed(name: str) -> list[tuple[str, Any]]:
    """Title of the panel and the parsed query."""
    values = everything(DOCUMENTS[name])
    return [(p["title"], promql.parse(filled(expr, values))) for p, expr in queries(DOCUMENTS[name])]


# The files


@pytest.mark.parametrize("path", WANTED)
def test_a_file_is_up_to_date(path: str) -> None:
    assert (ROOT / path).exists(), f"{path} is missing: run `make dashboards`"
    assert (ROOT / path).read_text() == WANTED[path], f"{path} is not up to date: run `make dashboards`"


def test_there_are_these_dashboards_and_no_others() -> None:
    assert list(DOCUMENTS) == NAMES
    assert sorted(path.stem for path in (ROOT / files.FOLDER).glob("*.json")) == sorted(NAMES)


def test_the_check_finds_changed_missing_and_left_over_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = {"dashboards/json/a.json": "{}\n", "docs/x.md": "text\n"}
    assert files.write(tmp_path, wanted, files.FOLDER) == sorted(wanted)
    assert files.report(tmp_path, wanted, files.FOLDER, check=True) == 0
    (tmp_path / "dashboards/json/gone.json").write_text("{}")
    (tmp_path / "docs/x.md").write_text("by hand")
    assert files.report(tmp_path, wanted, files.FOLDER, check=True) == 1
    assert capsys.readouterr().out.splitlines() == [
        "dashboards/json/gone.json: not up to date: run `make dashboards`",
        "docs/x.md: not up to date: run `make dashboards`",
    ]
    assert files.report(tmp_path, wanted, files.FOLDER, check=False) == 0
    assert files.differences(tmp_path, wanted, files.FOLDER) == []


# What Grafana needs


@ANY
def test_grafanas_schema_takes_it(name: str) -> None:
    text = WANTED[f"{files.FOLDER}/{name}.json"]
    read = Dashboard.from_json(json.loads(text))
    assert read.uid == f"accel-{name}"
    assert read.schema_version == 38
    assert read.editable is False
    assert len(read.panels or []) == len(DOCUMENTS[name]["panels"])


def test_uids_are_short_and_each_is_there_once() -> None:
    uids = [made["uid"] for made in DOCUMENTS.values()]
    assert len(set(uids)) == len(uids)
    assert all(len(uid) <= 40 for uid in uids)


@ANY
def test_a_dashboard_names_no_data_source_of_its_own(name: str) -> None:
    made = DOCUMENTS[name]
    assert variables(made)["datasource"]["type"] == "datasource"
    assert variables(made)["datasource"]["query"] == "prometheus"
    for thing in [*panels(made), *(t for p in panels(made) for t in p["targets"])]:
        assert thing["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
    assert "__inputs" not in made
    assert "id" not in made


@ANY
def test_every_panel_has_title_description_unit_link_and_queries(name: str) -> None:
    for panel in panels(DOCUMENTS[name]):
        assert panel["type"] in PANELS, panel["title"]
        assert panel["title"]
        assert panel["description"].endswith((".", "…")), panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"] in UNITS, panel["title"]
        assert panel["targets"], panel["title"]
        assert panel["links"], panel["title"]


@ANY
def test_no_two_panels_of_a_row_have_one_title(name: str) -> None:
    titles: list[tuple[int, str]] = []
    row = 0
    for panel in DOCUMENTS[name]["panels"]:
        row += panel["type"] == "row"
        titles += [(row, inner["title"]) for inner in (panel, *panel.get("panels", [])) if inner["type"] != "row"]
    assert len(set(titles)) == len(titles)


@ANY
def test_panels_lie_beside_each_other_on_the_grid(name: str) -> None:
    taken: set[tuple[int, int]] = set()
    every = [inner for panel in DOCUMENTS[name]["panels"] for inner in (panel, *panel.get("panels", []))]
    for panel in every:
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert place["x"] + place["w"] <= 24, panel["title"]
        assert not cells & taken, panel["title"]
        taken |= cells
    assert len({panel["id"] for panel in every}) == len(every)


@ANY
def test_every_link_leads_to_a_dashboard_with_the_variables_that_it_sets(name: str) -> None:
    made = DOCUMENTS[name]
    links = [link for p in panels(made) for link in (*p["links"], *p["fieldConfig"]["defaults"].get("links", []))]
    for link in links:
        target = re.match(r"/d/accel-([a-z]+)\?", link["url"])
        assert target is not None, link["url"]
        assert target[1] in DOCUMENTS
        assert set(re.findall(r"var-(\w+)=", link["url"])) <= variables(DOCUMENTS[target[1]]).keys()
        assert "${__url_time_range}" in link["url"]
    (menu,) = made["links"]
    assert menu["tags"] == made["tags"]


@ANY
def test_a_link_from_a_series_uses_labels_that_the_series_has(name: str) -> None:
    values = everything(DOCUMENTS[name])
    for panel in panels(DOCUMENTS[name]):
        for link in panel["fieldConfig"]["defaults"].get("links", []):
            wanted = set(re.findall(r"__field\.labels\.(\w+)", link["url"]))
            for target in panel["targets"]:
                kept = result_labels(promql.parse(filled(target["expr"], values)))
                assert kept is None or wanted <= kept, f"{panel['title']}: {sorted(wanted - (kept or set()))}"


def result_labels(expression: Any) -> set[str] | None:
    """Labels that the outermost aggregation leaves; None where there is none."""
    match expression:
        case promql.AggregateExpr() if str(expression.op) in ("topk", "bottomk") and expression.modifier is None:
            return result_labels(expression.expr)
        case promql.AggregateExpr():
            return set(expression.modifier.labels) if expression.modifier is not None else set()
        case promql.ParenExpr():
            return result_labels(expression.expr)
        case promql.BinaryExpr():
            return result_labels(expression.rhs if is_number(expression.lhs) else expression.lhs)
        case promql.SubqueryExpr():
            return result_labels(expression.expr)
        case promql.Call() if expression.args:
            return result_labels(expression.args[-1])
    return None


def is_number(expression: Any) -> bool:
    return isinstance(expression, promql.NumberLiteral) or (isinstance(expression, promql.Call) and not expression.args)


# Variables

EXCEPTIONS: Final = {
    "template-job-rule": "Devices are told by node, vendor and uuid. job and instance name the agent's target, which "
    "is "
    "another one after each restart of its pod. The dashboard of the agents has them.",
    "template-instance-rule": "as for job",
    "target-job-rule": "as for job",
    "target-instance-rule": "as for job",
}
"""Rules of Grafana's dashboard-linter that boards of devices do not keep, with the reason."""


@ANY
def test_a_dashboard_has_the_variables_that_go_with_it(name: str) -> None:
    found = set(variables(DOCUMENTS[name]))
    if name == "exporter":
        assert found == {"datasource", "cluster", "job", "instance"}
    else:
        assert found == OF_DEVICES | {"raw"} | ({"device"} if name == "device" else set())
        assert all(EXCEPTIONS.values())


@ANY
def test_variables_follow_the_time_range_and_choose_everything_at_first(name: str) -> None:
    for variable in variables(DOCUMENTS[name]).values():
        if variable["type"] != "query":
            continue
        assert variable["refresh"] == 2
        assert variable["multi"]
        assert variable["query"]["query"].startswith("label_values(")
        assert variable["description"]
        if variable["name"] != "raw":
            assert variable["includeAll"]
            assert variable["allValue"] == ".*"
            assert variable["current"]["value"] == ["$__all"]


@ANY
def test_what_variables_ask_for_exists(name: str) -> None:
    values = everything(DOCUMENTS[name])
    for variable in variables(DOCUMENTS[name]).values():
        if variable["type"] == "query":
            selector, label = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"]["query"]).groups()  # type: ignore[union-attr]
            expression = promql.parse(filled(selector, values))
            assert lint.unknown_names(expression) == []
            (selected,) = selectors(expression)
            assert label in lint.labels_of(selected.name or "")


@ANY
def test_every_variable_is_used(name: str) -> None:
    used = {word for _, expr in queries(DOCUMENTS[name]) for word in re.findall(r"\$(\w+)", expr)}
    assert variables(DOCUMENTS[name]).keys() - {"datasource"} <= used


# Queries


@ANY
def test_every_metric_and_label_of_a_query_exists(name: str) -> None:
    assert [(title, wrong) for title, query in parsed(name) if (wrong := lint.unknown_names(query))] == []


@ANY
def test_every_label_of_a_grouping_or_a_join_exists(name: str) -> None:
    wrong = [
        (title, label)
        for title, query in parsed(name)
        for label, possible in lint.grouping_labels(query)
        if label not in possible
    ]
    assert wrong == []


@ANY
def test_counters_are_read_by_their_growth_alone_and_nothing_else_is(name: str) -> None:
    assert [(t, bad) for t, q in parsed(name) if (bad := [*lint.bare_counters(q), *lint.rated_gauges(q)])] == []


@ANY
def test_rates_use_the_rate_interval_or_the_whole_time(name: str) -> None:
    for panel, expr in queries(DOCUMENTS[name]):
        windows = re.findall(r"(?:rate|increase)\([^\[]+\[([^\]]+)\]", expr)
        assert set(windows) <= {"$__rate_interval", "$__range"}, panel["title"]
        if "$__range" in windows:
            assert panel["type"] in ("stat", "bargauge", "table"), f"{panel['title']}: no whole time in each point"


@ANY
def test_queries_of_devices_obey_the_choice_of_places(name: str) -> None:
    if name == "exporter":
        return
    values = everything(DOCUMENTS[name])
    for panel, expr in queries(DOCUMENTS[name]):
        for selector in selectors(promql.parse(filled(expr, values))):
            kind = METRICS.get(selector.name or "")
            if kind is not None:
                chosen = {matcher.name for matcher in selector.matchers.matchers}
                assert {"cluster", "node", "vendor"} <= chosen, f"{panel['title']}: {selector.name}"


@ANY
def test_instant_queries_stand_in_panels_of_one_moment(name: str) -> None:
    for panel in panels(DOCUMENTS[name]):
        for target in panel["targets"]:
            over_time = panel["type"] in ("timeseries", "state-timeline")
            assert target["range"] is over_time, panel["title"]
            assert target["instant"] is not over_time, panel["title"]
            assert (target.get("format") == "table") is (panel["type"] == "table"), panel["title"]


def test_legends_name_labels_that_series_have() -> None:
    for name, made in DOCUMENTS.items():
        values = everything(made)
        for panel in panels(made):
            for target in panel["targets"]:
                wanted = set(re.findall(r"\{\{(\w+)\}\}", target.get("legendFormat", "")))
                kept = result_labels(promql.parse(filled(target["expr"], values)))
                assert kept is None or wanted <= kept, f"{name}, {panel['title']}: {sorted(wanted - (kept or set()))}"


# What the lints find


@pytest.mark.parametrize(
    ("query", "wrong"),
    [
        ("accel_power_watt", ["accel_power_watt"]),
        ('accel_power_watts{sensor="die"}', ["accel_power_watts.sensor"]),
        ('accel_power_watts{namespace="x",partition=""}', []),
        ('accel_power_limit_watts{namespace="x"}', ["accel_power_limit_watts.namespace"]),
        ('accel_devices_expected{device="0"}', ["accel_devices_expected.device"]),
        ('rate(accel_exporter_collector_duration_seconds_bucket{le="5"}[5m])', []),
    ],
)
def test_a_name_that_does_not_exist_is_found(query: str, wrong: list[str]) -> None:
    assert lint.unknown_names(promql.parse(query)) == wrong


@pytest.mark.parametrize(
    ("query", "wrong"),
    [
        ("sum(accel_energy_joules_total)", ["accel_energy_joules_total"]),
        ("max(rate(accel_energy_joules_total[5m]))", []),
        ("sum_over_time(accel_energy_joules_total[5m])", ["accel_energy_joules_total"]),
        ("rate(accel_power_watts[5m])", ["accel_power_watts"]),
        ("rate(sum(accel_faults_total)[5m:])", ["accel_faults_total"]),
    ],
)
def test_a_misused_counter_is_found(query: str, wrong: list[str]) -> None:
    expression = promql.parse(query)
    assert [*lint.bare_counters(expression), *lint.rated_gauges(expression)] == wrong


def test_a_grouping_by_a_label_that_is_not_there_is_found() -> None:
    found = list(lint.grouping_labels(promql.parse("sum by (vendor, fabric) (accel_power_watts)")))
    assert [label for label, possible in found if label not in possible] == ["fabric"]
    joined = promql.parse("accel_power_watts * on (uuid) group_left (modell) accel_info")
    assert [label for label, possible in lint.grouping_labels(joined) if label not in possible] == ["modell"]


# Which vendors can answer

ACME: Final = told(catalogue())


@pytest.mark.parametrize(
    ("query", "possible"),
    [
        # Of acme's table: die alone; milliwatts, hence energy; bits for thermal; no voltage.
        ('accel_temperature_celsius{sensor="die"}', True),
        ('accel_temperature_celsius{sensor="memory"}', False),
        ('accel_temperature_celsius{sensor!="die"}', False),
        ('accel_temperature_celsius{sensor=~"die|edge"}', True),
        ("rate(accel_energy_joules_total[5m])", True),
        ("accel_voltage_volts", False),
        ("accel_voltage_volts or accel_power_watts", True),
        ("accel_power_watts and accel_voltage_volts", False),
        ("accel_power_watts unless accel_voltage_volts", True),
        ("accel_voltage_volts unless accel_power_watts", False),
        ("sum(accel_voltage_volts) / 2", False),
        ("absent(accel_voltage_volts)", True),
        ("max_over_time(sum(accel_power_watts)[1h:1m]) > 5", True),
        ("time() - accel_sample_timestamp_seconds", True),
        ('accel_fault_last_timestamp_seconds{severity="fatal"}', True),
        ("accel_exporter_collector_up", True),
    ],
)
def test_coverage_follows_a_vendors_tables(query: str, possible: bool) -> None:
    assert can_answer(promql.parse(query), ACME) is possible


def test_a_panel_is_silent_where_none_of_its_queries_can_answer() -> None:
    assert silent(["accel_voltage_volts", "accel_power_watts"], {"acme": ACME}) == []
    assert silent(["accel_voltage_volts"], {"acme": ACME}) == ["acme"]


def test_two_metrics_that_one_series_feeds_are_one_number() -> None:
    one = Told("one", {}, {"a": frozenset("x"), "b": frozenset("x")})
    two = Told("two", {}, {"a": frozenset("x"), "b": frozenset("y")})
    assert same_number(one, ("a", "b"))
    assert not same_number(two, ("a", "b"))
    assert not same_number(one, ())
