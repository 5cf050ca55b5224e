"""The runbooks: a page for each alert, with commands that vendors document, and queries that Prometheus takes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import promql_parser as promql
import pytest

from alerts import files
from alerts.codes import built_in, named
from alerts.model import Alert
from alerts.runbooks import ACTIONS, BEGIN, CODES, DRIVERS, OF_DEVICES, commands, history, on_the_bus, runbooks
from dashboards.coverage import selectors
from exporter.schema import FAULT_LABELS
from tests import promql as lint
from tests.unit.test_repository import ROOT

ALERTS: Final = {alert.name: alert for alert in files.every_alert()}
GROUPS: Final = {rule.name: group.name for group in files.ALERTS for rule in group.rules}
PAGES: Final = {name: (ROOT / alert.runbook).read_text() for name, alert in ALERTS.items()}
ANY = pytest.mark.parametrize("name", ALERTS)
HARDWARE: Final = sorted(
    name for name, alert in ALERTS.items() if alert.subject != "agent" and GROUPS[name] != "accel-usage"
)


def sections(text: str) -> dict[str, str]:
    """Heading → what stands below it."""
    _, *found = re.split(r"^## (.+)\n", text, flags=re.MULTILINE)
    return dict(zip(found[::2], found[1::2], strict=True))


@ANY
def test_an_alert_has_a_runbook(name: str) -> None:
    text = PAGES[name]
    assert text.startswith(f"# {name}\n")
    wanted = ["What it means", "What to look at", "What to do"]
    wanted += ["Commands"] * (name in (*HARDWARE, *DRIVERS)) + ["Codes"] * (name in CODES) + ["Queries"]
    assert list(sections(text)) == wanted
    assert re.search(r"^1\. \S", sections(text)["What to do"], re.MULTILINE)
    assert "](../alerts.md)" in text
    if ALERTS[name].subject != "agent":
        assert "| vendor | what it means there |" in text
        assert "\n| others |" in text


def test_no_runbook_is_left_of_an_alert_that_is_gone() -> None:
    assert {path.stem for path in (ROOT / "docs/runbooks").iterdir()} == set(ALERTS)


@ANY
def test_a_runbook_names_alerts_that_exist_and_links_to_each(name: str) -> None:
    text = PAGES[name]
    bare = set(re.findall(r"(?<![\[(])\bAccel[A-Z]\w+", text)) - {name}
    assert not bare, "write [Name](Name.md)"
    links = re.findall(r"\[(Accel\w+)\]\((Accel\w+)\.md\)", text)
    assert all(shown == target and target in ALERTS for shown, target in links)


def test_writing_keeps_what_is_written_by_hand(tmp_path: Path) -> None:
    (tmp_path / "docs/runbooks").mkdir(parents=True)
    for name in ALERTS:
        (tmp_path / ALERTS[name].runbook).write_text(f"# {name}\n\nBy hand.\n\n{BEGIN}\n\nOld.\n")
    for path, text in runbooks(files.ALERTS, tmp_path).items():
        assert text.startswith(f"# {Path(path).stem}\n\nBy hand.\n\n{BEGIN}\n\n## ")
        assert "Old." not in text


def test_an_alert_without_a_page_is_told(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"docs/runbooks/Accel\w+\.md is missing: write"):
        runbooks(files.ALERTS, tmp_path)


# Commands


def test_each_vendor_of_this_repository_has_its_commands() -> None:
    assert set(commands()) == {name for name, _ in built_in()}
    assert all(each.sources for each in commands().values())


@pytest.mark.parametrize(
    ("vendor", "shown"),
    [
        # As the PCI ID database and the vendors' own tools have them.
        ("nvidia", "`lspci -nn -d 10de:`"),
        ("amd", "`lspci -nn -d 1002:`"),
        ("gaudi", "`lspci -nn -d 1da3:`: devices 1000, 1001, 1010, 1011, 1020, 1021, 1030, 1060, 1061, 1062, 1063"),
        ("neuron", "`lspci -nn -d 1d0f:`: devices 7064, 7065, 7066, 7067, 7164, 7264, 7364"),
        ("tpu", "`lspci -nn -d 1ae0:`: devices 0027, 005e, 0063, 0062, 006f, 0076"),
    ],
)
def test_the_bus_is_searched_by_number(vendor: str, shown: str) -> None:
    assert on_the_bus(dict(built_in())[vendor]) == shown


@pytest.mark.parametrize("name", HARDWARE)
def test_a_page_on_hardware_has_a_row_of_commands_for_each_vendor(name: str) -> None:
    text = sections(PAGES[name])["Commands"]
    for vendor, typed in commands().items():
        (row,) = re.findall(rf"^\| \[[^]]+\]\(\.\./vendors/{vendor}\.md#health\) \|.*$", text, re.MULTILINE)
        assert typed.list in row
        assert typed.reset in row
        assert on_the_bus(dict(built_in())[vendor]) in row
    assert "dmesg -T | grep -E 'amdgpu|habanalabs|NEURON_HW_ERR|NVRM: Xid'" in text


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("AccelMemoryRepairFailed", "hl-smi -q -d ROW_REPLACEMENT"),
        ("AccelTemperatureAtLimit", "hl-smi -q -d TEMPERATURE"),
        ("AccelPowerAtLimit", "hl-smi -q -d POWER"),
        ("AccelLinkDown", "hl-smi -n link"),
        ("AccelPcieLinkNarrow", "current_link_width"),
    ],
)
def test_a_page_shows_what_belongs_to_its_alert(name: str, command: str) -> None:
    assert [other for other in HARDWARE if command in PAGES[other]].count(name) == 1
    assert command not in PAGES["AccelDeviceLost"]


@pytest.mark.parametrize("name", DRIVERS)
def test_a_page_on_collectors_asks_for_the_driver(name: str) -> None:
    text = sections(PAGES[name])["Commands"]
    assert "`cat /proc/driver/nvidia/version`" in text
    for vendor, typed in commands().items():
        (row,) = re.findall(rf"^\| \[[^]]+\]\(\.\./vendors/{vendor}\.md#checks\) \|.*$", text, re.MULTILINE)
        assert typed.driver in row


def test_commands_can_stand_in_a_table() -> None:
    for typed in commands().values():
        for text in msgspec.structs.astuple(typed)[1:]:
            assert "|" not in text
            assert text.count("`") % 2 == 0


# Codes


@pytest.mark.parametrize(("name", "severity"), CODES.items())
def test_every_code_of_the_severity_has_a_row_with_its_name(name: str, severity: str) -> None:
    text = sections(PAGES[name])["Codes"]
    wanted = {fault.code for _, each in built_in() for fault in each.faults.values() if fault.severity == severity}
    assert set(re.findall(r"^\| \[\w+\]\(\.\./vendors/\w+\.md#faults\) \| `([^`]+)` \|", text, re.MULTILINE)) == wanted
    assert "`none`" not in text, "that is no advice"


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("AccelFaultFatal", r"`xid:79` \| GPU has fallen off the bus \| interconnect \| `reboot_node`: "),
        ("AccelFaultFatal", r"`afid:1` \| Boot-time: firmware load \| firmware \| not named: drain the device"),
        ("AccelFaultDegraded", r"`nrt:1205` \| Repairable HBM .* \| memory \| `reboot_node`: "),
    ],
)
def test_a_row_says_what_to_do_first(name: str, row: str) -> None:
    assert re.search(row, PAGES[name])


def test_each_action_of_a_fault_is_explained() -> None:
    assert {*ACTIONS, "none"} == set(FAULT_LABELS["action"])


def test_a_text_names_the_codes_of_its_severity_and_no_others() -> None:
    assert '"xid:48" }}, Double Bit ECC Error{{' in named("fatal")
    assert '"xid:48"' not in named("degraded")
    assert '"xid:94" }}, Contained ECC error{{' in named("degraded")
    assert max(len(each) for each in re.findall(r"\}\}([^{]*)\{\{", named("fatal"))) < 100


def test_a_name_cannot_break_a_template() -> None:
    for _, each in built_in():
        for fault in each.faults.values():
            assert not re.search(r'[{}"\\]', fault.name + fault.code)


# Queries


@ANY
def test_the_alerts_own_expression_can_be_pasted(name: str) -> None:
    shown = re.findall(r"```promql\n(.*?)\n```", PAGES[name], re.DOTALL)
    assert len(shown) == 2
    assert str(promql.parse(shown[0])) == str(promql.parse(ALERTS[name].expr))


@ANY
def test_queries_for_the_past_ask_for_what_exists(name: str) -> None:
    alert = ALERTS[name]
    shown = re.findall(r"```promql\n(.*?)\n```", PAGES[name], re.DOTALL)[1].splitlines()
    assert shown == history(alert)
    label = {"device": "uuid", "vendor": "vendor", "agent": "instance"}[alert.subject]
    for query in shown:
        parsed = promql.parse(query)
        assert lint.unknown_names(parsed) == []
        assert [*lint.bare_counters(parsed), *lint.rated_gauges(parsed)] == [] or "max_over_time" in query
        assert all(label in matchers(selector) for selector in selectors(parsed))
    if alert.subject == "device":
        assert set(OF_DEVICES) <= set(shown)


def matchers(selector: Any) -> Mapping[str, str]:
    return {each.name: each.value for each in selector.matchers.matchers}


def test_queries_keep_the_conditions_of_the_expression() -> None:
    alert = Alert(
        name="X", severity="info", action="none", when="w", summary="s", description="d",
        expr='sum by (uuid) (increase(accel_memory_errors_total{correctable="false"}[1h])) > 0',
    )  # fmt: skip
    assert history(alert)[0] == 'increase(accel_memory_errors_total{correctable="false",uuid="UUID"}[1h])'


# What an agent can say of itself


def test_the_page_of_a_collector_that_is_down_has_a_step_for_each_state() -> None:
    """Those of the page on troubles, but for a release, which is no trouble and silences the alert."""
    page = (ROOT / "docs/troubleshooting.md").read_text()
    (table,) = re.findall(r"^\| state \|.*?\n\n", page, re.MULTILINE | re.DOTALL)
    states = set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) - {"released"}
    assert {"no_driver", "no_library", "version_mismatch", "timeout"} <= states
    steps = sections(PAGES["AccelCollectorDown"])["What to do"]
    assert [state for state in states if f"`{state}`" not in steps] == []
