"""Every error names the place, the key, the value and what was expected; all of them come at once."""

# ruff: noqa: E501 - the tables are read by their columns
from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from exporter.catalogue import Option
from exporter.cli import main
from exporter.config import ConfigError
from exporter.config.load import load
from exporter.config.problems import SHOWN

OPTIONS: Mapping[str, Mapping[str, Option]] = {
    "red": {
        "cache": Option(type="int", default=5, help="seconds", minimum=0, maximum=600),
        "least": Option(type="float", default=5, help="seconds", minimum=0),
        "events": Option(type="bool", default=True, help="listen"),
        "mode": Option(type="str", default="x", help="how", choices=("x", "y")),
        "watch": Option(type="list", default=["a"], help="what", choices=("a", "b")),
    },
    "blue": {},
}
SERIES = {"red": ("red_power", "red_power_limit", "red_temp"), "blue": ("blue_power",)}
PROFILES = {"red": ("default", "old")}


def problems(
    tmp_path: Path, text: str, environ: Mapping[str, str] | None = None, flags: Mapping[str, object] | None = None
) -> list[str]:
    path = tmp_path / "c.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load(path, environ or {}, flags or {}, OPTIONS, profiles=PROFILES, series=SERIES)
    return [str(problem).replace(f"{path}:", "c.yaml:") for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        # Wrong types
        ("links: both", "c.yaml:1: links: got \"both\", expected one of each, sum"),
        ("labels: {node: yes}", "c.yaml:1: labels.node: got \"yes\", expected true or false"),
        ("labels: {node: 1}", "c.yaml:1: labels.node: got 1, expected true or false"),
        ("intervals: {normal: true}", "c.yaml:1: intervals.normal: got true, expected a number from 0.1 to 3600 (seconds)"),
        ("intervals: {normal: 5s}", 'c.yaml:1: intervals.normal: got "5s", expected a number from 0.1 to 3600 (seconds)'),
        ("intervals: {normal: '5'}", 'c.yaml:1: intervals.normal: got "5", expected a number from 0.1 to 3600 (seconds)'),
        ("intervals: {normal: 1:30}", 'c.yaml:1: intervals.normal: got "1:30", expected a number from'),
        ("intervals:\n  normal:\n", "c.yaml:2: intervals.normal: got null, expected a number from 0.1 to 3600 (seconds)"),
        ("\nintervals:\n  normal: .nan\n", "c.yaml:3: intervals.normal: got nan, expected a number from 0.1 to 3600"),
        ("intervals: {normal: .inf}", "c.yaml:1: intervals.normal: got inf, expected a number from 0.1 to 3600"),
        ("intervals: {normal: -.inf}", "c.yaml:1: intervals.normal: got -inf, expected a number from 0.1 to 3600"),
        ("intervals: {normal: 1e999}", "c.yaml:1: intervals.normal: got inf, expected a number from 0.1 to 3600"),
        ("intervals: {normal: 0.09}", "c.yaml:1: intervals.normal: got 0.09, expected a number from 0.1 to 3600"),
        ("intervals: {normal: 3600.1}", "c.yaml:1: intervals.normal: got 3600.1, expected a number from 0.1 to 3600"),
        ("http: {max_connections: 1.5}", "c.yaml:1: http.max_connections: got 1.5, expected a whole number from 1 to 100000"),
        ("http: {max_connections: 0}", "c.yaml:1: http.max_connections: got 0, expected a whole number from 1 to 100000"),
        ("http: {max_connections: 9" + "9" * 30 + "}", "c.yaml:1: http.max_connections: got 9999999999999999999999999999999, expected a whole"),
        ("node: 12", "c.yaml:1: node: got 12, expected a host's name, or nothing, as text: put it in quotes"),
        ("node: [a]", "c.yaml:1: node: got a list, expected a host's name, or nothing"),
        ('node: "a\\0b"', 'c.yaml:1: node: got "a\\u0000b", expected a host\'s name, or nothing'),
        ('node: "\\ud800"', 'c.yaml:1: node: got "\\ud800", expected a host\'s name, or nothing'),
        ("intervals: 5", "c.yaml:1: intervals: got 5, expected a mapping with any of the keys fast, normal, slow"),
        ("intervals: [5]", "c.yaml:1: intervals: got a list, expected a mapping with any of the keys fast, normal, slow"),
        ("collectors: red", 'c.yaml:1: collectors: got "red", expected a mapping of collectors\' names, each to'),
        ("device_classes: {a: b}", "c.yaml:1: device_classes: got a mapping, expected a list (at most 1000) of: a mapping"),
        ("- a\n- b", "c.yaml:1: (document): got a list, expected a mapping with any of the keys listen, node, labels"),
        ("just text", 'c.yaml:1: (document): got "just text", expected a mapping with any of the keys listen'),
        # Unknown keys
        ("intervalls: {normal: 5}", "c.yaml:1: intervalls: unknown key (its value: a mapping), expected intervals (one of"),
        ("node: a\nintervals:\n  norml: 5", "c.yaml:3: intervals.norml: unknown key (its value: 5), expected normal (one of"),
        ("telemetry: {}", "c.yaml:1: telemetry: unknown key (its value: a mapping), expected one of listen, node"),
        ("collectors: {rde: {}}", "c.yaml:1: collectors.rde: unknown key (its value: a mapping), expected red (one of red, blue)"),
        ("simulate: {devices: {green: 8}}", "c.yaml:1: simulate.devices.green: unknown key (its value: 8), expected one of red"),
        ("paths: {libraries: {green: /l}}", 'c.yaml:1: paths.libraries.green: unknown key (its value: "/l"), expected one of'),
        ("<<: {node: a}", 'c.yaml:1: "<<": unknown key'),
        # Texts with a form
        ("listen: []", "c.yaml:1: listen: got a list, expected a list (at least 1, at most 16) of: HOST:PORT"),
        ("listen: '0.0.0.0:1'", 'c.yaml:1: listen: got "0.0.0.0:1", expected a list (at least 1, at most 16) of: HOST:PORT'),
        ("listen: [':9400']", 'c.yaml:1: listen[0]: got ":9400", expected HOST:PORT, such as 127.0.0.1:9859 or [::]:9859'),
        ("listen: ['a:1', 'b:65536']", 'c.yaml:1: listen[1]: got "b:65536", expected HOST:PORT'),
        ("listen: ['::1:80']", 'c.yaml:1: listen[0]: got "::1:80", expected HOST:PORT'),
        ("listen: ['10.0.0.300:80']", 'c.yaml:1: listen[0]: got "10.0.0.300:80", expected HOST:PORT'),
        ("listen: [9859]", "c.yaml:1: listen[0]: got 9859, expected HOST:PORT"),
        ("listen: ['a:1', 'a:1']", 'c.yaml:1: listen: got "a:1, a:1", expected each address once'),
        ("collectors: {red: {url: 'localhost:9400'}}", 'c.yaml:1: collectors.red.url: got "localhost:9400", expected a URL that'),
        ("collectors: {red: {url: 'ftp://h/'}}", 'c.yaml:1: collectors.red.url: got "ftp://h/", expected a URL that begins'),
        ("paths: {proc: proc}", 'c.yaml:1: paths.proc: got "proc", expected an absolute path, which may begin with {root}'),
        ("paths: {proc: '/a/../b'}", 'c.yaml:1: paths.proc: got "/a/../b", expected an absolute path'),
        ("paths: {proc: '{dev}/x'}", 'c.yaml:1: paths.proc: got "{dev}/x", expected an absolute path, which may begin with {root}'),
        ("paths: {root: '{root}/x'}", 'c.yaml:1: paths.root: got "{root}/x", expected an absolute path, or nothing'),
        ("device_classes: [{device_class: a, model: 'H100('}]", 'c.yaml:1: device_classes[0].model: got "H100(", expected a regular'),
        ("attribution: {tenant_from: [{source: pod_label, key: team, pattern: '^(a+)+$'}]}", 'c.yaml:1: attribution.tenant_from[0].pattern: got "^(a+)+$", expected a regular expression (Python\'s) that cannot take long: no repetition or alternative within a repetition'),
        ("device_classes: [{model: x}]", "c.yaml:1: device_classes[0].device_class: the key is missing, expected a name"),
        # Collectors' options and names
        ("collectors: {red: {options: {cach: 1}}}", "c.yaml:1: collectors.red.options.cach: unknown key (its value: 1), expected cache"),
        ("collectors: {blue: {options: {a: 1}}}", "c.yaml:1: collectors.blue.options.a: unknown key (its value: 1), expected nothing here"),
        ("collectors: {red: {options: {cache: 601}}}", "c.yaml:1: collectors.red.options.cache: got 601, expected a whole number from 0 to 600"),
        ("collectors: {red: {options: {cache: -1}}}", "c.yaml:1: collectors.red.options.cache: got -1, expected a whole number from 0 to 600"),
        ("collectors: {red: {options: {cache: true}}}", "c.yaml:1: collectors.red.options.cache: got true, expected a whole number"),
        ("collectors: {red: {options: {least: -0.5}}}", "c.yaml:1: collectors.red.options.least: got -0.5, expected a number of at least 0"),
        ("collectors: {red: {options: {least: .nan}}}", "c.yaml:1: collectors.red.options.least: got nan, expected a number of at least 0"),
        ("collectors: {red: {options: {events: 1}}}", "c.yaml:1: collectors.red.options.events: got 1, expected true or false"),
        ("collectors: {red: {options: {mode: z}}}", 'c.yaml:1: collectors.red.options.mode: got "z", expected one of x, y'),
        ("collectors: {red: {options: {watch: a}}}", 'c.yaml:1: collectors.red.options.watch: got "a", expected a list of: one of a, b'),
        ("collectors: {red: {options: {watch: [c]}}}", "c.yaml:1: collectors.red.options.watch: got a list, expected a list of: one of"),
        ("collectors: {red: {options: 5}}", "c.yaml:1: collectors.red.options: got 5, expected a mapping of options to values"),
        ("collectors: {red: {enabled: 'on'}}", 'c.yaml:1: collectors.red.enabled: got "on", expected one of true, false, auto'),
        ("collectors: {red: {expected_devices: -1}}", "c.yaml:1: collectors.red.expected_devices: got -1, expected a whole number"),
        ("collectors: {red: {profile: odl}}", 'c.yaml:1: collectors.red.profile: got "odl", expected old (one of default, old)'),
        ("schema: {raw: most}", 'c.yaml:1: schema.raw: got "most", expected one of all, default, none or a list'),
        ("schema: {raw: [red_pwoer]}", 'c.yaml:1: schema.raw[0]: got "red_pwoer", expected red_power (one of'),
        ("schema: {raw: [red_*, x*]}", 'c.yaml:1: schema.raw[1]: got "x*", expected a pattern that fits at least one raw series'),
        ("schema: {raw: ['a b']}", 'c.yaml:1: schema.raw[0]: got "a b", expected the name of a raw series'),
        ("collectors: {red: {fast: [blue_power]}}", 'c.yaml:1: collectors.red.fast[0]: got "blue_power", expected red_power (one of'),
        # Right alone, wrong together
        ("collection:\n  backoff_min: 400", "c.yaml:2: collection.backoff_min: got 400.0, expected at most collection.backoff_max, which is 300"),
        ("collection:\n  backoff_max: 0.5", "c.yaml:2: collection.backoff_max: got 0.5, expected at least collection.backoff_min, which is 1"),
        ("intervals:\n  fast: 6", "c.yaml:2: intervals.fast: got 6.0, expected at most intervals.normal, which is 5 (seconds)"),
        ("intervals:\n  slow: 4", "c.yaml:2: intervals.slow: got 4.0, expected at least intervals.normal, which is 5 (seconds)"),
        ("collectors: {red: {source: native, passthrough: true}}", "c.yaml:1: collectors.red.passthrough: got true, expected false"),
        # YAML
        ("a:\n\t- b", "c.yaml:2: a: a tab is used for indentation, expected spaces"),
        ("intervals: {normal: 5", "c.yaml:1: intervals.normal: no valid YAML here"),
        ("node: 'x", "c.yaml:1: node: no valid YAML here"),
        ("node: a\nnode: b", "c.yaml:2: node: stands here again, first in line 1, expected each key once"),
        ("1: a", 'c.yaml:1: (document): the key is 1, expected a text as key; put it in quotes: "1"'),
        ("true: a", 'c.yaml:1: (document): the key is true, expected a text as key; put it in quotes: "true"'),
        ("? [a]\n: b", "c.yaml:1: (document): the key is a list, expected a text as key"),
        ("a: &x 1", "c.yaml:1: a: an anchor is used, expected the value itself"),
        ("node: *x", "c.yaml:1: node: an alias is used, expected the value itself"),
        ("node: !!python/object/apply:os.getcwd []", "c.yaml:1: node: a tag is used, expected the value itself"),
        ("node: a\n---\nnode: b", "c.yaml:2: (document): a second document begins, expected one document, without ---"),
        ("node: a\x01", "c.yaml:1: (document): a control character, expected printable text"),
        ("a: " + "[" * 50, "c.yaml:1: a[0][0][0][0][0][0][0][0][0][0][0][0]: too much, expected at most 12 levels"),
        ("a: [" + "1," * 20000 + "]", "too much, expected at most 10000 values"),
    ],
)  # fmt: skip
def test_an_error_names_file_line_key_value_and_expectation(text: str, told: str, tmp_path: Path) -> None:
    assert any(told in problem for problem in problems(tmp_path, text)), problems(tmp_path, text)


