"""The example for Alertmanager: a real one takes it, and holds back what follows from something worse."""

from __future__ import annotations

import json
import re
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import promql_parser as promql
import pytest
import yaml

from alerts import files
from tests.unit.test_dashboards import result_labels
from tests.unit.test_repository import ROOT

EXAMPLE: Final = ROOT / "deploy/prometheus/alertmanager.yaml"
PATIENCE: Final = 30.0
ALERTS: Final = {alert.name: alert for alert in files.every_alert()}
LABELS: Final = {name: set(result_labels(promql.parse(alert.expr)) or ()) for name, alert in ALERTS.items()}
"""Labels that the series of an alert bring."""
OF_DEVICES: Final = {name for name, alert in ALERTS.items() if alert.subject == "device"}
OF_AGENTS: Final = {name for name, alert in ALERTS.items() if alert.subject == "agent"}
Labels = Mapping[str, str]


def inhibitions() -> list[dict[str, Any]]:
    rules: list[dict[str, Any]] = yaml.safe_load(EXAMPLE.read_text())["inhibit_rules"]
    return rules


def matched(matchers: list[str]) -> set[str]:
    """Alerts that can match: by name, severity, and the labels that they have at all."""
    found = set()
    for name, alert in ALERTS.items():
        own = {"alertname": name, "severity": alert.severity, **dict.fromkeys(LABELS[name], "some")}
        if all(fits(matcher, own) for matcher in matchers):
            found.add(name)
    return found


def fits(matcher: str, own: Labels) -> bool:
    label, operator, value = re.fullmatch(r'(\w+)(!=|=~|!~|=)"(.*)"', matcher).groups()  # type: ignore[union-attr]
    same = re.fullmatch(value, own.get(label, "")) if "~" in operator else own.get(label, "") == value
    return bool(same) != operator.startswith("!")


@pytest.mark.parametrize("rule", inhibitions(), ids=lambda rule: rule["source_matchers"][0])
def test_the_labels_that_have_to_be_equal_exist_on_both_sides(rule: Mapping[str, Any]) -> None:
    equal = set(rule["equal"])
    sources, targets = matched(rule["source_matchers"]), matched(rule["target_matchers"])
    assert sources, "names alerts that do not exist"
    assert all(equal <= LABELS[source] for source in sources)
    held = {target for target in targets if equal <= LABELS[target]}
    if rule["source_matchers"][0] == 'alertname="AccelExporterAbsent"':
        wanted = OF_DEVICES | {"AccelScrapeFailing"} if "node" in equal else OF_AGENTS - {"AccelExporterAbsent"}
        assert held == {*wanted, "AccelDeviceMissing"}
    else:
        assert held == targets


def test_each_alert_that_calls_somebody_for_a_device_holds_back_its_warnings() -> None:
    (rule,) = [rule for rule in inhibitions() if 'severity="critical"' in rule["source_matchers"]]
    assert matched(rule["source_matchers"]) == {name for name in OF_DEVICES if ALERTS[name].severity == "critical"}
    assert matched(rule["target_matchers"]) == {name for name in OF_DEVICES if ALERTS[name].severity != "critical"}


@pytest.mark.alertmanager
def test_amtool_takes_the_file() -> None:
    done = subprocess.run(["amtool", "check-config", EXAMPLE], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


# By a real Alertmanager


def labelled(name: str, **labels: str) -> dict[str, str]:
    assert name in ALERTS
    assert labels.keys() <= LABELS[name], "a label that this alert never has"
    return {"alertname": name, "severity": ALERTS[name].severity, **labels}


def on_device(name: str, number: int, node: str = "n1", **more: str) -> dict[str, str]:
    return labelled(
        name, cluster="c", node=node, vendor="nvidia", device=str(number), uuid=f"GPU-{node}-{number}", **more
    )


def on_agent(name: str, instance: str, **more: str) -> dict[str, str]:
    return labelled(name, cluster="c", job="accel-exporter", instance=instance, **more)


@contextmanager
def alertmanager(folder: Path) -> Iterator[str]:
    """Its address. It sends nothing: the example's receivers have no way to."""
    log = folder / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [
                "prometheus-alertmanager", f"--config.file={EXAMPLE}", f"--storage.path={folder / 'data'}",
                "--web.listen-address=127.0.0.1:0", "--cluster.listen-address=",
            ],
            stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
        )  # fmt: skip
    try:
        yield address(process, log)
    finally:
        process.kill()
        process.wait()


