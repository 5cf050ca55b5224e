"""The Helm chart, rendered by a real Helm.

@pytest.mark.helm
def test_something() -> None:
    (daemonset,) = of_kind(render({"auto": {"enabled": True}}), "DaemonSet")
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

ROOT: Final = Path(__file__).resolve().parents[1]
CHART: Final = ROOT / "deploy/helm/accel-exporter"
VENDORS: Final = ("nvidia", "amd", "neuron", "gaudi", "tpu")
FLAVOURS: Final = ("auto", *VENDORS)
RELEASE: Final = "accel"
NAMESPACE: Final = "monitoring"
CUSTOM: Final = frozenset({"PodMonitor", "ServiceMonitor", "PrometheusRule"})
"""Kinds of the Prometheus operator, which Kubernetes' own schemas do not know."""

_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The fast one, where PyYAML has been built with it."""

Json = dict[str, Any]


def only(*flavours: str, **settings: Any) -> Json:
    """Values that enable these flavours and no other, each with the settings."""
    return {
        **{name: {"enabled": name in flavours} for name in FLAVOURS},
        **{f: {"enabled": True, **settings} for f in flavours},
    }


def merged(*values: Mapping[str, Any]) -> Json:
    """One set of values of several; later ones win."""
    found: Json = {}
    for each in values:
        for key, value in each.items():
            both = isinstance(value, Mapping) and isinstance(found.get(key), Mapping)
            found[key] = merged(found[key], value) if both else value
    return found


def helm() -> str:
    """The program. Where it cannot be had the test is skipped, or fails if nothing may be left out and npm is there."""
    path, reason = _helm()
    if path:
        return path
    if os.environ.get("REQUIRE_TEST_PROGRAMS") == "1" and shutil.which("npm"):
        pytest.fail(f"no Helm: {reason}", pytrace=False)
    pytest.skip(f"no Helm: {reason}")


@functools.cache
def _helm() -> tuple[str, str]:
    done = subprocess.run(
        [str(ROOT / "scripts/helm.sh")],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
    )
    return (done.stdout.strip(), "") if done.returncode == 0 else ("", done.stderr.strip())


def run(
    *arguments: str, values: Mapping[str, Any] | None = None, chart: Path = CHART
) -> subprocess.CompletedProcess[str]:
    """Helm with these arguments on the chart. The values go through its standard input, as JSON, which is YAML."""
    return subprocess.run(
        [helm(), *arguments, str(chart), "--values", "-"],
        input=json.dumps(values or {}),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def template(values: Mapping[str, Any] | None = None, *, kubernetes: str = "1.34.0", chart: Path = CHART) -> str:
    """What the chart makes of the values, as text."""
    done = run("template", RELEASE, "--namespace", NAMESPACE, "--kube-version", kubernetes, values=values, chart=chart)
    assert done.returncode == 0, done.stderr
    return done.stdout


def render(values: Mapping[str, Any] | None = None, *, kubernetes: str = "1.34.0", chart: Path = CHART) -> list[Json]:
    """The same as objects."""
    objects = yaml.load_all(template(values, kubernetes=kubernetes, chart=chart), _LOADER)
    return [found for found in objects if found]


def refusal(values: Mapping[str, Any]) -> str:
    """What Helm says of values that it does not take."""
    done = run("template", RELEASE, values=values)
    assert done.returncode != 0, "the values are taken"
    return done.stderr


def of_kind(objects: Sequence[Json], kind: str) -> list[Json]:
    return [found for found in objects if found["kind"] == kind]


def pods(objects: Sequence[Json]) -> dict[str, Json]:
    """Flavour → the specification of its pods."""
    return {
        found["metadata"]["labels"]["app.kubernetes.io/component"]: found["spec"]["template"]["spec"]
        for found in of_kind(objects, "DaemonSet")
    }


def configurations(objects: Sequence[Json]) -> dict[str, str]:
    """Flavour → the agent's configuration file."""
    return {
        found["metadata"]["labels"]["app.kubernetes.io/component"]: found["data"]["config.yaml"]
        for found in of_kind(objects, "ConfigMap")
        if "config.yaml" in found["data"]
    }