@pytest.mark.parametrize(
    ("environ", "flags", "told"),
    [
        ({"ACCEL_EXPORTER_INTERVALS__NORMAL": "x"}, {}, 'environment variable ACCEL_EXPORTER_INTERVALS__NORMAL: intervals.normal: got "x", expected a number'),
        ({"ACCEL_EXPORTER_INTERVALS__NORMAL": "nan"}, {}, 'intervals.normal: got "nan", expected a number from'),
        ({"ACCEL_EXPORTER_INTERVALS__NORMAL": ""}, {}, 'intervals.normal: got "", expected a number from'),
        ({"ACCEL_EXPORTER_LABELS__NODE": "1"}, {}, 'labels.node: got "1", expected true or false'),
        ({"ACCEL_EXPORTER_SIMULATE__DEVICES": "red"}, {}, 'simulate.devices: got "red", expected a mapping of collectors\' names'),
        ({"ACCEL_EXPORTER_SIMULATE__DEVICES": "red=x"}, {}, 'simulate.devices.red: got "x", expected a whole number from 1 to 4096'),
        ({"ACCEL_EXPORTER_INTERVALS_NORMAL": "5"}, {}, "ACCEL_EXPORTER_INTERVALS_NORMAL: intervals_normal: unknown variable (its value: \"5\"), expected ACCEL_EXPORTER_INTERVALS__NORMAL"),
        ({"ACCEL_EXPORTER_INTERVALS": "5"}, {}, "environment variable ACCEL_EXPORTER_INTERVALS: intervals: unknown variable"),
        ({"ACCEL_EXPORTER_": "5"}, {}, "environment variable ACCEL_EXPORTER_: "),
        ({"ACCEL_EXPORTER_COLLECTORS__RED__OPTIONS__CACH": "5"}, {}, "expected ACCEL_EXPORTER_COLLECTORS__RED__OPTIONS__CACHE"),
        ({}, {"interval": "x"}, 'flag --interval: intervals.normal: got "x", expected a number from 0.1 to 3600 (seconds)'),
        ({}, {"log_level": "loud"}, 'flag --log-level: log.level: got "loud", expected one of debug, error, info, warning'),
        ({}, {"listen": ["0.0.0.0:1", "x"]}, 'flag --listen: listen[1]: got "x", expected HOST:PORT'),
        ({}, {"simulate": "green=1"}, "flag --simulate: simulate.devices.green: unknown key (its value: 1), expected one of red, blue"),
        ({}, {"set": ["intervals.norml=1"]}, 'flag --set: intervals.norml: unknown key (its value: "1"), expected intervals.normal'),
        ({}, {"set": ["node"]}, "flag --set: node: no = and value, expected KEY=VALUE"),
        ({}, {"set": "device_classes=[]"}, "flag --set: device_classes: unknown key"),
        ({}, {"intervall": 1}, "flag --intervall: intervall: unknown flag (its value: 1), expected interval"),
        ({}, {"interval": object()}, "flag --interval: intervals.normal: got an object of type object, expected a number"),
        ({}, {"interval": 10**400}, "flag --interval: intervals.normal: got a number of more than 80 digits, expected a number"),
    ],
)  # fmt: skip
def test_an_error_names_variable_or_flag(
    environ: Mapping[str, str], flags: Mapping[str, object], told: str, tmp_path: Path
) -> None:
    found = problems(tmp_path, "", environ, flags)
    assert any(told in problem for problem in found), found


