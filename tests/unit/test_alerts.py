"""The rules: up to date, in one form, asking only for what exists, and each proved by promtool to fire."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import promql_parser as promql
import pytest
import yaml

from alerts import files, openshift, recording
from alerts.model import Alert, Record, pretty
from alerts.pages import mute
from dashboards.coverage import built_in, selectors
from exporter.schema import FAULT_LABELS, METRICS
from tests import promql as lint
from tests.unit.test_dashboards import result_labels
from tests.unit.test_repository import ROOT

WANTED: Final = files.wanted()
ALERTS: Final = {alert.name: alert for alert in files.every_alert()}
RECORDS: Final = {rule.name: rule for group in recording.GROUPS for rule in group.rules if isinstance(rule, Record)}
NAMES: Final = {rule.name: rule for group in openshift.GROUPS for rule in group.rules if isinstance(rule, Record)}
EXPRESSIONS: Final[Mapping[str, str]] = {
    **{name: alert.expr for name, alert in ALERTS.items()},
    **{name: record.expr for name, record in {**RECORDS, **NAMES}.items()},
}
RECORDED: Final = dict.fromkeys(RECORDS, lint.EVERY_LABEL)
ANY_ALERT = pytest.mark.parametrize("name", ALERTS)
ANY = pytest.mark.parametrize("name", EXPRESSIONS)
TESTS: Final = sorted((ROOT / "alerts/tests").glob("*.yaml"))
ONE_SHOT: Final = {
    "AccelFaultFatal": "an event: it has happened",
    "AccelFaultDegraded": "an event: it has happened",
}
"""Alerts that do not wait, with the reason."""
AMONG: Final = built_in()
ACTIONS: Final = {*FAULT_LABELS["action"], "investigate", "fix_agent", "tell_owner"}
CONDITIONS: Final = {
    "AccelDeviceLost", "AccelDeviceFailed", "AccelDeviceMissing", "AccelFaultFatal", "AccelFaultDegraded",
    "AccelRecoveryActionNeeded", "AccelMemoryUncorrectableErrors", "AccelMemoryRepairPending",
    "AccelMemoryRepairFailed",
    "AccelMemoryCorrectableErrors", "AccelTemperatureAtLimit", "AccelTemperatureNearLimit", "AccelTemperatureHigh",
    "AccelThrottledThermal", "AccelThrottledPowerBrake", "AccelThrottledOther", "AccelPowerAtLimit", "AccelLinkDown",
    "AccelFabricFailed", "AccelLinkErrors", "AccelPcieErrors", "AccelPcieLinkNarrow", "AccelMemoryNearlyFull",
    "AccelAllocatedIdle", "AccelBusyNotWorking", "AccelCollectorDown", "AccelCollectorSlow", "AccelCollectorStale",
    "AccelCollectorRestarting", "AccelAttributionDown", "AccelOtlpDropping", "AccelConfigReloadFailed",
    "AccelCertificateExpiring", "AccelExporterAbsent", "AccelScrapeFailing",
}  # fmt: skip


def promtool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["promtool", *map(str, arguments)], capture_output=True, text=True, check=False, timeout=60, cwd=ROOT
    )


# The files


@pytest.mark.parametrize("path", WANTED)
def test_a_file_is_up_to_date(path: str) -> None:
    assert (ROOT / path).exists(), f"{path} is missing: run `make dashboards`"
    assert (ROOT / path).read_text() == WANTED[path], f"{path} is not up to date: run `make dashboards`"


def test_there_are_these_alerts() -> None:
    assert set(ALERTS) == CONDITIONS
    assert len(ALERTS) == sum(len(group.rules) for group in files.ALERTS)


@pytest.mark.prometheus
@pytest.mark.parametrize("path", [files.RULES, files.RECORDING, files.OPENSHIFT])
def test_prometheus_takes_the_rules(path: str) -> None:
    done = promtool("check", "rules", "--lint=all", "--lint-fatal", path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_rule_file_is_plain_yaml_that_a_prometheus_rule_can_hold() -> None:
    for path in (files.RULES, files.RECORDING, files.OPENSHIFT):
        read = yaml.safe_load(WANTED[path])
        assert read.keys() == {"groups"}
        assert len({group["name"] for group in read["groups"]}) == len(read["groups"])
        for group in read["groups"]:
            assert group.keys() <= {"name", "interval", "rules"}
            for rule in group["rules"]:
                assert rule.keys() <= {"alert", "record", "expr", "for", "labels", "annotations"}


@ANY
def test_breaking_lines_changes_no_expression(name: str) -> None:
    assert str(promql.parse(pretty(EXPRESSIONS[name]))) == str(promql.parse(EXPRESSIONS[name]))


# Links to runbooks


def runbook_links(text: str) -> dict[str, str]:
    rules = [rule for group in yaml.safe_load(text)["groups"] for rule in group["rules"]]
    return {rule["alert"]: rule["annotations"]["runbook_url"] for rule in rules}


@pytest.mark.parametrize("base", ["https://example.com/runbooks/", "https://example.com/runbooks"])
def test_a_base_takes_the_place_of_the_folder(base: str, tmp_path: Path) -> None:
    before = {path: (ROOT / path).read_bytes() for path in WANTED}
    made = tmp_path / "mine.yaml"
    assert files.main(["--runbook-base", base, "--output", str(made)]) == 0
    assert runbook_links(made.read_text()) == {name: f"https://example.com/runbooks/{name}.md" for name in ALERTS}
    assert {path: (ROOT / path).read_bytes() for path in WANTED} == before, "no file of the repository is touched"


def test_a_base_changes_nothing_but_the_links() -> None:
    other = files.with_links("https://example.com/r/").replace("https://example.com/r/", "docs/runbooks/")
    assert yaml.safe_load(other) == yaml.safe_load(WANTED[files.RULES])


def test_a_link_leads_to_a_page_in_the_repository() -> None:
    for name, path in runbook_links(WANTED[files.RULES]).items():
        assert (ROOT / path).read_text().startswith(f"# {name}\n")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--runbook-base", "https://example.com/r"], "--output FILE go together"),
        (["--output", "mine.yaml"], "--output FILE go together"),
        (["--check", "--runbook-base", "https://example.com/r", "--output", "mine.yaml"], "not with --check"),
        (["--runbook-base", "docs", "--output", "mine.yaml"], "with http:// or https://"),
    ],
)
def test_wrong_arguments_are_told(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        files.main(arguments)
    assert ended.value.code == 2
    assert words in capsys.readouterr().err


# Style


@ANY_ALERT
def test_an_alert_says_how_bad_it_is_and_what_to_do(name: str) -> None:
    rule = ALERTS[name].rule("")
    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    assert "for" in rule or name in ONE_SHOT
    if "action" in rule["labels"]:
        assert rule["labels"]["action"] in ACTIONS
    else:
        (outermost,) = [node for node in lint.nodes(promql.parse(rule["expr"])) if "action" in by_labels(node)]
        assert isinstance(outermost, promql.AggregateExpr), "the series bring their own action"


def by_labels(node: Any) -> list[str]:
    aggregates = isinstance(node, promql.AggregateExpr) and node.modifier is not None
    return list(node.modifier.labels) if aggregates else []


@ANY_ALERT
def test_texts_name_what_the_alert_is_about(name: str) -> None:
    alert, notes = ALERTS[name], ALERTS[name].rule("")["annotations"]
    assert notes.keys() == {"summary", "description", "runbook_url"}
    assert len(notes["summary"]) < 240
    if alert.subject == "device":
        for label in ("vendor", "device", "partition", "node"):
            assert f"$labels.{label}" in notes["summary"]
        assert "$labels.uuid" in notes["description"]
        assert "accel_allocation_info" in notes["description"]
    else:
        assert "$labels.instance" in notes["summary"]


@ANY_ALERT
def test_labels_in_texts_are_those_of_the_result(name: str) -> None:
    alert = ALERTS[name]
    used = set(re.findall(r"\$labels\.(\w+)", str(alert.rule("")["annotations"])))
    kept = {label for node in lint.nodes(promql.parse(alert.expr)) for label in by_labels(node)}
    assert used - {"node", "partition", "instance"} <= kept, "device texts leave out what is not there"


@ANY_ALERT
def test_a_text_shows_no_bare_number(name: str) -> None:
    """Increases are no whole numbers: 1.006 for one. Counts are rounded, the rest has its unit."""
    texts = " ".join(ALERTS[name].rule("")["annotations"].values())
    for shown, unit in re.findall(r"\{\{([^}]*\$value[^}]*)\}\}(.?.?.?)", texts):
        rounded = re.search(r"humanize(Duration|Percentage)|%\.0f|^if gt ", shown.strip())
        assert rounded or unit in (" K ", " °C"), shown


@ANY_ALERT
def test_an_alert_compares_something(name: str) -> None:
    found = [
        str(node.op) for node in lint.nodes(promql.parse(ALERTS[name].expr)) if isinstance(node, promql.BinaryExpr)
    ]
    assert {"==", "!=", "<", "<=", ">", ">="} & set(found)


@ANY
def test_every_metric_and_label_exists(name: str) -> None:
    assert lint.unknown_names(promql.parse(EXPRESSIONS[name]), RECORDED) == []


@ANY
def test_every_label_of_a_grouping_or_a_join_exists(name: str) -> None:
    found = list(lint.grouping_labels(promql.parse(EXPRESSIONS[name])))
    assert [label for label, possible in found if label not in possible] == []


@ANY
def test_counters_are_read_by_their_growth_and_gauges_are_not(name: str) -> None:
    expression = promql.parse(EXPRESSIONS[name])
    assert [*lint.bare_counters(expression), *lint.rated_gauges(expression)] == []


@pytest.mark.parametrize("name", RECORDS)
def test_a_recorded_name_tells_level_metric_and_operation(name: str) -> None:
    level, metric, operation = name.split(":")
    assert level in {"part", "device", "allocation", "node", "class", "tenant", "job"}
    assert operation
    if "rate" in operation:
        assert METRICS[f"{metric}_total"].type == "counter"
    else:
        assert metric in METRICS


def test_recording_rules_use_only_what_stands_before_them() -> None:
    seen: set[str] = set()
    for name, rule in RECORDS.items():
        used = {selector.name for selector in selectors(promql.parse(rule.expr))}
        assert used & RECORDS.keys() <= seen, name
        seen.add(name)


def test_alerts_need_no_recording_rules() -> None:
    used = {selector.name for alert in ALERTS.values() for selector in selectors(promql.parse(alert.expr))}
    assert used & RECORDS.keys() == set()


def test_only_the_file_for_openshift_records_names_of_others() -> None:
    assert set(NAMES) == {
        "accelerator_gpu_utilization", "accelerator_memory_used_bytes", "accelerator_memory_total_bytes",
        "accelerator_power_usage_watts", "accelerator_temperature_celsius", "accelerator_sm_clock_hertz",
        "accelerator_memory_clock_hertz",
    }  # fmt: skip
    assert "accelerator_" not in WANTED[files.RULES] + WANTED[files.RECORDING]


# Documentation


@ANY_ALERT
def test_the_page_has_a_row_that_says_for_whom_an_alert_is_silent(name: str) -> None:
    (row,) = re.findall(rf"^\| \[{name}\]\(runbooks/{name}\.md\) \|.*$", WANTED["docs/alerts.md"], re.MULTILINE)
    silent = row.rstrip(" |").rpartition(" | ")[2]
    assert silent == (", ".join(mute(ALERTS[name], AMONG)) or "nobody")


@pytest.mark.parametrize(
    ("alert", "silent", "speaking"),
    [
        # Neuron and TPU tell no temperature and no power, and one number for both ratios; Gaudi no compute-active.
        ("AccelTemperatureNearLimit", {"neuron", "tpu"}, {"nvidia", "amd", "gaudi"}),
        ("AccelPowerAtLimit", {"neuron", "tpu"}, {"nvidia", "amd", "gaudi"}),
        ("AccelBusyNotWorking", {"gaudi", "neuron", "tpu"}, {"nvidia", "amd"}),
        ("AccelMemoryUncorrectableErrors", {"tpu"}, {"nvidia", "amd", "gaudi", "neuron"}),
        ("AccelDeviceLost", set(), {"nvidia", "amd", "gaudi", "neuron", "tpu"}),
        ("AccelFabricFailed", {"amd", "gaudi", "neuron", "tpu"}, {"nvidia"}),
    ],
)
def test_silence_follows_what_vendors_tell(alert: str, silent: set[str], speaking: set[str]) -> None:
    found = set(mute(ALERTS[alert], AMONG))
    assert silent <= found
    assert not speaking & found


# Unit tests by promtool


@pytest.mark.prometheus
@pytest.mark.parametrize("path", TESTS, ids=lambda path: path.stem)
def test_rules_do_what_their_tests_say(path: Path) -> None:
    done = promtool("test", "rules", path)
    assert done.returncode == 0, done.stdout + done.stderr


Case = Mapping[str, Any]
CASES: Final[list[Case]] = [
    case
    for path in TESTS
    if path.stem not in ("recording", "openshift", "texts")
    for case in yaml.safe_load(path.read_text())["tests"]
]
"""Of the conditions: whether an alert fires."""


def about(case: Case) -> set[str]:
    """The alerts that a case speaks of."""
    found = {
        pattern for check in case["promql_expr_test"] for pattern in re.findall(r'alertname=~?"([^"]+)"', check["expr"])
    }
    return {name for name in ALERTS if any(re.fullmatch(pattern, name) for pattern in found)}


def outcome(folder: Path, cases: list[Case], changed: Mapping[str, str] = {}) -> str:
    """What promtool finds wrong, with other expressions for some alerts; empty: nothing."""
    wanted = {name for case in cases for name in about(case)}
    rules = [
        {**rule, "expr": changed.get(rule["alert"], rule["expr"])}
        for group in yaml.safe_load(WANTED[files.RULES])["groups"]
        for rule in group["rules"]
        if rule["alert"] in wanted
    ]
    (folder / "alerts.yaml").write_text(yaml.safe_dump({"groups": [{"name": "some", "rules": rules}]}))
    tests = {"rule_files": ["alerts.yaml"], "evaluation_interval": "1m", "tests": list(cases)}
    (folder / "tests.yaml").write_text(yaml.safe_dump(tests))
    done = promtool("test", "rules", folder / "tests.yaml")
    return done.stdout + done.stderr if done.returncode else ""


@pytest.mark.prometheus
@ANY_ALERT
def test_its_tests_fail_if_an_alert_never_fires_or_always_does(name: str, tmp_path: Path) -> None:
    cases = [case for case in CASES if name in about(case)]
    assert outcome(tmp_path, cases) == ""
    assert "exp:" in outcome(tmp_path, cases, {name: "vector(0) > 1"}), "no test says that it fires"
    expression = promql.parse(ALERTS[name].expr)
    labels = ", ".join(sorted(result_labels(expression) or {"job", "instance"}))
    names = "|".join(sorted({selector.name or "" for selector in selectors(expression)}))
    always = f'({ALERTS[name].expr}) or on ({labels}) group by ({labels}) ({{__name__=~"{names}"}})'
    assert "exp:" in outcome(tmp_path, cases, {name: always}), "no test says that it stays quiet"


@pytest.mark.prometheus
def test_every_text_can_be_made(tmp_path: Path) -> None:
    """Each alert is made to fire by its tests, and promtool shows its texts, since none was expected."""
    (tmp_path / "alerts.yaml").write_text(WANTED[files.RULES])
    made = []
    for case in CASES:
        times = {check["eval_time"] for check in case["promql_expr_test"] if check["exp_samples"]}
        wanted = [
            {"alertname": name, "eval_time": time, "exp_alerts": []} for name in about(case) for time in sorted(times)
        ]
        if wanted:
            made.append({"interval": "1m", "input_series": case["input_series"], "alert_rule_test": wanted})
    tests = {"rule_files": ["alerts.yaml"], "evaluation_interval": "1m", "tests": made}
    (tmp_path / "tests.yaml").write_text(yaml.safe_dump(tests))
    done = promtool("test", "rules", tmp_path / "tests.yaml")
    shown = done.stdout + done.stderr
    assert "error expanding template" not in shown
    assert "<no value>" not in shown
    assert {name for name in ALERTS if f'alertname="{name}"' not in shown} == set()


def test_the_alert_struct_keeps_texts_on_one_line() -> None:
    alert = Alert(
        name="X", severity="info", action="none", expr="up == 0", when="w", summary="s", description="a\n  b",
        subject="agent"
    )  # fmt: skip
    assert alert.rule("")["annotations"]["description"] == "a b"
