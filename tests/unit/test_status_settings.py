"""The configuration that everyone may see: no secret and no place of a file gets through, whatever key it stands at."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import pytest
from msgspec import inspect as kinds

from exporter.config import CollectorConfig, Config, Http, Paths
from exporter.config.build import model, unwrap
from exporter.config.collectors import Bridge
from exporter.status.settings import HIDDEN, settings, shown_value

CANARY = "canary7f3a"


@pytest.mark.parametrize(
    ("key", "value", "shown"),
    [
        ("intervals.normal", 5.0, 5.0),
        ("node", "node-7", "node-7"),
        ("listen", ("0.0.0.0:9859", "[::]:9859"), ("0.0.0.0:9859", "[::]:9859")),
        ("listen", ("unix:/run/agent.sock",), ("unix:(path)",)),
        ("paths.proc", "{root}/proc", "(path)"),
        ("paths.libraries.acme", "/opt/a:/opt/b", "(path):(path)"),
        ("schema.raw_counters", "/etc/agent/counters.csv", "(path)"),
        ("schema.raw_counters", "", ""),
        ("attribution.tenant_from[0].key", "capsule.clastix.io/tenant", "capsule.clastix.io/tenant"),
        ("attribution.kubernetes.own_pods", ("monitoring/dcgm-*",), ("monitoring/dcgm-*",)),
        ("http.max_header_bytes", 8192, 8192),
        ("http.header_timeout", 10.0, 10.0),
        ("otlp.endpoints[0].headers.Authorization", "Bearer abc", HIDDEN),
        ("otlp.endpoints[0].headers.X-Scope", "abc", HIDDEN),
        ("otlp.endpoints[0].client_key", "/etc/key.pem", HIDDEN),
        ("collectors.acme.bridge.bearer_token_file", "", ""),
        ("collectors.acme.options.password", "hunter2", HIDDEN),
        ("collectors.acme.options.api_key", "k", HIDDEN),
        ("collectors.acme.options.pin_token", 1234, HIDDEN),
        ("collectors.acme.options.use_token", True, True),
        ("collectors.acme.options.command", "acme --socket=/run/acme.sock -v", "acme --socket=(path) -v"),
        ("collectors.acme.options.home", "~/acme", "(path)"),
        ("collectors.acme.url", "http://user:pw@host:9400/a/b?token=x", "http://…@host:9400/…"),
        ("collectors.acme.url", "https://[::1]:9400", "https://[::1]:9400"),
        ("collectors.acme.url", "http://127.0.0.1:9400/metrics", "http://127.0.0.1:9400/…"),
        ("collectors.acme.options.where", "unix:///run/x.sock", "unix:///…"),
        ("collectors.acme.options.where", "http://[broken", HIDDEN),
    ],
)
def test_a_value_is_shown_without_secrets_and_places(key: str, value: Any, shown: Any) -> None:
    assert shown_value(key, value) == shown


def poisoned(kind: kinds.StructType, path: str = "") -> Iterator[tuple[str, Any]]:
    """Key of each text of the model that is a path, → the same with a path in it that nobody may see."""
    for field in kind.fields:
        inner, extra = unwrap(field.type)
        here = f"{path}.{field.name}".lstrip(".")
        check = extra.get("check")
        if isinstance(inner, kinds.StructType):
            yield from poisoned(inner, here)
        elif isinstance(inner, kinds.VarTupleType):
            item, more = unwrap(inner.item_type)
            if isinstance(item, kinds.StructType):
                yield from poisoned(item, f"{here}[0]")
            elif (below := more.get("check")) is not None and below.accepts(f"/{CANARY}/x"):
                yield here, (f"/{CANARY}/x",)
        elif isinstance(inner, kinds.DictType):
            below_kind, _ = unwrap(inner.value_type)
            if isinstance(below_kind, kinds.StructType):
                yield from poisoned(below_kind, f"{here}.name")
        elif check is not None and check.accepts(f"/{CANARY}/x"):
            yield here, f"/{CANARY}/x"


POISONED = list(poisoned(model()))


@pytest.mark.parametrize(("key", "value"), POISONED, ids=[key for key, _ in POISONED])
def test_no_setting_that_is_a_path_is_shown(key: str, value: Any) -> None:
    assert CANARY not in str(shown_value(key, value))


def test_settings_that_are_paths_were_found() -> None:
    keys = [key for key, _ in POISONED]
    assert {"paths.root", "schema.raw_counters", "attribution.kubernetes.token_file"} <= set(keys)
    assert len(keys) > 15


def by_key(config: Config, default: Config | None = None) -> Mapping[str, Any]:
    return {each.key: each for each in settings(config, default or Config())}


def test_every_key_is_told_with_whether_it_is_at_its_default() -> None:
    config = Config(
        http=Http(max_connections=7),
        collectors={
            "acme": CollectorConfig(
                url="http://u:p@127.0.0.1:1/x", options={"secret": "s3cr3t"}, bridge=Bridge(ca_file="/etc/ca.pem")
            )
        },
    )
    found = by_key(config)
    assert (found["http.max_connections"].value, found["http.max_connections"].default) == (7, False)
    assert (found["http.idle_timeout"].value, found["http.idle_timeout"].default) == (75.0, True)
    assert found["collectors.acme.options.secret"].value == HIDDEN
    assert found["collectors.acme.options.secret"].hidden
    assert not found["http.max_connections"].hidden
    assert not found["listen"].hidden
    assert len(found) > 60
    text = msgspec.json.encode(list(found.values())).decode()
    for secret in ("s3cr3t", "u:p", "/etc/ca.pem"):
        assert secret not in text


def test_what_a_node_has_without_any_configuration_is_its_default() -> None:
    found = by_key(Config(paths=Paths(proc="/proc"), node="n"), Config(paths=Paths(proc="/proc"), node="n"))
    assert [key for key, each in found.items() if not each.default] == []