def test_all_problems_of_all_sources_come_at_once(tmp_path: Path) -> None:
    text = "links: both\nintervals: {normal: 0}\nnodes: a\nschema: {raw: [red_x]}\nnode: &a b"
    found = problems(tmp_path, text, {"ACCEL_EXPORTER_X": "1"}, {"log-level": "loud"})
    keys = sorted(problem.split(": ")[1] for problem in found)
    assert keys == ["intervals.normal", "links", "log.level", "node", "nodes", "schema.raw[0]", "x"]


def test_environment_and_flags_are_checked_even_if_the_file_cannot_be_read(tmp_path: Path) -> None:
    found = problems(tmp_path, "a: [", {"ACCEL_EXPORTER_X": "1"}, {"log-level": "loud"})
    assert [problem.split(": ")[0] for problem in found] == [
        "c.yaml:1",
        "environment variable ACCEL_EXPORTER_X",
        "flag --log-level",
    ]


def test_what_only_follows_from_a_wrong_value_is_not_told(tmp_path: Path) -> None:
    found = problems(tmp_path, "intervals: {normal: zero, fast: 30}")
    assert len(found) == 1
    assert "intervals.normal" in found[0]


@pytest.mark.parametrize(
    ("command", "advice"),
    [
        ("check-config --config FILE", "correct these 3 problems, then run it again"),
        (
            "once --config FILE --node a --set http.max_connections=5",
            "correct these 3 problems, then try the result: "
            "accel-exporter check-config --config FILE --node a --set http.max_connections=5",
        ),
    ],
)
def test_all_problems_are_told_line_by_line_and_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, advice: str
) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("links: both\nintervals: {fast: -1}\nnodes: a", encoding="utf-8")
    assert main(command.replace("FILE", str(path)).split()) == 2
    lines = capsys.readouterr().err.splitlines()
    places = [f"accel-exporter: {path}:{number}: " for number in (1, 2, 3)]
    assert [line[: len(place)] for line, place in zip(lines, places, strict=False)] == places
    assert len(lines) == 4
    assert lines[-1] == f"accel-exporter: {advice.replace('FILE', str(path))}"


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("collectors.foo.enabled", "collectors.… with one of red, blue"),
        ("intervals.norml", "intervals.normal (one of fast, normal, slow)"),
        ("intervals", "one key more: one of fast, normal, slow"),
        ("links.each", "nothing behind links"),
        ("lynks", "links"),
    ],
)
def test_a_wrong_path_is_answered_by_what_can_stand_there(tmp_path: Path, key: str, expected: str) -> None:
    [problem] = problems(tmp_path, "", {}, {"set": [f"{key}=x"]})
    assert problem.startswith(f"flag --set: {key}: unknown key")
    assert f"expected {expected}" in problem


