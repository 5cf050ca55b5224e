"""Where settings come from, which of them counts, and what the result looks like."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest
import yaml

from collectors.base import HostPaths
from exporter.catalogue import Option
from exporter.config import Config, ConfigError, Paths, expand
from exporter.config.build import model, unwrap
from exporter.config.load import load
from exporter.config.overlay import FLAGS, settings
from exporter.registry import catalogues

OPTIONS: Mapping[str, Mapping[str, Option]] = {
    "red": {
        "library": Option(type="str", default="libred.so.1", help="file"),
        "cache": Option(type="int", default=5, help="seconds", minimum=0, maximum=600),
        "ratio": Option(type="float", default=0.5, help="share"),
        "events": Option(type="bool", default=True, help="listen"),
        "watch": Option(type="list", default=["a"], help="what", choices=("a", "b")),
    },
    "blue": {},
}
EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "config.yaml"


def of(
    text: str | None = None,
    environ: Mapping[str, str] | None = None,
    flags: Mapping[str, object] | None = None,
    *,
    folder: Path | None = None,
) -> Config:
    path = None
    if text is not None:
        assert folder is not None
        path = folder / "config.yaml"
        path.write_text(text, encoding="utf-8")
    return load(path, environ or {}, flags or {}, OPTIONS)


def test_nothing_given_is_a_complete_configuration() -> None:
    config = of()
    assert config.listen == ("0.0.0.0:9859",)
    assert config.intervals.normal == 5.0
    assert config.schema.raw == "default"
    assert config.simulate.devices == {}
    assert config.paths.host == HostPaths()


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "---\n", "---\n...\n", "null\n", "{}\n"])
def test_a_file_that_sets_nothing_is_right(text: str, tmp_path: Path) -> None:
    assert of(text, folder=tmp_path) == of()


def test_a_section_whose_keys_are_all_commented_out_is_right(tmp_path: Path) -> None:
    text = "intervals:\n  # normal: 5\ncollectors:\n  red:\nsimulate:\n  devices:\n"
    assert of(text, folder=tmp_path) == of()


@pytest.mark.parametrize(
    ("file", "environ", "flags", "expected"),
    [
        (None, None, None, 5.0),
        (7, None, None, 7.0),
        (7, "8", None, 8.0),
        (7, "8", "9", 9.0),
        (7, None, "9", 9.0),
        (None, "8", None, 8.0),
        (None, "8", "9", 9.0),
        (None, None, "9", 9.0),
    ],
)
def test_flags_count_before_environment_before_file_before_defaults(
    file: int | None, environ: str | None, flags: str | None, expected: float, tmp_path: Path
) -> None:
    config = of(
        f"intervals: {{normal: {file}}}" if file else None,
        {"ACCEL_EXPORTER_INTERVALS__NORMAL": environ} if environ else {},
        {"interval": flags},
        folder=tmp_path,
    )
    assert config.intervals.normal == expected


def test_sections_merge_key_by_key_and_lists_are_replaced(tmp_path: Path) -> None:
    text = "listen: ['127.0.0.1:1', '127.0.0.1:2']\ncollectors: {red: {enabled: true, options: {cache: 9}}}"
    environ = {
        "ACCEL_EXPORTER_LISTEN": "127.0.0.1:3",
        "ACCEL_EXPORTER_COLLECTORS__RED__URL": "http://127.0.0.1:9",
        "ACCEL_EXPORTER_COLLECTORS__RED__OPTIONS__EVENTS": "false",
    }
    config = of(text, environ, folder=tmp_path)
    assert config.listen == ("127.0.0.1:3",)
    red = config.collectors["red"]
    assert (red.enabled, red.url) == (True, "http://127.0.0.1:9")
    assert red.options == {"library": "libred.so.1", "cache": 9, "ratio": 0.5, "events": False, "watch": ("a",)}


@pytest.mark.parametrize(
    ("variable", "text", "read"),
    [
        ("LISTEN", "127.0.0.1:1, [::1]:2", lambda c: c.listen == ("127.0.0.1:1", "[::1]:2")),
        ("NODE", "n-1", lambda c: c.node == "n-1"),
        ("LABELS__NODE", "False", lambda c: c.labels.node is False),
        ("LINKS", "each", lambda c: c.links == "each"),
        ("COLLECTION__DEADLINE", "2.5", lambda c: c.collection.deadline == 2.5),
        ("SCHEMA__RAW", "none", lambda c: c.schema.raw == "none"),
        ("SCHEMA__RAW", "A_1,B_*", lambda c: c.schema.raw == ("A_1", "B_*")),
        ("COLLECTORS__RED__ENABLED", "auto", lambda c: c.collectors["red"].enabled == "auto"),
        ("COLLECTORS__RED__ENABLED", "true", lambda c: c.collectors["red"].enabled is True),
        ("COLLECTORS__RED__EXPECTED_DEVICES", "8", lambda c: c.collectors["red"].expected_devices == 8),
        ("COLLECTORS__RED__EXPECTED_DEVICES", "", lambda c: c.collectors["red"].expected_devices is None),
        ("COLLECTORS__RED__OPTIONS__CACHE", "0", lambda c: c.collectors["red"].options["cache"] == 0),
        ("COLLECTORS__RED__OPTIONS__RATIO", "1", lambda c: c.collectors["red"].options["ratio"] == 1.0),
        ("COLLECTORS__RED__OPTIONS__WATCH", "b,a", lambda c: c.collectors["red"].options["watch"] == ("b", "a")),
        ("SIMULATE__DEVICES", "red=8, blue=2", lambda c: c.simulate.devices == {"red": 8, "blue": 2}),
        ("PATHS__LIBRARIES", "red=/a:/b", lambda c: c.paths.libraries == {"red": "/a:/b"}),
        (
            "ATTRIBUTION__KUBERNETES__POD_RESOURCES_SOCKET",
            "/k.sock",
            lambda c: c.attribution.kubernetes.pod_resources_socket == "/k.sock",
        ),
    ],
)
def test_a_variable_is_read_as_its_key_is_typed(variable: str, text: str, read: object) -> None:
    assert callable(read)
    assert read(of(environ={f"ACCEL_EXPORTER_{variable}": text}))


def test_simulate_flag_replaces_the_devices_of_the_file(tmp_path: Path) -> None:
    config = of("simulate: {devices: {blue: 4}, seed: 3}", flags={"simulate": "red=8"}, folder=tmp_path)
    assert config.simulate.devices == {"red": 8}
    assert config.simulate.seed == 3


@pytest.mark.parametrize("text", ["app,team", "app, team", "[app, team]", "[app,team]"])
def test_a_list_is_written_with_commas_or_as_in_a_file(text: str) -> None:
    assert of(flags={"set": [f"attribution.pod_labels={text}"]}).attribution.pod_labels == ("app", "team")


def test_set_flag_sets_any_key_that_a_text_can_set() -> None:
    config = of(flags={"set": ["log.level=debug", "collectors.red.options.cache=7"]})
    assert config.log.level == "debug"
    assert config.collectors["red"].options["cache"] == 7


def test_flags_that_were_not_given_set_nothing() -> None:
    assert of(flags=dict.fromkeys([*FLAGS, "set"])) == of()


def test_every_flag_sets_a_key_of_the_model() -> None:
    keys = {setting.key for setting in settings(OPTIONS)}
    assert {flag.key for flag in FLAGS.values()} <= keys


def test_variables_of_a_kubernetes_service_with_our_name_are_passed_over() -> None:
    links = {
        "ACCEL_EXPORTER_SERVICE_HOST": "10.96.1.2",
        "ACCEL_EXPORTER_SERVICE_PORT": "9859",
        "ACCEL_EXPORTER_SERVICE_PORT_METRICS": "9859",
        "ACCEL_EXPORTER_PORT": "tcp://10.96.1.2:9859",
        "ACCEL_EXPORTER_PORT_9859_TCP": "tcp://10.96.1.2:9859",
        "ACCEL_EXPORTER_PORT_9859_TCP_PROTO": "tcp",
        "ACCEL_EXPORTER_PORT_9859_TCP_PORT": "9859",
        "ACCEL_EXPORTER_PORT_9859_TCP_ADDR": "fd00::12",
        "ACCEL_EXPORTER_METRICS_SERVICE_HOST": "10.96.1.3",
        "ACCEL_EXPORTER_METRICS_PORT": "tcp://10.96.1.3:9859",
        "ACCEL_EXPORTER_CONFIG": "/etc/x.yaml",
        "PATH": "/bin",
    }
    assert of(environ=links) == of()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PORT", "9000"),
        ("SERVICE_HOST", "here"),
        ("SERVICE_PORT", "http"),
        ("PORT_9859_TCP", "9859"),
        ("METRICS_PORT", "1"),
    ],
)
def test_what_looks_like_such_a_variable_and_holds_something_else_is_told(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=f"environment variable ACCEL_EXPORTER_{name}: .*unknown variable"):
        of(environ={f"ACCEL_EXPORTER_{name}": value})


def test_variable_names_are_unique() -> None:
    names = [setting.variable for setting in settings(OPTIONS)]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("given", "environ", "expected"),
    [
        ("a", {"NODE_NAME": "b"}, "a"),
        ("", {"NODE_NAME": "b"}, "b"),
        ("", {}, socket.gethostname()),
        ("", {"NODE_NAME": ""}, socket.gethostname()),
        # What the environment holds is not checked by anybody: bytes that are no UTF-8, a name without end.
        ("", {"NODE_NAME": "a\udcff"}, "a\ufffd"),
        ("", {"NODE_NAME": "a" * 5000}, "a" * 253),
    ],
)
def test_the_node_is_the_setting_else_node_name_else_the_host(
    given: str, environ: Mapping[str, str], expected: str, tmp_path: Path
) -> None:
    assert of(f'node: "{given}"', environ, folder=tmp_path).node == expected


@pytest.mark.parametrize(
    ("text", "fast", "normal", "slow"),
    [
        ("{normal: 0.5}", 0.5, 0.5, 60.0),
        ("{normal: 120}", 1.0, 120.0, 120.0),
        ("{fast: 2, normal: 3, slow: 4}", 2.0, 3.0, 4.0),
        ("{slow: 5}", 1.0, 5.0, 5.0),
    ],
)
def test_intervals_that_are_not_set_follow_the_normal_one(
    text: str, fast: float, normal: float, slow: float, tmp_path: Path
) -> None:
    intervals = of(f"intervals: {text}", folder=tmp_path).intervals
    assert (intervals.fast, intervals.normal, intervals.slow) == (fast, normal, slow)
    assert [intervals.period(group) for group in ("fast", "normal", "slow")] == [fast, normal, slow]


def test_every_collector_has_an_entry_with_all_its_options() -> None:
    config = of()
    assert set(config.collectors) == {"red", "blue"}
    assert set(config.collectors["red"].options) == set(OPTIONS["red"])


def test_paths_follow_the_root_unless_they_are_set(tmp_path: Path) -> None:
    text = "paths: {root: /host/, proc: /p, dev: '{root}/d', libraries: {red: '{root}/lib:{opt}/red'}}"
    paths = of(text, folder=tmp_path).paths
    assert paths.host == HostPaths(
        proc="/p",
        sys="/host/sys",
        dev="/host/d",
        kmsg="/host/d/kmsg",
        run="/host/run",
        var_lib="/host/var/lib",
        etc="/host/etc",
        opt="/host/opt",
    )
    assert paths.libraries == {"red": "/host/lib:/host/opt/red"}


def test_expand_puts_every_directory_of_the_host_into_a_path() -> None:
    paths = HostPaths(
        proc="/f/p", sys="/f/s", dev="/f/d", kmsg="/f/k", run="/f/r", var_lib="/f/v", etc="/f/e", opt="/f/o"
    )
    template = "{proc} {sys} {dev} {kmsg} {run} {var_lib} {etc} {opt} plain"
    assert expand(template, paths) == "/f/p /f/s /f/d /f/k /f/r /f/v /f/e /f/o plain"


@pytest.mark.parametrize("template", ["{home}/x", "{}/x", "{proc.x}", "{0}"])
def test_expand_tells_which_placeholders_there_are(template: str) -> None:
    with pytest.raises(ValueError, match=r"expected one of \{proc\}, \{sys\}, \{dev\}"):
        expand(template, HostPaths())


def test_paths_without_loading_have_no_placeholders_either() -> None:
    assert Paths(root="/h").host.kmsg == "/h/dev/kmsg"


def test_the_result_is_frozen() -> None:
    config = of()
    with pytest.raises(AttributeError):
        config.node = "x"  # type: ignore[misc]


def test_what_was_loaded_loads_again_as_the_same(tmp_path: Path) -> None:
    first = load(EXAMPLE, {}, {}, {"nvidia": {}, "amd": {}})
    again = tmp_path / "again.yaml"
    again.write_text(yaml.safe_dump(msgspec.to_builtins(first)), encoding="utf-8")
    assert load(again, {}, {}, {"nvidia": {}, "amd": {}}) == first


def test_the_example_is_right_with_the_collectors_that_there_are() -> None:
    tables = {name: catalogue for name, (_, catalogue) in catalogues().items()}
    config = load(
        EXAMPLE,
        {},
        {},
        {name: table.collector.options for name, table in tables.items()},
        profiles={name: tuple(table.collector.profiles) for name, table in tables.items()},
        series={name: tuple(table.series) for name, table in tables.items()},
    )
    assert config.collectors["nvidia"].expected_devices == 8
    assert config.collectors["nvidia"].options.keys() == tables["nvidia"].collector.options.keys()


def test_the_result_fits_its_own_types() -> None:
    config = load(EXAMPLE, {}, {}, {"nvidia": {}, "amd": {}})
    assert msgspec.convert(msgspec.to_builtins(config), Config) == config


def test_the_example_says_the_defaults_where_it_is_not_an_example() -> None:
    example = load(EXAMPLE, {}, {}, {"nvidia": {}, "amd": {}})
    default = load(None, {}, {}, {"nvidia": {}, "amd": {}})
    for name in (
        "listen",
        "node",
        "labels",
        "links",
        "intervals",
        "collection",
        "schema",
        "simulate",
        "health",
        "http",
        "admin",
        "log",
    ):
        assert getattr(example, name) == getattr(default, name), name
    assert example.paths.host == default.paths.host
    assert [rule.device_class for rule in example.device_classes] == ["training", "inference"]


def test_the_example_has_every_key_of_the_model() -> None:
    tree = yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))
    assert missing(model(), tree, "") == []


def missing(kind: msgspec.inspect.Type, value: object, key: str) -> list[str]:
    inner, _ = unwrap(kind)
    found: list[str] = []
    if isinstance(inner, msgspec.inspect.StructType):
        assert isinstance(value, dict), key
        for field in inner.fields:
            if field.name not in value:
                found.append(f"{key}.{field.name}")
            else:
                found += missing(field.type, value[field.name], f"{key}.{field.name}")
    elif isinstance(inner, msgspec.inspect.DictType) and isinstance(inner.value_type, msgspec.inspect.StructType):
        assert isinstance(value, dict)
        # One entry with everything is enough.
        lists = [missing(inner.value_type, entry, key) for entry in value.values()]
        return min(lists, key=len)
    elif isinstance(inner, msgspec.inspect.VarTupleType) and isinstance(inner.item_type, msgspec.inspect.StructType):
        assert isinstance(value, list)
        lists = [missing(inner.item_type, entry, key) for entry in value]
        return min(lists, key=len)
    return found