def address(process: subprocess.Popen[bytes], log: Path) -> str:
    """Where it serves, once it does: it takes a free port and says which."""
    end = time.monotonic() + PATIENCE
    while process.poll() is None and time.monotonic() < end:
        if found := re.search(r'msg="Listening on" address=(\S+)', log.read_text(errors="replace")):
            url = f"http://{found[1]}"
            urllib.request.urlopen(f"{url}/-/ready", timeout=PATIENCE).close()
            return url
        time.sleep(0.02)
    raise AssertionError(f"alertmanager does not start: {log.read_text(errors='replace')[-3000:]}")


def heard(url: str, firing: list[dict[str, str]], wanted: int) -> list[Labels]:
    """Alerts that are not held back, as soon as there are so many of them, else those at the end of patience."""
    body = json.dumps([{"labels": labels} for labels in firing]).encode()
    request = urllib.request.Request(f"{url}/api/v2/alerts", body, {"Content-Type": "application/json"})
    urllib.request.urlopen(request, timeout=PATIENCE).close()
    end = time.monotonic() + PATIENCE
    while True:
        with urllib.request.urlopen(f"{url}/api/v2/alerts", timeout=PATIENCE) as answer:
            found = json.load(answer)
        active = [each["labels"] for each in found if not each["status"]["inhibitedBy"]]
        if (len(found) == len(firing) and len(active) == wanted) or time.monotonic() > end:
            return active
        time.sleep(0.05)


FATAL: Final = on_device("AccelFaultFatal", 0, code="xid:48", action="reset_device")
LOST: Final = on_device("AccelDeviceLost", 1)
OTHER: Final = on_device("AccelTemperatureAtLimit", 2, sensor="die")
OTHERS_MISSING: Final = labelled("AccelDeviceMissing", cluster="c", node="n1", instance="n1", vendor="amd")
ABSENT: Final = labelled("AccelExporterAbsent", cluster="c", node="n2", instance="n2")
WITHOUT_NODE: Final = labelled("AccelExporterAbsent", instance="n5:9859")
NOBODY: Final = labelled("AccelExporterAbsent")
DOWN: Final = on_agent("AccelCollectorDown", "n1", collector="nvidia")
SCENES: Final = {
    "of a failing device one alert is heard, and those of others": (
        [FATAL, OTHER],
        [
            on_device("AccelDeviceFailed", 0), on_device("AccelMemoryUncorrectableErrors", 0),
            on_device("AccelMemoryRepairFailed", 0, kind="remapped_row"), on_device("AccelMemoryRepairPending", 0),
            on_device("AccelRecoveryActionNeeded", 0, action="reset_device"), on_device("AccelAllocatedIdle", 0),
            on_device("AccelTemperatureNearLimit", 2, sensor="die"),
        ],
    ),
    "a lost device is heard alone, and what is missing of another vendor": (
        [LOST, OTHERS_MISSING],
        [
            on_device("AccelFaultFatal", 1, code="xid:79", action="reboot_node"), on_device("AccelDeviceFailed", 1),
            labelled("AccelDeviceMissing", cluster="c", node="n1", instance="n1", vendor="nvidia"),
        ],
    ),
    "an agent that is absent is heard alone on its node": (
        [ABSENT, OTHER, DOWN],
        [
            on_device("AccelMemoryUncorrectableErrors", 0, node="n2"),
            on_agent("AccelCollectorDown", "n2", collector="nvidia"),
        ],
    ),
    "without the label node the agent's own alerts are held back": (
        [WITHOUT_NODE, labelled("AccelCollectorDown", instance="n6:9859", collector="amd"), OTHER],
        [labelled("AccelCollectorDown", instance="n5:9859", collector="amd")],
    ),
    "that there is no agent holds back nothing": ([NOBODY, OTHER, DOWN], []),
    "a collector that is down holds back its own consequences": (
        [DOWN, on_agent("AccelCollectorStale", "n1", collector="amd")],
        [on_agent("AccelCollectorStale", "n1", collector="nvidia")],
    ),
}  # fmt: skip


@pytest.mark.alertmanager
@pytest.mark.parametrize("scene", SCENES)
def test_what_is_heard(scene: str, tmp_path: Path) -> None:
    wanted, held = SCENES[scene]
    with alertmanager(tmp_path) as url:
        active = heard(url, [*wanted, *held], len(wanted))
    assert sorted(map(sorted, (each.items() for each in active))) == sorted(
        map(sorted, (each.items() for each in wanted))
    )
