"""Settings from the environment and from flags, laid over those of the file.

One rule names the variables: ``ACCEL_EXPORTER_``, then the key's path in capitals with two underscores between its
levels. ``intervals.normal`` is ``ACCEL_EXPORTER_INTERVALS__NORMAL``. Lists are written ``A,B`` and mappings
``NAME=VALUE,NAME=VALUE``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec
from msgspec import inspect as kinds

from exporter.catalogue import Option
from exporter.config.build import Options, model, unwrap
from exporter.config.problems import Problem, nearest, one_of, printable, show_key, show_value
from exporter.config.yaml import Node, plain, put

PREFIX: Final = "ACCEL_EXPORTER_"
FILE_VARIABLE: Final = "ACCEL_EXPORTER_CONFIG"
"""Names the configuration file, where no flag does."""

# A pod is given these for every Service of its namespace, and our own Service is named like us.
_URL: Final = r"(tcp|udp|sctp)://\S+"
_PROTOCOL_PORT: Final = r"PORT_[0-9]+_(TCP|UDP|SCTP)"
_SERVICE_LINK: Final = re.compile(
    rf"{PREFIX}([A-Z0-9]+_)*(SERVICE_HOST=[0-9a-f.:]+|SERVICE_PORT(_[A-Z0-9]+)*=[0-9]+|PORT={_URL}|{_PROTOCOL_PORT}={_URL}|"
    rf"{_PROTOCOL_PORT}_(PROTO=(tcp|udp|sctp)|PORT=[0-9]+|ADDR=[0-9a-f.:]+))"
)


class Flag(msgspec.Struct, frozen=True):
    """A command line flag that sets a key."""

    key: str
    metavar: str
    help: str
    repeatable: bool = False


FLAGS: Final[Mapping[str, Flag]] = {
    "listen": Flag("listen", "HOST:PORT|unix:/PATH", "where to serve; can be repeated", repeatable=True),
    "web.config.file": Flag("web_config_file", "FILE", "TLS and users: docs/web-config.md"),
    "node": Flag("node", "NAME", "this node's name; else NODE_NAME or the host's"),
    "interval": Flag("intervals.normal", "SECONDS", "time between two readings"),
    "links": Flag("links", "sum|each", "one series a device, or one a link"),
    "raw": Flag("schema.raw", "default|all|none|NAME,…", "which of the vendors' own series to serve"),
    "raw-counters": Flag("schema.raw_counters", "FILE", "the same, by a counters file (name, type, help)"),
    "simulate": Flag("simulate.devices", "NAME=COUNT,…", "devices that do not exist, so many of each collector"),
    "simulate-seed": Flag("simulate.seed", "NUMBER", "the same seed gives the same numbers"),
    "simulate-scenario": Flag("simulate.scenario", "NAME", "what they do: mix, training, inference, idle or failing"),
    "otlp-endpoint": Flag("otlp.endpoint", "URL", "push over OTLP to this receiver"),
    "root": Flag("paths.root", "DIRECTORY", "where the host's files are, seen from a container"),
    "log-level": Flag("log.level", "LEVEL", "debug, info, warning or error"),
    "log-format": Flag("log.format", "json|text", "for programs or for people"),
}
"""Flags by name, without the dashes. Every other key can be given with ``--set KEY=VALUE``."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A key that a single text can set. ``kind`` is its type, or the option of a collector that it is."""

    path: tuple[str, ...]
    kind: kinds.Type | Option

    @property
    def key(self) -> str:
        return ".".join(self.path)

    @property
    def variable(self) -> str:
        return PREFIX + "__".join(re.sub(r"[^A-Z0-9_]", "_", step.upper()) for step in self.path)


def settings(options: Options) -> list[Setting]:
    """Every key that the environment and flags can set, in the model's order."""
    return list(_settings(model(), (), options))


def _settings(kind: kinds.Type, path: tuple[str, ...], options: Options) -> Iterator[Setting]:
    inner, extra = unwrap(kind)
    match inner:
        case kinds.StructType(fields=fields):
            for field in fields:
                yield from _settings(field.type, (*path, field.name), options)
        case kinds.DictType() if extra.get("options"):
            for name, option in options.get(path[-2], {}).items():
                yield Setting((*path, name), option)
        case kinds.DictType(value_type=kinds.StructType() as below):
            for name in options:
                yield from _settings(below, (*path, name), options)
        case kinds.VarTupleType(item_type=kinds.StructType()):
            # Rules are too long for one text: only the file has them.
            return
        case _:
            yield Setting(path, kind)


def from_environment(tree: Node, environ: Mapping[str, str], options: Options, problems: list[Problem]) -> Node:
    """``tree`` with what the environment sets. Variables of ours that set nothing are problems."""
    known = {setting.variable: setting for setting in settings(options)}
    for name in sorted(environ):
        if not name.startswith(PREFIX) or name == FILE_VARIABLE:
            continue
        value = environ[name]
        source = f"environment variable {show_key((name,))}"
        if name in known:
            tree = _lay(tree, known[name], value, source)
        elif not _SERVICE_LINK.fullmatch(f"{name}={value}"):
            close = nearest(name, list(known), count=3)
            expected = close or f"{PREFIX} and a key's path, such as ACCEL_EXPORTER_INTERVALS__NORMAL"
            found = f"unknown variable (its value: {show_value(value, (name,))})"
            key = name.removeprefix(PREFIX).lower().replace("__", ".")
            problems.append(Problem(source, show_key(tuple(key.split("."))), found, expected))
    return tree


