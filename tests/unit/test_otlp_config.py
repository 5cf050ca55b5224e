"""The standard variables, what counts more than them, and settings that do not fit together."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path

import pytest

from exporter.config import Config, ConfigError, otel
from exporter.config.load import load
from exporter.config.otlp import OtlpEndpoint, receivers
from exporter.otlp.grpc import address
from exporter.otlp.http import url

BASE = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}


def loaded(
    environ: Mapping[str, str] = {},
    text: str = "",
    tmp_path: Path | None = None,
    flags: Mapping[str, object] = {},
) -> Config:
    path = None
    if text:
        assert tmp_path is not None
        path = tmp_path / "config.yaml"
        path.write_text(text)
    return load(path, environ, flags, {})


def receiver(environ: Mapping[str, str], text: str = "", tmp_path: Path | None = None) -> OtlpEndpoint:
    (found,) = receivers(loaded(environ, text, tmp_path).otlp)
    return found


def problems(text: str, tmp_path: Path, environ: Mapping[str, str] = {}) -> str:
    with pytest.raises(ConfigError) as caught:
        loaded(environ, text, tmp_path)
    return str(caught.value)


def test_nothing_is_pushed_unless_something_says_where_to() -> None:
    assert receivers(loaded().otlp) == ()


# Endpoints, and the paths that they get


@pytest.mark.parametrize(
    ("environ", "posted"),
    [
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, "http://c:4318/v1/metrics"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318/"}, "http://c:4318/v1/metrics"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "https://c/otlp"}, "https://c/otlp/v1/metrics"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "https://c/otlp/"}, "https://c/otlp/v1/metrics"),
        ({"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://c:4318"}, "http://c:4318/"),
        ({"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://c:4318/x?y=1"}, "http://c:4318/x?y=1"),
        ({**BASE, "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://m:1/"}, "http://m:1/"),
        ({"ACCEL_EXPORTER_OTLP__ENDPOINT": "http://c:4318"}, "http://c:4318/v1/metrics"),
        ({"ACCEL_EXPORTER_OTLP__ENDPOINT": "http://c:4318/other"}, "http://c:4318/other"),
        ({"OTEL_METRICS_EXPORTER": "otlp"}, "http://localhost:4318/v1/metrics"),
    ],
)
def test_an_endpoint_gets_the_path_that_the_specification_wants(environ: Mapping[str, str], posted: str) -> None:
    assert url(receiver(environ)) == posted


@pytest.mark.parametrize(
    ("endpoint", "insecure", "target"),
    [
        ("http://c:4317", False, ("c:4317", False)),
        ("https://c:4317", True, ("c:4317", True)),
        ("https://c", False, ("c:443", True)),
        ("http://c", False, ("c:80", False)),
        ("http://[::1]:4317/ignored", False, ("[::1]:4317", False)),
        ("c:4317", False, ("c:4317", True)),
        ("c:4317", True, ("c:4317", False)),
        ("unix:/run/otlp.sock", False, ("unix:/run/otlp.sock", False)),
    ],
)
def test_grpc_connects_as_the_scheme_says_else_as_insecure_does(
    endpoint: str, insecure: bool, target: tuple[str, bool]
) -> None:
    assert address(OtlpEndpoint(endpoint=endpoint, insecure=insecure, protocol="grpc")) == target


def test_grpc_has_a_port_of_its_own() -> None:
    found = receiver({"OTEL_METRICS_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"})
    assert address(found) == ("localhost:4317", False)


# The other variables


def test_every_standard_variable_sets_its_key() -> None:
    found = loaded(
        {
            **BASE,
            "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
            "OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer%20a%3Db, x-team = gpu%2C1 ",
            "OTEL_EXPORTER_OTLP_TIMEOUT": "2500",
            "OTEL_EXPORTER_OTLP_COMPRESSION": "none",
            "OTEL_EXPORTER_OTLP_CERTIFICATE": "/etc/ca.pem",
            "OTEL_EXPORTER_OTLP_CLIENT_KEY": "/etc/key.pem",
            "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE": "/etc/cert.pem",
            "OTEL_EXPORTER_OTLP_INSECURE": "TRUE",
            "OTEL_METRIC_EXPORT_INTERVAL": "15000",
            "OTEL_METRIC_EXPORT_TIMEOUT": "30000",
        }
    ).otlp
    (one,) = receivers(found)
    assert one.protocol == "grpc"
    assert one.headers == {"authorization": "Bearer a=b", "x-team": "gpu,1"}
    assert (one.timeout, one.interval, found.give_up_after) == (2.5, 15.0, 30.0)
    assert one.compression == "none"
    assert (one.certificate, one.client_key, one.client_certificate) == ("/etc/ca.pem", "/etc/key.pem", "/etc/cert.pem")
    assert one.insecure is True


@pytest.mark.parametrize(
    ("name", "general", "special", "key", "value"),
    [
        ("PROTOCOL", "grpc", "http/protobuf", "protocol", "http/protobuf"),
        ("HEADERS", "a=1", "b=2", "headers", {"b": "2"}),
        ("TIMEOUT", "1000", "2000", "timeout", 2.0),
        ("COMPRESSION", "gzip", "none", "compression", "none"),
        ("CERTIFICATE", "/a", "/b", "certificate", "/b"),
        ("INSECURE", "true", "false", "insecure", False),
    ],
)
def test_the_variable_for_metrics_counts_more_than_the_general_one(
    name: str, general: str, special: str, key: str, value: object
) -> None:
    environ = {**BASE, f"OTEL_EXPORTER_OTLP_{name}": general, f"OTEL_EXPORTER_OTLP_METRICS_{name}": special}
    assert getattr(receiver(environ), key) == value


@pytest.mark.parametrize(
    ("environ", "text", "flags", "timeout"),
    [
        ({}, "otlp: {endpoint: http://c}", {}, 10.0),
        ({"OTEL_EXPORTER_OTLP_TIMEOUT": "2000"}, "otlp: {endpoint: http://c}", {}, 2.0),
        ({"OTEL_EXPORTER_OTLP_TIMEOUT": "2000"}, "otlp: {endpoint: http://c, timeout: 3}", {}, 3.0),
        (
            {"OTEL_EXPORTER_OTLP_TIMEOUT": "2000", "ACCEL_EXPORTER_OTLP__TIMEOUT": "4"},
            "otlp: {endpoint: http://c, timeout: 3}",
            {},
            4.0,
        ),
        (
            {"OTEL_EXPORTER_OTLP_TIMEOUT": "2000", "ACCEL_EXPORTER_OTLP__TIMEOUT": "4"},
            "otlp: {endpoint: http://c, timeout: 3}",
            {"set": ["otlp.timeout=5"]},
            5.0,
        ),
    ],
)
def test_flags_count_more_than_our_variables_these_than_the_file_and_the_file_than_the_standard_variables(
    environ: Mapping[str, str], text: str, flags: Mapping[str, object], timeout: float, tmp_path: Path
) -> None:
    (found,) = receivers(loaded(environ, text, tmp_path, flags).otlp)
    assert found.timeout == timeout


def test_a_flag_names_the_endpoint() -> None:
    (found,) = receivers(loaded(flags={"otlp-endpoint": "http://flag:4318"}).otlp)
    assert found.endpoint == "http://flag:4318"


@pytest.mark.parametrize(
    "environ",
    [
        {**BASE, "OTEL_SDK_DISABLED": "true"},
        {**BASE, "OTEL_METRICS_EXPORTER": "none"},
        {**BASE, "OTEL_METRICS_EXPORTER": "prometheus,console"},
    ],
)
def test_the_variables_that_switch_off_do_so_unless_the_file_switches_on(
    environ: Mapping[str, str], tmp_path: Path
) -> None:
    assert receivers(loaded(environ).otlp) == ()
    assert receivers(loaded(environ, "otlp: {enabled: true}", tmp_path).otlp)


def test_of_several_exporters_otlp_counts() -> None:
    assert receiver({**BASE, "OTEL_METRICS_EXPORTER": "console, otlp"}).endpoint


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "10s"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "0"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "99999999999"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "zstd"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "secret-without-equals"),
        ("OTEL_EXPORTER_OTLP_INSECURE", "yes"),
        ("OTEL_EXPORTER_OTLP_CERTIFICATE", "relative.pem"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "-5"),
        ("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "delta"),
    ],
)
def test_a_standard_variable_that_cannot_be_used_is_a_warning_without_its_value(name: str, value: str) -> None:
    environ = {**BASE, name: value}
    found = loaded(environ).otlp
    (warning,) = otel.warnings(environ, found)
    assert name in warning
    assert "secret" not in warning
    assert receivers(found) == receivers(loaded(BASE).otlp)


def test_nothing_is_said_of_variables_where_nothing_is_pushed() -> None:
    environ = {"OTEL_EXPORTER_OTLP_TIMEOUT": "10s"}
    assert otel.warnings(environ, loaded(environ).otlp) == ()


# The file


def test_several_receivers_have_settings_of_their_own(tmp_path: Path) -> None:
    text = """
