"""The node's attributes, and how the environment adds to them; opentelemetry-sdk is the oracle for its variables."""

from __future__ import annotations

import importlib.metadata
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from opentelemetry.sdk.resources import Resource as Detected
from opentelemetry.sdk.resources import ResourceDetector

from exporter.config import Config, Paths
from exporter.config.otlp import Otlp
from exporter.otlp import resource, wire
from exporter.otlp.resource import Resources, detect
from tests.otlp import parse, value_of

VARIABLES = ("OTEL_RESOURCE_ATTRIBUTES", "OTEL_SERVICE_NAME", "OTEL_EXPERIMENTAL_RESOURCE_DETECTORS")
Environ = Callable[..., dict[str, str]]


@pytest.fixture
def environ(monkeypatch: pytest.MonkeyPatch) -> Environ:
    """Sets the process's variables, which the SDK reads, to just these."""
    for name in (*VARIABLES, "KUBERNETES_SERVICE_HOST", "NODE_NAME"):
        monkeypatch.delenv(name, raising=False)

    def put(**variables: str) -> dict[str, str]:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        return variables

    return put


def config(tmp_path: Path, **otlp: object) -> Config:
    return Config(node="node-1", paths=Paths(etc=str(tmp_path)), otlp=Otlp(**otlp))  # type: ignore[arg-type]


def test_without_any_word_from_the_environment_the_node_is_told(tmp_path: Path, environ: Environ) -> None:
    (tmp_path / "machine-id").write_text("0123abcd\n")
    found = detect(config(tmp_path), environ())
    assert {name: value for name, value in found.items() if name != "service.version"} == {
        "service.name": "accel-exporter",
        "service.instance.id": "node-1",
        "host.name": "node-1",
        "host.id": "0123abcd",
    }


def test_in_kubernetes_the_node_has_its_name_there(tmp_path: Path, environ: Environ) -> None:
    found = detect(config(tmp_path), environ(KUBERNETES_SERVICE_HOST="10.0.0.1"))
    assert found["k8s.node.name"] == "node-1"


def test_the_id_in_a_containers_image_is_not_taken_for_the_hosts(tmp_path: Path, environ: Environ) -> None:
    known = msgspec.structs.replace(config(tmp_path), paths=Paths(etc="/etc"))
    assert "host.id" not in detect(known, environ(KUBERNETES_SERVICE_HOST="10.0.0.1"))


@pytest.mark.parametrize(
    "variables",
    [
        {"OTEL_RESOURCE_ATTRIBUTES": "k8s.cluster.name=c%201,deployment.environment.name=prod"},
        {"OTEL_RESOURCE_ATTRIBUTES": " a = 1 ,b=x=y,service.name=other"},
        {"OTEL_RESOURCE_ATTRIBUTES": "service.name=other", "OTEL_SERVICE_NAME": "mine"},
        {"OTEL_RESOURCE_ATTRIBUTES": "broken,service.instance.id=i-1,host.name=h"},
        {"OTEL_SERVICE_NAME": "mine"},
    ],
)
def test_the_variables_mean_what_the_sdk_takes_them_for(
    variables: dict[str, str], tmp_path: Path, environ: Environ
) -> None:
    found = detect(config(tmp_path), environ(**variables))
    expected = dict(Detected.create({}).attributes)
    # What the SDK makes up where the variables say nothing.
    made_up = {"telemetry.sdk.name", "telemetry.sdk.language", "telemetry.sdk.version"}
    if "service.instance.id" not in variables.get("OTEL_RESOURCE_ATTRIBUTES", ""):
        made_up.add("service.instance.id")
    if str(expected["service.name"]).startswith("unknown_service"):
        made_up.add("service.name")
    assert {name: value for name, value in expected.items() if name not in made_up}.items() <= found.items()


def test_the_configuration_counts_more_than_the_environment(tmp_path: Path, environ: Environ) -> None:
    variables = environ(OTEL_RESOURCE_ATTRIBUTES="team=a,k8s.cluster.name=c1")
    found = detect(config(tmp_path, resource_attributes={"team": "b"}), variables)
    assert (found["team"], found["k8s.cluster.name"]) == ("b", "c1")


# Detectors


class Found(ResourceDetector):
    def detect(self) -> Detected:
        return Detected({"cloud.region": "eu-1", "host.name": "container-7", "host.id": "i-9", "host.ip": ["a", "b"]})


class Failing(ResourceDetector):
    def detect(self) -> Detected:
        raise OSError("no such service")


RELEASED = threading.Event()


class Hanging(ResourceDetector):
    def detect(self) -> Detected:
        RELEASED.wait()
        return Detected({"cloud.region": "too late"})


@pytest.fixture
def offered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Three detectors, as other packages would offer them."""
    points = [
        importlib.metadata.EntryPoint(name, f"{__name__}:{kind}", "opentelemetry_resource_detector")
        for name, kind in (("cloud", "Found"), ("failing", "Failing"), ("hanging", "Hanging"), ("absent", "Nowhere"))
    ]
    monkeypatch.setattr(resource, "entry_points", lambda group: points)
    RELEASED.clear()
    yield
    RELEASED.set()


@pytest.mark.usefixtures("offered")
def test_detectors_add_what_they_find_but_a_container_is_not_the_host(tmp_path: Path, environ: Environ) -> None:
    (tmp_path / "machine-id").write_text("0123abcd\n")
    found = detect(config(tmp_path), environ(OTEL_EXPERIMENTAL_RESOURCE_DETECTORS="otel, cloud"))
    assert found["cloud.region"] == "eu-1"
    assert found["host.ip"] == ("a", "b")
    assert found["host.name"] == "node-1"
    assert found["host.id"] == "i-9", "a cloud's instance has a better id than the machine's"


@pytest.mark.usefixtures("offered")
@pytest.mark.parametrize("bad", ["failing", "absent", "unheard-of"])
def test_a_detector_that_fails_takes_nothing_along(
    bad: str, tmp_path: Path, environ: Environ, caplog: pytest.LogCaptureFixture
) -> None:
    found = detect(config(tmp_path), environ(OTEL_EXPERIMENTAL_RESOURCE_DETECTORS=f"{bad},cloud"))
    assert found["cloud.region"] == "eu-1"
    assert bad.capitalize() in caplog.text or bad in caplog.text


@pytest.mark.usefixtures("offered")
def test_a_detector_that_hangs_is_not_waited_for(
    tmp_path: Path, environ: Environ, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(resource, "DETECTION_TIME", 0.2)
    began = time.monotonic()
    found = detect(config(tmp_path), environ(OTEL_EXPERIMENTAL_RESOURCE_DETECTORS="hanging,cloud"))
    assert time.monotonic() - began < 5
    assert found["cloud.region"] == "eu-1"
    assert "Hanging" in caplog.text


def test_attributes_keep_their_types_on_the_wire() -> None:
    given: dict[str, wire.Value] = {"a": "x", "b": True, "c": -7, "d": 0.5, "e": ("p", 1), "f": ""}
    (message,) = parse(
        b"\x0a" + wire.varint(len(Resources(given).node.encoded)) + Resources(given).node.encoded
    ).resource_metrics
    assert {pair.key: value_of(pair.value) for pair in message.resource.attributes} == {**given, "e": ["p", 1]}