def from_flags(tree: Node, flags: Mapping[str, object], options: Options, problems: list[Problem]) -> Node:
    """``tree`` with what flags set: those of FLAGS, and ``set`` with a list of ``KEY=VALUE``. None means: not given."""
    known = {setting.key: setting for setting in settings(options)}
    for name, value in flags.items():
        flag = name.replace("_", "-")
        if value is None:
            continue
        if flag == "set":
            for text in [value] if isinstance(value, str) else list(value) if isinstance(value, list | tuple) else []:
                tree = _set(tree, str(text), known, problems)
        elif flag in FLAGS:
            tree = _lay(tree, known[FLAGS[flag].key], value, f"flag --{flag}")
        else:
            expected = nearest(flag, list(FLAGS)) or "one of " + ", ".join(f"--{each}" for each in FLAGS)
            found = f"unknown flag (its value: {show_value(value, (flag,))})"
            problems.append(Problem(f"flag --{printable(flag)}", show_key((flag,)), found, expected))
    return tree


def _set(tree: Node, text: str, known: Mapping[str, Setting], problems: list[Problem]) -> Node:
    key, equals, value = text.partition("=")
    if not equals:
        problems.append(Problem("flag --set", show_key(tuple(key.split("."))), "no = and value", "KEY=VALUE"))
    elif key not in known:
        found = f"unknown key (its value: {show_value(value, (key,))})"
        path = tuple(key.split("."))
        problems.append(Problem("flag --set", show_key(path), found, _instead(path, known)))
    else:
        return _lay(tree, known[key], value, "flag --set")
    return tree


def _instead(path: tuple[str, ...], known: Mapping[str, Setting]) -> str:
    """What can stand where the path leaves what there is."""
    steps = [setting.path for setting in known.values()]
    right = next(depth for depth in range(len(path), -1, -1) if any(each[:depth] == path[:depth] for each in steps))
    choices = list(dict.fromkeys(each[right] for each in steps if each[:right] == path[:right] and len(each) > right))
    if not choices:
        return f"nothing behind {'.'.join(path[:right])}"
    if right == len(path):
        return f"one key more: {one_of('', choices)}"
    before = "".join(f"{step}." for step in path[:right])
    listed = one_of(path[right], choices)
    return before + listed if not before or not listed.startswith("one of ") else f"{before}… with {listed}"


def _lay(tree: Node, setting: Setting, value: object, source: str) -> Node:
    return put(tree, setting.path, _node(from_text(setting.kind, value) if isinstance(value, str) else value, source))


def _node(value: object, source: str) -> Node:
    if isinstance(value, list | tuple):
        return Node(tuple(_node(item, source) for item in value), source)
    if isinstance(value, Mapping):
        return Node({str(key): _node(item, source) for key, item in value.items()}, source)
    return Node(value, source)


def from_text(kind: kinds.Type | Option, text: str) -> object:
    """What a text means for a setting of this type. A text that means nothing stays as it is, to be told as wrong."""
    if isinstance(kind, Option):
        return _option_from_text(kind, text)
    inner, _ = unwrap(kind)
    match inner:
        case kinds.BoolType():
            return _boolean(text)
        case kinds.IntType() | kinds.FloatType():
            return _number(text)
        case kinds.VarTupleType():
            return _parts(text)
        case kinds.DictType(value_type=value):
            return _mapping_from_text(value, text)
        case kinds.UnionType(types=types):
            return _union_from_text(types, text)
        case _:
            return text


def _option_from_text(option: Option, text: str) -> object:
    match option.type:
        case "bool":
            return _boolean(text)
        case "int" | "float":
            return _number(text)
        case "list":
            return _parts(text)
        case _:
            return text


def _boolean(text: str) -> object:
    return {"true": True, "false": False}.get(text.strip().lower(), text)


def _number(text: str) -> object:
    found = plain(text.strip())
    return found if isinstance(found, int | float) and not isinstance(found, bool) else text


def _parts(text: str) -> list[str]:
    """``a,b``, or as a file would have it, ``[a, b]``."""
    if text.startswith("[") and text.endswith("]"):
        text = text[1:-1]
    return [part.strip() for part in text.split(",") if part.strip()]


def _mapping_from_text(kind: kinds.Type, text: str) -> object:
    pairs = [part.partition("=") for part in _parts(text)]
    if any(not equals for _, equals, _ in pairs):
        return text
    return {name.strip(): from_text(kind, value.strip()) for name, _, value in pairs}


def _union_from_text(types: tuple[kinds.Type, ...], text: str) -> object:
    members = [unwrap(member)[0] for member in types]
    if any(isinstance(member, kinds.LiteralType) and text in member.values for member in members):
        return text
    if any(isinstance(member, kinds.NoneType) for member in members) and text in ("", "null"):
        return None
    for member in members:
        if not isinstance(member, kinds.LiteralType | kinds.NoneType):
            return from_text(member, text)
    return text
