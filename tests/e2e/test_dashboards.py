"""A real Prometheus scrapes a simulated fleet of all vendors with parts, sharing and faults, and evaluates our rules.

Every query of every panel has data, sums are right, and each vendor's failing device raises its alerts.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from alerts import files as rules
from alerts.pages import mute
from dashboards.board import document
from dashboards.coverage import built_in
from dashboards.files import BOARDS
from dashboards.grafana import Document, everything, filled, queries, variables
from exporter.registry import catalogues
from tests.e2e.agent import children
from tests.prometheus import Prometheus, Sample, prometheus
from tests.simulated_fleet import CYCLE, DEVICES, fleet, vendors

pytestmark = [pytest.mark.prometheus, pytest.mark.timeout(300)]

DOCUMENTS: Final[Mapping[str, Document]] = {board.name: document(board) for board in BOARDS}
PATIENCE: Final = 6 * CYCLE
"""Seconds: some states last no longer than a moment of each cycle, and the machine may be busy."""
TIMES: Final = {"__rate_interval": "10s", "__range": "60s", "__range_s": "60", "__interval": "5s"}
EMPTY: Final[Mapping[tuple[str, str], str]] = {
    ("device", "Fan revolutions"): "no simulated device has fans that tell revolutions",
    ("device", "Voltage"): "no simulated device tells a voltage",
}
"""Panels whose queries have no data here, with the reason."""
WITHOUT_VALUES: Final[Mapping[str, str]] = {"cluster": "nobody adds a label cluster here"}
"""Variables that have nothing to choose, with the reason."""
AILING: Final = (
    "AccelDeviceFailed", "AccelFaultDegraded", "AccelFaultFatal", "AccelMemoryCorrectableErrors",
    "AccelMemoryUncorrectableErrors", "AccelRecoveryActionNeeded",
)  # fmt: skip
"""What a failing device raises in each cycle, where its vendor tells."""


def hasty(text: str) -> str:
    """Rules that do not wait: a failing device is sound again within seconds."""
    read = yaml.safe_load(text)
    for group in read["groups"]:
        group.pop("interval", None)
        for rule in group["rules"]:
            rule.pop("for", None)
    return yaml.safe_dump(read)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    folder = tmp_path_factory.mktemp("fleet")
    wanted = rules.wanted()
    paths = [folder / Path(name).name for name in (rules.RULES, rules.RECORDING)]
    for path, name in zip(paths, (rules.RULES, rules.RECORDING), strict=True):
        path.write_text(hasty(wanted[name]))
    with fleet(folder) as agents:
        targets = [agent.address for agent in agents]
        # As the README says: the common schema with the workload's labels, and the vendors' series by themselves.
        jobs: list[dict[str, Any]] = [
            {"job_name": "accel-exporter", "honor_labels": True, "params": {"schema": ["common"]}},
            {"job_name": "accel-exporter-raw", "params": {"schema": ["raw"]}},
        ]
        scraped = [{**job, "static_configs": [{"targets": targets}]} for job in jobs]
        with prometheus(folder, scraped, rules=paths) as running:
            running.wait_for(f"count(accel_exporter_build_info) == {len(agents)}")
            running.wait_for("sum(accel_exporter_collector_up) == " + str(len(vendors())))
            os.kill(children(agents[0].pid)[0], signal.SIGKILL)
            yield running


def until(met: Callable[[], bool], tell: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE
    while not met():
        assert time.monotonic() < end, tell()
        time.sleep(0.5)


# Dashboards


def asked(name: str, server: Prometheus) -> dict[tuple[str, str], str]:
    """Panel and expression → what Prometheus is asked."""
    values = {**everything(DOCUMENTS[name]), **TIMES}
    if "raw" in variables(DOCUMENTS[name]):
        values["raw"] = "|".join(chosen(server, DOCUMENTS[name], "raw"))
    found = {(panel["title"], expr): filled(expr, values) for panel, expr in queries(DOCUMENTS[name])}
    # A minute in the life of a fleet is a second in the life of a test.
    return {key: query.replace(":1m]", ":1s]") for key, query in found.items()}


def chosen(server: Prometheus, document: Document, name: str) -> list[str]:
    """What a variable offers, as Grafana finds it."""
    variable = variables(document)[name]
    found = re.fullmatch(r"label_values\((.+), (\w+)\)", filled(variable["query"]["query"], everything(document)))
    assert found is not None
    values: list[str] = server.api(f"label/{found[2]}/values", **{"match[]": found[1]})
    if variable["regex"]:
        pattern = re.compile(variable["regex"].strip("/").replace("\\/", "/"))
        values = sorted({match[1] for value in values if (match := pattern.search(value))})
    return values


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_query_of_every_panel_has_data(name: str, server: Prometheus) -> None:
    waiting = asked(name, server)

    def met() -> bool:
        for key, query in list(waiting.items()):
            if server.query(query):
                del waiting[key]
        return all((name, panel) in EMPTY for panel, _ in waiting)

    until(met, lambda: f"no data: {[(panel, query) for (panel, _), query in waiting.items()]}")
    expected = {panel for board, panel in EMPTY if board == name}
    assert {panel for panel, _ in waiting} == expected, "a panel that is expected to be empty has data"


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_variable_offers_something(name: str, server: Prometheus) -> None:
    asking = [v["name"] for v in variables(DOCUMENTS[name]).values() if v["type"] == "query"]
    server.wait_for("count(accel_allocation_info) > 0 and count(accel_metric_source_info) > 0")
    assert [v for v in asking if not chosen(server, DOCUMENTS[name], v)] == [v for v in asking if v in WITHOUT_VALUES]


def test_a_choice_leaves_out_the_rest(server: Prometheus) -> None:
    made = DOCUMENTS["fleet"]
    expression = next(expr for panel, expr in queries(made) if panel["title"] == "Devices")

    def devices(**values: str) -> float:
        query = filled(expression, {**everything(made), **TIMES, **values})
        return sum(sample.value for sample in server.query(query))

    every = float(len(vendors()) * DEVICES)
    until(lambda: devices() == every, devices)
    assert devices(node="node-a") + devices(node="node-b") == every
    assert devices(vendor="nvidia") == DEVICES
    assert 0 < devices(**{"class": "large"}) < every
    assert devices(**{"class": "large|small"}) == every
    assert devices(vendor="none") == 0


# Sums. Of each vendor's four devices tenant a holds three, one of them cut into parts; b and c share the fourth.


def by(server: Prometheus, query: str, label: str) -> dict[str, float]:
    return {sample.labels[label]: round(sample.value, 6) for sample in server.query(query)}


def query_of(board: str, title: str) -> str:
    made = DOCUMENTS[board]
    found = next(expr for panel, expr in queries(made) if panel["title"] == title)
    return filled(found, {**everything(made), **TIMES})


def test_tenants_hold_what_they_were_given_with_parts_and_sharing(server: Prometheus) -> None:
    of_each = {"team-a": 3.0, "team-b": 0.5, "team-c": 0.5}
    expected = {tenant: devices * len(vendors()) for tenant, devices in of_each.items()}
    query = query_of("tenants", "Devices held").replace("sum (sum by (tenant)", "(sum by (tenant)")
    until(lambda: by(server, query, "tenant") == expected, lambda: by(server, query, "tenant"))
    recorded = "tenant:accel_allocation_info:share_sum"
    until(lambda: by(server, recorded, "tenant") == expected, lambda: by(server, recorded, "tenant"))


def test_what_tenants_draw_is_what_devices_draw(server: Prometheus) -> None:
    """All devices are held: not a watt is lost or counted twice."""
    ratio = "sum(tenant:accel_energy_joules:rate5m) / sum(device:accel_energy_joules:rate5m)"

    def found() -> list[Sample]:
        return server.query(ratio)

    until(lambda: [round(sample.value, 3) for sample in found()] == [1.0], found)


def test_a_device_in_parts_is_as_busy_as_its_parts(server: Prometheus) -> None:
    """Of equal parts the weighted average is the plain one; and no device is there twice."""
    parts = 'avg by (uuid) (accel_utilization_ratio{partition!=""})'
    difference = f"max(abs({parts} - on (uuid) device:accel_utilization_ratio:avg))"
    until(lambda: any(sample.value < 0.05 for sample in server.query(difference)), lambda: server.query(difference))
    assert not server.query("count by (uuid) (device:accel_utilization_ratio:avg) > 1")


# Alerts


def raised(server: Prometheus, name: str) -> dict[str, set[str]]:
    """Vendor → devices that have raised an alert so far."""
    found: dict[str, set[str]] = {}
    for sample in server.query(f'count by (vendor, device) (max_over_time(ALERTS{{alertname="{name}"}}[10m]))'):
        found.setdefault(sample.labels["vendor"], set()).add(sample.labels["device"])
    return found


EXCUSED: Final[Mapping[str, Mapping[str, str]]] = {
    "AccelRecoveryActionNeeded": {"amd": "the first of its fatal faults are those of booting, which ask for no action"},
}
"""Alert → vendor → why its simulated failing device does not raise it within a few cycles."""
FAILING: Final = str(DEVICES - 1)
ALERTS: Final = {alert.name: alert for alert in rules.every_alert()}


@pytest.mark.parametrize("name", AILING)
def test_each_vendors_failing_device_raises_its_alerts(name: str, server: Prometheus) -> None:
    of = by_vendor()
    silent = {of[collector] for collector in mute(ALERTS[name], built_in())}
    expected = set(of.values()) - silent - EXCUSED.get(name, {}).keys()
    until(
        lambda: expected <= {vendor for vendor, devices in raised(server, name).items() if FAILING in devices},
        lambda: f"{name} is missing for {expected - raised(server, name).keys()}",
    )
    assert not silent & raised(server, name).keys(), "the page calls it silent"


def by_vendor() -> dict[str, str]:
    """Collector → what the label says."""
    return {name: catalogue.collector.vendor for name, (_, catalogue) in catalogues().items() if name in vendors()}


def test_sound_devices_raise_nothing_critical(server: Prometheus) -> None:
    until(lambda: bool(raised(server, "AccelFaultFatal")), lambda: "no device has failed yet")
    query = f'ALERTS{{severity="critical",device!="{FAILING}",device!=""}}'
    assert server.query(f"count by (alertname, vendor, device) ({query})") == []


@pytest.mark.parametrize("name", ["AccelAttributionDown", "AccelOtlpDropping"])
def test_troubles_of_the_agents_raise_alerts(name: str, server: Prometheus) -> None:
    found = f'count(max_over_time(ALERTS{{alertname="{name}"}}[10m]))'
    until(lambda: bool(server.query(found)), lambda: f"{name} is missing")