def host_mounts(pod: Json) -> Iterator[tuple[str, Json]]:
    """Each mount of a path of the host: that path, and the mount."""
    paths = {volume["name"]: volume["hostPath"]["path"] for volume in pod["volumes"] if "hostPath" in volume}
    for mount in pod["containers"][0]["volumeMounts"]:
        if mount["name"] in paths:
            yield paths[mount["name"]], mount


# Sets of values of which the render is kept under tests/golden/chart/.

MONITORED: Final[Json] = {
    "podMonitor": {
        "enabled": True,
        "labels": {"release": "prometheus"},
        "interval": "15s",
        "scrapeTimeout": "10s",
        "sampleLimit": 1_000_000,
        "common": {"relabelings": [{"action": "replace", "replacement": "east", "targetLabel": "cluster"}]},
        "raw": {"metricRelabelings": [{"action": "drop", "sourceLabels": ["__name__"], "regex": "DCGM_FI_PROF_.*"}]},
    },
}
NVIDIA: Final = merged(
    only("nvidia"),
    MONITORED,
    {
        "image": {"repository": "registry.example.com/accel-exporter", "tag": "1.2.3"},
        "imagePullSecrets": [{"name": "registry"}],
        "priorityClassName": "system-node-critical",
        "tolerations": [{"key": "dedicated", "operator": "Equal", "value": "training", "effect": "NoSchedule"}],
        "networkPolicy": {"enabled": True},
        "config": {"collectors": {"nvidia": {"expected_devices": 8, "bridge": {"max_bytes": 16_777_216}}}},
    },
)
UNPRIVILEGED: Final[Json] = merged(
    only("nvidia", "amd", "tpu"),
    {"config": {"attribution": {"kubernetes": {"enabled": False}}}, "serviceAccount": {"create": True}},
)
SECURED: Final[Json] = merged(
    only("nvidia"),
    {
        "serviceMonitor": {"enabled": True},
        "podMonitor": {
            "tlsConfig": {"ca": {"configMap": {"name": "ca", "key": "ca.crt"}}, "serverName": "accel-exporter"},
            "basicAuth": {
                "username": {"name": "scrape", "key": "user"},
                "password": {"name": "scrape", "key": "password"},
            },
        },
        "web": {"configSecret": "accel-web", "tls": True},
        "listenAddress": "[::]",
        "networkPolicy": {
            "enabled": True,
            "egress": [{"to": [{"ipBlock": {"cidr": "10.0.0.1/32"}}], "ports": [{"port": 443, "protocol": "TCP"}]}],
        },
    },
)
EVERYTHING: Final[Json] = merged(
    only("tpu", hostProcesses=True, hostNetwork=True, kernelLog=True, env={"TPU_NAME": "a"}),
    only("amd", privileged=True, hostMounts=[{"path": "/dev/dri"}, {"path": "/opt"}]),
    {
        "tpu": {"enabled": True},
        "image": {"digest": "sha256:" + "0" * 64},
        "fullnameOverride": "telemetry",
        "commonLabels": {"team": "platform"},
        "kubeletDirectory": "/var/lib/k0s/kubelet/",
        "podSecurityContext": {"seLinuxOptions": {"type": "spc_t"}},
        "securityContext": {"procMount": "Default"},
        "updateStrategy": {"type": "OnDelete", "rollingUpdate": None},
        "podAnnotations": {"example.com/a": "b"},
        "podLabels": {"example.com/c": "d"},
        "extraVolumes": [{"name": "scratch", "emptyDir": {}}],
        "extraVolumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
        "extraEnv": [{"name": "ACCEL_EXPORTER_LOG__LEVEL", "value": "debug"}],
        "serviceAccount": {"annotations": {"example.com/role": "reader"}},
        "service": {"enabled": True, "annotations": {"example.com/e": "f"}},
        "config": {"attribution": {"kubernetes": {"pods_from": "kubelet", "namespaces": True}}},
    },
)
CASES: Final[Mapping[str, Json]] = {
    "default": {},
    "nvidia": NVIDIA,
    "vendors": only(*VENDORS),
    "unprivileged": UNPRIVILEGED,
    "secured": SECURED,
    "everything": EVERYTHING,
}