def test_a_flood_of_problems_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("\n".join(f"k{number}: 1" for number in range(1000)), encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load(path, {}, {}, OPTIONS)
    lines = str(caught.value).splitlines()
    assert len(lines) == SHOWN + 1
    assert lines[-1] == f"… and {1000 - SHOWN} more"


@pytest.mark.parametrize(
    "text",
    [
        "collectors: {red: {url: 'ftp://user:hunter2@h/'}}",
        "collectors: {red: {url: 'user:hunter2@h:9400'}}",
        "collectors: {red: {url: 'http://user:hun/hunter2@h:x/'}}",
        "collectors: {red: {url: 'h:9400/metrics?token=hunter2'}}",
        "collectors: {red: {url: 'ftp://" + "u" * 500 + ":hunter2@h/'}}",
        "admin: {password: hunter2}",
        "auth_token: hunter2",
        "http: {secret: {value: hunter2}}",
        "http: {secrets: [hunter2]}",
        "apikey: hunter2\nother: [",
        "password: 'hunter2",
        "password: &hunter2x hunter2",
    ],
)
def test_secrets_are_not_shown(text: str, tmp_path: Path) -> None:
    assert not [problem for problem in problems(tmp_path, text) if "hunter2" in problem]


def test_secrets_in_variables_are_not_shown(tmp_path: Path) -> None:
    found = problems(
        tmp_path, "", {"ACCEL_EXPORTER_HTTP__PASSWORD": "hunter2"}, {"set": ["admin.token=hunter2"], "token": "hunter2"}
    )
    assert len(found) == 3
    assert "hunter2" not in "".join(found)


def test_an_error_is_one_printable_line(tmp_path: Path) -> None:
    text = '"a\\nb": 1\n"\\ud800": 2\n"\\x1b[31m": "\\x1b[31m"\nnode: "x\\ny"\n'
    found = problems(tmp_path, text)
    assert len(found) == 4
    for problem in found:
        assert problem.isprintable()
        problem.encode("utf-8")


def test_missing_file(tmp_path: Path) -> None:
    path = tmp_path / "none.yaml"
    with pytest.raises(ConfigError) as caught:
        load(path, {}, {}, OPTIONS)
    assert str(caught.value).startswith(f"{path}: configuration file: there is no such file, expected a text file")


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda path: path.mkdir(), "this is a directory, expected a text file that can be read"),
        (lambda path: os.mkfifo(path), "this is no regular file, expected a text file"),
        (lambda path: path.symlink_to(path), "cannot be read (Too many levels of symbolic links)"),
        (lambda path: path.write_bytes(b"#" * (1 << 20) + b"\n"), "larger than 1 MiB, expected a file of at most 1 MiB"),
        (lambda path: path.write_bytes(b"a: 1\nb: \xff\n"), ":2: configuration file: byte 0xff is no UTF-8, expected text in UTF-8"),
        (lambda path: path.write_bytes("node: a".encode("utf-16")), "byte 0xff is no UTF-8"),
    ],
)  # fmt: skip
def test_what_is_no_text_file_is_told(make: object, told: str, tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    assert callable(make)
    make(path)
    with pytest.raises(ConfigError) as caught:
        load(path, {}, {}, OPTIONS)
    assert str(path) in str(caught.value)
    assert told in str(caught.value)


def test_a_path_with_nul_is_told() -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load(Path("/a\0b"), {}, {}, OPTIONS)


def test_a_byte_order_mark_and_a_symbolic_link_do_no_harm(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_bytes(b"\xef\xbb\xbfnode: a\r\n")
    link = tmp_path / "c.yaml"
    link.symlink_to(target)
    assert load(link, {}, {}, OPTIONS).node == "a"


def test_a_wrong_counters_file_is_told_with_its_own_lines(tmp_path: Path) -> None:
    counters = tmp_path / "counters.csv"
    counters.write_text("# ok\nred_power, gauge, Power\nred_temp, gouge, Temperature\n", encoding="utf-8")
    found = problems(tmp_path, f"schema:\n  raw_counters: {counters}")
    assert found == [
        f'{counters}:3: schema.raw_counters: red_temp type: got "gouge" (the file is named in c.yaml:2), '
        "expected one of gauge, counter, histogram, summary, label"
    ]


def test_an_absent_counters_file_is_told(tmp_path: Path) -> None:
    found = problems(tmp_path, f"schema: {{raw_counters: {tmp_path}/none.csv}}")
    assert f"{tmp_path}/none.csv: schema.raw_counters: counters file: there is no such file" in found[0]
