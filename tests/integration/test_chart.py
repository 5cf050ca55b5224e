"""The chart makes what Kubernetes takes, from values that it checks, with a configuration that the agent takes."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from kubernetes_validate import utils

import exporter
from exporter.cli import main
from exporter.program import Source, read
from tests.charts import (
    CASES,
    CHART,
    CUSTOM,
    FLAVOURS,
    MONITORED,
    NVIDIA,
    RELEASE,
    ROOT,
    VENDORS,
    Json,
    configurations,
    helm,
    merged,
    of_kind,
    only,
    pods,
    refusal,
    render,
    run,
    template,
)
from tests.golden import assert_golden

pytestmark = pytest.mark.helm

VERSIONS = ("1.25", "1.31", "1.34", utils.major_minor(utils.latest_version()))
"""The oldest that the chart supports, those that bring a field that it uses, and the newest that is known."""
ANY_CASE = pytest.mark.parametrize("case", CASES)


def test_helm_finds_nothing_to_complain_of() -> None:
    for values in CASES.values():
        done = run("lint", "--strict", "--quiet", values=values)
        assert done.returncode == 0, done.stdout + done.stderr


@ANY_CASE
def test_the_render_is_the_one_that_was_looked_at(case: str) -> None:
    text = re.sub(rf"(?<![\d.]){re.escape(exporter.__version__)}(?![\d.])", "VERSION", template(CASES[case]))
    assert_golden(f"chart/{case}.yaml", text.lstrip("\n"))


@ANY_CASE
@pytest.mark.parametrize("version", VERSIONS)
def test_kubernetes_takes_every_object(case: str, version: str) -> None:
    for found in render(CASES[case], kubernetes=f"{version}.0"):
        if found["kind"] not in CUSTOM:
            assert kubernetes_validate.validate(found, version, strict=True) == version


def test_an_object_that_kubernetes_refuses_would_be_found() -> None:
    (daemonset,) = of_kind(render(), "DaemonSet")
    daemonset["spec"]["template"]["spec"]["containers"][0]["imagePullPolice"] = "Always"
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(daemonset, "1.34", strict=True)


def test_an_old_kubernetes_gets_no_field_that_it_does_not_know() -> None:
    assert "recursiveReadOnly" not in template(only("gaudi"), kubernetes="1.30.0")
    assert "recursiveReadOnly: IfPossible" in template(only("gaudi"), kubernetes="1.31.0")


@ANY_CASE
def test_selectors_select_the_pods_of_their_own_flavour_alone(case: str) -> None:
    objects = render(CASES[case])
    daemonsets = of_kind(objects, "DaemonSet")
    for daemonset in daemonsets:
        selector = daemonset["spec"]["selector"]["matchLabels"].items()
        fitting = [each for each in daemonsets if selector <= each["spec"]["template"]["metadata"]["labels"].items()]
        assert fitting == [daemonset]
    for found in (*of_kind(objects, "Service"), *of_kind(objects, "PodMonitor"), *of_kind(objects, "NetworkPolicy")):
        spec = found["spec"]
        chosen = spec.get("podSelector", spec.get("selector", {}))
        labels = chosen.get("matchLabels", chosen).items()
        assert all(labels <= each["spec"]["template"]["metadata"]["labels"].items() for each in daemonsets)


@ANY_CASE
def test_no_two_objects_have_the_same_name(case: str) -> None:
    names = [(found["kind"], found["metadata"]["name"]) for found in render(CASES[case])]
    assert len(names) == len(set(names))
    assert all(len(name) <= 63 for _, name in names)


def test_a_long_name_leaves_room_for_the_flavour() -> None:
    names = [found["metadata"]["name"] for found in render({**only(*VENDORS), "fullnameOverride": "x" * 60})]
    assert all(len(name) <= 63 for name in names)
    assert len([name for name in names if name.endswith("-neuron")]) == 2


# Values


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"nvdia": {"enabled": True}}, "nvdia"),
        ({"nvidia": {"privilegd": True}}, "privilegd"),
        ({"port": "9859"}, r"\bport\b"),
        ({"image": {"digest": "latest"}}, "image.digest"),
        ({"networkPolicy": {"from": []}}, "networkPolicy.from"),
        ({"nvidia": {"enabled": True}}, "auto.enabled and nvidia.enabled exclude each other"),
        ({"auto": {"enabled": False}}, "no flavour is enabled"),
        ({"web": {"tls": True}}, "web.configSecret"),
        ({"podMonitor": {"enabled": True}, "serviceMonitor": {"enabled": True}}, "would be scraped twice"),
    ],
)
def test_wrong_values_are_refused_with_the_place(values: Json, words: str) -> None:
    # Releases of Helm write a path with dots or with slashes.
    assert re.search(words, refusal(values))


def test_every_value_is_known_to_the_schema() -> None:
    # Helm checks the defaults, too: a value that the schema lacks would be refused.
    assert run("lint", "--strict").returncode == 0


def test_an_old_kubernetes_is_refused() -> None:
    done = run("template", RELEASE, "--kube-version", "1.24.0")
    assert "incompatible with Kubernetes v1.24" in done.stderr


def test_each_flavour_has_an_image_of_its_own() -> None:
    images = {name: pod["containers"][0]["image"] for name, pod in pods(render(only(*VENDORS))).items()}
    assert images == {name: f"accel-exporter:{exporter.__version__}-{name}" for name in VENDORS}
    (image,) = (pod["containers"][0]["image"] for pod in pods(render()).values())
    assert image == f"accel-exporter:{exporter.__version__}"
    (pod,) = pods(render(NVIDIA)).values()
    assert pod["containers"][0]["image"] == "registry.example.com/accel-exporter:1.2.3-nvidia"


def test_every_image_target_of_a_flavour_is_one_of_the_dockerfile() -> None:
    targets = set(re.findall(r"^FROM \S+ AS (\S+)$", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE))
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert {values[flavour]["imageTarget"] for flavour in FLAVOURS} <= targets


def test_a_node_is_chosen_by_any_of_the_labels_of_its_vendor() -> None:
    (pod,) = pods(render(only("tpu"))).values()
    terms = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert terms == [{"matchExpressions": [{"key": "cloud.google.com/gke-tpu-accelerator", "operator": "Exists"}]}]
    (pod,) = pods(render({"auto": {"nodeMatchAny": []}})).values()
    assert "affinity" not in pod


def test_auto_goes_wherever_a_vendors_flavour_goes() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    for vendor in VENDORS:
        for key in ("nodeMatchAny", "tolerations"):
            assert [each for each in values[vendor][key] if each not in values["auto"][key]] == []


def test_settings_of_a_flavour_go_over_the_shared_ones() -> None:
    values = merged(
        only("nvidia", "neuron"),
        {"config": {"intervals": {"normal": 10}}, "neuron": {"config": {"intervals": {"normal": 20, "slow": 120}}}},
    )
    found = {name: yaml.safe_load(text) for name, text in configurations(render(values)).items()}
    assert found["nvidia"]["intervals"] == {"normal": 10}
    assert found["neuron"]["intervals"] == {"normal": 20, "slow": 120}
    neuron = pods(render(values))["neuron"]["containers"][0]["resources"]
    assert neuron == {"requests": {"cpu": "20m", "memory": "256Mi"}, "limits": {"memory": "512Mi"}}


def test_a_changed_configuration_makes_new_pods() -> None:
    def checksum(values: Json) -> str:
        (daemonset,) = of_kind(render(values), "DaemonSet")
        return str(daemonset["spec"]["template"]["metadata"]["annotations"]["checksum/config"])

    assert checksum({}) == checksum({"podLabels": {"a": "b"}})
    assert checksum({}) != checksum({"config": {"links": "each"}})


@pytest.mark.parametrize(
    ("values", "said", "unsaid"),
    [
        ({}, ["Nothing scrapes it yet", "plain HTTP"], ["privileged"]),
        (
            merged(only("gaudi", "tpu"), MONITORED),
            ["The flavour gaudi runs privileged"],
            ["Nothing scrapes", "tpu runs"],
        ),
        ({"web": {"configSecret": "web"}}, [], ["plain HTTP"]),
    ],
    ids=["default", "privileged", "secured"],
)
def test_helm_tells_what_to_do_next(values: Json, said: list[str], unsaid: list[str]) -> None:
    done = run("install", "--dry-run=client", RELEASE, values=values)
    assert done.returncode == 0, done.stderr
    notes = done.stdout.partition("NOTES:")[2]
    assert "accel-exporter doctor --config" in notes
    assert [words for words in said if words not in notes] == []
    assert [words for words in unsaid if words in notes] == []


# The Prometheus operator's objects: its schemas are no part of Kubernetes'

ENDPOINT = {
    "port", "path", "params", "scheme", "honorLabels", "interval", "scrapeTimeout", "tlsConfig", "basicAuth",
    "relabelings", "metricRelabelings",
}  # fmt: skip
RELABELING = {"action", "sourceLabels", "targetLabel", "regex", "replacement", "separator", "modulus"}
ACTIONS = {"replace", "keep", "drop", "labeldrop", "labelkeep", "labelmap", "hashmod"}


@pytest.mark.parametrize(
    ("case", "kind", "endpoints"),
    [("nvidia", "PodMonitor", "podMetricsEndpoints"), ("secured", "ServiceMonitor", "endpoints")],
)
def test_a_monitor_has_the_form_that_the_operators_api_gives_it(case: str, kind: str, endpoints: str) -> None:
    objects = render(CASES[case])
    (monitor,) = of_kind(objects, kind)
    assert monitor["apiVersion"] == "monitoring.coreos.com/v1"
    spec = monitor["spec"]
    assert spec.keys() <= {"selector", "namespaceSelector", "sampleLimit", endpoints}
    assert isinstance(spec.get("sampleLimit", 1), int)
    (pod, *_) = pods(objects).values()
    ports = {port["name"] for port in pod["containers"][0]["ports"]}
    for service in of_kind(objects, "Service"):
        assert {port["targetPort"] for port in service["spec"]["ports"]} == ports
    for endpoint in spec[endpoints]:
        assert endpoint.keys() <= ENDPOINT
        assert {endpoint["port"]} == ports
        assert all(isinstance(values, list) for values in endpoint["params"].values())
        for rule in (*endpoint["relabelings"], *endpoint.get("metricRelabelings", ())):
            assert rule.keys() <= RELABELING
            assert rule["action"] in ACTIONS


# The agent's side


@ANY_CASE
def test_the_agent_takes_the_configuration(case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, text in configurations(render(CASES[case])).items():
        path = tmp_path / f"{name}.yaml"
        path.write_text(text)
        assert main(["check-config", "--config", str(path)]) == 0, capsys.readouterr().err


def test_a_configuration_that_the_agent_would_refuse_is_found(tmp_path: Path) -> None:
    (text,) = configurations(render({"config": {"intervalls": {"normal": 5}}})).values()
    (tmp_path / "config.yaml").write_text(text)
    assert main(["check-config", "--config", str(tmp_path / "config.yaml")]) == 2


def test_a_vendors_flavour_leaves_the_other_vendors_alone(tmp_path: Path) -> None:
    for name, text in configurations(render(only(*VENDORS))).items():
        path = tmp_path / f"{name}.yaml"
        path.write_text(text)
        config = read(Source(path, {}), {}).config
        assert {vendor for vendor in VENDORS if config.collectors[vendor].enabled is not False} == {name}
        # The target has the node's name from discovery.
        assert config.labels.node is False


def test_the_agent_finds_its_configuration_and_listens_where_the_port_is() -> None:
    objects = render({"port": 9999, "listenAddress": "[::]"})
    (pod,) = pods(objects).values()
    (container,) = pod["containers"]
    command, argument = container["args"]
    flag, _, path = argument.partition("=")
    assert (command, flag) == ("serve", "--config")
    (mount,) = [each for each in container["volumeMounts"] if path.startswith(f"{each['mountPath']}/")]
    (volume,) = [each for each in pod["volumes"] if each["name"] == mount["name"]]
    (held,) = [
        each for each in of_kind(objects, "ConfigMap") if each["metadata"]["name"] == volume["configMap"]["name"]
    ]
    assert Path(path).name in held["data"]
    assert yaml.safe_load(held["data"][Path(path).name])["listen"] == ["[::]:9999"]
    assert [port["containerPort"] for port in container["ports"]] == [9999]


def test_the_agent_knows_every_flag_that_it_is_given() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "exporter", "serve", "--help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    known = set(re.findall(r"(?<![\w-])--[a-z][a-z.-]+", done.stdout))
    for values in CASES.values():
        for pod in pods(render(values)).values():
            given = {argument.partition("=")[0] for argument in pod["containers"][0]["args"][1:]}
            assert given <= known


def test_the_probes_ask_what_the_kubelet_can_be_answered() -> None:
    def probes(values: Json) -> list[Any]:
        (pod,) = pods(render(values)).values()
        return [pod["containers"][0].get(name) for name in ("livenessProbe", "readinessProbe")]

    asked = [probe["httpGet"] for probe in probes({})]
    assert asked == [{"path": "/healthz", "port": "metrics"}, {"path": "/readyz", "port": "metrics"}]
    # The kubelet has no certificate and no password.
    live, ready = probes({"web": {"configSecret": "web"}})
    assert (live["tcpSocket"], ready) == ({"port": "metrics"}, None)
    own = {"exec": {"command": ["true"]}}
    assert probes({"web": {"configSecret": "web"}, "livenessProbe": own, "readinessProbe": own}) == [own, own]


def test_no_mount_lies_inside_another_that_is_read_only() -> None:
    # The runtime could not make the place for it.
    for values in CASES.values():
        for pod in pods(render(values)).values():
            mounts = pod["containers"][0]["volumeMounts"]
            closed = [mount["mountPath"] for mount in mounts if mount.get("readOnly")]
            paths = [mount["mountPath"] for mount in mounts]
            assert [path for path in paths for other in closed if path.startswith(f"{other}/")] == []


# What is copied into the chart


def test_what_is_made_by_make_chart_is_up_to_date() -> None:
    command = [sys.executable, str(ROOT / "scripts/chart.py"), "--check", "--helm", helm()]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, f"run `make chart`:\n{done.stdout}{done.stderr}"


def test_a_packaged_chart_makes_the_same(tmp_path: Path) -> None:
    # A package holds copies: what lies beside the chart in the repository is not there.
    shutil.copytree(CHART, tmp_path / "accel-exporter")
    command = [helm(), "package", str(tmp_path / "accel-exporter"), "--destination", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    values = {"prometheusRule": {"enabled": True}, "dashboards": {"enabled": True}}
    package = tmp_path / f"accel-exporter-{exporter.__version__}.tgz"
    assert render(values, chart=package) == render(values)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_kubernetes_takes_the_plain_manifests(flavour: str) -> None:
    objects = [each for each in yaml.safe_load_all((ROOT / f"deploy/manifests/{flavour}.yaml").read_text()) if each]
    for found in objects:
        kubernetes_validate.validate(found, utils.latest_version(), strict=True)
    (namespace,) = of_kind(objects, "Namespace")
    inside = {each["metadata"].get("namespace") for each in objects} - {None}
    assert inside == {namespace["metadata"]["name"]}
