"""Whatever is given, the loader ends soon, with a configuration or with a ConfigError."""

from __future__ import annotations

import re
import time
import tracemalloc
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import inspect as kinds

from exporter.catalogue import Option
from exporter.config import Config, ConfigError
from exporter.config.build import model, unwrap
from exporter.config.load import load
from exporter.config.overlay import settings as text_settings
from exporter.config.yaml import parse

OPTIONS: Mapping[str, Mapping[str, Option]] = {
    "red": {
        "cache": Option(type="int", default=5, help="seconds", minimum=0, maximum=600),
        "ratio": Option(type="float", default=0.5, help="share"),
        "events": Option(type="bool", default=True, help="listen"),
        "mode": Option(type="str", default="x", help="how", choices=("x", "y")),
        "watch": Option(type="list", default=["a"], help="what"),
    },
    "blue": {},
}
PLENTY = settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)


def load_text(folder: Path, text: str | bytes) -> Config | None:
    path = folder / "c.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass"))
    return attempt(path, {}, {})


def attempt(path: Path | None, environ: Mapping[str, str], flags: Mapping[str, object]) -> Config | None:
    try:
        config = load(path, environ, flags, OPTIONS)
    except ConfigError as error:
        check_told(error)
        return None
    # What was accepted fits the declared types and bounds.
    assert msgspec.convert(msgspec.to_builtins(config), Config) == config
    assert "{" not in repr(config.paths.host)
    return config


def check_told(error: ConfigError) -> None:
    assert error.problems
    assert str(error).encode("utf-8")
    assert all(str(problem).isprintable() for problem in error.problems)


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(
        ["auto", "true", "yes", "each", "127.0.0.1:1", "http://h/", "{root}/x", "/x", "default", "", "5s", ".nan"]
    )
)


def keys() -> list[str]:
    found: set[str] = set()

    def collect(kind: kinds.Type) -> None:
        inner, _ = unwrap(kind)
        if isinstance(inner, kinds.StructType):
            for field in inner.fields:
                found.add(field.name)
                collect(field.type)
        elif isinstance(inner, kinds.DictType):
            collect(inner.value_type)
        elif isinstance(inner, kinds.VarTupleType):
            collect(inner.item_type)

    collect(model())
    return sorted(found)


KEYS = st.sampled_from([*keys(), *OPTIONS, *OPTIONS["red"]])
JUNK = st.recursive(
    SCALARS,
    lambda inside: (
        st.lists(inside, max_size=4)
        | st.dictionaries(KEYS | st.text(max_size=6) | st.integers() | st.booleans(), inside, max_size=5)
    ),
    max_leaves=25,
)


@PLENTY
@given(JUNK)
def test_any_values_load_or_are_told(tmp_path: Path, junk: Any) -> None:
    load_text(tmp_path, yaml.safe_dump(junk, allow_unicode=True))


@PLENTY
@given(st.text() | st.text(alphabet="abc:-[]{},&*!|>'\"%@`#? \t\n0.~=<", max_size=80))
def test_any_text_loads_or_is_told(tmp_path: Path, text: str) -> None:
    load_text(tmp_path, text)


@PLENTY
@given(st.binary(max_size=200))
def test_any_bytes_load_or_are_told(tmp_path: Path, raw: bytes) -> None:
    load_text(tmp_path, raw)


VARIABLES = [setting.variable for setting in text_settings(OPTIONS)]


@PLENTY
@given(
    st.dictionaries(
        st.sampled_from(VARIABLES) | st.text(max_size=9).map(lambda text: f"ACCEL_EXPORTER_{text}"),
        st.text(max_size=20)
        | st.sampled_from(["5", "true", "red=1", "red=1,blue=x", "a,b", "", "=", ",", "red=", "/x", "auto"]),
        max_size=6,
    )
)
def test_any_environment_loads_or_is_told(environ: dict[str, str]) -> None:
    attempt(None, environ, {})


@PLENTY
@given(
    st.dictionaries(
        st.sampled_from(["listen", "node", "interval", "raw", "simulate", "root", "log_level", "set"])
        | st.text(max_size=9),
        JUNK | st.lists(st.text(max_size=20)) | st.just(object()),
        max_size=5,
    )
)
def test_any_flags_load_or_are_told(flags: dict[str, object]) -> None:
    attempt(None, {}, flags)


@PLENTY
@given(JUNK)
def test_the_file_is_read_as_yaml_means_it(junk: Any) -> None:
    """Against PyYAML's own loader, for what both take."""
    text = yaml.safe_dump(junk, allow_unicode=True)
    try:
        tree, problems = parse(text, "x")
    except ConfigError:
        return
    oracle = yaml.safe_load(text)
    if problems or oracle is None:
        return
    assert same(plain(tree), oracle), (plain(tree), oracle)


def same(mine: Any, theirs: Any) -> bool:
    if isinstance(theirs, dict):
        return (
            isinstance(mine, dict)
            and mine.keys() == theirs.keys()
            and all(same(mine[key], theirs[key]) for key in theirs)
        )
    if isinstance(theirs, list):
        return isinstance(mine, list) and len(mine) == len(theirs) and all(map(same, mine, theirs))
    if isinstance(theirs, float) and theirs != theirs:
        return bool(mine != mine)
    if isinstance(mine, float) and isinstance(theirs, str):
        # YAML 1.2 takes an exponent without a point or a sign, such as 1e3; PyYAML's 1.1 reads a string.
        return re.fullmatch(r"[-+]?[0-9.]+[eE][-+]?[0-9]+", theirs) is not None and mine == float(theirs)
    return type(mine) is type(theirs) and bool(mine == theirs)


def plain(node: Any) -> Any:
    if isinstance(node.value, dict):
        return {key: plain(value) for key, value in node.value.items()}
    if isinstance(node.value, tuple):
        return [plain(value) for value in node.value]
    return node.value


def bomb(depth: int) -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [" + ", ".join([f"*a{n - 1}"] * 9) + "]" for n in range(1, depth)]
    return "\n".join(lines)


LARGE = 1_000_000
HOSTILE = [
    bomb(30),
    "[" * LARGE,
    "{" * LARGE,
    "- " * (LARGE // 2),
    "? " * (LARGE // 2),
    "a: " * (LARGE // 3),
    "? {" * (LARGE // 3),
    "\n".join(f"k{number}: 1" for number in range(80_000)),
    "listen: [" + "x," * (LARGE // 2),
    "node: " + "a" * LARGE,
    "? " + "a" * LARGE + "\n: 1",
    "node: " + "9" * LARGE,
    "node: '" + "9." * (LARGE // 2),
    "collectors: {red: {url: '" + "a:@?" * (LARGE // 4) + "'}}",
    "device_classes: [{device_class: a, model: '" + "(" * (LARGE // 2) + "'}]",
    "node: " + "a:" * 2000,
    "&" + "a" * LARGE,
    "\n" * (LARGE // 4),
]


@pytest.mark.parametrize("text", HOSTILE, ids=[text[:20] for text in HOSTILE])
def test_hostile_files_cost_little_time(text: str, tmp_path: Path) -> None:
    began = time.process_time()
    load_text(tmp_path, text)
    # PyYAML reads a megabyte in some seconds; what has no bound takes minutes.
    assert time.process_time() - began < 30


@pytest.mark.parametrize("text", [HOSTILE[0], HOSTILE[7], "[" * 100_000], ids=["aliases", "keys", "depth"])
def test_hostile_files_cost_little_memory(text: str, tmp_path: Path) -> None:
    tracemalloc.start()
    try:
        load_text(tmp_path, text)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 64 << 20