otlp:
  endpoint: http://a:4318
  timeout: 3
  headers: {x-tenant: one}
  endpoints:
    - {endpoint: "https://b", schema: raw}
    - {endpoint: "c:4317", protocol: grpc, exclude: ["accel_pcie_*"]}
"""
    first, second, third = receivers(loaded({}, text, tmp_path).otlp)
    assert (first.endpoint, first.timeout, first.schema) == ("http://a:4318", 3.0, "common")
    # What is for one receiver is not given to another: headers are secrets.
    assert (second.endpoint, second.timeout, second.schema, second.headers) == ("https://b", 10.0, "raw", {})
    assert (third.protocol, third.exclude) == ("grpc", ("accel_pcie_*",))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("otlp: {endpoint: 'c:4317'}", "otlp.endpoint"),
        ("otlp: {endpoint: ftp://c}", "otlp.endpoint"),
        ("otlp: {endpoints: [{timeout: 3}]}", "otlp.endpoints[0].endpoint"),
        ("otlp: {endpoint: http://c, client_key: /k}", "client_certificate beside it"),
        ("otlp: {endpoint: http://c, client_certificate: /c}", "client_key beside it"),
        ("otlp: {endpoint: http://c, headers: {'a b': x}}", "names of letters"),
        ("otlp: {endpoint: http://c, headers: {a: é}}", "in ASCII"),
        ("otlp: {endpoint: http://c, protocol: http/json}", "otlp.protocol"),
        ("otlp: {endpoint: http://c, interval: 0}", "otlp.interval"),
        ("otlp: {endpoint: http://c, exclude: ['a b']}", "a metric's name, or a pattern"),
    ],
)
def test_what_does_not_fit_is_told_with_its_key(text: str, words: str, tmp_path: Path) -> None:
    assert words in problems(text, tmp_path)


def test_a_header_is_a_secret(tmp_path: Path) -> None:
    text = "otlp: {endpoint: http://c, headers: {authorization: ['hush']}, proxy: 'http://u:hush@[', endpoints: 7}"
    assert "hush" not in problems(text, tmp_path)


def test_grpc_without_its_library_is_told_with_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert "pip install grpcio" in problems("otlp: {endpoint: http://c, protocol: grpc}", tmp_path)
    found = problems("otlp: {endpoints: [{endpoint: http://c, protocol: grpc}]}", tmp_path)
    assert "otlp.endpoints[0].protocol" in found
